"""What a loss is, and what is made of one that a caller has written."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, ShapeError
from ..validation.arrays import all_finite, plain
from ..validation.words import kind

Array = NDArray[Any]


class Loss(Protocol):
    """What :func:`elman.fit` needs of a loss.

    These attributes are optional: ``target_axes``, the number of axes that a target has beyond those of time and batch
    (1, as the output has, unless it says otherwise); ``check_target(target, output_shape)``, called once before
    training; ``takes_weight = True``, if ``value_and_gradient`` has a third argument ``weight``, the weights of the
    positions, of the shape of ``output`` without its last axis; ``fitted_to(target, weight)``, which returns the loss
    to be used, made from all targets of a training; ``target_shape(output_shape)``, if a target has other channels than
    the output; ``total_weight(target, weight)``, what the sum of losses is divided by, if that is not the number of
    positions or the sum of their weights.
    """

    def value_and_gradient(self, output: Array, target: Array) -> tuple[float, Array]:
        """Return the mean loss and its gradient.

        Parameters
        ----------
        output : ndarray, shape (..., Q)
            Output of the network at the steps that have a target.
        target : ndarray
            Targets of these steps.

        Returns
        -------
        value : float
            The loss, a mean over the entries of ``target``.
        d_output : ndarray, shape (..., Q)
            Its derivative by ``output``, in the dtype of ``output``.
        """
        ...


def checked(loss: Any, output: Array, target: Array, weight: Array | None = None) -> tuple[float, Array]:
    """Value and derivative of a loss, checked: a loss of the caller's own may return anything.

    Returns
    -------
    value : float
        It may be NaN or infinite.
    d_output : ndarray, shape and dtype of ``output``

    Raises
    ------
    DTypeError, ShapeError
        If it is not a number and an array of numbers in the shape of the output.
    """
    weighted = () if weight is None else (weight,)
    result: Any = loss.value_and_gradient(output, target, *weighted)
    if is_own(loss):
        own: tuple[float, Array] = result
        return own
    name = f"{type(loss).__name__}.value_and_gradient"
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise DTypeError(
            f"{name} must return two things, the loss and its derivative: (value, d_output), with d_output of the "
            f"shape of the output, {output.shape}; got {kind(result)}"
        )
    value, d_output = result
    if np.ndim(value) or np.asarray(value).dtype.kind not in "fiu":
        raise DTypeError(f"{name} must return a number as the loss, the mean over all targets; got {kind(value)}")
    d_output = plain(d_output, f"d_output of {name}")
    if d_output.dtype.kind not in "fiu":
        raise DTypeError(f"d_output of {name} must hold real numbers, got dtype {d_output.dtype}")
    if d_output.shape != output.shape:
        raise ShapeError(f"d_output of {name} must have the shape of the output, {output.shape}; got {d_output.shape}")
    with np.errstate(over="ignore"):
        return float(value), d_output.astype(output.dtype, copy=False)


def is_own(loss: Loss) -> bool:
    """Whether a loss is one of this package, which returns what it should."""
    return type(loss).__module__.startswith(f"{__package__}.")


def broken(loss: Loss, value: float, d_output: Array, output: Array) -> str:
    """How a loss failed on a finite output, in words; empty if it did not, or only because the output is too large."""
    if is_own(loss) or (math.isfinite(value) and all_finite(d_output)):
        return ""
    name, what = f"{type(loss).__name__}.value_and_gradient", f"{value} as the loss"
    if math.isfinite(value):
        what = f"a derivative d_output with {np.count_nonzero(~np.isfinite(d_output))} numbers that are not finite"
    largest = np.abs(output).max(initial=0.0)
    return (
        f"{name} must return finite numbers, and returned {what} for a finite output, up to {largest:.3g}: look there "
        "for a division by 0, a logarithm or root of what is not positive, or an overflow"
    )
