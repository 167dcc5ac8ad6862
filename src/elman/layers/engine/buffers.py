"""Memory reused between calls: on medium-sized problems fresh pages cost more than the arithmetic done in them."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


CACHE_LINE = 64

KEPT_BYTES = 1 << 22
"""Size of the largest scratch array that is reused if its size grows with a call: windows of steps take no more."""


def aligned(size: int, dtype: np.dtype[Any]) -> Array:
    """A flat array that starts on a cache line: a vector across two lines costs two loads, up to half of the speed."""
    if not size:
        return np.empty(0, dtype)
    memory = np.empty(size + CACHE_LINE // dtype.itemsize, dtype)
    # the fastest way to get an address; numbers lie at multiples of their size
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))  # type: ignore[arg-type]
    start = -address % CACHE_LINE // dtype.itemsize
    return memory[start : start + size]


class Buffers:
    """Flat arrays by name; each is reused, and replaced when a larger one is needed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Array] = {}

    def take(self, name: str, size: int, dtype: np.dtype[Any], *, weights: bool = False) -> Array:
        """The first ``size`` numbers of the array called ``name``; they hold what its last use left in them."""
        key = name, dtype.char
        kept = self._kept.get(key)
        if kept is None or kept.size < size:
            kept = self._kept[key] = aligned(size, dtype)
        return kept[:size]


class Fresh(Buffers):
    """New memory each time, for results that the caller keeps."""

    def take(self, name: str, size: int, dtype: np.dtype[Any], *, weights: bool = False) -> Array:
        """A new array."""
        return aligned(size, dtype)


class Scratch(Buffers):
    """Memory of one thread: arrays the size of weights are reused, of those that grow with a call only small ones."""

    def take(self, name: str, size: int, dtype: np.dtype[Any], *, weights: bool = False) -> Array:
        """As :meth:`Buffers.take`; ``weights`` says that the array has the size of weights."""
        if not weights and size * dtype.itemsize > KEPT_BYTES:
            return aligned(size, dtype)
        return super().take(name, size, dtype)


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.buffers = Scratch()


_scratch = _Scratch()


def scratch() -> Scratch:
    """Buffers of this thread, for what is not needed after the present call: packed weights and the like."""
    return _scratch.buffers
