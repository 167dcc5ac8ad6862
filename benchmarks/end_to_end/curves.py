"""What is read off the curves of a training: time to a loss, and how far two curves are apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..cases import Array

SMOOTHED = 50
"""Updates that are averaged before curves are compared whose rounding has separated them."""


@dataclass
class Curve:
    """One training, as far as it has come.

    ``loss`` and ``seconds`` have a number for each update, the loss of its batch before it and its wall time;
    ``held_out`` and ``accuracy`` (None for a regression) one for each evaluation, after ``every`` updates each.
    ``rounds`` are the median seconds an update between two evaluations.
    """

    version: str
    first: float
    every: int
    loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)
    accuracy: list[float | None] = field(default_factory=list)

    @property
    def rounds(self) -> list[float]:
        parts = np.split(np.array(self.seconds), range(self.every, len(self.seconds), self.every))
        return [float(np.median(part)) for part in parts]

    @property
    def elapsed(self) -> Array:
        """Seconds of training at each evaluation."""
        total: Array = np.cumsum(self.seconds)[self.every - 1 :: self.every]
        return total[: len(self.held_out)]

    def reached(self, target: float) -> Reached | None:
        """The first evaluation below the target, or None if there is none."""
        below = np.flatnonzero(np.array(self.held_out) < target)
        if not len(below):
            return None
        k = int(below[0])
        return Reached((k + 1) * self.every, float(self.elapsed[k]), self.accuracy[k])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Reached(NamedTuple):
    """Updates and seconds of training until an evaluation was below the target, and the share right there."""

    updates: int
    seconds: float
    accuracy: float | None


class Agreement(NamedTuple):
    """How far two losses by update are apart, relative to the second.

    ``first`` is the deviation of the loss before any update, ``largest`` that over the first ``updates``; ``apart`` is
    the first update with a deviation above 1 %, or None. ``smoothed`` is the median over all updates of the relative
    distance between running means over :data:`SMOOTHED` updates, None if there are fewer.
    """

    first: float
    largest: float
    updates: int
    apart: int | None
    smoothed: float | None


def agreement(ours: list[float], theirs: list[float], updates: int) -> Agreement:
    """Compare two curves over what both have."""
    n = min(len(ours), len(theirs))
    a, b = np.array(ours[:n]), np.array(theirs[:n])
    deviation = np.abs(a - b) / np.abs(b)
    above = np.flatnonzero(~(deviation <= 0.01))
    smoothed = None
    if n >= SMOOTHED:
        mean_a, mean_b = (np.convolve(c, np.full(SMOOTHED, 1 / SMOOTHED), "valid") for c in (a, b))
        smoothed = float(np.median(np.abs(mean_a - mean_b) / mean_b))
    first = deviation[:updates]
    return Agreement(
        float(deviation[0]), float(first.max()), len(first), int(above[0]) if len(above) else None, smoothed
    )


def held_out_score(output: Array, target: Array, loss: str) -> tuple[float, float | None]:
    """Mean loss of outputs (M, Q) in float64, and the share of right classes, None for "mse"."""
    output = output.astype(np.float64)
    if loss == "mse":
        return float(np.mean((output - target) ** 2)), None
    top = output.max(axis=1)
    normalizer = top + np.log(np.exp(output - top[:, None]).sum(axis=1))
    of_target = output[np.arange(len(target)), target]
    return float(np.mean(normalizer - of_target)), float(np.mean(output.argmax(axis=1) == target))
