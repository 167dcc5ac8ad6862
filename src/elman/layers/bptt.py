"""Backpropagation through time in one direction, window by window from the last step to the first.

What a window needs is still in the cache when its weight gradients are formed, and the gradients of pre-activations
take the memory of one window only. Sums over steps are chains that the next window carries on, so no bit depends on
the windows, nor on whether their states were kept or made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import parallel, tile
from ..kernels.cover import COLUMNS
from ..kernels.squares import roots
from ..kernels.vector import lanes_of
from ..linearization.norms import SMALLEST_SUM, row_norms, safe_norm
from .affine import Rows
from .buffers import scratch
from .direction import Direction
from .views import Record

Array = NDArray[Any]

WINDOW_BYTES, WINDOW_ROWS = 1 << 22, 4 * tile.BLOCK
"""What a window's states, gates and gradients may take, about what the caches hold; and rows that it has at least,
since each window reads and writes all the sums of weight gradients."""

SMALLEST_ENTRY = 1e-145
"""The square of this is the smallest that is sure to count: see :data:`elman.linearization.norms.SMALLEST_SUM`."""

WINDOW_FLOPS = 50 * parallel.SPLIT_FLOPS
"""Operations below which the sweep of a window is not worth another hand-over to the threads."""


def cached_steps(d: Direction, B: int) -> int:
    """Steps of B rows whose states, gates and gradients take :data:`WINDOW_BYTES`."""
    row = (d.s_rs * d.stretch + d.g_rs + d.d_rs + d.D) * d.dtype.itemsize
    return WINDOW_BYTES // (row * max(B, 1))


class Descent:
    """The way back through a record.

    Parameters
    ----------
    d : Direction
        Of the record.
    params : mapping of str to ndarray
        The weights it was made with.
    record : Record
        With all states, or with those before some of the steps.
    d_output : Rows or None
        ``dL/d output`` (outer_T * outer_B, R) in the caller's order; None for zero.
    d_state : ndarray, shape (outer_B, n_states, H), or None
        Gradient of the final state; None for zero.

    Attributes
    ----------
    rows : ndarray, flat
        The gradient of the state before the step that was reached, B padded rows.
    squares : ndarray, flat float64
        ``|dL/ds_{t+1}|^2`` for each row t * B + b and state, of the valid rows; 1 elsewhere.
    norms : ndarray, shape (T, B, n_states), or None
        Receives the roots of these by scaling, if it is there and every window has one step.
    """

    def __init__(
        self, d: Direction, params: Mapping[str, Array], record: Record, d_output: Rows | None, d_state: Array | None
    ) -> None:
        self.d, self.params, self.record, self.d_output = d, params, record, d_output
        B = record.schedule.B
        self.rows = scratch().take("d_state", B * d.s_rs, d.dtype)
        self.rows[:] = 0
        if d_state is not None:
            d.state_view(self.rows, B)[record.schedule.final] = d_state
        schedule = record.schedule
        self.squares = (np.empty if schedule.full else np.ones)(schedule.T * B * d.n_states)
        self.norms: Array | None = None

    def windows(self, steps: int | None = None) -> Iterator[tuple[Record, Rows]]:
        """Sweep back; yield each window and the gradients of its pre-activations, valid rows only, the last one first.

        Parameters
        ----------
        steps : int, optional
            How many a window has; by default as many as the caches hold.
        """
        d, schedule = self.d, self.record.schedule
        if not schedule.T * schedule.B:
            return
        steps = self._steps() if steps is None else steps
        P_back = d.pack_state_back(self.params, scratch())
        for kept in self._kept():
            last = kept.schedule.T
            for t0 in range((last - 1) // steps * steps, -1, -steps):
                window = d.window(kept, t0, min(t0 + steps, last))
                yield window, self._sweep(window, P_back)

    def _kept(self) -> Iterator[Record]:
        """Pieces with all their states, the last first: the record, or what is made again from its checkpoints."""
        record, n = self.record, self.record.checkpoint
        if not n:
            yield record
            return
        panels = self.d.panels(self.params, scratch())
        for t0 in range((record.schedule.T - 1) // n * n, -1, -n):
            yield self.d.again(self.params, record, t0, panels)

    def _steps(self) -> int:
        d, B = self.d, self.record.schedule.B
        flops = 2.0 * d.n_gates * d.H * (2 * d.R + d.D)
        least = WINDOW_FLOPS if parallel.get_num_threads() > 1 else 0
        return max(1, cached_steps(d, B), WINDOW_ROWS // B, int(least / (flops * B)))

    def _sweep(self, window: Record, P_back: Array) -> Rows:
        d, schedule = self.d, window.schedule
        dY, y_rs = self._output_gradient(window)
        delta = scratch().take("delta", schedule.T * schedule.B * d.d_rs, d.dtype)
        squares = self.squares[schedule.first * schedule.B * d.n_states :]
        if self.norms is not None:
            n = int(schedule.active[0])
            entering = d.state_view(self.rows, n).copy()
            if dY.size:
                entering[:, 0, : d.R] += Rows(dY, y_rs, n).view(d.R)
            for i, size in enumerate(d.state_sizes):
                self.norms[schedule.first, :n, i] = safe_norm(entering[:, i, :size])
        d.sweep(window, dY, y_rs, P_back, delta, self.rows, squares, 1, True, 0, schedule.T)
        return schedule.compact(Rows(delta, d.d_rs, schedule.T * schedule.B), d.d_rs, "delta")

    def _output_gradient(self, window: Record) -> tuple[Array, int]:
        """``dL/d output`` in kernel order, and how far apart its rows are."""
        d, schedule = self.d, window.schedule
        if self.d_output is None:
            return d.nothing, 0
        if schedule.base is None:
            part = schedule.part(self.d_output)
            return part.flat, part.stride
        n = schedule.T * schedule.B
        rows = scratch().take("dY", n * d.R, d.dtype)
        schedule.gather(self.d_output, Rows(rows, d.R, n), d.R)
        return rows, d.R


class WeightSums:
    """``[1, x, h]^T delta`` of one direction, added up over windows: one order of the rows; threads share columns."""

    def __init__(self, d: Direction) -> None:
        self.d = d
        self.height = 1 + d.D + d.R + d.cell.projects * d.H
        self.flat = scratch().take("dW", self.height * d.d_rs, d.dtype, weights=True)
        self.flat[:] = 0

    def add(self, window: Record, delta: Rows) -> None:
        """Add a window's valid rows, of which ``delta`` are the gradients."""
        d, schedule = self.d, window.schedule
        rows = schedule.T * schedule.B
        U = d.Hp // lanes_of(d.dtype.itemsize)
        x = schedule.compact(window.x, d.D, "x")
        states = schedule.compact(Rows(d.read(window), d.s_rs, rows), d.s_rs, "states")
        gates = schedule.compact(Rows(window.gates, d.g_rs, rows), d.g_rs, "gates")

        def work(v0: int, v1: int) -> None:
            d.cell.gradients(
                x.flat, x.stride, states.flat, d.s_rs, gates.flat, d.g_rs, delta.flat, d.d_rs, d.one, d.D, d.H, d.R,
                d.n_gates * U, d.h_first * U, 0, delta.n, v0, v1, self.flat, d.d_rs,
            )  # fmt: skip

        flops = 2.0 * delta.n * (d.D + d.R) * d.H * d.n_gates
        parallel.run(work, parallel.slabs(d.vectors, COLUMNS, flops))

    def recurrent_norm(self) -> float:
        """Frobenius norm of what belongs to W_hh, in float64."""
        d, first = self.d, 1 + self.d.D
        rows = self.flat.reshape(self.height, d.d_rs)[first : first + d.R, : d.cell.blocks * d.Hp]
        of_h = rows.reshape(d.R, -1, d.Hp)[:, d.h_first :, : d.H]
        return float(row_norms(of_h.reshape(1, -1))[0])


