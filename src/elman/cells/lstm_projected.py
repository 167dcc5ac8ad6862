r"""The LSTM cell with a projection: the output, which the gates read, has R numbers, fewer than the H units.

.. math::

    i, f, o = \sigma(a_i), \sigma(a_f), \sigma(a_o), \quad g = \tanh(a_g), \qquad
    a = W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh}

    c_t = f c_{t-1} + i g, \qquad m_t = o \tanh(c_t), \qquad h_t = W_{hr} m_t

Sak, Senior and Beaufays, Interspeech 2014, pages 338-342, without their peepholes and second projection: PyTorch's
``proj_size``. The state is (h, c), of R + H numbers. All but the projection is :mod:`elman.cells.lstm`, with m where
that has h.
"""

from __future__ import annotations

import math

from ..kernels.compile import inline, integer, kernel
from ..kernels.elementwise import add_row, copy_row, elementwise
from ..kernels.tile import FEW, accumulate, product, two_products
from ..kernels.vector import lanes
from . import lstm
from .cell import Cell, Gate
from .gradients import gradients as shared_gradients


def _delta(m, i, f, g, o, c_before, c, dh, dm, dc, *_):
    """Gradients as of an LSTM whose output is m; those of h and c are reduced."""
    _, dc, *rest = lstm._delta(m, i, f, g, o, c_before, c, dm, dc)
    return dh, dc, *rest


_step_rows = elementwise(lstm._step, 7, (5, 6, 0, 1, 2, 3))
_finite_rows = elementwise(lambda m, h: (h,), 1, (None,))
_delta_rows = elementwise(_delta, 12, (None, None, 8, 9, 10, 11, 7), "squares", 2)
_tangent_rows = elementwise(lstm._tangent, 13, (11, 12))
_norm_rows = elementwise(lambda m, v_h, v_c: (v_h, v_c), 2, (None, None), "squares", 2)


@inline
def _clear_rows(a, offset, row_stride, rows, n):
    """Zeros in n places of each row."""
    for r in range(rows):
        for j in range(n):
            a[offset + r * row_stride + j] = 0


@kernel
def forward(
    variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D, H, R, B, slots, active, t0, t1,
    b0, b1,
):  # fmt: skip
    """Fill states and gates of the window; a row of gates is m, i, f, g, o."""
    VL = lanes(states)
    U, V = (H + VL - 1) // VL, (R + VL - 1) // VL
    Hp = U * VL
    zero, one = integer(0), integer(1)
    for t in range(t0, t1):
        N = (b1 if b1 < active[t] else active[t]) - b0
        if N <= 0:
            break
        down = t % 2 if N <= FEW else zero
        now = ((t % slots) * B + b0) * s_rs
        new = (((t + 1) % slots) * B + b0) * s_rs
        m = ((t * B if slots > 2 else 0) + b0) * g_rs
        g, x, start = m + Hp, (t * B + b0) * x_rs, ((t - t0) * B + b0) * i_rs
        two_products(
            down, N, 4 * U, init, start, i_rs, VL, D, X, x, x_rs, one, P_ih, zero, D * VL, VL,
            R, states, now, s_rs, one, P_hh, zero, R * VL, VL, gates, g, g_rs,
        )  # fmt: skip
        finite = _step_rows(
            gates, g, g_rs, gates, g + Hp, g_rs, gates, g + 2 * Hp, g_rs, gates, g + 3 * Hp, g_rs,
            states, now + Hp, s_rs, states, new + Hp, s_rs, gates, m, g_rs, N, U,
        )  # fmt: skip
        _clear_rows(states, new, s_rs, N, V * VL)
        product(
            down, N, V, states, new, s_rs, VL, H, gates, m, g_rs, one, P_hh, 4 * Hp * R, H * VL, VL, states, new, s_rs
        )
        if finite == 0 or _finite_rows(states, new, s_rs, N, V) == 0:
            return t
        if out.size > 0:
            for b in range(N):
                copy_row(out, (t * B + b0 + b) * o_rs, states, new + b * s_rs, R)
    return -1


@kernel
def backward(
    variant, dY, y_rs, P_back, zero, states, s_rs, gates, g_rs, delta, d_rs, d_state, squares, H, R, B, K, keep, active,
    t0, t1, b0, b1,
):  # fmt: skip
    """Sweep down the window; the gradient of m stands where that of o will, that of h in the last block."""
    VL = lanes(states)
    U, V = (H + VL - 1) // VL, (R + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    k = 3 * Hp + H
    for t in range(t1 - 1, t0 - 1, -1):
        n1 = b1 if b1 < active[t] else active[t]
        if n1 <= b0:
            continue
        down = t % 2 if (n1 - b0) * K <= FEW else none
        rows, at, to = (n1 - b0) * K, (keep * t * B + b0) * K * d_rs, b0 * K * s_rs
        d_m, d_h, y = at + 3 * Hp, at + 4 * Hp, (t * B + b0) * K * y_rs
        _clear_rows(delta, d_h, d_rs, rows, Hp)
        for i in range(rows):
            if dY.size > 0:
                add_row(d_state, to + i * s_rs, dY, y + i * y_rs, R)
            copy_row(delta, d_h + i * d_rs, d_state, to + i * s_rs, R)
        project = V * k * VL
        product(
            down, rows, U, zero, none, none, none, R, delta, d_h, d_rs, one, P_back, project, R * VL, VL,
            delta, d_m, d_rs,
        )  # fmt: skip
        for b in range(b0, n1):
            i, before = (t * B + b) * g_rs + Hp, (t * B + b) * s_rs + Hp
            d, d_i = b * K * s_rs + Hp, (keep * t * B + b) * K * d_rs
            d_o = d_i + 3 * Hp
            _delta_rows(
                gates, i, none, gates, i + Hp, none, gates, i + 2 * Hp, none, gates, i + 3 * Hp, none,
                states, before, none, states, before + B * s_rs, none, delta, d_o + Hp, d_rs, delta, d_o, d_rs,
                d_state, d, s_rs, delta, d_i, d_rs, delta, d_i + Hp, d_rs, delta, d_i + 2 * Hp, d_rs,
                K, U, squares, (t * B + b) * K * 2,
            )  # fmt: skip
        product(
            down, rows, V, zero, none, none, none, k, delta, at, d_rs, one, P_back, none, k * VL, VL, d_state, to, s_rs
        )


