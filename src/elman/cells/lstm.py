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
from ..kernels.compile import kernel
from ..kernels.elementwise import elementwise
from ..kernels.operands import blocks, rows_at, within
from ..kernels.tile import product, two_products
from ..kernels.vector import lanes
from .cell import Cell, Gate
from .gradients import gradients
from .steps import backward_kernel, forward_kernel, tangent_kernel


def _step(m, i, f, g, o, c_before, c, h):
    """Pre-activations to gates, c and h; h alone may stop being finite, by the output gate."""
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


@forward_kernel
def forward(s, start, x, h_before, W_ih, W_hh, gates, h):
    """Both products into the rows of gates, then the cell in place."""
    two_products(s.down, s.N, 4 * s.U, start, s.D, x, W_ih, s.H, h_before, W_hh, gates)
    i, f, g, o = blocks(gates, s.Hp, 4)
    c_before, c = within(h_before, s.Hp), within(h, s.Hp)
    if s.kept:
        return _forward_rows(i, f, g, o, c_before, c, h, s.N, 1, s.U)
    return _inference_rows(i, f, g, o, c_before, c, h, s.N, 1, s.U)


@backward_kernel
def backward(s, gates, h_before, h, dh, W_back, delta, squares):
    """After the gradient of h comes that of c, without what passes through h."""
    (i, f, g, o), (d_i, d_f, d_g, d_o) = blocks(gates, s.Hp, 4), blocks(delta, s.Hp, 4)
    c_before, c, dc = within(h_before, s.Hp), within(h, s.Hp), within(dh, s.Hp)
    _delta_rows(i, f, g, o, c_before, c, dh, dc, d_i, d_f, d_g, d_o, s.N, s.K, s.U, squares, s.first)
    k = 3 * s.Hp + s.H
    product(s.down, s.N * s.K, s.U, None, k, delta, rows_at(W_back, 0, k * s.VL), dh)


@tangent_kernel
def tangent(s, start, gates, h_before, h, v, W_hh, work, new, squares):
    """W_hh v_h into the blocks of work, then the cell's derivative."""
    product(0, s.N * s.K, 4 * s.U, start, s.H, v, W_hh, work)
    (i, f, g, o), (a_i, a_f, a_g, a_o) = blocks(gates, s.Hp, 4), blocks(work, s.Hp, 4)
    c_before, c, v_c, new_c = within(h_before, s.Hp), within(h, s.Hp), within(v, s.Hp), within(new, s.Hp)
    _tangent_rows(i, f, g, o, c_before, c, a_i, a_f, a_g, a_o, v_c, new, new_c, s.N, s.K, s.U, squares, s.first)


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
