"""Checks of what diagnostics are given, and the words for what is wrong with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, ShapeError
from ..given import kind
from ..linearization import Array, Linearization
from ..lists import beside, holds
from ..validation import plain, real_numbers


def whole_number(value: Any, name: str, least: int, most: int | None = None) -> int:
    """An integer from ``least`` to ``most``.

    Raises
    ------
    ArgumentError
        If it is not an integer, or outside.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ArgumentError(f"{name} must be an integer, got {value!r}")
    if value < least or (most is not None and value > most):
        span = f"at least {least}" if most is None else f"in {least} .. {most}"
        raise ArgumentError(f"{name} must be {span}, got {value}")
    return int(value)


def positive_number(value: Any, name: str, unit: str) -> float:
    """A finite real number above 0; ``unit`` says of what.

    Raises
    ------
    ArgumentError
        For anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentError(f"{name} must be a positive number of {unit}, got {value!r}")
    if not 0 < value < math.inf:
        raise ArgumentError(f"{name} must be a positive number of {unit}, got {value}")
    return float(value)


def trajectories(lin: Any, caller: str, sequences: int = 1) -> Linearization:
    """A linearization of at least so many sequences, with a state.

    Parameters
    ----------
    lin : Linearization
    caller : str
        Name of the public function, for the message.
    sequences : int, default 1
        How many are needed.

    Raises
    ------
    DTypeError
        If it is no Linearization; the message tells how to make one.
    ArgumentError, ShapeError
        If there are too few sequences, or a state of size 0.
    """
    if not isinstance(lin, Linearization):
        if isinstance(lin, type):
            cure = f"make one first, and linearize it along its input: {caller}({lin.__name__}(...).linearize(x))"
        elif hasattr(lin, "linearize"):
            cure = f"linearize the model along its input first: {caller}(model.linearize(x))"
        else:
            cure = f"wrap Jacobians (T, S, S) or (T, n, S, S) first: {caller}(elman.JacobianStack(J))"
        was = "ndarray" if isinstance(lin, np.ndarray) else kind(lin)  # whatever its shape
        raise DTypeError(f"{caller} takes a Linearization, got {was}; {cure}")
    if lin.n_sequences < sequences:
        count = "one sequence, got none" if sequences == 1 else f"{sequences} sequences, got {lin.n_sequences}"
        raise ArgumentError(f"{caller} needs at least {count}")
    if lin.state_size < 1:
        raise ShapeError(f"{caller} needs a state of at least one number, got Jacobians of shape (0, 0)")
    return lin


def real_array(value: Any, name: str) -> Array:
    """A finite float64 copy of real numbers.

    Raises
    ------
    DTypeError
        If they are not real, or masked.
    ArgumentError
        If one is NaN or infinite.
    """
    array = real_numbers(value, name).astype(np.float64)
    require_finite(array, name)
    return array


def side_by_side(value: Any, name: str, axis: int, item_axes: int = 2) -> Array:
    """One array of sequences along ``axis``, from that or a list of sequences of one length.

    Parameters
    ----------
    item_axes : int
        Axes that an item of such a list has at least.

    Raises
    ------
    ShapeError
        If sequences in a list have several shapes.
    DTypeError
        For a masked array, whose hidden numbers would silently count.
    """
    if holds(value, item_axes):
        return beside([plain(item, f"{name}[{i}]") for i, item in enumerate(value)], axis, name)
    return plain(value, name)


def require_finite(array: Array, name: str) -> None:
    """Refuse NaN and infinity in an array of floating-point numbers.

    Raises
    ------
    ArgumentError
        With the first index.
    """
    if array.dtype.kind not in "fc":
        return
    good = np.isfinite(array)
    if not good.all():
        at = tuple(int(i) for i in np.argwhere(~good)[0])
        index = ", ".join(map(str, at))
        raise ArgumentError(
            f"{name} must be finite, {name}[{index}] is {array[at]} ({np.count_nonzero(~good)} such numbers in all); "
            "fill or remove missing values first"
        )
