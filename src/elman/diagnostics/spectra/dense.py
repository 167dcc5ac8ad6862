"""What the recurrent matrix alone says about gradients, each number labelled by what it proves.

The spectrum explains but does not predict: a driven network multiplies gradients by ``diag(phi'(a_t)) W_hh``, not by
``W_hh``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from ...linearization import Array
from ...results import Drawn
from ...validation.scalars import positive, size
from ..matrices import eigenvalues, frobenius_norm, rounding_of, scaled, sparse_or_operator, square_matrix
from .gates import SpectrumByGate
from .marginal import Stability, marginal_modes, semisimple, stability, time_constants
from .partial import PartialSpectrum, partial_spectrum
from .powers import TransientPeak, transient_peak
from .pseudospectrum import Pseudospectrum, grid_axes, pseudospectral_radius, sigma_min_grid, window_about
from .resolvent import kreiss_constant, numerical_radius
from .summary import summary

# Largest matrix that is decomposed as a whole, which takes a minute or so.
DENSE_SIZE = 2000


@dataclass(frozen=True, eq=False)
class Spectrum(Drawn, picture="plot_spectrum"):
    """Spectral quantities of one recurrent matrix; made by :func:`spectrum`.

    The eigenvalues and singular values are available at once; the rest is computed at its first use and stored.
    Printing starts no long computation, and shows what has been computed.

    Attributes
    ----------
    W : ndarray, shape (H, H), float64
        The matrix, a read-only copy.
    eigenvalues : ndarray, shape (H,), complex
        In descending modulus.
    singular_values : ndarray, shape (H,)
        Descending.
    rounding : float
        Spectral norm of the changes of W that count as rounding: ``10 H eps |W|_F``, and more if W came in float32.
        What lies within it of a border, such as the unit circle, is called marginal rather than assigned to a side.
    """

    W: Array = field(repr=False)
    eigenvalues: Array
    singular_values: Array
    rounding: float

    @property
    def radius(self) -> float:
        """Largest modulus of an eigenvalue: asymptotic growth per step of the undriven linear network."""
        return float(abs(self.eigenvalues[0]))

    @property
    def time_constants(self) -> Array:
        """Steps in which each mode falls by a factor e, ``-1 / log |lambda|``, in the order of :attr:`eigenvalues`.

        Shape (H,). 0 for an eigenvalue 0, inf for a marginal mode, NaN for a mode that grows.
        """
        return time_constants(self.eigenvalues, self.marginal)

    @cached_property
    def marginal(self) -> Array:
        """Which modes (H,) have modulus 1 within :attr:`rounding`: whether they grow or decay cannot be known.

        A matrix within rounding of W has an eigenvalue on the unit circle at the angle of the mode; the more sensitive
        an eigenvalue is, the farther from the circle it can lie (Wilkinson 1965).
        """
        return marginal_modes(self.W, self.eigenvalues, self.rounding)

    @property
    def stability(self) -> Stability:
        """``"growing"`` if a mode grows, ``"marginal"`` if none does but some are marginal, else ``"decaying"``."""
        return stability(self.eigenvalues, self.marginal)

    @property
    def norm(self) -> float:
        """Spectral norm, the largest singular value: the largest growth of a vector in one step."""
        return float(self.singular_values[0])

    @cached_property
    def numerical_radius(self) -> float:
        """``max_theta lambda_max((e^{i theta} W + h.c.) / 2)``, to about 1e-9 relative, between radius and norm."""
        matrix, scale = scaled(self.W)
        return numerical_radius(matrix) * scale

    @cached_property
    def _schur(self) -> Array:
        """Complex upper triangular Schur form of W, (H, H)."""
        matrix, scale = scaled(self.W)
        triangular: Array = scipy.linalg.schur(matrix, output="complex")[0]
        return triangular * scale

    @cached_property
    def _on_circle(self) -> Array:
        """The Schur form with marginal eigenvalues moved onto the unit circle."""
        triangular, diagonal = self._schur.copy(), np.diag(self._schur)
        marginal = self.marginal[np.abs(diagonal[:, None] - self.eigenvalues).argmin(axis=1)]
        np.fill_diagonal(triangular, np.where(marginal, diagonal / np.maximum(np.abs(diagonal), 0.5), diagonal))
        return triangular

    @cached_property
    def departure_from_normality(self) -> float:
        """Henrici's departure from normality in the Frobenius norm, 0 for a normal matrix.

        The norm of the Schur form's strict upper triangle: ``|W|_F^2 - sum |lambda|^2`` would cancel (Henrici 1962).
        """
        return frobenius_norm(np.triu(self._schur, 1))

    @cached_property
    def eigenvector_condition(self) -> float:
        """``|V| |V^{-1}|`` of the matrix V of unit eigenvectors: at least 1, and 1 if W is normal with distinct values.

        Perturbing W by E moves no eigenvalue by more than this times ``|E|`` (Bauer and Fike 1960), and ``|W^k|``
        is at most this times ``radius^k``. inf for a defective matrix; near 1e15, rounding hides whether W is.
        """
        values = scipy.linalg.svdvals(scipy.linalg.eig(scaled(self.W)[0])[1])
        return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")

    def pseudospectral_radius(self, eps: float) -> float:
        """Largest modulus that an eigenvalue of ``W + E`` can have with ``|E|_2 <= eps``.

        Parameters
        ----------
        eps : float
            Size of the perturbation, above 0; below about ``1e-14 * norm``, rounding dominates.

        Returns
        -------
        float
            At least ``radius + eps``, with equality for a normal matrix. Takes several eigenvalue problems of size 2 H.

        Raises
        ------
        ArgumentError
            If eps is not a positive number.

        References
        ----------
        Mengi and Overton, IMA J. Numer. Anal. 25 (2005) 648.
        """
        return pseudospectral_radius(self._schur, self.eigenvalues, positive(eps, "eps", "the norm of W"))

    def pseudospectrum(self, points: int = 60, window: Sequence[float] | None = None) -> Pseudospectrum:
        """``sigma_min(z I - W)`` on a grid, from which pseudospectra can be drawn.

        Parameters
        ----------
        points : int, default 60
            Points along the longer side, at least 2; the other side has the same spacing. A point of the grid takes
            about 1 ms at H = 100.
        window : sequence of 4 floats, optional
            (left, right, bottom, top); by default around the eigenvalues, with a margin.

        Returns
        -------
        Pseudospectrum

        Raises
        ------
        ArgumentError
            For fewer points, or a window without an interior.
        """
        rectangle = window_about(self.eigenvalues, self.numerical_radius) if window is None else window
        real, imag = grid_axes(rectangle, size(points, "points", 2))
        return Pseudospectrum(real, imag, sigma_min_grid(self._schur, real, imag), self.eigenvalues)

    @cached_property
    def _power_bounded(self) -> bool:
        """Whether the powers of W stay bounded: no mode grows, and marginal modes have a full set of eigenvectors."""
        if self.stability != "marginal" or self.departure_from_normality <= 10 * self.rounding:
            return self.stability != "growing"
        return semisimple(self.W, self.eigenvalues, self.marginal, self.rounding)

    @cached_property
    def kreiss_constant(self) -> float:
        """``K = sup_{|z| > 1} (|z| - 1) / sigma_min(z I - W)``: transient growth is between K and ``e H K``.

        Exactly 1 where the numerical radius is at most 1 (as for normal matrices of radius up to 1), inf where the
        powers are unbounded (a mode grows, or a marginal one is defective), otherwise found by a search outside the
        unit disc: a lower bound, equal to the value to about 1e-6 unless a narrow peak is missed. Marginal modes are
        taken to lie on the unit circle.

        References
        ----------
        Trefethen and Embree, Spectra and Pseudospectra (2005), chapter 18.
        """
        if not self._power_bounded:
            return float("inf")
        if self.numerical_radius <= 1 + self.rounding:
            # sigma_min(z - W) >= |z| - numerical radius
            return 1.0
        return kreiss_constant(self._on_circle, self.eigenvalues, self.norm)

    @cached_property
    def transient_peak(self) -> TransientPeak:
        """``max_k |W^k|_2`` over ``k >= 0`` and the first k that attains it; (inf, None) if the powers are unbounded.

        With marginal modes, or a radius so near to 1 that no norm falls below 1 in time, this is the maximum over the
        first 10 000 powers. The first k is the first whose norm equals the maximum within the rounding of the products.
        """
        if not self._power_bounded:
            return TransientPeak(float("inf"), None)
        if self.norm <= 1 + self.rounding:
            return TransientPeak(1.0, 0)
        return transient_peak(self._on_circle if self.marginal.any() else self.W, self.norm)

    def __repr__(self) -> str:
        return f"Spectrum(H={len(self.W)}, radius={self.radius:.6g}, norm={self.norm:.6g})"

    def __str__(self) -> str:
        return summary(self)

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python; eigenvalues as pairs ``[real, imaginary]``."""
        return {
            "rounding": self.rounding,
            "stability": self.stability,
            "marginal": self.marginal.tolist(),
            "radius": self.radius,
            "norm": self.norm,
            "eigenvalues": [[float(z.real), float(z.imag)] for z in self.eigenvalues],
            "singular_values": self.singular_values.tolist(),
            "numerical_radius": self.numerical_radius,
            "departure_from_normality": self.departure_from_normality,
            "eigenvector_condition": self.eigenvector_condition,
            "time_constants": self.time_constants.tolist(),
            "kreiss_constant": self.kreiss_constant,
            "transient_peak": self.transient_peak._asdict(),
        }


