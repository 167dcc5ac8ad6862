"""One cell run over one direction of one layer: slabs over threads, and what a kernel's status means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NonFiniteError
from ...kernels import parallel, tile
from ...kernels.vector import lanes_of
from .buffers import Buffers, scratch
from .layout import Panels
from .rows import ROWS, Rows
from .schedule import Schedule
from .views import Record, Views

Array = NDArray[Any]
PROJECT_BYTES = 1 << 16
"""Size of W_ih from which it pays to project the inputs of several steps together: twice a first-level cache."""

PROJECTED_ROWS = 64
"""Rows projected together: enough to hide the reading of the weights, few enough to stay in the cache."""


class Direction(Views):
    """The kernels of a cell bound to sizes; parameters: those of :class:`elman.layers.engine.views.Views`."""

    def start(self, params: Mapping[str, Array], schedule: Schedule, state: Array | None, rows: Array) -> None:
        """Write the initial states: the caller's where a row carries on, else the learned ones, or zeros."""
        rows[:] = 0
        if state is None and self.initial[0] not in params:
            return
        view = self.state_view(rows, schedule.B)
        if schedule.plain and state is not None:
            view[...] = state
            return
        for i, name in enumerate(self.initial):
            if name in params:
                view[:, i, : self.state_sizes[i]] = params[name]
        if state is not None:
            view[schedule.carried] = state[schedule.sequence[schedule.carried]]

    def _input(self, schedule: Schedule, x: Rows, buffers: Buffers) -> Rows:
        """Inputs in kernel order, where that is not the caller's."""
        n = schedule.T * schedule.B
        flat = buffers.take("x" + self.suffix, n * self.D, self.dtype)
        ordered = Rows(flat, self.D, n)
        schedule.gather(x, ordered, self.D)
        return ordered

    def forward(
        self, params: Mapping[str, Array], panels: Panels, schedule: Schedule, x: Rows, state: Array | None, keep: bool,
        out: Rows | None, buffers: Buffers, kept: Array | None = None, checkpoint: int = 0,
    ) -> Record:  # fmt: skip
        """Run the cell over the caller's rows of x.

        Parameters
        ----------
        panels : Panels
            The weights, packed.
        state : ndarray, shape (outer_B, n_states, H), or None
            Initial state; the learned one, or zero, if None.
        keep : bool
            Whether all states and gates stay in ``buffers``; else only the last.
        out : Rows or None
            Receives the outputs (outer_T * outer_B, R), at the valid steps.
        kept : ndarray, shape (outer_T * outer_B, n_states, H), or None
            For a direction with zoneout in training: see there.
        checkpoint : int
            Keep the state before every so many steps instead, and the last one; 0 for all.

        Raises
        ------
        NonFiniteError
            Naming the first step and sample.
        """
        T, B = schedule.T, schedule.B
        if checkpoint:
            slots, steps = -(-T // checkpoint) + 1, 0
        else:
            slots = self.slots(T) if keep else 2
            steps = T if slots > 2 else 1
        states = buffers.take(self.states_name, slots * B * self.s_rs, self.dtype)
        gates = buffers.take(self.gates_name, steps * B * self.g_rs, self.dtype)
        self.start(params, schedule, state, states[: B * self.s_rs])
        rows = x if schedule.base is None else self._input(schedule, x, buffers)
        record = Record(schedule, rows, states, gates, slots, state is not None, kept, checkpoint)
        if checkpoint and B:
            for t0 in range(0, T, checkpoint):
                self._carry(params, record, t0, panels, out)
        elif T * B and out is not None and schedule.base is not None and self.stretch == 1 and slots > 2:
            # the states that are kept are the outputs, and have to be moved in any case
            self._run(params, record, panels, None)
            schedule.scatter(Rows(states[B * self.s_rs :], self.s_rs, T * B), out, self.R)
        elif T * B:
            self._run(params, record, panels, out)
        return record

    def again(
        self, params: Mapping[str, Array], record: Record, t0: int, panels: Panels, out: Rows | None = None
    ) -> Record:
        """The window of a checkpointed pass that begins at step t0, with all states and gates, in scratch memory."""
        window = self.window(record, t0, min(t0 + record.checkpoint, record.schedule.T))
        T, size = window.schedule.T, record.schedule.B * self.s_rs
        slots, begins = self.slots(T), t0 // record.checkpoint * size
        states = scratch().take("window_states", slots * size, self.dtype)
        gates = scratch().take("window_gates", T * record.schedule.B * self.g_rs, self.dtype)
        states[:size] = record.states[begins : begins + size]
        window = window._replace(states=states, gates=gates, slots=slots, checkpoint=0)
        self._run(params, window, panels, out)
        return window

    def _carry(self, params: Mapping[str, Array], record: Record, t0: int, panels: Panels, out: Rows | None) -> None:
        """Run one window of a checkpointed pass, and keep what its last steps leave in each row."""
        window = self.again(params, record, t0, panels, out)
        schedule, after = window.schedule, t0 // record.checkpoint + 1
        B = schedule.B
        last = self.stretch * schedule.lengths * B + np.arange(B)
        # whole rows: what stands beyond the units must stay finite as well
        record.states.reshape(-1, B, self.s_rs)[after] = window.states.reshape(-1, self.s_rs)[last]

    def _run(self, params: Mapping[str, Array], record: Record, panels: Panels, out: Rows | None) -> None:
        """The forward kernel over all slabs."""
        schedule = record.schedule
        rows, o_rs = (self.nothing, 0) if out is None else schedule.part(out)[:2]
        if out is not None and schedule.base is not None:
            rows, o_rs = scratch().take("out", schedule.T * schedule.B * self.R, self.dtype), self.R
        steps = self._projected_steps(schedule)
        if steps:
            for t0 in range(0, schedule.T, steps):
                t1 = min(t0 + steps, schedule.T)
                init = self._projected(record.x, t0 * schedule.B, t1 * schedule.B, panels)
                self._run_window(params, record, panels, init, len(panels.bias), 0, rows, o_rs, t0, t1)
        else:
            self._run_window(params, record, panels, panels.bias, 0, self.D, rows, o_rs, 0, schedule.T)
        if out is not None and schedule.base is not None:
            schedule.scatter(Rows(rows, self.R, schedule.T * schedule.B), out, self.R)

    def _run_window(
        self, params: Mapping[str, Array], record: Record, panels: Panels, init: Array, i_rs: int, D: int, rows: Array,
        o_rs: int, t0: int, t1: int,
    ) -> None:  # fmt: skip
        schedule, x, kernel = record.schedule, record.x, self.forward_kernel(record)

        def work(b0: int, b1: int) -> int:
            status: int = kernel(
                self.code, x.flat, x.stride, panels.P_ih, panels.P_hh, init, i_rs, record.states, self.s_rs,
                record.gates, self.g_rs, rows, o_rs, D, self.H, self.R, schedule.B, record.slots, schedule.active,
                t0, t1, b0, b1,
            )  # fmt: skip
            return status

        ranges = self._slabs(schedule, ROWS, self.flops((t1 - t0) * schedule.B, D + self.R))
        stopped = parallel.run(work, ranges)
        if max(stopped) >= 0:
            failed = [(t, *r) for t, r in zip(stopped, ranges, strict=True) if t >= 0]
            raise self.failure(params, record, *min(failed))

    def _projected_steps(self, schedule: Schedule) -> int:
        """How many steps' inputs to project together; 0 where each step does so by itself.

        With fewer rows than a tile takes, a step's product waits for its weights. Those of the input need not be read
        anew at every step: the products of some steps have rows enough.
        """
        T, B = schedule.T, schedule.B
        if B >= ROWS or T == 1 or self.n_gates * self.Hp * self.D * self.dtype.itemsize < PROJECT_BYTES:
            return 0
        return min(PROJECTED_ROWS // B, T)

    @property
    def in_one_piece(self) -> bool:
        """Whether a kernel can go over all steps at once, however few rows there are."""
        return self.stretch == 1 and self.n_gates * self.Hp * self.D * self.dtype.itemsize < PROJECT_BYTES

    def _projected(self, x: Rows, first: int, last: int, panels: Panels) -> Array:
        """Where the sums of the rows of x start that have what x adds: ``bias + x W_ih^T``."""
        blocks, V = len(panels.bias), self.n_gates * self.Hp // lanes_of(self.dtype.itemsize)
        out = scratch().take("projected", (last - first) * blocks, self.dtype)
        if self.h_first:
            out.reshape(-1, blocks)[:, self.n_gates * self.Hp :] = panels.bias[self.n_gates * self.Hp :]
        rows = x.flat[first * x.stride :]
        parallel.run(
            lambda n0, n1: tile.affine(rows, x.stride, panels.P_ih, self.D, V, panels.bias, out, blocks, n0, n1),
            parallel.slabs(last - first, ROWS, self.flops(last - first, self.D)),
        )
        return out

    def flops(self, rows: int, k: int) -> float:
        """Floating-point operations of the products of rows of k numbers with weights of all gates."""
        return 2.0 * rows * k * self.H * self.n_gates

    def _slabs(self, schedule: Schedule, unit: int, flops: float) -> list[tuple[int, int]]:
        """Rows for each thread, of about as many steps together."""
        return parallel.slabs(schedule.B, unit, flops, None if schedule.full else schedule.lengths)

    def failure(self, params: Mapping[str, Array], record: Record, t: int, b0: int, b1: int) -> NonFiniteError:
        """What to raise when a kernel stopped at step t of the rows b0 .. b1, with the caller's step and sample."""
        schedule = record.schedule
        n = min(b1, int(schedule.active[t])) - b0
        # the kernel wrote the slot after the one of step t
        slot = (self.slot(record, t) + 1) % record.slots * schedule.B
        view = self.state_view(record.states[(slot + b0) * self.s_rs :], n)
        found = [
            (int(b), i) for i, size in enumerate(self.state_sizes) for b in np.flatnonzero(_broken(view[:, i, :size]))
        ]
        if not found:
            raise AssertionError(f"{self.label}: cell.forward returned step {t}, at which every state is finite")
        b, i = found[0]
        step, sample = schedule.caller_place(t, b0 + b)
        return NonFiniteError(
            f"{self.label}: the state {self.cell.states[i]} must stay finite, but stopped being so at step {step} of "
            f"sample {sample}; the weights or inputs are too large: scale weight_hh down, or clip gradients while "
            "training",
            what="state", layer=self.label, gate=self.cell.states[i], step=step, sample=sample,
        )  # fmt: skip

    def forward_kernel(self, record: Record) -> Callable[..., int]:
        """The kernel of a forward pass: the cell's own, where nothing surrounds it."""
        return self.cell.forward

    def backward_kernel(self, record: Record, K: int) -> Callable[..., None]:
        """The kernel of a backward pass of K vectors."""
        return self.cell.backward

    def tangent_kernel(self, record: Record, K: int) -> Callable[..., None]:
        """The kernel that pushes K tangents."""
        return self.cell.tangent

    def settle(self, record: Record, slot: int, out: Array) -> None:
        """What a stepper still does after the kernel, here nothing: see :class:`ZonedDirection`."""

    def sweep(
        self, record: Record, d_output: Array, y_rs: int, P_back: Array, delta: Array, d_state: Array, squares: Array,
        K: int, keep: bool, t0: int, t1: int,
    ) -> None:  # fmt: skip
        """The backward kernel over all slabs; see :class:`elman.cells.Cell` for the arrays."""
        schedule, kernel = record.schedule, self.backward_kernel(record, K)

        def work(b0: int, b1: int) -> None:
            kernel(
                self.code, d_output, y_rs, P_back, self.zero, record.states, self.s_rs, record.gates, self.g_rs,
                delta, self.d_rs, d_state, squares, self.H, self.R, schedule.B, K, int(keep), schedule.active,
                t0, t1, b0, b1,
            )  # fmt: skip

        flops = self.flops((t1 - t0) * schedule.B * K, self.R)
        parallel.run(work, self._slabs(schedule, max(1, ROWS // K), flops))

    def tangent(
        self, record: Record, P_hh: Array, init: Array | None, V: Array, squares: Array, K: int, t0: int, t1: int
    ) -> None:
        """The tangent kernel over all slabs; the sums start from rows ``init``, or from zero."""
        B = record.schedule.B
        blocks = scratch().take("blocks", B * K * self.d_rs if self.cell.stored else 0, self.dtype)
        start, i_rs = (self.zero, 0) if init is None else (init, self.d_rs)
        kernel = self.tangent_kernel(record, K)

        def work(b0: int, b1: int) -> None:
            kernel(
                self.code, P_hh, start, i_rs, record.states, self.s_rs, record.gates, self.g_rs, blocks, self.d_rs,
                V, self.s_rs, squares, self.H, self.R, B, K, t0, t1, b0, b1,
            )  # fmt: skip

        flops = self.flops((t1 - t0) * B * K, self.R)
        parallel.run(work, parallel.slabs(B, max(1, ROWS // K), flops))

    def jacobian(self, record: Record, weights: Array, t: int, b: int) -> Array:
        """One step's Jacobian (S, S); ``weights`` is W_hh, flat, then W_hr."""
        J = np.empty((self.state_size, self.state_size), self.dtype)
        self.cell.jacobian(
            self.code, weights, record.states, self.s_rs, record.gates, self.g_rs, self.H, self.R, record.schedule.B,
            t, b, J.reshape(-1),
        )  # fmt: skip
        return J

    def input_rows(self, P: Array, delta: Array, n: int) -> Rows:
        """``delta @ W_ih`` for n rows, from the panels of W_ih, in scratch memory."""
        Dp = tile.padded(self.D, self.dtype.itemsize)
        dX = scratch().take("dX", n * Dp, self.dtype)
        if dX.size:
            vectors = Dp // lanes_of(self.dtype.itemsize)
            zeros = scratch().take("dX_start", Dp, self.dtype)
            zeros[:] = 0
            parallel.run(
                lambda n0, n1: tile.affine(delta, self.d_rs, P, self.reach, vectors, zeros, dX, Dp, n0, n1),
                parallel.slabs(n, ROWS, self.flops(n, self.D)),
            )
        return Rows(dX, Dp, n)


def _broken(rows: Array) -> Any:
    """Which rows (n, size) hold something not finite."""
    return ~np.isfinite(rows).all(axis=1)
