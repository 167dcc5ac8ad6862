"""Rows of numbers in flat memory, as kernels read and write them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROWS = 4
"""Number of rows that a tile takes together; the rows of a slab are a multiple of it."""


class Rows(NamedTuple):
    """``n`` rows of numbers in a flat array, ``stride`` apart; the numbers of a row are followed by zeros or other
    rows.
    """

    flat: NDArray[Any]
    stride: int
    n: int

    def view(self, size: int) -> NDArray[Any]:
        """The first ``size`` numbers of each row, as an array (n, size): a view."""
        step = self.flat.itemsize
        return np.ndarray((self.n, size), self.flat.dtype, self.flat, 0, (self.stride * step, step))
