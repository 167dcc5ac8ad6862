"""What a pass of one direction stores, and views of it in the caller's order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import rows
from .buffers import scratch
from .layout import Layout
from .rows import Rows
from .schedule import Schedule

Array = NDArray[Any]


class Record(NamedTuple):
    """What a forward pass of one direction stores for a backward pass: flat padded arrays in kernel order.

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
        Number of slots: for the state before each step and the last one, or 2 if only the last is needed.
    given : bool
        Whether the caller gave the initial state.
    kept : ndarray or None
        Which states zoneout keeps, if drawn: 0 or 1 in bytes, (T * B, n_states, Hp).
    checkpoint : int
        Steps between the stored states, without gates; 0 if every state is stored.
    stretch : int
        Slots that a step takes if every state is stored; if only two are, it takes one.
    """

    schedule: Schedule
    x: Rows
    states: Array
    gates: Array
    slots: int
    given: bool
    kept: Array | None = None
    checkpoint: int = 0
    stretch: int = 1

    def slot(self, t: int) -> int:
        """The slot of the state that step t reads."""
        return t % 2 if self.slots == 2 else self.stretch * t


def slots_of(T: int, stretch: int) -> int:
    """Slots of a pass that stores all its states: more than two, since two tell a kernel to store none."""
    return max(3, stretch * T + 1)


def window_of(layout: Layout, record: Record, t0: int, t1: int) -> Record:
    """The part of a record of all states for the steps ``t0 <= t < t1``, as a separate record."""
    if t1 - t0 == record.schedule.T:
        return record
    schedule, B, x = record.schedule.window(t0, t1), record.schedule.B, record.x
    x, kept = Rows(x.flat[t0 * B * x.stride :], x.stride, schedule.T * B), record.kept
    return Record(
        schedule, x, record.states[t0 * record.stretch * B * layout.s_rs :], record.gates[t0 * B * layout.g_rs :],
        slots_of(schedule.T, record.stretch), record.given, None if kept is None else kept[t0 * B : t1 * B],
        stretch=record.stretch,
    )  # fmt: skip


def states_read(layout: Layout, record: Record) -> Rows:
    """The states that the steps read."""
    B, T, s_rs, stretch = record.schedule.B, record.schedule.T, layout.s_rs, record.stretch
    if stretch == 1 or B == 1:
        return Rows(record.states, stretch * s_rs, T * B)
    flat, n = scratch().take("read", T * B * s_rs, layout.dtype), B * s_rs
    flat.reshape(T, n)[...] = record.states[: stretch * T * n].reshape(T, stretch, n)[:, 0]
    return Rows(flat, s_rs, T * B)


def last_state(layout: Layout, record: Record) -> Array:
    """The final state (outer_B, n_states, H) of every sequence: a view if possible."""
    schedule = record.schedule
    if record.checkpoint:
        return layout.state_view(record.states[-schedule.B * layout.s_rs :], schedule.B)[schedule.final]
    if schedule.plain:
        at = record.slot(schedule.T) * schedule.B * layout.s_rs
        return layout.state_view(record.states[at:], schedule.B)
    stretch = 1 if record.slots == 2 else record.stretch
    last = np.empty(schedule.outer_B * layout.s_rs, layout.dtype)
    rows.pick(
        last, record.states, layout.s_rs, record.slots, schedule.B, stretch, schedule.lengths, schedule.final,
    )  # fmt: skip
    return layout.state_view(last, schedule.outer_B)


def state_slots(layout: Layout, record: Record) -> Array:
    """The state before the first step and after each, in kernel order: a view (T + 1, B, n_states, H)."""
    schedule, step, row = record.schedule, layout.dtype.itemsize, layout.s_rs * layout.dtype.itemsize
    shape = (schedule.T + 1, schedule.B, layout.n_states, layout.H)
    strides = (record.stretch * schedule.B * row, row, layout.Hp * step, step)
    return np.ndarray(shape, layout.dtype, record.states, 0, strides)


def outer_states(layout: Layout, record: Record, i: int) -> Array:
    """The i-th state (outer_T + 1, outer_B, size) in the caller's order, read-only.

    Read forwards, entry 0 is the initial state and entry t + 1 the state after step t. Read backwards, entry t is the
    state after step t and the last entry the initial one. In the padding it is 0.
    """
    schedule, size = record.schedule, layout.state_sizes[i]
    T, B = schedule.outer_T, schedule.outer_B
    slots = state_slots(layout, record)[:, :, i, :size]
    if schedule.base is None:
        return _read_only(slots)
    out = np.zeros((T + 1, B, size), layout.dtype)
    first = 0 if schedule.reverse else 1
    schedule.spread(slots[1:].reshape(schedule.T * schedule.B, size), out[first : first + T].reshape(T * B, size))
    out[schedule.stops_at if schedule.reverse else 0, np.arange(B)] = slots[0, schedule.initial]
    return _read_only(out)


def outer_gates(layout: Layout, record: Record, i: int) -> Array:
    """The i-th stored block (outer_T, outer_B, H) in the caller's order, 0 in the padding; read-only."""
    schedule, H, g_rs = record.schedule, layout.H, layout.g_rs
    n = schedule.T * schedule.B
    blocks = record.gates[: n * g_rs].reshape(n, g_rs)[:, i * layout.Hp : i * layout.Hp + H]
    if schedule.base is None:
        return _read_only(blocks.reshape(schedule.outer_T, schedule.outer_B, H))
    out = np.zeros((schedule.outer_T * schedule.outer_B, H), layout.dtype)
    schedule.spread(blocks, out)
    return _read_only(out.reshape(schedule.outer_T, schedule.outer_B, H))


def outer_norms(layout: Layout, record: Record, norms: Array) -> Array:
    """Norms of all rows as (outer_T, outer_B, n_states), in the caller's order, 0 in the padding."""
    schedule = record.schedule
    if schedule.base is None:
        return norms
    out = np.zeros((schedule.outer_T, schedule.outer_B, layout.n_states))
    # viewed as the layer's dtype, for which the kernel is compiled: the numbers are only moved
    source, to = (a.reshape(-1).view(layout.dtype) for a in (norms, out))
    n = layout.n_states * out.itemsize // layout.dtype.itemsize
    schedule.scatter(Rows(source, n, schedule.T * schedule.B), Rows(to, n, schedule.outer_T * schedule.outer_B), n)
    return out


def initial_gradient(record: Record, d_initial: Array) -> Array:
    """The gradient (outer_B, n_states, H) of the state that the caller passed, from those of all rows."""
    schedule = record.schedule
    if schedule.plain:
        return d_initial
    out: Array = d_initial[schedule.initial]
    if not schedule.carried.all():
        out[~schedule.carried[schedule.initial]] = 0
    return out


def inner_bytes(layout: Layout, schedule: Schedule, outer: Array) -> Array:
    """Convert bytes (outer_T * outer_B, n_states, H) for each state to a kernel's padded rows (T * B, n_states, Hp)."""
    out = np.zeros((schedule.T * schedule.B, layout.n_states, layout.Hp), outer.dtype)
    if schedule.base is None:
        out[..., : layout.H] = outer
    else:
        inner, places = schedule.pairs()
        out[inner, :, : layout.H] = outer[places]
    return out


def _read_only(view: Array) -> Array:
    view.flags.writeable = False
    return view
