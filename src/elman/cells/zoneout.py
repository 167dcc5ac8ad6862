r"""Loops over the steps of any cell whose units keep a part of the state from the step before.

.. math:: s_t = z_t s_{t-1} + (1 - z_t) \tilde s_t, \qquad \tilde s_t = F(s_{t-1}, x_t)

Krueger et al., Zoneout, ICLR 2017, arXiv:1606.01305. The cell's own kernels, called by their addresses, compute F and
its derivatives one step at a time; what is here mixes.

Arrays, sizes, windows and slabs are those of :mod:`elman.cells.cell`. Beside them there are

======== ================================== ==============================================================
array    rows                               a row holds
======== ================================== ==============================================================
drawn    T * B, or none                     ``[state][Hp]``, z as 0 or 1, in bytes; backwards with K = 1 only
Z        B, or one if nothing is drawn      ``[state][Hp]``, z of one step; ``z_rs`` is 0 where it is one row
states   (2 T + 1) * B, or 2 * B            a step t that is kept has two slots: 2 t is what it reads, 2 t + 1 what
                                            the cell makes of it; with ``slots`` = 2, it reads slot t and mixes in
                                            place, both modulo 2
past     B * K                              ``[state][Hp]``, the part of a gradient that passes the cell by: scratch
unused   2 * B * K * n_states               the sums of squares that the cell notes, which are not those of the state
======== ================================== ==============================================================
"""

from __future__ import annotations

from ..kernels.address import Convention
from ..kernels.compile import inline, integer, kernel
from ..kernels.elementwise import add_row, copy_row, elementwise
from ..kernels.flags import from_flags
from ..kernels.vector import lanes

FORWARD = Convention("i Ri r r Ri Ri Ri ri iiiii N iiii", "i")
BACKWARD = Convention("i ri r r Ri Ri Ri r d iiiii N iiii", "")
TANGENT = Convention("i r Ri Ri Ri ri ri d iiii iiii", "")
call_forward, call_backward, call_tangent = FORWARD.call, BACKWARD.call, TANGENT.call


def _mix(m, z, before, made, new):
    """A part of the old state, and the rest of what the cell made."""
    return (z * before + (1.0 - z) * made,)


def _part(m, z, d, past):
    """The gradient, which is reduced, what of it passes the cell by, and what enters it."""
    return d, z * d, (1.0 - z) * d


def _add(m, d, past):
    """The gradient that came through the cell, and what passed it by."""
    return (d + past,)


_mixed_rows = elementwise(_mix, 4, (3,))
_mixed_tangent_rows = elementwise(_mix, 4, (3,), "squares")
_parted_rows = elementwise(_part, 3, (None, 2, 1), "squares")
_added_rows = elementwise(_add, 2, (0,))


@inline
def _mix_states(Z, z, z_rs, states, s_rs, before, made, new, H, R, N, n_states):
    """Mix N rows of states, of which the first has R numbers and each other H."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    for i in range(n_states):
        at, vectors = i * U * VL, U if i > 0 else (R + VL - 1) // VL
        _mixed_rows(
            Z, z + at, z_rs, states, before + at, s_rs, states, made + at, s_rs, states, new + at, s_rs, N, vectors
        )


@kernel
def forward(
    cell, n_states, drawn, Z, z_rs, variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D,
    H, R, B, slots, active, t0, t1, b0, b1,
):  # fmt: skip
    """The window of ``cell.forward``, of which ``cell`` is the address, mixed after each step."""
    VL = lanes(states)
    width = (H + VL - 1) // VL * VL * n_states
    for t in range(t0, t1):
        N = (b1 if b1 < active[t] else active[t]) - b0
        if N <= 0:
            break
        # the cell sees a step 0 or 1 in turns: it takes the weights from the end at which it left them
        turn = t % 2
        x, start, row = (t - turn) * B * x_rs, (t - t0) * B * i_rs, B * s_rs
        if slots > 2:
            first, g, room, made, new = 2 * t - turn, (t - turn) * B * g_rs, 3, 2 * t + 1, 2 * t + 2
        else:
            first, g, room, made, new = 0, 0, 2, 1 - turn, 1 - turn
        status = call_forward(
            cell, variant, X, x, x_rs, P_ih, P_hh, init, start, i_rs, states, first * row, s_rs, gates, g, g_rs,
            out[:0], 0, D, H, R, B, room, active, t - turn, turn, turn + 1, b0, b1,
        )  # fmt: skip
        if status >= 0:
            return t
        mine = b0 * s_rs
        before, made, new = (first + turn) * row + mine, made * row + mine, new * row + mine
        if drawn.size > 0:
            from_flags(drawn, (t * B + b0) * width, width, Z, b0 * z_rs, z_rs, N, width // VL)
        _mix_states(Z, b0 * z_rs, z_rs, states, s_rs, before, made, new, H, R, N, n_states)
        if out.size > 0:
            for n in range(N):
                copy_row(out, (t * B + b0 + n) * o_rs, states, new + n * s_rs, R)
    return -1


@kernel
def settle(states, s_rs, slot, out, H, R, B, n_states, Z):
    """Mix what a stepper's kernel wrote with the state in ``slot``, which it read; the output to ``out``."""
    new = (1 - slot) * B * s_rs
    _mix_states(Z, 0, 0, states, s_rs, slot * B * s_rs, new, new, H, R, B, n_states)
    for b in range(B):
        copy_row(out, b * R, states, new + b * s_rs, R)


