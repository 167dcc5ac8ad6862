"""What the recurrent matrix alone says about gradients, each number labelled by what it proves.

The spectrum explains, it does not predict: what a driven network multiplies is ``diag(phi'(a_t)) W_hh``, not ``W_hh``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from ..linearization import Array
from .gates import SpectrumByGate
from .marginal import NUMERICAL_RADIUS_ACCURACY, eigenvalue_rounding, growth_class, has_full_eigenspace
from .matrices import frobenius_norm, scaled, sparse_or_operator, square_matrix
from .partial_spectrum import PartialSpectrum, partial_spectrum, time_constants
from .powers import TransientPeak, largest_power
from .pseudospectrum import Pseudospectrum, grid_axes, pseudospectral_radius, sigma_min_grid, window_about
from .resolvent import kreiss_constant, numerical_radius
from .validation import positive_number, whole_number

# Largest matrix that is decomposed as a whole: a minute or so.
DENSE_SIZE = 2000

# Above this size the summary does not compute the Kreiss constant and the peak; they stay available as attributes.
_PRINTED_SIZE = 150


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Spectral quantities of one recurrent matrix; made by :func:`spectrum`.

    Attributes
    ----------
    W : ndarray, shape (H, H), float64
        The matrix, a read-only copy.
    eigenvalues : ndarray, shape (H,), complex
        In descending modulus.
    singular_values : ndarray, shape (H,)
        Descending.
    """

    W: Array = field(repr=False)
    eigenvalues: Array
    singular_values: Array

    @property
    def radius(self) -> float:
        """Largest modulus of an eigenvalue: asymptotic growth per step of the undriven linear network."""
        return float(abs(self.eigenvalues[0]))

    @cached_property
    def eigenvalue_rounding(self) -> Array:
        """By how much rounding of the entries may have moved each of :attr:`eigenvalues`, shape (H,).

        Its condition times the rounding of the matrix, and not more than in a Jordan block as large as the cluster it
        stands in.
        """
        matrix, scale = scaled(self.W)
        return eigenvalue_rounding(matrix, self.eigenvalues / scale) * scale

    @cached_property
    def mode_growth(self) -> Array:
        """1 for each mode that grows, -1 for one that decays, 0 for a marginal one: rounding decides. Shape (H,)."""
        return growth_class(self.eigenvalues, self.eigenvalue_rounding)

    @property
    def stability(self) -> str:
        """``"growing"`` if a mode grows, ``"decaying"`` if all decay, else ``"marginal"``: of the linear network."""
        return {1: "growing", 0: "marginal", -1: "decaying"}[int(self.mode_growth.max())]

    @property
    def time_constants(self) -> Array:
        """``-1 / log |lambda|`` of every mode in the order of :attr:`eigenvalues`, in steps: in each it falls by e.

        Shape (H,). 0 for an eigenvalue 0, inf for a marginal mode, NaN for a mode that grows.
        """
        return time_constants(self.eigenvalues, self.mode_growth)

    @property
    def norm(self) -> float:
        """Spectral norm, the largest singular value: the most that one step can do to a vector."""
        return float(self.singular_values[0])

    @cached_property
    def numerical_radius(self) -> float:
        """``max_theta lambda_max((e^{i theta} W + h.c.) / 2)``, to about 1e-9 relative; ``radius <= it <= norm``."""
        matrix, scale = scaled(self.W)
        return numerical_radius(matrix) * scale

    @cached_property
    def _schur(self) -> Array:
        """Complex upper triangular Schur form of W, (H, H)."""
        matrix, scale = scaled(self.W)
        triangular: Array = scipy.linalg.schur(matrix, output="complex")[0]
        return triangular * scale

    @cached_property
    def departure_from_normality(self) -> float:
        """Henrici's departure from normality in the Frobenius norm, 0 for a normal matrix.

        The norm of the Schur form's strict upper triangle: ``|W|_F^2 - sum |lambda|^2`` would cancel (Henrici 1962).
        """
        return frobenius_norm(np.triu(self._schur, 1))

    @cached_property
    def eigenvector_condition(self) -> float:
        """``|V| |V^{-1}|`` of the matrix V of unit eigenvectors: at least 1, 1 for a normal matrix with distinct ones.

        Perturbing W by E moves no eigenvalue by more than this times ``|E|`` (Bauer and Fike 1960), and ``|W^k|``
        is at most this times ``radius^k``. inf for a defective matrix; near 1e15 rounding hides whether it is one.
        """
        values = scipy.linalg.svdvals(scipy.linalg.eig(scaled(self.W)[0])[1])
        return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")

    def pseudospectral_radius(self, eps: float) -> float:
        """Largest modulus that an eigenvalue of ``W + E`` can have with ``|E|_2 <= eps``.

        Parameters
        ----------
        eps : float
            Size of the perturbation, above 0; below about ``1e-14 * norm`` rounding decides.

        Returns
        -------
        float
            At least ``radius + eps``, which it is for a normal matrix. Takes some eigenvalue problems of size 2 H.

        Raises
        ------
        ArgumentError
            If eps is not a positive number.

        References
        ----------
        Mengi and Overton, IMA J. Numer. Anal. 25 (2005) 648.
        """
        return pseudospectral_radius(self._schur, self.eigenvalues, positive_number(eps, "eps", "the norm of W"))

    def pseudospectrum(self, points: int = 60, window: Sequence[float] | None = None) -> Pseudospectrum:
        """``sigma_min(z I - W)`` on a grid, to draw the pseudospectra from.

        Parameters
        ----------
        points : int, default 60
            Points along the longer side, at least 2, about 1 ms each at H = 100. The other has the same spacing.
        window : sequence of 4 floats, optional
            (left, right, bottom, top); by default around the eigenvalues, with a margin.

        Returns
        -------
        Pseudospectrum

        Raises
        ------
        ArgumentError
            For fewer points, or a window without an inside.
        """
        rectangle = window_about(self.eigenvalues, self.numerical_radius) if window is None else window
        real, imag = grid_axes(rectangle, whole_number(points, "points", 2))
        return Pseudospectrum(real, imag, sigma_min_grid(self._schur, real, imag), self.eigenvalues)

    @cached_property
    def _power_bounded(self) -> bool:
        """Whether the powers of W stay bounded: no mode grows, and no Jordan block is marginal."""
        if self.stability == "marginal":
            return has_full_eigenspace(self.W, self.eigenvalues[self.mode_growth == 0])
        return self.stability == "decaying"

    @cached_property
    def kreiss_constant(self) -> float:
        """``K = sup_{|z| > 1} (|z| - 1) / sigma_min(z I - W)``: transient growth is between K and ``e H K``.

        Exactly 1 where the numerical radius is at most 1 (normal matrices of radius up to 1 among them), inf where the
        powers are unbounded (a mode grows, or a defective one is marginal), else found by a search over the outside of
        the unit disc: a lower bound that is the value to about 1e-6 unless a narrow peak is missed.

        References
        ----------
        Trefethen and Embree, Spectra and Pseudospectra (2005), chapter 18.
        """
        if not self._power_bounded:
            return float("inf")
        if self.numerical_radius <= 1 + NUMERICAL_RADIUS_ACCURACY:
            # sigma_min(z - W) >= |z| - numerical radius
            return 1.0
        return kreiss_constant(self._schur, self.eigenvalues, self.norm)

    @cached_property
    def transient_peak(self) -> TransientPeak:
        """``max_k |W^k|_2`` over ``k >= 0`` and the first k that has it; (inf, None) where the powers are unbounded.

        The first within the rounding of the powers: of a plateau, its beginning. At radius 1, and for radii so near to
        it that no power falls below 1 in time, the maximum over the first 10 000 powers.
        """
        if not self._power_bounded:
            return TransientPeak(float("inf"), None)
        return largest_power(self.W, self.norm)

    def __repr__(self) -> str:
        return f"Spectrum(H={len(self.W)}, radius={self.radius:.6g}, norm={self.norm:.6g})"

    def __str__(self) -> str:
        H, smallest = len(self.W), float(self.singular_values[-1])
        bound = f"{1 / self.norm:.4g}" if self.norm > 0 else "inf"
        rows = [
            ("radius", self.radius, f"{_rate(self.radius)} in the end if the network were linear and undriven; alone"),
            ("", "", "it proves nothing, above 1 or below, for a driven nonlinear network"),
            ("norm", self.norm, f"{_rate(self.norm)}: a gradient grows by at most norm * max|phi'| a step,"),
            ("", "", f"so it provably vanishes if max|phi'| < {bound}"),
            ("smallest sigma", smallest, f"{_rate(smallest)}: a gradient keeps at least this * min|phi'| a step"),
            ("numerical radius", self.numerical_radius, self._short_term()),
            ("departure", self.departure_from_normality, "from normality (Henrici); 0: radius = norm, no transients"),
            ("eigenvectors", self.eigenvector_condition, "condition: |W^k| <= this * radius^k"),
            ("slowest mode", *self._slowest()),
        ]
        if H <= _PRINTED_SIZE:
            K, (peak, step) = self.kreiss_constant, self.transient_peak
            place = f"max_k |W^k|, growth of a linear network, at k = {step} steps"
            rows += [
                ("Kreiss constant", K, f"the peak of |W^k| is at least K and at most e H K = {np.e * H * K:.4g}"),
                ("transient peak", peak, "powers are unbounded" if step is None else place),
            ]
        table = [
            f"  {name:<18}{value if isinstance(value, str) else format(value, '.6g'):<13}{text}"
            for name, value, text in rows
        ]
        if H > _PRINTED_SIZE:
            table.append("  kreiss_constant and transient_peak are computed when asked for")
        return "\n".join([f"Spectrum of a recurrent matrix, H = {H}", *table])

    def _short_term(self) -> str:
        """What the numerical radius proves (Berger: |W^k| <= 2 w(W)^k)."""
        if self.numerical_radius <= 1 + NUMERICAL_RADIUS_ACCURACY:
            return "powers never exceed 2 (Berger)"
        return "above 1: short-term growth is possible"

    def _slowest(self) -> tuple[float | str, str]:
        """The slowest mode in words."""
        if self.stability == "growing":
            return "grows", f"by a factor {self.radius:.6g} a step, undriven and linear"
        if self.stability == "marginal":
            count = f"{int((self.mode_growth == 0).sum())} of {len(self.W)}"
            return "marginal", f"{count} modes neither decay nor grow, to rounding; undriven and linear"
        return float(self.time_constants[0]), "steps to fall by e, undriven and linear"

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python; eigenvalues as pairs ``[real, imaginary]``."""
        return {
            "radius": self.radius,
            "stability": self.stability,
            "mode_growth": self.mode_growth.tolist(),
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

    def plot(self, ax: Any = None) -> Any:
        """Eigenvalues in the complex plane; returns the matplotlib axes."""
        from ..plotting import plot_spectrum

        return plot_spectrum(self, ax=ax)


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
        Real, finite, ``H >= 1``: ``W_hh`` of an Elman cell, one gate's block of another cell, or any Jacobian. Gated
        cells by gate: a mapping such as ``{"i": W_i, "f": W_f, ...}``, or an object whose ``recurrent_matrices`` is
        one, as a layer's, or whose ``layer`` has them, as a network.

    Returns
    -------
    Spectrum
        Up to H = 2000: ``radius norm eigenvalues singular_values`` at once, the rest when first asked for.
    PartialSpectrum
        Above: ``radius`` and ``norm`` with intervals and a few eigenvalues, by Krylov methods.
    SpectrumByGate
        Of a mapping or a layer.

    Raises
    ------
    ShapeError
        If W is not a non-empty square matrix.
    DTypeError
        If W is not real, or is a masked array, or an operator of more than 2000 units without its transpose.
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
    size = matrix.shape[0]
    if size > DENSE_SIZE:
        return partial_spectrum(matrix)
    if not isinstance(matrix, np.ndarray):
        matrix = square_matrix(matrix @ np.eye(size), name)
    matrix.setflags(write=False)
    unit, scale = scaled(matrix)
    eigenvalues = scipy.linalg.eigvals(unit) * scale
    order = np.lexsort((eigenvalues.imag, eigenvalues.real, np.abs(eigenvalues)))[::-1]
    return Spectrum(matrix, eigenvalues[order], scipy.linalg.svdvals(unit) * scale)


def _rate(factor: float) -> str:
    """The logarithm of a factor per step, with its unit."""
    with np.errstate(divide="ignore"):
        return f"{np.log(factor):+z.4f} nats/step"
