"""Initial and final states in the caller's shapes, and in the kernels': (directions, B, n_states, H)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ShapeError
from ..validation import matching
from .layout import Layout

Array = NDArray[Any]
State = ArrayLike | tuple[ArrayLike, ...]
"""One array, or for a cell of several states a tuple of one for each, such as ``(h0, c0)``."""

AXES = "num_layers * num_directions"


class States:
    """How a layer's states look from outside: PyTorch's (num_layers * num_directions, B, size), one array a state.

    Parameters
    ----------
    layout : Layout
        Of any of the directions: all have the same states.
    directions : int
        Layers times directions.
    """

    def __init__(self, layout: Layout, directions: int) -> None:
        self.names, self.sizes, self.dtype = layout.cell.states, layout.state_sizes, layout.dtype
        self.directions, self.width = directions, layout.H

    def inward(self, state: State, name: str, B: int, single: bool) -> Array:
        """Check a state, or a tuple of such, and bring it to (directions, B, n_states, H).

        Parameters
        ----------
        name : str
            The argument's name with a place for that of the part, such as ``"{}0"``.
        single : bool
            Whether it came without the axis B.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If it does not fit.
        """
        names = [name.format(part) for part in self.names]
        if len(names) > 1 and not (isinstance(state, tuple | list) and len(state) == len(names)):
            raise ShapeError(f"{names[0]} must be the tuple ({', '.join(names)}), got {type(state).__name__}")
        parts: Any = state if len(names) > 1 else (state,)
        out = np.zeros((self.directions, B, len(names), self.width), self.dtype)
        for i, (part, part_name, size) in enumerate(zip(parts, names, self.sizes, strict=True)):
            shape = (self.directions, size) if single else (self.directions, B, size)
            axes = f"({AXES}, {'' if single else 'B, '}{'H' if size == self.width else 'proj_size'})"
            out[:, :, i, :size] = matching(part, part_name, shape, axes, self.dtype).reshape(self.directions, B, size)
        return out

    def outward(self, state: Array, single: bool) -> Any:
        """(directions, B, n_states, H) to an array in the caller's shape that is its own, or a tuple of such."""
        parts = tuple(
            np.array(state[:, 0, i, :size] if single else state[:, :, i, :size], order="C")
            for i, size in enumerate(self.sizes)
        )
        return parts if len(parts) > 1 else parts[0]
