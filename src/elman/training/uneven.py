"""Sequences of several lengths: lists of them as padded arrays, and which steps of those are valid."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, ShapeError
from ..validation.arrays import plain
from ..validation.sequences import holds, sequence_list
from .model import Model

Array = NDArray[Any]


def padded(
    x: Any, y: Any, lengths: Any, model: Model, target_axes: int, prefix: str
) -> tuple[Array, Any, list[int]]:  # fmt: skip
    """Lists of sequences, and of targets if those are for every step, as arrays in the model's order, with lengths.

    Parameters
    ----------
    x : list of array_like, each (T_i, D)
    y : array_like, or list of array_like
        Targets of the last steps, or for every step of each sequence: then its items have an axis of time before the
        ``target_axes`` of a target.
    lengths : None
        Refused: each item has its own.
    prefix : str
        Put before "x" and "y" in messages.

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        Naming the first item that does not fit.
    """
    if lengths is not None:
        raise ArgumentError("lengths must be left out for a list of sequences, each of which has its own")
    if not len(x):
        raise ShapeError(f"{prefix}x must hold at least one sequence to learn from, got an empty list")
    first = plain(x[0], f"{prefix}x[0]")
    array, lengths = sequence_list(x, first.shape[-1] if first.ndim else 0, f"{prefix}x")
    order = (lambda a: a.swapaxes(0, 1)) if model.time_axis == 1 else (lambda a: a)
    if holds(y, 1 + target_axes):
        items = [plain(item, f"{prefix}y[{i}]") for i, item in enumerate(y)]
        if [len(item) for item in items] != lengths:
            raise ShapeError(
                f"{prefix}y must be a list of targets for every step of each sequence in {prefix}x, or one array of "
                "targets for their ends"
            )
        for i, item in enumerate(items):
            if item.shape[1:] != items[0].shape[1:]:
                raise ShapeError(
                    f"{prefix}y[{i}] must agree with {prefix}y[0], of shape {items[0].shape}, in all axes but the "
                    f"first; got {item.shape}"
                )
        target = np.zeros((*array.shape[:2], *items[0].shape[1:]), np.result_type(*items))
        for i, item in enumerate(items):
            target[: len(item), i] = item
        y = order(target)
    return order(array), y, lengths


def valid_steps(x: Array, lengths: Array, time: int | None, single: bool) -> Array:
    """Which positions of x (its leading axes) are valid."""
    steps = np.arange(x.shape[0 if single else time or 0])
    if single:
        return steps < lengths[0]
    return steps[:, None] < lengths if time == 0 else steps < lengths[:, None]
