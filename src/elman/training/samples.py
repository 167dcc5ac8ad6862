"""Inputs and targets, checked once, and gathered into batches and windows of time.

Which steps the loss sees is read from the target: one with a time axis has a value for every step, one without has a
value for the last. Either becomes a list of windows, so the training loop knows neither case.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..losses import Loss
from ..targets import positions, target_axes
from ..validation.arrays import finite, finite_floats, floating, plain
from ..validation.sequences import checked_lengths, holds, is_list, reset_mask
from .model import Model, trace_options
from .uneven import padded, valid_steps

Array = NDArray[Any]
Index = EllipsisType | tuple[slice | int, ...]


class Window(NamedTuple):
    """A stretch of time that is traced at once.

    Attributes
    ----------
    start, stop : int
        First step, and the one after the last.
    x : index
        Selects the inputs from a batch.
    y : index or None
        Selects the targets from a batch; None where there are none and the window only carries the state.
    output : index
        Selects the outputs of the window that have a target.
    """

    start: int
    stop: int
    x: Index
    y: Index | None
    output: Index


class Minibatch(NamedTuple):
    """Samples drawn together; the arrays are overwritten by the next draw of as many.

    Attributes
    ----------
    x, y : ndarray
        Inputs and targets.
    lengths : ndarray of int, shape (B,), or None
        Valid steps of each sample.
    reset : ndarray of bool or None
        Where a sample starts anew.
    """

    x: Array
    y: Array
    lengths: Array | None
    reset: Array | None


class Piece(NamedTuple):
    """What one window of a minibatch trains on.

    Attributes
    ----------
    window : Window
    options : dict
        ``lengths`` and ``reset`` of the window for the model's ``trace``, where there are any.
    output : index
        Selects the outputs that have a target.
    target : ndarray or None
        The targets; None where the window only carries the state.
    """

    window: Window
    options: dict[str, Array]
    output: Any
    target: Array | None


class Samples:
    """Data for a model.

    Parameters
    ----------
    model : Model
        Tells the axes, the dtype and the number of output channels.
    x, y : ndarray, or lists of such
        Inputs and targets as :func:`elman.fit` describes them. Copied only where dtype or layout demand it.
    loss : Loss
        Tells the axes of the target and checks its values.
    truncation : int or None
        Length of a window.
    lengths, reset : array_like or None
        As :func:`elman.fit` describes them.
    prefix : str
        Put before "x" and "y" in messages.

    Attributes
    ----------
    n_samples : int
        Length of the batch axis.
    windows : tuple of Window
        In the order of time; the last one has targets.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If x and y do not fit the model, the loss or each other, are empty, or hold a NaN or infinity.
    """

    def __init__(
        self, model: Model, x: Any, y: Any, loss: Loss, truncation: int | None, lengths: Any = None, reset: Any = None,
        prefix: str = "",
    ) -> None:  # fmt: skip
        time, dtype = model.time_axis, model.theta.dtype
        takes = trace_options(model)
        for name, option in (("lengths", lengths), ("reset", reset)):
            if option is not None and name not in takes:
                raise ArgumentError(f"{name} must be left out: the trace of {type(model).__name__} takes none")
        axes = target_axes(loss)
        if "lengths" in takes and is_list(x):
            if reset is not None:
                raise ArgumentError("reset must be left out for a list: give each recording as an item of its own")
            x, y, lengths = padded(x, y, lengths, model, axes, prefix)
        x, y = _array(x, f"{prefix}x", 2), _array(y, f"{prefix}y", 1 + axes)
        _check_shape(x, f"{prefix}x", time)
        single = time is not None and x.ndim == 2
        n = 1 if single else x.shape[model.batch_axis]
        self.lengths = None if lengths is None else checked_lengths(lengths, x.shape[0 if single else time or 0], n)
        if self.lengths is not None and not self.lengths.any():
            raise ArgumentError(f"{prefix}lengths must leave a step to learn from, and all are 0")
        valid = None if self.lengths is None else valid_steps(x, self.lengths, time, single)
        x = floating(x, f"{prefix}x", dtype)
        x = x if valid is None else np.where(valid[..., None], x, dtype.type(0))
        finite(x, f"{prefix}x")
        batch = np.expand_dims(x, model.batch_axis) if single else x

        output = _output_shape(model, batch)
        every = x.shape[:-1]
        last = None if time is None else () if single else (n,)
        if len(output) == 2 and time is not None:  # the network reads the end of a sequence only
            every = None
        leading = positions(y.shape, f"{prefix}y", every, last, axes, output[-1])
        every_step = leading == every
        if valid is not None and every_step:
            y = np.where(valid.reshape(valid.shape + (1,) * (y.ndim - valid.ndim)), y, y.dtype.type(0))
        check_target = getattr(loss, "check_target", None)
        if check_target is not None:
            check_target(y, (*leading, output[-1]))
        y = _target_values(y, f"{prefix}y", dtype)

        self.time, self.every_step, self.at_end = time, every_step, every is None
        if self.at_end and truncation is not None:
            raise ArgumentError("truncation must be None for a network that reads the end of a sequence only")
        self.x_axis, self.y_axis = model.batch_axis, model.batch_axis if every_step else 0
        self.x = np.ascontiguousarray(batch)
        self.y = np.ascontiguousarray(np.expand_dims(y, self.y_axis) if single else y)
        self.reset = None if reset is None else reset_mask(reset, x.shape[:-1])
        if self.reset is not None and single:
            self.reset = np.expand_dims(self.reset, model.batch_axis)
        self.n_samples = n
        self.windows = _windows(time, batch.shape[time or 0], truncation, every_step, self.at_end)
        self._buffers: dict[int, tuple[Array, Array]] = {}

    def order(self, indices: Array) -> Array:
        """Of these samples, in this order, those that have a step at all."""
        return indices if self.lengths is None else indices[self.lengths[indices] > 0]

    def gather(self, samples: Array) -> Minibatch:
        """Copy samples into kept buffers.

        Parameters
        ----------
        samples : ndarray of intp, shape (B,)
            Indices along the batch axis.

        Returns
        -------
        Minibatch
        """
        size = len(samples)
        if size not in self._buffers:
            self._buffers[size] = (_batch_buffer(self.x, self.x_axis, size), _batch_buffer(self.y, self.y_axis, size))
        x, y = self._buffers[size]
        # mode="clip" writes straight into `out`; the default mode goes through a temporary
        self.x.take(samples, self.x_axis, x, "clip")
        self.y.take(samples, self.y_axis, y, "clip")
        lengths = None if self.lengths is None else self.lengths[samples]
        return Minibatch(x, y, lengths, None if self.reset is None else self.reset.take(samples, self.x_axis))

    def pieces(self, batch: Minibatch) -> list[Piece]:
        """The windows of a minibatch in the order of time; the last has targets."""
        pieces = [self._piece(batch, window) for window in self.windows]
        while pieces[-1].target is None:
            pieces.pop()
        return pieces

    def _piece(self, batch: Minibatch, window: Window) -> Piece:
        """What there is of a minibatch in a window."""
        options = {} if batch.reset is None else {"reset": batch.reset[window.x]}
        if batch.lengths is None:
            return Piece(window, options, window.output, None if window.y is None else batch.y[window.y])
        start, stop = window.start, window.stop
        options["lengths"] = lengths = np.clip(batch.lengths - start, 0, stop - start)
        if self.at_end:
            return Piece(window, options, ..., batch.y)
        if self.every_step:
            steps = np.arange(stop - start)
            chosen: Any = steps[:, None] < lengths if self.time == 0 else steps < lengths[:, None]
            target = batch.y[window.x][chosen]
        else:
            rows = np.flatnonzero((batch.lengths > start) & (batch.lengths <= stop))
            at = lengths[rows] - 1
            chosen, target = (at, rows) if self.time == 0 else (rows, at), batch.y[rows]
        return Piece(window, options, chosen, target if target.size else None)


def _batch_buffer(a: Array, axis: int, size: int) -> Array:
    """An array shaped as ``a`` with ``size`` entries along ``axis``."""
    return np.empty((*a.shape[:axis], size, *a.shape[axis + 1 :]), a.dtype)


def _windows(
    time: int | None, n_steps: int, truncation: int | None, every_step: bool, at_end: bool
) -> tuple[Window, ...]:
    """Cut ``n_steps`` into windows of ``truncation`` steps, the last one possibly shorter."""
    if time is None:
        if truncation is not None:
            raise ArgumentError(f"truncation cuts time, and this network has none: pass None, got {truncation!r}")
        return (Window(0, 1, ..., ..., ...),)
    if at_end:
        return (Window(0, n_steps, ..., ..., ...),)
    length = n_steps if truncation is None else truncation
    whole = (slice(None),) * time
    windows = []
    for start in range(0, n_steps, length):
        stop = min(start + length, n_steps)
        span = (*whole, slice(start, stop))
        if every_step:
            windows.append(Window(start, stop, span, span, ...))
        else:
            windows.append(Window(start, stop, span, ... if stop == n_steps else None, (*whole, -1)))
    return tuple(windows)


def _array(a: Any, name: str, item_axes: int) -> Array:
    """Return ``a`` as an array; a list of sequences would come out with its axes in another order."""
    if holds(a, item_axes):
        raise DTypeError(f"{name} must be one array, got a list of arrays: np.stack them along the axis of samples")
    return plain(a, name)


def _check_shape(x: Array, name: str, time: int | None) -> None:
    """Refuse a wrong number of axes, and nothing at all."""
    if x.ndim < 2 or (time is not None and x.ndim > 3):
        layout = "(N, D)" if time is None else "(T, N, D), or (N, T, D) with batch_first, or (T, D) for one sequence"
        raise ShapeError(f"{name} must have shape {layout}, got {x.shape}")
    if x.size == 0:
        raise ShapeError(f"{name} must hold at least one sample and step to learn from, got shape {x.shape}")


def _target_values(y: Array, name: str, dtype: np.dtype[Any]) -> Array:
    """Bring real targets to the dtype of the output and classes to that of an index."""
    if y.dtype.kind in "iu":
        return y.astype(np.intp, copy=False)
    return finite_floats(y, name, dtype)


def _output_shape(model: Model, x: Array) -> tuple[int, ...]:
    """Shape of the output of no samples, which the model alone knows: to ask it costs nothing."""
    options = {"training": False} if "training" in trace_options(model) else {}
    try:
        shape: tuple[int, ...] = model.trace(np.take(x, [], axis=model.batch_axis), **options).output.shape
        return shape
    except ShapeError:
        model.trace(x, **options)  # refused alike, in words that show the shape of the data
        raise
