"""The labels of the last step, which the gradient of a loss at the last step starts from."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..errors import ShapeError
from ..validation.arrays import plain
from ..validation.sequences import beside, holds
from .batch import Batch

Array = NDArray[Any]


def last_targets(y: Any, last_axes: int, batch: Batch) -> Array:
    """Targets (B, ...) of the last step.

    Parameters
    ----------
    y : array_like or list of array_like
        Targets of that step, with ``last_axes`` axes, or of every step, in the caller's order; in a list, of every step
        of one sequence after the other.
    last_axes : int
    batch : Batch
        The inputs, sequences of one length.

    Raises
    ------
    ShapeError
        If they do not fit the inputs.
    """
    T, B = batch.T, batch.B
    if holds(y, last_axes):
        y = beside([plain(item, f"y[{i}]") for i, item in enumerate(y)], 1, "y")
    else:
        y = plain(y, "y")
        if batch.single:
            y = y[None] if y.ndim < last_axes else y[:, None]
        elif y.ndim > last_axes and batch.batch_first:
            y = y.swapaxes(0, 1)
    wanted = (T, B) if y.ndim > last_axes else (B,)
    if y.ndim not in (last_axes, last_axes + 1) or y.shape[: len(wanted)] != wanted:
        raise ShapeError(
            f"y must have the leading axes {(T, B)} (every step, as x has them) or {(B,)} (the last step), "
            f"got {y.shape}"
        )
    last: Array = y[-1] if y.ndim > last_axes else y
    return last
