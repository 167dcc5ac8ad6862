"""Ridge regression in closed form for a linear readout, its strength chosen by leaving each row out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..results import Result
from ..validation.arrays import finite_floats
from ..validation.scalars import at_least_zero
from ..validation.sequences import is_list
from ..validation.words import kind

Array = NDArray[Any]

_GRID = np.logspace(-14, 2, 33)
"""Strengths that are tried by default, in units of the largest squared singular value: from where rounding dominates to
where nothing is left of the fit."""


@dataclass(frozen=True, repr=False)
class ReadoutSolution(Result):
    """What :meth:`elman.Readout.solve` found.

    Attributes
    ----------
    ridge : list of float
        Strength for each target, in the squared unit of the states.
    rmse : list of float
        Root mean square error of each target on the rows that were fitted, in the target's unit.
    loo_rmse : list of float
        The same with each row predicted by the fit to all others; infinite where a row cannot be left out.
    degrees_of_freedom : list of float
        Effective number of weights for each target: the sum of ``s**2 / (s**2 + ridge)`` over the singular values.
    condition : float
        Ratio of the largest to the smallest singular value of the centred states; infinite if they are dependent.
    n_rows : int
        Number of steps that were fitted, in all sequences together.
    candidates : list of float
        Strengths that were tried, from small to large; empty if one was given.
    """

    ridge: list[float]
    rmse: list[float]
    loo_rmse: list[float]
    degrees_of_freedom: list[float]
    condition: float
    n_rows: int
    candidates: list[float]

    def __str__(self) -> str:
        lines = [f"Readout solved from {self.n_rows} rows, condition of the states {self.condition:.3g}"]
        for q, values in enumerate(zip(self.ridge, self.rmse, self.loo_rmse, self.degrees_of_freedom, strict=True)):
            ridge, rmse, loo, freedom = values
            edge = ""
            if len(self.candidates) > 1 and ridge in (self.candidates[0], self.candidates[-1]):
                edge = ", at the edge of those tried"
            lines.append(
                f"  target {q}: RMSE {rmse:.4g}, each row left out {loo:.4g}; ridge {ridge:.3g}{edge}, "
                f"{freedom:.3g} effective weights"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"ReadoutSolution(n_rows={self.n_rows}, targets={len(self.ridge)}, rmse={max(self.rmse):.4g})"

    def to_dict(self) -> dict[str, Any]:
        """All results as plain lists and numbers."""
        return asdict(self)


def rows_of(states: Any, y: Any, features: int, targets: int, washout: int, batch_first: bool) -> tuple[Array, Array]:
    """States (n, H) and targets (n, Q) of all sequences in float64, without the first steps of each.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If they do not fit each other or the readout, or nothing is left.
    """
    (S_items, listed), (Y_items, y_listed) = _items(states, "states"), _items(y, "y")
    if listed != y_listed or len(S_items) != len(Y_items):
        raise ShapeError("states and y must both be arrays, or lists of as many sequences")
    kept: list[tuple[Array, Array]] = []
    for i, (s, t) in enumerate(zip(S_items, Y_items, strict=True)):
        at = f"[{i}]" if listed else ""
        axes = (2,) if listed else (2, 3)
        if s.ndim not in axes or s.shape[-1] != features:
            layout = "(T, H)" if listed else "(T, H), (T, N, H), or (N, T, H) with batch_first"
            raise ShapeError(f"states{at} must have shape {layout} with H = {features}, got {s.shape}")
        if t.shape != (*s.shape[:-1], targets):
            cure = ": add the axis of targets, y[..., None]" if t.shape == s.shape[:-1] and targets == 1 else ""
            raise ShapeError(f"y{at} must have shape {(*s.shape[:-1], targets)}, got {t.shape}{cure}")
        time = int(batch_first and s.ndim == 3)
        rest = (slice(None),) * time + (slice(washout, None),)
        kept.append((s[rest].reshape(-1, features), t[rest].reshape(-1, targets)))
    S, Y = (np.concatenate([pair[k] for pair in kept]) for k in (0, 1))
    if not len(S):
        raise ArgumentError(f"washout must leave a step to fit, and {washout} leaves none")
    return S, Y


def _items(value: Any, name: str) -> tuple[list[Array], bool]:
    """The arrays of a list of sequences, or one array as the only item; and whether it is a list."""
    if is_list(value):
        return [finite_floats(item, f"{name}[{i}]", np.dtype(float)) for i, item in enumerate(value)], True
    return [finite_floats(value, name, np.dtype(float))], False


def strengths(ridge: Any) -> Array | None:
    """The candidates in ascending order; None for the default ones.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not None, a number of at least 0, or a sequence of such numbers.
    """
    if ridge is None:
        return None
    if isinstance(ridge, Sequence | np.ndarray) and not isinstance(ridge, str) and np.ndim(ridge) == 1:
        if not len(ridge):
            raise ArgumentError("ridge must hold at least one number, got none")
        return np.array(sorted({at_least_zero(value, f"ridge[{i}]") for i, value in enumerate(ridge)}))
    if isinstance(ridge, str | Sequence | np.ndarray):
        raise DTypeError(f"ridge must be None, a number, or a sequence of numbers, got {kind(ridge)}")
    return np.array([at_least_zero(ridge, "ridge")])


def solve(S: Array, Y: Array, ridge: Array | None, bias: bool) -> tuple[Array, Array, ReadoutSolution]:
    """Weights (Q, H) and bias (Q,) that minimise ``sum |Y - S W' - b|^2 + ridge |W|^2`` for each target.

    Parameters
    ----------
    S : ndarray, shape (n, H)
    Y : ndarray, shape (n, Q)
    ridge : ndarray, shape (R,), or None
        Candidates, from which each target takes the one with the smallest leave-one-out error.
    bias : bool
        Whether there is a bias; it is not penalised.

    Notes
    -----
    From the singular values ``S - mean = U diag(s) V'``. The diagonal of the hat matrix is
    ``h_i = sum_j U_ij**2 s_j**2 / (s_j**2 + ridge) [+ 1/n]``, and the error of row i with the row left out is
    ``e_i / (1 - h_i)`` (Allen 1974; Golub, Heath & Wahba 1979).
    """
    n = len(S)
    mean_s, mean_y = (a.mean(axis=0) if bias else np.zeros(a.shape[1]) for a in (S, Y))
    U, s, Vt = np.linalg.svd(S - mean_s, full_matrices=False)
    centred = Y - mean_y
    projected = U.T @ centred
    outside = centred - U @ projected
    cutoff = s.max(initial=0.0) * max(S.shape) * np.finfo(float).eps
    rank_kept = s > cutoff
    candidates = s.max(initial=0.0) ** 2 * _GRID if ridge is None else ridge
    squares, leverage0 = np.square(U), 1.0 / n if bias else 0.0
    best = np.full(Y.shape[1], np.inf)
    chosen = np.zeros(Y.shape[1], dtype=int)
    for r, strength in enumerate(candidates):
        shrink = _shrink(s, strength, rank_kept)
        error = outside + U @ ((1.0 - shrink)[:, None] * projected)
        loo = _left_out(error, 1.0 - leverage0 - squares @ shrink)
        better = loo < best
        best[better], chosen[better] = loo[better], r
    W, errors, freedom = np.empty((Y.shape[1], S.shape[1])), np.empty(Y.shape[1]), np.empty(Y.shape[1])
    for r in np.unique(chosen):
        mine = chosen == r
        shrink = _shrink(s, candidates[r], rank_kept)
        gain = np.divide(shrink, s, out=np.zeros_like(s), where=rank_kept)
        W[mine] = ((Vt.T * gain) @ projected[:, mine]).T
        error = outside[:, mine] + U @ ((1.0 - shrink)[:, None] * projected[:, mine])
        errors[mine], freedom[mine] = np.sqrt(np.square(error).mean(axis=0)), shrink.sum()
    whole = len(s) == S.shape[1] and bool(rank_kept.all())
    solution = ReadoutSolution(
        ridge=candidates[chosen].tolist(),
        rmse=errors.tolist(),
        loo_rmse=best.tolist(),
        degrees_of_freedom=freedom.tolist(),
        condition=float(s.max() / s.min()) if whole and s.size else float("inf"),
        n_rows=n,
        candidates=[] if len(candidates) == 1 else candidates.tolist(),
    )
    return W, mean_y - W @ mean_s, solution


def _shrink(s: Array, ridge: float, kept: Array) -> Array:
    """``s**2 / (s**2 + ridge)``; 0 for directions that are only rounding error."""
    squares = np.square(s)
    return np.divide(squares, squares + ridge, out=np.zeros_like(s), where=kept)


def _left_out(error: Array, remaining: Array) -> Array:
    """Root mean square of the errors with each row left out (Q,); infinite if a row alone decides its own value."""
    if (remaining <= 1e-10).any():
        return np.full(error.shape[1], np.inf)
    loo: Array = np.sqrt(np.square(error / remaining[:, None]).mean(axis=0))
    return loo
