"""Backpropagation through time in one direction, window by window from the last step to the first.

What a window needs is still in the cache when its weight gradients are formed, and the gradients of pre-activations
take the memory of one window only. Sums over steps are chains that the next window continues, so no bit depends on the
windows, nor on whether their states were stored or computed again.

A window that no gradient enters, because all of it has vanished, is skipped: it would add zeros. See
:meth:`Descent.over`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import parallel, tile
from ...kernels.squares import roots
from ...kernels.vector import lanes_of
from ...norms import SMALLEST_SUM, row_norms, safe_norm
from .buffers import scratch
from .direction import Direction
from .layout import Layout
from .rows import Rows
from .state_norms import left_range, scaled_norms
from .sums import Sums
from .views import Record, states_read, window_of

Array = NDArray[Any]

WINDOW_BYTES, WINDOW_ROWS = 1 << 22, 4 * tile.BLOCK
"""Memory for a window's states, gates and gradients, about what the caches hold; and the fewest rows of a window, since
each reads and writes all the sums of weight gradients."""

WINDOW_FLOPS = 50 * parallel.SPLIT_FLOPS
"""Operations below which the sweep of a window is not worth starting the threads once more."""


def cached_steps(d: Direction, B: int) -> int:
    """Number of steps of B rows whose states, gates and gradients take :data:`WINDOW_BYTES`."""
    layout = d.layout
    row = (layout.s_rs * d.kernels.stretch + layout.g_rs + layout.d_rs + layout.D) * layout.dtype.itemsize
    return WINDOW_BYTES // (row * max(B, 1))


class Descent:
    """A backward pass through a record.

    Parameters
    ----------
    d : Direction
        The direction of the record.
    params : mapping of str to ndarray
        The weights with which it was made.
    record : Record
        It has all states, or those before some of the steps.
    d_output : Rows or None
        ``dL/d output`` (outer_T * outer_B, R) in the caller's order; None for zero.
    d_state : ndarray, shape (outer_B, n_states, H), or None
        Gradient of the final state; None for zero.

    Attributes
    ----------
    rows : ndarray, flat
        The gradient of the state before the step that has been reached, B padded rows.
    squares : ndarray, flat float64
        ``|dL/ds_{t+1}|^2`` for each valid row t * B + b and state; 1 elsewhere.
    norms : ndarray, shape (T, B, n_states), or None
        Receives the square roots of these, with scaling, if it is given and every window has one step.
    sums : WeightSums or None
        Where the windows' gradients are added, if anywhere.
    below : int
        Windows that end after this step are left out; by default none.
    watched : bool
        Whether to note the first window swept, other than the last in time, in which a sum of squares may underflow.
    noted : (int, ndarray) or None
        The step after that window, and ``rows`` as they entered it.
    """

    def __init__(
        self, d: Direction, params: Mapping[str, Array], record: Record, d_output: Rows | None, d_state: Array | None
    ) -> None:
        layout = d.layout
        self.d, self.params, self.record, self.d_output = d, params, record, d_output
        B = record.schedule.B
        self.rows = scratch().take("d_state", B * layout.s_rs, layout.dtype)
        self.rows[:] = 0
        if d_state is not None:
            layout.state_view(self.rows, B)[record.schedule.final] = d_state
        schedule = record.schedule
        self.squares = (np.empty if schedule.full else np.ones)(schedule.T * B * layout.n_states)
        self.norms: Array | None = None
        self.sums: WeightSums | None = None
        self.below = record.schedule.T
        self.watched = False
        self.noted: tuple[int, Array] | None = None

    def windows(self, steps: int | None = None) -> Iterator[tuple[Record, Rows | None]]:
        """Sweep back; yield each window, the last first, and the gradients of its pre-activations, valid rows only.

        The gradients are None if they are zero and would change nothing.

        Parameters
        ----------
        steps : int, optional
            Number of steps per window; by default as many as the caches hold.
        """
        layout, schedule = self.d.layout, self.record.schedule
        if not schedule.T * schedule.B:
            return
        steps = self._steps() if steps is None else steps
        P_back = layout.pack_state_back(self.params, scratch())
        for kept in self._kept():
            last = kept.schedule.T
            for t0 in range((last - 1) // steps * steps, -1, -steps):
                window = window_of(layout, kept, t0, min(t0 + steps, last))
                end = window.schedule.first + window.schedule.T
                if end > self.below:
                    continue
                watched = self.watched and self.noted is None and end < self.record.schedule.T
                before = self.rows.copy() if watched else self.rows
                delta = self._sweep(window, P_back)
                if watched and self._squares(window).min() < SMALLEST_SUM:
                    self.noted = end, before
                yield window, delta

    def _kept(self) -> Iterator[Record]:
        """Pieces with all their states, the last first: the record, or what is computed again from its checkpoints."""
        record, n = self.record, self.record.checkpoint
        if not n:
            yield record
            return
        panels = self.d.layout.panels(self.params, scratch())
        for t0 in range((record.schedule.T - 1) // n * n, -1, -n):
            yield self.d.again(record, t0, panels)

    def _steps(self) -> int:
        d, layout, B = self.d, self.d.layout, self.record.schedule.B
        flops = 2.0 * layout.n_gates * layout.H * (2 * layout.R + layout.D)
        least = WINDOW_FLOPS if parallel.get_num_threads() > 1 else 0
        return max(1, cached_steps(d, B), WINDOW_ROWS // B, int(least / (flops * B)))

    def over(self, window: Record, dY: Array, y_rs: int) -> bool:
        """Whether no gradient enters the window, other than the last, so that a sweep would change no bit.

        All bits of the carried rows are then 0: a product begins with +0 and stays so, and a gate is not negative. Nor
        is there a -0 among the sums, which adding zeros of either sign might change.
        """
        layout, schedule = self.d.layout, window.schedule
        # most small passes have one window, and need not be looked at
        if schedule.first + schedule.T == self.record.schedule.T:
            return False
        bits = f"u{layout.dtype.itemsize}"
        if self.rows.view(bits).any():
            return False
        if dY.size:
            entering = Rows(dY, y_rs, schedule.T * schedule.B).view(layout.R)
            if (entering if schedule.full else entering[self._valid(window).reshape(-1)]).any():
                return False
        return self.sums is None or not (self.sums.sums.rows.view(bits) == 1 << 8 * layout.dtype.itemsize - 1).any()

    def _sweep(self, window: Record, P_back: Array) -> Rows | None:
        d, layout, schedule = self.d, self.d.layout, window.schedule
        dY, y_rs = self._output_gradient(window)
        squares = self._squares(window)
        if self.over(window, dY, y_rs):
            valid = self._valid(window)
            squares.reshape(*valid.shape, layout.n_states)[valid] = 0.0
            return None
        delta = scratch().take("delta", schedule.T * schedule.B * layout.d_rs, layout.dtype)
        if self.norms is not None:
            n = int(schedule.active[0])
            entering = layout.state_view(self.rows, n).copy()
            if dY.size:
                entering[:, 0, : layout.R] += Rows(dY, y_rs, n).view(layout.R)
            for i, size in enumerate(layout.state_sizes):
                self.norms[schedule.first, :n, i] = safe_norm(entering[:, i, :size])
        d.sweep(window, dY, y_rs, P_back, delta, self.rows, squares, 1, True, 0, schedule.T)
        return schedule.compact(Rows(delta, layout.d_rs, schedule.T * schedule.B), layout.d_rs, "delta")

    @staticmethod
    def _valid(window: Record) -> Array:
        """Which rows have which of the window's steps, (T, B)."""
        schedule = window.schedule
        valid: Array = np.arange(schedule.B) < schedule.active[: schedule.T, None]
        return valid

    def _squares(self, window: Record) -> Array:
        schedule, n = window.schedule, window.schedule.B * self.d.layout.n_states
        return self.squares[schedule.first * n : (schedule.first + schedule.T) * n]

    def _output_gradient(self, window: Record) -> tuple[Array, int]:
        """``dL/d output`` in kernel order, and the stride of its rows."""
        layout, schedule = self.d.layout, window.schedule
        if self.d_output is None:
            return layout.nothing, 0
        if schedule.base is None:
            part = schedule.part(self.d_output)
            return part.flat, part.stride
        n = schedule.T * schedule.B
        rows = scratch().take("dY", n * layout.R, layout.dtype)
        schedule.gather(self.d_output, Rows(rows, layout.R, n), layout.R)
        return rows, layout.R


