"""A small call made ready: what of it depends on neither the inputs nor the initial state.

In small layers the arithmetic takes less time than finding memory and arguments for it, so both are kept for the shapes
that were called last, as long as the weights are what they were.
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
from .views import Record

Array = NDArray[Any]

MOST_NUMBERS = 1 << 16
"""Inputs and outputs of a direction in the largest call that is made ready: larger ones keep more and gain less."""

MOST_CALLS = 8
"""Shapes of calls that are kept."""


class PreparedDirection:
    """A cell over B sequences of at most T steps, keeping two states of each.

    Parameters
    ----------
    d : Direction
    panels : Panels
        Its weights.
    T, B : int
        Steps and sequences.
    """

    def __init__(self, d: Direction, panels: Panels, T: int, B: int) -> None:
        self.d, self.T, self.B = d, T, B
        self.states, self.gates = aligned(2 * B * d.s_rs, d.dtype), aligned(B * d.g_rs, d.dtype)
        self.first = self.states[: B * d.s_rs]
        self.last = d.state_view(self.states[T % 2 * B * d.s_rs :], B)
        self.forward = d.cell.forward
        self.middle = *panels, 0, self.states, d.s_rs, self.gates, d.g_rs
        self.end = d.D, d.H, d.R, B, 2

    @cached_property
    def rows(self) -> tuple[Rows, Rows]:
        """Inputs and outputs in the kernel's order."""
        d, n = self.d, self.T * self.B
        return Rows(aligned(n * d.D, d.dtype), d.D, n), Rows(aligned(n * d.R, d.dtype), d.R, n)

    def run(self, params: Mapping[str, Array], schedule: Schedule, x: Rows, state: Array | None, out: Rows) -> Array:
        """Read the caller's rows of x, write those of the outputs, return the final states (B, n_states, H).

        The states are perhaps a view.
        """
        d, (source, x_rs, _), (to, o_rs, _) = self.d, x, out
        moved = schedule.base is not None
        if moved:
            (source, x_rs, _), (to, o_rs, _) = self.rows
            schedule.gather(x, self.rows[0], d.D)
        d.start(params, schedule, state, self.first)
        stopped = self.forward(
            d.code, source, x_rs, *self.middle, to, o_rs, *self.end, schedule.active, 0, schedule.T, 0, self.B
        )
        if stopped >= 0:
            raise d.failure(params, self._record(schedule, source, x_rs), stopped, 0, self.B)
        if moved:
            schedule.scatter(self.rows[1], out, d.R)
        return self.last if schedule.plain else d.last_state(self._record(schedule, source, x_rs))

    def _record(self, schedule: Schedule, x: Array, x_rs: int) -> Record:
        return Record(schedule, Rows(x, x_rs, self.T * self.B), self.states, self.gates, 2, False, None)


class PreparedCall:
    """All layers of a stack.

    Parameters
    ----------
    stack : Stack
    panels : list of Panels
        The weights of each direction.
    T, B : int
        Steps and sequences.
    """

    def __init__(self, stack: Stack, panels: list[Panels], T: int, B: int) -> None:
        self.width, n = stack.width, T * B
        parts = [PreparedDirection(d, p, T, B) for d, p in zip(stack.directions, panels, strict=True)]
        self.layers = [parts[k : k + stack.per_layer] for k in range(0, len(parts), stack.per_layer)]
        self.between = [Rows(aligned(n * self.width, p[0].d.dtype), self.width, n) for p in self.layers[1:]]

    @staticmethod
    def fits(stack: Stack, T: int, B: int) -> bool:
        """Whether such a call is small, and goes through each layer in one piece."""
        n = T * B
        return n > 0 and all(
            n * (d.D + d.R) <= MOST_NUMBERS and d.in_one_piece and d.flops(n, d.D + d.R) < parallel.SPLIT_FLOPS
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
                columns = Rows(to.flat[j * d.R :], self.width, to.n) if j else to
                finals.append(part.run(params, schedule, rows, start, columns))
            if batch.lengths is not None:
                schedule.clear_padding(to.flat, self.width)
            rows = to
        return finals[0][None] if len(finals) == 1 else np.stack(finals)


class Ready:
    """A stack with its weights packed, and the calls that were made ready with them."""

    def __init__(self, stack: Stack, panels: list[Panels]) -> None:
        self._stack, self._panels = stack, panels
        self._calls: dict[tuple[int, int], PreparedCall] = {}

    def run(self, params: Mapping[str, Array], batch: Batch, state: Array | None, states: States) -> tuple[Array, Any]:
        """Evaluate: the output (T, B, width) and, in the caller's shapes, the final states; both are new memory."""
        stack, T, B = self._stack, batch.T, batch.B
        # taken out, so that no other thread has it meanwhile
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
