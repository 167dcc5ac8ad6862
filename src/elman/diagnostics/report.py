"""What a diagnosis says, and to whom: numbers with units, what each proves, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError
from ..linearization import Linearization
from .causes import Causes
from .curve import GrowthCurve, Horizon
from .intervals import interval_text
from .sequences import GivenJacobians, Sequences, as_sequences
from .verification import Verification, measure

_LARGEST_LOG = math.log(np.finfo(np.float64).max)
_MEANING = {
    "vanishing": "gradients VANISH: the last step hardly sees the first",
    "exploding": "gradients EXPLODE: clip them, or learning steps are thrown about",
    "stable": "gradients PASS: they neither vanish nor explode over the sequence",
    "undecided": "UNDECIDED: the interval reaches over the threshold",
}
_START = {
    "loss": "loss gradient at the last step",
    "readout": "readout start (W_out^T e, random e, no labels)",
    "given": "given start vectors",
}


@dataclass(frozen=True)
class Prescription:
    """A change of a parameter that moves the rate towards 0.

    Attributes
    ----------
    action : str
        What to do, such as ``"scale W_hh"``.
    factor : float
        By what: ``exp(-rate)``, exact if the network answered linearly.
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


def prescribe(curve: GrowthCurve, elementwise: bool) -> Prescription | None:
    """First step for a curve that vanishes or explodes; None for another verdict or if no scale can mend it.

    Parameters
    ----------
    curve : GrowthCurve
        The prediction.
    elementwise : bool
        Whether each Jacobian is ``diag(slopes) W_hh``, so that nothing is carried past ``W_hh``.

    Returns
    -------
    Prescription or None
        None also if most gradients are exactly zero, or if the rate has the other sign than the verdict.
    """
    towards = {"vanishing": -curve.rate, "exploding": curve.rate}.get(curve.verdict, 0.0)
    if not 0 < towards < _LARGEST_LOG or curve.dead_fraction > 0.5:
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
class Diagnosis:
    """Predicted growth of gradients over a sequence, with intervals, causes and what to do.

    Rates are in nats per step; growth is in nats, the log of the factor. ``str()`` gives the whole report.

    Attributes
    ----------
    curve : GrowthCurve
        Growth by lag from random unit vectors at the last state: the primary result. ``verdict``, ``rate``,
        ``rate_ci``, ``horizon``, ``dead_fraction`` and ``sequences_needed`` of the diagnosis are those of this curve.
    loss : GrowthCurve or None
        The same for the gradient of the last-step loss (``loss.start == "loss"``), of a random combination of outputs
        if there are no labels (``"readout"``), or for start vectors given with a linearization (``"given"``). In an
        LSTM it may differ much from ``curve``: a loss enters through ``h`` only, random vectors also fill ``c``.
    causes : Causes or None
        Gain, saturation, preference and alignment; for elementwise (Elman) cells with a living gradient.
    bound : float or None
        ``log(sigma_max(W_hh) max|phi'|)`` in nats per step, for elementwise cells. Below 0 it proves decay on any
        input.
    prescription : Prescription or None
        For a vanishing or exploding verdict.
    level : str
        ``"full"``: backward products along trajectories of the data.
    state_size : int
        Size ``S`` of the state that one step carries to the next.
    dtype : numpy.dtype
        Of the model's gradients.
    """

    curve: GrowthCurve
    loss: GrowthCurve | None
    causes: Causes | None
    bound: float | None
    prescription: Prescription | None
    level: str
    state_size: int
    dtype: np.dtype[Any]
    _predicted: Sequences = field(repr=False)
    _reserved: Sequences | None = field(repr=False)
    _seed: int = field(repr=False)

    @property
    def verdict(self) -> str:
        """``"vanishing"``, ``"stable"``, ``"exploding"`` or ``"undecided"``, at 99 %."""
        return self.curve.verdict

    @property
    def rate(self) -> float:
        """Least-squares growth rate in nats per step; ``exp(rate)`` is the factor per step."""
        return self.curve.rate

    @property
    def rate_ci(self) -> tuple[float, float]:
        """95 % t interval of the rate over sequences."""
        return self.curve.rate_ci

    @property
    def horizon(self) -> Horizon:
        """How many steps back the gradient falls to 1e-3."""
        return self.curve.horizon

    @property
    def dead_fraction(self) -> float:
        """Fraction of sequences whose gradient is exactly zero after ``T`` steps."""
        return self.curve.dead_fraction

    @property
    def sequences_needed(self) -> float | None:
        """Number of sequences that an undecided verdict would take; None if decided."""
        return self.curve.sequences_needed

    def verify(
        self,
        x: Any = None,
        y: ArrayLike | None = None,
        *,
        h0: Any = None,
        start: ArrayLike | None = None,
        lags: Sequence[int] | None = None,
    ) -> Verification:
        """Measure the real gradient on other sequences and put it beside the prediction.

        Without ``x``, the sequences that :func:`diagnose` set aside are used. The model is used as it is now: train it
        in between, and the gap shows what training changed.

        Parameters
        ----------
        x : array_like or Linearization, optional
            Other sequences, of the length, distribution, position and initial state of the predicted ones; a
            Linearization if the diagnosis was made from one.
        y, h0, start : optional
            As for :func:`diagnose`, and needed if they were given there.
        lags : sequence of int, optional
            Lags to compare, from 1 to T; all by default.

        Returns
        -------
        Verification

        Raises
        ------
        ArgumentError
            If there are no other sequences to measure, or ``y``, ``h0`` or ``start`` is missing.
        ShapeError
            If the sequences have another length.
        NonFiniteError
            If a measured gradient is not finite.
        """
        sequences = self._others(x, y, h0, start)
        return measure(
            sequences, self.curve, self.loss, self.state_size, self.dtype, lags, np.random.default_rng(self._seed)
        )

    def _others(self, x: Any, y: ArrayLike | None, h0: Any, start: ArrayLike | None) -> Sequences:
        """The reserved sequences, or the given ones after a check that they come with what the prediction had."""
        before = self._predicted
        if x is None:
            if any(value is not None for value in (y, h0, start)):
                raise ArgumentError("y, h0 and start go with x; give x, or nothing to use the sequences set aside")
            if self._reserved is None:
                what = "another Linearization" if isinstance(before, GivenJacobians) else "x"
                raise ArgumentError(
                    f"no sequences were set aside for verification, which takes at least 4 in diagnose; give {what} "
                    "with sequences that the prediction has not seen"
                )
            return self._reserved
        if isinstance(before, GivenJacobians):
            if not isinstance(x, Linearization):
                raise ArgumentError(
                    f"the prediction came from a Linearization; give another one, got {type(x).__name__}"
                )
            _require_same({"start": (before.start, start)})
            return as_sequences(x, None, y, h0, None, start)
        _require_same({"y": (before.y, y), "h0": (before.h0, h0)})
        return as_sequences(before.model, x, y, h0, before.loss, start)

    def __repr__(self) -> str:
        return (
            f"<Diagnosis: {self.verdict}, rate {self.rate:.4g} nats/step, T = {self.curve.n_steps}, n = {self.curve.n}>"
        )

    def __str__(self) -> str:
        lines = [f"Diagnosis: {_MEANING[self.verdict]}", *_describe(self.curve), *self._local()]
        if self.loss is not None:
            lines += [f"{_START[self.loss.start]}: {self.loss.verdict}", *_describe(self.loss)]
        if self.causes is not None:
            lines.append(str(self.causes))
        if self.bound is not None:
            proof = "proves decay on any input" if self.bound < 0 else "not below 0, so proves nothing"
            lines.append(f"bound     log(sigma_max(W_hh) max|phi'|) = {self.bound:+.4f} nats/step: {proof}")
        lines.append(f"next      {self._next()}")
        return "\n".join(lines)

    def _local(self) -> list[str]:
        """Rates by stretch of lag, if there is a living sequence."""
        edges, rates = self.curve.local_rates()
        if np.isnan(rates).any():
            return []
        parts = (f"{a}..{b} {r:+.4f}" for a, b, r in zip(edges[:-1], edges[1:], rates, strict=True))
        return [f"  by lag    {', '.join(parts)} nats/step"]

    def _why_undecided(self) -> str:
        """What the verdict lacks: living sequences, or a mean farther from the threshold than the spread allows."""
        if self.curve.alive[-1] < 2:
            return "fewer than two of them have a gradient, so there is no interval"
        distance = abs(abs(self.curve.mean[-1]) - self.curve.threshold)
        return (
            f"the sequences differ too much to decide (standard deviation {self.curve.sd[-1]:.3g} nats, mean "
            f"{distance:.3g} nats from the threshold)"
        )

    def _next(self) -> str:
        """What to do, in a sentence or two."""
        if self.prescription is not None:
            return str(self.prescription)
        if self.verdict == "undecided":
            needed = self.sequences_needed
            count = "more" if needed is None else "no number of" if math.isinf(needed) else f"about {needed:.0f}"
            return f"{count} sequences would decide at 99 % (used: {self.curve.n}); {self._why_undecided()}."
        if self.verdict == "stable":
            return "nothing to change; .verify() puts the measured gradient beside this prediction."
        if self.dead_fraction > 0.5:
            return (
                "most gradients are exactly zero, which no scale of W_hh can mend: look for dead units (all slopes 0), "
                "raise their bias or lower the learning rate."
            )
        return (
            "growth over the sequence and its rate have different signs: read the rates by lag before changing weights."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name, ready for ``json.dumps``."""
        return {
            "verdict": self.verdict,
            "rate": self.rate,
            "rate_ci": list(self.rate_ci),
            "horizon": self.horizon.to_dict(),
            "dead_fraction": self.dead_fraction,
            "sequences_needed": self.sequences_needed,
            "curve": self.curve.to_dict(),
            "loss": None if self.loss is None else self.loss.to_dict(),
            "causes": None if self.causes is None else self.causes.to_dict(),
            "bound": self.bound,
            "prescription": None if self.prescription is None else self.prescription.to_dict(),
            "level": self.level,
            "state_size": self.state_size,
            "dtype": str(self.dtype),
        }

    def plot(self, ax: Any = None) -> Any:
        """Draw the growth curve with its intervals; see :func:`elman.plotting.plot_diagnosis`."""
        from ..plotting import plot_diagnosis

        return plot_diagnosis(self, ax=ax)


def _require_same(pairs: dict[str, tuple[Any, Any]]) -> None:
    """Refuse sequences to verify that lack what the predicted ones came with."""
    for name, (before, now) in pairs.items():
        if before is not None and now is None:
            raise ArgumentError(f"the prediction was made with {name}; give {name} for these sequences too")


def _describe(curve: GrowthCurve) -> list[str]:
    """The numbers of one curve, a line each."""
    T, end = curve.n_steps, curve.mean[-1]
    if curve.alive[-1] > 0:
        one_more = "no interval (fewer than two sequences live)"
        if curve.alive[-1] > 1:
            one_more = f"[{curve.single_low[-1]:+.3f}, {curve.single_high[-1]:+.3f}] nats for a single sequence, 95 %"
        lines = [
            f"  growth    {end:+.3f} nats over T = {T} steps (a factor {_factor(end)}), "
            f"{interval_text(curve.low[-1], curve.high[-1], 3, 'of the mean ')}, n = {curve.n} sequences",
            f"  one more  {one_more}; clipping and batch norms see the upper end",
            f"  rate      {curve.rate:+.4f} nats/step (a factor {_factor(curve.rate)} a step), "
            f"{interval_text(*curve.rate_ci, 4)}, lags {curve.first_lag}..{T}",
        ]
    else:
        lines = [f"  growth    none: every gradient is exactly zero after T = {T} steps, n = {curve.n} sequences"]
    lines.append(f"  horizon   {curve.horizon}")
    if curve.alive[-1] < curve.n:
        rest = "; the numbers above hold for the others" if curve.alive[-1] else ""
        lines.append(
            f"  dead      {curve.dead_fraction:.0%} of {curve.n} sequences have a gradient of exactly zero{rest}"
        )
    lines.append(
        f"  verdict   {curve.verdict} at 99 %, threshold {curve.threshold:.3g} nats either way "
        f"(a factor {_factor(curve.threshold)})"
    )
    return lines


def _factor(nats: float) -> str:
    """``exp(nats)`` to read, also where it would leave the range of float64."""
    if abs(nats) < _LARGEST_LOG:
        return f"{math.exp(nats):.4g}"
    exponent, rest = divmod(nats / math.log(10), 1)
    return f"{10**rest:.3f}e{int(exponent):+d}"
