"""Sums of squares in a fixed order: the same bits on every processor and with any number of threads.

NumPy's ``einsum`` fuses products and sums if its build has the instruction, and a BLAS splits long dot products over
threads. Here numbers are added to a fixed number of partial sums, as in the backward pass: see
:func:`elman.kernels.elementwise.elementwise`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compile import kernel
from .elementwise import PARTIAL_BYTES, elementwise
from .operands import rows_at
from .vector import lanes_of

_squares = elementwise(lambda m, x: (x,), 1, (None,), "squares")


@kernel
def square_rows(a, row_stride, rows, vectors, squares):
    """The sum of squares of each of ``rows`` rows of a flat array, in float64."""
    return _squares(rows_at(a, 0, row_stride), rows, 1, vectors, squares, 0)


@kernel
def roots(sums, out, step, least):
    """The square root of each sum; returns 1 if one of every ``step``-th is below ``least``, infinite, or NaN.

    Parameters
    ----------
    sums, out : flat array of float64
        Read and written.
    """
    odd = 0
    for i in range(len(sums)):
        out[i] = math.sqrt(sums[i])
    for i in range(0, len(sums), step):
        if not least <= sums[i] < math.inf:
            odd = 1
    return odd


def row_squares(a: Any) -> Any:
    """Sum of the squares along the last axis.

    Parameters
    ----------
    a : ndarray, shape (..., m), float32 or float64
        Any strides.

    Returns
    -------
    ndarray, shape (...), float64
        Where an entry is inf or NaN, or the sum overflows, the result is inf or NaN, without a warning.
    """
    *outer, m = a.shape
    lanes = PARTIAL_BYTES // a.itemsize
    width = -(-m // lanes) * lanes
    rows = np.zeros((*outer, width), a.dtype)
    rows[..., :m] = a
    out = np.empty(tuple(outer))
    square_rows(rows.reshape(-1), width, out.size, width // lanes_of(a.itemsize), out.reshape(-1))
    return out


def sum_of_squares(a: Any) -> float:
    """Sum of the squares of all entries.

    Parameters
    ----------
    a : ndarray of float32 or float64, any shape

    Returns
    -------
    float
        Summed in float64; if an entry is inf or NaN, or the sum overflows, it is inf or NaN, without a warning.
    """
    flat = np.ascontiguousarray(a).reshape(-1)
    lanes = PARTIAL_BYTES // a.itemsize
    left = flat.size % lanes
    out = np.zeros(1)
    square_rows(flat, flat.size, 1, (flat.size - left) // lanes_of(a.itemsize), out)
    return float(out[0] + row_squares(flat[None, flat.size - left :])[0]) if left else float(out[0])
