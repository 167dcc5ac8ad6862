"""Means over positions, each with a weight: what all losses have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, ShapeError
from ..validation.arrays import real_numbers

Array = NDArray[Any]


def checked_weight(weight: Any, shape: tuple[int, ...]) -> Array:
    """Weights of the positions of an output as float64.

    Raises
    ------
    DTypeError, ShapeError, ArgumentError
        If they are no real numbers, have another shape, or one or the sum of all is negative or not finite.
    """
    w = real_numbers(weight, "weight").astype(np.float64)
    if w.shape != shape:
        raise ShapeError(f"weight must have the shape of the output without its last axis, {shape}, got {w.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        good = (w >= 0.0).all() and np.isfinite(w.sum())
    if not good:
        raise ArgumentError(
            "weight must be finite, of a finite sum, and at least 0; a target that must not count has weight 0"
        )
    return w


def where_counted(target: Array, weight: Array) -> Array:
    """The target with 0 at the positions of weight 0, which may hold anything."""
    empty = weight == 0.0
    if not empty.any():
        return target
    out = target.copy()
    out[empty] = 0
    return out


def shares(weight: Array | None, positions: int) -> Any:
    """What each position contributes to the mean: its weight over the sum of all; 0 where all are 0."""
    if weight is None:
        return 1.0 / max(1, positions)
    total = float(weight.sum())
    return weight / total if total > 0.0 else np.zeros_like(weight)


def reduced(losses: Array, slopes: Array, weight: Array | None, parts: int) -> tuple[float, Array]:
    """The weighted mean of losses, and its derivative.

    Parameters
    ----------
    losses, slopes : ndarray, shape (..., Q)
        Loss of each entry, and its derivative by the output, which is written over.
    weight : ndarray of float64, shape (...), or None
    parts : int
        Entries that a position's loss is the mean of.

    Returns
    -------
    value : float
        Summed in float64; NaN or inf if an entry is, also at positions of weight 0.
    d_output : ndarray
        ``slopes``, scaled.
    """
    positions = losses.size // max(1, losses.shape[-1])
    share = shares(weight, positions)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        rows = losses.sum(axis=-1, dtype=np.float64)
        value = float((rows * share).sum()) / max(1, parts)
        slopes *= np.asarray(share / max(1, parts))[..., None] if weight is not None else share / max(1, parts)
        if weight is not None:
            # what is not finite times 0 is NaN: the derivative of what does not count is 0
            slopes[weight == 0.0] = 0.0
    return value, slopes
