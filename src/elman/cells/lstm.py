r"""The LSTM cell: gates that let a state c pass from step to step almost unchanged.

.. math::

    i, f, o = \sigma(a_i), \sigma(a_f), \sigma(a_o), \quad g = \tanh(a_g), \qquad
    a = W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh}

    c_t = f c_{t-1} + i g, \qquad h_t = o \tanh(c_t)

Hochreiter and Schmidhuber, Neural Computation 9 (1997) 1735-1780; the forget gate is that of Gers, Schmidhuber and
Cummins, Neural Computation 12 (2000) 2451-2471. The state is (h, c): its Jacobian has the path from c to c, without
which the gradient's decay would look like that of h alone.
"""

from __future__ import annotations

import math

from ..kernels.activations import sigmoid, tanh
from ..kernels.compile import integer, kernel
from ..kernels.elementwise import add_row, copy_row, elementwise
from ..kernels.tile import FEW, product, two_products
from ..kernels.vector import lanes
from .cell import Cell, Gate
from .gradients import gradients


def _step(m, i, f, g, o, c_before, c, h):
    """Pre-activations to gates, c and h, which may stop being finite by itself: by the output gate."""
    i, f, g, o = sigmoid(m, i), sigmoid(m, f), tanh(m, g), sigmoid(m, o)
    c = m.fma(f, c_before, i * g)
    return c, o * tanh(m, c), i, f, g, o


def _delta(m, i, f, g, o, c_before, c, dh, dc, *_):
    """Gradients of the state to those of the pre-activations and of the earlier c."""
    y = tanh(m, c)
    through = m.fma(dh * o, m.fma(-y, y, 1.0), dc)
    return (
        dh,
        dc,
        through * f,
        through * g * m.fma(-i, i, i),
        through * c_before * m.fma(-f, f, f),
        through * i * m.fma(-g, g, 1.0),
        dh * y * m.fma(-o, o, o),
    )


def _tangent(m, i, f, g, o, c_before, c, a_i, a_f, a_g, a_o, v_c, *_):
    """Tangents of the pre-activations and of the earlier c to those of h and c."""
    y = tanh(m, c)
    v_c = m.fma(f, v_c, c_before * m.fma(-f, f, f) * a_f)
    v_c = m.fma(g * m.fma(-i, i, i), a_i, v_c)
    v_c = m.fma(i * m.fma(-g, g, 1.0), a_g, v_c)
    return m.fma(y * m.fma(-o, o, o), a_o, o * m.fma(-y, y, 1.0) * v_c), v_c


_forward_rows = elementwise(_step, 7, (5, 6, 0, 1, 2, 3), "finite", 2)
# where no gradient follows, not storing the gates saves a fifteenth of the time spent here
_inference_rows = elementwise(_step, 7, (5, 6, None, None, None, None), "finite", 2)
_delta_rows = elementwise(_delta, 12, (None, None, 7, 8, 9, 10, 11), "squares", 2)
_tangent_rows = elementwise(_tangent, 13, (11, 12), "squares", 2)


