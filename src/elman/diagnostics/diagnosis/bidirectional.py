"""A bidirectional layer or network: each direction as a chain of its own, and the whole as training sees it.

The two directions of a layer run in opposite order and share no state, so there is no product of Jacobians of both.
Each is diagnosed in the order in which it reads, given its inputs. What training sees of the whole, the gradient of the
loss with respect to the states of all directions, is measured on the same sequences by the backward pass, with the same
kind of intervals for other sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError, NonFiniteError
from ...linearization import Array
from ...targets import target_axes
from ...validation.arrays import plain
from ...validation.rng import generator
from ...validation.sequences import side_by_side
from ..gradient.curve import GrowthCurve
from .explain import Explanation
from .result import Diagnosis
from .sequences import Diagnosable, ModelSequences, as_sequences
from .text import describe
from .verification import Comparison, Verification, compare


@runtime_checkable
class Bidirectional(Protocol):
    """A model that reads its input in both directions.

    A network also has ``measure_loss_gradient(x, y, *, loss, h0, rng)``, log norms (T + 1, n) of the gradient of the
    loss with respect to the states of all directions; see :meth:`elman.Network.measure_loss_gradient`.
    """

    @property
    def bidirectional(self) -> bool:
        """Whether the model reads in both directions."""

    def one_way(self) -> Mapping[str, Direction]:
        """Every direction of every layer by name, from the first layer up, forwards before backwards."""


class Direction(Diagnosable, Protocol):
    """One direction of one layer, diagnosable along sequences in the order in which it reads."""

    model: Any
    reverse: bool
    top: bool
    at: str | None

    def in_order(self, x: Any) -> Any:
        """Convert sequences from the order of time to that of reading, or back."""


def is_bidirectional(model: Any) -> bool:
    """Whether a model is to be diagnosed direction by direction."""
    return isinstance(model, Bidirectional) and bool(model.bidirectional)


def diagnose_directions(
    model: Bidirectional, x: Any, y: ArrayLike | None, level: str, rng: Any,
    one: Callable[..., Diagnosis], options: Mapping[str, Any],
) -> BidirectionalDiagnosis:  # fmt: skip
    """Diagnose each direction, and measure the whole where there is a readout and ``level="full"``.

    Parameters
    ----------
    model, x, y, level, rng
        As for :func:`elman.diagnose`; every direction is given the same sequences and the same random numbers.
    one : callable
        ``one(model, x, y, level=, rng=, **options)``: the diagnosis of a chain.
    options
        The other arguments of :func:`elman.diagnose`.

    Raises
    ------
    ArgumentError
        As for :func:`elman.diagnose`; also for levels other than ``"full"`` with several layers, which cannot be run
        piece by piece, and for labels without a readout.
    """
    views = dict(model.one_way())
    if level != "full" and not all(view.top for view in views.values()):
        raise ArgumentError(
            f'level "{level}" runs a model piece by piece, and the upper layers of a bidirectional stack read whole '
            'sequences from both ends: use level="full"'
        )
    if y is not None and next(iter(views.values())).at is None:
        raise ArgumentError(
            f"y holds labels, whose loss needs the output of a readout, which {type(model).__name__} does not have: "
            "put the layer into a network, elman.Network(layer, elman.Readout(layer.output_size, Q)), or leave y out"
        )
    loss = options.get("loss")
    if x is not None:  # errors name shapes as the caller gave them
        axis = next(iter(views.values())).batch_axis
        x = side_by_side(x, "x", axis)
        y = None if y is None else side_by_side(y, "y", axis, 1 + target_axes(loss))
        as_sequences(model, x, y, options.get("h0"), "mse" if loss is None else loss, options.get("start"))
    seed = int(generator(rng).integers(2**63)) if rng is None or _draws(rng) else rng
    found = {}
    for name, view in views.items():
        labels = _labels(view, x, y, loss)
        own = {**options, "loss": None if labels is None else loss}
        ordered = x if x is None else view.in_order(x)
        found[name] = one(view, ordered, labels, level=level, rng=seed, **own)
    strongest = max(found, key=lambda name: found[name].curve.mean[-1])
    whole, overflow = None, ""
    if level == "full" and next(iter(views.values())).at is not None:
        parts = _measured_on(found)
        try:
            whole = _whole(parts, found[strongest].curve.threshold, np.random.default_rng(found[strongest]._seed))
        except NonFiniteError as error:  # a single chain is followed beyond the range of numbers, training is not
            overflow = f"training itself overflows: {error}"
    headline = {each.name: getattr(found[strongest], each.name) for each in fields(Diagnosis)}
    return BidirectionalDiagnosis(**headline, directions=found, strongest=strongest, whole=whole, overflow=overflow)


def _draws(rng: Any) -> bool:
    """Whether a second use would give other numbers than the first."""
    return not isinstance(rng, int | np.integer)


def _labels(view: Direction, x: Any, y: ArrayLike | None, loss: Any) -> Array | None:
    """The labels that depend on a direction's last state; None where there are none.

    With a readout at the end, a label depends on both directions. With a readout at every step, a backward direction
    ends at the first step in time; a label of the last step alone does not depend on its last state.
    """
    if y is None or not view.top:
        return None
    labels, every = np.asarray(y), np.ndim(y) == 2 + target_axes(loss)
    if not view.reverse:
        return labels
    if view.at == "end":
        return np.take(labels, -1, axis=1 - view.batch_axis) if every else labels
    ordered: Array | None = view.in_order(labels) if every else None
    return ordered


def _measured_on(found: Mapping[str, Diagnosis]) -> tuple[ModelSequences, ...]:
    """The sequences of a prediction in the order of time, with labels as given: those of the last forward direction."""
    forward = list(found.values())[-2]
    return tuple(batch for batch in forward._predicted if isinstance(batch, ModelSequences))


def _flow(batch: ModelSequences, rng: np.random.Generator) -> Array:
    """Log norms (T + 1, n) relative to lag 0 of the whole gradient of the loss, measured."""
    view: Any = batch.model
    logs = np.asarray(view.model.measure_loss_gradient(batch.x, batch.y, loss=batch.loss, h0=batch.h0, rng=rng))
    out: Array = np.where(np.isfinite(logs[0]), logs - np.where(np.isfinite(logs[0]), logs[0], 0.0), -np.inf)
    return out


def _whole(parts: Sequence[ModelSequences], threshold: float, rng: np.random.Generator) -> GrowthCurve:
    """The growth of the whole gradient by lag."""
    logs = np.concatenate([_flow(batch, rng) for batch in parts], axis=1)
    return GrowthCurve(logs[..., None], "readout" if parts[0].y is None else "loss", threshold)


@dataclass(frozen=True, eq=False)
class BidirectionalDiagnosis(Diagnosis, picture="plot_directions"):
    """Growth of gradients in every direction of a bidirectional model, and in the whole; by :func:`elman.diagnose`.

    The attributes of a :class:`Diagnosis` (verdict, rate, curve, causes, ...) are those of the direction whose mean
    gradient is largest at the far end of its sequences: it decides from how far back the model as a whole can learn.

    Attributes
    ----------
    directions : dict of str to Diagnosis
        Each direction by name, ``"l0"``, ``"l0_reverse"``, ``"l1"``, ...: a chain of its own, given its inputs. Lags
        run against its order of reading: for a backward direction, from the first step in time to the last. In a stack,
        gradients that pass from one direction into the other through the layers above are not included. To verify one
        direction with other ``x`` and ``y``, give them in the order in which it reads; :meth:`verify` of the whole
        takes them in the order of time.
    strongest : str
        Name of the direction that the headline describes.
    whole : GrowthCurve or None
        The gradient of the loss with respect to ``h`` of all directions together, by lag, as the backward pass of
        training gives it: from the readout at the last step back in time (``at="steps"``), or, with ``at="end"``,
        along each direction's own order of reading. For networks, at ``level="full"``. In a stack, only this shows the
        effect of all directions together.
    overflow : str
        Why the whole could not be measured, where training overflows; else empty.
    """

    directions: dict[str, Diagnosis] = field(repr=False)
    strongest: str
    whole: GrowthCurve | None = field(repr=False)
    overflow: str = ""

    def verify(
        self,
        x: Any = None,
        y: ArrayLike | None = None,
        *,
        h0: Any = None,
        start: ArrayLike | None = None,
        lags: Sequence[int] | None = None,
    ) -> BidirectionalVerification:
        """Measure every direction's gradient, and the whole, on other sequences; see :meth:`Diagnosis.verify`.

        Sequences and labels are given in the order of time.
        """
        if start is not None:
            raise ArgumentError("start belongs to a Linearization; a model gives its own start vectors")
        found = {}
        first: Any = next(iter(self.directions.values()))._predicted[0]
        x = None if x is None else side_by_side(x, "x", first.model.batch_axis)
        y = None if y is None else side_by_side(y, "y", first.model.batch_axis, 1 + target_axes(first.loss))
        for name, each in self.directions.items():
            before: Any = each._predicted[0]
            view = before.model
            ordered = None if x is None else view.in_order(x)
            labels = None if y is None else _labels(view, x, y, before.loss)
            found[name] = each.verify(ordered, labels, h0=h0, lags=lags)
        headline, whole = found[self.strongest], None
        if self.whole is not None:
            forward = list(self.directions.values())[-2]
            others = forward._others(x, y, h0, None)
            measured = _flow(others, np.random.default_rng(self._seed + 1))  # type: ignore[arg-type]
            chosen = np.arange(1, self.whole.n_steps + 1) if lags is None else np.unique(plain(lags, "lags"))
            whole = compare(self.whole, measured[..., None], self.whole.start, self.dtype, chosen)
        return BidirectionalVerification(
            headline.random, headline.loss, headline.n_steps, directions=found, strongest=self.strongest, whole=whole
        )

    def explain(self) -> Explanation:
        """Find the causes for the headline's direction alone; see :meth:`Diagnosis.explain`.

        For another direction, call ``diagnosis.directions[name].explain()``.
        """
        return super().explain()

    def prescribe(self, target: float = 0.0, lever: str = "recurrent", **options: Any) -> NoReturn:
        """Refuse: one lever for both directions has no single answer.

        Raises
        ------
        ArgumentError
            Always. ``diagnosis.directions[name].prescribe(...)`` changes one direction of a copy, which is
            ``prescription.model.model``.
        """
        names = ", ".join(self.directions)
        raise ArgumentError(
            f"prescribe moves the rate of one direction, and this model has {names}: call "
            f"diagnosis.directions[{self.strongest!r}].prescribe(...); the changed whole is its .model.model"
        )

    def __repr__(self) -> str:
        each = ", ".join(f"{name} {d.verdict} {d.rate:+.4g}" for name, d in self.directions.items())
        return f"<BidirectionalDiagnosis: {each} nats/step, T = {self.curve.n_steps}>"

    def __str__(self) -> str:
        lines = [f"Diagnosis of {len(self.directions)} directions, each a chain in the order in which it reads:"]
        for name, d in self.directions.items():
            mark = "  <- reaches farthest" if name == self.strongest else ""
            low, high = d.rate_ci
            lines.append(f"  {name:<12}{d.verdict:<11}{d.rate:+.4f} nats/step, [{low:+.4f}, {high:+.4f}]{mark}")
        if self.whole is not None:
            lines += [
                f"whole: {self.whole.start} gradient, h of all directions together, measured by the backward pass"
            ]
            lines += describe(self.whole)
        elif self.overflow:
            lines.append(f"whole: not measured, {self.overflow}")
        for name, d in self.directions.items():
            lines += [f"--- direction {name} ---", str(d)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name: the headline's, those of every direction, and the whole."""
        return {
            **super().to_dict(),
            "strongest": self.strongest,
            "directions": {name: d.to_dict() for name, d in self.directions.items()},
            "whole": None if self.whole is None else self.whole.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class BidirectionalVerification(Verification):
    """Prediction beside measurement for every direction, and for the whole.

    Attributes
    ----------
    directions : dict of str to Verification
        By the names of :class:`BidirectionalDiagnosis`. ``random`` and ``loss`` are those of its ``strongest``.
    strongest : str
    whole : Comparison or None
        The gradient of the loss through all directions.
    """

    directions: dict[str, Verification] = field(repr=False)
    strongest: str
    whole: Comparison | None = field(repr=False)

    @property
    def agrees(self) -> bool:
        """Whether every comparison of every direction, and that of the whole, agrees at 99 %."""
        return all(v.agrees for v in self.directions.values()) and (self.whole is None or self.whole.agrees)

    def __str__(self) -> str:
        made = [c for v in self.directions.values() for c in (v.random, v.loss)] + [self.whole]
        agree = [c.agrees for c in made if c is not None]
        parts = [
            f"Verification of {len(self.directions)} directions: {'AGREES' if self.agrees else 'DISAGREES'}",
            f"{sum(agree)} of {len(agree)} comparisons agree at 99 %; a right prediction fails in 1 or 2 % of them",
        ]
        for name, each in self.directions.items():
            parts += [f"--- direction {name} ---", str(each)]
        if self.whole is not None:
            parts += ["--- whole: h of all directions together ---", str(self.whole)]
        return "\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        return {
            **super().to_dict(),
            "strongest": self.strongest,
            "directions": {name: v.to_dict() for name, v in self.directions.items()},
            "whole": None if self.whole is None else self.whole.to_dict(),
        }
