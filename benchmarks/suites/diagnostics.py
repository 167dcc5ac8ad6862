"""What a diagnosis costs, in seconds and in training steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import ClassVar

import numpy as np

import elman

from ..cases import DTYPES

STEPS, SEQUENCES, INPUTS, HIDDEN = 100, 64, 3, 64


def seconds(call: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Diagnose:
    """``diagnose`` at level "full" beside one update on as many sequences as it may use."""

    params: ClassVar = DTYPES
    param_names = ("dtype",)
    warmup_time, sample_time, repeat, rounds = 0.1, 0.1, (3, 10, 3.0), 2

    def setup(self, dtype: str) -> None:
        elman.set_num_threads(1)
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((STEPS, SEQUENCES, INPUTS)).astype(dtype)
        self.y = rng.standard_normal((SEQUENCES, 1)).astype(dtype)
        layer = elman.RNN(INPUTS, HIDDEN, dtype=dtype, rng=1)
        self.net = elman.Network(layer, elman.Readout(HIDDEN, 1, dtype=dtype, rng=2))
        self.half = self.x[:, : SEQUENCES // 2], self.y[: SEQUENCES // 2]
        self.train()
        self.time_diagnose(dtype)

    def train(self) -> None:
        """One update on half of the sequences: the other half of them a diagnosis keeps for verification."""
        elman.fit(self.net, *self.half, epochs=1, batch_size=SEQUENCES // 2, progress=False, rng=3)

    def time_diagnose(self, dtype: str) -> None:
        elman.diagnose(self.net, self.x, self.y, rng=4)

    def track_training_steps(self, dtype: str) -> float:
        """Time of a diagnosis over that of an update; median of interleaved pairs."""
        return statistics.median(seconds(lambda: self.time_diagnose(dtype)) / seconds(self.train) for _ in range(7))

    track_training_steps.unit = "training steps"  # type: ignore[attr-defined]


class Cost:
    """``diagnose`` with K random vectors over one update on the sequences it used."""

    params: ClassVar = (("RNN", "LSTM", "GRU"), (64, 256), (1, 4))
    param_names = ("cell", "hidden", "vectors")

    def setup(self, cell: str, hidden: int, vectors: int) -> None:
        elman.set_num_threads(1)
        rng = np.random.default_rng(0)
        self.x, self.y = rng.standard_normal((STEPS, 16, INPUTS)), rng.standard_normal((16, 1))
        self.net = elman.Network(getattr(elman, cell)(INPUTS, hidden, rng=1), elman.Readout(hidden, 1, rng=2))

    def track_training_steps(self, cell: str, hidden: int, vectors: int) -> float:
        """Time of a diagnosis over that of an update; median of interleaved pairs."""
        used = elman.diagnose(self.net, self.x, self.y, vectors=vectors, rng=4).curve.n
        some = self.x[:, :used], self.y[:used]

        def diagnose() -> None:
            elman.diagnose(self.net, self.x, self.y, vectors=vectors, rng=4)

        def train() -> None:
            elman.fit(self.net, *some, epochs=1, batch_size=used, optimizer=elman.SGD(1e-12), progress=False, rng=3)

        train()
        return statistics.median(seconds(diagnose) / seconds(train) for _ in range(5))

    track_training_steps.unit = "training steps"  # type: ignore[attr-defined]
