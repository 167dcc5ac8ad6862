"""The measured gradient beside the predicted one, on sequences that the prediction has not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...errors import ArgumentError, NonFiniteError, ShapeError
from ...linearization import Array
from ...norms import safe_norm, smallest_exact
from ...results import Drawn, Result
from ...validation.arrays import plain
from ..gradient.curve import GrowthCurve
from ..gradient.growth import unit_vectors
from ..gradient.intervals import DECISION_LEVEL, LEVEL, interval_text, welch_half_width
from .sequences import Sequences

_ROWS = 9  # of the printed table
_ROUNDING = 16  # units of eps per step by which two orders of the same sums may differ, in nats


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    r"""One measured growth curve beside the prediction for it.

    The mean over ``b`` measured sequences should fall within
    :math:`m \pm t_\nu \sqrt{s^2/n + s_b^2/b}` of the mean over ``n`` predicted ones (Welch), in 95 % of cases.

    Attributes
    ----------
    predicted, measured : GrowthCurve
        Both for lags 0 .. :attr:`last_lag`, the part of the sequence where the gradient is in the range of the dtype of
        training. A prediction from a grid of lags is compared with the measurement at these lags, interpolated in the
        same way, so that both rates contain the error of the straight lines.
    lags : ndarray of int
        Lags that are compared; those where fewer than two sequences live on either side are left out.
    rounding : float
        Nats per step that floating-point rounding alone may cause; part of every interval.
    """

    predicted: GrowthCurve
    measured: GrowthCurve
    lags: Array
    rounding: float

    @property
    def last_lag(self) -> int:
        """Last lag of both curves, in steps."""
        return self.predicted.n_steps

    def half_width(self, level: float = LEVEL) -> Array:
        """Half width in nats of the two-sample interval at every lag 0 .. ``last_lag``; NaN where there is none."""
        p, m = self.predicted, self.measured
        out: Array = welch_half_width((p.sd, m.sd), (p.alive, m.alive), level) + self.rounding * p.lags
        return out

    @cached_property
    def inside(self) -> Array:
        """Whether the measured mean lies within the 95 % interval, bool, one for each of :attr:`lags`."""
        error = np.abs(self.measured.mean[self.lags] - self.predicted.mean[self.lags])
        out: Array = error <= self.half_width()[self.lags]
        return out

    @property
    def fraction_inside(self) -> float:
        """Fraction of the compared lags inside; NaN if there are none. Neighbouring lags are not independent."""
        return float(self.inside.mean()) if len(self.lags) else math.nan

    def rate_interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Interval in which the measured rate should lie, nats per step."""
        p, m = self.predicted.slopes, self.measured.slopes
        if min(len(p), len(m)) < 2:
            return math.nan, math.nan
        sd = float(np.std(p, ddof=1)), float(np.std(m, ddof=1))
        half = float(welch_half_width(sd, (len(p), len(m)), level)) + self.rounding
        return self.predicted.rate - half, self.predicted.rate + half

    @property
    def rate_agrees(self) -> bool:
        """Whether the measured rate lies within the 99 % interval; without one, whether the verdicts are equal."""
        low, high = self.rate_interval(DECISION_LEVEL)
        return self._same_verdict if math.isnan(low) else low <= self.measured.rate <= high

    @property
    def end_agrees(self) -> bool:
        """Whether growth at ``last_lag`` lies within the 99 % interval; without one, whether the verdicts are equal."""
        half = self.half_width(DECISION_LEVEL)[-1]
        if math.isnan(half):
            return self._same_verdict
        return bool(abs(self.measured.mean[-1] - self.predicted.mean[-1]) <= half)

    @property
    def _same_verdict(self) -> bool:
        return self.measured.verdict == self.predicted.verdict

    @property
    def agrees(self) -> bool:
        """Whether both the rate and the growth at ``last_lag`` agree. A right prediction fails in 1 or 2 % of cases."""
        return self.rate_agrees and self.end_agrees

    def __str__(self) -> str:
        p, m = self.predicted, self.measured
        rows = [
            f"start {p.start}: {p.n} sequences predict, {m.n} others measured from start {m.start}",
            *self._decision(),
            f"  verdict   predicted {p.verdict}, measured {m.verdict} (lag {self.last_lag})",
            f"  dead      predicted {p.dead_fraction:.0%}, measured {m.dead_fraction:.0%} of the sequences",
        ]
        if not len(self.lags):
            return "\n".join([*rows, "  no lag to compare: nowhere do two sequences live on both sides"])
        rows.append(f"  {'lag':>6}{'predicted':>12}{'95 % interval':>24}{'measured':>12}  inside   (nats)")
        half = self.half_width()
        for i in np.unique(np.linspace(0, len(self.lags) - 1, _ROWS).round().astype(int)):
            k = self.lags[i]
            interval = f"[{p.mean[k] - half[k]:.3f}, {p.mean[k] + half[k]:.3f}]"
            inside = "yes" if self.inside[i] else "NO"
            rows.append(f"  {k:>6}{p.mean[k]:>12.3f}{interval:>24}{m.mean[k]:>12.3f}  {inside}")
        rows.append(
            f"  {self.fraction_inside:.0%} of {len(self.lags)} lags inside; they share their sequences: one "
            "observation counted many times, which decides nothing"
        )
        return "\n".join(rows)

    def _decision(self) -> list[str]:
        """Rate and growth at the last lag, which decide; the verdicts where too few sequences live for an interval."""
        p, m = self.predicted, self.measured
        low, high = self.rate_interval()
        if math.isnan(low):
            dead = not p.alive[-1] and not m.alive[-1]
            why = "every gradient is exactly zero" if dead else "fewer than two sequences live on one side"
            return [f"  rate      none at lag {self.last_lag}: {why}; the verdicts decide"]
        end, half = p.mean[-1], self.half_width()[-1]
        interval = interval_text(end - half, end + half, 3)
        return [
            f"  rate      predicted {p.rate:+.4f}, {interval_text(low, high, 4)}, measured {m.rate:+.4f} nats/step "
            f"-> {_agreement(self.rate_agrees)}",
            f"  growth    predicted {end:+.3f}, {interval}, measured {m.mean[-1]:+.3f} nats at lag {self.last_lag} "
            f"-> {_agreement(self.end_agrees)}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        half = self.half_width()[self.lags]
        predicted = self.predicted.mean[self.lags]
        return {
            "start": [self.predicted.start, self.measured.start],
            "lags": self.lags.tolist(),
            "predicted": predicted.tolist(),
            "low": (predicted - half).tolist(),
            "high": (predicted + half).tolist(),
            "measured": self.measured.mean[self.lags].tolist(),
            "inside": self.inside.tolist(),
            "fraction_inside": self.fraction_inside,
            "rate": {
                "predicted": self.predicted.rate,
                "interval": list(self.rate_interval()),
                "measured": self.measured.rate,
                "agrees": self.rate_agrees,
            },
            "verdict": {"predicted": self.predicted.verdict, "measured": self.measured.verdict},
            "dead_fraction": {"predicted": self.predicted.dead_fraction, "measured": self.measured.dead_fraction},
            "last_lag": self.last_lag,
            "agrees": self.agrees,
        }


@dataclass(frozen=True, eq=False)
class Verification(Drawn, picture="plot_verification"):
    """Prediction beside measurement.

    Attributes
    ----------
    random : Comparison
        Gradients from random unit vectors at the last state.
    loss : Comparison or None
        Gradients from the loss (or the readout, without labels) at the last step.
    n_steps : int
        Length ``T`` of the sequences.
    """

    random: Comparison
    loss: Comparison | None
    n_steps: int

    @property
    def agrees(self) -> bool:
        """Whether every comparison agrees at 99 %."""
        return self.random.agrees and (self.loss is None or self.loss.agrees)

    @property
    def verdict(self) -> str:
        """The measured verdict, from random unit vectors."""
        return self.random.measured.verdict

    def __repr__(self) -> str:
        return f"<Verification: {'agrees' if self.agrees else 'DISAGREES'}, measured {self.verdict}>"

    def __str__(self) -> str:
        verdict = "AGREES" if self.agrees else "DISAGREES"
        parts = [
            f"Verification: the measured gradient {verdict} with the prediction",
            "decided at 99 % by the rate and by the growth at the last lag; by the verdicts where there is no interval",
        ]
        for comparison in (self.random, self.loss):
            if comparison is not None:
                parts.append(str(comparison))
                if comparison.last_lag < self.n_steps:
                    parts.append(
                        f"  compared up to lag {comparison.last_lag} of {self.n_steps}: beyond it the gradient of "
                        "training may leave the range of its dtype"
                    )
        if not self.agrees:
            parts.append(
                "A gap means that these sequences differ from the predicted ones (distribution, position, initial "
                "state) or that the weights changed since; a right prediction fails in a few per cent of verifications."
            )
        return "\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        return {
            "agrees": self.agrees,
            "verdict": self.verdict,
            "n_steps": self.n_steps,
            "random": self.random.to_dict(),
            "loss": None if self.loss is None else self.loss.to_dict(),
        }


