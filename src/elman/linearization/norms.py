"""Euclidean norms that are correct over the whole range of their format.

A sum of squares is zero for numbers below 1e-162 and infinite above 1e154, where the numbers themselves are neither. It
costs half as much as a norm with scaling, so it comes first, and scaling is used only where the sum left the range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SMALLEST_SUM = 1e-290
"""In a smaller sum of float64 squares, single ones may have underflowed: 2**-53 of this is still a normal number."""


def safe_norm(v: Array) -> Array:
    """Euclidean norms along the last axis in float64, correct even where the squares would over- or underflow."""
    v = v.astype(np.float64, copy=False)
    largest = np.abs(v).max(axis=-1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out: Array = np.where(np.isinf(largest), largest, largest * np.linalg.norm(v / safe[..., None], axis=-1))
    return out


def row_norms(v: Array) -> Array:
    """As :func:`safe_norm`, but bit for bit the root of the plain sum of squares wherever that is in range."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.asarray(np.square(v, dtype=np.float64).sum(axis=-1))
        norms: Array = np.asarray(np.sqrt(squares))
    hard = out_of_range(squares)
    if hard.any():
        norms[hard] = safe_norm(v[hard])
    return norms


def out_of_range(squares: Array) -> Array:
    """Where a sum of squares does not give the norm: it may have under- or overflowed, or is not a number."""
    fits: Array = (squares >= SMALLEST_SUM) & (squares < np.inf)
    return ~fits
