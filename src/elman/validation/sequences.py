"""The distinction between a list of sequences and one array, the same wherever sequences are taken; their lengths.

NumPy would stack equally long items along a new first axis. For sequences that axis means time or the batch, so whether
items are taken as a list or as an array must not depend on whether their lengths happen to agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from .arrays import floating, plain

Array = NDArray[Any]


def axes(value: Any) -> int:
    """Number of axes that NumPy would find, without converting; for nested lists, from their first items."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return len(shape)
    if not _is_sequence(value):
        return 0 if isinstance(value, str | bytes | Mapping) else np.ndim(value)
    return 1 + (axes(value[0]) if len(value) else 0)


def holds(value: Any, least: int) -> bool:
    """Whether this is a sequence without a shape, such as a list, with an item of at least ``least`` axes."""
    return _is_sequence(value) and any(axes(item) >= least for item in value)


def is_list(value: Any) -> bool:
    """Whether this is a list of sequences, each an item of its own length, rather than one array.

    It is a list of sequences if it is a list, a tuple or another sequence without a shape, and any item is a table: an
    array, a tensor, a data frame, or a nested list of two levels or more. A list of lists of numbers is a single table.
    An array in a list counts even if it has a single axis: the list is then refused, rather than taken for the rows of
    a table. An empty list holds no sequences.
    """
    if not _is_sequence(value):
        return False
    return len(value) == 0 or any(axes(item) >= (2 if _is_sequence(item) else 1) for item in value)


def _is_sequence(value: Any) -> bool:
    """Whether NumPy would look at the items of this value one by one."""
    if hasattr(value, "shape"):
        return False
    if isinstance(value, list | tuple):
        return True
    known = (
        isinstance(value, str | bytes | Mapping) or hasattr(value, "__array__") or hasattr(value, "__array_interface__")
    )
    return not known and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def beside(items: list[NDArray[Any]], axis: int, name: str) -> NDArray[Any]:
    """Sequences of one length, or their targets, as one array that counts them along ``axis``.

    Raises
    ------
    ShapeError
        If they do not all have the same shape.
    """
    for i, item in enumerate(items):
        if item.shape != items[0].shape:
            raise ShapeError(
                f"{name} must hold items of one shape here, sequences of equal length: {name}[{i}] has shape "
                f"{item.shape}, {name}[0] has {items[0].shape}. Cut windows of one length (elman.datasets.windows)"
            )
    return np.stack(items, axis)


def side_by_side(value: Any, name: str, axis: int, item_axes: int = 2) -> Array:
    """One array of sequences along ``axis``, from such an array or from a list of sequences of one length.

    Parameters
    ----------
    item_axes : int
        Smallest number of axes of an item of such a list.

    Raises
    ------
    ShapeError
        If sequences in a list have different shapes.
    DTypeError
        For a masked array, whose masked numbers would silently count.
    """
    if holds(value, item_axes):
        return beside([plain(item, f"{name}[{i}]") for i, item in enumerate(value)], axis, name)
    return plain(value, name)


def sequences(x: ArrayLike, input_size: int, batch_first: bool, name: str = "x") -> tuple[Array, bool]:
    """Convert sequences to time-major form.

    Parameters
    ----------
    x : array_like
        ``(T, B, D)``; ``(B, T, D)`` with ``batch_first``; or ``(T, D)`` for one sequence.

    Returns
    -------
    x : ndarray, shape (T, B, D)
        A view of what was given, if that is an array.
    single : bool
        True for one sequence given without a batch axis.

    Raises
    ------
    ShapeError, DTypeError
        For a wrong number of axes or features.
    """
    given = plain(x, name)
    axes = "(B, T, D)" if batch_first else "(T, B, D)"
    if given.ndim not in (2, 3):
        cure = "; for one feature add an axis: x[:, None]" if given.ndim == 1 else ""
        raise ShapeError(f"{name} must have shape {axes}, or (T, D) for one sequence; got shape {given.shape}{cure}")
    if given.shape[-1] != input_size:
        raise ShapeError(
            f"{name} must have D = input_size = {input_size} numbers in its last axis, got shape {given.shape}"
            f"{_axis_cure(given.shape, input_size)}"
        )
    if given.ndim == 2:
        return given[:, None], True
    return given.swapaxes(0, 1) if batch_first else given, False


