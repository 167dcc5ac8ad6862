"""Initial and final states in the caller's shapes, and in that of the kernels: (directions, B, n_states, H)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ShapeError
from ...states import State
from ...validation.arrays import finite_floats, plain
from ...validation.words import kind
from .layout import Layout

Array = NDArray[Any]
AXES = "num_layers * num_directions"


class States:
    """A layer's states as the user sees them: PyTorch's (num_layers * num_directions, B, size), one array per state.

    Parameters
    ----------
    layout : Layout
        Layout of any of the directions: all have the same states.
    directions : int
        Number of layers times that of directions per layer.
    """

    def __init__(self, layout: Layout, directions: int) -> None:
        self.names, self.sizes, self.dtype = layout.cell.states, layout.state_sizes, layout.dtype
        self.directions, self.width = directions, layout.H

    def inward(self, state: State, name: str, B: int, single: bool) -> Array:
        """Check a state, or a tuple of states, and convert it to (directions, B, n_states, H).

        Parameters
        ----------
        name : str
            The argument's name with a placeholder for that of the part, such as ``"{}0"``.
        single : bool
            Whether it was given without the axis B.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If it does not fit.
        """
        names = [name.format(part) for part in self.names]
        several = isinstance(state, tuple | list) and len(state) > 1
        if len(names) > 1 and not (several and len(state) == len(names)):  # type: ignore[arg-type]
            raise ShapeError(
                f"{names[0]} must be the tuple ({', '.join(names)}), one array for each state that the cell has, as a "
                f"call of the layer returns it; got {kind(state)}"
            )
        if len(names) == 1 and isinstance(state, tuple) and several:
            raise ShapeError(f"{names[0]} must be one array, for the cell has one state; got {kind(state)}")
        parts: Any = state if len(names) > 1 else (state,)
        out = np.zeros((self.directions, B, len(names), self.width), self.dtype)
        for i, (part, part_name, size) in enumerate(zip(parts, names, self.sizes, strict=True)):
            shape = (self.directions, size) if single else (self.directions, B, size)
            axes = f"({AXES}, {'' if single else 'B, '}{'H' if size == self.width else 'proj_size'})"
            given = plain(part, part_name)
            if given.shape != shape:
                cure = _cure(given.shape, shape, part_name)
                raise ShapeError(f"{part_name} must have shape {axes} = {shape}, got {given.shape}{cure}")
            out[:, :, i, :size] = finite_floats(given, part_name, self.dtype).reshape(self.directions, B, size)
        return out

    def outward(self, state: Array, single: bool) -> Any:
        """Copy (directions, B, n_states, H) to an array in the caller's shape, or a tuple of such arrays."""
        if single:
            state = state[:, 0]
        if len(self.sizes) == 1:
            return state[..., 0, : self.sizes[0]].copy()
        return tuple(state[..., i, :size].copy() for i, size in enumerate(self.sizes))


def _cure(given: tuple[int, ...], wanted: tuple[int, ...], name: str) -> str:
    """A hint if the axes of a state seem to be in other places."""
    if len(wanted) == 3 and given == (wanted[1], wanted[0], wanted[2]):
        return f"; sequences are its second axis with batch_first too, as in PyTorch: {name}.swapaxes(0, 1)"
    if given == wanted[1:] and wanted[0] == 1:
        return f"; add the axis of layers and directions: {name}[None]"
    if len(wanted) == 3 and wanted[1] == 1 and given == (wanted[0], wanted[2]):
        return f"; add the axis of sequences, which x has: {name}[:, None]"
    if given == (wanted[0], 1, wanted[-1]):
        return f"; leave out the axis of sequences, as x does: {name}[:, 0]"
    return ""
