"""A state: one array, or for a cell with several states a tuple with one array for each, such as ``(h, c)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

State = ArrayLike | tuple[ArrayLike, ...]
"""A state as a caller may give it; nested lists of numbers are arrays too."""


def parts(state: Any) -> tuple[Any, ...]:
    """The arrays of a state, none for None; only for a state that a layer returned or that was checked."""
    if state is None:
        return ()
    return tuple(state) if isinstance(state, tuple | list) else (state,)


def mapped(function: Callable[[Any], Any], state: Any) -> Any:
    """Apply the function to each array of a state; the form stays the same: a tuple, one array, or None."""
    if isinstance(state, tuple | list):
        return tuple(map(function, state))
    return None if state is None else function(state)
