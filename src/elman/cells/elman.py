r"""The Elman cell: :math:`h_t = \phi(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})`.

Elman, J. L., Finding structure in time, Cognitive Science 14 (1990) 179-211. With :math:`\delta_t = \phi'(a_t) \odot
dL/dh_t`,

.. math:: dL/dh_{t-1} = W_{hh}^T \delta_t, \quad dL/dW_{hh} = \sum_t \delta_t h_{t-1}^T, \quad
          J_t = \partial h_t / \partial h_{t-1} = \mathrm{diag}(\phi'(a_t)) W_{hh}.

The slope is computed from the output, so that nothing but the states is kept.
"""

from __future__ import annotations

from ..kernels.activations import FORMULAS, MAX_SLOPE, NONLINEARITIES, activate, scale_by_slope, slope
from ..kernels.compile import inline, integer, kernel
from ..kernels.elementwise import add_row, copy_row, elementwise
from ..kernels.tile import FEW, product, two_products
from ..kernels.vector import lanes
from .cell import Cell, Gate
from .gradients import gradients


def _delta(name):
    """(h, g, delta): delta = g * phi'(h); the squares of g are reduced."""
    f = FORMULAS[name][1]
    return elementwise(lambda m, h, g, _: (g, f(m, h, g)), 3, (None, 2), "squares")


_delta_tanh, _delta_relu, _delta_sigmoid, _delta_identity = (_delta(name) for name in NONLINEARITIES)


@inline
def _rows_delta(variant, h, hoff, g, goff, g_rs, d, doff, d_rs, rows, U, squares, soff):
    """Delta of ``rows`` gradient rows that share one row of states."""
    if variant == 0:
        _delta_tanh(h, hoff, 0, g, goff, g_rs, d, doff, d_rs, rows, U, squares, soff)
    elif variant == 1:
        _delta_relu(h, hoff, 0, g, goff, g_rs, d, doff, d_rs, rows, U, squares, soff)
    elif variant == 2:
        _delta_sigmoid(h, hoff, 0, g, goff, g_rs, d, doff, d_rs, rows, U, squares, soff)
    else:
        _delta_identity(h, hoff, 0, g, goff, g_rs, d, doff, d_rs, rows, U, squares, soff)


@kernel
def forward(
    variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D, H, R, B, slots, active, t0, t1,
    b0, b1,
):  # fmt: skip
    """Fill states of the window: bias + x W_ih^T, then + h W_hh^T in the same sum, then the nonlinearity in place."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    zero, one = integer(0), integer(1)
    for t in range(t0, t1):
        N = (b1 if b1 < active[t] else active[t]) - b0
        if N <= 0:
            break
        down = t % 2 if N <= FEW else zero
        now = ((t % slots) * B + b0) * s_rs
        new = (((t + 1) % slots) * B + b0) * s_rs
        x, start = (t * B + b0) * x_rs, ((t - t0) * B + b0) * i_rs
        two_products(
            down, N, U, init, start, i_rs, VL, D, X, x, x_rs, one, P_ih, zero, D * VL, VL, H, states, now,
            s_rs, one, P_hh, zero, H * VL, VL, states, new, s_rs,
        )  # fmt: skip
        if activate(variant, states, new, s_rs, N, U) == 0:
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
    """Sweep down the window; d_state (B * K rows, s_rs apart) goes from the gradient at t1 to that at t0."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    o, i = integer(0), integer(1)
    for t in range(t1 - 1, t0 - 1, -1):
        n1 = b1 if b1 < active[t] else active[t]
        if n1 <= b0:
            continue
        down = t % 2 if (n1 - b0) * K <= FEW else o
        for b in range(b0, n1):
            g = b * K * s_rs
            if dY.size > 0:
                for k in range(K):
                    add_row(d_state, g + k * s_rs, dY, ((t * B + b) * K + k) * y_rs, H)
            to = (keep * t * B + b) * K * d_rs
            h = ((t + 1) * B + b) * s_rs
            _rows_delta(variant, states, h, d_state, g, s_rs, delta, to, d_rs, K, U, squares, (t * B + b) * K)
        at = (keep * t * B + b0) * K * d_rs
        to = b0 * K * s_rs
        product(down, (n1 - b0) * K, U, zero, o, o, o, H, delta, at, d_rs, i, P_back, o, H * VL, VL, d_state, to, s_rs)


@kernel
def tangent(
    variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs, squares, H, R, B, K, t0, t1, b0, b1
):  # fmt: skip
    """Push tangents through the window: v <- phi'(a_t) * (W_hh v)."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    o, i = integer(0), integer(1)
    for t in range(t0, t1):
        now = (t % 2 * B + b0) * K * v_rs
        new = ((t + 1) % 2 * B + b0) * K * v_rs
        x = ((t - t0) * B + b0) * K * i_rs
        product(o, (b1 - b0) * K, U, init, x, i_rs, VL, H, V, now, v_rs, i, P_hh, o, H * VL, VL, V, new, v_rs)
        for b in range(b0, b1):
            h = ((t + 1) * B + b) * s_rs
            v = ((t + 1) % 2 * B + b) * K * v_rs
            scale_by_slope(variant, states, h, o, V, v, v_rs, K, U, squares, ((t - t0) * B + b) * K)


@kernel
def jacobian(variant, W_hh, states, s_rs, gates, g_rs, H, R, B, t, b, J):
    """``J[i, j] = phi'(a_i) W_hh[i, j]``, the slope from the output."""
    h = ((t + 1) * B + b) * s_rs
    for i in range(H):
        y = states[h + i]
        if variant == 0:
            d = 1 - y * y
        elif variant == 1:
            d = 1 if y > 0 else 0
        elif variant == 2:
            d = y - y * y
        else:
            d = 1
        for j in range(H):
            J[i * H + j] = d * W_hh[i * H + j]


ELMAN = Cell(
    name="rnn",
    gates=(Gate("h", None),),
    states=("h",),
    stored=(),
    variants=NONLINEARITIES,
    x_blocks=("h",),
    h_blocks=("h",),
    blocks=1,
    forward=forward,
    backward=backward,
    gradients=gradients,
    tangent=tangent,
    jacobian=jacobian,
    factors=slope,
    max_slope=MAX_SLOPE.__getitem__,
)