def _agreement(agrees: bool) -> str:
    """The outcome of one decision, in capitals where it disagrees."""
    return f"{'agrees' if agrees else 'DISAGREES'} at 99 %"


def measure(
    sequences: Sequences,
    random: GrowthCurve,
    loss: GrowthCurve | None,
    state_size: int,
    dtype: DTypeLike,
    lags: Sequence[int] | None,
    rng: np.random.Generator,
) -> Verification:
    """Measure gradients on sequences and compare them with predicted curves.

    Parameters
    ----------
    sequences : ModelSequences or GivenJacobians
        At least two, not those of the prediction.
    random, loss : GrowthCurve
        Predictions for random starts and for the start of the loss.
    state_size : int
        Size ``S`` of the start vectors.
    dtype : dtype
        Type in which training computes gradients.
    lags : sequence of int or None
        Lags to compare, ``1 .. T``; all by default.
    rng : numpy.random.Generator
        Source of the start vectors.

    Raises
    ------
    ArgumentError
        For lags outside ``1 .. T``.
    ShapeError
        If the sequences have another length than those of the prediction.
    NonFiniteError
        If a gradient within the range of the dtype is not finite.
    """
    T = random.n_steps
    chosen = np.arange(1, T + 1) if lags is None else np.unique(plain(lags, "lags"))
    if chosen.dtype.kind not in "iu" or chosen.size == 0 or chosen[0] < 1 or chosen[-1] > T:
        raise ArgumentError(f"lags must be whole numbers of steps from 1 to T = {T}, got {lags}")
    vectors = random.logs.shape[2]
    starts = unit_vectors(rng, sequences.n, vectors, state_size)
    pulled = np.stack([_measured(sequences, starts[:, j], T) for j in range(vectors)], axis=2)
    comparison = compare(random, pulled, random.start, dtype, chosen)
    given = sequences.loss_start(rng) if loss is not None else None
    if loss is None or given is None:
        return Verification(comparison, None, T)
    name, start = given
    return Verification(comparison, compare(loss, _measured(sequences, start, T)[..., None], name, dtype, chosen), T)


