"""One cell run over one direction of one layer: packing, slabs over threads, and what a kernel's status means.

Nothing here knows a cell by name: sizes, gate blocks and kernels come from its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cells import Cell
from ..errors import NonFiniteError
from ..kernels import parallel, tile
from ..kernels.vector import lanes_of
from .buffers import Buffers, scratch

Array = NDArray[Any]
ROWS = 4
"""Batch rows that a tile takes together; a slab is a multiple of it."""


class Record(NamedTuple):
    """What a forward pass leaves for a backward pass: flat padded arrays.

    Attributes
    ----------
    T, B : int
        Steps and rows.
    x : ndarray, flat
        Inputs, ``x_rs`` apart.
    states : ndarray, flat
        ``slots * B`` rows.
    gates : ndarray, flat
        ``T * B`` rows, empty for a cell that stores none.
    slots : int
        ``T + 1``, or 2 where only the last state is wanted.
    layout : tuple
        Cell, sizes and dtype of the direction that made it: only one of the same layout may read the arrays.
    """

    T: int
    B: int
    x: Array
    x_rs: int
    states: Array
    gates: Array
    slots: int
    layout: tuple[Any, ...]


class Direction:
    """The kernels of a cell bound to sizes and parameters.

    Parameters
    ----------
    cell : Cell
        The record.
    variant : str
        One of ``cell.variants``.
    D, H : int
        Sizes of input and hidden state.
    dtype : numpy.dtype
        float32 or float64.
    suffix : str
        End of the parameters' names, such as ``"_l0"``.
    """

    def __init__(self, cell: Cell, variant: str, D: int, H: int, dtype: np.dtype[Any], suffix: str) -> None:
        self.cell, self.variant, self.D, self.H, self.dtype, self.suffix = cell, variant, D, H, dtype, suffix
        self.code = cell.variants.index(variant)
        self.label = cell.name + suffix
        self.layout = (cell.name, variant, D, H, dtype.char)
        self.weight_ih, self.weight_hh = "weight_ih" + suffix, "weight_hh" + suffix
        self.bias_ih, self.bias_hh = "bias_ih" + suffix, "bias_hh" + suffix
        self.keys = {name: name + suffix for name in ("states", "gates", "d_state", "delta")}
        size, self.n_gates, self.n_states = dtype.itemsize, len(cell.gates), len(cell.states)
        self.Hp = tile.padded(H, size)
        self.vectors = cell.blocks * self.Hp // lanes_of(size)
        self.s_rs = tile.row_stride(self.n_states * self.Hp, size)
        self.g_rs = tile.row_stride(len(cell.stored) * self.Hp, size)
        self.d_rs = tile.row_stride(cell.blocks * self.Hp, size)
        self.state_size = self.n_states * H
        # W_ih feeds the first n_gates blocks of a row and W_hh the last ones; a product reads so many numbers of them
        self.reach = (self.n_gates - 1) * self.Hp + H
        self.h_first = cell.blocks - self.n_gates
        self.x_order = [cell.gates.index(gate) for gate in cell.x_blocks]
        self.h_order = [cell.gates.index(gate) for gate in cell.h_blocks]

    def shapes(self, bias: bool) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        G = self.n_gates * self.H
        shapes: dict[str, tuple[int, ...]] = {self.weight_ih: (G, self.D), self.weight_hh: (G, self.H)}
        return shapes | ({self.bias_ih: (G,), self.bias_hh: (G,)} if bias else {})

    @cached_property
    def _zero(self) -> Array:
        return np.zeros(lanes_of(self.dtype.itemsize), self.dtype)

    @cached_property
    def _one(self) -> Array:
        return np.ones(1, self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def _ordered(self, W: Array, order: list[int]) -> Array:
        """A weight matrix with its gates in the order of the blocks, flat; itself where that is its own order."""
        if order == sorted(order):
            return W.reshape(-1)
        return W.reshape(self.n_gates, -1)[order].reshape(-1)

    def pack(self, W: Array, order: list[int], name: str, buffers: Buffers) -> Array:
        """Panels of a weight matrix (G, J) for ``x @ W^T``."""
        J = W.shape[1]
        P = buffers.take(name, self.n_gates * self.Hp * J, self.dtype)
        tile.pack(self._ordered(W, order), self.n_gates, self.H, J, P)
        return P

    def pack_back(self, W: Array, order: list[int], name: str, buffers: Buffers) -> Array:
        """Panels of a weight matrix (G, J) for ``delta @ W``."""
        J = W.shape[1]
        P = buffers.take(name, tile.padded(J, self.dtype.itemsize) * self.reach, self.dtype)
        tile.pack_back(self._ordered(W, order), self.n_gates, self.H, J, P)
        return P

    def pack_bias(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """The bias of every block, padded; zeros without bias."""
        blocks = self.cell.blocks
        bias = buffers.take("bias", blocks * self.Hp, self.dtype)
        b_ih = params.get(self.bias_ih)
        if b_ih is None:
            bias[:] = 0
            return bias
        b_hh = params[self.bias_hh]
        if blocks > self.n_gates:
            b_ih = np.append(self._ordered(b_ih, self.x_order), np.zeros(self.h_first * self.H, self.dtype))
            b_hh = np.append(np.zeros(self.h_first * self.H, self.dtype), self._ordered(b_hh, self.h_order))
        tile.pack_bias(b_ih, b_hh, blocks, self.H, bias)
        return bias

    def place_state(self, rows: Array, state: Array | None) -> None:
        """Write states (B, n_states, H), or zeros, to padded flat rows."""
        rows[:] = 0
        if state is not None:
            self.state_view(rows, len(state))[...] = state

    def state_view(self, rows: Array, n: int) -> Array:
        """``n`` padded state rows as an array (n, n_states, H): a view."""
        step = self.dtype.itemsize
        shape, strides = (n, self.n_states, self.H), (self.s_rs * step, self.Hp * step, step)
        return np.ndarray(shape, self.dtype, rows, 0, strides)

    def gate_views(self, record: Record) -> dict[str, Array]:
        """What the cell stored, by name: read-only views (T, B, H)."""
        rows = record.gates.reshape(record.T, record.B, self.g_rs) if self.cell.stored else record.gates
        views = {}
        for i, name in enumerate(self.cell.stored):
            views[name] = rows[:, :, i * self.Hp : i * self.Hp + self.H]
            views[name].flags.writeable = False
        return views

    def forward(
        self, params: Mapping[str, Array], x: Array, x_rs: int, T: int, B: int, state: Array | None, keep: bool,
        out: Array, buffers: Buffers,
    ) -> Record:  # fmt: skip
        """Run the cell from ``state`` (B, n_states, H), or from zeros.

        With ``keep`` all states and gates stay in ``buffers``; else only the last, and ``out`` (T * B * H, flat)
        receives the outputs.

        Raises
        ------
        NonFiniteError
            Naming the first step and sample.
        """
        slots = T + 1 if keep else 2
        states = buffers.take(self.keys["states"], slots * B * self.s_rs, self.dtype)
        gates = buffers.take(self.keys["gates"], (T if keep else 1) * B * self.g_rs, self.dtype)
        self.place_state(states[: B * self.s_rs], state)
        record = Record(T, B, x, x_rs, states, gates, slots, self.layout)
        if T * B == 0:
            return record
        P_ih = self.pack(params[self.weight_ih], self.x_order, "P_ih", scratch())
        P_hh = self.pack(params[self.weight_hh], self.h_order, "P_hh", scratch())
        bias = self.pack_bias(params, scratch())

        def work(b0: int, b1: int) -> int:
            status: int = self.cell.forward(
                self.code, x, x_rs, P_ih, P_hh, bias, states, self.s_rs, gates, self.g_rs, out,
                self.D, self.H, B, slots, 0, T, b0, b1,
            )  # fmt: skip
            return status

        ranges = parallel.slabs(B, ROWS, self._flops(T * B, self.D + self.H))
        self._raise_if_failed(params, record, ranges, parallel.run(work, ranges))
        return record

    def _flops(self, rows: int, k: int) -> float:
        return 2.0 * rows * k * self.H * self.n_gates

    def _raise_if_failed(
        self, params: Mapping[str, Array], record: Record, ranges: list[tuple[int, int]], statuses: list[int]
    ) -> None:
        """Turn the earliest failing status of all slabs into an exception that names step and sample."""
        failed = [(t, b0, b1) for t, (b0, b1) in zip(statuses, ranges, strict=True) if t >= 0]
        if not failed:
            return
        t, b0, b1 = min(failed)
        slot = (t + 1) % record.slots * record.B
        rows = self.state_view(record.states[(slot + b0) * self.s_rs :], b1 - b0)
        bad = np.argwhere(~np.isfinite(rows))
        sample, part = b0 + int(bad[0, 0]), self.cell.states[int(bad[0, 1])]
        broken = [name for name, p in params.items() if not np.isfinite(p).all()]
        cause = (
            f"{broken[0]} holds numbers that are not finite: load weights that are"
            if broken
            else "the weights or inputs are too large: scale weight_hh down, or clip gradients while training"
        )
        raise NonFiniteError(
            f"{self.label}: the state {part} must stay finite, but stopped being so at step {t} of sample {sample}; "
            f"{cause}",
            what="state", layer=self.label, gate=part, step=t, sample=sample,
        )  # fmt: skip

    def last_state(self, record: Record) -> Array:
        """The final state (B, n_states, H), a copy."""
        at = record.T % record.slots * record.B * self.s_rs
        return self.state_view(record.states[at:], record.B).copy()

    def backward(
        self,
        params: Mapping[str, Array],
        record: Record,
        d_output: Array,
        y_rs: int,
        d_state: Array | None,
        buffers: Buffers,
    ) -> tuple[Array, Array, Array]:
        """Sweep back through the whole record.

        Parameters
        ----------
        d_output : ndarray, flat
            Rows t * B + b, ``y_rs`` apart, or empty.
        d_state : ndarray, shape (B, n_states, H), or None
            Gradient of the final state; None for zero.

        Returns
        -------
        delta : ndarray, flat
            Pre-activation gradients, T * B rows.
        d_initial : ndarray, shape (B, n_states, H)
            Gradient of the initial state.
        norms : ndarray, shape (T, B, n_states), float64
            ``|dL/ds_{t+1}|``, all that flows into each state after step t. Squares are added up in float64, so that
            norms below 1e-154 or above 1e154 come out as 0 or inf.
        """
        T, B = record.T, record.B
        rows = buffers.take(self.keys["d_state"], B * self.s_rs, self.dtype)
        self.place_state(rows, d_state)
        delta = buffers.take(self.keys["delta"], T * B * self.d_rs, self.dtype)
        squares = np.empty(T * B * self.n_states)
        if T * B:
            P_back = self.pack_back(params[self.weight_hh], self.h_order, "P_back", scratch())
            self.sweep(record, d_output, y_rs, P_back, delta, rows, squares, 1, True, 0, T)
        return delta, self.state_view(rows, B).copy(), np.sqrt(squares).reshape(T, B, self.n_states)

    def sweep(
        self, record: Record, d_output: Array, y_rs: int, P_back: Array, delta: Array, d_state: Array, squares: Array,
        K: int, keep: bool, t0: int, t1: int,
    ) -> None:  # fmt: skip
        """The backward kernel over all slabs; see :class:`elman.cells.Cell` for the arrays."""

        def work(b0: int, b1: int) -> None:
            self.cell.backward(
                self.code, d_output, y_rs, P_back, self._zero, record.states, self.s_rs, record.gates, self.g_rs,
                delta, self.d_rs, d_state, squares, self.H, record.B, K, int(keep), t0, t1, b0, b1,
            )  # fmt: skip

        flops = self._flops((t1 - t0) * record.B * K, self.H)
        parallel.run(work, parallel.slabs(record.B, max(1, ROWS // K), flops))

    def tangent(self, record: Record, P_hh: Array, V: Array, squares: Array, K: int, t0: int, t1: int) -> None:
        """The tangent kernel over all slabs."""
        rows = record.B * K * self.d_rs if self.cell.stored else 0
        blocks = scratch().take("blocks", rows, self.dtype)

        def work(b0: int, b1: int) -> None:
            self.cell.tangent(
                self.code, P_hh, self._zero, record.states, self.s_rs, record.gates, self.g_rs, blocks, self.d_rs,
                V, self.s_rs, squares, self.H, record.B, K, t0, t1, b0, b1,
            )  # fmt: skip

        flops = self._flops((t1 - t0) * record.B * K, self.H)
        parallel.run(work, parallel.slabs(record.B, max(1, ROWS // K), flops))

    def gradients(self, record: Record, delta: Array, out: Mapping[str, Array]) -> None:
        """Write the weight gradients to the views ``out``: sums over T * B rows in one order; threads share columns."""
        T, B, D, H = record.T, record.B, self.D, self.H
        dW = scratch().take("dW", (1 + D + H) * self.d_rs, self.dtype)
        dW[:] = 0
        U = self.Hp // lanes_of(self.dtype.itemsize)
        x1, h0 = self.n_gates * U, self.h_first * U

        def work(v0: int, v1: int) -> None:
            self.cell.gradients(
                record.x, record.x_rs, record.states, self.s_rs, delta, self.d_rs, self._one, D, H, x1, h0, 0, T * B,
                v0, v1, dW, self.d_rs,
            )  # fmt: skip

        if T * B:
            parallel.run(work, parallel.slabs(self.vectors, tile.COLUMNS, self._flops(T * B, D + H)))
        gates, blocks = self.n_gates, self.cell.blocks
        rows = dW.reshape(1 + D + H, self.d_rs)[:, : blocks * self.Hp].reshape(1 + D + H, blocks, self.Hp)[:, :, :H]
        of_x, of_h = rows[:, :gates], rows[:, self.h_first :]
        out[self.weight_ih].reshape(gates, H, D)[self.x_order] = of_x[1 : 1 + D].transpose(1, 2, 0)
        out[self.weight_hh].reshape(gates, H, H)[self.h_order] = of_h[1 + D :].transpose(1, 2, 0)
        if self.bias_ih in out:
            out[self.bias_ih].reshape(gates, H)[self.x_order] = of_x[0]
            out[self.bias_hh].reshape(gates, H)[self.h_order] = of_h[0]

    def input_gradient(self, params: Mapping[str, Array], record: Record, delta: Array) -> Array:
        """``dL/dx`` as an array (T, B, D)."""
        T, B, D = record.T, record.B, self.D
        Dp = tile.padded(D, self.dtype.itemsize)
        dX = scratch().take("dX", T * B * Dp, self.dtype)
        if dX.size:
            P = self.pack_back(params[self.weight_ih], self.x_order, "P_back", scratch())
            vectors = Dp // lanes_of(self.dtype.itemsize)
            zeros = scratch().take("dX_start", Dp, self.dtype)
            zeros[:] = 0
            ranges = parallel.slabs(T * B, ROWS, self._flops(T * B, D))
            parallel.run(
                lambda n0, n1: tile.affine(delta, self.d_rs, P, self.reach, vectors, zeros, dX, Dp, n0, n1), ranges
            )
        return dX.reshape(T, B, Dp)[:, :, :D].copy()
