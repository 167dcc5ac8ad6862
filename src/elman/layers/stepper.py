"""Streaming: one step at a time, in microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import NonFiniteError, ShapeError
from ..validation import real_array
from .buffers import Fresh, aligned
from .direction import Direction, Record

Array = NDArray[Any]


class Stepper:
    """A layer run step by step: the same bits as one call over the whole sequence.

    It takes a snapshot of the weights; make a new one after changing them. Not for use from several threads at once.

    Attributes
    ----------
    state : ndarray, shape (1, B, H), or a tuple of such
        The present state, a copy: h, or (h, c).
    """

    def __init__(self, direction: Direction, params: Mapping[str, Array], B: int, state: Array | None) -> None:
        own = Fresh()
        self._direction, self._B, d = direction, B, direction
        self._panels = [
            d.pack(params[d.weight_ih], d.x_order, "P_ih", own),
            d.pack(params[d.weight_hh], d.h_order, "P_hh", own),
        ]
        self._bias = d.pack_bias(params, own)
        dtype = d.dtype
        # two slots of everything: what a step returns stays untouched while the next one is computed
        x, states, gates, self._flat_out = (
            aligned(n, dtype) for n in (2 * B * d.D, 2 * B * d.s_rs, B * d.g_rs, 2 * B * d.H)
        )
        self._record, self._slot = Record(2, B, x, d.D, states, gates, 2, d.layout), 0
        d.place_state(states[: B * d.s_rs], state)
        self._view()

    def _view(self) -> None:
        """Look at the flat arrays as the caller does."""
        self._x = self._record.x.reshape(2, self._B, self._direction.D)
        self._out = self._flat_out.reshape(2, self._B, self._direction.H)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_x", "_out")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._view()

    def __repr__(self) -> str:
        d = self._direction
        return f"Stepper({d.label}, batch_size={self._B}, input_size={d.D}, hidden_size={d.H})"

    def __call__(self, x_t: ArrayLike) -> Array:
        """Advance by one step.

        Parameters
        ----------
        x_t : array_like, shape (B, D), or (D,) if B is 1
            This step's input.

        Returns
        -------
        ndarray, shape (B, H), or (H,)
            This step's output, in memory that the step after the next one writes again: copy it to keep it.

        Raises
        ------
        ShapeError, DTypeError
            For another shape, or numbers that are not real floating-point ones.
        NonFiniteError
            If the new state is not finite, as it is after a NaN in x_t; the state stays as it was.
        """
        slot, d, B, record = self._slot, self._direction, self._B, self._record
        x_t, x = np.asarray(x_t), self._x[slot]
        if x_t.dtype.kind != "f":
            x_t = real_array(x_t, "x_t", d.dtype)  # says what is wrong
        single = np.ndim(x_t) == 1 and B == 1
        if np.shape(x_t) != ((d.D,) if single else (B, d.D)):
            raise ShapeError(f"x_t must have shape (B, D) = {(B, d.D)}, got {np.shape(x_t)}")
        x[...] = x_t
        status = d.cell.forward(
            d.code, record.x, d.D, *self._panels, self._bias, record.states, d.s_rs, record.gates, d.g_rs,
            self._flat_out, d.D, d.H, B, 2, slot, slot + 1, 0, B,
        )  # fmt: skip
        if status >= 0:
            raise NonFiniteError(
                f"{d.label}: the state {d.cell.states[0]} must stay finite; this step's input or the weights are too "
                "large or NaN. The state is as before the step",
                what="state", layer=d.label, gate=d.cell.states[0],
            )  # fmt: skip
        self._slot = 1 - slot
        out: Array = self._out[slot]
        return out[0] if single else out

    @property
    def state(self) -> Array | tuple[Array, ...]:
        """The present state (1, B, H), or a tuple of such; a copy."""
        d, B = self._direction, self._B
        at = self._slot * B * d.s_rs
        state = d.state_view(self._record.states[at:], B).copy()
        parts = tuple(state[None, :, i] for i in range(d.n_states))
        return parts if d.n_states > 1 else parts[0]
