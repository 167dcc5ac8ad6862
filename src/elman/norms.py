"""Euclidean norms that are correct over the whole range of their format.

For numbers below 1e-162 a sum of squares is zero, and above 1e154 infinite, although the numbers are neither. It costs
half as much as a norm by scaling, so it is tried first, and scaling is used only where the sum left the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

SMALLEST_SUM = 1e-290
"""Below this sum of float64 squares, single squares may have underflowed: 2**-53 of it is still a normal number."""


def safe_norm(v: Array) -> Array:
    """Euclidean norms along the last axis in float64, correct even where the squares would over- or underflow."""
    v = v.astype(np.float64, copy=False)
    largest = np.abs(v).max(axis=-1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out: Array = np.where(np.isinf(largest), largest, largest * np.linalg.norm(v / safe[..., None], axis=-1))
    return out


def row_norms(v: Array) -> Array:
    """As :func:`safe_norm`, with the bits of the plain sum of squares wherever that is in range."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.asarray(np.square(v, dtype=np.float64).sum(axis=-1))
        norms: Array = np.asarray(np.sqrt(squares))
    hard = out_of_range(squares)
    if hard.any():
        norms[hard] = safe_norm(v[hard])
    return norms


def whole_norm(v: Array, sum_of_squares: Callable[[Array], float]) -> float:
    """Euclidean norm of all entries, with the caller's sum of squares, whose order decides the last bits."""
    total = sum_of_squares(v)
    if SMALLEST_SUM <= total < math.inf:
        return math.sqrt(total)
    largest = float(np.max(np.abs(v), initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    # some versions of NumPy report an overflow of what fills up their vectors
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.divide(v, largest, dtype=np.float64)
    return largest * math.sqrt(sum_of_squares(scaled))


def out_of_range(squares: Array) -> Array:
    """Where a sum of squares does not determine the norm: it may have under- or overflowed, or is not a number."""
    fits: Array = (squares >= SMALLEST_SUM) & (squares < np.inf)
    return ~fits


def smallest_exact(dtype: DTypeLike) -> float:
    """Norm above which the squares of all components that count are normal numbers of this floating-point format."""
    info = np.finfo(np.dtype(dtype))
    # a component counts if its square is above eps times the sum
    return math.sqrt(float(info.tiny) / float(info.eps))
