"""Statistics of growth curves: mean over sequences, t intervals, rate, horizon and verdict.

Everything here starts from log norms of gradients by lag, one curve for each sequence. Sequences are the independent
sample; vectors pulled back along one sequence share its trajectory, so they are averaged before any interval is made.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...linearization import Array
from ...results import Result
from .growth import first_fitted_lag, mean_over_living
from .horizon import Horizon, crossing
from .intervals import DECISION_LEVEL, LEVEL, mean_interval, t_quantile

_MOST_SEQUENCES = 10**9

THRESHOLD = math.log(100)
"""Growth over the whole sequence, in nats either way, that counts as vanishing or exploding by default."""


@dataclass(frozen=True, eq=False)
class GrowthCurve(Result):
    r"""Growth of gradients by lag over several sequences, with what can be concluded from it.

    With :math:`L_i(k)` the log norm of sequence ``i`` at lag ``k`` (mean over its vectors), mean :math:`m(k)` and
    standard deviation :math:`s(k)` over the ``n`` sequences whose gradient is not exactly zero at that lag, intervals
    are :math:`m \pm t_{n-1} s / \sqrt n` for the mean and :math:`m \pm t_{n-1} \sqrt{s_1^2 + s^2/n}` for one more
    sequence and vector, :math:`s_1` being the standard deviation of a single vector of a single sequence.

    Parameters
    ----------
    logs : ndarray, shape (T + 1, n, K), float64
        Log norms in nats by lag, sequence and vector; -inf where the gradient is exactly zero. ``T >= 1``.
    start : str
        What the gradients start from: ``"random"``, ``"loss"``, ``"readout"`` or ``"given"``.
    threshold : float
        Growth in nats over the whole sequence, either way, that counts as exploding or vanishing.
    grid : ndarray of int, optional
        Lags at which ``logs`` was measured, from 0 to ``T``; others are interpolated. None if measured at all lags.
    """

    logs: Array
    start: str
    threshold: float
    grid: Array | None = None

    @classmethod
    def from_grid(cls, grid: Array, logs: Array, start: str, threshold: float) -> GrowthCurve:
        """A curve from log norms (len(grid), n, K) at a few lags, with straight lines between them.

        A gradient that is exactly zero at one lag of the grid, and not at the lag before, counts as zero from just
        after the latter.
        """
        T = int(grid[-1])
        before = np.minimum(np.searchsorted(grid, np.arange(T + 1), side="right") - 1, len(grid) - 2)
        weight = (np.arange(T + 1) - grid[before]) / np.diff(grid)[before]
        weight = weight[:, None, None]
        a, b = logs[before], logs[before + 1]
        with np.errstate(invalid="ignore"):
            mixed = (1 - weight) * a + weight * b
        line = np.where(weight == 0, a, np.where(weight == 1, b, mixed))
        return cls(np.where(np.isnan(line), -np.inf, line), start, threshold, grid)

    def __repr__(self) -> str:
        return f"<GrowthCurve {self.start}: {self.verdict}, rate {self.rate:.4g} nats/step, n = {self.n}>"

    @property
    def n_steps(self) -> int:
        """Length ``T`` of the sequences; the curve has ``T + 1`` entries."""
        return int(self.logs.shape[0]) - 1

    @property
    def n(self) -> int:
        """Number of sequences, including those with a gradient of exactly zero."""
        return int(self.logs.shape[1])

    @property
    def lags(self) -> Array:
        """Lags 0 .. T in steps, shape (T + 1,)."""
        return np.arange(self.n_steps + 1)

    @cached_property
    def sequence_logs(self) -> Array:
        """``L_i(k)``, shape (T + 1, n): mean over the vectors of each sequence, in nats; -inf where it is dead."""
        out: Array = self.logs.mean(axis=2)
        return out

    @cached_property
    def alive(self) -> Array:
        """Number of sequences whose gradient is not exactly zero, by lag, shape (T + 1,)."""
        out: Array = np.isfinite(self.sequence_logs).sum(axis=1)
        return out

    @property
    def dead_fraction(self) -> float:
        """Fraction of sequences whose gradient at lag ``T`` is exactly zero."""
        return 1 - int(self.alive[-1]) / self.n

    @cached_property
    def mean(self) -> Array:
        """``m(k)`` in nats over the living sequences, shape (T + 1,); -inf where none lives."""
        return mean_over_living(self.sequence_logs)

    @cached_property
    def sd(self) -> Array:
        """``s(k)`` in nats, shape (T + 1,); NaN where fewer than two sequences live."""
        living = np.isfinite(self.sequence_logs)
        centre = np.where(self.alive > 0, self.mean, 0.0)[:, None]
        squares = np.square(np.where(living, self.sequence_logs, centre) - centre).sum(axis=1)
        return self._between(np.sqrt(squares / np.where(self.alive > 1, self.alive - 1, np.nan)))

    def _between(self, values: Array) -> Array:
        """Interpolate spreads (T + 1,) between the lags of a grid, where interpolated curves spread too little."""
        if self.grid is None:
            return values
        out: Array = np.interp(self.lags, self.grid, values[self.grid])
        return out

    @cached_property
    def _half(self) -> Array:
        """Half width of the interval of the mean, shape (T + 1,)."""
        out: Array = t_quantile(LEVEL, self.alive - 1) * self.sd / np.sqrt(np.maximum(self.alive, 1))
        return out

    @property
    def low(self) -> Array:
        """Lower end of the 95 % interval of the mean, shape (T + 1,)."""
        out: Array = self.mean - self._half
        return out

    @property
    def high(self) -> Array:
        """Upper end of the 95 % interval of the mean, shape (T + 1,)."""
        out: Array = self.mean + self._half
        return out

    @cached_property
    def _single_half(self) -> Array:
        """Half width of the prediction interval for one vector of one further sequence, shape (T + 1,)."""
        K = self.logs.shape[2]
        living = np.isfinite(self.sequence_logs)[..., None]
        values = np.where(living, self.logs, 0.0)
        between_vectors = values.var(axis=2, ddof=1).sum(axis=1) / np.maximum(self.alive, 1) if K > 1 else 0.0
        # the variance of a mean over K vectors contains 1/K of the variance between vectors; the rest is added back
        single = np.square(self.sd) + (1 - 1 / K) * between_vectors
        spread = self._between(np.sqrt(single + np.square(self.sd) / np.maximum(self.alive, 1)))
        out: Array = t_quantile(LEVEL, self.alive - 1) * spread
        return out

    @property
    def single_low(self) -> Array:
        """Lower end of the 95 % interval for one more sequence and vector, shape (T + 1,)."""
        out: Array = self.mean - self._single_half
        return out

    @property
    def single_high(self) -> Array:
        """Upper end of the 95 % interval for one more sequence and vector, shape (T + 1,)."""
        out: Array = self.mean + self._single_half
        return out

    @property
    def first_lag(self) -> int:
        """Lag from which the rate is fitted: 10, or 1 in sequences below 20 steps (0 if there is a single step)."""
        return first_fitted_lag(self.n_steps)

    @cached_property
    def slopes(self) -> Array:
        """Least-squares slope of each living sequence, lags ``first_lag`` .. T, nats per step, shape (alive[T],)."""
        living = np.isfinite(self.sequence_logs[-1])
        if not self.n_steps:
            return np.full(int(living.sum()), np.nan)
        k = self.lags[self.first_lag :] - (self.first_lag + self.n_steps) / 2
        out: Array = (k / np.square(k).sum()) @ self.sequence_logs[self.first_lag :, living]
        return out

    @property
    def rate(self) -> float:
        """Mean slope in nats per step; -inf if no sequence lives to lag ``T``."""
        return mean_interval(self.slopes)[0] if len(self.slopes) else -math.inf

    @property
    def rate_ci(self) -> tuple[float, float]:
        """95 % t interval of :attr:`rate` over sequences."""
        return mean_interval(self.slopes)[1:]

    def local_rates(self, parts: int = 4) -> tuple[Array, Array]:
        """Mean growth per step over equal stretches of lag, among the sequences that live to lag ``T``.

        Trained networks often have a rate that depends on the position in the sequence.

        Parameters
        ----------
        parts : int, default 4
            Number of stretches; fewer if there are fewer steps.

        Returns
        -------
        edges : ndarray, shape (parts + 1,)
            Lags at which the stretches begin and end.
        rates : ndarray, shape (parts,)
            Nats per step; NaN if no sequence lives.
        """
        edges = np.unique(np.linspace(0, self.n_steps, parts + 1).round().astype(int))
        living = self.sequence_logs[:, np.isfinite(self.sequence_logs[-1])]
        if living.shape[1] == 0:
            return edges, np.full(len(edges) - 1, np.nan)
        return edges, np.diff(living[edges].mean(axis=1)) / np.diff(edges)

    @property
    def horizon(self) -> Horizon:
        """Lag at which the mean curve has fallen to 1e-3; see :class:`Horizon`."""
        low, high = self.rate_ci
        return Horizon(
            steps=crossing(self.mean, self.rate),
            low=crossing(self.low, low),
            high=crossing(self.high, high),
            measured=self.n_steps,
        )

    @property
    def verdict(self) -> str:
        """``"vanishing"``, ``"stable"``, ``"exploding"`` or ``"undecided"`` at 99 %.

        In this order: the interval of the mean at lag ``T`` lies below minus the threshold, between the two thresholds,
        or above the threshold; or none of these. Also vanishing if every gradient is exactly zero, or if so many are
        that the median must be (sign test).
        """
        from scipy.special import bdtrc  # not at the top: importing elman would take half as long again

        dead, living = self.n - int(self.alive[-1]), int(self.alive[-1])
        if living == 0 or bdtrc(dead - 1, self.n, 0.5) < 1 - DECISION_LEVEL:
            return "vanishing"
        half = t_quantile(DECISION_LEVEL, living - 1) * self.sd[-1] / math.sqrt(living)
        low, high = self.mean[-1] - half, self.mean[-1] + half
        if high < -self.threshold:
            return "vanishing"
        if low > self.threshold:
            return "exploding"
        return "stable" if low > -self.threshold and high < self.threshold else "undecided"

    @property
    def sequences_needed(self) -> float | None:
        r"""Number of sequences :math:`n^*` that an undecided verdict would take, from the spread seen so far.

        The smallest ``n`` with :math:`t_{n-1} s / \sqrt n` below the distance of ``m(T)`` to the nearer threshold,
        divided by the living fraction. None if the verdict is decided or fewer than two sequences live; infinite if the
        mean lies on the threshold.
        """
        if self.verdict != "undecided" or self.alive[-1] < 2:
            return None
        distance = abs(abs(self.mean[-1]) - self.threshold)
        sd = self.sd[-1]

        def enough(n: int) -> bool:
            return bool(t_quantile(DECISION_LEVEL, n - 1) * sd / math.sqrt(n) < distance)

        n = 2 + bisect_left(range(2, _MOST_SEQUENCES), True, key=enough)
        return math.inf if n >= _MOST_SEQUENCES else math.ceil(n / (1 - self.dead_fraction))

    def truncated(self, last: int) -> GrowthCurve:
        """The curve of lags 0 .. ``last`` only, ``1 <= last <= T``.

        Raises
        ------
        ArgumentError
            If ``last`` is out of range.
        """
        if not 1 <= last <= self.n_steps:
            raise ArgumentError(f"last must be a lag of the curve, 1 .. {self.n_steps}, got {last}")
        grid = None if self.grid is None else np.unique([*self.grid[self.grid < last], last])
        return GrowthCurve(self.logs[: last + 1], self.start, self.threshold, grid)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name; curves as lists over lags 0 .. T."""
        edges, rates = self.local_rates()
        curves = ("lags", "mean", "low", "high", "single_low", "single_high", "sd", "alive")
        return {
            "start": self.start,
            "verdict": self.verdict,
            "threshold": self.threshold,
            "rate": self.rate,
            "rate_ci": list(self.rate_ci),
            "horizon": self.horizon.to_dict(),
            "dead_fraction": self.dead_fraction,
            "sequences_needed": self.sequences_needed,
            "n": self.n,
            "grid": None if self.grid is None else self.grid.tolist(),
            "local_rates": {"edges": edges.tolist(), "rates": rates.tolist()},
            **{name: getattr(self, name).tolist() for name in curves},
        }
