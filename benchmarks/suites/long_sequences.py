"""Long sequences: the memory that checkpoints save, and what they cost.

``ELMAN_BENCHMARK_STEPS`` in the environment leaves out sequences that are longer than so many steps, but for the
shortest.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from itertools import product
from typing import Any, ClassVar

import numpy as np

import elman

from ..cases import DTYPES

CELLS = "RNN", "LSTM"
"""One without gates, one whose gates and second state are six times its output."""

HIDDEN = 256

ROUNDS = {10_000: 5, 100_000: 1}
"""Lengths, and how often each is timed: a pass over the longest takes seconds."""

LONGEST = int(os.environ.get("ELMAN_BENCHMARK_STEPS", max(ROUNDS)))

LENGTHS = tuple(T for T in ROUNDS if T <= LONGEST) or (min(ROUNDS),)


class _Long:
    """One sequence with one input, and a loss of its final state: a trace, and its gradients without that of x."""

    def prepare(self, cell: str, dtype: str, T: int) -> None:
        elman.set_num_threads(1)
        self.layer = getattr(elman, cell)(1, HIDDEN, dtype=dtype, rng=0)
        self.x = np.random.default_rng(0).standard_normal((T, 1, 1)).astype(dtype)
        # what is compiled and kept at the first call is not of the call
        for checkpoint in (False, True):
            self.gradient(checkpoint, steps=4)

    def gradient(self, checkpoint: bool, steps: int | None = None) -> Any:
        """The gradients of ``|hn|^2 / 2``."""
        trace = self.layer.trace(self.x[:steps], checkpoint=checkpoint, keep_output=not checkpoint)
        return self.layer.backward(trace, None, trace.hn, need_x=False)


class Checkpoint(_Long):
    """With every state kept, and with those before every so many steps, of which the last alone is asked for."""

    params: ClassVar = (CELLS, DTYPES, LENGTHS, (False, True))
    param_names = ("cell", "dtype", "T", "checkpoint")
    skip_params: ClassVar = [p for p in product(*params) if p[:3] == ("LSTM", "float64", 100_000)]  # half a minute each
    warmup_time, number, repeat, rounds = 0, 1, (1, 3, 10.0), 1

    def setup(self, cell: str, dtype: str, T: int, checkpoint: bool) -> None:
        self.prepare(cell, dtype, T)

    def time_forward_backward(self, cell: str, dtype: str, T: int, checkpoint: bool) -> None:
        self.gradient(checkpoint)

    def peakmem_process(self, cell: str, dtype: str, T: int, checkpoint: bool) -> None:
        """Of the whole process, interpreter and libraries included."""
        self.gradient(checkpoint)

    def track_memory(self, cell: str, dtype: str, T: int, checkpoint: bool) -> int:
        """The most that elman allocates anew during the passes: states, gates, gradients and the output of T steps."""
        tracemalloc.start()
        try:
            self.gradient(checkpoint)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    track_memory.unit = "bytes"  # type: ignore[attr-defined]


class CheckpointCost(_Long):
    """Time with checkpoints over time without: 4/3 where a backward pass costs two forward ones."""

    params: ClassVar = (CELLS, DTYPES, LENGTHS)
    param_names = ("cell", "dtype", "T")
    skip_params: ClassVar = [p for p in product(*params) if p == ("LSTM", "float64", 100_000)]

    def setup(self, cell: str, dtype: str, T: int) -> None:
        self.prepare(cell, dtype, T)

    def track_ratio(self, cell: str, dtype: str, T: int) -> float:
        """Of the fastest of a few runs of each, taken in turns.

        Raises
        ------
        AssertionError
            If a bit of the gradients differs: there is no time without a right answer.
        """
        fastest: dict[bool, float] = {}
        found = set()
        for _ in range(ROUNDS[T]):
            for checkpoint in (False, True):
                start = time.perf_counter()
                gradients = self.gradient(checkpoint)
                fastest[checkpoint] = min(time.perf_counter() - start, fastest.get(checkpoint, np.inf))
                found.add(gradients.theta.tobytes())
        assert len(found) == 1, "checkpoints change the gradients"
        return fastest[True] / fastest[False]

    track_ratio.unit = "of the time without"  # type: ignore[attr-defined]
