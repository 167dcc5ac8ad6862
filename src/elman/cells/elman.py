r"""The Elman cell: :math:`h_t = \phi(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})`.

Elman, J. L., Finding structure in time, Cognitive Science 14 (1990) 179-211. With :math:`\delta_t = \phi'(a_t) \odot
dL/dh_t`,

.. math:: dL/dh_{t-1} = W_{hh}^T \delta_t, \quad dL/dW_{hh} = \sum_t \delta_t h_{t-1}^T, \quad
          J_t = \partial h_t / \partial h_{t-1} = \mathrm{diag}(\phi'(a_t)) W_{hh}.

The slope is computed from the output, so that nothing but the states is kept.
"""

from __future__ import annotations

from ..kernels.activations import MAX_SLOPE, NONLINEARITIES, activate, scale_by_slope, slope, times_slope
from ..kernels.compile import kernel
from ..kernels.operands import rows_at
from ..kernels.tile import product, two_products
from .cell import Cell, Gate
from .gradients import gradients
from .steps import backward_kernel, forward_kernel, tangent_kernel


@forward_kernel
def forward(s, start, x, h_before, W_ih, W_hh, gates, h):
    """Bias + x W_ih^T, then + h W_hh^T in the same sum, then the nonlinearity in place."""
    two_products(s.down, s.N, s.U, start, s.D, x, W_ih, s.H, h_before, W_hh, h)
    return activate(s.variant, h, s.N, s.U)


@backward_kernel
def backward(s, gates, h_before, h, dh, W_back, delta, squares):
    """The slope, and the transposed product."""
    times_slope(s.variant, h, dh, delta, s.N, s.K, s.U, squares, s.first)
    product(s.down, s.N * s.K, s.U, None, s.H, delta, rows_at(W_back, 0, s.H * s.VL), dh)


@tangent_kernel
def tangent(s, start, gates, h_before, h, v, W_hh, work, new, squares):
    """Map v to phi'(a_t) * (W_hh v)."""
    product(0, s.N * s.K, s.U, start, s.H, v, W_hh, new)
    scale_by_slope(s.variant, h, new, s.N, s.K, s.U, squares, s.first)


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
