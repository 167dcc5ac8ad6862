"""Rows times a weight matrix, forward and backward: what layers without recurrence consist of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...cells.gradients import gradients
from ...kernels import packing, parallel, tile
from ...kernels.vector import lanes_of
from .buffers import Buffers, scratch
from .rows import ROWS, Rows
from .sums import Sums

Array = NDArray[Any]

ALONE = np.zeros(1, np.intp)
"""The order of gates for a matrix with a single one."""


class Blocks:
    """Blocks of rows to transpose, as :func:`elman.kernels.packing.transpose` takes them; made once per layer."""

    def __init__(self, table: NDArray[np.intp]) -> None:
        self.table = table

    @classmethod
    def of(cls, starts: Any, heights: Any, stride: int, width: int, places: Any, to_stride: int, least: int) -> Blocks:
        """From the start, the height and the new place of each."""
        columns = np.broadcast_arrays(starts, heights, stride, width, places, to_stride, least)
        return cls(np.stack(columns, axis=1).astype(np.intp))

    def moved(self, source: int, to: int) -> Blocks:
        """The same blocks, moved by these offsets."""
        return Blocks(self.table + np.array([source, 0, 0, 0, to, 0, 0], np.intp))

    def __add__(self, other: Blocks) -> Blocks:
        return Blocks(np.concatenate([self.table, other.table]))

    def transpose(self, source: Array, to: Array) -> None:
        """Write the blocks of a flat array to another."""
        packing.transpose(source, to, self.table)


def panels_of(order: NDArray[np.intp], H: int, J: int, itemsize: int) -> Blocks:
    """From a weight matrix (gates * H, J) to panels ``[block][vector of units][column]``, for ``x @ W^T``.

    ``order`` says which gate of the matrix each block is. Units that do not exist become zeros.
    """
    lanes = lanes_of(itemsize)
    units = np.arange(0, H, lanes)
    starts = ((order[:, None] * H + units) * J).reshape(-1)
    heights = np.tile(np.minimum(lanes, H - units), len(order))
    return Blocks.of(starts, heights, J, J, np.arange(len(starts)) * J * lanes, lanes, lanes)


def columns_of(order: NDArray[np.intp], H: int, Hp: int, first: int, stride: int, rows: int) -> Blocks:
    """From ``rows`` rows ``[block][Hp]`` of a sum of weight gradients to a matrix (gates * H, rows): the reverse.

    The rows begin at ``first`` and are ``stride`` apart.
    """
    return Blocks.of(first + np.arange(len(order)) * Hp, rows, stride, H, order * (H * rows), rows, 0)


class Packed(NamedTuple):
    """A weight matrix in panels, and the padded bias."""

    P: Array
    bias: Array


class Affine:
    """``y = W a + b`` on rows, with W (Q, K) in PyTorch's layout.

    Parameters
    ----------
    K, Q : int
        Sizes of input and output.
    dtype : numpy.dtype
        float32 or float64.
    """

    def __init__(self, K: int, Q: int, dtype: np.dtype[Any]) -> None:
        self.K, self.Q, self.dtype = K, Q, dtype
        self.Qp = tile.padded(Q, dtype.itemsize)
        self.stride = tile.row_stride(Q, dtype.itemsize)
        self.vectors = self.Qp // lanes_of(dtype.itemsize)
        self.panels = panels_of(ALONE, Q, K, dtype.itemsize)
        self.columns = columns_of(ALONE, Q, self.Qp, self.stride, self.stride, K)

    def pack(self, W: Array, b: Array | None, buffers: Buffers) -> Packed:
        """Pack W and b as the product reads them."""
        bias = buffers.take("affine_bias", self.Qp, self.dtype)
        bias[:] = 0
        if b is not None:
            bias[: self.Q] = b
        P = buffers.take("affine", self.Qp * self.K, self.dtype, weights=True)
        self.panels.transpose(W.reshape(-1), P)
        return Packed(P, bias)

    def apply(self, packed: Packed, a: Rows, name: str, buffers: Buffers) -> Rows:
        """``a @ W^T + b`` as padded rows called ``name``."""
        to = Rows(buffers.take(name, a.n * self.stride, self.dtype), self.stride, a.n)
        return self._product(a, packed.P, self.K, self.vectors, packed.bias, to)

    def forward(self, W: Array, b: Array | None, a: Rows, name: str, buffers: Buffers) -> Rows:
        """:meth:`apply` with weights that are packed for this call only."""
        return self.apply(self.pack(W, b, scratch()), a, name, buffers)

    def place(self, d: Array, name: str, buffers: Buffers) -> Rows:
        """Gradients (n, Q) as padded rows called ``name``."""
        rows = Rows(buffers.take(name, len(d) * self.stride, self.dtype), self.stride, len(d))
        rows.flat[:] = 0
        rows.view(self.Q)[...] = d
        return rows

    def gradients(self, a: Rows, delta: Rows, d_W: Array, d_b: Array | None) -> None:
        """Write ``delta^T a`` to d_W (Q, K) and the sum of delta to d_b (Q,)."""
        sums = Sums("affine_dW", self.K, self.stride, self.dtype)

        def piece(r0: int, r1: int, v0: int, v1: int) -> None:
            # without a state
            gradients(
                a.flat, a.stride, sums.rows, 0, sums.rows, 0, delta.flat, delta.stride, self.K, self.Q, 0, self.vectors,
                0, r0, r1, v0, v1, sums.rows, self.stride,
            )  # fmt: skip

        sums.add(delta.flat, a.n, self.vectors, 2.0 * a.n * self.K * self.Q, piece)
        out = sums.finish()
        self.columns.transpose(out, d_W.reshape(-1))
        if d_b is not None:
            d_b[...] = out[: self.Q]

    def input_gradient(self, W: Array, delta: Rows, name: str, buffers: Buffers) -> Rows:
        """``delta @ W`` as padded rows called ``name``."""
        size = self.dtype.itemsize
        Kp, stride = tile.padded(self.K, size), tile.row_stride(self.K, size)
        P = scratch().take("affine", Kp * self.Q, self.dtype, weights=True)
        packing.pack_back(W.reshape(-1), ALONE, self.Q, self.K, P)
        zeros = scratch().take("affine_bias", Kp, self.dtype)
        zeros[:] = 0
        to = Rows(buffers.take(name, delta.n * stride, self.dtype), stride, delta.n)
        return self._product(delta, P, self.Q, Kp // lanes_of(size), zeros, to)

    def _product(self, a: Rows, P: Array, K: int, vectors: int, bias: Array, to: Rows) -> Rows:
        def work(n0: int, n1: int) -> None:
            tile.affine(a.flat, a.stride, P, K, vectors, bias, to.flat, to.stride, n0, n1)

        parallel.run(work, parallel.slabs(a.n, ROWS, 2.0 * a.n * K * vectors * lanes_of(self.dtype.itemsize)))
        return to
