"""Labels of the last step or of every one: the number of their axes says which."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ShapeError
from ..linearization import Array


def target_axes(loss: Any) -> int:
    """Axes of a label: classes have no axis of channels; names are those of Network.loss_start."""
    return 0 if isinstance(loss, str) and loss == "cross_entropy" else int(getattr(loss, "target_axes", 1))


def labels_every_step(y: ArrayLike, loss: Any) -> bool:
    """Whether labels are for every step, by the number of their axes."""
    return np.ndim(y) == 2 + target_axes(loss)


def label_axis(y: Array, x: Array, batch_axis: int, loss: Any) -> int:
    """Axis of ``y`` that holds the sequences: that of ``x`` for labels at every step, else the first.

    The number of axes decides, never a length: sequences, steps and channels may be equally many.
    """
    n, every, axes = x.shape[batch_axis], x.shape[:2], target_axes(loss)
    if y.ndim == 2 + axes and y.shape[:2] == every:
        return batch_axis
    if y.ndim == 1 + axes and y.shape[0] == n:
        return 0
    channels = ", Q" * axes
    hint = ""
    if axes == 1 and y.shape in (every, (n,)):
        hint = "; add the axis of channels: y[..., None]"
    elif y.ndim == 2 + axes and y.shape[:2] == every[::-1]:
        hint = "; its axes of time and sequences are swapped"
    last = f"({n}{channels})" if channels else f"({n},)"
    raise ShapeError(
        f"y must hold one label for each of the {n} sequences: shape {last} for the last step, or "
        f"({every[0]}, {every[1]}{channels}) for every step; got {y.shape}{hint}"
    )
