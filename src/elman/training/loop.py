"""The training loop: gather, trace, backpropagate, clip, step."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NonFiniteError
from ..layers.engine.buffers import Buffers
from ..losses import Loss, broken, checked, is_own
from ..validation.arrays import all_finite
from .callbacks import Callback, Update
from .clipping import global_norm, scale
from .history import History
from .interrupt import DeferredInterrupt
from .model import Gradients, Model, Trace, check_finite, parameter_at, trace_options
from .optimizer import Optimizer
from .samples import Piece, Samples

Array = NDArray[Any]

_UNCHANGED = "Parameters and optimizer are as the last complete update left them"


class Training:
    """The loop, with what it keeps between updates."""

    def __init__(
        self,
        model: Model,
        loss: Loss,
        optimizer: Optimizer,
        samples: Samples,
        held_out: Samples | None,
        batch_size: int,
        clip_norm: float | None,
        callbacks: tuple[Callback, ...],
        rng: np.random.Generator,
        checkpoint: bool | int,
    ) -> None:
        self.model, self.loss, self.optimizer, self.callbacks = model, loss, optimizer, callbacks
        self.samples, self.held_out, self.batch_size = samples, held_out, batch_size
        self.max_norm = math.inf if clip_norm is None else clip_norm
        self.history = History(clip_norm=clip_norm)
        self.interrupt = DeferredInterrupt()
        self._spread: dict[tuple[int, ...], Array] = {}
        arguments = trace_options(model)
        # memory used again by every update: fresh pages would cost more than the arithmetic of a middle-sized network
        self._kept = {"buffers": Buffers()} if "buffers" in arguments else {}
        # an evaluation needs no state at all, but would fill the same memory with every one
        options: dict[str, Any] = self._kept | ({"checkpoint": checkpoint} if checkpoint else {})
        self._training, self._evaluation = options, dict(options)
        if "training" in arguments:
            self._training |= {"training": True, "rng": rng}
            self._evaluation |= {"training": False}
        self.rng = rng

    def run(self, epochs: int, progress: bool) -> None:
        """Train for some epochs, or until interrupted or stopped."""
        history, began = self.history, perf_counter()
        bar = _progress_bar(epochs) if progress else None
        try:
            with self.interrupt:
                for epoch in range(epochs):
                    going_on = self._epoch(epoch, self.samples.order(self.rng.permutation(self.samples.n_samples)))
                    history.seconds = perf_counter() - began
                    if bar is not None and history.epochs > epoch:
                        bar.set_postfix(_last_losses(history), refresh=False)
                        bar.update()
                    if not going_on:
                        break
        finally:
            # a signal after the last update's look at it, as in the last validation, was for this training too
            history.interrupted = self.interrupt.requested
            if bar is not None:
                bar.close()

    def _epoch(self, epoch: int, order: NDArray[np.intp]) -> bool:
        """Pass through the samples in this order; return whether to go on."""
        total, n_targets, n_samples = 0.0, 0, len(order)
        for start in range(0, n_samples, self.batch_size):
            chosen = order[start : start + self.batch_size]
            batch = self.samples.gather(chosen)
            pieces = self.samples.pieces(batch)
            state: Any = None
            for piece in pieces:
                try:
                    trace = self.model.trace(batch.x[piece.window.x], state, **piece.options, **self._training)
                    initial: Any = state
                    state = trace.hn
                    if piece.target is None:
                        continue
                    value, norm, gradients = self._update(trace, piece)
                except NonFiniteError as error:
                    place = f"in epoch {epoch}, update {len(self.history.gradient_norm)}"
                    raise _placed(error, place, piece.window.start, chosen) from error
                total += value * piece.target.size
                n_targets += piece.target.size
                ended = start + self.batch_size >= n_samples and piece is pieces[-1]
                if ended:
                    self._close_epoch(epoch, total / n_targets)
                if self.callbacks:
                    history, step = self.history, len(self.history.gradient_norm) - 1
                    event = (epoch, step, value, norm, self.model, self.optimizer, gradients)
                    x = batch.x[piece.window.x]
                    self._notify(Update(*event, x, piece.target, piece.options, initial, chosen, history, ended))
                if self.interrupt.requested or self.history.stopped:
                    return False
        return True

    def _update(self, trace: Trace, piece: Piece) -> tuple[float, float, Gradients]:
        """Loss, gradient, clipping, step; nothing is changed unless all of it is finite."""
        output = trace.output
        value, d_output = self._loss_of(output, piece)
        if piece.output is not ...:
            d_output = self._spread_over(output, d_output, piece)
        gradients = self.model.backward(trace, d_output, **self._kept)
        gradient = gradients.theta
        norm = global_norm(gradient)
        if not math.isfinite(norm):
            raise _gradient_error(norm, gradient, self.model)
        if norm > self.max_norm:
            scale(gradient, self.max_norm / norm)
        self.optimizer.apply(self.model.theta, gradient)
        self.history.gradient_norm.append(norm)
        return value, norm, gradients

    def _loss_of(self, output: Array, piece: Piece) -> tuple[float, Array]:
        """The loss and its derivative at the outputs that have a target; a refusal if they are not finite."""
        assert piece.target is not None
        chosen = output[piece.output]
        value, d_output = checked(self.loss, chosen, piece.target)
        own = is_own(self.loss)
        if not math.isfinite(value) or not (own or all_finite(d_output)):
            words = broken(self.loss, value, d_output, chosen) if all_finite(output) else ""
            raise _loss_error(value, output, self.model, words)
        return value, d_output

    def _spread_over(self, output: Array, d_output: Array, piece: Piece) -> Array:
        """Put the derivative by the outputs that have a target among zeros for the others, in a kept buffer."""
        spread = self._spread.get(output.shape)
        if spread is None:
            spread = self._spread[output.shape] = np.zeros(output.shape, output.dtype)
        if self.samples.lengths is not None:  # then the positions differ from batch to batch
            spread[...] = 0
        spread[piece.output] = d_output
        return spread

    def _notify(self, update: Update) -> None:
        """Tell every callback, even if one of them wants to stop."""
        for callback in self.callbacks:
            if callback(update):
                self.history.stopped = True

    def _close_epoch(self, epoch: int, loss: float) -> None:
        """Record the losses of an epoch."""
        self.history.loss.append(loss)
        if self.held_out is not None:
            self.history.validation_loss.append(self._evaluate(self.held_out, f"in the validation after epoch {epoch}"))

    def _evaluate(self, samples: Samples, place: str) -> float:
        """Mean loss over all targets, without updates."""
        total, n_targets, order = 0.0, 0, samples.order(np.arange(samples.n_samples))
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            batch = samples.gather(chosen)
            (piece,) = samples.pieces(batch)
            assert piece.target is not None
            try:
                output = self.model.trace(batch.x, **piece.options, **self._evaluation).output
                value, _ = self._loss_of(output, piece)
            except NonFiniteError as error:
                raise _placed(error, place, 0, chosen) from error
            total += value * piece.target.size
            n_targets += piece.target.size
        return total / n_targets


def _progress_bar(epochs: int) -> Any:
    """A bar over the epochs, for terminal or notebook."""
    from tqdm.auto import tqdm

    return tqdm(total=epochs, unit="epoch", desc="fit")


def _last_losses(history: History) -> dict[str, str]:
    """What the bar shows."""
    shown = {"loss": f"{history.loss[-1]:.4g}"}
    if history.validation_loss:
        shown["validation"] = f"{history.validation_loss[-1]:.4g}"
    return shown


def _loss_error(value: float, output: Array, model: Model, words: str) -> NonFiniteError:
    """Say where the output first stopped being finite, unless a parameter has, or what is wrong with the loss.

    ``words`` say so of a loss that is not ours; one of ours can only have met too large an output.
    """
    check_finite(model)
    if words:
        return NonFiniteError(f"{words}. {_UNCHANGED}", what="loss")
    bad = np.argwhere(~np.isfinite(output))
    cause, step, sample = f"the output, up to {np.abs(output).max():.3g}, is too large for it", None, None
    if len(bad):
        time, batch = model.time_axis, model.batch_axis
        first = bad[0] if time is None else bad[bad[:, time].argmin()]
        step, sample = None if time is None else int(first[time]), int(first[batch])
        cause = "the output is not finite"
    return NonFiniteError(
        f"the loss is {value}: {cause}; lower the learning rate or the scale of the weights. {_UNCHANGED}",
        what="loss",
        step=step,
        sample=sample,
    )


def _gradient_error(norm: float, gradient: Array, model: Model) -> NonFiniteError:
    """Name the first parameter whose gradient is not finite."""
    bad = np.flatnonzero(~np.isfinite(gradient))
    if len(bad):
        cause = f"the gradient of {parameter_at(model, int(bad[0]))} is not finite"
    else:
        cause = f"the norm of the gradient is {norm}, with entries up to {np.abs(gradient).max():.3g}"
    return NonFiniteError(
        f"{cause}; if it explodes over the sequence, cut that by truncation=... or lower the scale of the recurrent "
        f"weights. {_UNCHANGED}",
        what="gradient",
    )


def _placed(error: NonFiniteError, place: str, first_step: int, samples: Array) -> NonFiniteError:
    """The same error with its place in the training, and with step and sample counted as in the data."""
    step = None if error.step is None else error.step + first_step
    sample = None if error.sample is None else int(samples[error.sample])
    counted = [
        f"{name} {index} of the data" for name, index in (("step", step), ("sample", sample)) if index is not None
    ]
    return NonFiniteError(
        f"{error} ({'; '.join([place, *counted])})",
        what=error.what,
        layer=error.layer,
        gate=error.gate,
        step=step,
        sample=sample,
    )
