r"""The GRU cell with the reset gate after the product, as PyTorch and Keras 3 have it.

.. math::

    r, z = \sigma(a_r), \sigma(a_z), \qquad n = \tanh(W_{in} x_t + b_{in} + r (W_{hn} h_{t-1} + b_{hn})), \qquad
    h_t = (1 - z) n + z h_{t-1}

Cho et al., EMNLP 2014, arXiv:1406.1078; there the reset gate acts before the product. z keeps the old state. The
pre-activation of n has two parts that do not add up before the gate, so a row has four blocks: n of x, r, z, n of h.
"""

from __future__ import annotations

from ..kernels.activations import sigmoid, tanh
from ..kernels.compile import kernel
from ..kernels.elementwise import elementwise
from ..kernels.operands import blocks, rows_at, within
from ..kernels.tile import product, two_products
from ..kernels.vector import lanes
from .cell import Cell, Gate
from .gradients import gradients
from .steps import backward_kernel, forward_kernel, tangent_kernel


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


@forward_kernel
def forward(s, start, x, h_before, W_ih, W_hh, gates, h):
    """Blocks 0-2 of a row are fed by x and blocks 1-3 by h: the last starts from its bias."""
    n, r, z, n_h = blocks(gates, s.Hp, 4)
    product(s.down, s.N, s.U, start, s.D, x, W_ih, n)
    from_r, from_n, W_ir, W_hn = (
        within(start, s.Hp), within(start, 3 * s.Hp), within(W_ih, s.Hp * s.D), within(W_hh, 2 * s.Hp * s.H),
    )  # fmt: skip
    two_products(s.down, s.N, 2 * s.U, from_r, s.D, x, W_ir, s.H, h_before, W_hh, r)
    product(s.down, s.N, s.U, from_n, s.H, h_before, W_hn, n_h)
    if s.kept:
        return _forward_rows(n, r, z, n_h, h_before, h, s.N, 1, s.U)
    return _inference_rows(n, r, z, n_h, h_before, h, s.N, 1, s.U)


@backward_kernel
def backward(s, gates, h_before, h, dh, W_back, delta, squares):
    """The product with W_hh is added to what z lets past it."""
    (n, r, z, n_h), (d_n, d_r, d_z, d_nh) = blocks(gates, s.Hp, 4), blocks(delta, s.Hp, 4)
    _delta_rows(n, r, z, n_h, h_before, dh, d_n, d_r, d_z, d_nh, s.N, s.K, s.U, squares, s.first)
    k = 2 * s.Hp + s.H
    product(s.down, s.N * s.K, s.U, dh, k, d_r, rows_at(W_back, 0, k * s.VL), dh)


@tangent_kernel
def tangent(s, start, gates, h_before, h, v, W_hh, work, new, squares):
    """W_hh v into the blocks of work, then the derivative of the cell."""
    product(0, s.N * s.K, 3 * s.U, within(start, s.Hp), s.H, v, W_hh, work)
    (n, r, z, n_h), (a_r, a_z, a_n) = blocks(gates, s.Hp, 4), blocks(work, s.Hp, 3)
    _tangent_rows(n, r, z, n_h, h_before, start, a_r, a_z, a_n, v, new, s.N, s.K, s.U, squares, s.first)


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