class WeightSums:
    """``[1, x, h]^T delta`` of one direction, added up over windows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.height = layout.D + layout.R + layout.cell.projects * layout.H
        self.sums = Sums("dW", self.height, layout.d_rs, layout.dtype)

    def add(self, window: Record, delta: Rows) -> None:
        """Add a window's valid rows, whose gradients are ``delta``."""
        layout, schedule = self.layout, window.schedule
        rows, U = schedule.T * schedule.B, layout.Hp // lanes_of(layout.dtype.itemsize)
        x = schedule.compact(window.x, layout.D, "x")
        states = schedule.compact(states_read(layout, window), layout.s_rs, "states")
        gates = schedule.compact(Rows(window.gates, layout.g_rs, rows), layout.g_rs, "gates")

        def piece(r0: int, r1: int, v0: int, v1: int) -> None:
            layout.cell.gradients(
                x.flat, x.stride, states.flat, states.stride, gates.flat, layout.g_rs, delta.flat, layout.d_rs,
                layout.D, layout.H, layout.R, layout.n_gates * U, layout.h_first * U, r0, r1, v0, v1, self.sums.rows,
                layout.d_rs,
            )  # fmt: skip

        flops = 2.0 * delta.n * (layout.D + layout.R) * layout.H * layout.n_gates
        self.sums.add(delta.flat, delta.n, layout.vectors, flops, piece)

    def recurrent_norm(self) -> float:
        """Frobenius norm of the part that belongs to W_hh, in float64."""
        layout, first = self.layout, 1 + self.layout.D
        rows = self.sums.finish().reshape(1 + self.height, layout.d_rs)[first : first + layout.R]
        rows = rows[:, : layout.cell.blocks * layout.Hp]
        of_h = rows.reshape(layout.R, -1, layout.Hp)[:, layout.h_first :, : layout.H]
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
        Whether that is added to what ``d_x`` already holds.

    Returns
    -------
    d_initial : ndarray, shape (B, n_states, H)
        Gradient of the initial state of every row.
    norms : ndarray, shape (T, B, n_states), float64
        ``|dL/ds_{t+1}|`` of the valid rows, in kernel order.
    """
    layout = d.layout
    descent, sums = Descent(d, params, record, d_output, d_state), WeightSums(layout)
    descent.sums, descent.watched = sums, layout.dtype.itemsize == 8
    P = None if d_x is None else layout.pack_input_back(params, scratch())
    for window, delta in descent.windows():
        if delta is None:
            sums.sums.pass_over(window.schedule.n_valid)
        else:
            sums.add(window, delta)
        if d_x is not None:
            _input_gradient(d, P, window, delta, d_x, add)
    layout.unpack_gradients(sums.sums.finish(), out)
    T, B = record.schedule.T, record.schedule.B
    d_initial = layout.state_view(descent.rows, B).copy()
    restarted = d_initial if not record.given else d_initial[~record.schedule.carried]
    for i, (name, size) in enumerate(zip(layout.initial, layout.state_sizes, strict=True)):
        if name in out:
            out[name][...] = restarted[:, i, :size].sum(axis=0, dtype=np.float64)
    norms = np.empty((T, B, layout.n_states))
    odd = roots(descent.squares, norms.reshape(-1), layout.n_states, SMALLEST_SUM)
    squares = descent.squares.reshape(norms.shape)
    # the squares of float32 numbers all fit
    if odd and layout.dtype == np.float64 and left_range(squares[..., 0], descent, d_state):
        return d_initial, scaled_norms(squares, descent, d_state)
    return d_initial, norms


def weight_norms(
    d: Direction, params: Mapping[str, Array], record: Record, d_output: Rows | None, d_state: Array | None
) -> Array:
    """Frobenius norm (T,) of each step's term of ``dL/dW_hh``, in kernel order, for sequences of one length."""
    norms = np.zeros(record.schedule.T)
    for window, delta in Descent(d, params, record, d_output, d_state).windows(steps=1):
        if delta is not None:
            step = WeightSums(d.layout)
            step.add(window, delta)
            norms[window.schedule.first] = step.recurrent_norm()
    return norms


def _input_gradient(d: Direction, P: Any, window: Record, delta: Rows | None, out: Array, add: bool) -> None:
    """Write a window's ``dL/dx`` to ``out``, or add it."""
    schedule, D = window.schedule, d.layout.D
    if delta is None:
        made = Rows(np.zeros(schedule.n_valid * D, d.layout.dtype), D, schedule.n_valid)
    else:
        made = d.input_rows(P, delta.flat, delta.n)
    if schedule.base is None:
        to = out[schedule.first * schedule.B :][: made.n]
        to[...] = made.view(D) + to if add else made.view(D)
    else:
        schedule.scatter(made, Rows(out.reshape(-1), D, len(out)), D, compact=True, add=add)
