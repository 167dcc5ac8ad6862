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
from ..layers.losses import Loss
from ..validation import real_array
from .model import Model

Array = NDArray[Any]
Index = EllipsisType | tuple[slice | int, ...]


class Window(NamedTuple):
    """A stretch of time that is traced at once.

    Attributes
    ----------
    start : int
        First step.
    x : index
        Selects the inputs from a batch.
    y : index or None
        Selects the targets from a batch; None where there are none and the window only carries the state.
    output : index
        Selects the outputs of the window that have a target.
    """

    start: int
    x: Index
    y: Index | None
    output: Index


class Samples:
    """Data for a model.

    Parameters
    ----------
    model : Model
        Tells the axes, the dtype and the number of output channels.
    x, y : ndarray
        Inputs and targets as :func:`elman.fit` describes them. Copied only where dtype or layout demand it.
    loss : Loss
        Tells the axes of the target and checks its values.
    truncation : int or None
        Length of a window.
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

    def __init__(self, model: Model, x: Any, y: Any, loss: Loss, truncation: int | None, prefix: str = "") -> None:
        time, dtype = model.time_axis, model.theta.dtype
        x, y = _array(x, f"{prefix}x"), _array(y, f"{prefix}y")
        _check_shape(x, f"{prefix}x", time)
        x = real_array(x, f"{prefix}x", dtype)
        single = time is not None and x.ndim == 2
        batch = np.expand_dims(x, model.batch_axis) if single else x

        n_channels = _output_channels(model, batch)
        every = x.shape[:-1]
        last = None if time is None else () if single else (batch.shape[model.batch_axis],)
        positions = _target_positions(y, f"{prefix}y", every, last, n_channels, getattr(loss, "target_axes", 1))
        check_target = getattr(loss, "check_target", None)
        if check_target is not None:
            check_target(y, (*positions, n_channels))
        y = _target_values(y, f"{prefix}y", dtype)

        every_step = positions == every
        self.x_axis, self.y_axis = model.batch_axis, model.batch_axis if every_step else 0
        self.x = np.ascontiguousarray(batch)
        self.y = np.ascontiguousarray(np.expand_dims(y, self.y_axis) if single else y)
        self.n_samples = batch.shape[self.x_axis]
        self.windows = _windows(time, batch.shape[time or 0], truncation, every_step)
        self._buffers: dict[int, tuple[Array, Array]] = {}

    def gather(self, samples: Array) -> tuple[Array, Array]:
        """Copy samples into kept buffers.

        Parameters
        ----------
        samples : ndarray of intp, shape (B,)
            Indices along the batch axis.

        Returns
        -------
        x, y : ndarray
            The batch; overwritten by the next call with as many samples.
        """
        size = len(samples)
        if size not in self._buffers:
            self._buffers[size] = (_batch_buffer(self.x, self.x_axis, size), _batch_buffer(self.y, self.y_axis, size))
        x, y = self._buffers[size]
        # mode="clip" writes straight into `out`; the default mode goes through a temporary
        self.x.take(samples, self.x_axis, x, "clip")
        self.y.take(samples, self.y_axis, y, "clip")
        return x, y


def _batch_buffer(a: Array, axis: int, size: int) -> Array:
    """An array shaped as ``a`` with ``size`` entries along ``axis``."""
    return np.empty((*a.shape[:axis], size, *a.shape[axis + 1 :]), a.dtype)


def _windows(time: int | None, n_steps: int, truncation: int | None, every_step: bool) -> tuple[Window, ...]:
    """Cut ``n_steps`` into windows of ``truncation`` steps, the last one possibly shorter."""
    if time is None:
        if truncation is not None:
            raise ArgumentError(f"truncation cuts time, and this network has none: pass None, got {truncation!r}")
        return (Window(0, ..., ..., ...),)
    length = n_steps if truncation is None else truncation
    whole = (slice(None),) * time
    windows = []
    for start in range(0, n_steps, length):
        span = (*whole, slice(start, min(start + length, n_steps)))
        if every_step:
            windows.append(Window(start, span, span, ...))
        else:
            windows.append(Window(start, span, ... if start + length >= n_steps else None, (*whole, -1)))
    return tuple(windows)


def _array(a: Any, name: str) -> Array:
    """Return ``a`` as an array; a list of sequences would come out with its axes in another order."""
    if isinstance(a, (list, tuple)) and any(isinstance(item, np.ndarray) and item.ndim > 1 for item in a):
        raise DTypeError(f"{name} must be one array, got a list of arrays: np.stack them along the axis of samples")
    return np.asarray(a)


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
    return real_array(y, name, dtype)


def _output_channels(model: Model, x: Array) -> int:
    """Number of output channels, which the model alone knows: an empty batch asks it and costs nothing."""
    try:
        return int(model.trace(np.take(x, [], axis=model.batch_axis)).output.shape[-1])
    except ShapeError:
        model.trace(x)  # refused alike, in words that show the shape of the data
        raise


def _target_positions(
    y: Array, name: str, every: tuple[int, ...], last: tuple[int, ...] | None, n_channels: int, target_axes: int
) -> tuple[int, ...]:
    """Return which axes of time and batch the target has, ``every`` or ``last``, or refuse it."""
    channels = (n_channels,) * target_axes
    lacks_channels = target_axes == 1 and y.shape == every and (last is None or y.shape != (*last, *channels))
    for positions in (every, last):
        if positions is None or lacks_channels:
            continue
        if y.ndim == len(positions) + target_axes and y.shape[: len(positions)] == positions:
            return positions
    allowed = f"{(*every, *channels)}"
    if last is not None:
        allowed += f" (a target at every step) or {(*last, *channels)} (at the last step only)"
    hint = ""
    if lacks_channels:
        hint = f": add the axis of channels, {name}[..., None]"
    elif y.ndim == len(every) + target_axes and y.shape[: len(every)] == every[::-1]:
        hint = ": its axes of time and batch are swapped"
    raise ShapeError(f"{name} must have shape {allowed}, got {y.shape}{hint}")
