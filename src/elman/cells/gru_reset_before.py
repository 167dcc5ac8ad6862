r"""The GRU cell as published: the reset gate acts on the state before its product with the weights.

.. math::

    r, z = \sigma(a_r), \sigma(a_z), \qquad n = \tanh(W_{in} x_t + b_{in} + W_{hn} (r \odot h_{t-1}) + b_{hn}), \qquad
    h_t = (1 - z) \odot n + z \odot h_{t-1}

Cho et al., EMNLP 2014, arXiv:1406.1078; ONNX calls it ``linear_before_reset = 0``, Keras ``reset_after=False``. z keeps
the old state. The product of n waits for r, so that each kernel does the elementwise part in two pieces.
"""

from __future__ import annotations

from ..kernels.activations import sigmoid, tanh
from ..kernels.compile import kernel
from ..kernels.elementwise import elementwise
from ..kernels.operands import blocks, rows_at, within
from ..kernels.tile import product
from ..kernels.vector import lanes
from .cell import Cell, Gate
from .gradients import gradients as shared_gradients
from .steps import backward_kernel, forward_kernel, tangent_kernel


def _reset(m, r, h_before, rh):
    """What the product of n reads, and the gate."""
    r = sigmoid(m, r)
    return r * h_before, r


def _step(m, z, n, h_before, h):
    """The state, z and n."""
    z, n = sigmoid(m, z), tanh(m, n)
    return m.fma(z, h_before - n, n), z, n


def _delta_n(m, z, n, dh, *_):
    """Gradient of h, which is reduced, and of the pre-activation of n."""
    return dh, dh * (1.0 - z) * m.fma(-n, n, 1.0)


def _delta(m, r, z, n, h_before, dh, d_rh, *_):
    """Gradients of the pre-activations of r and z, and what reaches the earlier h past their product."""
    d_r, d_z = d_rh * h_before * m.fma(-r, r, r), dh * (h_before - n) * m.fma(-z, z, z)
    return d_r, d_z, m.fma(d_rh, r, dh * z)


def _tangent_rh(m, r, h_before, v, a_r):
    """Tangent of what the product of n reads."""
    return (m.fma(h_before * m.fma(-r, r, r), a_r, r * v),)


def _tangent(m, z, n, h_before, a_z, a_n, v, _):
    """Tangents of the pre-activations and of the earlier h to that of h."""
    v = m.fma((h_before - n) * m.fma(-z, z, z), a_z, z * v)
    return (m.fma((1.0 - z) * m.fma(-n, n, 1.0), a_n, v),)


_reset_rows = elementwise(_reset, 3, (2, 0))
_step_rows = elementwise(_step, 4, (3, 0, 1))
_delta_n_rows = elementwise(_delta_n, 4, (None, 3), "squares")
_delta_rows = elementwise(_delta, 7, (5, 6, 4))
_tangent_rh_rows = elementwise(_tangent_rh, 4, (3,))
_tangent_rows = elementwise(_tangent, 7, (6,), "squares")


@forward_kernel
def forward(s, start, x, h_before, W_ih, W_hh, gates, h):
    """A row of gates is r * h, r, z, n."""
    rh, r, z, n = blocks(gates, s.Hp, 4)
    product(s.down, s.N, 3 * s.U, start, s.D, x, W_ih, r)
    product(s.down, s.N, 2 * s.U, r, s.H, h_before, W_hh, r)
    _reset_rows(r, h_before, rh, s.N, 1, s.U)
    product(s.down, s.N, s.U, n, s.H, rh, within(W_hh, 2 * s.Hp * s.H), n)
    return _step_rows(z, n, h_before, h, s.N, 1, s.U)


@backward_kernel
def backward(s, gates, h_before, h, dh, W_back, delta, squares):
    """The gradient of r * h is kept for a while where that of r will be."""
    (_, r, z, n), (d_r, d_z, d_n), k = blocks(gates, s.Hp, 4), blocks(delta, s.Hp, 3), 2 * s.Hp + s.H
    W_back = rows_at(W_back, 0, k * s.VL)
    _delta_n_rows(z, n, dh, d_n, s.N, s.K, s.U, squares, s.first)
    product(s.down, s.N * s.K, s.U, None, s.H, d_n, within(W_back, 2 * s.Hp * s.VL), d_r)
    _delta_rows(r, z, n, h_before, dh, d_r, d_z, s.N, s.K, s.U)
    product(s.down, s.N * s.K, s.U, dh, s.Hp + s.H, d_r, W_back, dh)


@kernel
def gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, v1, dW, w_rs):
    """Add ``[x, h]^T delta`` in the blocks of r and z, ``[x, r * h]^T delta`` in that of n."""
    n = 2 * ((H + lanes(delta) - 1) // lanes(delta))
    shared_gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, min(v1, n), dW, w_rs)
    shared_gradients(X, x_rs, gates, g_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, max(v0, n), v1, dW, w_rs)


@tangent_kernel
def tangent(s, start, gates, h_before, h, v, W_hh, work, new, squares):
    """The tangent of r * h takes the place of that of r."""
    (_, r, z, n), (a_r, a_z, a_n) = blocks(gates, s.Hp, 4), blocks(work, s.Hp, 3)
    product(0, s.N * s.K, 2 * s.U, start, s.H, v, W_hh, a_r)
    _tangent_rh_rows(r, h_before, v, a_r, s.N, s.K, s.U)
    product(0, s.N * s.K, s.U, within(start, 2 * s.Hp), s.H, a_r, within(W_hh, 2 * s.Hp * s.H), a_n)
    _tangent_rows(z, n, h_before, a_z, a_n, v, new, s.N, s.K, s.U, squares, s.first)


@kernel
def jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J):
    """The H x H Jacobian, rows are outputs, from the stored gates; W_hh has the gates r, z, n."""
    Hp = (H + lanes(states) - 1) // lanes(states) * lanes(states)
    row, s = (t * B + b) * g_rs + Hp, (t * B + b) * s_rs
    for u in range(H):
        z, n, h = gates[row + Hp + u], gates[row + 2 * Hp + u], states[s + u]
        for j in range(H):
            J[u * H + j] = (h - n) * z * (1 - z) * W_hh[(H + u) * H + j]
        J[u * H + u] += z
        for k in range(H):
            r = gates[row + k]
            weight = (1 - z) * (1 - n * n) * W_hh[(2 * H + u) * H + k]
            through = weight * states[s + k] * r * (1 - r)
            for j in range(H):
                J[u * H + j] += through * W_hh[k * H + j]
            J[u * H + k] += weight * r


GRU_RESET_BEFORE = Cell(
    name="gru",
    gates=(Gate("r", "sigmoid"), Gate("z", "sigmoid", "keep", "update"), Gate("n", "tanh")),
    states=("h",),
    stored=("rh", "r", "z", "n"),
    variants=("reset_before",),
    x_blocks=("r", "z", "n"),
    h_blocks=("r", "z", "n"),
    blocks=3,
    forward=forward,
    backward=backward,
    gradients=gradients,
    tangent=tangent,
    jacobian=jacobian,
)
