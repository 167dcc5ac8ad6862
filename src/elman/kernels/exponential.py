r"""Exponential and logarithm of whole arrays, for losses, with the same bits on every processor, unlike NumPy's.

============ =============================== ======================
function     of                              error, ULP, at most
============ =============================== ======================
exp          0 and below, float32, float64   1.0
log          2^-1022 to 2^1023, float64      1.0
============ =============================== ======================

NaN stays NaN. Where the true exponential is below the smallest normal number the result is 0.

The logarithm: z = 2^k m with sqrt(1/2) < m < sqrt(2); with f = m - 1 and s = f / (2 + f),
log m = 2 s + s^3 L(s^2) = f - (f^2/2 - s (f^2/2 + s^2 L(s^2))), whose largest term is exact (W. J. Cody, W. Waite,
Software manual for the elementary functions, 1980). Coefficients of L: ``tests/data/make_coefficients.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .activations import coefficients, exponential, horner
from .compile import kernel
from .elementwise import elementwise
from .operands import rows_at
from .vector import lanes_of

SQRT2 = 1.4142135623730951

LOG = (
    0.66666666666667346353,
    0.39999999999412806547,
    0.28571428742886612539,
    0.22222198513930788561,
    0.18183567803731102497,
    0.15313951848654828876,
    0.14797030606890399415,
)
"""Coefficients of L for float64, lowest first; relative error of the logarithm 2^-59.4."""


def _exp(m: Any, x: Any) -> Any:
    """e**x for x <= 0."""
    lowest = coefficients(m).sigmoid_lowest
    tail, power = exponential(m, m.where(x < lowest, lowest, x), 1.0)
    return m.where(x < lowest, 0.0, m.fma(tail, power, power))


def _log(m: Any, x: Any) -> Any:
    """Natural logarithm of a normal positive number below 2**1023."""
    c = coefficients(m)
    t = m.exponent(x)
    z = x * m.pow2(2.0 * m.format.magic - t)
    above = z > SQRT2
    z, k = m.where(above, z * 0.5, z), m.where(above, (t - m.format.magic) + 1.0, t - m.format.magic)
    f = z - 1.0
    s = f / (f + 2.0)
    u = s * s
    half = f * f * 0.5
    # k ln 2 in two parts: the high one is exact, and added last
    below = half - m.fma(s, m.fma(u, horner(m, LOG, u), half), k * c.ln2_low)
    return m.fma(k, c.ln2_high, f - below)


_exp_row = elementwise(lambda m, x: (_exp(m, x),), 1, (0,))
_log_row = elementwise(lambda m, x: (_log(m, x),), 1, (0,))


@kernel
def exp_rows(a, row_stride, rows, vectors):
    """e**a in place, for rows of vectors in a flat array."""
    return _exp_row(rows_at(a, 0, row_stride), rows, 1, vectors)


@kernel
def log_rows(a, row_stride, rows, vectors):
    """Natural logarithm of a flat array of float64 in place."""
    return _log_row(rows_at(a, 0, row_stride), rows, 1, vectors)


def in_place(rows: Callable[..., Any], a: Any) -> Any:
    """Apply a kernel ``rows(a, row_stride, rows, vectors)`` to every number of a contiguous array; return the array.

    The last numbers, too few for a vector, are copied into one, so that the same instructions apply to every number.
    """
    flat = a.reshape(-1)
    lanes = lanes_of(a.itemsize)
    vectors, left = divmod(flat.size, lanes)
    rows(flat, flat.size, 1, vectors)
    if left:
        last = np.zeros(lanes, a.dtype)
        last[:left] = flat[-left:]
        rows(last, lanes, 1, 1)
        flat[-left:] = last[:left]
    return a


def exp(a: Any) -> Any:
    """e**a in place.

    Parameters
    ----------
    a : contiguous ndarray of float32 or float64, any shape
        Numbers of at most 0, or NaN; overwritten.

    Returns
    -------
    ndarray
        ``a``.
    """
    return in_place(exp_rows, a)


def log(a: Any) -> Any:
    """Natural logarithm in place.

    Parameters
    ----------
    a : contiguous ndarray of float64, any shape
        Normal positive numbers below 2**1023, or NaN; overwritten.

    Returns
    -------
    ndarray
        ``a``.
    """
    return in_place(log_rows, a)