@kernel
def gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, v1, dW, w_rs):
    """Add ``[x, h]^T delta`` in the blocks of the gates, ``m^T d_h`` in the last, in rows of their own."""
    VL = lanes(delta)
    n = 4 * ((H + VL - 1) // VL)
    shared_gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, min(v1, n), dW, w_rs)
    accumulate(gates, g_rs, H, delta, d_rs, r0, r1, max(v0, n), v1, dW, (D + R) * w_rs, w_rs)


@kernel
def tangent(
    variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs, squares, H, R, B, K, t0, t1, b0, b1
):  # fmt: skip
    """Push tangents (h, then c) through the window; that of m stands in the last block of work."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    Hp = U * VL
    none, one = integer(0), integer(1)
    for t in range(t0, t1):
        x, rows, w = ((t - t0) * B + b0) * K * i_rs, (b1 - b0) * K, b0 * K * w_rs
        now, new = (t % 2 * B + b0) * K * v_rs, ((t + 1) % 2 * B + b0) * K * v_rs
        product(none, rows, 4 * U, init, x, i_rs, VL, R, V, now, v_rs, one, P_hh, none, R * VL, VL, work, w, w_rs)
        for b in range(b0, b1):
            i, before, a = (t * B + b) * g_rs + Hp, (t * B + b) * s_rs + Hp, b * K * w_rs
            v_c = (t % 2 * B + b) * K * v_rs + Hp
            new_c = ((t + 1) % 2 * B + b) * K * v_rs + Hp
            _tangent_rows(
                gates, i, none, gates, i + Hp, none, gates, i + 2 * Hp, none, gates, i + 3 * Hp, none,
                states, before, none, states, before + B * s_rs, none,
                work, a, w_rs, work, a + Hp, w_rs, work, a + 2 * Hp, w_rs, work, a + 3 * Hp, w_rs,
                V, v_c, v_rs, work, a + 4 * Hp, w_rs, V, new_c, v_rs, K, U,
            )  # fmt: skip
        # over the whole of Hp, so that one loop reads h and c
        _clear_rows(V, new, v_rs, rows, Hp)
        vectors, m = (R + VL - 1) // VL, w + 4 * Hp
        product(
            none, rows, vectors, V, new, v_rs, VL, H, work, m, w_rs, one, P_hh, 4 * Hp * R, H * VL, VL, V, new, v_rs
        )
        _norm_rows(V, new, v_rs, V, new + Hp, v_rs, rows, U, squares, ((t - t0) * B + b0) * K * 2)


@kernel
def jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J):
    """The Jacobian of (h, c), R + H wide, rows are outputs, from the stored gates; W_hr follows W_hh."""
    VL = lanes(states)
    Hp = (H + VL - 1) // VL * VL
    row, s = (t * B + b) * g_rs + Hp, (t * B + b) * s_rs + Hp
    S, W_hr = R + H, 4 * H * R
    J[:] = 0
    for u in range(H):
        i, f, g, o = gates[row + u], gates[row + Hp + u], gates[row + 2 * Hp + u], gates[row + 3 * Hp + u]
        c_before, y = states[s + u], math.tanh(states[s + B * s_rs + u])
        through = o * (1 - y * y)
        J[(R + u) * S + R + u] = f
        for j in range(R):
            d_c = (
                g * i * (1 - i) * W_hh[u * R + j]
                + c_before * f * (1 - f) * W_hh[(H + u) * R + j]
                + i * (1 - g * g) * W_hh[(2 * H + u) * R + j]
            )
            J[(R + u) * S + j] = d_c
            d_m = y * o * (1 - o) * W_hh[(3 * H + u) * R + j] + through * d_c
            for p in range(R):
                J[p * S + j] += W_hh[W_hr + p * H + u] * d_m
        for p in range(R):
            J[p * S + R + u] = W_hh[W_hr + p * H + u] * through * f


LSTM_PROJECTED = Cell(
    name="lstm",
    gates=(Gate("i", "sigmoid"), Gate("f", "sigmoid", "keep", "forget"), Gate("g", "tanh"), Gate("o", "sigmoid")),
    states=("h", "c"),
    stored=("m", "i", "f", "g", "o"),
    variants=("projected",),
    x_blocks=("i", "f", "g", "o"),
    h_blocks=("i", "f", "g", "o"),
    blocks=4,
    projects=True,
    forward=forward,
    backward=backward,
    gradients=gradients,
    tangent=tangent,
    jacobian=jacobian,
)
