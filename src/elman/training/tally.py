"""Means over an epoch that do not depend on how it was cut into batches: of the loss, and of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError
from .samples import Piece

Array = NDArray[Any]
Metric = Callable[[Array, Array, Array | None], float]


class Tally:
    """Losses of pieces added up, and their outputs and targets kept for the metrics, if there are any.

    Parameters
    ----------
    metrics : mapping of str to callable
        Functions of output (n, Q), target and weight (n,) or None, of all positions of the epoch together.
    axes : int
        Axes of a target beyond those of positions.
    """

    def __init__(self, metrics: Mapping[str, Metric], axes: int) -> None:
        self.metrics, self.axes = metrics, axes
        self.total, self.amount = 0.0, 0.0
        self.penalty, self.updates = 0.0, 0
        self._seen: list[tuple[Array, Array, Array | None]] = []

    def add(self, value: float, chosen: Array, piece: Piece) -> None:
        """Count the loss of a piece and the outputs that it was computed from."""
        assert piece.target is not None
        self.total += value * piece.amount
        self.amount += piece.amount
        if self.metrics:
            target, n = piece.target, piece.target.ndim - self.axes
            weight = None if piece.weight is None else np.array(piece.weight).reshape(-1)
            flat = np.array(chosen).reshape(-1, chosen.shape[-1])
            self._seen.append((flat, np.array(target).reshape(-1, *target.shape[n:]), weight))

    @property
    def loss(self) -> float:
        """Mean over all targets; NaN of none."""
        return self.total / self.amount if self.amount else float("nan")

    def measured(self) -> dict[str, float]:
        """The metrics of all that was added."""
        if not self.metrics or not self._seen:
            return {}
        outputs, targets, weights = zip(*self._seen, strict=True)
        weight = None
        if any(w is not None for w in weights):
            each = [np.ones(len(o)) if w is None else w for o, w in zip(outputs, weights, strict=True)]
            weight = np.concatenate(each)
        given = np.concatenate(outputs), np.concatenate(targets), weight
        return {name: _number(metric(*given), name) for name, metric in self.metrics.items()}


def _number(value: Any, name: str) -> float:
    """What a metric returned, if that is a number."""
    if np.ndim(value) or np.asarray(value).dtype.kind not in "fiub":
        raise DTypeError(f"the metric {name!r} must return a number, got {type(value).__name__}")
    return float(value)
