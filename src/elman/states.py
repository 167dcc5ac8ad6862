"""A state: one array, or for a cell of several states a tuple of one for each, such as ``(h, c)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

State = ArrayLike | tuple[ArrayLike, ...]
"""What a caller gives; nested lists of numbers are arrays too."""


def parts(state: Any) -> tuple[Any, ...]:
    """The arrays of a state, none of None; for a state that a layer returned, or that was checked."""
    if state is None:
        return ()
    return tuple(state) if isinstance(state, tuple | list) else (state,)


def mapped(function: Callable[[Any], Any], state: Any) -> Any:
    """The function of each array of a state, in the same form: a tuple, or one array; None of None."""
    if isinstance(state, tuple | list):
        return tuple(map(function, state))
    return None if state is None else function(state)
