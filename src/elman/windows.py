"""Windows of a series as one array that takes no memory of its own: batches are cut from it when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PART = 1 << 20  # numbers that are read together: some megabytes


class Windows(np.ndarray[Any, Any]):
    """Windows of a series, shape (T, B, D): a read-only view of it, in which overlapping windows share their numbers.

    It is an array in all respects. Slices of it, such as ``w[:-1]`` and ``w[1:, :, :1]``, are views of the same kind;
    :func:`elman.fit` and :func:`elman.diagnose` cut from them what they need at a time, whether the series is in memory
    or in a memory-mapped file. Any other computation reads all of it, and makes a full array. Made by
    :func:`elman.datasets.windows`.
    """

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return what is computed from windows as an ordinary array."""
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __reduce__(self) -> Any:
        """Pickle the numbers themselves: in another process it is an ordinary array."""
        return np.asarray(self).copy().__reduce__()


def lies_elsewhere(a: Any) -> bool:
    """Whether an array is to be read in place, a batch at a time: windows of a series, or a memory-mapped file."""
    return isinstance(a, Windows | np.memmap)


def spread(x: Any, axis: int, most: int) -> Array | None:
    """Indices of ``most`` windows, evenly spaced from the first to the last; None if these are no windows, or fewer.

    Parameters
    ----------
    x : object
        :class:`Windows` or anything else, (T, B, D) or (B, T, D).
    axis : int
        Axis along which the windows are counted.
    """
    if not isinstance(x, Windows) or x.ndim != 3 or x.shape[axis] <= most:
        return None
    return np.linspace(0, x.shape[axis] - 1, most).astype(np.intp)


def in_parts(a: Array) -> Iterator[Array]:
    """All the numbers of an array, some megabytes at a time; numbers that windows share come only once.

    Parameters
    ----------
    a : ndarray
        An array; of windows (T, B, D) in that order or with the first two axes exchanged.
    """
    shared = _rows(a) if isinstance(a, Windows) and a.ndim == 3 and a.size else None
    rows = np.asarray(a) if shared is None else shared
    step = max(1, PART // max(1, rows[:1].size))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _rows(a: Array) -> Array | None:
    """The steps (n, D) that windows are made of, each once; None if there are gaps between the windows."""
    for time, batch in ((0, 1), (1, 0)):
        one, between = a.strides[time], a.strides[batch]
        shift = between // one if one else 0
        if one > 0 and shift > 0 and between == shift * one and shift <= a.shape[time]:
            n = a.shape[time] + (a.shape[batch] - 1) * shift
            view = np.asarray(a)
            return np.lib.stride_tricks.as_strided(view, (n, a.shape[2]), (one, a.strides[2]), writeable=False)
    return None
