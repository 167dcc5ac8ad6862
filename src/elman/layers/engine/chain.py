"""What analysis does with directions that make one chain of steps: a layer, a stack, or one direction of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...linearization.norms import row_norms
from ...validation.arrays import matching
from ...validation.scalars import choice, number
from .direction import Direction
from .linearize import LayerLinearization

Array = NDArray[Any]

Levers = Mapping[str, Literal["keep", "renew"] | None]
"""What can be changed, with the role of the gate whose bias it is; None for the weights and for all biases."""


def cut_paths(
    whole: LayerLinearization, directions: list[Direction], weights: Mapping[str, Array]
) -> dict[str, LayerLinearization]:
    """Linearizations along the trajectories of one, without one path after the other; see :meth:`Dynamics.paths`."""
    out, params = {"all": whole}, dict(weights)
    for i, gate in enumerate(directions[0].cell.gate_names):
        for d in directions:
            params[d.weight_hh] = params[d.weight_hh].copy()
            params[d.weight_hh][i * d.H : (i + 1) * d.H] = 0
        out[gate] = LayerLinearization(directions, params, whole._records)
    if len(directions) > 1:
        params |= {d.weight_ih: np.zeros_like(params[d.weight_ih]) for d in directions[1:]}
        out["below"] = LayerLinearization(directions, params, whole._records)
    return out


def levers_of(direction: Direction, params: Mapping[str, Array]) -> Levers:
    """What :func:`turn` can change of directions like this one."""
    weights: Levers = {"recurrent": None}
    biases: Levers = {gate.bias: gate.role for gate in direction.cell.gates if gate.role} or {"bias": None}
    return {**weights, **biases} if direction.bias_ih in params else weights


def turn(directions: list[Direction], params: Mapping[str, Array], lever: str, amount: float) -> None:
    """Multiply W_hh of directions, or add to a bias of each, in place; see :meth:`Dynamics.change`."""
    choice(lever, "lever", tuple(levers_of(directions[0], params)))
    amount = number(amount, "amount")
    for d in directions:
        if lever == "recurrent":
            params[d.weight_hh][...] *= amount
            continue
        for i, gate in enumerate(d.cell.gates):
            if gate.bias == lever:
                params[d.bias_ih][i * d.H : (i + 1) * d.H] += amount


def log_norms(lin: LayerLinearization, start: ArrayLike) -> Array:
    """Log norms (T + 1, B) by lag of the gradient pulled back from ``start``, by the kernels that train, unscaled."""
    B, T = lin.n_sequences, lin.n_steps
    start = matching(start, "start", (B, lin.state_size), "(B, S)", lin.dtype)
    norms = np.empty((T + 1, B))
    norms[0] = row_norms(start)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        lin.vjp(start, norms=norms[1:, :, None])
        out: Array = np.log(norms)
    return out
