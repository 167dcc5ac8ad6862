"""Sums of weight gradients over many rows, in float32 without losing digits.

A chain of n additions in float32 is wrong by up to n roundings, and nearly reaches that bound if all terms are alike:
one per cent after a million. So the sums for biases are in float64; those for weights are in float32 within blocks of
rows, and the blocks are added in float64. Blocks are counted from the last row on, wherever a window of backpropagation
ends, so that no bit depends on the windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import parallel, wide
from ...kernels.vector import lanes_of
from .buffers import scratch

Array = NDArray[Any]

BLOCK_ROWS = 1024
"""Rows of a block: so many that folding costs little compared with the sums themselves, since it moves every sum to
memory and back, and so few that a chain of them is about as exact as a good matrix product."""

WIDE = np.dtype(np.float64)


class Sums:
    """The sum of delta over rows, and ``height`` rows of sums of its products with other numbers.

    Parameters
    ----------
    name : str
        Name of the memory that is used; only one sum may use a name at a time.
    height, stride : int
        Number of rows of sums, and of numbers in each.
    dtype : numpy.dtype
        float32 or float64. In float64, a single chain runs over all rows.

    Attributes
    ----------
    rows : ndarray, flat
        What pieces are added to.
    """

    def __init__(self, name: str, height: int, stride: int, dtype: np.dtype[Any]) -> None:
        self.name, self.height, self.stride = name, height, stride
        self._flat = scratch().take(name, (1 + height) * stride, dtype, weights=True)
        self._flat[:] = 0
        self.rows = self._flat[stride:]
        self._bias = np.zeros(stride)
        self._room = BLOCK_ROWS
        self._total: Array | None = None

    def add(
        self, delta: Array, n: int, vectors: int, flops: float, piece: Callable[[int, int, int, int], object]
    ) -> None:
        """Add rows, the last one first; threads share the columns.

        Parameters
        ----------
        delta : ndarray, flat
            n rows, with the stride of the sums.
        n : int
            Number of rows.
        vectors : int
            Number of vectors of columns.
        flops : float
            Number of operations in total.
        piece : callable
            ``piece(r0, r1, v0, v1)`` adds rows r0 <= r < r1 of the vectors v0 <= v < v1 to ``rows``.
        """
        pieces = self._pieces(n)

        def work(v0: int, v1: int) -> None:
            wide.column_sums(delta, self.stride, 0, n, v0, v1, self._bias)
            for r0, r1, full in pieces:
                piece(r0, r1, v0, v1)
                if full:
                    self._fold(v0, v1)

        parallel.run(work, parallel.slabs(vectors, parallel.COLUMNS, flops))

    def _pieces(self, n: int) -> list[tuple[int, int, bool]]:
        """Where the next n rows are cut: first row, end, and whether they complete a block."""
        if self.rows.dtype == WIDE or n < self._room:
            self._room -= n
            return [(0, n, False)]
        pieces, end = [], n
        while end:
            start = max(0, end - self._room)
            self._room -= end - start
            pieces.append((start, end, not self._room))
            self._room = self._room or BLOCK_ROWS
            end = start
        self._begin_total()
        return pieces

    def pass_over(self, n: int) -> None:
        """Count n rows of zeros, so that blocks end where they would if these had been added."""
        if self.rows.dtype != WIDE and n >= self._room:
            self._begin_total()
            self._fold(0, self.stride // lanes_of(self.rows.itemsize))
            n = (n - self._room) % BLOCK_ROWS
            self._room = BLOCK_ROWS
        self._room -= n

    def _begin_total(self) -> None:
        if self._total is None:
            self._total = scratch().take(f"{self.name} total", self.rows.size, WIDE, weights=True)
            self._total[:] = 0

    def _fold(self, v0: int, v1: int) -> None:
        """Move the sums of some vectors of columns to the total."""
        wide.fold(self.rows, self.stride, self.height, v0, v1, self._total)
        lanes = lanes_of(self.rows.itemsize)
        self.rows.reshape(self.height, self.stride)[:, v0 * lanes : v1 * lanes] = 0

    def finish(self) -> Array:
        """The sum of delta, then the other rows, flat; each rounded once."""
        lanes = lanes_of(self._flat.itemsize)
        wide.narrow(self._flat, self._bias, self.stride // lanes)
        if self._total is not None:
            wide.narrow(self.rows, self._total, self.rows.size // lanes)
            self._total = None
        return self._flat
