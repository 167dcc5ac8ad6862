"""Systems whose exponents and growth are known, or that are written in NumPy alone."""

from __future__ import annotations

import numpy as np

from elman.linearization import JacobianStack


def tanh_network(H, g, T, seed):
    """Jacobians diag(1 - h^2) W of h' = tanh(W h) after a transient, with W and the slopes."""
    rng = np.random.default_rng(seed)
    W = g * rng.standard_normal((H, H)) / np.sqrt(H)
    h = rng.standard_normal(H)
    for _ in range(200):
        h = np.tanh(W @ h)
    slopes = np.empty((T, H))
    for t in range(T):
        h = np.tanh(W @ h)
        slopes[t] = 1 - h * h
    return slopes[:, :, None] * W, W, slopes


def repeated(W, T):
    """The linear network h' = W h."""
    return JacobianStack(np.broadcast_to(np.asarray(W, float), (T, *np.shape(W))))
