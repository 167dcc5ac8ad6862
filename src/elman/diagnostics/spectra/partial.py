"""Radius and norm of large and sparse matrices from Krylov spaces, each with an interval of uncertainty.

ARPACK's start vector is fixed: the same matrix always gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...errors import ArgumentError, DTypeError
from ...linearization import Array
from ...results import Drawn
from .marginal import Stability, modes_in_words, stability, time_constants

# Number of eigenvalues to compute: more than one, to show whether others have nearly the largest modulus.
EIGENVALUES = 6
# Krylov vectors: more than ARPACK's 2 k + 1, as eigenvalues of random matrices crowd at the edge.
_KRYLOV = 60
_RESTARTS = 100
_TOLERANCE = 1e-10
# Rounding of the products in an iteration, relative to the norm.
_ROUNDING = 100 * float(np.finfo(np.float64).eps)


class Estimate(NamedTuple):
    """A number and its interval of uncertainty.

    Attributes
    ----------
    value : float
        NaN if the iteration did not converge.
    low, high : float
        Ends of the interval, to first order in the residual.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if np.isnan(self.value):
            return f"in [{self.low:.8g}, {self.high:.8g}]"
        below, above = self.value - self.low, self.high - self.value
        if below or above:
            return f"{self.value:.8g} (-{below:.1g}, +{above:.1g})"
        return f"{self.value:.8g}"


