"""What is a list of sequences and what is an array: one rule for every place that takes sequences.

NumPy would stack equally long items along a new first axis. For sequences that axis means time or the batch, so the
same items in a list and in an array must not be told apart by whether their lengths happen to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ShapeError


def axes(value: Any) -> int:
    """Number of axes that NumPy would find, without converting: of nested lists from their first items."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return len(shape)
    if not _is_sequence(value):
        return 0 if isinstance(value, str | bytes | Mapping) else np.ndim(value)
    return 1 + (axes(value[0]) if len(value) else 0)


def holds(value: Any, least: int) -> bool:
    """Whether this is a sequence without a shape, such as a list, with an item of at least so many axes."""
    return _is_sequence(value) and any(axes(item) >= least for item in value)


def is_list(value: Any) -> bool:
    """Whether this is a list of sequences, each an item of its own length, rather than one array.

    It is if it is a list, a tuple or another sequence without a shape, and any item is a table: an array, a tensor or a
    data frame, or a nested list of two levels or more. Lists of lists of numbers are one table. An array in a list
    counts with a single axis too: then the list is refused, rather than taken for the rows of a table. An empty list
    holds no sequences.
    """
    if not _is_sequence(value):
        return False
    return len(value) == 0 or any(axes(item) >= (2 if _is_sequence(item) else 1) for item in value)


def _is_sequence(value: Any) -> bool:
    """Whether NumPy would look at the items of this one by one."""
    if hasattr(value, "shape"):
        return False
    if isinstance(value, list | tuple):
        return True
    known = (
        isinstance(value, str | bytes | Mapping) or hasattr(value, "__array__") or hasattr(value, "__array_interface__")
    )
    return not known and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def beside(items: list[NDArray[Any]], axis: int, name: str) -> NDArray[Any]:
    """Sequences, or their targets, of one length as one array that counts them along ``axis``.

    Raises
    ------
    ShapeError
        If they do not all have one shape.
    """
    for i, item in enumerate(items):
        if item.shape != items[0].shape:
            raise ShapeError(
                f"{name} must hold items of one shape here, sequences of equal length: {name}[{i}] has shape "
                f"{item.shape}, {name}[0] has {items[0].shape}. Cut windows of one length (elman.datasets.windows)"
            )
    return np.stack(items, axis)
