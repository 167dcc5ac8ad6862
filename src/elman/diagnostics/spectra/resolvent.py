"""Searches over the complex plane: numerical radius and Kreiss constant of a real matrix, and the resolvent's norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import ztrtrs

from ...linearization import Array

# Directions of the coarse searches, over [0, pi]: a real matrix behaves alike above and below the real axis.
_ANGLES = 33


def numerical_radius(W: Array) -> float:
    """Largest modulus in the numerical range ``{x^* W x: |x| = 1}``.

    Parameters
    ----------
    W : ndarray, shape (H, H), float64
        Finite.

    Returns
    -------
    float
        The maximum of the support function over directions, to about 1e-9 relative.
    """
    from scipy.optimize import minimize_scalar

    symmetric, skew = (W + W.T) / 2, (W - W.T) / 2

    def support(theta: float) -> float:
        return top_eigenpair(np.cos(theta) * symmetric + 1j * np.sin(theta) * skew)[0]

    angles = np.linspace(0, np.pi, _ANGLES)
    values = np.array([support(theta) for theta in angles])
    best, step = float(values.max()), angles[1]
    # Support functions are sublinear, so between neighbours at distance d with values a, b the function stays under the
    # sinusoid through both, whose amplitude is sqrt(a^2 + b^2 - 2 a b cos d) / sin d.
    a, b = values[:-1], values[1:]
    ceilings = np.sqrt(np.maximum(a * a + b * b - 2 * a * b * np.cos(step), 0)) / np.sin(step)
    for i in np.argsort(-ceilings):
        # Peaks at grid points belong to both neighbours; an interval is searched if it can contain a larger value.
        if ceilings[i] <= best * (1 + 1e-10):
            break
        found = minimize_scalar(
            lambda theta: -support(theta), bounds=(angles[i], angles[i + 1]), method="bounded", options={"xatol": 1e-6}
        )
        best = max(best, -float(found.fun))
    return best


def numerical_radius_in_words(value: float, rounding: float) -> str:
    """What the numerical radius proves (Berger: |W^k| <= 2 w(W)^k)."""
    if value > 1 + rounding:
        return "above 1: short-term growth is possible"
    return f"{'' if value < 1 - rounding else '1 to rounding: '}powers never exceed 2 (Berger)"


def top_eigenpair(hermitian: Array) -> tuple[float, Array]:
    """Largest eigenvalue of a Hermitian matrix (H, H), and a unit eigenvector (H,)."""
    top = len(hermitian) - 1
    try:
        values, vectors = scipy.linalg.eigh(hermitian, subset_by_index=(top, top))
    except np.linalg.LinAlgError:
        values = vectors = np.empty(0)
    if not len(values):
        # LAPACK's drivers for single eigenvalues fail, or find none, for some near multiples of the identity
        values, vectors = scipy.linalg.eigh(hermitian, driver="evd")
    return float(values[-1]), vectors[:, -1]


def kreiss_constant(triangular: Array, eigenvalues: Array, norm: float) -> float:
    """Maximise ``(|z| - 1) / sigma_min(z I - W)`` over ``|z| > 1`` for a power-bounded real W.

    Parameters
    ----------
    triangular : ndarray, shape (H, H), complex
        Schur form of W.
    eigenvalues : ndarray, shape (H,), complex
        In descending modulus.
    norm : float
        Spectral norm of W, above 1 (else the constant is 1).

    Returns
    -------
    float
        At least 1, the limit for large ``|z|``.
    """
    from scipy.optimize import minimize

    shifted = np.asfortranarray(-triangular)
    diagonal = np.diag(triangular).copy()

    def negative_log(point: Array) -> float:
        theta, log_distance = point
        distance = np.exp(np.clip(log_distance, -18, 30))
        np.fill_diagonal(shifted, (1 + distance) * np.exp(1j * theta) - diagonal)
        return -float(np.log(distance * inverse_norm(shifted)))

    # An eigenvalue near the circle has a peak at its angle, as far outside as the eigenvalue is inside, and as narrow.
    angles = np.concatenate([np.linspace(0, np.pi, _ANGLES), abs(np.angle(eigenvalues[:16]))])
    nearest = max(1 - abs(eigenvalues[0]), 1e-7)
    distances = np.linspace(np.log(nearest) - 2, np.log(norm) + 3, 16)
    grid = [(negative_log(np.array([a, d])), a, d) for a in np.unique(angles) for d in distances]
    best_of_angle = [min(grid[i : i + len(distances)]) for i in range(0, len(grid), len(distances))]
    best = 0.0
    for _, theta, log_distance in sorted(best_of_angle)[:4]:
        aside = theta + 0.05 * min(1.0, np.exp(log_distance))
        simplex = np.array([[theta, log_distance], [aside, log_distance], [theta, log_distance + 0.3]])
        options: Any = {"initial_simplex": simplex, "xatol": 1e-8, "fatol": 1e-12, "maxiter": 400}
        best = min(best, minimize(negative_log, simplex[0], method="Nelder-Mead", options=options).fun)
    return float(np.exp(-best))


def inverse_norm(triangular: Array, accuracy: float = 1e-13) -> float:
    """``|R^{-1}|_2`` by Lanczos on ``(R^* R)^{-1}``.

    Trefethen's method for pseudospectra (Acta Numerica 1999): two triangular solves per iteration instead of a full
    singular value decomposition.

    Parameters
    ----------
    triangular : ndarray, shape (H, H), complex, Fortran order
        Upper triangular R.
    accuracy : float, default 1e-13
        Relative change of the squared norm at which the iteration ends.

    Returns
    -------
    float
        A lower bound; inf if R is singular, or so nearly singular that the square of its inverse overflows.
    """
    if not np.diagonal(triangular).all():
        return float("inf")
    size = len(triangular)
    # A fixed start vector in no special direction: the same matrix always gives the same number.
    q = np.exp(2.4j * np.arange(size) ** 2)
    q /= np.linalg.norm(q)
    basis, value = [q], 0.0
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(min(size, 80)):
        w = ztrtrs(triangular, ztrtrs(triangular, basis[-1], trans=2)[0])[0]
        if not np.isfinite(w).all():
            return float("inf")
        alphas.append(float(np.vdot(basis[-1], w).real))
        for _ in range(2):
            stack = np.array(basis)
            w = w - (stack.conj() @ w) @ stack
        previous, value = value, _largest_ritz(alphas, betas)
        beta = float(np.linalg.norm(w))
        if beta <= 1e-14 * value or value - previous <= accuracy * value:
            break
        betas.append(beta)
        basis.append(w / beta)
    return float(np.sqrt(value))


def _largest_ritz(alphas: list[float], betas: list[float]) -> float:
    """Largest eigenvalue of the tridiagonal matrix with these entries."""
    if not betas:
        return alphas[0]
    last = (len(alphas) - 1, len(alphas) - 1)
    return float(scipy.linalg.eigh_tridiagonal(alphas, betas, eigvals_only=True, select="i", select_range=last)[0])
