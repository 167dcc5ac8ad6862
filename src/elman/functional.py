"""Functions to apply to a network's output, with the same bits on every processor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError
from .kernels.activations import evaluate
from .kernels.exponential import exp
from .kernels.subnormal import flushed
from .validation.arrays import floating, real_numbers
from .validation.scalars import integer

Array = NDArray[Any]


@flushed
def softmax(logits: ArrayLike, axis: int = -1) -> Array:
    """Probabilities from logits: ``exp(x_i) / sum_j exp(x_j)``.

    Parameters
    ----------
    logits : array_like, any shape with at least one axis
        Numbers of any magnitude: the largest is subtracted first. -inf gives a probability of 0.
    axis : int, default -1
        Axis along which the probabilities add up to 1.

    Returns
    -------
    ndarray
        Of the same shape; float32 for float32, else float64. NaN where a logit is NaN or +inf.

    Raises
    ------
    DTypeError, ArgumentError
        If the logits are not real numbers, or have no such axis.
    """
    x = _numbers(logits, "logits")
    axis = integer(axis, "axis")
    if not -x.ndim <= axis < x.ndim:
        raise ArgumentError(f"axis must be one of the {x.ndim} axes of logits, got {axis}")
    rows = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    with np.errstate(invalid="ignore"):
        rows = exp(rows - rows.max(axis=-1, keepdims=True, initial=-np.inf))
        rows /= rows.sum(axis=-1, keepdims=True)
    out: Array = np.ascontiguousarray(np.moveaxis(rows, -1, axis))
    return out


def sigmoid(x: ArrayLike) -> Array:
    """Logistic function ``1 / (1 + exp(-x))``, as the kernels compute it.

    Parameters
    ----------
    x : array_like, any shape

    Returns
    -------
    ndarray
        Of the same shape; float32 for float32, else float64.

    Raises
    ------
    DTypeError
        If x does not hold real numbers.
    """
    out: Array = evaluate("sigmoid", np.ascontiguousarray(_numbers(x, "x")))
    return out


def _numbers(value: ArrayLike, name: str) -> Array:
    given = real_numbers(value, name)
    return floating(given if given.dtype.kind == "f" else given.astype(np.float64), name, _width(given))


def _width(given: Array) -> np.dtype[Any]:
    """float32 for float32 and narrower floats, else float64."""
    return np.dtype(np.float32 if given.dtype.kind == "f" and given.dtype.itemsize <= 4 else np.float64)
