"""A step of a cell on dual numbers: with the derivative of all that it computes along a direction of its state.

The steps of :mod:`elman.cells.steps` are run on operands that have two parts. Forwards, the derivative of the new state
is the tangent that the Jacobian makes of a tangent. Backwards, the derivative of the gradient is what a second-order
method needs: with gradients (u, w) and the state's tangent v, the second part of what leaves a step is
``J^T w + d(J^T u)/ds v`` (B. A. Pearlmutter, Fast exact multiplication by the Hessian, Neural Computation 6, 1994).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..kernels.compile import inline, kernel
from ..kernels.operands import rows_at
from ..kernels.vector import lanes
from .steps import Step


def _made(function: Callable[..., Any], step: Callable[..., Any]) -> Any:
    """A kernel with a name of its own for each step."""
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(function, name, getattr(step, name) + ("" if name == "__module__" else "_dual"))
    return kernel(function, step)


@cache
def forward_dual(step: Callable[..., Any]) -> Any:
    """One step of N rows forwards: ``step`` is that of ``Cell.forward``.

    The kernel reads x and the states, each with its tangent, and writes gates and new states likewise. Arrays are flat,
    rows as in the contract of :mod:`elman.cells.cell`; it returns 0 if a new state is not finite.
    """
    inner = inline(step)

    def forward(
        variant,
        N,
        x,
        v_x,
        x_rs,
        P_ih,
        P_hh,
        bias,
        before,
        v_before,
        after,
        v_after,
        s_rs,
        gates,
        v_gates,
        g_rs,
        D,
        H,
        R,
    ):
        VL = lanes(before)
        U = (H + VL - 1) // VL
        s = Step(variant, 0, N, 1, D, H, R, VL, U, U * VL, 0, True)
        h_before = rows_at(before, 0, s_rs), rows_at(v_before, 0, s_rs)
        g, h = (
            (rows_at(gates, 0, g_rs), rows_at(v_gates, 0, g_rs)),
            (rows_at(after, 0, s_rs), rows_at(v_after, 0, s_rs)),
        )
        W_ih, W_hh, start = rows_at(P_ih, 0, D * VL), rows_at(P_hh, 0, R * VL), rows_at(bias, 0, 0)
        return inner(s, start, (rows_at(x, 0, x_rs), rows_at(v_x, 0, x_rs)), h_before, W_ih, W_hh, g, h)

    return _made(forward, step)


@cache
def backward_dual(step: Callable[..., Any]) -> Any:
    """One step of N rows backwards: ``step`` is that of ``Cell.backward``.

    The kernel reads states and gates, each with its tangent. ``u`` and ``w`` hold the two parts of the gradient of the
    new state at first, and those of the state before at the end; ``delta`` and ``v_delta`` are written.
    """
    inner = inline(step)

    def backward(
        variant, N, P_back, gates, v_gates, g_rs, before, v_before, after, v_after, s_rs, u, w, delta, v_delta, d_rs,
        squares, H, R,
    ):  # fmt: skip
        VL = lanes(before)
        U = (H + VL - 1) // VL
        s = Step(variant, 0, N, 1, 0, H, R, VL, U, U * VL, 0, True)
        g = rows_at(gates, 0, g_rs), rows_at(v_gates, 0, g_rs)
        h_before = rows_at(before, 0, s_rs), rows_at(v_before, 0, s_rs)
        h, dh = (rows_at(after, 0, s_rs), rows_at(v_after, 0, s_rs)), (rows_at(u, 0, s_rs), rows_at(w, 0, s_rs))
        d = rows_at(delta, 0, d_rs), rows_at(v_delta, 0, d_rs)
        inner(s, g, h_before, h, dh, rows_at(P_back, 0, 0), d, rows_at(squares, 0, 0))

    return _made(backward, step)


def step_of(made: Any) -> Callable[..., Any] | None:
    """The step that a kernel of a cell was made from; None for a kernel that was written as a loop."""
    step: Callable[..., Any] | None = getattr(getattr(made, "py_func", made), "step", None)
    return step
