"""The loops around a cell's equations: from one step's rows to the kernels of :mod:`elman.cells.cell`.

A cell writes what happens in one step to all rows of a slab, and a decorator makes the kernel: it walks through the
window, finds the rows of each step in the flat arrays, and carries the output out and its gradient in. An operand
(:mod:`elman.kernels.operands`) holds N rows, or N x K where each row of the batch has K vectors: of those, an operand
that belongs to the forward pass has one row for all K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..kernels.compile import inline, kernel
from ..kernels.elementwise import add_rows, copy_rows
from ..kernels.operands import grid_at, rows_at
from ..kernels.tile import FEW
from ..kernels.vector import lanes


class Step(NamedTuple):
    """Sizes of a step.

    Attributes
    ----------
    variant : int
        Index into ``Cell.variants``.
    down : int
        From which end a product takes its columns.
    N, K : int
        Rows of the batch, and vectors for each.
    D, H, R : int
        Inputs, units, numbers in the output.
    VL, U, Hp : int
        Numbers in a vector; vectors, and numbers in them, that hold H numbers.
    first : int
        Where the squared norms begin, in rows of N x K.
    kept : bool
        Whether a backward pass may follow, which reads the gates.
    """

    variant: int
    down: int
    N: int
    K: int
    D: int
    H: int
    R: int
    VL: int
    U: int
    Hp: int
    first: int
    kept: bool


def _loop(function: Callable[..., Any], step: Callable[..., Any]) -> Any:
    """A kernel with the name of the step that it goes around."""
    # machine code is found by this name, and the loops of one text are not the same
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(function, name, getattr(step, name))
    function.step = step
    return kernel(function, step)


def forward_kernel(step: Callable[..., Any]) -> Any:
    """Make ``Cell.forward`` from a step of it.

    Parameters
    ----------
    step : callable
        ``step(s, start, x, h_before, W_ih, W_hh, gates, h) -> finite`` reads the start of the sums, the input, the
        state before and the packed weights; it writes the gates and the new state, and returns 0 if that is not finite.
    """
    inner = inline(step)

    def forward(
        variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D, H, R, B, slots, active, t0,
        t1, b0, b1,
    ):  # fmt: skip
        VL = lanes(states)
        U = (H + VL - 1) // VL
        W_ih, W_hh = rows_at(P_ih, 0, D * VL), rows_at(P_hh, 0, R * VL)
        for t in range(t0, t1):
            N = (b1 if b1 < active[t] else active[t]) - b0
            if N <= 0:
                break
            first, kept = t * B + b0, slots > 2
            s = Step(variant, t % 2 if N <= FEW else 0, N, 1, D, H, R, VL, U, U * VL, 0, kept)
            start, x = rows_at(init, ((t - t0) * B + b0) * i_rs, i_rs), rows_at(X, first * x_rs, x_rs)
            h_before = rows_at(states, (t % slots * B + b0) * s_rs, s_rs)
            h = rows_at(states, ((t + 1) % slots * B + b0) * s_rs, s_rs)
            if inner(s, start, x, h_before, W_ih, W_hh, rows_at(gates, (first if kept else b0) * g_rs, g_rs), h) == 0:
                return t
            if out.size > 0:
                copy_rows(rows_at(out, first * o_rs, o_rs), h, N, R)
        return -1

    return _loop(forward, step)


def backward_kernel(step: Callable[..., Any]) -> Any:
    """Make ``Cell.backward`` from a step of it.

    Parameters
    ----------
    step : callable
        ``step(s, gates, h_before, h, dh, W_back, delta, squares)`` finds in dh the gradient of the new state, that of
        the output included, and leaves that of the state before; it writes delta, and the squares of the former.
    """
    inner = inline(step)

    def backward(
        variant, dY, y_rs, P_back, states, s_rs, gates, g_rs, delta, d_rs, d_state, squares, H, R, B, K, keep, active,
        t0, t1, b0, b1,
    ):  # fmt: skip
        VL = lanes(states)
        U = (H + VL - 1) // VL
        noted = rows_at(squares, 0, 0)
        dh = rows_at(d_state, b0 * K * s_rs, s_rs)
        for t in range(t1 - 1, t0 - 1, -1):
            N = (b1 if b1 < active[t] else active[t]) - b0
            if N <= 0:
                continue
            n = t * B + b0
            s = Step(variant, t % 2 if N * K <= FEW else 0, N, K, 0, H, R, VL, U, U * VL, n * K, True)
            if dY.size > 0:
                add_rows(dh, rows_at(dY, n * K * y_rs, y_rs), N * K, R)
            h_before, h = grid_at(states, n * s_rs, s_rs, 0), grid_at(states, (n + B) * s_rs, s_rs, 0)
            d = rows_at(delta, (keep * t * B + b0) * K * d_rs, d_rs)
            inner(s, grid_at(gates, n * g_rs, g_rs, 0), h_before, h, dh, rows_at(P_back, 0, 0), d, noted)

    return _loop(backward, step)


def tangent_kernel(step: Callable[..., Any]) -> Any:
    """Make ``Cell.tangent`` from a step of it.

    Parameters
    ----------
    step : callable
        ``step(s, start, gates, h_before, h, v, W_hh, work, new, squares)`` reads the tangent v of the state before and
        writes that of the new state and its squares; the blocks of ``work`` are its own.
    """
    inner = inline(step)

    def tangent(
        variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs, squares, H, R, B, K, t0, t1, b0, b1
    ):
        VL = lanes(states)
        U = (H + VL - 1) // VL
        noted = rows_at(squares, 0, 0)
        N, W_hh, room = b1 - b0, rows_at(P_hh, 0, R * VL), rows_at(work, b0 * K * w_rs, w_rs)
        for t in range(t0, t1):
            n, at = t * B + b0, ((t - t0) * B + b0) * K
            s = Step(variant, 0, N, K, 0, H, R, VL, U, U * VL, at, True)
            h_before, h = grid_at(states, n * s_rs, s_rs, 0), grid_at(states, (n + B) * s_rs, s_rs, 0)
            v = rows_at(V, (t % 2 * B + b0) * K * v_rs, v_rs)
            new = rows_at(V, ((t + 1) % 2 * B + b0) * K * v_rs, v_rs)
            start, g = rows_at(init, at * i_rs, i_rs), grid_at(gates, n * g_rs, g_rs, 0)
            inner(s, start, g, h_before, h, v, W_hh, room, new, noted)

    return _loop(tangent, step)