@dataclass(frozen=True, eq=False)
class PartialSpectrum(Drawn, picture="plot_partial_spectrum"):
    """The outer part of the spectrum of a large or sparse matrix; made by :func:`elman.spectrum`.

    Attributes
    ----------
    size : int
        H.
    eigenvalues : ndarray, shape (k,), complex
        Ritz values of largest modulus, descending; all H of them where the graph of the matrix has no cycle.
    residuals : ndarray, shape (k,)
        ``|W x - lambda x|`` for unit x: the value is exact for a matrix at this distance from W.
    conditions : ndarray, shape (k,)
        Condition of each eigenvalue: its error is about this times its residual (Wilkinson 1965). NaN where its left
        eigenvector was not found.
    radius_estimate : Estimate
        Largest modulus, within residual times condition; within [0, norm] if the condition is not known.
    norm_estimate : Estimate
        Largest singular value. The Ritz value is a lower bound; the interval reaches up to it plus its residual.
    exact : bool
        Whether the eigenvalues were read off the diagonal: without a cycle in its graph the matrix is triangular in
        some order of the units.
    W : object
        The matrix or operator as given.
    """

    size: int
    eigenvalues: Array
    residuals: Array
    conditions: Array
    radius_estimate: Estimate
    norm_estimate: Estimate
    exact: bool
    W: Any = field(repr=False)

    not_computed = (
        "the other eigenvalues and singular values",
        "numerical_radius",
        "departure_from_normality",
        "eigenvector_condition",
        "kreiss_constant",
        "transient_peak",
        "pseudospectra",
    )

    @property
    def radius(self) -> float:
        """Largest modulus of the eigenvalues found."""
        return self.radius_estimate.value

    @property
    def norm(self) -> float:
        """Largest singular value, a lower bound."""
        return self.norm_estimate.value

    @property
    def time_constants(self) -> Array:
        """``-1 / log |lambda|`` of the modes found, in steps; 0 for 0, inf for a marginal, NaN for a growing mode."""
        return time_constants(self.eigenvalues, self.marginal)

    @property
    def marginal(self) -> Array:
        """Which of the modes found (k,) have modulus 1 within the error of their eigenvalue.

        The error is the condition (1 if not known) times the sum of the residual and the rounding, ``100 eps`` times
        the norm; values read off the diagonal are exact.
        """
        distance = np.abs(np.abs(self.eigenvalues) - 1)
        if self.exact:
            return np.asarray(distance == 0)
        error = self.residuals + _ROUNDING * self.norm_estimate.high
        return np.asarray(distance <= np.where(np.isnan(self.conditions), 1.0, self.conditions) * error)

    @property
    def stability(self) -> Stability:
        """What the modes found do: ``"growing"``, ``"marginal"`` or ``"decaying"``, as for a :class:`Spectrum`."""
        return stability(self.eigenvalues, self.marginal)

    def __repr__(self) -> str:
        return f"PartialSpectrum(H={self.size}, radius={self.radius:.6g}, norm={self.norm:.6g})"

    def __str__(self) -> str:
        how = (
            "exact: no cycle in the graph of the matrix"
            if self.exact
            else f"Ritz value, residual {self.residuals[0]:.2g}, condition {self.conditions[0]:.3g}"
            if len(self.residuals)
            else "not found: the iteration did not converge"
        )
        bound = f"{1 / self.norm_estimate.high:.4g}" if self.norm_estimate.high > 0 else "inf"
        return "\n".join(
            [
                f"Outer spectrum of a recurrent matrix, H = {self.size}",
                f"  radius            {self.radius_estimate}  {how}",
                f"                    of those found {modes_in_words(self.eigenvalues, self.marginal)}",
                "                    alone it proves nothing, above 1 or below, for a driven nonlinear network",
                f"  norm              {self.norm_estimate}  a gradient grows by at most norm * max|phi'| a step,",
                f"                    so it vanishes if max|phi'| < {bound}",
                f"  not computed      {', '.join(self.not_computed[:3])},",
                f"                    {', '.join(self.not_computed[3:])}",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python; eigenvalues as pairs ``[real, imaginary]``."""
        return {
            "size": self.size,
            "stability": self.stability,
            "marginal": self.marginal.tolist(),
            "radius": self.radius_estimate._asdict(),
            "norm": self.norm_estimate._asdict(),
            "eigenvalues": [[float(z.real), float(z.imag)] for z in self.eigenvalues],
            "residuals": self.residuals.tolist(),
            "conditions": self.conditions.tolist(),
            "exact": self.exact,
            "not_computed": list(self.not_computed),
        }


def partial_spectrum(W: Any) -> PartialSpectrum:
    """Outer spectrum by ARPACK.

    Parameters
    ----------
    W : ndarray, scipy.sparse array or matrix, or LinearOperator; (H, H), real, finite, H > 2 ``EIGENVALUES``
        A LinearOperator needs its transpose (``rmatvec``) for the norm.

    Returns
    -------
    PartialSpectrum

    Raises
    ------
    DTypeError
        If an operator has no transpose.
    ArgumentError
        If an operator gives numbers that are not finite.
    """
    from scipy.sparse import issparse
    from scipy.sparse.linalg import aslinearoperator

    operator = aslinearoperator(W)
    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    _require_products(operator, start)
    if issparse(W) and (diagonal := _acyclic_diagonal(W)) is not None:
        values = diagonal.astype(complex)
        residuals, conditions = np.zeros(len(values)), np.full(len(values), np.nan)
    else:
        diagonal = None
        values, residuals, conditions = _ritz_values(operator, start)
    norm = _norm(operator, start)
    return PartialSpectrum(
        operator.shape[0], values, residuals, conditions,
        _radius(values, residuals, conditions, norm) if diagonal is None else Estimate(*3 * (float(abs(values[0])),)),
        norm, diagonal is not None, W,
    )  # fmt: skip


def _require_products(operator: Any, start: Array) -> None:
    """Refuse operators without a transpose, and products that are not finite, which ARPACK would not notice."""
    try:
        products = operator.matvec(start), operator.rmatvec(start)
    except NotImplementedError as error:
        raise DTypeError(
            "W must be an operator with a transpose, for the norm: give LinearOperator an rmatvec as well"
        ) from error
    if not all(np.isfinite(product).all() for product in products):
        raise ArgumentError("W must be finite: its product with a vector of finite numbers is not")


def _acyclic_diagonal(W: Any) -> Array | None:
    """The eigenvalues, read off the diagonal, in descending modulus if no cycle joins two units; else None."""
    from scipy.sparse.csgraph import connected_components

    if connected_components(W, connection="strong")[0] < W.shape[0]:
        return None
    diagonal: Array = W.diagonal()
    return diagonal[np.argsort(-np.abs(diagonal), kind="stable")]


def _ritz_values(operator: Any, start: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues of largest modulus, their residuals, and their conditions, which need the left eigenvectors."""
    values, right = _arpack(operator, start)
    if not len(values):
        return values, np.zeros(0), np.zeros(0)
    residuals = np.linalg.norm(operator.matmat(right) - right * values, axis=0)
    left_values, left = _arpack(operator.T, start)
    conditions = np.full(len(values), np.nan)
    scale = float(np.abs(values).max())
    for i, z in enumerate(values):
        if len(left_values):
            # W^T y = lambda y: y is the conjugate of the left eigenvector, and the product has no conjugation
            nearest = int(np.abs(left_values - z).argmin())
            if abs(left_values[nearest] - z) <= 1e-6 * scale:
                overlap = abs(left[:, nearest] @ right[:, i])
                conditions[i] = 1 / overlap if overlap > 0 else np.inf
    return values, residuals, conditions


def _arpack(operator: Any, start: Array) -> tuple[Array, Array]:
    """Ritz values (k,) of largest modulus, descending, and unit vectors (H, k); only those that converged."""
    from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, eigs

    size = operator.shape[0]
    if not np.any(operator.matvec(start)):
        # Only the zero matrix maps a random vector to 0, and ARPACK cannot start on it.
        return np.zeros(1, dtype=complex), np.eye(size, 1, dtype=complex)
    found: tuple[Array, Array]
    try:
        found = eigs(
            operator, EIGENVALUES, which="LM", v0=start, ncv=min(size, _KRYLOV), maxiter=_RESTARTS, tol=_TOLERANCE
        )
    except ArpackNoConvergence as error:
        found = error.eigenvalues, error.eigenvectors
    except ArpackError:
        # the powers of a nilpotent operator vanish, so that the iteration cannot continue
        found = np.zeros(0, dtype=complex), np.zeros((size, 0), dtype=complex)
    values, vectors = found
    order = np.lexsort((values.imag, values.real, np.abs(values)))[::-1]
    return values[order], vectors[:, order]


def _radius(values: Array, residuals: Array, conditions: Array, norm: Estimate) -> Estimate:
    """Largest modulus within its residual times its condition, and within what the norm allows."""
    if not len(values):
        return Estimate(float("nan"), 0.0, norm.high)
    value = float(abs(values[0]))
    half = float(residuals[0] * conditions[0])
    if not np.isfinite(half):
        return Estimate(value, 0.0, max(value, norm.high))
    return Estimate(value, max(0.0, value - half), min(value + half, max(value, norm.high)))


def _norm(operator: Any, start: Array) -> Estimate:
    """Largest singular value: from a Ritz value of ``W^T W``, a lower bound, up to that plus its residual."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    if not np.any(operator.matvec(start)):
        return Estimate(0.0, 0.0, 0.0)
    square = LinearOperator(operator.shape, matvec=lambda x: operator.rmatvec(operator.matvec(x)), dtype=np.float64)
    found: tuple[Array, Array]
    try:
        found = eigsh(
            square, 1, which="LA", v0=start, ncv=min(operator.shape[0], _KRYLOV), maxiter=_RESTARTS, tol=_TOLERANCE
        )
    except ArpackNoConvergence as error:
        found = error.eigenvalues, error.eigenvectors
    values, vectors = found
    if not len(values):
        return Estimate(float("nan"), 0.0, float("inf"))
    x = vectors[:, 0] / np.linalg.norm(vectors[:, 0])
    product = operator.matvec(x)
    sigma = float(np.linalg.norm(product))
    residual = float(np.linalg.norm(operator.rmatvec(product) - sigma * sigma * x)) / sigma
    return Estimate(sigma, sigma, sigma + residual)
