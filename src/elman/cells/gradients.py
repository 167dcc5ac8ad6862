"""Weight gradients: the same sum for every cell, from the gradients of its pre-activations."""

from __future__ import annotations

from ..kernels.compile import kernel
from ..kernels.tile import accumulate


@kernel
def gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, v1, dW, w_rs):
    """Add ``[x, h]^T delta`` to dW: row r of X and of the states is what the step of row r of delta read."""
    accumulate(X, x_rs, D, delta, d_rs, r0, r1, v0, v1 if v1 < x1 else x1, dW, 0, w_rs)
    accumulate(states, s_rs, R, delta, d_rs, r0, r1, v0 if v0 > h0 else h0, v1, dW, D * w_rs, w_rs)
