"""Training: one epoch of a small network by ``fit``."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import elman

from ..cases import CELLS, DTYPES

STEPS, SEQUENCES, INPUTS, HIDDEN = 50, 256, 3, 32


class Epoch:
    """Eight updates, each on 32 sequences of 50 steps, with a target at every step."""

    params: ClassVar = (CELLS, DTYPES)
    param_names = ("cell", "dtype")
    warmup_time, sample_time, repeat, rounds = 0.1, 0.1, (3, 10, 3.0), 2

    def setup(self, cell: str, dtype: str) -> None:
        elman.set_num_threads(1)
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((STEPS, SEQUENCES, INPUTS)).astype(dtype)
        self.y = np.cumsum(self.x, axis=0)[:, :, :1] / np.sqrt(STEPS)
        layer = getattr(elman, cell)(INPUTS, HIDDEN, dtype=dtype, rng=1)
        self.net = elman.Network(layer, elman.Readout(HIDDEN, 1, dtype=dtype, rng=2))
        self.time_fit(cell, dtype)

    def time_fit(self, cell: str, dtype: str) -> None:
        elman.fit(self.net, self.x, self.y, epochs=1, batch_size=32, progress=False, rng=3)
