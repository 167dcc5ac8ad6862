"""Fixed and slow points of a recurrent layer under a constant input, and their linear stability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import DTypeError, ShapeError
from ...linearization import Array
from ...results import Drawn
from ...validation.arrays import finite, plain
from ...validation.rng import generator
from ...validation.scalars import index, positive, size
from ..matrices import rounding_of
from ..spectra.marginal import NEAR, marginal_modes
from .constant_input import ConstantInput
from .minimize import local_minima

# Slow points more than this many times as far out as the starts are where gates saturate, and q falls out to infinity.
_REACH = 2.0
# Times the cube root of tol: at a pitchfork, |F(s) - s| ~ |s|^3 / 3, points at rest are up to 2.9 such roots apart.
_DOUBT = 10.0
# A minimum is known to about the square root of rounding, and the eigenvalue 1 of its Jacobian to a multiple of that.
_MINIMUM = 1e-6


@dataclass(frozen=True, eq=False)
class FixedPoints(Drawn, picture="plot_fixed_points"):
    """Points at which a layer stands still, or nearly; made by :func:`fixed_points`. Fixed ones first, then by count.

    Attributes
    ----------
    points : ndarray, shape (m, S)
        States in the layout of the layer's linearization: h; for an LSTM (h, c); layer after layer in a stack.
    q : ndarray, shape (m,)
        ``|F(s) - s|^2 / 2``, half the squared speed, in state units per step.
    converged : ndarray of bool, shape (m,)
        True for a fixed point, whose speed is within ``tol``; False for a slow point, a minimum of q above zero.
    counts : ndarray of int, shape (m,)
        How many starts ended there.
    jacobians : ndarray, shape (m, S, S)
        ``J[i, j] = d F(s)[i] / d s[j]``.
    eigenvalues : ndarray of complex, shape (m, S)
        Of each Jacobian, by descending modulus; a mode grows by this factor each step.
    marginal_modes : ndarray of bool, shape (m, S)
        Which of them have modulus 1 within their uncertainty: the rounding of the Jacobian, and its change over the
        states around the point that are also at rest within ``tol``. Whether such a mode grows or decays is not known.
    n_starts, n_lost : int
        Starts, and how many of them ended neither at a fixed nor at a slow point.
    """

    points: Array
    q: Array
    converged: Array
    counts: Array
    jacobians: Array
    eigenvalues: Array
    marginal_modes: Array
    n_starts: int
    n_lost: int

    def __len__(self) -> int:
        return len(self.points)

    @property
    def n_unstable(self) -> Array:
        """Growing modes of each point (m,): those with an eigenvalue outside the unit circle that is not marginal."""
        return np.count_nonzero((abs(self.eigenvalues) > 1) & ~self.marginal_modes, axis=1)

    @property
    def n_marginal(self) -> Array:
        """Marginal modes of each point (m,): along a line attractor one, at a bifurcation one or two."""
        return np.count_nonzero(self.marginal_modes, axis=1)

    @property
    def stable(self) -> Array:
        """Which points (m,) are fixed and attract all states around them: every eigenvalue inside the unit circle."""
        return self.converged & (self.n_unstable == 0) & (self.n_marginal == 0)

    @property
    def marginal(self) -> Array:
        """Which points (m,) are fixed without a growing mode, but with marginal ones, which linear terms do not decide.

        Examples are the points of line, ring and plane attractors, and points at a bifurcation.
        """
        return self.converged & (self.n_unstable == 0) & (self.n_marginal > 0)

    @property
    def saddle(self) -> Array:
        """Which points (m,) are fixed and have a growing mode."""
        return self.converged & (self.n_unstable > 0)

    @property
    def kinds(self) -> list[str]:
        """``"stable"``, ``"marginal"``, ``"saddle"`` or ``"slow"`` for each point."""
        kinds = np.select([self.stable, self.marginal, self.saddle], ["stable", "marginal", "saddle"], "slow")
        named: list[str] = kinds.tolist()
        return named

    @property
    def exponents(self) -> Array:
        """Rate (m,) of the slowest decaying or fastest growing mode of each point, nats per step."""
        with np.errstate(divide="ignore"):
            return np.log(abs(self.eigenvalues[:, 0]))

    def modes(self, point: int) -> tuple[Array, Array]:
        """Eigenvalues (S,) by descending modulus and eigenvectors (S, S), as columns, of one point's Jacobian."""
        point = index(point, "point", len(self))
        values, vectors = np.linalg.eig(self.jacobians[point])
        order = np.argsort(-abs(values), kind="stable")
        return values[order], vectors[:, order]

    def __repr__(self) -> str:
        fixed = int(self.converged.sum())
        return f"FixedPoints({fixed} fixed, {self._counts()}, {len(self) - fixed} slow)"

    def _counts(self) -> str:
        """How many of the fixed points are stable, and marginal if any are."""
        marginal = int(self.marginal.sum())
        return f"{int(self.stable.sum())} of them stable" + (f" and {marginal} marginal" if marginal else "")

    def __str__(self) -> str:
        fixed = int(self.converged.sum())
        lines = [
            f"{fixed} fixed points, {self._counts()}, and {len(self) - fixed} slow points from "
            f"{self.n_starts} starts ({self.n_lost} ended at neither)",
            "  kind      starts   speed     unstable modes   largest |eigenvalue|   nats/step",
        ]
        shown = 20
        for i, kind in enumerate(self.kinds[:shown]):
            lines.append(
                f"  {kind:<9} {self.counts[i]:<8} {np.sqrt(2 * self.q[i]):<9.1e} {self.n_unstable[i]:<16} "
                f"{abs(self.eigenvalues[i, 0]):<22.6g} {self.exponents[i]:+z.5f}"
            )
        if len(self) > shown:
            lines.append(f"  ... and {len(self) - shown} more")
        if self.marginal.any():
            lines.append("  marginal: an eigenvalue of modulus 1 within its uncertainty, and none that grows")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All numbers except the Jacobians as plain Python; eigenvalues as pairs of real and imaginary part."""
        return {
            "points": self.points.tolist(),
            "q": self.q.tolist(),
            "converged": self.converged.tolist(),
            "kinds": self.kinds,
            "stable": self.stable.tolist(),
            "counts": self.counts.tolist(),
            "n_unstable": self.n_unstable.tolist(),
            "n_marginal": self.n_marginal.tolist(),
            "eigenvalues": np.stack([self.eigenvalues.real, self.eigenvalues.imag], axis=-1).tolist(),
            "n_starts": self.n_starts,
            "n_lost": self.n_lost,
        }

    def plot(self, axes: Any = None, *, trajectories: ArrayLike | None = None) -> Any:
        """Eigenvalues by point, and the points on two principal components; returns the two matplotlib axes."""
        return self._draw(axes, trajectories=trajectories)


def fixed_points(
    layer: Any,
    x_const: ArrayLike | None = None,
    starts: ArrayLike | int = 256,
    *,
    slow: float = 1e-5,
    tol: float = 1e-12,
    separation: float = 1e-6,
    max_iterations: int = 200,
    rng: int | np.random.Generator | None = None,
) -> FixedPoints:
    """Find the states ``s = F(s)`` of a layer under a constant input, by minimising ``q(s) = |F(s) - s|^2 / 2``.

    All starts descend at once, by Newton's method with a line search: a Levenberg-Marquardt step with damping
    proportional to ``|F(s) - s|^2``, which vanishes at a fixed point and makes the step a descent even where ``J - I``
    is singular. So a start ends at a fixed point, or at a minimum of q above zero, a slow point, near which
    trajectories linger.

    Parameters
    ----------
    layer : recurrent layer
        Float64, one direction; ``F`` is its call over one step. For a network, give its recurrent part. Anything
        callable as ``layer(x, h0) -> (output, hn)`` with a ``linearize(x, h0)`` will do.
    x_const : array_like, shape (D,), optional
        The input at every step; zeros by default.
    starts : array_like, shape (n, S) or (S,), or int, default 256
        States to start from, in the layout of ``points``. States that the network visits, with a little noise, lead to
        the points that matter. A number draws that many, uniform in [-1, 1].
    slow : float, default 1e-5
        Largest q of a slow point. Starts that end above it are dropped and counted; so are those that end with a
        component more than twice as large as any start's, where closed gates hold a state that no trajectory reaches.
    tol : float, default 1e-12
        A point is fixed if ``|F(s) - s| <= tol max(1, |s|)``.
    separation : float, default 1e-6
        Points closer than this times ``max(1, |s|)`` count as the same. So do fixed points closer than ten cube roots
        of ``tol`` (1e-3), if the line between them is at rest within ``tol``, as at a bifurcation, where ``J - I`` is
        singular and ``tol`` determines a point only to its square or cube root.
    max_iterations : int, default 200
        Largest number of Newton steps.
    rng : None, int or numpy.random.Generator
        For random starts.

    Returns
    -------
    FixedPoints

    Raises
    ------
    DTypeError
        If ``layer`` is not a recurrent layer, or its dtype is not float64.
    ShapeError, ArgumentError
        If the input or the starts do not fit, or a number is outside its range.

    References
    ----------
    Sussillo and Barak, Neural Computation 25 (2013) 626; Yamashita and Fukushima, Computing Supplement 15 (2001) 239,
    for the damping. ``slow`` is in squared units of the states: with q = 1e-5, a state moves 0.0045 per step.
    """
    system = ConstantInput(layer, x_const)
    slow, tol = positive(slow, "slow", "squared state units"), positive(tol, "tol", "state units")
    separation = positive(separation, "separation", "state units")
    max_iterations = size(max_iterations, "max_iterations")
    begin = _starts(starts, system.state_size, rng)
    points, speed = local_minima(system, begin, tol, max_iterations)
    magnitude = np.maximum(1.0, np.linalg.norm(points, axis=1))
    converged, q = speed <= tol * magnitude, speed**2 / 2
    near = abs(points).max(axis=1) <= _REACH * max(1.0, float(abs(begin).max()))
    found = np.flatnonzero(converged | ((q <= slow) & near))
    # of points that count as the same, the slowest stands for all
    found = found[np.argsort(speed[found], kind="stable")]
    chosen, counts = _distinct(system, points[found], converged[found], separation, tol)
    # by kind, then by the number of starts that found the point
    order = np.lexsort((-counts, ~converged[found[chosen]]))
    keep, counts = found[chosen][order], counts[order]
    jacobians = system.jacobians(points[keep])
    values = np.linalg.eigvals(jacobians).astype(np.complex128)
    values = np.take_along_axis(values, np.argsort(-abs(values), axis=1, kind="stable"), axis=1)
    rounding = _jacobian_error(system, points[keep], jacobians, values, converged[keep], tol)
    marginal = [marginal_modes(*each) for each in zip(jacobians, values, rounding, strict=True)]
    return FixedPoints(
        points=points[keep],
        q=q[keep],
        converged=converged[keep],
        counts=counts,
        jacobians=jacobians,
        eigenvalues=values,
        marginal_modes=np.reshape(np.array(marginal, dtype=bool), values.shape),
        n_starts=len(begin),
        n_lost=len(begin) - len(found),
    )


def _jacobian_error(
    system: ConstantInput, points: Array, jacobians: Array, values: Array, converged: Array, tol: float
) -> Array:
    """Spectral norm (m,) of the uncertainty of the Jacobians (m, S, S) at points (m, S).

    A fixed point is known up to the states that are at rest within ``tol``: along the direction that ``J - I`` shrinks
    most, up to ``tol`` over that singular value. A slow point is a minimum of q, which is flat there.
    """
    error = np.array([rounding_of(J) for J in jacobians])
    for i in np.flatnonzero(~converged):
        error[i] = max(error[i], _MINIMUM * float(np.linalg.norm(jacobians[i])))
    # for other points the error decides nothing
    fixed = np.flatnonzero(converged & (np.abs(np.abs(values) - 1) <= NEAR).any(axis=1))
    if not len(fixed):
        return error
    _, sizes, right = np.linalg.svd(jacobians[fixed] - np.eye(points.shape[1]))
    magnitude = np.maximum(1.0, np.linalg.norm(points[fixed], axis=1))
    reach = magnitude * np.minimum(tol / np.maximum(sizes[:, -1], tol), _DOUBT * np.cbrt(tol))
    for sign in (1, -1):
        moved = system.jacobians(points[fixed] + sign * reach[:, None] * right[:, -1])
        change = np.linalg.norm(moved - jacobians[fixed], axis=(1, 2))
        error[fixed] = np.maximum(error[fixed], change)
    return error


def _starts(starts: ArrayLike | int, S: int, rng: int | np.random.Generator | None) -> Array:
    """States (n, S) to start from."""
    if isinstance(starts, int | np.integer):
        count = size(starts, "starts")
        return generator(rng).uniform(-1.0, 1.0, (count, S))
    given = plain(starts, "starts")
    if given.dtype.kind not in "fiu":
        raise DTypeError(f"starts must be real numbers, got dtype {given.dtype}")
    if given.ndim not in (1, 2) or given.shape[-1] != S or not given.size:
        raise ShapeError(f"starts must have shape (n, S) with S = {S}, the whole state, got {given.shape}")
    finite(given, "starts")
    return np.atleast_2d(given).astype(np.float64)


def _distinct(
    system: ConstantInput, points: Array, converged: Array, separation: float, tol: float
) -> tuple[Array, Array]:
    """Indices of distinct points among (m, S), the first of each, and how many points each stands for."""
    left, chosen, counts = np.arange(len(points)), [], []
    while len(left):
        first, others = points[left[0]], points[left]
        distances = np.linalg.norm(others - first, axis=1) / max(1.0, float(np.linalg.norm(first)))
        same = distances <= separation
        doubtful = ~same & (distances <= _DOUBT * np.cbrt(tol)) & converged[left] & converged[left[0]]
        same[doubtful] = _at_rest_between(system, first, others[doubtful], tol)
        chosen.append(int(left[0]))
        counts.append(int(same.sum()))
        left = left[~same]
    return np.array(chosen, dtype=int), np.array(counts, dtype=int)


def _at_rest_between(system: ConstantInput, first: Array, others: Array, tol: float) -> Array:
    """Whether (m,) three states on the way from ``first`` (S,) to each of ``others`` (m, S) are at rest within tol.

    Three, because the middle between the two outer points of a pitchfork is itself a fixed point.
    """
    rest = np.ones(len(others), dtype=bool)
    if len(others):
        for share in (0.25, 0.5, 0.75):
            states = first + share * (others - first)
            speed = np.linalg.norm(system(states) - states, axis=1)
            rest &= speed <= tol * np.maximum(1.0, np.linalg.norm(states, axis=1))
    return rest
