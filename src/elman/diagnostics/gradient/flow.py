"""How gradients grow with the lag, measured in both directions along given trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ShapeError
from ...linearization import Array, Linearization
from ...results import Drawn
from ...validation.arrays import finite_numbers
from ...validation.rng import generator
from ...validation.scalars import flag, size
from ..trajectories import trajectories
from .bounds import a_priori_bound, singular_bounds
from .curve import THRESHOLD, GrowthCurve
from .growth import backward_growth, first_fitted_lag, forward_growth, mean_over_living, unit_vectors
from .singular import singular_growth


@dataclass(frozen=True, eq=False)
class GradientFlow(Drawn, picture="plot_gradient_flow"):
    """Growth by lag; made by :func:`gradient_flow`. All growth is log norm in nats, all rates are nats per step.

    Attributes
    ----------
    backward_curve, forward_curve : GrowthCurve
        Both measurements with their statistics, one curve for each sequence: the mean log norm of its living vectors.
    lags : ndarray, shape (T + 1,), int
        0 .. T.
    backward : ndarray, shape (T + 1, n)
        Per sequence, mean log norm of the living vectors pulled back from the end: lag ``k`` is the window
        ``[T - k, T]``, as in backpropagation through time. -inf where all vectors of the sequence are exactly zero.
    forward : ndarray, shape (T + 1, n)
        The same for tangent vectors pushed forward from the initial state, window ``[0, k]``. The rates of the two
        agree for a stationary network, and differ where the growth depends on the position in the sequence.
    dead_fraction, forward_dead_fraction : ndarray, shape (T + 1,)
        Share of the vectors of all sequences that are exactly zero.
    rates, forward_rates : ndarray, shape (n,)
        Least-squares slope per sequence over lags 10 .. T (1 .. T if T < 20, the one step if T is 1); -inf for a
        sequence that died, NaN for T = 0. ``rate`` and ``forward_rate`` are their means over living sequences.
    upper_bound, lower_bound : ndarray, shape (T + 1, n), or None
        Sums of ``log sigma_max(J_t)`` and ``log sigma_min(J_t)`` over the window of each lag (Pascanu, Mikolov and
        Bengio 2013): no gradient can leave them.
    a_priori_bound : ndarray, shape (T + 1,), or None
        ``k log(max|phi'| sigma_max(W_hh))``, the upper bound from the weights alone; for networks of that form.
    singular_lags : ndarray, shape (m,), int, or None
        Lags, from 0 to T at equal ratios, at which singular values were taken.
    largest, smallest : ndarray, shape (m, n), or None
        Log of the largest and smallest singular value of ``d s[T] / d s[T-k]`` at these lags: the growth of the
        most and the least favoured gradient. They lie between the bounds, and enclose every curve of ``backward``.
    n_vectors : int
        Backward vectors per sequence.
    """

    backward_curve: GrowthCurve
    forward_curve: GrowthCurve
    dead_fraction: Array
    forward_dead_fraction: Array
    upper_bound: Array | None
    lower_bound: Array | None
    a_priori_bound: Array | None
    singular_lags: Array | None
    largest: Array | None
    smallest: Array | None
    n_vectors: int

    @property
    def lags(self) -> Array:
        """0 .. T."""
        return self.backward_curve.lags

    @property
    def backward(self) -> Array:
        """Mean log norm (T + 1, n) of the living vectors of each sequence."""
        return self.backward_curve.sequence_logs

    @property
    def forward(self) -> Array:
        """The same for the forward vectors."""
        return self.forward_curve.sequence_logs

    @property
    def rates(self) -> Array:
        """Slope (n,) of each sequence; -inf for a sequence that died, NaN for T = 0."""
        return _rates(self.backward_curve)

    @property
    def forward_rates(self) -> Array:
        """The same for ``forward``."""
        return _rates(self.forward_curve)

    @property
    def backward_mean(self) -> Array:
        """Mean (T + 1,) of ``backward`` over the sequences that live at each lag; -inf where none does."""
        return self.backward_curve.mean

    @property
    def forward_mean(self) -> Array:
        """Mean (T + 1,) of ``forward``, likewise."""
        return self.forward_curve.mean

    @property
    def rate(self) -> float:
        """Backward rate: mean of ``rates`` over the sequences alive at lag T; -inf if none is."""
        return self.backward_curve.rate

    @property
    def forward_rate(self) -> float:
        """Forward rate, likewise from ``forward_rates``."""
        return self.forward_curve.rate

    def __repr__(self) -> str:
        return f"GradientFlow(T={self.lags[-1]}, n={self.backward.shape[1]}, rate={self.rate:.6g})"

    def __str__(self) -> str:
        T, n = int(self.lags[-1]), self.backward.shape[1]
        lines = [
            f"Gradient flow over T = {T} steps, {n} sequences, {self.n_vectors} backward vectors each",
            f"  backward, from the end       {_rate_text(self.rate)}, fitted over lags {first_fitted_lag(T)} .. {T}",
            f"  forward, from the beginning  {_rate_text(self.forward_rate)}",
            "  lag      backward   forward   dead     (mean log norm of the living in nats; share of exact zeros)",
        ]
        for lag in sorted({min(lag, T) for lag in (1, 10, 100, T)}):
            back, forth = self.backward_mean[lag], self.forward_mean[lag]
            lines.append(f"  {lag:<8} {back:<+z10.3f} {forth:<+z9.3f} {self.dead_fraction[lag]:.1%}")
        if self.largest is not None and self.smallest is not None:
            low, high = (float(mean_over_living(values[-1])) for values in (self.smallest, self.largest))
            lines.append(
                f"  singular values at lag T: {low:+z.3f} .. {high:+z.3f} nats, of the product of all Jacobians"
            )
        if self.upper_bound is not None and self.lower_bound is not None:
            low, high = (float(mean_over_living(bound[-1])) for bound in (self.lower_bound, self.upper_bound))
            lines.append(
                f"  bounds at lag T: {low:+z.3f} .. {high:+z.3f} nats, from the singular values of each Jacobian"
            )
        if self.a_priori_bound is not None:
            lines.append(f"  bound at lag T from the weights alone: {self.a_priori_bound[-1]:+z.3f} nats")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python, curves as lists over lags."""
        arrays = {
            name: getattr(self, name)
            for name in (
                "lags", "backward", "forward", "dead_fraction", "forward_dead_fraction", "rates", "forward_rates",
                "upper_bound", "lower_bound", "a_priori_bound", "singular_lags", "largest", "smallest",
            )
        }  # fmt: skip
        plain = {name: None if array is None else array.tolist() for name, array in arrays.items()}
        return {"rate": self.rate, "forward_rate": self.forward_rate, "n_vectors": self.n_vectors, **plain}


def gradient_flow(
    lin: Linearization,
    *,
    start: ArrayLike | None = None,
    vectors: int = 4,
    bounds: bool = False,
    singular_values: bool = False,
    rng: int | np.random.Generator | None = None,
) -> GradientFlow:
    """Measure how gradients grow from lag to lag, backward from the end and forward from the beginning.

    Parameters
    ----------
    lin : Linearization
        ``n >= 1`` trajectories of ``T`` steps.
    start : array_like, shape (n, S), optional
        Gradients with respect to the last state to pull back, such as those of a loss; only directions count. By
        default ``vectors`` random directions per sequence. Forward vectors always start in random directions.
    vectors : int, default 4
        Random directions per sequence.
    bounds : bool, default False
        Also compute the bounds from the singular values of every Jacobian: ``n T`` decompositions of size S.
    singular_values : bool, default False
        Also compute the extreme singular values of ``d s[T] / d s[T-k]`` at some 20 lags, by QR between steps, at a
        cost of order ``n T S^3``. For a large state, SciPy's ``svds(lin.as_linear_operator(T - k), k=1)`` finds the
        largest alone.
    rng : None, int or numpy.random.Generator
        For the random directions.

    Returns
    -------
    GradientFlow

    Raises
    ------
    DTypeError
        If ``lin`` is not a Linearization, ``start`` is masked or not real, or ``bounds`` or ``singular_values`` is not
        a truth value.
    ShapeError, ArgumentError
        If ``start`` has another shape or is not finite, ``vectors`` is not a positive integer, or there is no sequence
        or state.
    NonFiniteError
        If a Jacobian product is not finite.
    """
    lin = trajectories(lin, "gradient_flow")
    n, S = lin.n_sequences, lin.state_size
    vectors = size(vectors, "vectors")
    bounds, singular_values = flag(bounds, "bounds"), flag(singular_values, "singular_values")
    rng = generator(rng)
    if start is None:
        ends = unit_vectors(rng, n, vectors, S)
    else:
        given = finite_numbers(start, "start")
        if given.shape != (n, S):
            raise ShapeError(f"start must have shape (n, S) = {(n, S)}, got {given.shape}")
        ends = given[:, None]
    back = backward_growth(lin, ends)
    forth = forward_growth(lin, unit_vectors(rng, n, vectors, S))
    beginning = "random" if start is None else "given"
    upper, lower = singular_bounds(lin) if bounds else (None, None)
    lags = _singular_lags(lin.n_steps) if singular_values else None
    largest, smallest = (None, None) if lags is None else singular_growth(lin, lags)
    return GradientFlow(
        backward_curve=GrowthCurve(mean_over_living(back)[..., None], beginning, THRESHOLD),
        forward_curve=GrowthCurve(mean_over_living(forth)[..., None], "random", THRESHOLD),
        dead_fraction=np.isneginf(back).mean(axis=(1, 2)),
        forward_dead_fraction=np.isneginf(forth).mean(axis=(1, 2)),
        upper_bound=upper,
        lower_bound=lower,
        a_priori_bound=a_priori_bound(lin) if bounds else None,
        singular_lags=lags,
        largest=largest,
        smallest=smallest,
        n_vectors=back.shape[2],
    )


def _rate_text(rate: float) -> str:
    """A rate with its unit, or why there is none."""
    if np.isneginf(rate):
        return "none: every vector ends as exactly zero"
    return "none: there is no step" if np.isnan(rate) else f"{rate:+z.5f} nats/step (x{np.exp(rate):.5g} a step)"


def _rates(curve: GrowthCurve) -> Array:
    """Slope of each sequence; -inf for dead ones."""
    rates = np.full(curve.n, -np.inf)
    rates[np.isfinite(curve.sequence_logs[-1])] = curve.slopes
    return rates


def _singular_lags(T: int) -> Array:
    """0, T and lags at equal ratios between them."""
    return np.unique(np.append(np.rint(np.geomspace(1, max(T, 1), 20)).astype(int).clip(max=T), 0))
