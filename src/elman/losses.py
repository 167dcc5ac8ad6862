"""Losses: a number, and its derivative with respect to the network's output.

A loss is an object with ``value_and_gradient(output, target)``. Two attributes are optional: ``target_axes``, the
number of axes that a target has beyond those of time and batch (1, as the output has, unless it says otherwise), and
``check_target(target, output_shape)``, called once before training.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError, DTypeError, ShapeError
from .kernels.exponential import exp, log
from .kernels.squares import sum_of_squares
from .kernels.subnormal import flushed
from .targets import NAMED
from .validation.arrays import all_finite, in_place, plain
from .validation.scalars import choice
from .validation.words import kind, model_cure

Array = NDArray[Any]


class Loss(Protocol):
    """What :func:`elman.fit` needs of a loss."""

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


class MeanSquaredError:
    """Mean of the squared differences over all entries, as ``torch.nn.MSELoss``; its name for ``fit`` is ``"mse"``."""

    target_axes = NAMED["mse"]
    takes_weight = True

    def check_target(self, target: Array, output_shape: tuple[int, ...]) -> None:
        """Refuse targets that are not real numbers in the shape of the output.

        Parameters
        ----------
        target : ndarray
            Must be of a floating dtype: whole numbers are nearly always classes, which have no distances.
        output_shape : tuple of int
            Shape that the target must have.

        Raises
        ------
        DTypeError, ShapeError
            If the dtype or shape is another.
        """
        if target.dtype.kind != "f":
            raise DTypeError(
                f"y must hold real numbers (a floating dtype) for the mse loss, got {target.dtype}: for classes use "
                'loss="cross_entropy", for whole numbers that are measurements pass y.astype(float)'
            )
        if target.shape != output_shape:
            raise ShapeError(f"y must have the shape of the output {output_shape} for the mse loss, got {target.shape}")

    @flushed
    def value_and_gradient(self, output: Array, target: Array, weight: Array | None = None) -> tuple[float, Array]:
        """Mean squared error and its gradient ``2 (output - target) / size``.

        Parameters
        ----------
        output : ndarray, shape (..., Q), float32 or float64
            Output of the network.
        target : ndarray, shape (..., Q), floating
            What it should be.
        weight : ndarray, shape (...), optional
            How much each position counts, finite and at least 0; 1 by default. At weight 0 the target may hold
            anything.

        Returns
        -------
        value : float
            The loss, summed in float64; 0 if there are no entries. It is inf or NaN, without a warning, if the output
            is.
        d_output : ndarray, shape (..., Q)
            Gradient, in the dtype of ``output``.

        Raises
        ------
        DTypeError, ShapeError
            As :meth:`check_target`; shapes are never broadcast.
        """
        output, target = in_place(output, "output"), plain(target, "target")
        self.check_target(target, output.shape)
        size = max(1, output.size)
        difference = np.subtract(output, target, dtype=output.dtype)
        if weight is not None:
            share = shares(weight, output.shape[:-1])[..., None] / max(1, output.shape[-1])
            difference[share[..., 0] == 0] = 0
            value = float((share * np.square(difference, dtype=np.float64)).sum())
            return value, (difference * (2.0 * share)).astype(output.dtype, copy=False)
        value = sum_of_squares(difference) / size
        difference *= 2.0 / size
        return value, difference


class CrossEntropy:
    """Mean negative log-likelihood, in nats, of integer classes under ``softmax(output)``.

    As ``torch.nn.CrossEntropyLoss``, with the classes on the last axis; its name for ``fit`` is ``"cross_entropy"``.
    """

    target_axes = NAMED["cross_entropy"]
    takes_weight = True

    def check_target(self, target: Array, output_shape: tuple[int, ...]) -> None:
        """Refuse targets that are not classes ``0 .. Q-1`` at the positions of the output.

        Parameters
        ----------
        target : ndarray of int
            Classes.
        output_shape : tuple of int
            Shape ``(..., Q)`` of the output; the target must have the shape ``(...)``.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
            If the dtype or shape is another, or a class lies outside ``0 .. Q-1``.
        """
        if target.dtype.kind not in "iu":
            raise DTypeError(
                f"y must hold integer classes for the cross_entropy loss, got {target.dtype}: "
                "pass y.astype(int), or y.argmax(-1) if it is one-hot"
            )
        *positions, n_classes = output_shape
        if target.shape != tuple(positions):
            raise ShapeError(
                f"y must hold one class for each position of the output {output_shape}, that is have the shape "
                f"{tuple(positions)} for the cross_entropy loss, got {target.shape}"
            )
        if target.size and not (target.min() >= 0 and target.max() < n_classes):
            index = tuple(int(i) for i in np.argwhere((target < 0) | (target >= n_classes))[0])
            raise ArgumentError(
                f"y must hold classes 0 .. {n_classes - 1}, because the output has {n_classes} channels; "
                f"y[{', '.join(map(str, index))}] is {target[index]}"
            )

    @flushed
    def value_and_gradient(self, output: Array, target: Array, weight: Array | None = None) -> tuple[float, Array]:
        """Cross-entropy and its gradient ``(softmax(output) - onehot(target)) / positions``.

        Parameters
        ----------
        output : ndarray, shape (..., Q), float32 or float64
            Logits. Differences of any size are safe: the largest logit is subtracted first (log-sum-exp).
        target : ndarray of int, shape (...)
            Classes ``0 .. Q-1``.
        weight : ndarray, shape (...), optional
            As for :class:`MeanSquaredError`.

        Returns
        -------
        value : float
            The loss in nats, averaged in float64; 0 if there are no positions. It is inf or NaN, without a warning, if
            the output is.
        d_output : ndarray, shape (..., Q)
            Gradient, in the dtype of ``output``.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
            As :meth:`check_target`.
        """
        output, target = in_place(output, "output"), plain(target, "target")
        share = None if weight is None else shares(weight, output.shape[:-1]).reshape(-1)
        if share is not None and target.shape == output.shape[:-1]:
            target = np.where(share.reshape(target.shape) > 0, target, target.dtype.type(0))
        self.check_target(target, output.shape)
        n_positions, n_classes = max(1, target.size), output.shape[-1]
        logits, classes = output.reshape(-1, n_classes), target.reshape(-1)
        rows = np.arange(classes.size)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            shifted = np.subtract(logits, logits.max(axis=1, keepdims=True, initial=-np.inf), order="C")
            of_target = shifted[rows, classes]
            gradient = exp(shifted)
            partition = gradient.sum(axis=1, keepdims=True)
            each = log(partition[:, 0].astype(np.float64)) - of_target
            value = float(each.sum()) / n_positions if share is None else float((share * each)[share > 0].sum())
            gradient /= partition
        gradient[rows, classes] -= 1.0
        if share is not None:
            return value, (gradient * share[:, None]).astype(output.dtype, copy=False).reshape(output.shape)
        gradient *= 1.0 / n_positions
        return value, gradient.reshape(output.shape)


def shares(weight: Array, shape: tuple[int, ...]) -> Array:
    """Weights of positions divided by their sum; zeros if that is 0.

    Raises
    ------
    ShapeError, ArgumentError
        For another shape than that of the positions, or weights that are negative or not finite.
    """
    given = np.asarray(weight, np.float64)
    if given.shape != shape:
        raise ShapeError(f"weight must have one number for each position, {shape}, got {given.shape}")
    total = given.sum()
    if not math.isfinite(total) or (given < 0).any():
        raise ArgumentError("weight must hold finite numbers of at least 0")
    return given / total if total else given


LOSSES: dict[str, Loss] = {"mse": MeanSquaredError(), "cross_entropy": CrossEntropy()}


def get_loss(loss: str | Loss) -> Loss:
    """Return a loss by its name, or the object itself if it is one.

    Parameters
    ----------
    loss : {"mse", "cross_entropy"} or object with ``value_and_gradient(output, target)``
        Name or loss.

    Returns
    -------
    Loss
        An object with ``value_and_gradient``.

    Raises
    ------
    ArgumentError
        If the name is unknown.
    DTypeError
        If the object has no such method.
    """
    if isinstance(loss, str):
        return LOSSES[choice(loss, "loss", LOSSES)]
    if isinstance(loss, type) or not callable(getattr(loss, "value_and_gradient", None)):
        raise DTypeError(
            "loss must be a name or an object with a method value_and_gradient(output, target) -> (value, d_output), "
            f"got {kind(loss)}{model_cure(loss)}"
        )
    return loss


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
    """Whether a loss is one of this module, which returns what it should."""
    return type(loss) in (MeanSquaredError, CrossEntropy)


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
