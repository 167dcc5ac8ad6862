"""Analysis of directions that form one chain of steps: a layer, a stack, or one of two directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...norms import row_norms
from ...validation.arrays import matching
from ...validation.scalars import choice, number
from .direction import Direction
from .layout import Layout
from .linearize import LayerLinearization

Array = NDArray[Any]

Levers = Mapping[str, Literal["keep", "renew"] | None]
"""What can be changed, with the role of the gate for its bias; None for the weights and for all biases together."""


def cut_paths(
    whole: LayerLinearization, directions: list[Direction], weights: Mapping[str, Array]
) -> dict[str, LayerLinearization]:
    """Linearizations along the trajectories of one, with paths removed one after the other; see :meth:`RNN.paths`."""
    out, params, layouts = {"all": whole}, dict(weights), [d.layout for d in directions]
    for i, gate in enumerate(layouts[0].cell.gate_names):
        for layout in layouts:
            params[layout.weight_hh] = params[layout.weight_hh].copy()
            params[layout.weight_hh][i * layout.H : (i + 1) * layout.H] = 0
        out[gate] = LayerLinearization(directions, params, whole._records)
    if len(directions) > 1:
        params |= {layout.weight_ih: np.zeros_like(params[layout.weight_ih]) for layout in layouts[1:]}
        out["below"] = LayerLinearization(directions, params, whole._records)
    return out


def levers_of(layout: Layout, params: Mapping[str, Array]) -> Levers:
    """What :func:`turn` can change in directions with this layout."""
    weights: Levers = {"recurrent": None}
    biases: Levers = {gate.bias: gate.role for gate in layout.cell.gates if gate.role} or {"bias": None}
    return {**weights, **biases} if layout.bias_ih in params else weights


def turn(layouts: list[Layout], params: Mapping[str, Array], lever: str, amount: float) -> None:
    """Multiply W_hh of every direction, or add to a bias of each, in place; see :meth:`RNN.change`."""
    choice(lever, "lever", tuple(levers_of(layouts[0], params)))
    amount = number(amount, "amount")
    for layout in layouts:
        if lever == "recurrent":
            params[layout.weight_hh][...] *= amount
            continue
        for i, gate in enumerate(layout.cell.gates):
            if gate.bias == lever:
                params[layout.bias_ih][i * layout.H : (i + 1) * layout.H] += amount


def log_norms(lin: LayerLinearization, start: ArrayLike) -> Array:
    """Log norms (T + 1, B) by lag of the gradient pulled back from ``start``, unscaled, by the kernels that train."""
    B, T = lin.n_sequences, lin.n_steps
    start = matching(start, "start", (B, lin.state_size), "(B, S)", lin.dtype)
    norms = np.empty((T + 1, B))
    norms[0] = row_norms(start)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        lin.vjp(start, norms=norms[1:, :, None])
        out: Array = np.log(norms)
    return out