def _measured(sequences: Sequences, start: Array, T: int) -> Array:
    """Measured log norms (T + 1, n) relative to ``start`` (n, S)."""
    norm = safe_norm(start)[..., None]
    logs = sequences.measure(start / np.where(norm > 0, norm, 1.0))  # growth does not depend on the size of the start
    if logs.shape != (T + 1, sequences.n):
        raise ShapeError(
            f"the sequences to verify must have the length of the predicted ones, T = {T}: the rate depends on length "
            f"and position. The gradient measured has shape (T + 1, n) = {logs.shape}"
        )
    return logs


def compare(predicted: GrowthCurve, logs: Array, start: str, dtype: DTypeLike, lags: Array) -> Comparison:
    """Cut both curves to the range of the dtype and compare them at ``lags``."""
    last, grid = _last_in_range(predicted, dtype), predicted.grid
    if grid is not None:
        grid = grid[: max(2, int(np.searchsorted(grid, last, side="right")))]
        last, lags = int(grid[-1]), np.intersect1d(lags, grid)
    logs = logs[: last + 1]
    broken = np.isnan(logs) | (logs == np.inf)
    if broken.any():
        lag, sample = (int(i) for i in np.argwhere(broken)[0, :2])
        raise NonFiniteError(
            f"the measured gradient is not finite at lag {lag} (sequence {sample}) although the prediction lies within "
            "the range of its dtype; check the weights and inputs",
            what="gradient",
            sample=sample,
        )
    p, m = predicted.truncated(last), GrowthCurve(logs, start, predicted.threshold)
    if grid is not None:
        m = GrowthCurve.from_grid(grid, logs[grid], start, predicted.threshold)
    lags = lags[lags <= last]
    both = (p.alive[lags] > 1) & (m.alive[lags] > 1)
    return Comparison(p, m, lags[both], _ROUNDING * float(np.finfo(dtype).eps))


def _last_in_range(curve: GrowthCurve, dtype: DTypeLike) -> int:
    """Last lag up to which norms of single gradients, taken as roots of sums of squares, are exact in ``dtype``."""
    smallest, largest = math.log(smallest_exact(dtype)), 0.5 * math.log(float(np.finfo(dtype).max))
    low = np.where(np.isfinite(curve.single_low), curve.single_low, curve.mean)
    high = np.where(np.isfinite(curve.single_high), curve.single_high, curve.mean)
    outside = (np.isfinite(low) & (low < smallest)) | (high > largest)
    outside[:2] = False  # the single step of the shortest sequence is always compared
    return int(np.flatnonzero(outside)[0]) - 1 if outside.any() else curve.n_steps
