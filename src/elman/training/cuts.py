"""Windows of time that are traced at once, and which of their steps have a target."""

from __future__ import annotations

from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError
from ..validation.scalars import size

Array = NDArray[Any]
Index = EllipsisType | tuple[slice | int, ...]


class Truncation(NamedTuple):
    """How backpropagation is cut: steps from one update to the next, and steps that its gradient goes back."""

    between: int
    back: int


class Window(NamedTuple):
    """A stretch of time that is traced at once.

    Attributes
    ----------
    start, stop : int
        First step, and the one after the last.
    first : int
        First step whose target counts; those before it have had their turn in the window before.
    onward : int
        First step of the next window, at most ``stop``: up to there the state is carried.
    x : index
        Selects the inputs from a batch.
    y : index or None
        Selects the targets from a batch; None where there are none and the window only carries the state.
    output : index
        Selects the outputs of the window that have a target.
    """

    start: int
    stop: int
    first: int
    onward: int
    x: Index
    y: Index | None
    output: Index


def checked_truncation(value: Any) -> Truncation | None:
    """What the caller gave as truncation.

    Raises
    ------
    DTypeError, ArgumentError
        If it is neither None, nor a positive number of steps, nor two of them of which the second is no smaller.
    """
    if value is None:
        return None
    if not isinstance(value, tuple | list):
        steps = size(value, "truncation")
        return Truncation(steps, steps)
    if len(value) != 2:
        raise DTypeError(
            f"truncation must be a number of steps, or two: (steps between updates, steps back), got {len(value)}"
        )
    between, back = size(value[0], "truncation[0]"), size(value[1], "truncation[1]")
    if back < between:
        raise ArgumentError(
            f"truncation must be (steps between updates, steps back) with at least as many back as between, or the "
            f"steps before those would teach nothing; got {(between, back)}"
        )
    return Truncation(between, back)


def cut(
    time: int | None, n_steps: int, truncation: Truncation | None, every_step: bool, at_end: bool
) -> tuple[Window, ...]:
    """Cut ``n_steps`` into windows, the last one possibly shorter.

    Parameters
    ----------
    time : int or None
        Axis of the inputs that counts steps.
    every_step : bool
        Whether there is a target for each step, or one for the last.
    at_end : bool
        Whether the model gives one output for a whole sequence.
    """
    if time is None:
        if truncation is not None:
            raise ArgumentError(f"truncation cuts time, and this network has none: pass None, got {truncation.between}")
        return (Window(0, 1, 0, 1, ..., ..., ...),)
    if at_end:
        if truncation is not None:
            raise ArgumentError("truncation must be None for a network that reads the end of a sequence only")
        return (Window(0, n_steps, 0, n_steps, ..., ..., ...),)
    between, back = truncation or (n_steps, n_steps)
    whole = (slice(None),) * time

    def start_of(first: int) -> int:
        return max(0, first + between - back)

    windows = []
    for first in range(0, n_steps, between):
        start, stop = start_of(first), min(first + between, n_steps)
        onward = stop if stop == n_steps else start_of(first + between)
        y: Index | None = (*whole, slice(first, stop))
        output: Index = (*whole, slice(first - start, None)) if first > start else ...
        if not every_step:
            y, output = ... if stop == n_steps else None, (*whole, -1)
        windows.append(Window(start, stop, first, onward, (*whole, slice(start, stop)), y, output))
    return tuple(windows)


def within(mask: Array, start: int, stop: int, time: int | None) -> Array:
    """The steps ``start .. stop - 1`` of what has the leading axes of the inputs."""
    return mask if time is None else mask[(slice(None),) * time + (slice(start, stop),)]


def steps_of(lengths: Array, window: Window, time: int | None) -> Array:
    """Where the outputs of a window have a target at every step: at valid steps that had no turn before.

    Returns
    -------
    ndarray of bool, leading axes of the outputs
    """
    steps = np.arange(window.start, window.stop)
    due = steps >= window.first
    chosen: Array = (steps[:, None] < lengths) & due[:, None] if time == 0 else (steps < lengths[:, None]) & due
    return chosen
