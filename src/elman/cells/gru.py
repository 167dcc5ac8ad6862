r"""The GRU cell with the reset gate after the product, as PyTorch and Keras 3 have it.

.. math::

    r, z = \sigma(a_r), \sigma(a_z), \qquad n = \tanh(W_{in} x_t + b_{in} + r (W_{hn} h_{t-1} + b_{hn})), \qquad
    h_t = (1 - z) n + z h_{t-1}

Cho et al., EMNLP 2014, arXiv:1406.1078; there the reset gate acts before the product. z keeps the old state. The
pre-activation of n has two parts that do not add up before the gate, so a row has four blocks: n of x, r, z, n of h.
"""

from __future__ import annotations

from ..kernels.activations import sigmoid, tanh
from ..kernels.compile import integer, kernel
from ..kernels.elementwise import add_row, copy_row, elementwise
from ..kernels.tile import FEW, product, two_products
from ..kernels.vector import lanes
from .cell import Cell, Gate
from .gradients import gradients


def _step(m, n, r, z, n_h, h_before, h):
    """Pre-activations to gates and h; n_h stays as it is, since the slope of r needs it."""
    r, z = sigmoid(m, r), sigmoid(m, z)
    n = tanh(m, m.fma(r, n_h, n))
    return m.fma(z, h_before - n, n), n, r, z


def _delta(m, n, r, z, n_h, h_before, dh, *_):
    """Gradient of h to those of the pre-activations, and what reaches the earlier h past the product."""
    d_n = dh * (1.0 - z) * m.fma(-n, n, 1.0)
    return dh, d_n, d_n * n_h * m.fma(-r, r, r), dh * (h_before - n) * m.fma(-z, z, z), d_n * r, dh * z


def _tangent(m, n, r, z, n_h, h_before, a_x, a_r, a_z, a_n, v, *_):
    """Tangents of the pre-activations and of the earlier h to that of h."""
    a_n = m.fma(r, a_n, m.fma(n_h * m.fma(-r, r, r), a_r, a_x))
    v = m.fma(z, v, (h_before - n) * m.fma(-z, z, z) * a_z)
    return (m.fma((1.0 - z) * m.fma(-n, n, 1.0), a_n, v),)


_forward_rows = elementwise(_step, 6, (5, 0, 1, 2))
# where no gradient follows, the gates need not be stored
_inference_rows = elementwise(_step, 6, (5, None, None, None))
_delta_rows = elementwise(_delta, 10, (None, 6, 7, 8, 9, 5), "squares")
_tangent_rows = elementwise(_tangent, 11, (10,), "squares")


@kernel
def forward(
    variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D, H, R, B, slots, active, t0, t1,
    b0, b1,
):  # fmt: skip
    """Fill states and gates: x feeds blocks 0-2 of a row, h feeds blocks 1-3, whose last starts from its bias."""
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
        g = ((t * B if slots > 2 else 0) + b0) * g_rs
        x, start = (t * B + b0) * x_rs, ((t - t0) * B + b0) * i_rs
        r, n_h, from_n = g + Hp, g + 3 * Hp, start + 3 * Hp
        product(down, N, U, init, start, i_rs, VL, D, X, x, x_rs, one, P_ih, zero, D * VL, VL, gates, g, g_rs)
        two_products(
            down, N, 2 * U, init, start + Hp, i_rs, VL, D, X, x, x_rs, one, P_ih, Hp * D, D * VL, VL, H,
            states, now, s_rs, one, P_hh, zero, H * VL, VL, gates, r, g_rs,
        )  # fmt: skip
        product(
            down,
            N,
            U,
            init,
            from_n,
            i_rs,
            VL,
            H,
            states,
            now,
            s_rs,
            one,
            P_hh,
            2 * Hp * H,
            H * VL,
            VL,
            gates,
            n_h,
            g_rs,
        )
        if slots > 2:
            finite = _forward_rows(
                gates, g, g_rs, gates, g + Hp, g_rs, gates, g + 2 * Hp, g_rs, gates, g + 3 * Hp, g_rs,
                states, now, s_rs, states, new, s_rs, N, U,
            )  # fmt: skip
        else:
            finite = _inference_rows(
                gates, g, g_rs, gates, g + Hp, g_rs, gates, g + 2 * Hp, g_rs, gates, g + 3 * Hp, g_rs,
                states, now, s_rs, states, new, s_rs, N, U,
            )  # fmt: skip
        if finite == 0:
            return t
        if out.size > 0:
            for n in range(N):
                copy_row(out, (t * B + b0 + n) * o_rs, states, new + n * s_rs, H)
    return -1


