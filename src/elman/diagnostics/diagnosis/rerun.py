"""The sequences of a prediction, run again after a change: the same inputs, the same start vectors, another model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...linearization import Array, ElementwiseFactors
from ...norms import row_norms
from ..gradient.curve import GrowthCurve
from ..gradient.growth import backward_growth, unit_vectors
from .sequences import ModelSequences
from .verification import measure

ENOUGH = 16
"""Number of sequences run again: pairs differ far less than sequences do, so these give narrow intervals."""
_VECTORS = 2

Change = Callable[[ModelSequences], ModelSequences]


def unchanged(sequences: ModelSequences) -> ModelSequences:
    """No change."""
    return sequences


def turned(lever: str, amount: float) -> Change:
    """Turn a lever of the model; see :class:`~elman.diagnostics.Adjustable`."""
    return lambda sequences: sequences.changed(lever, amount)


def driven(factor: float) -> Change:
    """Multiply the inputs by a factor."""
    return lambda sequences: sequences.scaled(factor)


@dataclass(frozen=True, eq=False)
class Rerun:
    """What stays the same between two runs.

    Attributes
    ----------
    batches : tuple of ModelSequences
        Those of the prediction, in its order.
    held_out : ModelSequences or None
        Those set aside for verification.
    threshold : float
        Of verdicts, nats.
    state_size : int
        Size ``S`` of the state.
    dtype : numpy.dtype
        Of the model's gradients.
    seed : int
        Of the start vectors.
    """

    batches: tuple[ModelSequences, ...]
    held_out: ModelSequences | None
    threshold: float
    state_size: int
    dtype: np.dtype[Any]
    seed: int

    @classmethod
    def of(cls, batches: tuple[ModelSequences, ...], *others: Any) -> Rerun:
        """With only as many of the first batches as hold :data:`ENOUGH` sequences."""
        counts = np.cumsum([batch.n for batch in batches])
        return cls(batches[: int(np.searchsorted(counts, ENOUGH)) + 1], *others)

    @property
    def n(self) -> int:
        """Number of sequences."""
        return sum(batch.n for batch in self.batches)

    def starts(self) -> list[Array]:
        """Start vectors (n, K, S) for each batch, the same at every call."""
        rng = np.random.default_rng(self.seed)
        return [unit_vectors(rng, batch.n, _VECTORS, self.state_size) for batch in self.batches]

    def curve(self, change: Change = unchanged) -> tuple[GrowthCurve, list[tuple[ElementwiseFactors, Array]]]:
        """Growth from random starts after a change, and factors and starts for its causes, for elementwise cells."""
        logs, parts = [], []
        for batch, start in zip(self.batches, self.starts(), strict=True):
            lin = change(batch).linearize()
            logs.append(backward_growth(lin, start))
            factors = lin.factors
            if factors is not None:
                parts.append((factors, start))
        return GrowthCurve(np.concatenate(logs, axis=1), "random", self.threshold), parts

    def loss_curve(self, change: Change = unchanged) -> tuple[GrowthCurve, float] | None:
        """Growth from the gradient of the loss after a change, and the root mean square of its norm at lag 0.

        None without labels.
        """
        logs, norms, rng = [], [], np.random.default_rng(self.seed)
        for batch in map(change, self.batches):
            lin = batch.linearize()
            pair = None if batch.y is None else batch.loss_start(rng, lin)
            if pair is None:
                return None
            logs.append(backward_growth(lin, pair[1][:, None]))
            norms.append(row_norms(pair[1]))
        of_all = np.concatenate(norms)
        size = float(row_norms(of_all)) / math.sqrt(len(of_all))
        return GrowthCurve(np.concatenate(logs, axis=1), "loss", self.threshold), size

    def measured(self, predicted: GrowthCurve, change: Change = unchanged) -> GrowthCurve | None:
        """The gradient of training on the held-out sequences after a change, as far as its dtype can represent it."""
        if self.held_out is None or self.held_out.n < 2:
            return None
        rng = np.random.default_rng(self.seed)
        made = measure(change(self.held_out), predicted, None, self.state_size, self.dtype, None, rng)
        return made.random.measured


def sequence_rates(curve: GrowthCurve, last: int) -> Array:
    """Slope of each sequence over lags up to ``last``, shape (n,), nats per step; NaN for a dead one."""
    cut = curve.truncated(last)
    rates = np.full(cut.n, np.nan)
    rates[np.isfinite(cut.sequence_logs[-1])] = cut.slopes
    return rates
