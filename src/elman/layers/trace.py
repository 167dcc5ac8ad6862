"""What a forward pass keeps, and what a backward pass gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from .direction import Record

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Trace:
    """A forward pass with every state and gate activation.

    The arrays are views into what :meth:`Recurrent.backward` reads: they are read-only, and ``x`` must not be changed
    before it.

    Attributes
    ----------
    output : ndarray
        The output, shaped as by calling the layer.
    hn : ndarray
        The final state, shaped as by calling the layer.
    states : mapping of str to ndarray, each (T + 1, B, H)
        Every state by name, such as ``"h_l0"``; entry 0 is the initial state.
    gates : mapping of str to ndarray, each (T, B, H)
        Every stored gate activation by name; empty for the Elman cell, whose activation is its state.
    """

    output: Array
    hn: Array
    states: Mapping[str, Array]
    gates: Mapping[str, Array]
    records: tuple[Record, ...]
    batched: bool

    def __repr__(self) -> str:
        return f"Trace(output {self.output.shape}, states {', '.join(self.states)})"


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of a scalar L with respect to everything a layer reads.

    Attributes
    ----------
    params : mapping of str to ndarray
        ``dL/d parameter`` by name: views into ``theta``.
    theta : ndarray
        The same as one vector, aligned with ``layer.theta``.
    x : ndarray or None
        ``dL/dx``, shaped as x; None if it was not asked for.
    h0 : ndarray
        ``dL/dh0``, shaped as ``hn``.
    state_norms : ndarray, shape (num_layers * num_directions, T, B), float64
        ``|dL/dh_t|``, the whole gradient that flows into the state after each step.
    """

    params: Mapping[str, Array]
    theta: Array
    x: Array | None
    h0: Array
    state_norms: Array

    def __repr__(self) -> str:
        return f"Gradients({', '.join(self.params)}; x, h0, state_norms {self.state_norms.shape})"
