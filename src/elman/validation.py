"""Checks of arguments, and the words for what is wrong with them. Compiled code checks nothing and relies on them.

Each message names the argument, says what it must be and what it was, and gives the likely cure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, DTypeError, ShapeError
from .given import NUMBERS
from .given import array as as_array
from .scalars import choice as choice
from .scalars import flag as flag
from .scalars import index as index
from .scalars import integer as integer
from .scalars import number as number
from .scalars import probability as probability
from .scalars import real as real
from .scalars import real_dtype as real_dtype
from .scalars import size as size

Array = NDArray[Any]


def plain(value: ArrayLike, name: str) -> Array:
    """An array of what was given, without a copy where it is one.

    Raises
    ------
    DTypeError
        For a masked array, whose mask would be lost, and what has no numbers to give, such as None, a generator, an
        array of objects or a tensor on a GPU.
    ShapeError
        For a list of rows of unequal length.
    """
    if type(value) is np.ndarray and value.dtype.kind in NUMBERS:
        return value
    if _masked(value):
        raise DTypeError(
            f"{name} must not be a masked array, whose mask would be lost; {name} must be a plain array: fill the "
            f"missing values first, such as {name}.filled(0.0)"
        )
    return as_array(value, name)


def _masked(value: Any) -> bool:
    """Whether this is a masked array, or a list that holds one: NumPy drops the mask of either."""
    if isinstance(value, list | tuple):
        return any(_masked(item) for item in value if isinstance(item, list | tuple | np.ma.MaskedArray))
    return isinstance(value, np.ma.MaskedArray)


def real_numbers(value: ArrayLike, name: str) -> Array:
    """An array of real numbers of any type: floating-point numbers, integers, truth values. NaN may be among them.

    Raises
    ------
    DTypeError
        For complex numbers, whose imaginary part would be lost, strings, though they may spell numbers, and objects.
    ShapeError
        As :func:`plain`.
    """
    given = plain(value, name)
    if given.dtype.kind not in "fiub":
        cure = "; give the real and imaginary parts on their own" if given.dtype.kind == "c" else ""
        raise DTypeError(f"{name} must be made of real numbers, got dtype {given.dtype}{cure}")
    return given


def in_place(value: Array, name: str) -> Array:
    """What is read or written where it lies, without any conversion: an array of float32 or float64.

    Raises
    ------
    DTypeError
        For anything else.
    """
    if not isinstance(value, np.ndarray) or plain(value, name).dtype not in (np.float32, np.float64):
        what = getattr(value, "dtype", type(value).__name__)
        raise DTypeError(f"{name} must be an array of float32 or float64, got {what}")
    return value


def floating(value: ArrayLike, name: str, dtype: np.dtype[Any]) -> Array:
    """A C-contiguous, aligned, writable array of ``dtype``, a copy only where the argument is not one already.

    The layer's dtype decides: float16, float32 and float64 of any byte order are converted to it. Integers are refused,
    since in a sequence they are nearly always the numbers of words or classes.

    Raises
    ------
    DTypeError
        For integers, booleans, complex numbers, objects and strings.
    """
    given = plain(value, name)
    if given.dtype == dtype and given.flags.carray:
        return given
    if given.dtype.kind != "f":
        numbers = f"convert it: {name}.astype(float)" + ("; classes must be encoded one-hot" if name[-1] == "x" else "")
        cure = {"c": "give the real and imaginary parts as separate features"} | dict.fromkeys("iub", numbers)
        what = cure.get(given.dtype.kind, "give an array of numbers, all rows of one length")
        raise DTypeError(f"{name} must be an array of real floating-point numbers, got dtype {given.dtype}; {what}")
    with np.errstate(over="ignore", invalid="ignore"):
        array: Array = np.require(given, dtype, ["C", "A", "W"])
    return array


def real_array(value: ArrayLike, name: str, dtype: np.dtype[Any]) -> Array:
    """As :func:`floating`, all numbers finite.

    Raises
    ------
    DTypeError
        As there.
    ArgumentError
        If a number is not finite after the conversion.
    """
    array = floating(value, name, dtype)
    finite(array, name)
    return array


SMALL = 8192  # numbers that NumPy multiplies on the calling thread


def all_finite(array: Array) -> bool:
    """Whether no number is NaN or infinite; of few numbers, a finite sum of squares says so at half the price."""
    return (array.size <= SMALL and math.isfinite(np.vdot(array, array))) or bool(np.isfinite(array).all())


def finite(
    array: Array,
    name: str,
    valid: Array | None = None,
    place: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple,
) -> None:
    """Refuse NaN and infinity, naming the first.

    Parameters
    ----------
    valid : ndarray of bool, optional
        For each entry of the leading axes, whether it counts; all by default.
    place : callable, optional
        Turns an index of ``array`` into the caller's.

    Raises
    ------
    ArgumentError
        With the index of the first number that is not finite.
    """
    if all_finite(array):
        return
    good = np.isfinite(array)
    if valid is not None:
        good |= ~valid.reshape(valid.shape + (1,) * (array.ndim - valid.ndim))
        if good.all():
            return
    bad = np.argwhere(~good)
    at = tuple(int(i) for i in bad[0])
    raise ArgumentError(
        f"{name} must be finite, got {array[at]} at index {place(at)} ({len(bad)} such numbers in all); "
        f"fill or remove missing values first (numbers beyond the range of {array.dtype} count as infinite)"
    )


def sequences(x: ArrayLike, input_size: int, batch_first: bool, name: str = "x") -> tuple[Array, bool]:
    """Bring sequences to time-major form.

    Parameters
    ----------
    x : array_like
        ``(T, B, D)``; ``(B, T, D)`` with ``batch_first``; or ``(T, D)`` for one sequence.

    Returns
    -------
    x : ndarray, shape (T, B, D)
        A view of what was given where that is an array.
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
        Naming the first that does not fit.
    """
    arrays = [plain(item, f"{name}[{i}]") for i, item in enumerate(x)]
    for i, a in enumerate(arrays):
        if a.ndim != 2 or a.shape[1] != input_size:
            raise ShapeError(
                f"a list {name} must hold one array (T_i, D) a sequence, rows of one length D = input_size = "
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
    """Valid steps of B sequences as an array (B,) of integers in 0 .. T; one number will do for one sequence.

    Raises
    ------
    DTypeError, ShapeError, ArgumentError
        If they are not integers, not B of them, or one lies outside.
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
    # a negative number is a large one without a sign
    if (steps.view(np.uintp) > T).any():
        bad = np.flatnonzero((given < 0) | (given > T))
        raise ArgumentError(
            f"lengths must lie in 0 .. T = {T}, the number of steps in x, got {given[bad[0]]} at index {bad[0]} "
            f"({len(bad)} such lengths in all)"
        )
    return steps


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
    """Where the features seem to be instead."""
    if size in shape[:-1]:
        axis = shape.index(size)
        return f"; axis {axis} has that length: move it to the end with np.moveaxis(x, {axis}, -1)"
    return ""


def matching(value: ArrayLike, name: str, shape: Sequence[int], axes: str, dtype: np.dtype[Any]) -> Array:
    """An array of exactly one shape, converted as by :func:`real_array`.

    Parameters
    ----------
    axes : str
        The names of the axes, such as ``"(num_layers * num_directions, B, H)"``.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        For another shape, integers, or numbers that are not finite.
    """
    given = plain(value, name)
    if given.shape != tuple(shape):
        raise ShapeError(f"{name} must have shape {axes} = {tuple(shape)}, got {given.shape}")
    return real_array(given, name, dtype)
