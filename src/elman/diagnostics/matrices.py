"""Matrices given to diagnostics: checks, scale, eigenvalues, and what counts as rounding."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, DTypeLike

from ..errors import DTypeError, ShapeError
from ..linearization import Array
from ..validation.arrays import finite, finite_numbers, plain

SEVERAL = 10
"""Multiple of a tolerance by which two results, computed in different ways and each within it, may differ."""


def square_matrix(value: ArrayLike, name: str) -> Array:
    """A finite real matrix (H, H) with H >= 1, as a float64 copy.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If it is not square, not real, or not finite.
    """
    given = plain(value, name)
    if given.dtype.kind not in "fiubc":
        raise DTypeError(
            f"{name} must be a square matrix (H, H) of real numbers, got {type(value).__name__} with dtype "
            f"{given.dtype}; for a layer or network, pass the object itself, or one of its recurrent_matrices"
        )
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.size == 0:
        raise ShapeError(
            f"{name} must be a square matrix (H, H) with H >= 1, got shape {given.shape}; from a gated cell's "
            "weight_hh (G, H), pass one gate's H rows"
        )
    return finite_numbers(given, name)


def scaled(matrix: Array) -> tuple[Array, float]:
    """The matrix divided by a power of two near its largest entry, and that power (1 for a zero matrix).

    Only entries that fall below the range of float64 are rounded. LAPACK's eigenvalues are wrong beyond about
    ``1e138``, and squares of entries leave the range beyond ``1e154``.
    """
    largest = float(np.abs(matrix).max())
    scale = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 1)) if largest else 1.0
    return matrix / scale, scale


def eigenvalues(matrix: Array) -> Array:
    """Eigenvalues of a matrix of any scale, complex or real, in the order of LAPACK; none for an empty matrix."""
    if not matrix.size:
        return np.zeros(0)
    unit, scale = scaled(matrix)
    values: Array = scipy.linalg.eigvals(unit) * scale
    return values


def spectral_radius(matrix: Array) -> float:
    """Largest absolute value of an eigenvalue; 0 for an empty matrix."""
    return float(np.abs(eigenvalues(matrix)).max(initial=0.0))


def frobenius_norm(matrix: Array) -> float:
    """Root of the sum of squares, none of which overflows; inf only where the norm itself is too large."""
    unit, scale = scaled(matrix)
    return float(np.linalg.norm(unit)) * scale


def rounding_of(matrix: Array, dtype: Any = np.float64) -> float:
    """Size of the changes of a matrix, in the Frobenius norm, that count as rounding.

    Parameters
    ----------
    matrix : ndarray, shape (N, N), float64
    dtype : dtype
        Type in which its numbers were stored before.

    Returns
    -------
    float
        ``10 N eps |W|`` for computations in float64, plus ``eps |W|`` of the type in which it was stored.
    """
    stored = float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 0.0
    return (computing_error(len(matrix)) + stored) * frobenius_norm(matrix)


def computing_error(n: int, dtype: DTypeLike = np.float64) -> float:
    """Error of a decomposition of matrices of n rows, computed in ``dtype``, relative to their norm: ``10 n eps``."""
    return 10 * n * float(np.finfo(np.dtype(dtype)).eps)


def sparse_or_operator(value: Any, name: str) -> Any:
    """A scipy.sparse array (real, finite, float64, CSR) or a LinearOperator as it is; None for anything else.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If it is not square or not real, or an entry is not finite.
    """
    if "scipy.sparse" not in sys.modules:
        # no object of these types can exist yet
        return None
    from scipy.sparse import csr_array, issparse
    from scipy.sparse.linalg import LinearOperator

    sparse, operator = bool(issparse(value)), isinstance(value, LinearOperator)
    if not (sparse or operator):
        return None
    rows, columns = value.shape
    if rows != columns or rows == 0:
        raise ShapeError(f"{name} must be a square matrix (H, H) with H >= 1, got shape {value.shape}")
    if value.dtype is None or value.dtype.kind not in "fiub":
        raise DTypeError(f"{name} must be made of real numbers, got dtype {value.dtype}")
    if operator:
        return value
    matrix: Any = csr_array(value.astype(np.float64))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    finite(matrix.data, f"{name}.data")
    return matrix
