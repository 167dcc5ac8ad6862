"""The result of a diagnosis: numbers with units, what each proves, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError
from ...linearization import Array, ElementwiseFactors, Linearization
from ...results import Drawn
from ...validation.scalars import number, positive, size
from ..gradient.bounds import norm_bound
from ..gradient.curve import GrowthCurve
from ..gradient.horizon import Horizon
from .causes import Causes
from .explain import Explanation, explain
from .levels import LEVELS, WeightFacts
from .prescribe import Prescription, TunedPrescription, first_step
from .rerun import Rerun
from .sequences import GivenJacobians, ModelSequences, Sequences, as_sequences, refuse_unused, require_same
from .text import describe, local_rates, why_undecided
from .tune import tune
from .verification import Verification, measure

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


@dataclass(frozen=True, eq=False)
class Diagnosis(Drawn, picture="plot_diagnosis"):
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
        LSTM it may differ greatly from ``curve``: a loss enters only through ``h``, but random vectors also fill ``c``.
    level : str
        ``"full"``: vectors pulled back along trajectories of the data. ``"forward"``: tangents pushed forward along
        them. ``"weights"``: the same along simulated inputs.
    facts : WeightFacts or None
        Spectral radius and norm of the weights, and what they prove; at ``level="weights"``.
    state_size : int
        Size ``S`` of the state that one step carries to the next.
    dtype : numpy.dtype
        Of the model's gradients.
    """

    curve: GrowthCurve
    loss: GrowthCurve | None
    level: str
    facts: WeightFacts | None
    state_size: int
    dtype: np.dtype[Any]
    _form: ElementwiseFactors | None = field(repr=False)
    _factors: tuple[tuple[ElementwiseFactors, Array], ...] = field(repr=False)
    _predicted: tuple[Sequences, ...] = field(repr=False)
    _reserved: Sequences | None = field(repr=False)
    _seed: int = field(repr=False)

    @cached_property
    def causes(self) -> Causes | None:
        """Gain, saturation, preference and alignment; for elementwise (Elman) cells with a living gradient.

        Computed at first use, from slopes and weights as they were at the diagnosis, at ``level="full"``; the other
        levels pull no gradients back: see :meth:`explain`.
        """
        return Causes.from_factors(self._factors, self.curve.first_lag)

    @cached_property
    def bound(self) -> float | None:
        """``log(sigma_max(W_hh) max|phi'|)``, nats per step, for elementwise cells: below 0 it proves decay."""
        return None if self._form is None else norm_bound(self._form)

    @cached_property
    def prescription(self) -> Prescription | None:
        """First step for a vanishing or exploding verdict, by rule; :meth:`prescribe` searches and measures."""
        return first_step(self.curve, self._form is not None)

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
        """Number of sequences that an undecided verdict would need; None if decided."""
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
        """Measure the real gradient on other sequences and compare it with the prediction.

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

    def explain(self) -> Explanation:
        """Find the causes of the rate, and try each on the same sequences.

        For elementwise (Elman) cells, these are the four causes that add up to the rate; for others, the shares of the
        gradient's paths, which add up to 1. Then W_hh is multiplied by 1.15, the bias of the gate that keeps the state
        is shifted by 1 (all biases of an Elman cell by 0.5), and inputs are doubled and halved: the effect of each on
        the rate is predicted by running again, on at most 16 or so sequences of the prediction, and measured on those
        set aside.

        Returns
        -------
        Explanation

        Raises
        ------
        ArgumentError
            If the diagnosis was made from a Linearization, which cannot be run again, or from a model without paths.
        NonFiniteError
            If a changed network's states are not finite.

        Notes
        -----
        The model is used as it is now. The cost is about 12 forward and backward runs of the sequences, and as many of
        those set aside.
        """
        return explain(self._rerun("explain"))

    def prescribe(
        self, target: float = 0.0, lever: str = "recurrent", *, tolerance: float = 0.03, max_runs: int = 8
    ) -> TunedPrescription:
        """Search for the change that moves the rate to a target value, and measure it on held-out sequences.

        Parameters
        ----------
        target : float, default 0
            Target rate, nats per step.
        lever : str, default "recurrent"
            What to change, one of the layer's ``levers``: the scale of every W_hh; ``"forget_bias"`` of an LSTM or MGU,
            ``"update_bias"`` of a GRU; ``"bias"``, all biases of an Elman cell.
        tolerance : float, default 0.03
            How near the measured rate must come, nats per step.
        max_runs : int, default 8
            Largest number of runs of the search; three to five are usual.

        Returns
        -------
        TunedPrescription
            With a changed copy of the model; the model itself stays as it is. It moves the rate, and says nothing about
            how well the network then learns.

        Raises
        ------
        ArgumentError
            If the diagnosis was made from a Linearization, the model has no such lever, or a number is out of range.

        Notes
        -----
        Secant steps on the log scale (or on the bias), kept inside a bracket once there is one.
        """
        target = number(target, "target (a rate in nats per step)")
        tolerance = positive(tolerance, "tolerance", "nats per step")
        max_runs = size(max_runs, "max_runs", 2)
        return tune(self._rerun("prescribe"), lever, target, tolerance, max_runs)

    def _rerun(self, caller: str) -> Rerun:
        """The sequences and settings on which a change is tried."""
        batches = tuple(batch for batch in self._predicted if isinstance(batch, ModelSequences))
        if not batches:
            raise ArgumentError(
                f"{caller} runs the model again with something changed, but this diagnosis was made from a "
                "Linearization; give diagnose a layer or network"
            )
        held_out = self._reserved if isinstance(self._reserved, ModelSequences) else None
        return Rerun.of(batches, held_out, self.curve.threshold, self.state_size, self.dtype, self._seed)

    def _others(self, x: Any, y: ArrayLike | None, h0: Any, start: ArrayLike | None) -> Sequences:
        """The reserved sequences, or the given ones after a check that they have the arguments of the prediction."""
        before = self._predicted[0]
        if x is None:
            if any(value is not None for value in (y, h0, start)):
                raise ArgumentError("y, h0 and start go with x; give x, or nothing to use the sequences set aside")
            if self._reserved is None:
                what = "another Linearization" if isinstance(before, GivenJacobians) else "x"
                raise ArgumentError(
                    f"no sequences were set aside for verification, which needs at least 4 in diagnose; give {what} "
                    "with sequences that the prediction has not seen"
                )
            return self._reserved
        if isinstance(before, GivenJacobians):
            if not isinstance(x, Linearization):
                raise ArgumentError(
                    f"the prediction came from a Linearization; give another one, got {type(x).__name__}"
                )
            require_same({"start": (before.start, start)})
            refuse_unused("start", start, self.loss)
            return as_sequences(x, None, y, h0, None, start)
        require_same({"y": (before.y, y), "h0": (before.h0, h0)})
        refuse_unused("y", y, self.loss)
        return as_sequences(before.model, x, y, h0, before.loss, start)

    def __repr__(self) -> str:
        return (
            f"<Diagnosis: {self.verdict}, rate {self.rate:.4g} nats/step, T = {self.curve.n_steps}, n = {self.curve.n}>"
        )

    def __str__(self) -> str:
        lines = [f"Diagnosis: {_MEANING[self.verdict]}", *self._how(), *describe(self.curve), *local_rates(self.curve)]
        if self.loss is not None:
            lines += [f"{_START[self.loss.start]}: {self.loss.verdict}", *describe(self.loss)]
        if self.causes is not None:
            lines.append(str(self.causes))
        if self.bound is not None:
            proof = "proves decay on any input" if self.bound < 0 else "not below 0, so proves nothing"
            lines.append(f"bound     log(sigma_max(W_hh) max|phi'|) = {self.bound:+.4f} nats/step: {proof}")
        if self.facts is not None:
            lines.append(str(self.facts))
        lines.append(f"next      {self._next()}")
        return "\n".join(lines)

    def _how(self) -> list[str]:
        """Level and grid of a prediction that was not made by pulling gradients back."""
        if self.curve.grid is None:
            return []
        lags = ", ".join(map(str, self.curve.grid))
        return [f"  level     {self.level}: {LEVELS[self.level].words}", f"  grid      lags {lags}; lines between"]

    def _next(self) -> str:
        """What to do, in a sentence or two."""
        if self.prescription is not None:
            return str(self.prescription)
        if self.verdict == "undecided":
            needed = self.sequences_needed
            count = "more" if needed is None else "no number of" if math.isinf(needed) else f"about {needed:.0f}"
            return f"{count} sequences would decide at 99 % (used: {self.curve.n}); {why_undecided(self.curve)}."
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
            "facts": None if self.facts is None else self.facts.to_dict(),
            "state_size": self.state_size,
            "dtype": str(self.dtype),
        }
