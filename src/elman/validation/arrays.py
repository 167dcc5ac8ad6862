"""Checks of arrays: whether they hold numbers, of which kind and shape, and whether these are finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from .words import kind, package

Array = NDArray[Any]

NUMBERS = "fiubc"
"""Kinds of dtypes that hold numbers; which of them an argument may have is decided elsewhere."""


def plain(value: ArrayLike, name: str) -> Array:
    """What was given as an array, without a copy if it is one already.

    Raises
    ------
    DTypeError
        For a masked array, whose mask would be lost, and for anything without accessible numbers, such as None, a
        generator, an array of objects or a tensor on a GPU.
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
    return _read(value, name)


def _masked(value: Any) -> bool:
    """Whether this is a masked array, or a list that holds one: NumPy drops the mask of either."""
    if isinstance(value, list | tuple):
        return any(_masked(item) for item in value if isinstance(item, list | tuple | np.ma.MaskedArray))
    return isinstance(value, np.ma.MaskedArray)


def _read(value: Any, name: str) -> NDArray[Any]:
    """What was given as an array of numbers, without a copy if it is one already.

    Raises
    ------
    DTypeError
        For what holds no numbers, or numbers of a type that NumPy does not have.
    ShapeError
        For a list of rows of unequal length.
    """
    must = f"{name} must be an array of real numbers"
    if value is None or isinstance(value, type):
        cure = "give one, or leave out an argument that may be" if value is None else f"make one, {value.__name__}(...)"
        raise DTypeError(f"{must}, got {kind(value)}: {cure}")
    if isinstance(value, Iterator | Set):
        raise DTypeError(
            f"{must}, got {kind(value)}, which NumPy does not read: collect its items first, list({name}) for a list "
            f"of sequences, np.array(list({name})) for one array"
        )
    if isinstance(value, Mapping):
        raise DTypeError(f"{must}, got {kind(value)}: give one of its arrays")
    if "bfloat16" in str(getattr(value, "dtype", "")):
        way = f'{name}.astype("float32")'
        if package(value) == "torch":
            way = f"NumPy cannot read it, but {name}.float()"
        raise DTypeError(f"{must}, float16, float32 or float64; got bfloat16: {way} holds the same numbers")
    if getattr(value, "requires_grad", False) is True:
        raise DTypeError(
            f"{name} must be an array of numbers, and NumPy cannot read it as one: it is a tensor whose gradients its "
            "framework follows. Give "
            f"{name}.detach(); for weights, module.state_dict() instead of dict(module.named_parameters())"
        )
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{must}, all rows of one length: {error}") from error
    except (TypeError, RuntimeError) as error:
        raise DTypeError(f"{must}, and NumPy cannot read it as one: {error}") from error
    # for strings in rows, errors about the shape come first
    if given.dtype.kind in NUMBERS or not given.size or (given.dtype.kind in "SU" and given.ndim):
        return given
    raise DTypeError(f"{must}, got {_objects(value, given, name)}")


def _objects(value: Any, given: NDArray[Any], name: str) -> str:
    """A description of an array without numbers, and what to do."""
    if given.dtype.kind != "O":
        return f"{kind(value)}: convert it, {name}.astype(float)" if given.ndim else kind(value)
    if not given.ndim:
        return kind(value)
    items = given.reshape(-1)
    if any(np.ndim(item) for item in items if hasattr(item, "__len__") and not isinstance(item, str | bytes | Mapping)):
        return f"an object array of {items.size} sequences: give them as a list, list({name})"
    odd = next((item for item in items if not isinstance(item, int | float | np.number)), items[0])
    return f"objects of shape {given.shape}, such as {kind(odd)}: convert them to numbers, {name}.astype(float)"


def real_numbers(value: ArrayLike, name: str) -> Array:
    """An array of real numbers of any type: floating-point numbers, integers, truth values. NaN may be among them.

    Raises
    ------
    DTypeError
        For complex numbers, whose imaginary part would be lost, for strings, even if they spell numbers, and for
        objects.
    ShapeError
        As :func:`plain`.
    """
    given = plain(value, name)
    if given.dtype.kind not in "fiub":
        cure = "; give the real and imaginary parts on their own" if given.dtype.kind == "c" else ""
        raise DTypeError(f"{name} must be made of real numbers, got dtype {given.dtype}{cure}")
    return given


def in_place(value: Array, name: str) -> Array:
    """An array of float32 or float64, which is read or written in place, without any conversion.

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
    """A C-contiguous, aligned, writable array of ``dtype``, copied only if the argument is not one already.

    float16, float32 and float64 of any byte order are converted to the layer's dtype. Integers are refused, since in a
    sequence they are nearly always the numbers of words or classes.

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


def finite_floats(value: ArrayLike, name: str, dtype: np.dtype[Any]) -> Array:
    """As :func:`floating`, with all numbers finite.

    Raises
    ------
    DTypeError
        As for :func:`floating`.
    ArgumentError
        If a number is not finite after the conversion.
    """
    array = floating(value, name, dtype)
    finite(array, name)
    return array


def finite_numbers(value: ArrayLike, name: str) -> Array:
    """A float64 copy of finite real numbers of any type.

    Raises
    ------
    DTypeError, ShapeError
        As for :func:`real_numbers`.
    ArgumentError
        If one is NaN or infinite.
    """
    array = real_numbers(value, name).astype(np.float64)
    finite(array, name)
    return array


SMALL = 8192  # numbers that NumPy multiplies on the calling thread


def all_finite(array: Array) -> bool:
    """Whether no number is NaN or infinite; for few numbers, a finite sum of squares shows this at half the cost."""
    return (array.size <= SMALL and math.isfinite(np.vdot(array, array))) or bool(np.isfinite(array).all())


def finite(
    array: Array,
    name: str,
    valid: Array | None = None,
    place: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple,
) -> None:
    """Refuse NaN and infinity; the message names the first.

    Parameters
    ----------
    valid : ndarray of bool, optional
        For each entry of the leading axes, whether it counts; by default all do.
    place : callable, optional
        Converts an index of ``array`` to the caller's.

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
    where = f"{name}[{', '.join(map(str, place(at)))}]" if at else name
    raise ArgumentError(
        f"{name} must be finite, {where} is {array[at]} ({len(bad)} such numbers in all); "
        f"fill or remove missing values first (numbers beyond the range of {array.dtype} count as infinite)"
    )


def matching(value: ArrayLike, name: str, shape: Sequence[int], axes: str, dtype: np.dtype[Any]) -> Array:
    """An array of exactly this shape, converted as by :func:`finite_floats`.

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
    return finite_floats(given, name, dtype)
