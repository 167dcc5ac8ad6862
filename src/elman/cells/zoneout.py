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
unused   2 * B * K * n_states               the sums of squares that the cell notes, which are not those of the state;
                                            between two calls of it, each slab's part of it is scratch
======== ================================== ==============================================================
"""

from __future__ import annotations

from ..kernels.address import Convention
from ..kernels.compile import inline, kernel
from ..kernels.elementwise import add_rows, copy_rows, elementwise
from ..kernels.flags import from_flags
from ..kernels.operands import grid_at, rows_at, within
from ..kernels.vector import lanes

FORWARD = Convention("i Ri r r Ri Ri Ri ri iiiii N iiii", "i")
BACKWARD = Convention("i ri r Ri Ri Ri r d iiiii N iiii", "")
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
def _mix_states(z, before, made, new, H, R, Hp, VL, N, n_states):
    """Mix N rows of states, of which the first has R numbers and each other H."""
    for i in range(n_states):
        at, vectors = i * Hp, ((R if i == 0 else H) + VL - 1) // VL
        _mixed_rows(within(z, at), within(before, at), within(made, at), within(new, at), N, 1, vectors)


@kernel
def forward(
    cell, n_states, drawn, Z, z_rs, variant, X, x_rs, P_ih, P_hh, init, i_rs, states, s_rs, gates, g_rs, out, o_rs, D,
    H, R, B, slots, active, t0, t1, b0, b1,
):  # fmt: skip
    """The window of ``cell.forward``, of which ``cell`` is the address, mixed after each step."""
    VL = lanes(states)
    Hp = (H + VL - 1) // VL * VL
    width, z = Hp * n_states, rows_at(Z, b0 * z_rs, z_rs)
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
        mine = rows_at(states, b0 * s_rs, s_rs)
        before, made, new = within(mine, (first + turn) * row), within(mine, made * row), within(mine, new * row)
        if drawn.size > 0:
            from_flags(rows_at(drawn, (t * B + b0) * width, width), z, N, width // VL)
        _mix_states(z, before, made, new, H, R, Hp, VL, N, n_states)
        if out.size > 0:
            copy_rows(rows_at(out, (t * B + b0) * o_rs, o_rs), new, N, R)
    return -1


@kernel
def settle(states, s_rs, slot, out, H, R, B, n_states, Z):
    """Mix what a stepper's kernel wrote with the state in ``slot``, which it read; the output to ``out``."""
    VL = lanes(states)
    before, new = rows_at(states, slot * B * s_rs, s_rs), rows_at(states, (1 - slot) * B * s_rs, s_rs)
    _mix_states(rows_at(Z, 0, 0), before, new, new, H, R, (H + VL - 1) // VL * VL, VL, B, n_states)
    copy_rows(rows_at(out, 0, R), new, B, R)


@kernel
def backward(
    cell, n_states, drawn, Z, z_rs, past, unused, variant, dY, y_rs, P_back, states, s_rs, gates, g_rs, delta, d_rs,
    d_state, squares, H, R, B, K, keep, active, t0, t1, b0, b1,
):  # fmt: skip
    """The window of ``cell.backward``: what was kept of a state passes each step by."""
    VL = lanes(states)
    Hp = (H + VL - 1) // VL * VL
    width, first = n_states * Hp, b0 * K
    z, d, beside = rows_at(Z, b0 * z_rs, z_rs), rows_at(d_state, first * s_rs, s_rs), rows_at(past, first * s_rs, s_rs)
    for t in range(t1 - 1, t0 - 1, -1):
        N = (b1 if b1 < active[t] else active[t]) - b0
        if N <= 0:
            continue
        turn, rows = t % 2, t * B * K
        if drawn.size > 0:
            from_flags(rows_at(drawn, (t * B + b0) * width, width), z, N, width // VL)
        if dY.size > 0:
            add_rows(d, rows_at(dY, (rows + first) * y_rs, y_rs), N * K, R)
        for i in range(n_states):
            at, vectors = i * Hp, ((R if i == 0 else H) + VL - 1) // VL
            # flags are drawn for K = 1 only, and otherwise all rows of Z are the same
            _parted_rows(within(z, at), within(d, at), within(beside, at), N * K, 1, vectors, unused, first * n_states)
            for r in range(N * K):
                squares[(rows + first + r) * n_states + i] = unused[first * n_states + r]
        call_backward(
            cell, variant, dY[:0], 0, P_back, states, (2 * t - turn) * B * s_rs, s_rs, gates,
            (t - turn) * B * g_rs, g_rs, delta, keep * (t - turn) * B * K * d_rs, d_rs, d_state, unused,
            H, R, B, K, keep, active, t - turn, turn, turn + 1, b0, b1,
        )  # fmt: skip
        for i in range(n_states):
            at, vectors = i * Hp, ((R if i == 0 else H) + VL - 1) // VL
            _added_rows(within(d, at), within(beside, at), N * K, 1, vectors)


@kernel
def tangent(
    cell, n_states, drawn, Z, z_rs, unused, variant, P_hh, init, i_rs, states, s_rs, gates, g_rs, work, w_rs, V, v_rs,
    squares, H, R, B, K, t0, t1, b0, b1,
):  # fmt: skip
    """The window of ``cell.tangent``, mixed after each step."""
    VL = lanes(states)
    Hp = (H + VL - 1) // VL * VL
    N, width, z = b1 - b0, n_states * Hp, grid_at(Z, b0 * z_rs, z_rs, 0)
    for t in range(t0, t1):
        turn = t % 2
        if drawn.size > 0:
            from_flags(rows_at(drawn, (t * B + b0) * width, width), rows_at(Z, b0 * z_rs, z_rs), N, width // VL)
        call_tangent(
            cell, variant, P_hh, init, (t - t0) * B * K * i_rs, i_rs, states, (2 * t - turn) * B * s_rs, s_rs, gates,
            (t - turn) * B * g_rs, g_rs, work, w_rs, V, v_rs, unused, H, R, B, K, turn, turn + 1, b0, b1,
        )  # fmt: skip
        v, new = rows_at(V, (turn * B + b0) * K * v_rs, v_rs), rows_at(V, ((1 - turn) * B + b0) * K * v_rs, v_rs)
        rows, mine = ((t - t0) * B + b0) * K, b0 * K * n_states
        for i in range(n_states):
            at, vectors = i * Hp, ((R if i == 0 else H) + VL - 1) // VL
            _mixed_tangent_rows(
                within(z, at), within(v, at), within(new, at), within(new, at), N, K, vectors, unused, mine
            )
            for r in range(N * K):
                squares[(rows + r) * n_states + i] = unused[mine + r]
