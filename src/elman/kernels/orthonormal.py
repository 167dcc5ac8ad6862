"""Orthonormal rows and the spectral radius, with sums in a fixed order: LAPACK's last bits differ between processors,
but initial weights must not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compile import kernel
from .elementwise import PARTIAL_BYTES
from .operands import grid_at, rows_at
from .squares import sum_of_squares
from .tile import product
from .vector import lanes

PANEL = 16
"""Number of rows made orthogonal to all earlier ones together: four tiles of four, which share what they read."""

SQUARINGS = 60
"""Number of squarings: after k the norm's root has a relative error of about log(condition) / 2**k, below rounding."""


@kernel
def gram_schmidt(Q, stride, columns, t_stride, rows, n, S, s_stride):
    """Make rows orthonormal, each a combination of itself, with a positive coefficient, and those before it.

    After one pass, rows are orthogonal up to rounding times their condition number; after two, up to rounding
    (W. Hoffmann, Computing 41 (1989) 335).

    Parameters
    ----------
    Q : flat array
        Read and written: rows of ``n`` numbers, with zeros up to whole vectors, ``stride`` apart.
    columns : flat array
        Scratch memory, zero at first: the finished rows, transposed, ``t_stride`` apart.
    S : flat array
        Scratch memory: :data:`PANEL` rows of as many numbers as Q has rows, ``s_stride`` apart, in whole vectors.
    """
    VL = lanes(Q)
    width = (n + VL - 1) // VL
    for first in range(0, rows, PANEL):
        last = first + PANEL if first + PANEL < rows else rows
        for j in range(first - 1, last):
            # all rows of the panel against the panels before it, then each against the rows before it in the panel
            a, b, against, done = (first, last, 0, first) if j < first else (j, j + 1, first, j - first)
            own, overlaps = rows_at(Q, a * stride, stride), rows_at(S, 0, s_stride)
            # whole vectors of S: what lies beyond the finished rows is not used
            earlier = grid_at(columns, against, VL, t_stride)
            product(0, b - a, (done + VL - 1) // VL, None, n, own, earlier, overlaps)
            for r in range(b - a):
                for k in range(done):
                    S[r * s_stride + k] = -S[r * s_stride + k]
            product(0, b - a, width, own, done, overlaps, grid_at(Q, against * stride, VL, stride), own)
            if j < first:
                continue
            total = 0.0
            for k in range(n):
                total += Q[j * stride + k] * Q[j * stride + k]
            norm = math.sqrt(total)
            for k in range(n):
                Q[j * stride + k] /= norm
                columns[k * t_stride + j] = Q[j * stride + k]


@kernel
def multiply(A, B, C, stride, n):
    """``C = A @ B`` for square matrices of n rows, ``stride`` apart, which end with zeros."""
    VL = lanes(A)
    rows = rows_at(A, 0, stride)
    product(0, n, (n + VL - 1) // VL, None, n, rows, grid_at(B, 0, VL, stride), rows_at(C, 0, stride))


def _stride(n: int) -> int:
    """Stride of rows of ``n`` numbers, not a multiple of 1 KiB: see ``row_stride`` of the tile."""
    places = PARTIAL_BYTES // 8
    whole = -(-n // places) * places
    return whole + places if whole % 128 == 0 else whole


def _rows(matrix: Any) -> Any:
    """Rows of float64 padded with zeros to whole vectors of any length, so that sums over all of it are the same."""
    out = np.zeros((len(matrix), _stride(matrix.shape[1])))
    out[:, : matrix.shape[1]] = matrix
    return out


def orthonormal_rows(matrix: Any) -> Any:
    """Rows made orthonormal by Gram and Schmidt's process.

    Parameters
    ----------
    matrix : ndarray, shape (m, n), m <= n
        Linearly independent rows.

    Returns
    -------
    ndarray, shape (m, n), float64
        Each row is the part of the given one that is orthogonal to those before it, of length 1: the Q of a QR
        decomposition whose R has a positive diagonal. Linearly dependent rows are NaN or arbitrary.
    """
    m, n = matrix.shape
    Q, width = _rows(matrix), _stride(m)
    columns, S = np.empty(n * width), np.empty(PANEL * width)
    with np.errstate(all="ignore"):  # without the JIT, linearly dependent rows would cause warnings
        for _ in range(2):
            columns[:] = 0
            gram_schmidt(Q.reshape(-1), Q.shape[1], columns, width, m, n, S, width)
    return Q[:, :n]


def square_product(A: Any, B: Any) -> Any:
    """``A @ B`` of square matrices, with the same bits on every processor.

    Parameters
    ----------
    A, B : ndarray, shape (n, n)

    Returns
    -------
    ndarray, shape (n, n), float64
    """
    left, right, n = _rows(A), _rows(B), len(A)
    out = np.zeros_like(left)
    multiply(left.reshape(-1), right.reshape(-1), out.reshape(-1), left.shape[1], n)
    return out[:, :n]


def spectral_radius(matrix: Any) -> float:
    """Largest modulus of an eigenvalue, as the limit of ``|W**k| ** (1/k)`` (I. M. Gelfand 1941).

    Powers are computed by squaring, with the norm n_k of the k-th square factored out; the limit is
    ``n_0 sqrt(n_1 sqrt(n_2 sqrt(...)))``, in which the rounding of later norms counts less and less.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        Finite.

    Returns
    -------
    float
        The radius up to the rounding of the powers; 0 if the matrix is nilpotent up to rounding.
    """
    n = len(matrix)
    _, exponent = math.frexp(np.abs(matrix).max(initial=0.0))
    power = _rows(np.ldexp(matrix, -exponent))
    norms: list[float] = []
    squared = np.zeros_like(power)
    for _ in range(SQUARINGS):
        norms.append(math.sqrt(sum_of_squares(power)))
        if norms[-1] == 0.0:
            return 0.0
        power /= norms[-1]
        multiply(power.reshape(-1), power.reshape(-1), squared.reshape(-1), power.shape[1], n)
        power, squared = squared, power
    radius = 1.0
    for norm in reversed(norms):
        radius = norm * math.sqrt(radius)
    # for a nilpotent matrix, where W**m should first be 0, rounding leaves a norm of about eps, whose m-th root would
    # be taken for the radius
    enough, rounding = (n - 1).bit_length(), n * np.finfo(float).eps
    if norms[enough] <= rounding and radius <= norms[0] * rounding ** (1.0 / 2**enough):
        return 0.0
    return math.ldexp(radius, exponent)
