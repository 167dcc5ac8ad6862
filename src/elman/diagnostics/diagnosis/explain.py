"""Why gradients grow or decay: the causes, each of them tested by changing it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...linearization import Array
from ...results import Drawn, Result
from ..gradient.intervals import DECISION_LEVEL, interval_text, mean_interval, welch_half_width
from .causes import TERMS, Causes
from .paths import PathShares
from .rerun import Change, Rerun, driven, sequence_rates, turned
from .sequences import ModelSequences, recurrent_part

RECURRENT_SCALE, INPUT_SCALES = 1.15, (2.0, 0.5)
_SHIFTS = {"keep": 1.0, "renew": -1.0, None: 0.5}  # of a bias, by role of its gate: towards more of the old state


@dataclass(frozen=True, eq=False)
class Trial(Result):
    """One change, and its effect on the rate; all rates in nats per step.

    Attributes
    ----------
    name : str
        What was changed, such as ``"W_hh x 1.15"``.
    frozen : float or None
        The effect that the causes give for a small change of W_hh along the same trajectory: ``log(1.15)`` times the
        share of the gradient that goes through W_hh. None for changes of the input and of biases, which act only
        through the trajectory. A path through two products (the reset gate of a GRU that resets before the product)
        responds twice but is counted once.
    rerun : ndarray, shape (n,)
        Change of the rate of each sequence of the prediction, run again with the same start vectors; NaN where a
        gradient is exactly zero.
    measured : ndarray, shape (b,), or None
        The same for the gradient of training on the held-out sequences.
    answers : dict of str to float or None
        Change of each of the four causes, for elementwise cells.
    """

    name: str
    frozen: float | None
    rerun: Array
    measured: Array | None
    answers: dict[str, float] | None

    @property
    def predicted(self) -> tuple[float, float, float]:
        """Mean and 95 % t interval of :attr:`rerun` over living sequences."""
        return mean_interval(self.rerun[np.isfinite(self.rerun)])

    @property
    def found(self) -> tuple[float, float, float] | None:
        """Mean and 95 % t interval of :attr:`measured`."""
        return None if self.measured is None else mean_interval(self.measured[np.isfinite(self.measured)])

    @property
    def agrees(self) -> bool | None:
        """Whether the two means agree at 99 % (Welch); None without a measurement or with too few living sequences."""
        if self.measured is None:
            return None
        a, b = (values[np.isfinite(values)] for values in (self.rerun, self.measured))
        if min(len(a), len(b)) < 2:
            return None
        sds = float(a.std(ddof=1)), float(b.std(ddof=1))
        half = welch_half_width(sds, (len(a), len(b)), DECISION_LEVEL)
        return bool(abs(a.mean() - b.mean()) <= half + 1e-12)

    def __str__(self) -> str:
        mean, low, high = self.predicted
        if math.isnan(mean):
            return f"  {self.name:<18}no rate: gradients are exactly zero before the change or after it"
        parts = [f"  {self.name:<18}predicted {mean:+.4f}, {interval_text(low, high, 4)}"]
        if self.found is not None and not math.isnan(self.found[0]):
            parts.append(f"measured {self.found[0]:+.4f}" + ("" if self.agrees is not False else " DISAGREES"))
        if self.frozen is not None:
            parts.append(f"frozen trajectory {self.frozen:+.4f}")
        if self.answers is not None:
            moved = sorted(self.answers.items(), key=lambda item: -abs(item[1]))[:2]
            parts.append("through " + ", ".join(f"{name} {value:+.4f}" for name, value in moved))
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        return {
            "name": self.name,
            "frozen": self.frozen,
            "predicted": list(self.predicted),
            "measured": None if self.found is None else list(self.found),
            "agrees": self.agrees,
            "answers": self.answers,
        }


@dataclass(frozen=True, eq=False)
class Explanation(Drawn, picture="plot_explanation"):
    """The causes of a rate, and trials of them; made by :meth:`elman.Diagnosis.explain`.

    Attributes
    ----------
    causes : Causes or None
        Gain, saturation, preference and alignment, which add up to the rate; for elementwise (Elman) cells.
    paths : PathShares or None
        Shares of the gradient's paths, which add up to 1; for other cells and for stacks.
    trials : tuple of Trial
        W_hh times 1.15, the bias of each gate that keeps or renews the state shifted so that more is kept (or all
        biases shifted), inputs times 2 and 0.5.
    n, n_held_out : int
        Number of sequences that were run again, and of those that were measured.
    """

    causes: Causes | None
    paths: PathShares | None
    trials: tuple[Trial, ...]
    n: int
    n_held_out: int

    @cached_property
    def strongest(self) -> str | None:
        """Name of the trial that moved the rate most, as predicted; None without a trial that has a rate."""
        sizes = {trial.name: abs(trial.predicted[0]) for trial in self.trials}
        sizes = {name: size for name, size in sizes.items() if math.isfinite(size)}
        return max(sizes, key=sizes.__getitem__) if sizes else None

    def __repr__(self) -> str:
        what = self.causes.largest if self.causes is not None else "paths"
        return f"<Explanation: {what}, {len(self.trials)} trials, strongest {self.strongest}>"

    def __str__(self) -> str:
        lines = [str(part) for part in (self.causes, self.paths) if part is not None]
        if self.trials:
            beside = f", measured on {self.n_held_out} others" if self.n_held_out else ", no others to measure on"
            lines.append(f"trials: change of the rate, nats/step, on {self.n} sequences run again{beside}:")
            lines += [str(trial) + ("  <- strongest" if trial.name == self.strongest else "") for trial in self.trials]
            lines.append("  A trial moves the rate of the network as it is now; training may answer differently.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        return {
            "causes": None if self.causes is None else self.causes.to_dict(),
            "paths": None if self.paths is None else self.paths.to_dict(),
            "trials": [trial.to_dict() for trial in self.trials],
            "strongest": self.strongest,
            "n": self.n,
            "n_held_out": self.n_held_out,
        }


def explain(run: Rerun) -> Explanation:
    """Find the causes on the sequences of a prediction, and test each.

    Raises
    ------
    ArgumentError
        If the model cannot be analysed: it has neither factors nor paths.
    """
    base, parts = run.curve()
    causes = Causes.from_factors(parts, base.first_lag)
    part = recurrent_part(run.batches[0].model)
    paths = None
    if not parts:
        if part is None:
            raise ArgumentError(
                f"{type(run.batches[0].model).__name__} has Jacobians without factors and no method paths "
                "(elman.diagnostics.Adjustable): there are no causes to find"
            )
        opened = (_paths(batch) for batch in run.batches)
        paths = PathShares.measured(list(zip(opened, run.starts(), strict=True)))
    through = 1.0 if paths is None else paths.recurrent
    measured = run.measured(base)
    trials = []
    for name, change, frozen in _changes(part, through):
        after, after_parts = run.curve(change)
        changed = Causes.from_factors(after_parts, after.first_lag)
        answers = None
        if causes is not None and changed is not None:
            answers = {term: changed.terms[term] - causes.terms[term] for term in TERMS}
        now = None if measured is None else run.measured(after, change)
        last = min([base.n_steps, *(curve.n_steps for curve in (measured, now) if curve is not None)])
        found = None
        if measured is not None and now is not None:
            found = sequence_rates(now, last) - sequence_rates(measured, last)
        rerun = sequence_rates(after, last) - sequence_rates(base, last)
        trials.append(Trial(name, frozen, rerun, found, answers))
    held_out = 0 if measured is None else measured.n
    return Explanation(causes, paths, tuple(trials), run.n, held_out)


def _paths(batch: ModelSequences) -> Any:
    """The linearizations of one batch, path by path."""
    part = recurrent_part(batch.model)
    assert part is not None
    return part.paths(batch.x, batch.h0)


def _changes(part: Any, through: float) -> list[tuple[str, Change, float | None]]:
    """Names of the changes, the changes, and their effects along a frozen trajectory."""
    out: list[tuple[str, Change, float | None]] = []
    for lever, role in () if part is None else part.levers.items():
        if lever == "recurrent":
            frozen = math.log(RECURRENT_SCALE) * through
            out.append((f"W_hh x {RECURRENT_SCALE:g}", turned(lever, RECURRENT_SCALE), frozen))
        else:
            shift = _SHIFTS[role]
            out.append((f"{lever} {'-' if shift < 0 else '+'} {abs(shift):g}", turned(lever, shift), None))
    for factor in INPUT_SCALES:
        out.append((f"input x {factor:g}", driven(factor), None))
    return out
