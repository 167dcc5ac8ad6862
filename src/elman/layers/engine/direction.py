"""One cell run over one direction of one layer: slabs for threads, and the meaning of a kernel's status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NonFiniteError
from ...kernels import parallel, tile
from ...kernels.vector import lanes_of
from .buffers import Buffers, scratch
from .layout import Layout, Panels, state_overflow
from .rows import ROWS, Rows
from .schedule import Schedule
from .views import Record, slots_of, window_of
from .zoneout import kernels_of

Array = NDArray[Any]
PROJECT_BYTES = 1 << 16
"""Size of W_ih above which it pays to project the inputs of several steps together: twice a first-level cache."""

PROJECTED_ROWS = 64
"""Rows projected together: enough to hide the reading of the weights, few enough to stay in the cache."""


class Direction:
    """The kernels of a cell bound to sizes.

    Parameters
    ----------
    layout : Layout
        Where the cell's numbers lie.
    zoneout : tuple of float
        For each state, the fraction that a unit keeps from the step before; zeros for none.
    reverse : bool
        Whether it reads its sequences from the last step to the first.

    Attributes
    ----------
    uninterrupted : bool
        Whether the cell's own kernel runs from step to step, so that the stored states are the outputs.
    """

    def __init__(self, layout: Layout, zoneout: tuple[float, ...], reverse: bool) -> None:
        self.layout, self.kernels, self.reverse = layout, kernels_of(layout, zoneout), reverse
        self.uninterrupted = self.kernels.stretch == 1

    def start(self, params: Mapping[str, Array], schedule: Schedule, state: Array | None, rows: Array) -> None:
        """Write the initial states: the caller's where a row continues, else the learned ones, or zeros."""
        layout = self.layout
        rows[:] = 0
        if state is None and layout.initial[0] not in params:
            return
        view = layout.state_view(rows, schedule.B)
        if schedule.plain and state is not None:
            view[...] = state
            return
        for i, name in enumerate(layout.initial):
            if name in params:
                view[:, i, : layout.state_sizes[i]] = params[name]
        if state is not None:
            view[schedule.carried] = state[schedule.sequence[schedule.carried]]

    def _input(self, schedule: Schedule, x: Rows, buffers: Buffers) -> Rows:
        """Inputs in kernel order, if that is not the caller's."""
        layout, n = self.layout, schedule.T * schedule.B
        flat = buffers.take("x" + layout.suffix, n * layout.D, layout.dtype)
        ordered = Rows(flat, layout.D, n)
        schedule.gather(x, ordered, layout.D)
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
            Initial state; if None, the learned one or zero.
        keep : bool
            Whether all states and gates are stored in ``buffers``; else only the last state.
        out : Rows or None
            Receives the outputs (outer_T * outer_B, R), at the valid steps.
        kept : ndarray, shape (outer_T * outer_B, n_states, H), or None
            For a direction with zoneout in training: see ``Noise.zoneout``.
        checkpoint : int
            Store only the state before every ``checkpoint``-th step, and the last one; 0 for all.

        Raises
        ------
        NonFiniteError
            With the first step and sample.
        """
        layout, T, B = self.layout, schedule.T, schedule.B
        if checkpoint:
            slots, steps = -(-T // checkpoint) + 1, 0
        else:
            slots = slots_of(T, self.kernels.stretch) if keep else 2
            steps = T if slots > 2 else 1
        states = buffers.take(layout.states_name, slots * B * layout.s_rs, layout.dtype)
        gates = buffers.take(layout.gates_name, steps * B * layout.g_rs, layout.dtype)
        self.start(params, schedule, state, states[: B * layout.s_rs])
        rows = x if schedule.base is None else self._input(schedule, x, buffers)
        record = Record(schedule, rows, states, gates, slots, state is not None, kept, checkpoint, self.kernels.stretch)
        if checkpoint and B:
            for t0 in range(0, T, checkpoint):
                self._carry(record, t0, panels, out)
        elif T * B and out is not None and schedule.base is not None and self.uninterrupted and slots > 2:
            # the stored states are the outputs, and must be moved in any case
            self._run(record, panels, None)
            schedule.scatter(Rows(states[B * layout.s_rs :], layout.s_rs, T * B), out, layout.R)
        elif T * B:
            self._run(record, panels, out)
        return record

    def again(self, record: Record, t0: int, panels: Panels, out: Rows | None = None) -> Record:
        """The window of a checkpointed pass that begins at step t0, with all states and gates, in scratch memory."""
        layout = self.layout
        piece = window_of(layout, record, t0, min(t0 + record.checkpoint, record.schedule.T))
        T, size = piece.schedule.T, record.schedule.B * layout.s_rs
        slots, begins = slots_of(T, self.kernels.stretch), t0 // record.checkpoint * size
        states = scratch().take("window_states", slots * size, layout.dtype)
        gates = scratch().take("window_gates", T * record.schedule.B * layout.g_rs, layout.dtype)
        states[:size] = record.states[begins : begins + size]
        piece = piece._replace(states=states, gates=gates, slots=slots, checkpoint=0)
        self._run(piece, panels, out)
        return piece

    def _carry(self, record: Record, t0: int, panels: Panels, out: Rows | None) -> None:
        """Run one window of a checkpointed pass, and store the last state of each row."""
        piece, s_rs = self.again(record, t0, panels, out), self.layout.s_rs
        schedule, after, B = piece.schedule, t0 // record.checkpoint + 1, piece.schedule.B
        last = record.stretch * schedule.lengths * B + np.arange(B)
        # whole rows: the padding beyond the units must stay finite as well
        record.states.reshape(-1, B, s_rs)[after] = piece.states.reshape(-1, s_rs)[last]

    def _run(self, record: Record, panels: Panels, out: Rows | None) -> None:
        """The forward kernel over all slabs."""
        layout, schedule = self.layout, record.schedule
        rows, o_rs = (layout.nothing, 0) if out is None else schedule.part(out)[:2]
        if out is not None and schedule.base is not None:
            rows, o_rs = scratch().take("out", schedule.T * schedule.B * layout.R, layout.dtype), layout.R
        steps = self._projected_steps(schedule)
        if steps:
            for t0 in range(0, schedule.T, steps):
                t1 = min(t0 + steps, schedule.T)
                init = self._projected(record.x, t0 * schedule.B, t1 * schedule.B, panels)
                self._run_window(record, panels, init, len(panels.bias), 0, rows, o_rs, t0, t1)
        else:
            self._run_window(record, panels, panels.bias, 0, layout.D, rows, o_rs, 0, schedule.T)
        if out is not None and schedule.base is not None:
            schedule.scatter(Rows(rows, layout.R, schedule.T * schedule.B), out, layout.R)

    def _run_window(
        self, record: Record, panels: Panels, init: Array, i_rs: int, D: int, rows: Array, o_rs: int, t0: int, t1: int
    ) -> None:
        layout, schedule, x, kernel = self.layout, record.schedule, record.x, self.kernels.forward(record)

        def work(b0: int, b1: int) -> int:
            status: int = kernel(
                layout.code, x.flat, x.stride, panels.P_ih, panels.P_hh, init, i_rs, record.states, layout.s_rs,
                record.gates, layout.g_rs, rows, o_rs, D, layout.H, layout.R, schedule.B, record.slots, schedule.active,
                t0, t1, b0, b1,
            )  # fmt: skip
            return status

        ranges = self._slabs(schedule, ROWS, self.flops((t1 - t0) * schedule.B, D + layout.R))
        stopped = parallel.run(work, ranges)
        if max(stopped) >= 0:
            failed = [(t, *r) for t, r in zip(stopped, ranges, strict=True) if t >= 0]
            raise self.failure(record, *min(failed))

    def _projected_steps(self, schedule: Schedule) -> int:
        """Number of steps whose inputs are projected together; 0 if each step projects its own.

        With fewer rows than a tile has, the time of a step's product is that of reading its weights. The input's
        weights need not be read at every step: several steps together have enough rows.
        """
        T, B = schedule.T, schedule.B
        if B >= ROWS or T == 1 or not self._wide_input:
            return 0
        return min(PROJECTED_ROWS // B, T)

    @property
    def _wide_input(self) -> bool:
        layout = self.layout
        return layout.n_gates * layout.Hp * layout.D * layout.dtype.itemsize >= PROJECT_BYTES

    @property
    def in_one_piece(self) -> bool:
        """Whether a kernel can run over all steps at once, however few rows there are."""
        return self.uninterrupted and not self._wide_input

    def _projected(self, x: Rows, first: int, last: int, panels: Panels) -> Array:
        """The initial values of the sums for rows of x: ``bias + x W_ih^T``."""
        layout = self.layout
        blocks, V = len(panels.bias), layout.n_gates * layout.Hp // lanes_of(layout.dtype.itemsize)
        out = scratch().take("projected", (last - first) * blocks, layout.dtype)
        if layout.h_first:
            out.reshape(-1, blocks)[:, layout.n_gates * layout.Hp :] = panels.bias[layout.n_gates * layout.Hp :]
        rows = x.flat[first * x.stride :]
        parallel.run(
            lambda n0, n1: tile.affine(rows, x.stride, panels.P_ih, layout.D, V, panels.bias, out, blocks, n0, n1),
            parallel.slabs(last - first, ROWS, self.flops(last - first, layout.D)),
        )
        return out

    def flops(self, rows: int, k: int) -> float:
        """Floating-point operations of products of rows of k numbers with the weights of all gates."""
        return 2.0 * rows * k * self.layout.H * self.layout.n_gates

    def _slabs(self, schedule: Schedule, unit: int, flops: float) -> list[tuple[int, int]]:
        """Rows for each thread, with about equal numbers of steps in total."""
        return parallel.slabs(schedule.B, unit, flops, None if schedule.full else schedule.lengths)

    def failure(self, record: Record, t: int, b0: int, b1: int) -> NonFiniteError:
        """The error for a kernel that stopped at step t of the rows b0 .. b1, with the caller's step and sample."""
        layout, schedule = self.layout, record.schedule
        n = min(b1, int(schedule.active[t])) - b0
        # the kernel wrote the slot after that of step t
        slot = (record.slot(t) + 1) % record.slots * schedule.B
        view = layout.state_view(record.states[(slot + b0) * layout.s_rs :], n)
        found = [
            (int(b), i) for i, size in enumerate(layout.state_sizes) for b in np.flatnonzero(_broken(view[:, i, :size]))
        ]
        if not found:
            raise AssertionError(f"{layout.label}: cell.forward returned step {t}, at which every state is finite")
        b, i = found[0]
        step, sample = schedule.caller_place(t, b0 + b)
        return state_overflow(
            layout, i, step, sample,
            "the weights or inputs are too large: scale weight_hh down, or clip gradients while training",
        )  # fmt: skip

    def sweep(
        self, record: Record, d_output: Array, y_rs: int, P_back: Array, delta: Array, d_state: Array, squares: Array,
        K: int, keep: bool, t0: int, t1: int,
    ) -> None:  # fmt: skip
        """The backward kernel over all slabs; see :class:`elman.cells.Cell` for the arrays."""
        layout, schedule, kernel = self.layout, record.schedule, self.kernels.backward(record, K)

        def work(b0: int, b1: int) -> None:
            kernel(
                layout.code, d_output, y_rs, P_back, record.states, layout.s_rs, record.gates, layout.g_rs, delta,
                layout.d_rs, d_state, squares, layout.H, layout.R, schedule.B, K, int(keep), schedule.active, t0, t1,
                b0, b1,
            )  # fmt: skip

        flops = self.flops((t1 - t0) * schedule.B * K, layout.R)
        parallel.run(work, self._slabs(schedule, max(1, ROWS // K), flops))

    def tangent(
        self, record: Record, P_hh: Array, init: Array | None, V: Array, squares: Array, K: int, t0: int, t1: int
    ) -> None:
        """The tangent kernel over all slabs; the sums start from rows ``init``, or from zero."""
        layout, B = self.layout, record.schedule.B
        blocks = scratch().take("blocks", B * K * layout.d_rs if layout.cell.stored else 0, layout.dtype)
        start, i_rs = (layout.zero, 0) if init is None else (init, layout.d_rs)
        kernel = self.kernels.tangent(record, K)

        def work(b0: int, b1: int) -> None:
            kernel(
                layout.code, P_hh, start, i_rs, record.states, layout.s_rs, record.gates, layout.g_rs, blocks,
                layout.d_rs, V, layout.s_rs, squares, layout.H, layout.R, B, K, t0, t1, b0, b1,
            )  # fmt: skip

        flops = self.flops((t1 - t0) * B * K, layout.R)
        parallel.run(work, parallel.slabs(B, max(1, ROWS // K), flops))

    def jacobian(self, record: Record, weights: Array, t: int, b: int) -> Array:
        """One step's Jacobian (S, S); ``weights`` is W_hh, flat, then W_hr."""
        layout, B = self.layout, record.schedule.B
        J = np.empty((layout.state_size, layout.state_size), layout.dtype)
        states, gates = record.states[record.slot(t) * B * layout.s_rs :], record.gates[t * B * layout.g_rs :]
        layout.cell.jacobian(
            layout.code, weights, states, layout.s_rs, gates, layout.g_rs, layout.H, layout.R, B, 0, b, J.reshape(-1)
        )
        self.kernels.settle_jacobian(J)
        return J

    def input_rows(self, P: Array, delta: Array, n: int) -> Rows:
        """``delta @ W_ih`` for n rows, from the panels of W_ih, in scratch memory."""
        layout = self.layout
        Dp = tile.padded(layout.D, layout.dtype.itemsize)
        dX = scratch().take("dX", n * Dp, layout.dtype)
        if dX.size:
            vectors = Dp // lanes_of(layout.dtype.itemsize)
            zeros = scratch().take("dX_start", Dp, layout.dtype)
            zeros[:] = 0
            parallel.run(
                lambda n0, n1: tile.affine(delta, layout.d_rs, P, layout.reach, vectors, zeros, dX, Dp, n0, n1),
                parallel.slabs(n, ROWS, self.flops(n, layout.D)),
            )
        return Rows(dX, Dp, n)


def _broken(rows: Array) -> Any:
    """Which rows of (n, size) hold a number that is not finite."""
    return ~np.isfinite(rows).all(axis=1)
