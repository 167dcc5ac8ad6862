r"""Pseudospectra: what the eigenvalues become under perturbations of a given size.

The :math:`\varepsilon`-pseudospectrum is the set of eigenvalues of all ``W + E`` with
:math:`\|E\|_2 \le \varepsilon`, or equally of the points ``z`` where
:math:`\sigma_{\min}(zI - W) \le \varepsilon`. For a normal matrix it is the union of discs about the eigenvalues;
where it reaches farther, powers grow before they decay (Trefethen and Embree, Spectra and Pseudospectra, 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from ...errors import ArgumentError
from ...linearization import Array
from ...results import Drawn
from ...validation.arrays import real_numbers
from .resolvent import inverse_norm

# Directions of the first radial searches: those of this many leading pairs of eigenvalues.
_STARTS = 4
# Relative distance from the real axis or the unit circle within which a computed eigenvalue counts as on it; wrong ones
# cost time and are rejected by their singular value.
_ON_CURVE = 1e-6
_ROUNDS = 50
# Relative accuracy of sigma_min on a grid: far below what a contour can show.
_GRID_ACCURACY = 1e-4
# Fraction of the width that is added on every side of the eigenvalues
_MARGIN = 0.3


@dataclass(frozen=True, eq=False)
class Pseudospectrum(Drawn, picture="plot_pseudospectrum"):
    """``sigma_min(z I - W)`` on a grid of the complex plane; made by :meth:`elman.Spectrum.pseudospectrum`.

    Attributes
    ----------
    real, imag : ndarray, shapes (nx,), (ny,)
        Coordinates of the grid, ascending.
    sigma_min : ndarray, shape (ny, nx)
        The smallest perturbation, in the spectral norm, that makes ``real[j] + i imag[k]`` an eigenvalue of the matrix;
        to a relative accuracy of about 1e-4, 0 at an eigenvalue.
    eigenvalues : ndarray, shape (H,), complex
        Of the matrix.
    """

    real: Array
    imag: Array
    sigma_min: Array
    eigenvalues: Array

    def contains(self, eps: float) -> Array:
        """Which points of the grid belong to the eps-pseudospectrum, bool, shape (ny, nx)."""
        out: Array = self.sigma_min <= eps
        return out

    def __repr__(self) -> str:
        return f"Pseudospectrum(H={len(self.eigenvalues)}, grid={len(self.real)}x{len(self.imag)})"

    def __str__(self) -> str:
        outside = np.abs(self.real + 1j * self.imag[:, None]) >= 1 - 1e-12
        nearest = float(self.sigma_min[outside].min()) if outside.any() else float("nan")
        return (
            f"Pseudospectrum of a recurrent matrix, H = {len(self.eigenvalues)}\n"
            f"  grid              {len(self.real)} x {len(self.imag)} points, real part {self.real[0]:.4g} .. "
            f"{self.real[-1]:.4g}, imaginary part {self.imag[0]:.4g} .. {self.imag[-1]:.4g}\n"
            f"  sigma_min         {self.sigma_min.min():.4g} .. {self.sigma_min.max():.4g}\n"
            f"  outside the disc  {nearest:.4g} at least on this grid: a perturbation of that size puts an eigenvalue "
            "there"
        )

    def to_dict(self) -> dict[str, Any]:
        """The grid as plain Python lists; eigenvalues as pairs ``[real, imaginary]``."""
        return {
            "real": self.real.tolist(),
            "imag": self.imag.tolist(),
            "sigma_min": self.sigma_min.tolist(),
            "eigenvalues": [[float(z.real), float(z.imag)] for z in self.eigenvalues],
        }

    def plot(self, ax: Any = None, *, levels: Sequence[float] | None = None) -> Any:
        """Contours of ``log10 sigma_min``, at powers of ten by default; returns the matplotlib axes."""
        return self._draw(ax=ax, levels=levels)


def window_about(eigenvalues: Array, numerical_radius: float) -> Sequence[float]:
    """The rectangle (left, right, bottom, top) that a grid covers by default, symmetric about the real axis."""
    width = max(np.ptp(eigenvalues.real), 2 * np.abs(eigenvalues.imag).max(), numerical_radius, 1e-3)
    margin = _MARGIN * float(width)
    top = float(np.abs(eigenvalues.imag).max()) + margin
    return float(eigenvalues.real.min()) - margin, float(eigenvalues.real.max()) + margin, -top, top


def sigma_min_grid(triangular: Array, real: Array, imag: Array) -> Array:
    """Smallest singular value of ``z I - W`` at every ``z = real[j] + i imag[k]``.

    Parameters
    ----------
    triangular : ndarray, shape (H, H), complex
        Schur form of a real W, so that only one of each pair ``imag``, ``-imag`` is computed.
    real, imag : ndarray, shapes (nx,), (ny,)

    Returns
    -------
    ndarray, shape (ny, nx)
    """
    shifted, diagonal = np.asfortranarray(-triangular), np.diag(triangular).copy()
    rows: dict[float, Array] = {}
    for y in np.abs(imag):
        if y not in rows:
            rows[y] = np.empty(len(real))
            for j, x in enumerate(real):
                np.fill_diagonal(shifted, x + 1j * y - diagonal)
                # the norm of the inverse is inf at an eigenvalue
                rows[y][j] = 1 / inverse_norm(shifted, _GRID_ACCURACY)
    return np.array([rows[y] for y in np.abs(imag)])


def pseudospectral_radius(triangular: Array, eigenvalues: Array, eps: float) -> float:
    r"""Largest modulus in the eps-pseudospectrum, by the criss-cross method.

    Alternates between the outermost point of the pseudospectrum in some directions, and the arcs of the circle through
    it that lie inside the pseudospectrum, whose midpoints are the next directions. Both steps are eigenvalue problems
    of twice the size, so that no part of the pseudospectrum is missed, and convergence is quadratic (Mengi and Overton,
    IMA J. Numer. Anal. 25, 2005).

    Parameters
    ----------
    triangular : ndarray, shape (H, H), complex
        Schur form of a real W.
    eigenvalues : ndarray, shape (H,), complex
        In descending modulus.
    eps : float
        Above 0.

    Returns
    -------
    float
    """
    best = float(abs(eigenvalues[0])) + eps  # the discs about the eigenvalues are inside
    angles = np.unique(np.abs(np.angle(eigenvalues[: 2 * _STARTS]))).tolist()
    for _ in range(_ROUNDS):
        best = max(best, *(_outermost(triangular, eps, theta) for theta in angles))
        crossings = np.unique(np.concatenate([[0, np.pi], _crossings(triangular, eps, best)]))
        angles = (crossings[1:] + crossings[:-1]) / 2
        # near the end the arcs shrink to the point itself, where sigma_min equals eps
        angles = [a for a in angles if _sigma_min(triangular, best * np.exp(1j * a)) < eps * (1 - 1e-9)]
        if not angles:
            break
    return best


def _sigma_min(triangular: Array, z: complex) -> float:
    """Smallest singular value of ``z I - W``."""
    return 1 / inverse_norm(np.asfortranarray(z * np.eye(len(triangular)) - triangular))


def _outermost(triangular: Array, eps: float, theta: float) -> float:
    """Largest ``r`` with ``sigma_min(r e^{i theta} - W) = eps``; 0 if the ray does not meet the pseudospectrum.

    ``eps`` is a singular value if and only if ``r`` is an eigenvalue of the matrix formed here.
    """
    turn, size = np.exp(1j * theta), len(triangular)
    eye = np.eye(size)
    matrix = np.block([[turn * triangular.conj().T, -eps * turn * eye], [-eps / turn * eye, triangular / turn]])
    roots: Array = scipy.linalg.eigvals(matrix)
    scale = eps + float(np.abs(roots).max())
    for r in np.sort(roots.real[(np.abs(roots.imag) <= _ON_CURVE * scale) & (roots.real > 0)])[::-1]:
        # rounding may have moved pairs of complex roots to the axis
        if _sigma_min(triangular, r * turn) <= eps * (1 + 1e-6):
            return float(r)
    return 0.0


def _crossings(triangular: Array, eps: float, radius: float) -> Array:
    """Angles in [0, pi] where ``eps`` is a singular value of ``radius e^{i theta} - W``, from a pencil of size 2 H."""
    eye = np.eye(len(triangular))
    zero = np.zeros_like(triangular)
    left = np.block([[-eps * eye, triangular], [radius * eye, zero]])
    right = np.block([[zero, radius * eye], [triangular.conj().T, -eps * eye]])
    alpha, beta = scipy.linalg.eigvals(left, right, homogeneous_eigvals=True)
    size = np.maximum(np.abs(alpha), np.abs(beta))
    with np.errstate(invalid="ignore"):
        on = np.abs(np.abs(alpha) - np.abs(beta)) <= _ON_CURVE * size
    angles: Array = np.abs(np.angle(np.asarray(alpha)[on] * np.asarray(beta)[on].conj()))
    return angles[np.isfinite(angles)]


def grid_axes(window: Sequence[float], points: int) -> tuple[Array, Array]:
    """Coordinates of a grid of about ``points`` by ``points``, its spacing equal along both axes.

    Raises
    ------
    ArgumentError
        If the window is not (left, right, bottom, top) with left < right and bottom < top.
    """
    edges = real_numbers(window, "window").astype(np.float64)
    if edges.shape != (4,) or not np.isfinite(edges).all() or edges[0] >= edges[1] or edges[2] >= edges[3]:
        raise ArgumentError(
            f"window must be (left, right, bottom, top) with left < right and bottom < top, got {window}"
        )
    left, right, bottom, top = edges
    spacing = max(right - left, top - bottom) / (points - 1)
    real, imag = (np.linspace(a, b, max(2, round((b - a) / spacing) + 1)) for a, b in ((left, right), (bottom, top)))
    if bottom == -top:
        # exactly symmetric, so that every row is computed once
        imag = (imag - imag[::-1]) / 2
    return real, imag
