r"""The minimal gated unit: a GRU whose one gate both resets and updates.

.. math::

    f = \sigma(W_{if} x_t + b_{if} + W_{hf} h_{t-1} + b_{hf}), \qquad
    n = \tanh(W_{in} x_t + b_{in} + W_{hn} (f \odot h_{t-1}) + b_{hn}), \qquad
    h_t = (1 - f) \odot h_{t-1} + f \odot n

Zhou, Wu, Zhang and Zhou, Minimal gated unit for recurrent neural networks, International Journal of Automation and
Computing 13 (2016) 226-234, arXiv:1603.09420. The product of n waits for f, so that each kernel does
the elementwise part in two pieces.
"""

from __future__ import annotations

from ..kernels.activations import sigmoid, tanh
from ..kernels.compile import integer, kernel
from ..kernels.elementwise import add_row, copy_row, elementwise
from ..kernels.tile import FEW, product
from ..kernels.vector import lanes
from .cell import Cell, Gate
from .gradients import gradients as shared_gradients


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


@kernel
def forward(
    variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D, H, R, B, slots, active, t0, t1,
    b0, b1,
):  # fmt: skip
    """Fill states and gates of the window; a row of gates is f * h, f, n."""
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
        fh = ((t * B if slots > 2 else 0) + b0) * g_rs
        f, n = fh + Hp, fh + 2 * Hp
        product(down, N, 2 * U, init, start, i_rs, VL, D, X, x, x_rs, one, P_ih, zero, D * VL, VL, gates, f, g_rs)
        product(down, N, U, gates, f, g_rs, VL, H, states, now, s_rs, one, P_hh, zero, H * VL, VL, gates, f, g_rs)
        _gate_rows(gates, f, g_rs, states, now, s_rs, gates, fh, g_rs, N, U)
        product(down, N, U, gates, n, g_rs, VL, H, gates, fh, g_rs, one, P_hh, Hp * H, H * VL, VL, gates, n, g_rs)
        if _step_rows(gates, f, g_rs, gates, n, g_rs, states, now, s_rs, states, new, s_rs, N, U) == 0:
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
    """Sweep down the window; the gradient of f * h stands where that of f will."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    k = Hp + H
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
            f, d_n = (t * B + b) * g_rs + Hp, (keep * t * B + b) * K * d_rs + Hp
            _delta_n_rows(
                gates, f, none, gates, f + Hp, none, d_state, d, s_rs, delta, d_n, d_rs,
                K, U, squares, (t * B + b) * K,
            )  # fmt: skip
        rows, at, to = (n1 - b0) * K, (keep * t * B + b0) * K * d_rs, b0 * K * s_rs
        d_n = at + Hp
        product(
            down, rows, U, zero, none, none, none, H, delta, d_n, d_rs, one, P_back, Hp * VL, k * VL, VL,
            delta, at, d_rs,
        )  # fmt: skip
        for b in range(b0, n1):
            f, d_f = (t * B + b) * g_rs + Hp, (keep * t * B + b) * K * d_rs
            _delta_f_rows(
                gates, f, none, gates, f + Hp, none, states, (t * B + b) * s_rs, none, d_state, b * K * s_rs, s_rs,
                delta, d_f, d_rs, K, U,
            )  # fmt: skip
        product(
            down, rows, U, d_state, to, s_rs, VL, H, delta, at, d_rs, one, P_back, none, k * VL, VL, d_state, to, s_rs
        )


@kernel
def gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, v1, dW, w_rs):
    """Add ``[x, h]^T delta`` in the block of f, ``[x, f * h]^T delta`` in that of n."""
    VL = lanes(delta)
    n = (H + VL - 1) // VL
    shared_gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, min(v1, n), dW, w_rs)
    shared_gradients(X, x_rs, gates, g_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, max(v0, n), v1, dW, w_rs)


@kernel
def tangent(
    variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs, squares, H, R, B, K, t0, t1, b0, b1
):  # fmt: skip
    """Push tangents through the window; the slot of the new one holds that of f * h until the second product."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    for t in range(t0, t1):
        x, rows, w = ((t - t0) * B + b0) * K * i_rs, (b1 - b0) * K, b0 * K * w_rs
        v, v_fh = (t % 2 * B + b0) * K * v_rs, ((t + 1) % 2 * B + b0) * K * v_rs
        product(none, rows, U, init, x, i_rs, VL, H, V, v, v_rs, one, P_hh, none, H * VL, VL, work, w, w_rs)
        for b in range(b0, b1):
            f, h = (t * B + b) * g_rs + Hp, (t * B + b) * s_rs
            now, new = (t % 2 * B + b) * K * v_rs, ((t + 1) % 2 * B + b) * K * v_rs
            _tangent_fh_rows(
                gates, f, none, states, h, none, work, b * K * w_rs, w_rs, V, now, v_rs, V, new, v_rs, K, U
            )
        x, a_n = x + Hp, w + Hp
        product(none, rows, U, init, x, i_rs, VL, H, V, v_fh, v_rs, one, P_hh, Hp * H, H * VL, VL, work, a_n, w_rs)
        for b in range(b0, b1):
            f, h = (t * B + b) * g_rs + Hp, (t * B + b) * s_rs
            now, new = (t % 2 * B + b) * K * v_rs, ((t + 1) % 2 * B + b) * K * v_rs
            a_f = b * K * w_rs
            _tangent_rows(
                gates, f, none, gates, f + Hp, none, states, h, none, work, a_f, w_rs, work, a_f + Hp, w_rs,
                V, now, v_rs, V, new, v_rs, K, U, squares, ((t - t0) * B + b) * K,
            )  # fmt: skip


@kernel
def jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J):
    """The H x H Jacobian, rows are outputs, from the stored gates; W_hh has the gates f, n."""
    VL = lanes(states)
    Hp = (H + VL - 1) // VL * VL
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