@kernel
def forward(
    variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D, H, R, B, slots, active, t0, t1,
    b0, b1,
):  # fmt: skip
    """Fill states and gates of the window: both products into the rows of gates, then the cell in place."""
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
        two_products(
            down, N, 4 * U, init, start, i_rs, VL, D, X, x, x_rs, one, P_ih, zero, D * VL, VL, H, states,
            now, s_rs, one, P_hh, zero, H * VL, VL, gates, g, g_rs,
        )  # fmt: skip
        if slots > 2:
            finite = _forward_rows(
                gates, g, g_rs, gates, g + Hp, g_rs, gates, g + 2 * Hp, g_rs, gates, g + 3 * Hp, g_rs,
                states, now + Hp, s_rs, states, new + Hp, s_rs, states, new, s_rs, N, U,
            )  # fmt: skip
        else:
            finite = _inference_rows(
                gates, g, g_rs, gates, g + Hp, g_rs, gates, g + 2 * Hp, g_rs, gates, g + 3 * Hp, g_rs,
                states, now + Hp, s_rs, states, new + Hp, s_rs, states, new, s_rs, N, U,
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
    """Sweep down the window; d_state rows (h, then c) go from the gradient at t1 to that at t0."""
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
            g, before = (t * B + b) * g_rs, (t * B + b) * s_rs + Hp
            to = (keep * t * B + b) * K * d_rs
            _delta_rows(
                gates, g, none, gates, g + Hp, none, gates, g + 2 * Hp, none, gates, g + 3 * Hp, none,
                states, before, none, states, before + B * s_rs, none, d_state, d, s_rs, d_state, d + Hp, s_rs,
                delta, to, d_rs, delta, to + Hp, d_rs, delta, to + 2 * Hp, d_rs, delta, to + 3 * Hp, d_rs,
                K, U, squares, (t * B + b) * K * 2,
            )  # fmt: skip
        at = (keep * t * B + b0) * K * d_rs
        to = b0 * K * s_rs
        k = 3 * Hp + H
        product(
            down, (n1 - b0) * K, U, zero, none, none, none, k, delta, at, d_rs, one, P_back, none, k * VL,
            VL, d_state, to, s_rs,
        )  # fmt: skip


@kernel
def tangent(
    variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs, squares, H, R, B, K, t0, t1, b0, b1
):  # fmt: skip
    """Push tangents (h, then c) through the window: W_hh v_h into the blocks of work, then the cell's derivative."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    for t in range(t0, t1):
        v, w = (t % 2 * B + b0) * K * v_rs, b0 * K * w_rs
        x, rows = ((t - t0) * B + b0) * K * i_rs, (b1 - b0) * K
        product(none, rows, 4 * U, init, x, i_rs, VL, H, V, v, v_rs, one, P_hh, none, H * VL, VL, work, w, w_rs)
        for b in range(b0, b1):
            g, before = (t * B + b) * g_rs, (t * B + b) * s_rs + Hp
            now, new = (t % 2 * B + b) * K * v_rs, ((t + 1) % 2 * B + b) * K * v_rs
            w = b * K * w_rs
            _tangent_rows(
                gates, g, none, gates, g + Hp, none, gates, g + 2 * Hp, none, gates, g + 3 * Hp, none,
                states, before, none, states, before + B * s_rs, none,
                work, w, w_rs, work, w + Hp, w_rs, work, w + 2 * Hp, w_rs, work, w + 3 * Hp, w_rs,
                V, now + Hp, v_rs, V, new, v_rs, V, new + Hp, v_rs, K, U, squares, ((t - t0) * B + b) * K * 2,
            )  # fmt: skip


@kernel
def jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J):
    """The 2H x 2H Jacobian of (h, c), rows are outputs, from the stored gates."""
    VL = lanes(states)
    Hp = (H + VL - 1) // VL * VL
    row, s = (t * B + b) * g_rs, (t * B + b) * s_rs + Hp
    S = 2 * H
    for u in range(H):
        i, f, g, o = gates[row + u], gates[row + Hp + u], gates[row + 2 * Hp + u], gates[row + 3 * Hp + u]
        c_before, y = states[s + u], math.tanh(states[s + B * s_rs + u])
        through = o * (1 - y * y)
        for j in range(H):
            d_c = (
                g * i * (1 - i) * W_hh[u * H + j]
                + c_before * f * (1 - f) * W_hh[(H + u) * H + j]
                + i * (1 - g * g) * W_hh[(2 * H + u) * H + j]
            )
            J[(H + u) * S + j] = d_c
            J[u * S + j] = y * o * (1 - o) * W_hh[(3 * H + u) * H + j] + through * d_c
            J[(H + u) * S + H + j] = 0
            J[u * S + H + j] = 0
        J[(H + u) * S + H + u] = f
        J[u * S + H + u] = through * f


LSTM = Cell(
    name="lstm",
    gates=(Gate("i", "sigmoid"), Gate("f", "sigmoid", "keep", "forget"), Gate("g", "tanh"), Gate("o", "sigmoid")),
    states=("h", "c"),
    stored=("i", "f", "g", "o"),
    variants=("lstm",),
    x_blocks=("i", "f", "g", "o"),
    h_blocks=("i", "f", "g", "o"),
    blocks=4,
    forward=forward,
    backward=backward,
    gradients=gradients,
    tangent=tangent,
    jacobian=jacobian,
)
