"""How far back a gradient reaches before it is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...linearization import Array
from ...results import Result
from .intervals import interval_text

HORIZON = 1e-3  # the fraction of its size at which a gradient counts as lost


@dataclass(frozen=True)
class Horizon(Result):
    """How many steps a gradient reaches back before it has fallen to a thousandth.

    Attributes
    ----------
    steps : float
        Lag in steps, linear between lags, at which the mean curve falls below log(1e-3); infinite if the curve
        does not get there within the sequence and its rate is not negative.
    low, high : float
        The same for the two ends of the 95 % interval of the mean; NaN with fewer than two sequences.
    measured : int
        Length ``T`` of the sequences. Beyond it, the curve is continued at its rate.
    """

    steps: float
    low: float
    high: float
    measured: int

    @property
    def extrapolated(self) -> bool:
        """Whether ``steps`` lies beyond the sequences: a guess, for which no coverage is claimed."""
        return self.steps > self.measured

    def __str__(self) -> str:
        if self.steps == np.inf:
            return "none: within the sequence the mean does not fall to 1e-3, and its rate is not negative"
        steps, low, high = (f"{x:.4g}" + ("*" if x > self.measured else "") for x in (self.steps, self.low, self.high))
        note = f"   * EXTRAPOLATED beyond T = {self.measured}" if "*" in steps + low + high else ""
        unknown = math.isnan(self.low) or math.isnan(self.high)
        interval = interval_text(self.low, self.high, 1) if unknown else f"95 % [{low}, {high}]"
        return f"{steps} steps until 1e-3 is left, {interval}{note}"

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        names = ("steps", "low", "high", "measured", "extrapolated")
        return {name: getattr(self, name) for name in names}


def crossing(curve: Array, rate: float) -> float:
    """Lag where a curve (T + 1,) falls below log(1e-3), linear between lags, then along ``rate``; NaN stays NaN."""
    target = math.log(HORIZON)
    below = np.flatnonzero(curve < target)
    if below.size:
        k = int(below[0])
        if k == 0 or not np.isfinite(curve[k]):  # exactly zero from this lag on: there is nothing to interpolate
            return float(k)
        return float(k - 1 + (curve[k - 1] - target) / (curve[k - 1] - curve[k]))
    if math.isnan(curve[-1]):
        return math.nan
    return float(curve.shape[0] - 1 + (target - curve[-1]) / rate) if rate < 0 else math.inf
