"""Losses of classes: the likelihood of labels under logits, the numbers that a network puts out for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..kernels.exponential import exp, log
from ..kernels.subnormal import flushed
from ..targets import NAMED
from ..validation.arrays import in_place, plain, real_numbers
from .means import checked_weight, shares, where_counted
from .regression import EntryLoss

Array = NDArray[Any]


class CrossEntropy:
    """Mean negative log-likelihood, in nats, of integer classes under ``softmax(output)``.

    As ``torch.nn.CrossEntropyLoss``, with the classes on the last axis; its name for ``fit`` is ``"cross_entropy"``.

    Parameters
    ----------
    class_weight : array_like, shape (Q,), optional
        How much a position of each class counts, at least 0, as torch's ``weight``: multiplied with the weight of the
        position, and the mean is over these products.
    """

    target_axes = NAMED["cross_entropy"]
    takes_weight = True

    def __init__(self, class_weight: ArrayLike | None = None) -> None:
        self.class_weight = None if class_weight is None else real_numbers(class_weight, "class_weight").astype(float)
        w = self.class_weight
        if w is not None and (w.ndim != 1 or not (np.isfinite(w) & (w >= 0)).all() or not w.any()):
            raise ArgumentError(
                "class_weight must hold one number for each class, finite, at least 0, and not all 0, got "
                f"{class_weight!r}"
            )

    def __repr__(self) -> str:
        return f"CrossEntropy({'' if self.class_weight is None else f'class_weight={self.class_weight.tolist()}'})"

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
            cure = "pass y.astype(int), or y.argmax(-1) if it is one-hot"
            if target.dtype.kind == "f" and np.isnan(target).any():
                cure = 'it holds NaN: if those are gaps, fit with missing="ignore"'
            raise DTypeError(f"y must hold integer classes for the cross_entropy loss, got {target.dtype}: {cure}")
        *positions, n_classes = output_shape
        if target.shape != tuple(positions):
            cure = ": for one-hot labels pass y.argmax(-1)" if target.shape == output_shape else ""
            raise ShapeError(
                f"y must hold one class for each position of the output {output_shape}, that is have the shape "
                f"{tuple(positions)} for the cross_entropy loss, got {target.shape}{cure}"
            )
        if target.size and not (target.min() >= 0 and target.max() < n_classes):
            index = tuple(int(i) for i in np.argwhere((target < 0) | (target >= n_classes))[0])
            raise ArgumentError(
                f"y must hold classes 0 .. {n_classes - 1}, because the output has {n_classes} channels; "
                f"y[{', '.join(map(str, index))}] is {target[index]}"
            )

    def total_weight(self, target: Array, weight: ArrayLike | None = None) -> float:
        """How much these targets count beside others: what :meth:`value_and_gradient` divides the sum of losses by.

        Parameters
        ----------
        target : ndarray of int, shape (...)
            Classes; any number where the weight is 0.
        weight : array_like, shape (...), optional
            Of each position.

        Returns
        -------
        float
            Sum of the weights of positions, each times that of its class.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
            For a weight that is none.
        """
        target = plain(target, "target")
        w = np.ones(target.shape) if weight is None else checked_weight(weight, target.shape)
        if self.class_weight is not None:
            # classes that do not exist are refused, in words, where the loss is computed
            w = w * self.class_weight.take(where_counted(target, w).astype(np.intp), mode="clip")
        return float(w.sum())

    @flushed
    def value_and_gradient(self, output: Array, target: Array, weight: ArrayLike | None = None) -> tuple[float, Array]:
        """Cross-entropy and its gradient, ``(softmax(output) - onehot(target)) / positions`` without weights.

        Parameters
        ----------
        output : ndarray, shape (..., Q), float32 or float64
            Logits. Differences of any size are safe: the largest logit is subtracted first (log-sum-exp).
        target : ndarray of int, shape (...)
            Classes ``0 .. Q-1``.
        weight : array_like, shape (...), optional
            How much each position counts, at least 0; where it is 0, the class may be any number.

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
            As :meth:`check_target`, and for a weight that is none.
        """
        output, target = in_place(output, "output"), plain(target, "target")
        w = None if weight is None else checked_weight(weight, output.shape[:-1])
        if w is not None and target.shape == w.shape:
            target = where_counted(target, w)
        self.check_target(target, output.shape)
        n_classes = output.shape[-1]
        logits, classes = output.reshape(-1, n_classes), target.reshape(-1)
        share = self._shares(w, classes, n_classes)
        rows = np.arange(classes.size)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            shifted = np.subtract(logits, logits.max(axis=1, keepdims=True, initial=-np.inf), order="C")
            of_target = shifted[rows, classes]
            gradient = exp(shifted)
            partition = gradient.sum(axis=1, keepdims=True)
            losses = log(partition[:, 0].astype(np.float64)) - of_target
            plain_mean = isinstance(share, float)
            value = float(losses.sum()) / max(1, target.size) if plain_mean else float((losses * share).sum())
            gradient /= partition
            gradient[rows, classes] -= 1.0
            gradient *= share if plain_mean else np.asarray(share)[:, None]
        if not plain_mean:
            gradient[np.asarray(share) == 0.0] = 0.0
        return value, gradient.reshape(output.shape)

    def _shares(self, weight: Array | None, classes: Array, n_classes: int) -> Any:
        """What each position contributes to the mean."""
        flat = None if weight is None else weight.reshape(-1)
        if self.class_weight is not None:
            if len(self.class_weight) != n_classes:
                raise ShapeError(
                    f"class_weight must have {n_classes} numbers, one for each class, got {len(self.class_weight)}"
                )
            flat = self.class_weight[classes] * (1.0 if flat is None else flat)
        return shares(flat, classes.size)


class BinaryCrossEntropy(EntryLoss):
    """Negative log-likelihood of yes or no under ``sigmoid(output)``; its name is ``"binary_cross_entropy"``.

    As ``torch.nn.BCEWithLogitsLoss``: each channel is a question of its own, and the target a probability from 0 to 1.
    """

    name = "binary_cross_entropy"

    def check_target(self, target: Array, output_shape: tuple[int, ...]) -> None:
        """As :meth:`EntryLoss.check_target`; bool and integers are taken, and all must lie in 0 .. 1.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
        """
        super().check_target(target.astype(float) if target.dtype.kind in "biu" else target, output_shape)
        if ((target < 0) | (target > 1)).any():
            raise ArgumentError(
                f"y must lie in 0 .. 1 for the binary_cross_entropy loss, got {target.min()} .. {target.max()}; for "
                'several classes that exclude each other use loss="cross_entropy"'
            )

    def entries(self, output: Array, target: Array) -> tuple[Array, Array]:
        """``max(o, 0) - o y + log(1 + exp(-|o|))``, and ``sigmoid(o) - y``."""
        small = exp(-np.abs(output))
        softplus = log(1.0 + small.astype(np.float64))
        losses = np.maximum(output, 0) - output * target + softplus
        probability = np.where(output > 0, 1.0, small) / (1.0 + small)
        return losses, (probability - target).astype(output.dtype, copy=False)
