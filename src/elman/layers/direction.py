"""One cell run over one direction of one layer: slabs over threads, and what a kernel's status means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NonFiniteError
from ..kernels import parallel, tile
from ..kernels import rows as kernels
from ..kernels.vector import lanes_of
from .affine import Rows
from .buffers import Buffers, scratch
from .schedule import Schedule
from .views import Record, Views

Array = NDArray[Any]
ROWS = 4
"""Batch rows that a tile takes together; a slab is a multiple of it."""


class Direction(Views):
    """The kernels of a cell bound to sizes; parameters: those of :class:`elman.layers.views.Views`."""

    def start(self, params: Mapping[str, Array], schedule: Schedule, state: Array | None, rows: Array) -> None:
        """Write the initial states: the caller's where a row carries on, else the learned ones, or zeros."""
        rows[:] = 0
        view = self.state_view(rows, schedule.B)
        for i, name in enumerate(self.initial):
            if name in params:
                view[:, i, : self.state_sizes[i]] = params[name]
        if state is not None:
            view[schedule.carried] = state[schedule.sequence[schedule.carried]]

    def _input(self, schedule: Schedule, x: Rows, buffers: Buffers) -> Rows:
        """Inputs in kernel order; as they are where that is the caller's."""
        if schedule.outer is None:
            return x
        n = schedule.T * schedule.B
        flat = buffers.take("x" + self.suffix, n * self.D, self.dtype)
        ordered = Rows(flat, self.D, n)
        schedule.gather(x, ordered, self.D)
        return ordered

    def forward(
        self, params: Mapping[str, Array], schedule: Schedule, x: Rows, state: Array | None, keep: bool,
        out: Rows | None, buffers: Buffers, kept: Array | None = None,
    ) -> Record:  # fmt: skip
        """Run the cell over the caller's rows of x.

        Parameters
        ----------
        state : ndarray, shape (outer_B, n_states, H), or None
            Initial state; the learned one, or zero, if None.
        keep : bool
            Whether all states and gates stay in ``buffers``; else only the last.
        out : Rows or None
            Receives the outputs (outer_T * outer_B, R), at the valid steps.
        kept : ndarray, shape (outer_T * outer_B, n_states, H), or None
            For a direction with zoneout in training: see there.

        Raises
        ------
        NonFiniteError
            Naming the first step and sample.
        """
        T, B, suffix = schedule.T, schedule.B, self.suffix
        slots = self.stretch * T + 1 if keep or self.stretch > 1 else 2
        states = buffers.take("states" + suffix, slots * B * self.s_rs, self.dtype)
        gates = buffers.take("gates" + suffix, (T if slots > 2 else 1) * B * self.g_rs, self.dtype)
        self.start(params, schedule, state, states[: B * self.s_rs])
        record = Record(schedule, self._input(schedule, x, buffers), states, gates, slots, state is not None, kept)
        if T * B:
            panels = self.pack_input(params, scratch()), self.pack_state(params, scratch())
            self._run(params, record, *panels, self.pack_bias(params, scratch()), out)
        return record

    def _run(
        self, params: Mapping[str, Array], record: Record, P_ih: Array, P_hh: Array, bias: Array, out: Rows | None
    ) -> None:
        """The forward kernel over all slabs."""
        schedule, x = record.schedule, record.x
        T, B = schedule.T, schedule.B
        rows, o_rs = (self._nothing, 0) if out is None else (out.flat, out.stride)
        if out is not None and schedule.outer is not None:
            rows, o_rs = scratch().take("out", T * B * self.R, self.dtype), self.R

        def work(b0: int, b1: int) -> int:
            status: int = self.cell.forward(
                self.code, x.flat, x.stride, P_ih, P_hh, bias, record.states, self.s_rs, record.gates, self.g_rs,
                rows, o_rs, self.D, self.H, self.R, B, record.slots, schedule.active, 0, T, b0, b1,
            )  # fmt: skip
            return status

        ranges = self._slabs(schedule, ROWS, self._flops(schedule.n_valid, self.D + self.R))
        failed = [(t, *r) for t, r in zip(parallel.run(work, ranges), ranges, strict=True) if t >= 0]
        if failed:
            raise self._failure(params, record, *min(failed))
        if out is not None and schedule.outer is not None:
            schedule.scatter(Rows(rows, self.R, T * B), out, self.R)

    @property
    def _nothing(self) -> Array:
        return self._zero[:0]

    def _flops(self, rows: int, k: int) -> float:
        return 2.0 * rows * k * self.H * self.n_gates

    def _slabs(self, schedule: Schedule, unit: int, flops: float) -> list[tuple[int, int]]:
        """Rows for each thread, of about as many steps together."""
        return parallel.slabs(schedule.B, unit, flops, None if schedule.full else schedule.lengths)

    def _failure(self, params: Mapping[str, Array], record: Record, t: int, b0: int, b1: int) -> NonFiniteError:
        """What to raise when a kernel stopped at step t of the rows b0 .. b1, with the caller's step and sample."""
        schedule = record.schedule
        n = min(b1, int(schedule.active[t])) - b0
        # the kernel wrote the slot after the one of step t
        slot = (self.stretch * t + 1) % record.slots * schedule.B
        view = self.state_view(record.states[(slot + b0) * self.s_rs :], n)
        found = [
            (int(b), i) for i, size in enumerate(self.state_sizes) for b in np.flatnonzero(_broken(view[:, i, :size]))
        ]
        if not found:
            raise AssertionError(f"{self.label}: cell.forward returned step {t}, at which every state is finite")
        b, i = found[0]
        step, sample = schedule.caller_place(t, b0 + b)
        broken = [name for name, p in params.items() if not np.isfinite(p).all()]
        cause = (
            f"{broken[0]} holds numbers that are not finite: load weights that are"
            if broken
            else "the weights or inputs are too large: scale weight_hh down, or clip gradients while training"
        )
        return NonFiniteError(
            f"{self.label}: the state {self.cell.states[i]} must stay finite, but stopped being so at step {step} of "
            f"sample {sample}; {cause}",
            what="state", layer=self.label, gate=self.cell.states[i], step=step, sample=sample,
        )  # fmt: skip

    def settle(self, record: Record, slot: int, out: Array) -> None:
        """What a stepper still does after the kernel, here nothing: see :class:`ZonedDirection`."""

    def backward(
        self, params: Mapping[str, Array], record: Record, d_output: Rows | None, d_state: Array | None,
        buffers: Buffers,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """Sweep back through the whole record.

        Parameters
        ----------
        d_output : Rows or None
            ``dL/d output`` (outer_T * outer_B, R) in the caller's order; None for zero.
        d_state : ndarray, shape (outer_B, n_states, H), or None
            Gradient of the final state; None for zero.

        Returns
        -------
        delta : ndarray, flat
            Pre-activation gradients, T * B rows in kernel order, of which only the valid ones mean something.
        d_initial : ndarray, shape (B, n_states, H)
            Gradient of the initial state of every row.
        squares : ndarray, shape (T, B, n_states), float64
            ``|dL/ds_{t+1}|^2`` in kernel order, likewise.
        """
        schedule = record.schedule
        T, B = schedule.T, schedule.B
        rows = buffers.take("d_state" + self.suffix, B * self.s_rs, self.dtype)
        rows[:] = 0
        view = self.state_view(rows, B)
        if d_state is not None:
            view[schedule.final] = d_state
        delta = buffers.take("delta" + self.suffix, T * B * self.d_rs, self.dtype)
        squares = np.empty(T * B * self.n_states)
        if T * B:
            dY, y_rs = self._output_gradient(schedule, d_output)
            P_back = self.pack_state_back(params, scratch())
            self.sweep(record, dY, y_rs, P_back, delta, rows, squares, 1, True, 0, T)
        return delta, view.copy(), squares.reshape(T, B, self.n_states)

    def _output_gradient(self, schedule: Schedule, d_output: Rows | None) -> tuple[Array, int]:
        """``dL/d output`` in kernel order, and how far apart its rows are."""
        if d_output is None:
            return self._nothing, 0
        if schedule.outer is None:
            return d_output.flat, d_output.stride
        n = schedule.T * schedule.B
        rows = scratch().take("dY", n * self.R, self.dtype)
        schedule.gather(d_output, Rows(rows, self.R, n), self.R)
        return rows, self.R

    def sweep(
        self, record: Record, d_output: Array, y_rs: int, P_back: Array, delta: Array, d_state: Array, squares: Array,
        K: int, keep: bool, t0: int, t1: int,
    ) -> None:  # fmt: skip
        """The backward kernel over all slabs; see :class:`elman.cells.Cell` for the arrays."""
        schedule = record.schedule

        def work(b0: int, b1: int) -> None:
            self.cell.backward(
                self.code, d_output, y_rs, P_back, self._zero, record.states, self.s_rs, record.gates, self.g_rs,
                delta, self.d_rs, d_state, squares, self.H, self.R, schedule.B, K, int(keep), schedule.active,
                t0, t1, b0, b1,
            )  # fmt: skip

        flops = self._flops((t1 - t0) * schedule.B * K, self.R)
        parallel.run(work, self._slabs(schedule, max(1, ROWS // K), flops))

    def tangent(
        self, record: Record, P_hh: Array, init: Array | None, V: Array, squares: Array, K: int, t0: int, t1: int
    ) -> None:
        """The tangent kernel over all slabs; the sums start from rows ``init``, or from zero."""
        B = record.schedule.B
        blocks = scratch().take("blocks", B * K * self.d_rs if self.cell.stored else 0, self.dtype)
        start, i_rs = (self._zero, 0) if init is None else (init, self.d_rs)

        def work(b0: int, b1: int) -> None:
            self.cell.tangent(
                self.code, P_hh, start, i_rs, record.states, self.s_rs, record.gates, self.g_rs, blocks, self.d_rs,
                V, self.s_rs, squares, self.H, self.R, B, K, t0, t1, b0, b1,
            )  # fmt: skip

        flops = self._flops((t1 - t0) * B * K, self.R)
        parallel.run(work, parallel.slabs(B, max(1, ROWS // K), flops))

    def jacobian(self, record: Record, weights: Array, t: int, b: int) -> Array:
        """One step's Jacobian (S, S); ``weights`` is W_hh, flat, then W_hr."""
        J = np.empty((self.state_size, self.state_size), self.dtype)
        self.cell.jacobian(
            self.code, weights, record.states, self.s_rs, record.gates, self.g_rs, self.H, self.R, record.schedule.B,
            t, b, J.reshape(-1),
        )  # fmt: skip
        return J

    def gradients(self, record: Record, delta: Array, d_initial: Array, out: Mapping[str, Array]) -> None:
        """Write the weight gradients to the views ``out``: sums over valid rows in one order; threads share columns."""
        n = record.schedule.n_valid
        add, dW = self._weight_sums(record, delta)
        if n:
            flops = self._flops(n, self.D + self.R)
            parallel.run(lambda v0, v1: add(0, n, v0, v1), parallel.slabs(self.vectors, tile.COLUMNS, flops))
        self._unpack_gradients(dW, out)
        restarted = d_initial if not record.given else d_initial[~record.schedule.carried]
        for i, (name, size) in enumerate(zip(self.initial, self.state_sizes, strict=True)):
            if name in out:
                out[name][...] = restarted[:, i, :size].sum(axis=0)

    def weight_norms(self, record: Record, delta: Array) -> Array:
        """What each step of sequences of one length adds to ``dL/dW_hh``: its Frobenius norm, (T,), in kernel order."""
        B, T, D, R = record.schedule.B, record.schedule.T, self.D, self.R
        add, dW = self._weight_sums(record, delta)
        of_h = dW.reshape(len(dW), -1, self.Hp)[1 + D : 1 + D + R, self.h_first : self.cell.blocks, : self.H]
        norms = np.zeros(T)
        for t in range(T if B else 0):
            dW[...] = 0
            add(t * B, (t + 1) * B, 0, self.vectors)
            norms[t] = np.sqrt(np.square(of_h, dtype=np.float64).sum())
        return norms

    def _weight_sums(self, record: Record, delta: Array) -> tuple[Callable[[int, int, int, int], None], Array]:
        """A function that adds ``[1, x, h]^T delta`` over valid rows r0..r1, vectors v0..v1, to the array beside it."""
        schedule, D, H, R = record.schedule, self.D, self.H, self.R
        height = 1 + D + R + self.cell.projects * H
        dW = scratch().take("dW", height * self.d_rs, self.dtype)
        dW[:] = 0
        U = self.Hp // lanes_of(self.dtype.itemsize)
        x1, h0 = self.n_gates * U, self.h_first * U
        n = schedule.T * schedule.B
        x = schedule.compact(record.x, D)
        states, gates, pre = (
            schedule.compact(Rows(flat, stride, n), stride)
            for flat, stride in ((self.read(record), self.s_rs), (record.gates, self.g_rs), (delta, self.d_rs))
        )

        def add(r0: int, r1: int, v0: int, v1: int) -> None:
            self.cell.gradients(
                x.flat, x.stride, states.flat, self.s_rs, gates.flat, self.g_rs, pre.flat, self.d_rs, self._one,
                D, H, R, x1, h0, r0, r1, v0, v1, dW, self.d_rs,
            )  # fmt: skip

        return add, dW.reshape(height, self.d_rs)[:, : self.vectors * lanes_of(self.dtype.itemsize)]

    def _unpack_gradients(self, dW: Array, out: Mapping[str, Array]) -> None:
        """From rows [1, x, h] of padded blocks to the parameters' own shapes and order of gates."""
        D, H, R, gates, blocks = self.D, self.H, self.R, self.n_gates, self.cell.blocks
        rows = dW.reshape(len(dW), -1, self.Hp)[:, :, :H]
        of_x, of_h = rows[:, :gates], rows[: 1 + D + R, self.h_first : blocks]
        out[self.weight_ih].reshape(gates, H, D)[self.x_order] = of_x[1 : 1 + D].transpose(1, 2, 0)
        out[self.weight_hh].reshape(gates, H, R)[self.h_order] = of_h[1 + D :].transpose(1, 2, 0)
        if self.bias_ih in out:
            out[self.bias_ih].reshape(gates, H)[self.x_order] = of_x[0]
            out[self.bias_hh].reshape(gates, H)[self.h_order] = of_h[0]
        if self.cell.projects:
            out[self.weight_hr][...] = rows[1 + D + R :, blocks, :R].T

    def input_rows(self, params: Mapping[str, Array], delta: Array, n: int) -> Rows:
        """``delta @ W_ih`` for n rows, in scratch memory."""
        Dp = tile.padded(self.D, self.dtype.itemsize)
        dX = scratch().take("dX", n * Dp, self.dtype)
        if dX.size:
            P = self.pack_input_back(params, scratch())
            vectors = Dp // lanes_of(self.dtype.itemsize)
            zeros = scratch().take("dX_start", Dp, self.dtype)
            zeros[:] = 0
            parallel.run(
                lambda n0, n1: tile.affine(delta, self.d_rs, P, self.reach, vectors, zeros, dX, Dp, n0, n1),
                parallel.slabs(n, ROWS, self._flops(n, self.D)),
            )
        return Rows(dX, Dp, n)

    def input_gradient(self, params: Mapping[str, Array], record: Record, delta: Array, out: Array, add: bool) -> None:
        """Write ``dL/dx`` at the valid steps to ``out`` (outer_T * outer_B, D), or add it to what stands there."""
        schedule, D = record.schedule, self.D
        rows = schedule.compact(Rows(delta, self.d_rs, schedule.T * schedule.B), self.d_rs)
        made = self.input_rows(params, rows.flat, schedule.n_valid)
        if schedule.outer is None:
            out[...] = made.view(D) + out if add else made.view(D)
        elif add:
            kernels.add(out.reshape(-1), D, schedule.outer, made.flat, made.stride, D)
        else:
            every = np.arange(schedule.n_valid)
            kernels.move(out.reshape(-1), D, schedule.outer, made.flat, made.stride, every, D)


def _broken(rows: Array) -> Any:
    """Which rows (n, size) hold something not finite."""
    return ~np.isfinite(rows).all(axis=1)
