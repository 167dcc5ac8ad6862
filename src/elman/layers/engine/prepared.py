"""Small calls prepared in advance: the part that depends on neither the inputs nor the initial state.

In small layers the arithmetic takes less time than finding memory and arguments for it, so both are stored for the
shapes used last, as long as the weights do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import parallel
from .batch import Batch
from .buffers import aligned, scratch
from .direction import Direction
from .layout import Panels
from .rows import Rows
from .schedule import Schedule
from .stack import Stack
from .states import States
from .views import Record, last_state

Array = NDArray[Any]

MOST_NUMBERS = 1 << 16
"""Numbers in and out of a direction in the largest call that is prepared: larger ones need more and gain less."""

MOST_CALLS = 8
"""Number of shapes for which calls are stored."""


class PreparedDirection:
    """A cell run over B sequences of at most T steps, storing two states of each.

    Parameters
    ----------
    d : Direction
    panels : Panels
        Its weights.
    T, B : int
        Numbers of steps and sequences.
    """

    def __init__(self, d: Direction, panels: Panels, T: int, B: int) -> None:
        self.d, self.layout, self.T, self.B = d, d.layout, T, B
        layout = d.layout
        self.states, self.gates = aligned(2 * B * layout.s_rs, layout.dtype), aligned(B * layout.g_rs, layout.dtype)
        self.first = self.states[: B * layout.s_rs]
        self.last = layout.state_view(self.states[T % 2 * B * layout.s_rs :], B)
        self.forward = layout.cell.forward
        self.middle = *panels, 0, self.states, layout.s_rs, self.gates, layout.g_rs
        self.end = layout.D, layout.H, layout.R, B, 2

    @cached_property
    def rows(self) -> tuple[Rows, Rows]:
        """Rows for inputs and outputs in the kernel's order."""
        n, dtype, (D, R) = self.T * self.B, self.layout.dtype, (self.layout.D, self.layout.R)
        return Rows(aligned(n * D, dtype), D, n), Rows(aligned(n * R, dtype), R, n)

    def run(self, params: Mapping[str, Array], schedule: Schedule, x: Rows, state: Array | None, out: Rows) -> Array:
        """Read the caller's rows of x, write those of the outputs, return the final states (B, n_states, H).

        The states may be a view.
        """
        d, layout, (source, x_rs, _), (to, o_rs, _) = self.d, self.layout, x, out
        moved = schedule.base is not None
        if moved:
            (source, x_rs, _), (to, o_rs, _) = self.rows
            schedule.gather(x, self.rows[0], layout.D)
        d.start(params, schedule, state, self.first)
        stopped = self.forward(
            layout.code, source, x_rs, *self.middle, to, o_rs, *self.end, schedule.active, 0, schedule.T, 0, self.B
        )
        if stopped >= 0:
            raise d.failure(self._record(schedule, source, x_rs), stopped, 0, self.B)
        if moved:
            schedule.scatter(self.rows[1], out, layout.R)
        return self.last if schedule.plain else last_state(layout, self._record(schedule, source, x_rs))

    def _record(self, schedule: Schedule, x: Array, x_rs: int) -> Record:
        return Record(schedule, Rows(x, x_rs, self.T * self.B), self.states, self.gates, 2, False)


class PreparedCall:
    """All layers of a stack.

    Parameters
    ----------
    stack : Stack
    panels : list of Panels
        The weights of each direction.
    T, B : int
        Numbers of steps and sequences.
    """

    def __init__(self, stack: Stack, panels: list[Panels], T: int, B: int) -> None:
        self.width, n = stack.width, T * B
        parts = [PreparedDirection(d, p, T, B) for d, p in zip(stack.directions, panels, strict=True)]
        self.layers = [parts[k : k + stack.per_layer] for k in range(0, len(parts), stack.per_layer)]
        self.between = [Rows(aligned(n * self.width, stack.dtype), self.width, n) for p in self.layers[1:]]

    @staticmethod
    def fits(stack: Stack, T: int, B: int) -> bool:
        """Whether such a call is small, and runs through each layer in one piece."""
        n = T * B
        return n > 0 and all(
            n * (size := d.layout.D + d.layout.R) <= MOST_NUMBERS
            and d.in_one_piece
            and d.flops(n, size) < parallel.SPLIT_FLOPS
            for d in stack.directions
        )

    def run(self, params: Mapping[str, Array], batch: Batch, state: Array | None, out: Array) -> Array:
        """Write the last layer's output, flat, and return the final states (directions, B, n_states, H)."""
        rows, finals = batch.rows, list[Array]()
        for i, layer in enumerate(self.layers):
            to = self.between[i] if i < len(self.between) else Rows(out, self.width, rows.n)
            for j, part in enumerate(layer):
                d, start = part.d, None if state is None else state[len(finals)]
                schedule = batch.schedule(d.reverse)
                columns = Rows(to.flat[j * part.layout.R :], self.width, to.n) if j else to
                finals.append(part.run(params, schedule, rows, start, columns))
            if batch.lengths is not None:
                schedule.clear_padding(to.flat, self.width)
            rows = to
        return finals[0][None] if len(finals) == 1 else np.stack(finals)


class Ready:
    """A stack with its weights packed, and the calls prepared with them."""

    def __init__(self, stack: Stack, panels: list[Panels]) -> None:
        self._stack, self._panels = stack, panels
        self._calls: dict[tuple[int, int], PreparedCall] = {}

    def run(self, params: Mapping[str, Array], batch: Batch, state: Array | None, states: States) -> tuple[Array, Any]:
        """Evaluate: the output (T, B, width) and, in the caller's shapes, the final states; both are new memory."""
        stack, T, B = self._stack, batch.T, batch.B
        # removed while in use, so that no other thread can take it
        call = None if batch.reset is not None else self._calls.pop((T, B), None)
        if call is None and (batch.reset is not None or not PreparedCall.fits(stack, T, B)):
            done = stack.forward(params, batch, state, False, None, scratch(), None, panels=self._panels)
            output = done.output.flat.reshape(T, B, stack.width)
            return output, states.outward(stack.final_states(done.records), batch.single)
        call = call or PreparedCall(stack, self._panels, T, B)
        output = np.empty((T, B, stack.width), stack.dtype)
        final = states.outward(call.run(params, batch, state, output.reshape(-1)), batch.single)
        if len(self._calls) >= MOST_CALLS:
            self._calls.clear()
        self._calls[T, B] = call
        return output, final
