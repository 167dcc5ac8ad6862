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

from ..kernels.compile import kernel
from ..kernels.elementwise import copy_rows, elementwise
from ..kernels.operands import blocks, rows_at, within
from ..kernels.tile import accumulate, product, two_products
from ..kernels.vector import lanes
from . import lstm
from .cell import Cell, Gate
from .gradients import gradients as shared_gradients
from .steps import backward_kernel, forward_kernel, tangent_kernel


def _delta(m, i, f, g, o, c_before, c, dh, dm, dc, *_):
    """Gradients as of an LSTM whose output is m; those of h and c are reduced."""
    _, dc, *rest = lstm._delta(m, i, f, g, o, c_before, c, dm, dc)
    return dh, dc, *rest


_step_rows = elementwise(lstm._step, 7, (5, 6, 0, 1, 2, 3))
_finite_rows = elementwise(lambda m, h: (h,), 1, (None,))
_delta_rows = elementwise(_delta, 12, (None, None, 8, 9, 10, 11, 7), "squares", 2)
_tangent_rows = elementwise(lstm._tangent, 13, (11, 12))
_clear_rows = elementwise(lambda m, h: (0.0,), 1, (0,), reduced=0)
_norm_rows = elementwise(lambda m, v_h, v_c: (v_h, v_c), 2, (None, None), "squares", 2)


@forward_kernel
def forward(s, start, x, h_before, W_ih, W_hh, gates, h):
    """A row of gates is m, i, f, g, o."""
    m, i, f, g, o = blocks(gates, s.Hp, 5)
    two_products(s.down, s.N, 4 * s.U, start, s.D, x, W_ih, s.R, h_before, W_hh, i)
    c_before, c = within(h_before, s.Hp), within(h, s.Hp)
    finite = _step_rows(i, f, g, o, c_before, c, m, s.N, 1, s.U)
    V, W_hr = (s.R + s.VL - 1) // s.VL, rows_at(W_hh, 4 * s.Hp * s.R, s.H * s.VL)
    product(s.down, s.N, V, None, s.H, m, W_hr, h)
    return finite * _finite_rows(h, s.N, 1, V)


@backward_kernel
def backward(s, gates, h_before, h, dh, W_back, delta, squares):
    """The gradient of m is kept for a while where that of o will be, that of h in the last block."""
    (_, i, f, g, o), (d_i, d_f, d_g, d_o, d_h) = blocks(gates, s.Hp, 5), blocks(delta, s.Hp, 5)
    c_before, c, dc = within(h_before, s.Hp), within(h, s.Hp), within(dh, s.Hp)
    V, k = (s.R + s.VL - 1) // s.VL, 3 * s.Hp + s.H
    _clear_rows(d_h, s.N, s.K, s.U)
    copy_rows(d_h, dh, s.N * s.K, s.R)
    product(s.down, s.N * s.K, s.U, None, s.R, d_h, rows_at(W_back, V * k * s.VL, s.R * s.VL), d_o)
    _delta_rows(i, f, g, o, c_before, c, d_h, d_o, dc, d_i, d_f, d_g, s.N, s.K, s.U, squares, s.first)
    product(s.down, s.N * s.K, V, None, k, delta, rows_at(W_back, 0, k * s.VL), dh)


@kernel
def gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, v1, dW, w_rs):
    """Add ``[x, h]^T delta`` in the blocks of the gates, ``m^T d_h`` in the last, in rows of their own."""
    VL = lanes(delta)
    n = 4 * ((H + VL - 1) // VL)
    shared_gradients(X, x_rs, states, s_rs, gates, g_rs, delta, d_rs, D, H, R, x1, h0, r0, r1, v0, min(v1, n), dW, w_rs)
    accumulate(gates, g_rs, H, delta, d_rs, r0, r1, max(v0, n), v1, dW, (D + R) * w_rs, w_rs)


@tangent_kernel
def tangent(s, start, gates, h_before, h, v, W_hh, work, new, squares):
    """The last block of ``work`` holds the tangent of m."""
    (_, i, f, g, o), (a_i, a_f, a_g, a_o, v_m) = blocks(gates, s.Hp, 5), blocks(work, s.Hp, 5)
    c_before, c, v_c, new_c = within(h_before, s.Hp), within(h, s.Hp), within(v, s.Hp), within(new, s.Hp)
    product(0, s.N * s.K, 4 * s.U, start, s.R, v, W_hh, work)
    _tangent_rows(i, f, g, o, c_before, c, a_i, a_f, a_g, a_o, v_c, v_m, new_c, s.N, s.K, s.U)
    # over the whole of Hp, so that one loop reads h and c
    _clear_rows(new, s.N, s.K, s.U)
    V, W_hr = (s.R + s.VL - 1) // s.VL, rows_at(W_hh, 4 * s.Hp * s.R, s.H * s.VL)
    product(0, s.N * s.K, V, None, s.H, v_m, W_hr, new)
    _norm_rows(new, new_c, s.N, s.K, s.U, squares, s.first)


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
