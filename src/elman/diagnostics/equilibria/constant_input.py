"""A recurrent layer under a constant input, as a map from states to states with its Jacobians."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import DTypeError, ShapeError
from ...linearization import Array
from ...states import parts
from ...validation.arrays import finite, real_numbers


class ConstantInput:
    """The map ``F(s)`` of one step of a layer with the input held fixed, for many states at once.

    Only ``layer(x, h0) -> (output, hn)`` and ``layer.linearize(x, h0)`` are used of the layer, with x (1, B, D), or
    (B, 1, D) if it is ``batch_first``, and states (layers, B, H), a tuple of such arrays for a cell of several states.

    Parameters
    ----------
    layer : recurrent layer
        As for :func:`elman.fixed_points`.
    x : array_like, shape (D,), or None
        The input; zeros if None.

    Attributes
    ----------
    state_size : int
        Size S of a state in the layout of the layer's linearization: the states of a layer side by side, layer by
        layer.

    Raises
    ------
    DTypeError, ShapeError, ArgumentError
        If ``layer`` is not such a layer, its dtype is not float64, or the input does not fit.
    """

    def __init__(self, layer: Any, x: ArrayLike | None) -> None:
        if not callable(layer) or not hasattr(layer, "linearize") or not hasattr(layer, "input_size"):
            cure = "; give its recurrent layer, network.layer" if hasattr(layer, "layer") else ""
            raise DTypeError(
                f"fixed_points takes a recurrent layer such as elman.RNN, got {type(layer).__name__}{cure}"
            )
        if layer.dtype != np.float64:
            raise DTypeError(
                f"the layer must be float64, got {layer.dtype}: rounding would hide the last digits of a fixed point. "
                'Make the same layer with dtype="float64" and load_state_dict(layer.state_dict())'
            )
        self.layer, D = layer, layer.input_size
        given = np.zeros(D) if x is None else real_numbers(x, "x_const")
        if given.shape != (D,):
            raise ShapeError(f"x_const must have shape (D,) = ({D},), the input of one step, got {given.shape}")
        self.x = given.astype(np.float64)
        finite(self.x, "x_const")
        state = self._final(layer(self._input(1)))
        self._widths = [part.shape[-1] for part in state]
        self._tuple, self._layers = len(state) > 1, len(state[0])
        self.state_size = self._layers * sum(self._widths)

    def _input(self, n: int) -> Array:
        """One step of input for n states."""
        rows = np.tile(self.x, (n, 1))
        return rows[:, None] if getattr(self.layer, "batch_first", False) else rows[None]

    def _final(self, result: tuple[Any, Any]) -> tuple[Array, ...]:
        """The parts (layers, n, width) of the state after a call."""
        return parts(result[1])

    def _inward(self, states: Array) -> Any:
        """States (n, S) in the form that the layer takes."""
        rows = states.reshape(len(states), self._layers, -1).swapaxes(0, 1)
        parts = np.split(rows, np.cumsum(self._widths)[:-1], axis=2)
        return tuple(map(np.ascontiguousarray, parts)) if self._tuple else np.ascontiguousarray(parts[0])

    def __call__(self, states: Array) -> Array:
        """``F(s)`` for states (n, S)."""
        parts = self._final(self.layer(self._input(len(states)), self._inward(states)))
        return np.concatenate(parts, axis=2).swapaxes(0, 1).reshape(states.shape)

    def jacobians(self, states: Array) -> Array:
        """``J[i, j] = d F(s)[i] / d s[j]`` at states (n, S): (n, S, S)."""
        n, S = states.shape
        if not n:
            return np.empty((0, S, S))
        lin = self.layer.linearize(self._input(n), self._inward(states))
        unit = np.broadcast_to(np.eye(S), (n, S, S))
        columns: Array = lin.jvp(unit, 0, 1)
        return columns.transpose(0, 2, 1)
