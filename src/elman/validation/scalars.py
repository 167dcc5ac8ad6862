"""Checks of arguments that are single values: a size, a number, a truth value, a name. One function for each kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import ArgumentError, DTypeError


def integer(value: Any, name: str) -> int:
    """An integer, of Python or NumPy; a truth value is not one.

    Raises
    ------
    DTypeError
        For anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DTypeError(f"{name} must be an integer, got {value!r} ({type(value).__name__})")
    return int(value)


def size(value: Any, name: str, least: int = 1, most: int | None = None) -> int:
    """An integer from ``least`` to ``most``, such as a layer's size.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not an integer, or outside.
    """
    value = integer(value, name)
    if value < least or (most is not None and value > most):
        span = f"at least {least}" if most is None else f"in {least} .. {most}"
        raise ArgumentError(f"{name} must be {span}, got {value}")
    return value


def real(value: Any, name: str) -> float:
    """A real number, of Python or NumPy; it may be NaN or infinite.

    Raises
    ------
    DTypeError
        For anything else: a truth value, a string that spells a number, an array.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise DTypeError(f"{name} must be a number, got {value!r} ({type(value).__name__})")
    return float(value)


def number(value: Any, name: str) -> float:
    """A finite real number.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not a number, or not finite.
    """
    if not np.isfinite(real(value, name)):
        raise ArgumentError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def positive(value: Any, name: str, unit: str = "") -> float:
    """A finite real number above 0; ``unit`` is its unit for the message.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not a number, or not positive and finite.
    """
    if not 0 < real(value, name) < np.inf:
        what = f"a positive number of {unit}" if unit else "a positive finite number"
        raise ArgumentError(f"{name} must be {what}, got {value!r}")
    return float(value)


def at_least_zero(value: Any, name: str) -> float:
    """A finite real number that is not negative, such as a variance.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not a number, or negative, or not finite.
    """
    if not 0 <= real(value, name) < np.inf:
        raise ArgumentError(f"{name} must be finite and at least 0, got {value!r}")
    return float(value)


def flag(value: Any, name: str) -> bool:
    """A truth value.

    Raises
    ------
    DTypeError
        For anything but True and False: None, 0.5 and "no" would all count as one of them.
    """
    if not isinstance(value, bool | np.bool_):
        raise DTypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def probability(value: Any, name: str) -> float:
    """A number of at least 0 and less than 1, such as a dropout rate.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not a number, or outside.
    """
    value = number(value, name)
    if not 0 <= value < 1:
        raise ArgumentError(f"{name} must lie in 0 <= {name} < 1, got {value}")
    return value


def choice(value: Any, name: str, allowed: Iterable[str]) -> str:
    """One of a set of names.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not a string, or none of them.
    """
    allowed = tuple(allowed)
    if not isinstance(value, str) or value not in allowed:
        error = ArgumentError if isinstance(value, str) else DTypeError
        raise error(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return str(value)


def real_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """float32 or float64, in the machine's byte order.

    Raises
    ------
    DTypeError
        For any other type.
    """
    try:
        kind = np.dtype(dtype).newbyteorder("=")
    except TypeError:
        kind = None
    if kind not in (np.float32, np.float64):
        raise DTypeError(f'dtype must be "float32" or "float64", got {dtype!r}')
    return kind


def index(value: Any, name: str, stop: int) -> int:
    """An integer in ``0 .. stop - 1``, such as a step or a sequence; negative ones do not count from the end.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not an integer, or outside.
    """
    value = integer(value, name)
    if not 0 <= value < stop:
        raise ArgumentError(f"{name} must be in 0 .. {stop - 1}, got {value}")
    return value
