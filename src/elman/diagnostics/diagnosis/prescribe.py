"""What to change to move the rate: a first step by rule, and a search that measures its effect."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...results import Drawn, Result
from ..gradient.curve import GrowthCurve
from ..gradient.intervals import interval_text

LARGEST_LOG = math.log(np.finfo(np.float64).max)
_WORDS = {"recurrent": "scale W_hh by", "bias": "add to every bias"}


@dataclass(frozen=True)
class Prescription(Result):
    """A change of a parameter that moves the rate towards 0.

    Attributes
    ----------
    action : str
        What to do, such as ``"scale W_hh"``.
    factor : float
        By which factor: ``exp(-rate)``, which would be exact if the network responded linearly.
    expect : str
        What one such step was found to do, and what it does not promise.
    """

    action: str
    factor: float
    expect: str

    def __str__(self) -> str:
        return f"{self.action} by {self.factor:.4g} (= exp(-rate)), then diagnose again. {self.expect}"

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        return {"action": self.action, "factor": self.factor, "expect": self.expect}


def first_step(curve: GrowthCurve, elementwise: bool) -> Prescription | None:
    """First step for a curve that vanishes or explodes; None for another verdict, or if scaling cannot help.

    Parameters
    ----------
    curve : GrowthCurve
        The prediction.
    elementwise : bool
        Whether each Jacobian is ``diag(slopes) W_hh``, so that nothing is carried past ``W_hh``.

    Returns
    -------
    Prescription or None
        None also if most gradients are exactly zero, or if the sign of the rate contradicts the verdict.
    """
    towards = {"vanishing": -curve.rate, "exploding": curve.rate}.get(curve.verdict, 0.0)
    if not 0 < towards < LARGEST_LOG or curve.dead_fraction > 0.5:
        return None
    if elementwise:
        answer = (
            "One step brings ReLU networks near zero; tanh networks recover only about half of it, because saturation "
            "answers back, so repeat"
        )
    else:
        answer = "Where states are carried past W_hh (LSTM, GRU) one step moves only 10-20 % of the way, so repeat"
    expect = f"{answer}. This moves the rate; it does not promise better training."
    return Prescription("scale W_hh", math.exp(-curve.rate), expect)


@dataclass(frozen=True, eq=False)
class TunedPrescription(Drawn, picture="plot_prescription"):
    """A change that was searched for and measured; made by :meth:`elman.Diagnosis.prescribe`.

    Attributes
    ----------
    lever : str
        ``"recurrent"``, ``"bias"``, or the bias of a gate, such as ``"forget_bias"``.
    amount : float
        Factor of every W_hh, or the number added to every such bias.
    target, tolerance : float
        Target rate, and how near counts as reached; nats per step.
    runs : tuple of (float, float)
        Every amount that was tried, with the rate it gave on the sequences of the prediction; the first is no change.
        Infinite where the states themselves stopped being finite, or every gradient was exactly zero.
    before, after : GrowthCurve
        Growth on the sequences of the prediction, without the change and with it.
    measured_before, measured : GrowthCurve or None
        The gradient of training on the held-out sequences, likewise; None if there are none.
    clip_factor : float or None
        Upper 95 % limit, over all lags, of the gradient of one more sequence after the change, relative to lag 0: what
        exceeds it is an outlier. None where there is no interval, or the limit is beyond float64.
    clip_norm : float or None
        The same times the root mean square of ``|dL/ds_T|``; with labels only.
    truncation : int or None
        Steps after which the upper end of the mean has fallen to 1e-3, if that is within the sequence: a longer window
        of backpropagation adds next to nothing. None: do not truncate below the length of the sequence.
    model : object
        A copy of the model with the change made.
    """

    lever: str
    amount: float
    target: float
    tolerance: float
    runs: tuple[tuple[float, float], ...]
    before: GrowthCurve
    after: GrowthCurve
    measured_before: GrowthCurve | None
    measured: GrowthCurve | None
    clip_factor: float | None
    clip_norm: float | None
    truncation: int | None
    model: Any = field(repr=False)

    @property
    def _action(self) -> str:
        """What is done, in words to be followed by the amount."""
        return _WORDS.get(self.lever, f"add to the {self.lever.replace('_', ' ')}")

    @property
    def reached(self) -> bool:
        """Whether the rate is within the tolerance: as measured, or as found by the runs if nothing was held out."""
        judged = self.after if self.measured is None else self.measured
        return abs(judged.rate - self.target) <= self.tolerance

    def __repr__(self) -> str:
        return f"<TunedPrescription: {self._action} {self.amount:.4g}, rate {self.after.rate:+.4f} nats/step>"

    def __str__(self) -> str:
        lines = [
            f"{self._action} {self.amount:.4g}: moves the rate from {_rate(self.before)} to "
            f"{_rate(self.after)} (wished {self.target:+.4f}; {len(self.runs)} runs, n = {self.after.n})",
        ]
        if self.measured is not None and self.measured_before is not None:
            lines.append(
                f"  measured  {_rate(self.measured_before)} -> {_rate(self.measured)}, "
                f"{interval_text(*self.measured.rate_ci, 4)}, on {self.measured.n} held-out sequences"
            )
        else:
            lines.append("  measured  not: no sequences were held out")
        lines.append(f"  reached   {self._outcome()}")
        lines += self._limits()
        lines.append("  This moves the rate; it does not promise better training. The changed copy is .model")
        return "\n".join(lines)

    def _outcome(self) -> str:
        """Whether the rate is within the tolerance, and if not, whether sampling, held-out data or the lever missed."""
        within = f"within {self.tolerance:g} of the target"
        if self.reached:
            return within
        if self.measured is not None:
            low, high = self.measured.rate_ci
            apart = low > self.target + self.tolerance or high < self.target - self.tolerance
            if self.measured.alive[-1] and not apart:
                return f"not decided by {self.measured.n} held-out sequences whether {within}: take more"
            if abs(self.after.rate - self.target) <= self.tolerance:
                return f"NOT {within}: what was found did not carry over to held-out sequences"
        return (
            f"NOT {within}: this lever alone does not get there in {len(self.runs)} runs; try another, more runs, or "
            "weaker inputs"
        )

    def _limits(self) -> list[str]:
        """Clipping and truncation, each on a line."""
        clip = "  clipping  no limit: too few living sequences for an interval, or no number that large"
        if self.clip_factor is not None:
            absolute = "" if self.clip_norm is None else f", here {self.clip_norm:.4g}"
            clip = (
                f"  clipping  gradients of a state above {self.clip_factor:.4g} times that at the last step{absolute}, "
                "are outliers (upper 95 % limit of one sequence)"
            )
        T = self.after.n_steps
        truncation = f"  truncate  not below the length of the sequence, T = {T}"
        if self.truncation is not None:
            truncation = (
                f"  truncate  to {self.truncation} of {T} steps: less than 1e-3 of the gradient comes from farther"
            )
        return [clip, truncation]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name; without the model."""
        names = ("lever", "amount", "target", "tolerance", "reached", "clip_factor", "clip_norm", "truncation")
        curves = {name: getattr(self, name) for name in ("before", "after", "measured_before", "measured")}
        return {
            **{name: getattr(self, name) for name in names},
            "runs": [list(run) for run in self.runs],
            **{name: None if curve is None else curve.to_dict() for name, curve in curves.items()},
        }


def _rate(curve: GrowthCurve) -> str:
    """A rate with its unit, or in words where nothing lives."""
    return f"{curve.rate:+.4f} nats/step" if curve.alive[-1] else "none (gradients exactly zero)"
