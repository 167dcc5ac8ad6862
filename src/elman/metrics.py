"""Metrics: how good an output is, in one number, by name.

Each is a function ``metric(output, target, weight=None) -> float``. Outputs have their channels on the last axis;
``weight`` has one number of at least 0 for each position, that is, for each index of the other axes. Where the weight
is 0, the target may hold anything, NaN included. If no position counts, a metric is NaN. Sums are in float64, over all
that is given: a metric of a whole data set is not the mean over its batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, DTypeError, ShapeError
from .kernels.exponential import exp, log
from .validation.arrays import finite, finite_numbers, real_numbers
from .validation.scalars import choice
from .validation.words import kind

Array = NDArray[Any]
Metric = Callable[..., float]

__all__ = [
    "METRICS",
    "accuracy",
    "correlation",
    "cross_entropy",
    "get_metric",
    "higher_is_better",
    "mae",
    "mse",
    "nse",
    "perplexity",
    "r2",
    "rmse",
]


def mse(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean of the squared differences over positions and channels.

    Parameters
    ----------
    output, target : array_like, shape (..., Q)
        What the network returned, and the true values.
    weight : array_like, shape (...), optional
        Weight of each position; by default all are equal.

    Returns
    -------
    float
        In the square of the target's unit.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If shapes differ, or a number of positive weight is not finite.
    """
    output, target, share = _real(output, target, weight)
    return float(share @ np.square(output - target).mean(axis=1)) if share.size else math.nan


