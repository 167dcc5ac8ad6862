"""Layers of every kind with random weights and states."""

from __future__ import annotations

import numpy as np

import elman

KINDS = {
    "tanh": (elman.RNN, {}),
    "relu": (elman.RNN, {"nonlinearity": "relu"}),
    "LSTM": (elman.LSTM, {}),
    "LSTM-proj": (elman.LSTM, {"proj_size": 4}),
    "GRU": (elman.GRU, {}),
    "GRU-before": (elman.GRU, {"reset_after": False}),
    "MGU": (elman.MGU, {}),
}


LENGTHS = np.array([3, 0, 6, 2, 6])


def make(kind, layers=1, both=False, rng=0, **options):
    """A layer (3 inputs, 7 units) with random weights and biases."""
    build, fixed = KINDS[kind]
    layer = build(3, 7, layers, bidirectional=both, **fixed, **options)
    layer.theta[:] = np.random.default_rng(rng).uniform(-0.6, 0.6, layer.theta.size)
    return layer


def initial(layer, rng, B=5):
    """A random initial state as the layer takes it."""
    parts = [
        rng.standard_normal((layer.states.directions, B, n)).astype(layer.dtype) for n in layer.states.sizes
    ]  # fmt: skip
    return tuple(parts) if len(parts) > 1 else parts[0]


def tupled(state):
    return state if isinstance(state, tuple) else (state,)


def same(a, b):
    return all(np.array_equal(p, q) for p, q in zip(tupled(a), tupled(b), strict=True))
