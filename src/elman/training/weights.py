"""How much each target counts: weights of samples and steps, and gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..losses import Loss
from ..validation.arrays import plain, real_numbers
from ..validation.scalars import choice
from ..validation.sequences import holds

Array = NDArray[Any]


def checked_missing(missing: Any) -> bool:
    """Whether NaN in targets means that there is none."""
    return choice(missing, "missing", ("refuse", "ignore")) == "ignore"


def check_takes_weight(loss: Loss) -> None:
    """Refuse a loss that cannot weigh its targets.

    Raises
    ------
    ArgumentError
        Unless it declares that its ``value_and_gradient`` takes ``weight``.
    """
    if not getattr(loss, "takes_weight", False):
        raise ArgumentError(
            f"sample_weight and missing need a loss that takes weights, and {type(loss).__name__} does not say so: "
            "give it an attribute takes_weight = True and a method value_and_gradient(output, target, weight=None), "
            "with weight of the shape of output without its last axis"
        )


def position_weights(
    weight: Any, name: str, leading: tuple[int, ...], n: int, valid: Array | None, lengths: Array | None, time: int
) -> Array:
    """Checked weights: one for each sample, or for each position of the targets.

    Parameters
    ----------
    weight : array_like, shape (n,) or ``leading``, or list of array_like
        A list holds those of each sequence in a list of sequences.
    leading : tuple of int
        Positions of the targets.
    valid : ndarray of bool, shape ``leading``, or None
        Which of these count at all: beyond, weights may be anything.

    Returns
    -------
    ndarray of float64, shape (n,) or ``leading``

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        For another shape, or weights that are negative, not finite, or all 0.
    """
    if lengths is not None and holds(weight, 1):
        weight = _side_by_side(weight, name, lengths, leading, time)
    given = real_numbers(weight, name)
    if given.shape not in ((n,), leading):
        per_step = f" (for each sequence), or {leading} (for each target)" if leading != (n,) else ""
        swapped = " Its axes of time and batch are swapped" if given.shape == leading[::-1] else ""
        raise ShapeError(f"{name} must have shape ({n},){per_step}, got {given.shape}.{swapped}".rstrip("."))
    w = given.astype(np.float64)
    if valid is not None and w.shape == valid.shape:
        w = np.where(valid, w, 0.0)
    if not (np.isfinite(w).all() and (w >= 0).all()):
        bad = tuple(int(i) for i in np.argwhere(~(np.isfinite(w) & (w >= 0)))[0])
        raise ArgumentError(
            f"{name} must be finite and at least 0; {name}[{', '.join(map(str, bad))}] is {w[bad]}. A target that "
            "must not count has weight 0"
        )
    if not w.any():
        raise ArgumentError(f"{name} must be positive somewhere: with all weights 0 there is nothing to learn from")
    return w


def _side_by_side(weight: Any, name: str, lengths: Array, leading: tuple[int, ...], time: int) -> Array:
    """Weights of the steps of each sequence in a list as one array; 0 beyond the ends."""
    items = [plain(item, f"{name}[{i}]") for i, item in enumerate(weight)]
    for i, (item, length) in enumerate(zip(items, lengths, strict=False)):
        if item.shape != (length,):
            raise ShapeError(f"{name}[{i}] must have shape ({length},), one for each step of x[{i}], got {item.shape}")
    if len(items) != len(lengths) or len(leading) != 2:
        raise ShapeError(
            f"{name} must be a list with an item for each of {len(lengths)} sequences, where there are targets at "
            f"every step; got {len(items)} items"
        )
    out = np.zeros(leading)
    for i, item in enumerate(items):
        (out if time == 0 else out.T)[: len(item), i] = item
    return out


def over_positions(weight: Array, shape: tuple[int, ...], axis: int, single: bool = False) -> Array:
    """Weights of samples, repeated over the positions of their targets; those of positions as they are.

    Parameters
    ----------
    axis : int
        Axis of the samples among those of positions.
    single : bool
        Whether there is one sequence, without such an axis.
    """
    if weight.shape == shape:
        return weight
    if single or len(shape) == 1:
        return np.broadcast_to(weight, shape) if shape else weight[0]
    return np.broadcast_to(np.expand_dims(weight, 1 - axis), shape)


def without_gaps(y: Array, weight: Array | None, axes: int, missing: bool) -> Array | None:
    """Weights of a batch, 0 where targets are missing; what targets of weight 0 hold becomes 0 in place.

    Parameters
    ----------
    y : ndarray
        Targets of a batch; written to.
    weight : ndarray or None
        Their weights.
    axes : int
        Axes of a target beyond those of positions: with a gap in any channel, the position has no target.
    missing : bool
        Whether NaN is a gap.
    """
    if missing and y.dtype.kind == "f":
        gap = np.isnan(y).any(axis=tuple(range(y.ndim - axes, y.ndim)))
        if gap.any():
            weight = np.where(gap, 0.0, 1.0 if weight is None else weight)
    if weight is not None and not weight.all():
        y[weight == 0] = 0
    return weight


def classes_with_gaps(y: Array, name: str) -> tuple[Array, Array]:
    """Classes that were given as floating-point numbers with NaN in the gaps, as integers, and where they count.

    Raises
    ------
    DTypeError
        If they are not whole numbers.
    """
    there = np.isfinite(y)
    filled = np.where(there, y, 0)
    if not (np.isnan(y) | there).all() or (filled != np.floor(filled)).any():
        raise DTypeError(f"{name} must hold integer classes, with NaN in the gaps; got other numbers")
    return filled.astype(np.intp), there.astype(np.float64)
