"""On the unit circle, where rounding would decide: how far it may have moved an eigenvalue, and what is left to say.

An eigenvalue of modulus 1 is computed as a little more or less. A word for it must not depend on which: modes are
*decaying*, *growing*, or *marginal*, where rounding of the matrix's entries could make them either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from ..linearization import Array

EPS = float(np.finfo(np.float64).eps)

NUMERICAL_RADIUS_ACCURACY = 1e-9
"""Relative accuracy of the search for the numerical radius: what lies within is not known to be above 1."""


def entry_rounding(W: Array) -> float:
    """Norm of the change of W that rounding its entries, and the decomposition, may amount to."""
    return max(10, len(W)) * EPS * float(np.linalg.norm(W, 2))


def eigenvalue_rounding(W: Array, eigenvalues: Array) -> Array:
    """By how much rounding may have moved each eigenvalue.

    To first order a change E of the matrix moves an eigenvalue by at most its condition times ``|E|``, the condition
    being ``1 / |y^* x|`` for its unit left and right eigenvectors. Where eigenvalues meet, and the condition is
    infinite, it moves those of a Jordan block of size m by ``|W| (2 |E| / |W|)^(1/m)`` at most.

    Parameters
    ----------
    W : ndarray, shape (H, H), float64
        Of moderate entries: no square of one leaves the range.
    eigenvalues : ndarray, shape (H,), complex
        Those of W, in any order.

    Returns
    -------
    ndarray, shape (H,)

    References
    ----------
    Golub and Van Loan, Matrix Computations, section 7.2.2; Elsner, Linear Algebra Appl. 71 (1985) 77.
    """
    error, norm = entry_rounding(W), float(np.linalg.norm(W, 2))
    if norm == 0:
        return np.zeros(len(W))
    decomposed: Any = scipy.linalg.eig(W, left=True, right=True)
    values, left, right = decomposed
    overlap = np.abs((left.conj() * right).sum(axis=0))
    apart = np.abs(values[:, None] - values[None, :])
    together = np.count_nonzero(apart <= norm * (error / norm) ** 0.25, axis=1)
    within_block = norm * (2 * error / norm) ** (1.0 / np.maximum(2, together))
    moved = np.minimum(error / np.maximum(overlap, error / within_block), within_block)
    nearest = np.abs(np.asarray(eigenvalues)[:, None] - values[None, :]).argmin(axis=1)
    return np.asarray(moved[nearest])


def growth_class(modulus: Array, rounding: Array | float) -> Array:
    """1 where a modulus is above 1, -1 where it is below, 0 where rounding decides."""
    excess = np.abs(np.asarray(modulus)) - 1.0
    return np.where(np.abs(excess) <= rounding, 0, np.sign(excess)).astype(int)


def has_full_eigenspace(W: Array, chosen: Array) -> bool:
    """Whether the eigenvectors of some eigenvalues are independent, up to rounding: no Jordan block among them.

    Parameters
    ----------
    W : ndarray, shape (H, H)
    chosen : ndarray, shape (m,), complex
        Eigenvalues of W, in any order.

    Returns
    -------
    bool
        Rounding splits a Jordan block of size 2 by the root of eps, and its eigenvectors by as much.
    """
    values, vectors = scipy.linalg.eig(W)
    which = {int(np.abs(values - z).argmin()) for z in chosen}
    # distinct members may share a nearest one; what is near to any of them belongs to the block
    width = np.sqrt(EPS) * max(1.0, float(np.abs(values).max()))
    near = [i for i, z in enumerate(values) if i in which or np.abs(values[list(which)] - z).min() <= width]
    smallest = float(scipy.linalg.svdvals(vectors[:, near])[-1])
    return smallest > 10 * np.sqrt(max(10, len(W)) * EPS)
