"""Driven networks written in NumPy alone, with their Jacobians and factors."""

from __future__ import annotations

import numpy as np

from elman.linearization import ElementwiseFactors, JacobianStack


class NumpyTanhNetwork(JacobianStack):
    """h' = tanh(W h + x) with random input, written with NumPy alone, with its factors."""

    def __init__(self, W, T, n, input_scale, rng):
        H = len(W)
        h = rng.standard_normal((n, H))
        self.slopes, self.weight = np.empty((T, n, H)), W
        for t in range(T):
            h = np.tanh(h @ W.T + input_scale * rng.standard_normal((n, H)))
            self.slopes[t] = 1 - h * h
        super().__init__(self.slopes[..., None] * W)

    @property
    def factors(self):
        return ElementwiseFactors(self.slopes, self.weight, 1.0)


def tanh_network(H=12, g=1.3, T=40, n=3, input_scale=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return NumpyTanhNetwork(g * rng.standard_normal((H, H)) / np.sqrt(H), T, n, input_scale, rng)
