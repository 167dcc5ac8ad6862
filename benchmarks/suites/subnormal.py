"""Whether time depends on the numbers: ratios to what the same call takes with usual ones.

At most 1.3 each, but 1.7 for gradients in float64, whose norms below 1e-145 are computed by a second sweep. Below the
smallest normal number many processors compute a hundred times more slowly; compiled code takes such numbers for zero.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import elman

from ..cases import CELLS, DTYPES, Array
from .recurrent import fastest

STEPS, SEQUENCES, INPUTS, HIDDEN = 400, 16, 8, 64

PARAMETERS = 100_000

RATES = {"float32": 0.5, "float64": 3.0}
"""Decay of states and gradients in nats per step: most steps lie between the smallest normal number and zero."""


def forgetful(cell: str, dtype: str) -> elman.RNN | elman.LSTM | elman.GRU:
    """A layer whose states and gradients fade by a fixed rate and have no other source than the input."""
    layer: elman.RNN | elman.LSTM | elman.GRU = getattr(elman, cell)(INPUTS, HIDDEN, dtype=dtype, rng=0)
    rate = RATES[dtype]
    for name, values in layer.params.items():
        if name.startswith("bias"):
            values[:] = 0
    layer.params["weight_hh_l0"][...] *= np.exp(-rate) / 2
    if cell == "RNN":
        layer.params["weight_hh_l0"][...] = np.exp(-rate) * np.eye(HIDDEN)
    else:
        # forget gate and update gate stand second
        layer.params["bias_ih_l0"][HIDDEN : 2 * HIDDEN] = -np.log(np.expm1(rate))
    return layer


class Vanishing:
    """A gradient that enters at the last step only, against one at every step; states that die, against driven ones."""

    params: ClassVar = (CELLS, DTYPES)
    param_names = ("cell", "dtype")

    def setup(self, cell: str, dtype: str) -> None:
        elman.set_num_threads(1)
        rng = np.random.default_rng(1)
        self.layer = forgetful(cell, dtype)
        self.x = rng.standard_normal((STEPS, SEQUENCES, INPUTS)).astype(dtype)
        self.d_output = rng.standard_normal((STEPS, SEQUENCES, HIDDEN)).astype(dtype)

    @staticmethod
    def _only(a: Array, step: int) -> Array:
        out = np.zeros_like(a)
        out[step] = a[step]
        return out

    def track_backward(self, cell: str, dtype: str) -> float:
        trace, last = self.layer.trace(self.x), self._only(self.d_output, -1)
        times = [fastest(lambda d=d: self.layer.backward(trace, d), 9) for d in (self.d_output, last)]  # type: ignore[misc]
        return times[1] / times[0]

    def track_forward(self, cell: str, dtype: str) -> float:
        first = self._only(self.x, 0)
        times = [fastest(lambda x=x: self.layer(x), 9) for x in (self.x, first)]  # type: ignore[misc]
        return times[1] / times[0]

    track_forward.unit = track_backward.unit = "of usual"  # type: ignore[attr-defined]


class Step:
    """An optimizer's step with gradients whose squares, or who themselves, are subnormal, against usual ones."""

    params: ClassVar = (("Adam", "SGD"), DTYPES, (0.5, 1.04))
    param_names = ("optimizer", "dtype", "log of the gradient over that of the smallest normal number")

    def track_step(self, optimizer: str, dtype: str, depth: float) -> float:
        options = {"momentum": 0.9} if optimizer == "SGD" else {}
        gradient = np.random.default_rng(2).standard_normal(PARAMETERS).astype(dtype)
        times = []
        for scale in (1.0, float(np.finfo(dtype).smallest_normal) ** depth / 10):
            theta, small = np.ones(PARAMETERS, dtype), (gradient * scale).astype(dtype)
            made = getattr(elman, optimizer)(1e-3, **options)
            times.append(fastest(lambda m=made, t=theta, g=small: m.step(t, g), 30))  # type: ignore[misc]
        return times[1] / times[0]

    track_step.unit = "of usual"  # type: ignore[attr-defined]
