"""Norms of a gradient at each step of a backward pass in float64, even where their squares under- or overflow.

The kernels write sums of squares, and overwrite the rows that they belong to with those of the step before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.subnormal import flushed
from ...norms import SMALLEST_SUM
from .rows import Rows

if TYPE_CHECKING:
    from .bptt import Descent

Array = NDArray[Any]

SMALLEST_ENTRY = 1e-145
"""The square of this is the smallest that surely counts: see :data:`elman.norms.SMALLEST_SUM`."""

UP = 600
"""Gradients are multiplied by 2**600 where their squares are too small for float64: the smallest normal number then
becomes 2**-422, whose square float64 can hold."""

WIDE = 2.0**600
"""Squares of gradients from which on these are not multiplied by 2**600: intermediate products might overflow."""


def left_range(squares: Array, descent: Descent, d_state: Array | None) -> bool:
    """Whether a sum of squares (T, B) of a gradient in float64 may have under- or overflowed.

    A zero is such a sum only if a gradient has entered, or if one that enters is too small for its squares.
    """
    # the methods min and max cost twice as much, which shows in small layers
    least, most = float(np.minimum.reduce(squares, axis=None)), float(np.maximum.reduce(squares, axis=None))
    if not most < np.inf or 0 < least < SMALLEST_SUM:
        return True
    if least >= SMALLEST_SUM:
        return False
    living = squares > 0
    if (living & (squares < SMALLEST_SUM)).any():
        return True
    valid = np.arange(squares.shape[1]) < descent.record.schedule.active[: len(squares), None]
    entered = np.logical_or.accumulate((living & valid)[::-1])[::-1]
    return bool((~living[:-1] & entered[1:]).any()) or any(
        part is not None and bool(((part != 0) & (np.abs(part) < SMALLEST_ENTRY)).any())
        for part in (None if descent.d_output is None else descent.d_output.view(descent.d.layout.R), d_state)
    )


@flushed
def _up(gradient: Array) -> Array:
    scaled: Array = gradient * 2.0**UP
    return scaled


def scaled_norms(squares: Array, descent: Descent, d_state: Array | None) -> Array:
    """``|dL/ds_{t+1}|``, (T, B, n_states), where some of the sums of their squares left the range of float64.

    The rows themselves have been overwritten, so the backward pass is made once more: where sums are too small, from
    the first such window on with gradients scaled up, which changes no digit, since a gradient is linear in what
    enters; for rows whose sums are too large, step by step.
    """
    d, d_output = descent.d, descent.d_output
    norms: Array = np.sqrt(squares)
    wide = ~(squares.max(axis=(0, 2)) < WIDE)
    small = (squares < SMALLEST_SUM) & ~wide[:, None]
    if small.any():
        noted, last = descent.noted, int(np.flatnonzero(small.any(axis=(1, 2)))[-1])
        with np.errstate(over="ignore"):
            R = d.layout.R
            rows = None if d_output is None else Rows(_up(d_output.view(R)).reshape(-1), R, d_output.n)
            start = None if d_state is None else _up(d_state)
            again = type(descent)(d, descent.params, descent.record, rows, start)
            if noted is not None and last < noted[0]:
                again.below, again.rows[:] = noted[0], _up(noted[1])
        for _ in again.windows():
            pass
        found = np.sqrt(again.squares.reshape(squares.shape)[small]) * 2.0**-UP
        # a norm below the smallest normal number belongs to numbers that count as zero
        norms[small] = np.where(found < np.finfo(np.float64).smallest_normal, 0.0, found)
    if wide.any():
        again = type(descent)(d, descent.params, descent.record, d_output, d_state)
        again.norms = np.zeros(squares.shape)
        for _ in again.windows(steps=1):
            pass
        norms[:, wide] = again.norms[:, wide]
    return norms
