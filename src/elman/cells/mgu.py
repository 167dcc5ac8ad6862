r"""The minimal gated unit: a GRU whose one gate both resets and updates.

.. math::

    f = \sigma(W_{if} x_t + b_{if} + W_{hf} h_{t-1} + b_{hf}), \qquad
    n = \tanh(W_{in} x_t + b_{in} + W_{hn} (f \odot h_{t-1}) + b_{hn}), \qquad
    h_t = (1 - f) \odot h_{t-1} + f \odot n

Zhou, Wu, Zhang and Zhou, Minimal gated unit for recurrent neural networks, International Journal of Automation and
Computing 13 (2016) 226-234, arXiv:1603.09420. Each kernel works in two pieces, since the product of n needs f.
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


def _gate(m, f, h_before, fh):
    """What the second product reads, and the gate."""
    f = sigmoid(m, f)
    return f * h_before, f


def _step(m, f, n, h_before, h):
    """The state, and n."""
    n = tanh(m, n)
    return m.fma(f, n - h_before, h_before), n


def _delta_n(m, f, n, dh, *_):
    """Gradient of h, which is reduced, and of the pre-activation of n."""
    return dh, dh * f * m.fma(-n, n, 1.0)


def _delta_f(m, f, n, h_before, dh, d_fh):
    """Gradient of the pre-activation of f, and what reaches the earlier h past its product."""
    return m.fma(d_fh, h_before, dh * (n - h_before)) * m.fma(-f, f, f), m.fma(d_fh, f, dh * (1.0 - f))


def _tangent_fh(m, f, h_before, a_f, v, _):
    """Tangent of what the second product reads."""
    return (m.fma(h_before * m.fma(-f, f, f), a_f, f * v),)


def _tangent(m, f, n, h_before, a_f, a_n, v, _):
    """Tangents of the pre-activations and of the earlier h to that of h."""
    v = m.fma((n - h_before) * m.fma(-f, f, f), a_f, (1.0 - f) * v)
    return (m.fma(f * m.fma(-n, n, 1.0), a_n, v),)


_gate_rows = elementwise(_gate, 3, (2, 0))
_step_rows = elementwise(_step, 4, (3, 1))
_delta_n_rows = elementwise(_delta_n, 4, (None, 3), "squares")
_delta_f_rows = elementwise(_delta_f, 5, (4, 3))
_tangent_fh_rows = elementwise(_tangent_fh, 5, (4,))
_tangent_rows = elementwise(_tangent, 7, (6,), "squares")


@forward_kernel
def forward(s, start, x, h_before, W_ih, W_hh, gates, h):
    """A row of gates is f * h, f, n."""
    fh, f, n = blocks(gates, s.Hp, 3)
    product(s.down, s.N, 2 * s.U, start, s.D, x, W_ih, f)
    product(s.down, s.N, s.U, f, s.H, h_before, W_hh, f)
    _gate_rows(f, h_before, fh, s.N, 1, s.U)
    product(s.down, s.N, s.U, n, s.H, fh, within(W_hh, s.Hp * s.H), n)
    return _step_rows(f, n, h_before, h, s.N, 1, s.U)


@backward_kernel
def backward(s, gates, h_before, h, dh, W_back, delta, squares):
    """The gradient of f * h is kept for a while where that of f will be."""
    (_, f, n), (d_f, d_n), k = blocks(gates, s.Hp, 3), blocks(delta, s.Hp, 2), s.Hp + s.H
    W_back = rows_at(W_back, 0, k * s.VL)
    _delta_n_rows(f, n, dh, d_n, s.N, s.K, s.U, squares, s.first)
    product(s.down, s.N * s.K, s.U, None, s.H, d_n, within(W_back, s.Hp * s.VL), d_f)
    _delta_f_rows(f, n, h_before, dh, d_f, s.N, s.K, s.U)
    product(s.down, s.N * s.K, s.U, dh, s.H, d_f, W_back, dh)


@kernel
def gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, v1, dW, w_rs):
    """Add ``[x, h]^T delta`` in the block of f, ``[x, f * h]^T delta`` in that of n."""
    n = (H + lanes(delta) - 1) // lanes(delta)
    shared_gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, min(v1, n), dW, w_rs)
    shared_gradients(X, x_rs, gates, g_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, max(v0, n), v1, dW, w_rs)


@tangent_kernel
def tangent(s, start, gates, h_before, h, v, W_hh, work, new, squares):
    """``new`` holds the tangent of f * h until the second product."""
    (_, f, n), (a_f, a_n) = blocks(gates, s.Hp, 3), blocks(work, s.Hp, 2)
    product(0, s.N * s.K, s.U, start, s.H, v, W_hh, a_f)
    _tangent_fh_rows(f, h_before, a_f, v, new, s.N, s.K, s.U)
    product(0, s.N * s.K, s.U, within(start, s.Hp), s.H, new, within(W_hh, s.Hp * s.H), a_n)
    _tangent_rows(f, n, h_before, a_f, a_n, v, new, s.N, s.K, s.U, squares, s.first)


@kernel
def jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J):
    """The H x H Jacobian, rows are outputs, from the stored gates; W_hh has the gates f, n."""
    Hp = (H + lanes(states) - 1) // lanes(states) * lanes(states)
    row, s = (t * B + b) * g_rs + Hp, (t * B + b) * s_rs
    for u in range(H):
        f, n, h = gates[row + u], gates[row + Hp + u], states[s + u]
        for j in range(H):
            J[u * H + j] = (n - h) * f * (1 - f) * W_hh[u * H + j]
        J[u * H + u] += 1 - f
        for k in range(H):
            f_k = gates[row + k]
            weight = f * (1 - n * n) * W_hh[(H + u) * H + k]
            through = weight * states[s + k] * f_k * (1 - f_k)
            for j in range(H):
                J[u * H + j] += through * W_hh[k * H + j]
            J[u * H + k] += weight * f_k


MGU = Cell(
    name="mgu",
    gates=(Gate("f", "sigmoid", "renew", "forget"), Gate("n", "tanh")),
    states=("h",),
    stored=("fh", "f", "n"),
    variants=("mgu",),
    x_blocks=("f", "n"),
    h_blocks=("f", "n"),
    blocks=2,
    forward=forward,
    backward=backward,
    gradients=gradients,
    tangent=tangent,
    jacobian=jacobian,
)
