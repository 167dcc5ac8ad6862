"""What the recurrent matrix alone says about gradients, each number labelled by what it proves.

The spectrum explains, it does not predict: what a driven network multiplies is ``diag(phi'(a_t)) W_hh``, not ``W_hh``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from ..errors import DTypeError, ShapeError
from ..linearization import Array
from .resolvent import kreiss_constant, numerical_radius
from .validation import plain_array, require_finite

# Powers searched for the transient peak before giving up a proof: a peak at step k needs a radius near 1 - 1/k, so this
# covers radii up to about .9999.
MAX_POWER = 10_000
# Above this size the summary does not compute the Kreiss constant and the peak; they stay available as attributes.
_PRINTED_SIZE = 150


class TransientPeak(NamedTuple):
    """Largest norm that a power of the matrix has.

    Attributes
    ----------
    value : float
        ``max_k |W^k|_2`` over ``k >= 0``; inf if the powers are not bounded.
    step : int or None
        The first ``k`` that has it; None if there is none.
    """

    value: float
    step: int | None


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

    @property
    def norm(self) -> float:
        """Spectral norm, the largest singular value: the most that one step can do to a vector."""
        return float(self.singular_values[0])

    @cached_property
    def numerical_radius(self) -> float:
        """``max_theta lambda_max((e^{i theta} W + h.c.) / 2)``, to about 1e-9 relative; ``radius <= it <= norm``."""
        return numerical_radius(self.W)

    @cached_property
    def _schur(self) -> Array:
        """Complex upper triangular Schur form of W, (H, H)."""
        triangular: Array = scipy.linalg.schur(self.W, output="complex")[0]
        return triangular

    @cached_property
    def departure_from_normality(self) -> float:
        """Henrici's departure from normality in the Frobenius norm, 0 for a normal matrix.

        The norm of the strict upper triangle of the complex Schur form: the textbook difference
        ``|W|_F^2 - sum |lambda|^2`` would cancel to nothing for nearly normal matrices (Henrici 1962).
        """
        return float(np.linalg.norm(np.triu(self._schur, 1)))

    @cached_property
    def _power_bounded(self) -> bool:
        """Whether the powers of W stay bounded: radius at most 1, and no Jordan block on the unit circle."""
        rounding = len(self.W) * np.finfo(np.float64).eps * max(1.0, self.norm)
        if self.radius > 1 + rounding:
            return False
        for z in self.eigenvalues[abs(self.eigenvalues) >= 1 - rounding]:
            # a Jordan block of size m moves its computed eigenvalues by eps^(1/m); those of size 2 are told apart here
            algebraic = np.count_nonzero(abs(self.eigenvalues - z) <= np.sqrt(rounding))
            geometric = np.count_nonzero(scipy.linalg.svdvals(z * np.eye(len(self.W)) - self.W) <= 4 * rounding)
            if geometric < algebraic:
                return False
        return True

    @cached_property
    def kreiss_constant(self) -> float:
        """``K = sup_{|z| > 1} (|z| - 1) / sigma_min(z I - W)``: transient growth is between K and ``e H K``.

        Exactly 1 where the numerical radius is at most 1 (normal matrices of radius up to 1 among them), inf where the
        powers are unbounded (radius above 1, or a defective eigenvalue on the unit circle), else found by a search over
        the outside of the unit disc: a lower bound that is the value to about 1e-6 unless a narrow peak is missed.

        References
        ----------
        Trefethen and Embree, Spectra and Pseudospectra (2005), chapter 18.
        """
        if not self._power_bounded:
            return float("inf")
        if self.numerical_radius <= 1 + 1e-12:
            # sigma_min(z - W) >= |z| - numerical radius
            return 1.0
        return kreiss_constant(self._schur, self.eigenvalues, self.norm)

    @cached_property
    def transient_peak(self) -> TransientPeak:
        """``max_k |W^k|_2`` over ``k >= 0`` and the first k that has it; (inf, None) where the powers are unbounded.

        At radius 1, and for radii so near to it that no power falls below 1 in time, the maximum over the first 10 000
        powers.
        """
        if not self._power_bounded:
            return TransientPeak(float("inf"), None)
        peak = TransientPeak(1.0, 0)
        if self.norm <= 1 + 1e-12:
            return peak
        power = self.W
        for k in range(1, MAX_POWER + 1):
            # the Frobenius norm is cheap and never less than the spectral norm
            frobenius = float(np.linalg.norm(power))
            if frobenius > peak.value:
                value = float(scipy.linalg.svdvals(power)[0])
                # rounding must not move the peak of a plateau to a later step
                if value > peak.value * (1 + 1e-13):
                    peak = TransientPeak(value, k)
            # Once |W^m| < 1 no later power exceeds the maximum found: write j = q m + r with r < m, then
            # |W^j| <= |W^m|^q |W^r| <= |W^r|, and r was searched.
            if frobenius < 1:
                break
            power = power @ self.W
        return peak

    def __repr__(self) -> str:
        return f"Spectrum(H={len(self.W)}, radius={self.radius:.6g}, norm={self.norm:.6g})"

    def __str__(self) -> str:
        H, smallest = len(self.W), float(self.singular_values[-1])
        bound = f"{1 / self.norm:.4g}" if self.norm > 0 else "inf"
        rows = [
            ("radius", self.radius, f"{_rate(self.radius)} in the end if the network were linear and undriven; alone"),
            ("", None, "it proves nothing, above 1 or below, for a driven nonlinear network"),
            ("norm", self.norm, f"{_rate(self.norm)}: a gradient grows by at most norm * max|phi'| a step,"),
            ("", None, f"so it provably vanishes if max|phi'| < {bound}"),
            ("smallest sigma", smallest, f"{_rate(smallest)}: a gradient keeps at least this * min|phi'| a step"),
            ("numerical radius", self.numerical_radius, _numerical_radius_verdict(self.numerical_radius)),
            ("departure", self.departure_from_normality, "from normality (Henrici); 0: radius = norm, no transients"),
        ]
        if H <= _PRINTED_SIZE:
            K, peak = self.kreiss_constant, self.transient_peak
            place = (
                "powers are unbounded"
                if peak.step is None
                else f"max_k |W^k|, growth of a linear network, at k = {peak.step} steps"
            )
            rows += [
                (
                    "Kreiss constant",
                    K,
                    f"the peak of |W^k| is at least K and at most e H K = {np.e * H * K:.4g}",
                ),
                ("transient peak", peak.value, place),
            ]
        table = [f"  {name:<18}{'' if value is None else format(value, '.6g'):<13}{text}" for name, value, text in rows]
        if H > _PRINTED_SIZE:
            table.append("  kreiss_constant and transient_peak are computed when asked for")
        return "\n".join([f"Spectrum of a recurrent matrix, H = {H}", *table])

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python; eigenvalues as pairs ``[real, imaginary]``."""
        return {
            "radius": self.radius,
            "norm": self.norm,
            "eigenvalues": [[float(z.real), float(z.imag)] for z in self.eigenvalues],
            "singular_values": self.singular_values.tolist(),
            "numerical_radius": self.numerical_radius,
            "departure_from_normality": self.departure_from_normality,
            "kreiss_constant": self.kreiss_constant,
            "transient_peak": self.transient_peak._asdict(),
        }

    def plot(self, ax: Any = None) -> Any:
        """Eigenvalues in the complex plane; returns the matplotlib axes."""
        from ..plotting import plot_spectrum

        return plot_spectrum(self, ax=ax)


