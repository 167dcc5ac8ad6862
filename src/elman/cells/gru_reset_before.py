r"""The GRU cell as published: the reset gate acts on the state before its product with the weights.

.. math::

    r, z = \sigma(a_r), \sigma(a_z), \qquad n = \tanh(W_{in} x_t + b_{in} + W_{hn} (r \odot h_{t-1}) + b_{hn}), \qquad
    h_t = (1 - z) \odot n + z \odot h_{t-1}

Cho et al., EMNLP 2014, arXiv:1406.1078; ONNX calls it ``linear_before_reset = 0``, Keras ``reset_after=False``. z keeps
the old state. The product of n waits for r, so that each kernel does the elementwise part in two pieces.
"""

from __future__ import annotations

from ..kernels.activations import sigmoid, tanh
from ..kernels.compile import integer, kernel
from ..kernels.elementwise import add_row, copy_row, elementwise
from ..kernels.tile import FEW, product
from ..kernels.vector import lanes
from .cell import Cell, Gate
from .gradients import gradients as shared_gradients


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


@kernel
def forward(
    variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D, H, R, B, slots, active, t0, t1,
    b0, b1,
):  # fmt: skip
    """Fill states and gates of the window; a row of gates is r * h, r, z, n."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    zero, one = integer(0), integer(1)
    for t in range(t0, t1):
        N = (b1 if b1 < active[t] else active[t]) - b0
        if N <= 0:
            break
        down = t % 2 if N <= FEW else zero
        now = ((t % slots) * B + b0) * s_rs
        new = (((t + 1) % slots) * B + b0) * s_rs
        x, start = (t * B + b0) * x_rs, ((t - t0) * B + b0) * i_rs
        rh = ((t * B if slots > 2 else 0) + b0) * g_rs
        r, z, n = rh + Hp, rh + 2 * Hp, rh + 3 * Hp
        product(down, N, 3 * U, init, start, i_rs, VL, D, X, x, x_rs, one, P_ih, zero, D * VL, VL, gates, r, g_rs)
        product(down, N, 2 * U, gates, r, g_rs, VL, H, states, now, s_rs, one, P_hh, zero, H * VL, VL, gates, r, g_rs)
        _reset_rows(gates, r, g_rs, states, now, s_rs, gates, rh, g_rs, N, U)
        product(down, N, U, gates, n, g_rs, VL, H, gates, rh, g_rs, one, P_hh, 2 * Hp * H, H * VL, VL, gates, n, g_rs)
        if _step_rows(gates, z, g_rs, gates, n, g_rs, states, now, s_rs, states, new, s_rs, N, U) == 0:
            return t
        if out.size > 0:
            for b in range(N):
                copy_row(out, (t * B + b0 + b) * o_rs, states, new + b * s_rs, H)
    return -1


@kernel
def backward(
    variant, dY, y_rs, P_back, zero, states, s_rs, gates, g_rs, delta, d_rs, d_state, squares, H, R, B, K, keep, active,
    t0, t1, b0, b1,
):  # fmt: skip
    """Sweep down the window; the gradient of r * h stands where that of r will."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    k = 2 * Hp + H
    for t in range(t1 - 1, t0 - 1, -1):
        n1 = b1 if b1 < active[t] else active[t]
        if n1 <= b0:
            continue
        down = t % 2 if (n1 - b0) * K <= FEW else none
        for b in range(b0, n1):
            d = b * K * s_rs
            if dY.size > 0:
                for i in range(K):
                    add_row(d_state, d + i * s_rs, dY, ((t * B + b) * K + i) * y_rs, H)
            z, d_n = (t * B + b) * g_rs + 2 * Hp, (keep * t * B + b) * K * d_rs + 2 * Hp
            _delta_n_rows(
                gates, z, none, gates, z + Hp, none, d_state, d, s_rs, delta, d_n, d_rs,
                K, U, squares, (t * B + b) * K,
            )  # fmt: skip
        rows, at, to = (n1 - b0) * K, (keep * t * B + b0) * K * d_rs, b0 * K * s_rs
        d_n, of_n = at + 2 * Hp, 2 * Hp * VL
        product(
            down, rows, U, zero, none, none, none, H, delta, d_n, d_rs, one, P_back, of_n, k * VL, VL, delta, at, d_rs
        )
        for b in range(b0, n1):
            r, d_r = (t * B + b) * g_rs + Hp, (keep * t * B + b) * K * d_rs
            _delta_rows(
                gates, r, none, gates, r + Hp, none, gates, r + 2 * Hp, none, states, (t * B + b) * s_rs, none,
                d_state, b * K * s_rs, s_rs, delta, d_r, d_rs, delta, d_r + Hp, d_rs, K, U,
            )  # fmt: skip
        product(
            down, rows, U, d_state, to, s_rs, VL, Hp + H, delta, at, d_rs, one, P_back, none, k * VL, VL,
            d_state, to, s_rs,
        )  # fmt: skip


@kernel
def gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, v1, dW, w_rs):
    """Add ``[x, h]^T delta`` in the blocks of r and z, ``[x, r * h]^T delta`` in that of n."""
    VL = lanes(delta)
    n = 2 * ((H + VL - 1) // VL)
    shared_gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, min(v1, n), dW, w_rs)
    shared_gradients(X, x_rs, gates, g_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, max(v0, n), v1, dW, w_rs)


@kernel
def tangent(
    variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs, squares, H, R, B, K, t0, t1, b0, b1
):  # fmt: skip
    """Push tangents through the window; that of r * h takes the place of that of r."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    for t in range(t0, t1):
        x, rows, w = ((t - t0) * B + b0) * K * i_rs, (b1 - b0) * K, b0 * K * w_rs
        v = (t % 2 * B + b0) * K * v_rs
        product(none, rows, 2 * U, init, x, i_rs, VL, H, V, v, v_rs, one, P_hh, none, H * VL, VL, work, w, w_rs)
        for b in range(b0, b1):
            r, h = (t * B + b) * g_rs + Hp, (t * B + b) * s_rs
            now, a_r = (t % 2 * B + b) * K * v_rs, b * K * w_rs
            _tangent_rh_rows(gates, r, none, states, h, none, V, now, v_rs, work, a_r, w_rs, K, U)
        x, a_n = x + 2 * Hp, w + 2 * Hp
        product(none, rows, U, init, x, i_rs, VL, H, work, w, w_rs, one, P_hh, 2 * Hp * H, H * VL, VL, work, a_n, w_rs)
        for b in range(b0, b1):
            z, h = (t * B + b) * g_rs + 2 * Hp, (t * B + b) * s_rs
            now, new = (t % 2 * B + b) * K * v_rs, ((t + 1) % 2 * B + b) * K * v_rs
            a_z = b * K * w_rs + Hp
            _tangent_rows(
                gates, z, none, gates, z + Hp, none, states, h, none, work, a_z, w_rs, work, a_z + Hp, w_rs,
                V, now, v_rs, V, new, v_rs, K, U, squares, ((t - t0) * B + b) * K,
            )  # fmt: skip


@kernel
def jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J):
    """The H x H Jacobian, rows are outputs, from the stored gates; W_hh has the gates r, z, n."""
    VL = lanes(states)
    Hp = (H + VL - 1) // VL * VL
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
