"""Streaming: one step at a time, in microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import NonFiniteError, ShapeError
from ..validation.arrays import finite_floats, plain
from .engine.buffers import Fresh, aligned
from .engine.direction import Direction
from .engine.layout import state_overflow
from .engine.rows import Rows
from .engine.schedule import dense
from .engine.states import States
from .engine.views import Record
from .fixed import Fixed

Array = NDArray[Any]


class Stepper(Fixed):
    """A layer run step by step: the same bits as one call over the whole sequence.

    It uses a snapshot of the weights; make a new stepper after changing them. Do not use one from several threads.

    Attributes
    ----------
    state : ndarray, shape (num_layers, B, H), or a tuple of such
        A copy of the present state: h, or (h, c).
    """

    def __init__(
        self, directions: list[Direction], states: States, params: Mapping[str, Array], B: int, state: Array | None
    ) -> None:
        self._directions, self._states, self._B, self._count = directions, states, B, 0
        self._levels = [_Level(d, params, B, None if state is None else state[i]) for i, d in enumerate(directions)]

    def __copy__(self) -> Stepper:
        """Make a deep copy: two steppers that wrote to the same memory would disturb each other."""
        return deepcopy(self)

    def __repr__(self) -> str:
        layout = self._directions[0].layout
        return (
            f"Stepper({layout.label}, layers={len(self._levels)}, batch_size={self._B}, input_size={layout.D}, "
            f"hidden_size={layout.H})"
        )

    def __call__(self, x_t: ArrayLike) -> Array:
        """Advance by one step.

        Parameters
        ----------
        x_t : array_like, shape (B, D), or (D,) if B is 1
            This step's input.

        Returns
        -------
        ndarray, shape (B, H), or (H,)
            This step's output, in memory that the step after the next one overwrites: copy it to keep it.

        Raises
        ------
        ShapeError, DTypeError
            For another shape, or numbers that are not real floating-point ones.
        NonFiniteError
            If the new state is not finite, as after a NaN in x_t; the state is then not changed. The error's ``step``
            counts the steps of this stepper from 0, its ``sample`` the rows of x_t.
        """
        count, first = self._count, self._levels[0]
        if type(x_t) is not np.ndarray or x_t.dtype != first.layout.dtype:
            x_t = self._converted(x_t)
        slot, shape = count & 1, x_t.shape
        single = shape == first.alone
        if not single and shape != first.shape:
            raise ShapeError(f"x_t must have shape (B, D) = {first.shape}, got {shape}")
        for level in self._levels:
            level.x[slot] = x_t
            x_t = level.advance(slot, count)
        self.__dict__["_count"] = count + 1  # directly: __setattr__ would take a good part of a small layer's step
        return x_t[0] if single else x_t

    def _converted(self, x_t: ArrayLike) -> Array:
        """Convert an input that is not yet an array of the layer's dtype."""
        dtype = self._directions[0].layout.dtype
        given = plain(x_t, "x_t")
        if given.dtype.kind != "f":
            given = finite_floats(given, "x_t", dtype)  # raises an error that says what is wrong
        if given.dtype.itemsize > dtype.itemsize:
            with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and found in the new state
                given = given.astype(dtype)
        return given

    @property
    def state(self) -> Array | tuple[Array, ...]:
        """The present state (num_layers, B, H), or a tuple of such; a copy."""
        state: Any = self._states.outward(np.stack([level.state(self._count & 1) for level in self._levels]), False)
        return state


class _Level:
    """One layer of a stepper, with two slots of everything, so that a step's result outlives the next step."""

    def __init__(self, d: Direction, params: Mapping[str, Array], B: int, state: Array | None) -> None:
        layout = d.layout
        self.layout, self.kernels, self.B = layout, d.kernels, B
        self.panels = layout.panels(params, Fresh())
        x, states, gates, self.flat = (
            aligned(n, layout.dtype) for n in (2 * B * layout.D, 2 * B * layout.s_rs, B * layout.g_rs, 2 * B * layout.R)
        )
        schedule = dense(2, B, False)
        self.active = schedule.active
        self.record = Record(schedule, Rows(x, layout.D, 2 * B), states, gates, 2, state is not None)
        d.start(params, schedule, state, states[: B * layout.s_rs])
        self._view()

    def _view(self) -> None:
        """Make views of the flat arrays by slots, and prepare the kernel's arguments for each slot."""
        layout, B, record = self.layout, self.B, self.record
        self.x, self.out = record.x.flat.reshape(2, B, layout.D), self.flat.reshape(2, B, layout.R)
        self.shape, self.alone = (B, layout.D), (layout.D,) if B == 1 else None
        self.forward = layout.cell.forward
        self.arguments = [
            (
                layout.code, record.x.flat, layout.D, *self.panels, 0, record.states, layout.s_rs, record.gates,
                layout.g_rs, self.flat, layout.R, layout.D, layout.H, layout.R, B, 2, self.active, slot, slot + 1, 0, B,
            )
            for slot in (0, 1)
        ]  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        made = "x", "out", "forward", "arguments"
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._view()

    def advance(self, slot: int, count: int) -> Array:
        """Read the slot's input and state, write its output and the other slot's state, after ``count`` steps."""
        if self.forward(*self.arguments[slot]) >= 0:
            raise self._failure(slot, count)
        out: Array = self.out[slot]
        self.kernels.settle(self.record, slot, out)
        return out

    def _failure(self, slot: int, count: int) -> NonFiniteError:
        """The error to raise when step ``count`` gave a state that is not finite."""
        layout, new = self.layout, self.state(1 - slot)
        sample, i = (int(index) for index in np.argwhere(~np.isfinite(new).all(axis=2))[0])
        return state_overflow(
            layout, i, count, sample,
            "that step's input or the weights are too large or NaN. The state is as before the step",
        )  # fmt: skip

    def state(self, slot: int) -> Array:
        """The state (B, n_states, H) in a slot; a copy."""
        return self.layout.state_view(self.record.states[slot * self.B * self.layout.s_rs :], self.B).copy()