def rmse(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Square root of :func:`mse`, in the unit of the target; arguments and errors as for :func:`mse`."""
    return math.sqrt(mse(output, target, weight))


def mae(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean of the absolute differences, in the unit of the target; arguments and errors as for :func:`mse`."""
    output, target, share = _real(output, target, weight)
    return float(share @ np.abs(output - target).mean(axis=1)) if share.size else math.nan


def r2(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Coefficient of determination: 1 - squared errors / squared deviations of the target from its mean.

    1 is perfect, 0 is what the mean of these targets would reach, and less than 0 is worse than that. For several
    channels, the mean over them, as in ``sklearn.metrics.r2_score``. NaN if a channel of the target is constant, since
    it is then not defined.

    Arguments and errors as for :func:`mse`.
    """
    output, target, share = _real(output, target, weight)
    if not share.size:
        return math.nan
    deviations = share @ np.square(target - share @ target)
    errors = share @ np.square(output - target)
    constant = np.ptp(target, axis=0) == 0.0
    return math.nan if constant.any() else float((1.0 - errors / deviations).mean())


def nse(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Nash-Sutcliffe efficiency, as hydrology calls :func:`r2` (Nash & Sutcliffe 1970); the same number."""
    return r2(output, target, weight)


def correlation(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Pearson's correlation of output and target, averaged over channels. It ignores offset and scale.

    NaN if a channel of either is constant. Arguments and errors as for :func:`mse`.
    """
    output, target, share = _real(output, target, weight)
    if not share.size or (np.ptp(output, axis=0) == 0.0).any() or (np.ptp(target, axis=0) == 0.0).any():
        return math.nan
    a, b = output - share @ output, target - share @ target
    together = share @ (a * b)
    return float((together / np.sqrt((share @ np.square(a)) * (share @ np.square(b)))).mean())


def accuracy(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Fraction of the positions whose class is right.

    Parameters
    ----------
    output : array_like, shape (..., Q)
        Logits or probabilities by class, of which the largest is the answer. With a target of the same shape: logits of
        Q yes-or-no questions, each counted by itself, with the answer yes above 0.
    target : array_like of int, shape (...), or 0 and 1 in shape (..., Q)
        Classes ``0 .. Q-1``, or answers.
    weight : array_like, shape (...), optional
        Weight of each position.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If shapes do not fit, or a target of positive weight is not a class.
    """
    if np.ndim(target) == np.ndim(output):
        logits, answers, share = _real(output, target, weight)
        if not np.isin(answers, (0.0, 1.0)).all():
            raise ArgumentError("target must hold 0 and 1 if it has the shape of the output; classes have no last axis")
        right = ((logits > 0.0) == (answers == 1.0)).mean(axis=1)
    else:
        logits, classes, share = _classes(output, target, weight)
        right = (logits.argmax(axis=1) == classes).astype(np.float64)
    return float(share @ right) if share.size else math.nan


def cross_entropy(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean negative log-likelihood of the classes under the softmax of the output, in nats.

    Parameters
    ----------
    output : array_like, shape (..., Q)
        Logits.
    target : array_like of int, shape (...)
        Classes ``0 .. Q-1``.
    weight : array_like, shape (...), optional
        Weight of each position.

    Returns
    -------
    float
        At least 0; log(Q) for an output that gives all classes the same probability.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If shapes do not fit, or a target of positive weight is not a class.
    """
    logits, classes, share = _classes(output, target, weight)
    if not share.size:
        return math.nan
    shifted = np.ascontiguousarray(logits - logits.max(axis=1, keepdims=True))
    of_target = shifted[np.arange(classes.size), classes]
    return float(share @ (log(exp(shifted).sum(axis=1)) - of_target))


def perplexity(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None) -> float:
    """``exp`` of :func:`cross_entropy`: the number of equally likely classes that would be as uncertain.

    1 is perfect; Q is reached by an output that gives all Q classes the same probability; infinite beyond the range of
    float64. Arguments and errors as for :func:`cross_entropy`.
    """
    nats = cross_entropy(output, target, weight)
    return math.exp(nats) if math.isnan(nats) or nats < 709.0 else math.inf


METRICS: dict[str, Metric] = {
    each.__name__: each for each in (mse, rmse, mae, r2, nse, correlation, accuracy, cross_entropy, perplexity)
}
"""Metrics by name."""

_HIGHER = frozenset({"r2", "nse", "correlation", "accuracy"})


def higher_is_better(metric: str | Metric) -> bool:
    """Whether a larger value is better.

    Parameters
    ----------
    metric : str or callable
        A name in :data:`METRICS`, or a function, which may have an attribute ``higher_is_better``. For anything else,
        as for a loss, a lower value is better.
    """
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    return bool(getattr(metric, "higher_is_better", name in _HIGHER))


def get_metric(metric: str | Metric) -> tuple[str, Metric]:
    """A metric and its name.

    Parameters
    ----------
    metric : str or callable
        A name in :data:`METRICS`, or a function ``metric(output, target, weight=None) -> float`` that has a name.

    Returns
    -------
    name : str
    function : callable

    Raises
    ------
    ArgumentError
        If the name is unknown.
    DTypeError
        If it is neither a name nor such a function.
    """
    if isinstance(metric, str):
        return metric, METRICS[choice(metric, "metric", METRICS)]
    name = getattr(metric, "__name__", type(metric).__name__)
    if not callable(metric) or isinstance(metric, type):
        raise DTypeError(
            "a metric must be a name such as 'rmse', or a function metric(output, target, weight=None) -> float, got "
            f"{kind(metric)}"
        )
    return str(name), metric


def _real(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None) -> tuple[Array, Array, Array]:
    """Output and target (n, Q) where the weight is positive, and the positions' shares (n,), which add up to 1."""
    given, wanted = finite_numbers(output, "output"), real_numbers(target, "target")
    if given.ndim == 0 or given.shape[-1] == 0:
        raise ShapeError(f"output must have channels on its last axis, got shape {given.shape}")
    if wanted.shape != given.shape:
        raise ShapeError(f"target must have the shape of the output, {given.shape}, got {wanted.shape}")
    keep, share = _shares(weight, given.shape[:-1])
    channels = given.shape[-1]
    chosen = wanted.reshape(-1, channels)[keep].astype(np.float64)
    finite(chosen, "target (where its weight is positive)")
    return given.reshape(-1, channels)[keep], chosen, share


def _classes(output: ArrayLike, target: ArrayLike, weight: ArrayLike | None) -> tuple[Array, Array, Array]:
    """Logits (n, Q) and classes (n,) where the weight is positive, and each position's share."""
    given, wanted = finite_numbers(output, "output"), real_numbers(target, "target")
    if given.ndim == 0 or wanted.shape != given.shape[:-1]:
        raise ShapeError(
            f"target must hold one class for each position of the output {given.shape}, that is have the shape "
            f"{given.shape[:-1]}, got {wanted.shape}"
        )
    if wanted.dtype.kind not in "iu":
        raise DTypeError(f"target must hold integer classes, got {wanted.dtype}: pass target.astype(int)")
    keep, share = _shares(weight, wanted.shape)
    n_classes = given.shape[-1]
    classes = wanted.reshape(-1)[keep]
    if classes.size and not (classes.min() >= 0 and classes.max() < n_classes):
        odd = classes[(classes < 0) | (classes >= n_classes)][0]
        raise ArgumentError(f"target must hold classes 0 .. {n_classes - 1}, one for each channel; got {odd}")
    return given.reshape(-1, n_classes)[keep], classes, share


def _shares(weight: ArrayLike | None, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Which positions count, (n,), and the share of each of those that do."""
    if weight is None:
        n = math.prod(shape)
        return np.ones(n, bool), np.full(n, 1.0 / max(1, n))
    given = finite_numbers(weight, "weight")
    if given.shape != shape:
        raise ShapeError(f"weight must have one number for each position, {shape}, got {given.shape}")
    if given.size and given.min() < 0.0:
        raise ArgumentError(f"weight must hold numbers of at least 0, got {given.min()}")
    flat = given.reshape(-1)
    keep = flat > 0.0
    # divided first: a sum of weights near the largest float would overflow
    share = flat[keep] / flat.max(initial=1e-300)
    return keep, share / max(share.sum(), 1e-300)