@overload
def spectrum(W: Mapping[str, Any]) -> SpectrumByGate: ...
@overload
def spectrum(W: ArrayLike) -> Spectrum | PartialSpectrum: ...
@overload
def spectrum(W: Any) -> Spectrum | PartialSpectrum | SpectrumByGate: ...
def spectrum(W: Any) -> Spectrum | PartialSpectrum | SpectrumByGate:
    """Spectral quantities of a recurrent matrix and what each proves about gradients.

    Parameters
    ----------
    W : array_like, scipy.sparse array or LinearOperator, (H, H); or mapping of names to these; or layer
        Real, finite, ``H >= 1``: ``W_hh`` of an Elman cell, one gate's block of another cell, or any Jacobian. For
        gated cells, by gate: a mapping such as ``{"i": W_i, "f": W_f, ...}``, or an object that has such a mapping as
        ``recurrent_matrices``, like a layer, or whose ``layer`` has one, like a network.

    Returns
    -------
    Spectrum
        Up to H = 2000: ``radius norm eigenvalues singular_values`` at once, the rest at its first use.
    PartialSpectrum
        For larger H: ``radius`` and ``norm`` with intervals and a few eigenvalues, by Krylov methods.
    SpectrumByGate
        For a mapping or a layer.

    Raises
    ------
    ShapeError
        If W is not a non-empty square matrix.
    DTypeError
        If W is not real, or is a masked array, or an operator of more than 2000 units without a transpose.
    ArgumentError
        If W has a NaN or infinite entry, or a mapping is empty.

    Examples
    --------
    >>> s = spectrum([[0.9, 10.0], [0.0, 0.9]])
    >>> round(s.transient_peak.value, 3), s.transient_peak.step
    (38.746, 9)
    """
    owner = W if hasattr(W, "recurrent_matrices") else getattr(W, "layer", W)
    matrices = getattr(owner, "recurrent_matrices", W)
    if isinstance(matrices, Mapping):
        return SpectrumByGate({str(name): _spectrum(matrix, f"W[{name!r}]") for name, matrix in matrices.items()})
    return _spectrum(W, "W")


def _spectrum(W: Any, name: str) -> Spectrum | PartialSpectrum:
    """Spectrum of one matrix, called ``name`` in messages: dense up to :data:`DENSE_SIZE`, however it is stored."""
    matrix = sparse_or_operator(W, name)
    if matrix is None:
        matrix = square_matrix(W, name)
    given = getattr(W, "dtype", None)
    dtype = given if isinstance(given, np.dtype) else np.dtype(np.float64)
    size = matrix.shape[0]
    if size > DENSE_SIZE:
        return partial_spectrum(matrix)
    if not isinstance(matrix, np.ndarray):
        matrix = square_matrix(matrix @ np.eye(size), name)
    matrix.setflags(write=False)
    unit, scale = scaled(matrix)
    values = eigenvalues(matrix)
    order = np.lexsort((values.imag, values.real, np.abs(values)))[::-1]
    return Spectrum(matrix, values[order], scipy.linalg.svdvals(unit) * scale, rounding_of(matrix, dtype))