def backward(
    d: Direction, params: Mapping[str, Array], record: Record, d_output: Rows | None, d_state: Array | None,
    out: Mapping[str, Array], d_x: Array | None, add: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """All gradients of one direction.

    Parameters
    ----------
    d, params, record, d_output, d_state
        As for :class:`Descent`.
    out : mapping of str to ndarray
        Receives the parameters' gradients.
    d_x : ndarray, shape (outer_T * outer_B, D), or None
        Receives ``dL/dx`` at the valid steps.
    add : bool
        Whether that is added to what stands there.

    Returns
    -------
    d_initial : ndarray, shape (B, n_states, H)
        Gradient of the initial state of every row.
    norms : ndarray, shape (T, B, n_states), float64
        ``|dL/ds_{t+1}|`` in kernel order, of the valid rows.
    """
    descent, sums = Descent(d, params, record, d_output, d_state), WeightSums(d)
    P = None if d_x is None else d.pack_input_back(params, scratch())
    for window, delta in descent.windows():
        sums.add(window, delta)
        if d_x is not None:
            _input_gradient(d, P, window, delta, d_x, add)
    d.unpack_gradients(sums.flat, out)
    T, B = record.schedule.T, record.schedule.B
    d_initial = d.state_view(descent.rows, B).copy()
    restarted = d_initial if not record.given else d_initial[~record.schedule.carried]
    for i, (name, size) in enumerate(zip(d.initial, d.state_sizes, strict=True)):
        if name in out:
            out[name][...] = restarted[:, i, :size].sum(axis=0)
    norms = np.empty((T, B, d.n_states))
    odd = roots(descent.squares, norms.reshape(-1), d.n_states, SMALLEST_SUM)
    squares = descent.squares.reshape(norms.shape)
    # the squares of float32 numbers all fit
    if odd and d.dtype == np.float64 and _left_range(squares[..., 0], d, record, d_output, d_state):
        # the rows themselves are gone: the way back once more, step by step
        again = Descent(d, params, record, d_output, d_state)
        again.norms = np.zeros(squares.shape)
        for _ in again.windows(steps=1):
            pass
        return d_initial, again.norms
    return d_initial, norms


def _left_range(squares: Array, d: Direction, record: Record, d_output: Rows | None, d_state: Array | None) -> bool:
    """Whether a sum of squares (T, B) of a gradient in float64 may have under- or overflowed.

    A zero is one where no gradient has entered yet, unless what enters is too small for its squares.
    """
    least, most = float(squares.min()), float(squares.max())
    if not most < np.inf or 0 < least < SMALLEST_SUM:
        return True
    if least >= SMALLEST_SUM:
        return False
    living = squares > 0
    if (living & (squares < SMALLEST_SUM)).any():
        return True
    valid = np.arange(squares.shape[1]) < record.schedule.active[: len(squares), None]
    entered = np.logical_or.accumulate((living & valid)[::-1])[::-1]
    return bool((~living[:-1] & entered[1:]).any()) or any(
        part is not None and bool(((part != 0) & (np.abs(part) < SMALLEST_ENTRY)).any())
        for part in (None if d_output is None else d_output.view(d.R), d_state)
    )


def weight_norms(
    d: Direction, params: Mapping[str, Array], record: Record, d_output: Rows | None, d_state: Array | None
) -> Array:
    """What each step of sequences of one length adds to ``dL/dW_hh``: its Frobenius norm, (T,), in kernel order."""
    norms = np.zeros(record.schedule.T)
    for window, delta in Descent(d, params, record, d_output, d_state).windows(steps=1):
        step = WeightSums(d)
        step.add(window, delta)
        norms[window.schedule.first] = step.recurrent_norm()
    return norms


def _input_gradient(d: Direction, P: Any, window: Record, delta: Rows, out: Array, add: bool) -> None:
    """Write a window's ``dL/dx``, or add it to what stands there."""
    schedule, D = window.schedule, d.D
    made = d.input_rows(P, delta.flat, delta.n)
    if schedule.base is None:
        to = out[schedule.first * schedule.B :][: made.n]
        to[...] = made.view(D) + to if add else made.view(D)
    else:
        schedule.scatter(made, Rows(out.reshape(-1), D, len(out)), D, compact=True, add=add)