def sequence_list(x: Sequence[ArrayLike], input_size: int, name: str = "x") -> tuple[Array, list[int]]:
    """Lay sequences of several lengths side by side.

    Parameters
    ----------
    x : list of array_like, each (T_i, D)

    Returns
    -------
    padded : ndarray, shape (max T_i, B, D)
        Zero beyond the end of a sequence.
    lengths : list of int

    Raises
    ------
    ShapeError, DTypeError
        With the first that does not fit.
    """
    arrays = [plain(item, f"{name}[{i}]") for i, item in enumerate(x)]
    for i, a in enumerate(arrays):
        if a.ndim != 2 or a.shape[1] != input_size:
            raise ShapeError(
                f"a list {name} must hold one array (T_i, D) per sequence, rows of one length D = input_size = "
                f"{input_size}; {name}[{i}] has shape {a.shape}"
            )
        floating(a[:0], f"{name}[{i}]", np.dtype(np.float64))
    lengths = [len(a) for a in arrays]
    dtype = np.result_type(*(a.dtype for a in arrays)) if arrays else np.dtype(np.float64)
    padded = np.zeros((max(lengths, default=0), len(arrays), input_size), dtype)
    for i, a in enumerate(arrays):
        padded[: len(a), i] = a
    return padded, lengths


def checked_lengths(lengths: ArrayLike, T: int, B: int) -> NDArray[np.intp]:
    """Valid steps of B sequences as an array (B,) of integers in 0 .. T; for one sequence, one number is enough.

    Raises
    ------
    DTypeError, ShapeError, ArgumentError
        If they are not integers, not B of them, or one is out of range.
    """
    given = plain(lengths, "lengths")
    if given.size == 0:
        given = given.astype(np.intp)
    if given.dtype.kind not in "iu":
        raise DTypeError(f"lengths must be integers, got dtype {given.dtype}")
    if B == 1 and given.ndim == 0:
        given = given[None]
    if given.shape != (B,):
        raise ShapeError(f"lengths must have shape (B,) = ({B},), one for each sequence, got {given.shape}")
    steps: NDArray[np.intp] = given.astype(np.intp)
    # a negative number is a large unsigned one
    if (steps.view(np.uintp) > T).any():
        bad = np.flatnonzero((given < 0) | (given > T))
        raise ArgumentError(
            f"lengths must lie in 0 .. T = {T}, the number of steps in x, got {given[bad[0]]} at index {bad[0]} "
            f"({len(bad)} such lengths in all)"
        )
    return steps


def reset_mask(reset: Any, shape: tuple[int, ...], axes: str = "") -> Array:
    """Where sequences restart, as one array of truth values of this shape, that of x without its last axis.

    Parameters
    ----------
    axes : str
        The names of the axes, such as ``"(T, B)"``, for the message.

    Raises
    ------
    ShapeError, DTypeError
        For a list, another shape, or anything but truth values.
    """
    if is_list(reset):
        raise ShapeError("reset must be one array, as x is, got a list of arrays")
    given = truths(reset)
    if given.shape != shape:
        shown = f"{axes} = {shape}" if axes else f"{shape}"
        raise ShapeError(f"reset must have shape {shown}, as x without its last axis, got {given.shape}")
    return given


def truths(mask: Any) -> Array:
    """A reset mask as an array of truth values.

    Raises
    ------
    DTypeError
        If it holds anything else.
    """
    given = plain(mask, "reset")
    if given.dtype != bool:
        raise DTypeError(f"reset must hold truth values (dtype bool), got dtype {given.dtype}: reset.astype(bool)")
    return given


def _axis_cure(shape: tuple[int, ...], size: int) -> str:
    """A hint if the features seem to be along another axis."""
    if size in shape[:-1]:
        axis = shape.index(size)
        return f"; axis {axis} has that length: move it to the end with np.moveaxis(x, {axis}, -1)"
    return ""
