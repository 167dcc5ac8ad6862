"""The training loop: epochs of updates, what is recorded of them, and who is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, NonFiniteError
from ..losses import Loss
from ..targets import target_axes
from .batches import Source
from .callbacks import Callback, TrainingInfo, Update
from .descent import Descent, Done, Options
from .faults import placed
from .interrupt import DeferredInterrupt
from .model import Model
from .optimizer import Optimizer
from .progress import Bar
from .resume import Progress, trainer_state
from .samples import Draw
from .schedules import checked_lr
from .tally import Metric, Tally

Array = NDArray[Any]


@dataclass(frozen=True)
class Plan:
    """What a training is made of, beside how it makes updates."""

    source: Source
    held_out: Source | None
    batch_size: int
    accumulate: int
    metrics: Mapping[str, Metric]
    callbacks: tuple[Callback, ...]


class Training:
    """The loop, with what it keeps between updates.

    Parameters
    ----------
    progress : Progress
        What a training that is resumed had done; of a new one, nothing.
    """

    def __init__(
        self, model: Model, loss: Loss, optimizer: Optimizer, plan: Plan, options: Options, rng: np.random.Generator,
        progress: Progress,
    ) -> None:  # fmt: skip
        self.model, self.loss, self.optimizer, self.plan, self.options, self.rng = (
            model, loss, optimizer, plan, options, rng
        )  # fmt: skip
        # those that save what the others know are told last
        self.callbacks = tuple(sorted(plan.callbacks, key=lambda each: bool(getattr(each, "runs_last", False))))
        self.history, self.first_epoch, self.base_lr = progress.history, progress.history.epochs, progress.base_lr
        self.descent = Descent(model, loss, optimizer, options, rng)
        self.interrupt = DeferredInterrupt()
        self._event: Update | None = None

    def run(self, epochs: int, progress: bool) -> None:
        """Train up to so many epochs, or until interrupted or stopped."""
        history, began = self.history, perf_counter() - self.history.seconds
        bar = Bar(self.first_epoch, epochs) if progress else None
        info = TrainingInfo(self.model, self.optimizer, epochs, history)
        for callback in self.callbacks:
            getattr(callback, "begin", lambda info: None)(info)
        try:
            with self.interrupt:
                for epoch in range(self.first_epoch, epochs if not history.stopped else 0):
                    going_on = self._epoch(epoch)
                    history.seconds = perf_counter() - began
                    if bar is not None and history.epochs > epoch:
                        bar.show(history)
                    if not going_on:
                        break
        finally:
            # a signal after the last update's look at it, as in the last validation, was for this training too
            history.interrupted = self.interrupt.requested
            if bar is not None:
                bar.close()
            if self.options.schedule is not None:
                self.optimizer.lr = self.base_lr
        for callback in self.callbacks:
            getattr(callback, "end", lambda history, net: None)(history, self.model)

    def _epoch(self, epoch: int) -> bool:
        """Pass through the data; return whether to go on."""
        tally, self._event = self._tally(), None
        for group in _groups(self.plan.source.draws(self.plan.batch_size, self.rng), self.plan.accumulate):
            states: list[Any] = [None] * len(group)
            rounds = max(len(draw.pieces) for draw in group)
            for k in range(rounds):
                pieces = [draw.pieces[k] if k < len(draw.pieces) else None for draw in group]
                step = len(self.history.gradient_norm)
                place = f"in epoch {epoch}, update {step}"
                done = self.descent.update(group, pieces, states, tally, place, partial(self._lr, step, epoch))
                if done is None:
                    continue
                self.history.gradient_norm.append(done.norm)
                tally.penalty, tally.updates = tally.penalty + done.penalty, tally.updates + 1
                ended = group[-1].last and k == rounds - 1
                metrics = self._close_epoch(epoch, tally) if ended else {}
                if self.callbacks:
                    self._notify(epoch, done, metrics, ended)
                if self.interrupt.requested or self.history.stopped:
                    return False
        if self.history.epochs == epoch:  # the last batch had no target: nothing came after the last update
            self._end_without_update(epoch, tally)
        return not (self.interrupt.requested or self.history.stopped)

    def _lr(self, step: int, epoch: int) -> float | None:
        """Learning rate of an update; None without a schedule."""
        schedule = self.options.schedule
        return None if schedule is None else checked_lr(schedule.lr(step, epoch, self.base_lr), schedule)

    def _tally(self) -> Tally:
        return Tally(self.plan.metrics, target_axes(self.loss))

    def _notify(self, epoch: int, done: Done, metrics: dict[str, float], ended: bool) -> None:
        """Tell every callback, even if one of them wants to stop."""
        piece = done.piece
        assert piece.target is not None
        update = Update(
            epoch, len(self.history.gradient_norm) - 1, done.value, done.norm, self.model, self.optimizer,
            done.gradients, piece.x, piece.target, piece.options, done.state, done.samples, self.history, ended,
            metrics, self.rng, lambda: trainer_state(self, ended), piece.weight, done.penalty,
        )  # fmt: skip
        self._event = update
        for callback in self.callbacks:
            if callback(update):
                self.history.stopped = True

    def _end_without_update(self, epoch: int, tally: Tally) -> None:
        """Close an epoch whose last batch taught nothing; callbacks hear of its last update once more."""
        if not tally.amount:
            raise ArgumentError(f"y must hold a target of positive weight in each epoch, and epoch {epoch} had none")
        metrics, last = self._close_epoch(epoch, tally), self._event
        if last is None:
            return
        values = {name: getattr(last, name) for name in Update.__dataclass_fields__}
        ended = {"epoch_ended": True, "metrics": metrics, "trainer_state": lambda: trainer_state(self, True)}
        for callback in self.callbacks:
            if callback(Update(**(values | ended))):
                self.history.stopped = True

    def _close_epoch(self, epoch: int, tally: Tally) -> dict[str, float]:
        """Record the losses and metrics of an epoch."""
        history = self.history
        history.loss.append(tally.loss)
        history.lr.append(float(self.optimizer.lr))
        metrics = tally.measured()
        if self.options.regularizers:
            metrics["penalty"] = tally.penalty / tally.updates
        if self.plan.held_out is not None:
            held = self._evaluate(self.plan.held_out, f"in the validation after epoch {epoch}")
            history.validation_loss.append(held.loss)
            metrics |= {f"validation_{name}": value for name, value in held.measured().items()}
        for name, value in metrics.items():
            history.metrics.setdefault(name, []).append(value)
        schedule = self.options.schedule
        if hasattr(schedule, "observe"):
            schedule.observe(history)
        return metrics

    def _evaluate(self, source: Source, place: str) -> Tally:
        """Losses of all targets, without updates."""
        tally = self._tally()
        for draw in source.draws(self.plan.batch_size, None):
            for piece in draw.pieces:
                try:
                    output = self.model.trace(piece.x, **piece.options, **self.descent.evaluation).output
                    self.descent.loss_of(output, piece, tally)
                except NonFiniteError as error:
                    raise placed(error, place, 0, draw.samples) from error
        if not tally.amount:
            raise ArgumentError("validation y must hold a target of positive weight, and has none")
        return tally


def _groups(draws: Iterator[Draw], n: int) -> Iterator[list[Draw]]:
    """Batches in groups of ``n``, the last one possibly smaller."""
    group: list[Draw] = []
    for draw in draws:
        group.append(draw)
        if len(group) == n or draw.last:
            yield group
            group = []