def spectrum(W: ArrayLike) -> Spectrum:
    """Spectral quantities of a recurrent matrix and what each proves about gradients.

    Parameters
    ----------
    W : array_like, shape (H, H)
        Real, finite, ``H >= 1``: ``W_hh`` of an Elman cell, one gate's block of another cell, or any Jacobian.

    Returns
    -------
    Spectrum
        ``radius norm eigenvalues singular_values`` at once; ``numerical_radius departure_from_normality
        kreiss_constant transient_peak`` when first asked for.

    Raises
    ------
    ShapeError
        If W is not a non-empty square matrix.
    DTypeError
        If W is not real, or is a masked array.
    ArgumentError
        If W has a NaN or infinite entry.

    Examples
    --------
    >>> s = spectrum([[0.9, 10.0], [0.0, 0.9]])
    >>> round(s.transient_peak.value, 3), s.transient_peak.step
    (38.746, 9)
    """
    given = plain_array(W, "W")
    if given.dtype.kind not in "fiub":
        raise DTypeError(f"W must be a real matrix, got dtype {given.dtype}")
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.size == 0:
        raise ShapeError(
            f"W must be a square matrix (H, H) with H >= 1, got shape {given.shape}; of a gated cell's "
            "weight_hh (G, H) pass one gate's H rows"
        )
    matrix = given.astype(np.float64)
    require_finite(matrix, "W")
    matrix.setflags(write=False)
    eigenvalues = scipy.linalg.eigvals(matrix)
    order = np.lexsort((eigenvalues.imag, eigenvalues.real, np.abs(eigenvalues)))[::-1]
    return Spectrum(matrix, eigenvalues[order], scipy.linalg.svdvals(matrix))


def _rate(factor: float) -> str:
    """The logarithm of a factor per step, with its unit."""
    with np.errstate(divide="ignore"):
        return f"{np.log(factor):+z.4f} nats/step"


def _numerical_radius_verdict(value: float) -> str:
    """What the numerical radius proves (Berger: |W^k| <= 2 w(W)^k)."""
    if value <= 1:
        return "powers never exceed 2 (Berger)"
    return "above 1: short-term growth is possible"
