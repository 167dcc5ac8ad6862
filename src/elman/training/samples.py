"""Inputs and targets, checked once, and gathered into batches and windows of time.

Which steps the loss sees is read from the target: one with a time axis has a value for every step, one without has a
value for the last. Either becomes a list of windows, so the training loop knows neither case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..losses import Loss
from ..targets import positions, target_axes
from ..validation.arrays import finite, floating, plain
from ..validation.sequences import checked_lengths, holds, is_list, reset_mask
from ..windows import Windows, lies_elsewhere, spread
from .cuts import Truncation, Window, cut, steps_of, within
from .model import Model, trace_options
from .signs import check_axes, check_input_kind, naming_batch_first
from .stored import Stored, check_filled, check_parts
from .uneven import padded, valid_steps
from .weights import check_takes_weight, classes_with_gaps, over_positions, position_weights, without_gaps

Array = NDArray[Any]

MOST_WINDOWS = 1024  # whose targets a loss may be fitted to


class Minibatch(NamedTuple):
    """Samples drawn together; the arrays are overwritten by a later draw of as many.

    Attributes
    ----------
    x, y : ndarray
        Inputs and targets.
    weight : ndarray or None
        Of each target.
    lengths : ndarray of int, shape (B,), or None
        Valid steps of each sample.
    reset : ndarray of bool or None
        Where a sample starts anew.
    """

    x: Array
    y: Array
    weight: Array | None
    lengths: Array | None
    reset: Array | None


class Stretch(NamedTuple):
    """Inputs that carry the state from one window's start to the next one's."""

    x: Array
    options: dict[str, Array]


class Piece(NamedTuple):
    """What one window of a minibatch trains on.

    Attributes
    ----------
    window : Window
    x : ndarray
    options : dict
        ``lengths`` and ``reset`` of the window for the model's ``trace``, where there are any.
    onward : Stretch or None
        The beginning of the window, up to where the next one starts; None where that is its end.
    output : index
        Selects the outputs that have a target.
    target : ndarray or None
        The targets; None where the window only carries the state.
    weight : ndarray or None
        Of each target.
    amount : float
        How many targets these are: the sum of their weights, times the numbers in each, or what the loss says.
    """

    window: Window
    x: Array
    options: dict[str, Array]
    onward: Stretch | None
    output: Any
    target: Array | None
    weight: Array | None
    amount: float


class Draw(NamedTuple):
    """A batch, in the windows of time that it is cut into; ``last`` if none follows in this epoch."""

    samples: NDArray[np.intp]
    pieces: list[Piece]
    last: bool


class Samples:
    """Data for a model.

    Parameters
    ----------
    model : Model
        Tells the axes, the dtype and the number of output channels.
    x, y : ndarray, or lists of such
        Inputs and targets.
    loss : Loss
        Says what it takes as a target.
    truncation : Truncation, optional
        How time is cut.
    lengths : array_like of int, shape (N,), optional
        Valid steps; beyond, inputs and targets are never read.
    reset : array_like of bool, shape of x without its last axis, optional
        Where a sequence starts anew.
    prefix : str
        Put before "x" and "y" in messages.
    weight : array_like, optional
        Of each sample or target.
    missing : bool
        Whether NaN in y is a gap.
    slots : int
        Batches that are in use at a time.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If they do not fit each other or the model.
    """

    def __init__(
        self, model: Model, x: Any, y: Any, loss: Loss, truncation: Truncation | None = None, lengths: Any = None,
        reset: Any = None, prefix: str = "", *, weight: Any = None, missing: bool = False, slots: int = 1,
    ) -> None:  # fmt: skip
        self.axes, self.missing, self.slots = target_axes(loss), missing, slots
        self._total_weight = getattr(loss, "total_weight", None)
        self.time, dtype, takes = model.time_axis, model.theta.dtype, trace_options(model)
        for name, option in (("lengths", lengths), ("reset", reset)):
            if option is not None and name not in takes:
                raise ArgumentError(f"{name} must be left out: the trace of {type(model).__name__} takes none")
        if weight is not None or missing:
            check_takes_weight(loss)
        listed = "lengths" in takes and is_list(x)
        if listed:
            if reset is not None:
                raise ArgumentError("reset must be left out for a list: give each recording as an item of its own")
            x, y, lengths = padded(x, y, lengths, model, self.axes, prefix)
        x, y = _array(x, f"{prefix}x", 2), _array(y, f"{prefix}y", 1 + self.axes)
        check_axes(x, f"{prefix}x", self.time)
        single = self.time is not None and x.ndim == 2
        self.n_samples = n = 1 if single else x.shape[model.batch_axis]
        self.lengths, valid = _lengths(lengths, x, self.time, n, single, prefix)
        x = _inputs(x, f"{prefix}x", dtype, valid, self.time)
        batch = np.expand_dims(x, model.batch_axis) if single else x

        output = _output_shape(model, batch)
        # a network may read the end of a sequence only
        every = None if len(output) == 2 and self.time is not None else x.shape[:-1]
        last = None if self.time is None else () if single else (n,)
        channels = getattr(loss, "target_shape", tuple)(output)[-1]
        with naming_batch_first(x, y, self.axes, self.time):
            leading = positions(y.shape, f"{prefix}y", every, last, self.axes, channels)
        self.every_step, self.at_end = leading == every, every is None
        self.x_axis, self.y_axis = model.batch_axis, model.batch_axis if self.every_step else 0
        counted = valid if self.every_step else None
        name = f"{prefix}sample_weight"
        w = None
        if weight is not None:
            w = position_weights(weight, name, leading, n, counted, self.lengths if listed else None, 1 - self.y_axis)
        if missing and not self.axes and y.dtype.kind == "f":
            y, there = classes_with_gaps(y if counted is None else np.where(counted, y, 0), f"{prefix}y")
            w = there if w is None else over_positions(w, leading, self.y_axis, single) * there
        if w is not None:
            counted = over_positions(w, leading, self.y_axis, single) > 0
        y = _targets(y, f"{prefix}y", dtype, loss, (*leading, output[-1]), counted, missing)
        if single:
            y = np.expand_dims(y, self.y_axis)
            w = w if w is None or w.shape == (1,) else np.expand_dims(w, self.y_axis)
        self.x, self.y, self.weight = (
            Stored(batch, self.x_axis, dtype),
            Stored(y, self.y_axis, _of_batches(y, dtype)),
            w,
        )
        self.reset = None if reset is None else reset_mask(reset, x.shape[:-1])
        if self.reset is not None and single:
            self.reset = np.expand_dims(self.reset, model.batch_axis)
        self.windows = cut(self.time, batch.shape[self.time or 0], truncation, self.every_step, self.at_end)

    def draws(self, batch_size: int, rng: np.random.Generator | None) -> Iterator[Draw]:
        """Batches of one pass: in an order drawn from ``rng``, or in that of the data without one."""
        order: Array = np.arange(self.n_samples) if rng is None else rng.permutation(self.n_samples)
        if self.lengths is not None:  # those that have a step at all
            order = order[self.lengths[order] > 0]
        for i, start in enumerate(range(0, len(order), batch_size)):
            chosen = order[start : start + batch_size]
            batch = self.gather(chosen, i % self.slots)
            yield Draw(chosen, self.pieces(batch), start + batch_size >= len(order))

    def whole(self) -> Minibatch:
        """All samples as they lie; targets are copied where gaps in them are to be filled."""
        if self.x.elsewhere or self.y.elsewhere or self.weight is not None or self.missing:
            return self.gather(np.arange(self.n_samples))
        return Minibatch(self.x.array, self.y.array, None, self.lengths, self.reset)

    def targets(self) -> tuple[Array, Array]:
        """The targets that count, their positions along one axis, with their weights; of windows an even choice."""
        few = spread(self.y.array, self.y_axis, MOST_WINDOWS)
        batch = self.gather(np.arange(self.n_samples) if few is None else few)
        positions_of = batch.y.shape[: batch.y.ndim - self.axes]
        weight = np.ones(positions_of) if batch.weight is None else np.asarray(batch.weight, np.float64)
        if batch.lengths is not None and self.every_step:
            steps = np.arange(positions_of[self.time or 0])
            weight = weight * (steps[:, None] < batch.lengths if self.time == 0 else steps < batch.lengths[:, None])
        counted = weight > 0
        return batch.y[counted], weight[counted]

    def gather(self, samples: Array, slot: int = 0) -> Minibatch:
        """Copy samples into kept buffers.

        Parameters
        ----------
        samples : ndarray of intp, shape (B,)
            Indices along the batch axis.
        slot : int
            Which buffers.

        Returns
        -------
        Minibatch
        """
        x, y = self.x.take(samples, slot), self.y.take(samples, slot)
        lengths = None if self.lengths is None else self.lengths[samples]
        weight = None
        if self.weight is not None:
            along = self.y_axis if self.weight.ndim > 1 else 0
            shape = y.shape[: y.ndim - self.axes]
            weight = over_positions(self.weight.take(samples, along), shape, self.y_axis)
        weight = without_gaps(y, weight, self.axes, self.missing)
        return Minibatch(x, y, weight, lengths, None if self.reset is None else self.reset.take(samples, self.x_axis))

    def pieces(self, batch: Minibatch) -> list[Piece]:
        """The windows of a minibatch in the order of time; the last has targets, if any has."""
        pieces = [self._piece(batch, window) for window in self.windows]
        while pieces and pieces[-1].target is None:
            pieces.pop()
        return pieces

    def _piece(self, batch: Minibatch, window: Window) -> Piece:
        """What there is of a minibatch in a window."""
        x, options = batch.x[window.x], self._options(batch, window.start, window.stop)
        onward = None
        if window.onward < window.stop:
            part = within(batch.x, window.start, window.onward, self.time)
            onward = Stretch(part, self._options(batch, window.start, window.onward))
        output, at = self._positions(batch, window)
        target = weight = None
        if at is not None:
            target = batch.y[at]
            weight = None if batch.weight is None else batch.weight[at]
        amount = 0.0 if target is None else float(target.size)
        if self._total_weight is not None and target is not None:
            amount = self._total_weight(target, weight)
        elif weight is not None and target is not None:
            amount = float(weight.sum()) * (target.size / max(1, weight.size))
        if not amount:
            target = None
        return Piece(window, x, options, onward, output, target, weight, amount)

    def _options(self, batch: Minibatch, start: int, stop: int) -> dict[str, Array]:
        """``lengths`` and ``reset`` of some steps."""
        options = {} if batch.reset is None else {"reset": within(batch.reset, start, stop, self.time)}
        if batch.lengths is not None:
            options["lengths"] = np.clip(batch.lengths - start, 0, stop - start)
        return options

    def _positions(self, batch: Minibatch, window: Window) -> tuple[Any, Any]:
        """Which outputs of a window have a target, and which targets of the batch those are; None for none."""
        if batch.lengths is None or self.at_end:
            return window.output, window.y
        if self.every_step:
            chosen = steps_of(batch.lengths, window, self.time)
            place = np.zeros(batch.y.shape[: chosen.ndim], bool)
            within(place, window.start, window.stop, self.time)[...] = chosen
            return chosen, place
        rows = np.flatnonzero((batch.lengths > window.first) & (batch.lengths <= window.stop))
        at = batch.lengths[rows] - 1 - window.start
        return ((at, rows) if self.time == 0 else (rows, at)), rows


def _array(a: Any, name: str, item_axes: int) -> Array:
    """Return ``a`` as an array; a list of sequences would come out with its axes in another order."""
    if holds(a, item_axes):
        raise DTypeError(f"{name} must be one array, got a list of arrays: np.stack them along the axis of samples")
    return a if lies_elsewhere(a) else plain(a, name)


def _lengths(
    lengths: Any, x: Array, time: int | None, n: int, single: bool, prefix: str
) -> tuple[Array | None, Array | None]:
    """Checked lengths, and which steps of x they make valid."""
    if lengths is None:
        return None, None
    if isinstance(x, Windows):
        raise ArgumentError("lengths must be left out for windows of a series, which all have one length")
    given = checked_lengths(lengths, x.shape[0 if single else time or 0], n)
    if not given.any():
        raise ArgumentError(f"{prefix}lengths must leave a step to learn from, and all are 0")
    return given, valid_steps(x, given, time, single)


def _inputs(x: Array, name: str, dtype: np.dtype[Any], valid: Array | None, time: int | None) -> Array:
    """Checked inputs; those that lie elsewhere stay there."""
    check_input_kind(x, name)
    if lies_elsewhere(x) and valid is None:
        floating(x[:0], name, dtype)
        check_parts(x, name, dtype)
        return x
    x = floating(x, name, dtype)
    x = x if valid is None else np.where(valid[..., None], x, dtype.type(0))
    check_filled(x, name, time)
    return x


def _targets(
    y: Array, name: str, dtype: np.dtype[Any], loss: Loss, output_shape: tuple[int, ...], counted: Array | None,
    missing: bool,
) -> Array:  # fmt: skip
    """Checked targets: numbers of the output's dtype, or classes as indices; those that lie elsewhere stay there."""
    check_target = getattr(loss, "check_target", None) or (lambda target, shape: None)
    if lies_elsewhere(y):
        check_target(y[:0], (0, *output_shape[1:]))
        if y.dtype.kind == "f" and counted is None:
            check_parts(y, name, dtype, missing)
        return y
    if counted is not None:
        y = np.where(counted.reshape(counted.shape + (1,) * (y.ndim - counted.ndim)), y, y.dtype.type(0))
    check_target(y, output_shape)
    if y.dtype.kind in "iu":
        return np.asarray(y, np.intp, order="C")  # np.ascontiguousarray adds an axis to one class
    # truth values are for the loss to take or refuse
    y = floating(y.astype(dtype) if y.dtype.kind == "b" and hasattr(loss, "check_target") else y, name, dtype)
    if not missing and np.isnan(y).any():
        bad = np.argwhere(np.isnan(y))
        raise ArgumentError(
            f"{name} must be finite, {name}[{', '.join(map(str, bad[0]))}] is nan ({len(bad)} such numbers in all): if "
            'those are gaps, pass missing="ignore"; if they pad sequences, pass lengths=, the number of valid steps'
        )
    finite(y, name, ~np.isnan(y) if missing else None)
    return y


def _of_batches(y: Array, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a batch of targets."""
    return np.dtype(np.intp) if y.dtype.kind in "iu" else dtype


def _output_shape(model: Model, x: Array) -> tuple[int, ...]:
    """Shape of the output of no samples, which the model alone knows: to ask it costs nothing."""
    options = {"training": False} if "training" in trace_options(model) else {}
    whole, dtype = (slice(None),) * model.batch_axis, model.theta.dtype
    try:
        # a slice: of windows of a series np.take would copy all
        none = np.array(x[(*whole, slice(0, 0))], dtype, order="C")
        shape: tuple[int, ...] = model.trace(none, **options).output.shape
        return shape
    except ShapeError:
        # refused alike, in words that show the shape of the data
        model.trace(np.array(x[(*whole, slice(0, 1))], dtype) if lies_elsewhere(x) else x, **options)
        raise