@kernel
def backward(
    variant, dY, y_rs, P_back, zero, states, s_rs, gates, g_rs, delta, d_rs, d_state, squares, H, R, B, K, keep, active,
    t0, t1, b0, b1,
):  # fmt: skip
    """Sweep down the window; the product with W_hh is added to what z lets past it."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    for t in range(t1 - 1, t0 - 1, -1):
        n1 = b1 if b1 < active[t] else active[t]
        if n1 <= b0:
            continue
        down = t % 2 if (n1 - b0) * K <= FEW else none
        for b in range(b0, n1):
            d = b * K * s_rs
            if dY.size > 0:
                for k in range(K):
                    add_row(d_state, d + k * s_rs, dY, ((t * B + b) * K + k) * y_rs, H)
            g = (t * B + b) * g_rs
            to = (keep * t * B + b) * K * d_rs
            _delta_rows(
                gates, g, none, gates, g + Hp, none, gates, g + 2 * Hp, none, gates, g + 3 * Hp, none,
                states, (t * B + b) * s_rs, none, d_state, d, s_rs,
                delta, to, d_rs, delta, to + Hp, d_rs, delta, to + 2 * Hp, d_rs, delta, to + 3 * Hp, d_rs,
                K, U, squares, (t * B + b) * K,
            )  # fmt: skip
        at = (keep * t * B + b0) * K * d_rs + Hp
        to = b0 * K * s_rs
        k = 2 * Hp + H
        product(
            down, (n1 - b0) * K, U, d_state, to, s_rs, VL, k, delta, at, d_rs, one, P_back, none, k * VL,
            VL, d_state, to, s_rs,
        )  # fmt: skip


@kernel
def tangent(
    variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs, squares, H, R, B, K, t0, t1, b0, b1
):  # fmt: skip
    """Push tangents through the window: W_hh v into the blocks of work, then the derivative of the cell."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    for t in range(t0, t1):
        v, w = (t % 2 * B + b0) * K * v_rs, b0 * K * w_rs
        x, rows = ((t - t0) * B + b0) * K * i_rs + Hp, (b1 - b0) * K
        product(none, rows, 3 * U, init, x, i_rs, VL, H, V, v, v_rs, one, P_hh, none, H * VL, VL, work, w, w_rs)
        for b in range(b0, b1):
            g, w, x = (t * B + b) * g_rs, b * K * w_rs, ((t - t0) * B + b) * K * i_rs
            now, new = (t % 2 * B + b) * K * v_rs, ((t + 1) % 2 * B + b) * K * v_rs
            _tangent_rows(
                gates, g, none, gates, g + Hp, none, gates, g + 2 * Hp, none, gates, g + 3 * Hp, none,
                states, (t * B + b) * s_rs, none, init, x, i_rs,
                work, w, w_rs, work, w + Hp, w_rs, work, w + 2 * Hp, w_rs,
                V, now, v_rs, V, new, v_rs, K, U, squares, ((t - t0) * B + b) * K,
            )  # fmt: skip


@kernel
def jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J):
    """The H x H Jacobian, rows are outputs, from the stored gates; W_hh has the gates r, z, n."""
    VL = lanes(states)
    Hp = (H + VL - 1) // VL * VL
    row, s = (t * B + b) * g_rs, (t * B + b) * s_rs
    for u in range(H):
        n, r, z, n_h = gates[row + u], gates[row + Hp + u], gates[row + 2 * Hp + u], gates[row + 3 * Hp + u]
        through = (1 - z) * (1 - n * n)
        for j in range(H):
            J[u * H + j] = (
                through * n_h * r * (1 - r) * W_hh[u * H + j]
                + (states[s + u] - n) * z * (1 - z) * W_hh[(H + u) * H + j]
                + through * r * W_hh[(2 * H + u) * H + j]
            )
        J[u * H + u] += z


GRU = Cell(
    name="gru",
    gates=(Gate("r", "sigmoid"), Gate("z", "sigmoid", "keep", "update"), Gate("n", "tanh")),
    states=("h",),
    stored=("n", "r", "z", "n_h"),
    variants=("reset_after",),
    x_blocks=("n", "r", "z"),
    h_blocks=("r", "z", "n"),
    blocks=4,
    forward=forward,
    backward=backward,
    gradients=gradients,
    tangent=tangent,
    jacobian=jacobian,
)
