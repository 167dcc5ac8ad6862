"""Arrays in the caller's order of axes, and in the kernels': (T, B, ...) and states (B, n_states, H)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, ShapeError
from ..validation import matching

Array = NDArray[Any]
State = ArrayLike | tuple[ArrayLike, ...]
"""One array, or for a cell of several states a tuple of one for each, such as ``(h0, c0)``."""

NEUTRAL: dict[str, Any] = {
    "num_layers": 1,
    "dropout": 0.0,
    "bidirectional": False,
    "proj_size": 0,
    "reset_after": True,
    "lengths": None,
}
"""Options of PyTorch's layers that this version does not have, and the value at which they make no difference."""


def refuse_unsupported(**options: Any) -> None:
    """Accept such options at their neutral value only.

    Raises
    ------
    ArgumentError
        Naming the option.
    """
    for name, value in options.items():
        neutral = NEUTRAL[name]
        if value is not neutral and not (np.isscalar(value) and value == neutral):
            raise ArgumentError(
                f"{name} must be {neutral} in this version, whose layers are one cell in one direction over sequences "
                f"of one length; got {value!r}"
            )


class Axes:
    """How one layer's arrays look from outside.

    Parameters
    ----------
    batch_first : bool
        Whether sequences are (B, T, ...) outside.
    states : tuple of str
        Names of the parts of the state.
    hidden_size : int
        Size H of each.
    dtype : numpy.dtype
        float32 or float64.
    """

    def __init__(self, batch_first: bool, states: tuple[str, ...], hidden_size: int, dtype: np.dtype[Any]) -> None:
        self.batch_first, self.states, self.hidden_size, self.dtype = batch_first, states, hidden_size, dtype

    def outward(self, y: Array, batched: bool) -> Array:
        """(T, B, ...) to the caller's order; without B for one sequence that came without."""
        if not batched:
            return y[:, 0]
        return y.swapaxes(0, 1) if self.batch_first else y

    def inward(self, y: Array, batched: bool) -> Array:
        """The caller's order to (T, B, ...)."""
        if not batched:
            return y[:, None]
        return y.swapaxes(0, 1) if self.batch_first else y

    def state_in(self, state: State, name: str, B: int, batched: bool) -> Array:
        """Check a state (1, B, H), or (1, H) for one sequence, or a tuple of such, and bring it to (B, n_states, H).

        Parameters
        ----------
        name : str
            The argument's name with a place for that of the part, such as ``"{}0"``.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If it does not fit.
        """
        names = [name.format(part) for part in self.states]
        if len(names) > 1 and not (isinstance(state, tuple | list) and len(state) == len(names)):
            raise ShapeError(f"{names[0]} must be the tuple ({', '.join(names)}), got {type(state).__name__}")
        shape = (1, B, self.hidden_size) if batched else (1, self.hidden_size)
        axes = "(num_layers * num_directions, B, H)" if batched else "(num_layers * num_directions, H)"
        parts: Any = state if len(names) > 1 else (state,)
        checked = [matching(p, n, shape, axes, self.dtype) for p, n in zip(parts, names, strict=True)]
        return np.stack([p[0] if batched else p for p in checked], axis=1)

    def state_out(self, state: Array, batched: bool) -> Any:
        """(B, n_states, H) to (1, B, H), or (1, H); a tuple of such where the cell has several states."""
        parts = tuple(state[None, :, i] if batched else state[:, i] for i in range(state.shape[1]))
        return parts if len(parts) > 1 else parts[0]
