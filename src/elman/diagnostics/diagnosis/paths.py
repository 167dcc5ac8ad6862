r"""Which paths a gradient takes back through a step: what the gates let pass, and what goes through their weights.

A step's Jacobian is a sum over paths, :math:`J = \sum_p J_p`. With the gradient ``u`` that reaches a step and the
tangent ``v`` that reaches it from the far end of the sequence, the share
:math:`\langle u, J_p v \rangle / \langle u, J v \rangle` of a path is, summed over steps, the exact derivative of the
log gradient norm with respect to the log of that path's strength, along a fixed trajectory. Shares add up to 1; those
against the gradient are negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...linearization import Array, Linearization
from ...norms import safe_norm
from ...results import Result
from ..gradient.intervals import interval_text, mean_interval


@dataclass(frozen=True, eq=False)
class PathShares(Result):
    """Mean shares over steps, vectors and living sequences.

    Attributes
    ----------
    shares : dict of str to float
        By path: ``"carry"`` is what states pass on around all weights, then the gates by name, and in a stack
        ``"below"``, what a layer receives from the one below. They add up to 1.
    intervals : dict of str to (float, float)
        95 % t interval of each over sequences.
    n : int
        Sequences with a living gradient.
    """

    shares: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    n: int

    @classmethod
    def measured(cls, parts: list[tuple[Mapping[str, Linearization], Array]]) -> PathShares | None:
        """Average :func:`path_shares` over batches of (linearizations, start vectors); None if no gradient lives."""
        names = list(parts[0][0])
        each = np.concatenate([path_shares(list(lins.values()), start) for lins, start in parts], axis=1)
        each = each[:, np.isfinite(each).all(axis=0)]
        if not each.shape[1]:
            return None
        stats = {name: mean_interval(values) for name, values in zip([*names[1:], "carry"], each, strict=True)}
        order = ["carry", *names[1:]]
        return cls(
            {name: stats[name][0] for name in order}, {name: stats[name][1:] for name in order}, int(each.shape[1])
        )

    @property
    def carry(self) -> float:
        """Share of what is carried around all weights."""
        return self.shares["carry"]

    @property
    def recurrent(self) -> float:
        """Share of the paths through W_hh: the response of the rate to ``log |W_hh|``, to first order."""
        return sum(share for name, share in self.shares.items() if name not in ("carry", "below"))

    def __str__(self) -> str:
        lines = [
            f"paths of the gradient, shares adding up to {sum(self.shares.values()):.6g} (n = {self.n} sequences):"
        ]
        meaning = {"carry": "handed on past all weights", "below": "from the layer below"}
        for name, share in self.shares.items():
            words = meaning.get(name, f"through the part of W_hh of gate {name}")
            lines.append(f"  {name:<7}{share:+.4f}  {interval_text(*self.intervals[name], 4)}  {words}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        return {
            "shares": dict(self.shares),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "n": self.n,
        }


def path_shares(lins: list[Linearization], start: Array) -> Array:
    """Shares of paths in the growth of gradients over the whole sequence.

    Parameters
    ----------
    lins : list of Linearization
        Along one set of ``n`` trajectories: with all paths, then without one, without two, ..., with only the last; P
        of them in all.
    start : ndarray, shape (n, K, S)
        Gradients with respect to the last state; only their directions count.

    Returns
    -------
    ndarray, shape (P, n)
        Mean over steps and vectors of the share of the first path removed, of the second, ..., and of what is left;
        NaN for a sequence with a gradient of exactly zero.
    """
    whole = lins[0]
    T, dtype = whole.n_steps, whole.dtype
    u = np.empty((T + 1, *start.shape), dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        u[T] = start / safe_norm(start)[..., None]
        for t in range(T - 1, -1, -1):
            u[t] = _unit(whole.vjp(u[t + 1], t, t + 1))
        total = np.zeros((len(lins), *start.shape[:2]))
        dead = ~np.isfinite(u[0]).all(axis=-1)
        u[:, dead] = 0
        v = u[0]
        for t in range(T):
            pushed = [lin.jvp(v, t, t + 1) for lin in lins]
            through = np.array([np.einsum("nks,nks->nk", u[t + 1], p, dtype=np.float64) for p in pushed])
            total[:-1] += (through[:-1] - through[1:]) / through[0]
            total[-1] += through[-1] / through[0]
            v = np.nan_to_num(_unit(pushed[0]), copy=False)
    out: Array = (total / T).mean(axis=2)
    return out


def _unit(v: Array) -> Array:
    """Divide vectors along the last axis by their norms."""
    out: Array = v / np.linalg.norm(v, axis=-1, keepdims=True)
    return out