@kernel
def backward(
    cell, n_states, drawn, Z, z_rs, past, unused, variant, dY, y_rs, P_back, zero, states, s_rs, gates, g_rs, delta,
    d_rs, d_state, squares, H, R, B, K, keep, active, t0, t1, b0, b1,
):  # fmt: skip
    """The window of ``cell.backward``: what was kept of a state passes each step by."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    width = n_states * U * VL
    for t in range(t1 - 1, t0 - 1, -1):
        n1 = b1 if b1 < active[t] else active[t]
        if n1 <= b0:
            continue
        turn, rows = t % 2, t * B * K
        if drawn.size > 0:
            from_flags(drawn, (t * B + b0) * width, width, Z, b0 * z_rs, z_rs, n1 - b0, width // VL)
        first, n = b0 * K, (n1 - b0) * K
        if dY.size > 0:
            for r in range(first, first + n):
                add_row(d_state, r * s_rs, dY, (rows + r) * y_rs, R)
        for i in range(n_states):
            at, vectors = i * U * VL, U if i > 0 else (R + VL - 1) // VL
            d = first * s_rs + at
            _parted_rows(Z, b0 * z_rs + at, z_rs, d_state, d, s_rs, past, d, s_rs, n, vectors, unused, first)
            for r in range(first, first + n):
                squares[(rows + r) * n_states + i] = unused[r]
        call_backward(
            cell, variant, dY[:0], 0, P_back, zero, states, (2 * t - turn) * B * s_rs, s_rs, gates,
            (t - turn) * B * g_rs, g_rs, delta, keep * (t - turn) * B * K * d_rs, d_rs, d_state, unused,
            H, R, B, K, keep, active, t - turn, turn, turn + 1, b0, b1,
        )  # fmt: skip
        for i in range(n_states):
            d, vectors = first * s_rs + i * U * VL, U if i > 0 else (R + VL - 1) // VL
            _added_rows(d_state, d, s_rs, past, d, s_rs, n, vectors)


@kernel
def tangent(
    cell, n_states, drawn, Z, z_rs, unused, variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs,
    squares, H, R, B, K, t0, t1, b0, b1,
):  # fmt: skip
    """The window of ``cell.tangent``, mixed after each step."""
    VL = lanes(states)
    U = (H + VL - 1) // VL
    width = n_states * U * VL
    none, one = integer(0), integer(1)
    for t in range(t0, t1):
        turn = t % 2
        if drawn.size > 0:
            from_flags(drawn, (t * B + b0) * width, width, Z, b0 * z_rs, z_rs, b1 - b0, width // VL)
        call_tangent(
            cell, variant, P_hh, init, (t - t0) * B * K * i_rs, i_rs, states, (2 * t - turn) * B * s_rs, s_rs, gates,
            (t - turn) * B * g_rs, g_rs, work, w_rs, V, v_rs, unused, H, R, B, K, turn, turn + 1, b0, b1,
        )  # fmt: skip
        for r in range(b0 * K, b1 * K):
            now, new, z = (turn * B * K + r) * v_rs, ((1 - turn) * B * K + r) * v_rs, r // K * z_rs
            for i in range(n_states):
                at, vectors = i * U * VL, U if i > 0 else (R + VL - 1) // VL
                _mixed_tangent_rows(
                    Z, z + at, none, V, now + at, none, V, new + at, none, V, new + at, none, one, vectors, squares,
                    ((t - t0) * B * K + r) * n_states + i,
                )  # fmt: skip
