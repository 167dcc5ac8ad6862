"""What a pass of one direction keeps, and how it looks in the caller's order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import rows
from .layout import Layout
from .rows import Rows
from .schedule import Schedule

Array = NDArray[Any]


class Record(NamedTuple):
    """What a forward pass of one direction leaves for a backward pass: flat padded arrays in kernel order.

    Attributes
    ----------
    schedule : Schedule
        Steps, rows, and where they are in the caller's arrays.
    x : Rows
        Inputs.
    states : ndarray, flat
        ``slots * B`` rows.
    gates : ndarray, flat
        ``T * B`` rows, empty for a cell that stores none.
    slots : int
        Room for the state before each step and the last one, or 2 where only the last is wanted.
    given : bool
        Whether the caller gave the initial state.
    kept : ndarray or None
        Which states zoneout keeps, if drawn: 0 or 1 in bytes, (T * B, n_states, Hp).
    checkpoint : int
        Steps between the states that are kept, and no gates; 0 where every state is.
    """

    schedule: Schedule
    x: Rows
    states: Array
    gates: Array
    slots: int
    given: bool
    kept: Array | None
    checkpoint: int = 0


class Views(Layout):
    """A layout with the direction in which it is read.

    Parameters
    ----------
    reverse : bool
        Whether it reads its sequences from the last step to the first.
    *args
        Those of :class:`Layout`.
    """

    def __init__(self, *args: Any, reverse: bool = False) -> None:
        super().__init__(*args)
        self.reverse = reverse

    stretch = 1
    """State slots that a step takes where they are kept."""

    def slots(self, T: int) -> int:
        """Slots of a pass that keeps all its states: more than the two with which a kernel keeps nothing."""
        return max(3, self.stretch * T + 1)

    def slot(self, record: Record, t: Any) -> Any:
        """The slot of the state that step t reads."""
        return t % 2 if record.slots == 2 else self.stretch * t

    def last_state(self, record: Record) -> Array:
        """The final state (outer_B, n_states, H) of every sequence: a view where it can be."""
        schedule = record.schedule
        if record.checkpoint:
            return self.state_view(record.states[-schedule.B * self.s_rs :], schedule.B)[schedule.final]
        if schedule.plain:
            at = self.slot(record, schedule.T) * schedule.B * self.s_rs
            return self.state_view(record.states[at:], schedule.B)
        stretch = 1 if record.slots == 2 else self.stretch
        last = np.empty(schedule.outer_B * self.s_rs, self.dtype)
        rows.pick(
            last, record.states, self.s_rs, record.slots, schedule.B, stretch, schedule.lengths,
            schedule.final,
        )  # fmt: skip
        return self.state_view(last, schedule.outer_B)

    def window(self, record: Record, t0: int, t1: int) -> Record:
        """What a record of all states has of the steps ``t0 <= t < t1``, as a record of its own."""
        if t1 - t0 == record.schedule.T:
            return record
        schedule, n = record.schedule.window(t0, t1), self.stretch * record.schedule.B
        B, x = schedule.B, record.x
        kept = None if record.kept is None else record.kept[t0 * B : t1 * B]
        return Record(
            schedule, Rows(x.flat[t0 * B * x.stride :], x.stride, schedule.T * B), record.states[t0 * n * self.s_rs :],
            record.gates[t0 * B * self.g_rs :], self.slots(schedule.T), record.given, kept,
        )  # fmt: skip

    def read(self, record: Record) -> Rows:
        """The states that the steps read."""
        return Rows(record.states, self.s_rs, record.schedule.T * record.schedule.B)

    def initial_gradient(self, record: Record, d_initial: Array) -> Array:
        """The gradient (outer_B, n_states, H) of the state that the caller handed over, from that of every row's."""
        schedule = record.schedule
        if schedule.plain:
            return d_initial
        out: Array = d_initial[schedule.initial]
        if not schedule.carried.all():
            out[~schedule.carried[schedule.initial]] = 0
        return out

    def outer_norms(self, record: Record, norms: Array) -> Array:
        """Norms of all rows as (outer_T, outer_B, n_states), in the caller's order, 0 in the padding."""
        schedule = record.schedule
        if schedule.base is None:
            return norms
        out = np.zeros((schedule.outer_T, schedule.outer_B, self.n_states))
        # as numbers of the layer's dtype, for which the kernel is compiled: they are only moved
        source, to = (a.reshape(-1).view(self.dtype) for a in (norms, out))
        n = self.n_states * out.itemsize // self.dtype.itemsize
        schedule.scatter(Rows(source, n, schedule.T * schedule.B), Rows(to, n, schedule.outer_T * schedule.outer_B), n)
        return out

    def outer_gates(self, record: Record, i: int) -> Array:
        """The i-th stored block (outer_T, outer_B, H) in the caller's order, 0 in the padding; read-only."""
        schedule = record.schedule
        n = schedule.T * schedule.B
        blocks = record.gates[: n * self.g_rs].reshape(n, self.g_rs)[:, i * self.Hp : i * self.Hp + self.H]
        if schedule.base is None:
            return _read_only(blocks.reshape(schedule.outer_T, schedule.outer_B, self.H))
        out = np.zeros((schedule.outer_T * schedule.outer_B, self.H), self.dtype)
        schedule.spread(blocks, out)
        return _read_only(out.reshape(schedule.outer_T, schedule.outer_B, self.H))

    def outer_states(self, record: Record, i: int) -> Array:
        """The i-th state (outer_T + 1, outer_B, size) in the caller's order, read-only.

        Read forwards, entry 0 is the initial state and entry t + 1 the state after step t. Read backwards, entry t is
        the state after step t and the last entry the initial one. In the padding it is 0.
        """
        schedule, size = record.schedule, self.state_sizes[i]
        T, B = schedule.outer_T, schedule.outer_B
        slots = self.state_slots(record)[:, :, i, :size]
        if schedule.base is None:
            return _read_only(slots)
        out = np.zeros((T + 1, B, size), self.dtype)
        first = 0 if self.reverse else 1
        after = slots[1:].reshape(schedule.T * schedule.B, size)
        schedule.spread(after, out[first : first + T].reshape(T * B, size))
        out[schedule.stops_at if self.reverse else 0, np.arange(B)] = slots[0, schedule.initial]
        return _read_only(out)

    def state_slots(self, record: Record) -> Array:
        """The state before the first step and after each, in kernel order: a view (T + 1, B, n_states, H)."""
        step, schedule = self.dtype.itemsize, record.schedule
        shape = (schedule.T + 1, schedule.B, self.n_states, self.H)
        strides = (self.stretch * schedule.B * self.s_rs * step, self.s_rs * step, self.Hp * step, step)
        return np.ndarray(shape, self.dtype, record.states, 0, strides)


def _read_only(view: Array) -> Array:
    view.flags.writeable = False
    return view
