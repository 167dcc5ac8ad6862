"""Arrays of which samples are taken: in memory, or where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..validation.arrays import all_finite, finite
from ..windows import in_parts, lies_elsewhere

Array = NDArray[Any]


class Stored:
    """An array with samples along one axis, and the memory that batches of it are copied into.

    Parameters
    ----------
    array : ndarray
        Contiguous and of ``dtype``, or one that :func:`lies_elsewhere`, of which a batch is converted at a time.
    axis : int
        Axis of the samples.
    dtype : numpy.dtype
        Of batches.
    """

    def __init__(self, array: Array, axis: int, dtype: np.dtype[Any]) -> None:
        self.array, self.axis, self.dtype = array, axis, dtype
        self.elsewhere = lies_elsewhere(array)
        self._kept: dict[tuple[int, int], Array] = {}

    def take(self, samples: Array, slot: int) -> Array:
        """Copy samples into kept memory: the next call with as many and the same slot overwrites it."""
        a, key = self.array, (len(samples), slot)
        kept = self._kept.get(key)
        if kept is None:
            shape = (*a.shape[: self.axis], len(samples), *a.shape[self.axis + 1 :])
            kept = self._kept[key] = np.empty(shape, self.dtype)
        if self.elsewhere:
            with np.errstate(over="ignore"):
                kept[...] = np.asarray(a)[(slice(None),) * self.axis + (samples,)]
        else:
            # mode="clip" writes straight into `out`; the default mode goes through a temporary
            a.take(samples, self.axis, kept, "clip")
        return kept


def check_parts(a: Array, name: str, dtype: np.dtype[Any], gaps: bool = False) -> None:
    """Refuse numbers that are not finite in an array that lies elsewhere, reading some megabytes at a time.

    Parameters
    ----------
    dtype : numpy.dtype
        Numbers beyond its range count as infinite.
    gaps : bool
        Whether NaN is allowed.

    Raises
    ------
    ArgumentError
        With one such number.
    """
    for part in in_parts(a):
        with np.errstate(over="ignore"):
            numbers = part.astype(dtype, copy=False)
        if gaps:
            numbers = np.where(np.isnan(numbers), dtype.type(0), numbers)
        if not all_finite(numbers):
            bad = numbers[~np.isfinite(numbers)][0]
            raise ArgumentError(
                f"{name} must be finite, and holds {bad}: fill or remove missing values of the series first (numbers "
                f"beyond the range of {dtype} count as infinite)"
            )


def check_filled(x: Array, name: str, time: int | None) -> None:
    """Refuse inputs that are not finite; NaN to the end of sequences is padding, for which there is a better cure.

    Raises
    ------
    ArgumentError
        With the place of the first.
    """
    if all_finite(x):
        return
    if time is not None and x.ndim == 3:
        gap = np.asarray(np.isnan(x).all(-1))
        steps = gap if time == 0 else gap.T
        padding = np.asarray(np.logical_and.accumulate(steps[::-1], axis=0))[::-1]
        rest = np.isfinite(x) | (padding if time == 0 else padding.T)[..., None]
        if padding.any() and rest.all():
            lengths = f"np.isfinite({name}).all(-1).sum({time})"
            raise ArgumentError(
                f"{name} must be finite; it holds NaN to the end of {int(padding.any(0).sum())} sequences, as padding "
                f"does: pass lengths={lengths}, the number of valid steps of each sequence; what lies beyond is never "
                "read"
            )
    finite(x, name)
