r"""A direction whose units keep their state from the step before at random.

.. math:: s_t = z_t s_{t-1} + (1 - z_t) \tilde s_t, \qquad \tilde s_t = F(s_{t-1}, x_t)

with z drawn for each unit and step in training, and its mean in an evaluation. Krueger et al., Zoneout, ICLR 2017,
arXiv:1606.01305. The cell's own kernels compute F and its derivatives one step at a time, so every cell has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.squares import row_squares
from .affine import Rows
from .direction import Direction
from .layout import Panels
from .schedule import Schedule
from .views import Record

Array = NDArray[Any]


class ZonedDirection(Direction):
    """A direction with zoneout.

    Two slots of states a step: 2 t holds what step t reads, 2 t + 1 what the cell made of it.

    Parameters
    ----------
    zoneout : tuple of float
        The mean of z for each state.
    *args, reverse
        Those of :class:`Direction`.
    """

    stretch = 2

    def __init__(self, *args: Any, zoneout: tuple[float, ...], reverse: bool = False) -> None:
        super().__init__(*args, reverse=reverse)
        self.zoneout = np.array(zoneout, self.dtype)[:, None]
        self.key = (*self.key, zoneout)

    def _kept(self, record: Record, t: int, n: int) -> Array:
        """Z of step t for the first n rows: (n or 1, n_states, H or 1)."""
        if record.kept is None:
            return self.zoneout[None]
        B = record.schedule.B
        return record.kept[t * B : t * B + n]

    def in_kernel_order(self, kept: Array, schedule: Schedule) -> Array:
        """Drawn z (outer_T * outer_B, n_states, H) as rows of the kernel."""
        out = np.zeros((schedule.T * schedule.B, self.n_states * self.H), self.dtype)
        if schedule.base is None:
            return kept
        inner, outer = schedule.pairs()
        out[inner] = kept.reshape(len(kept), out.shape[1])[outer]
        return out.reshape(-1, self.n_states, self.H)

    def _step(self, record: Record, t: int) -> tuple[Array, Array, Array]:
        """States from what step t reads on, its gates, and how many rows have it: what a window of one step sees."""
        B = record.schedule.B
        return (
            record.states[2 * t * B * self.s_rs :], record.gates[t * B * self.g_rs :], record.schedule.active[t : t + 1]
        )  # fmt: skip

    def _run(self, params: Mapping[str, Array], record: Record, panels: Panels, out: Rows | None) -> None:
        """The forward kernel step by step, and the mixing after each."""
        schedule, x = record.schedule, record.x
        B = schedule.B
        record.states[B * self.s_rs :] = 0  # numbers beyond a narrow output are mixed too, and must not warn
        pairs = self.state_view(record.states, record.slots * B).reshape(record.slots, B, self.n_states, self.H)
        for t in range(schedule.T):
            n = int(schedule.active[t])
            states, gates, active = self._step(record, t)
            status = self.cell.forward(
                self.code, x.flat[t * B * x.stride :], x.stride, panels.P_ih, panels.P_hh, panels.bias, 0, states,
                self.s_rs, gates, self.g_rs, self.nothing, 0, self.D, self.H, self.R, B, 3, active, 0, 1, 0, B,
            )  # fmt: skip
            if status >= 0:
                raise self.failure(params, record, t, 0, B)
            z = self._kept(record, t, n)
            self.state_view(record.states[(2 * t + 2) * B * self.s_rs :], n)[...] = self._mixed(
                z, pairs[2 * t, :n], pairs[2 * t + 1, :n]
            )
        if out is not None:
            after = self.state_slots(record)[1:, :, 0, : self.R].reshape(schedule.T * B, self.R)
            schedule.spread(after, schedule.part(out).view(self.R))

    @staticmethod
    def _mixed(z: Array, before: Array, made: Array) -> Array:
        mixed: Array = z * before + (1 - z) * made
        return mixed

    def settle(self, record: Record, slot: int, out: Array) -> None:
        """Mix the state that a stepper's kernel wrote with the one in ``slot`` before it."""
        B = record.schedule.B
        before, made = (self.state_view(record.states[s * B * self.s_rs :], B) for s in (slot, 1 - slot))
        made[...] = self._mixed(self.zoneout[None], before, made)
        out[...] = made[:, 0, : self.R]

    def sweep(
        self, record: Record, d_output: Array, y_rs: int, P_back: Array, delta: Array, d_state: Array, squares: Array,
        K: int, keep: bool, t0: int, t1: int,
    ) -> None:  # fmt: skip
        """The backward kernel step by step: what was kept passes it by."""
        B, unused = record.schedule.B, np.empty(record.schedule.B * K * self.n_states)
        norms = squares.reshape(-1, B * K, self.n_states)
        for t in range(t1 - 1, t0 - 1, -1):
            states, gates, active = self._step(record, t)
            n = int(active[0]) * K
            d = self.state_view(d_state, n)
            if d_output.size:
                d[:, 0, : self.R] += Rows(d_output[t * B * K * y_rs :], y_rs, n).view(self.R)
            norms[t, :n] = row_squares(d)
            z = self._kept(record, t, n)
            past = z * d
            d *= 1 - z
            self.cell.backward(
                self.code, self.nothing, 0, P_back, self.zero, states, self.s_rs, gates, self.g_rs,
                delta[keep * t * B * K * self.d_rs :], self.d_rs, d_state, unused, self.H, self.R, B, K, 0, active,
                0, 1, 0, B,
            )  # fmt: skip
            d += past

    def tangent(
        self, record: Record, P_hh: Array, init: Array | None, V: Array, squares: Array, K: int, t0: int, t1: int
    ) -> None:
        """The tangent kernel step by step, and the mixing after each."""
        B = record.schedule.B
        ring = V.reshape(2, -1)
        blocks = np.empty(B * K * self.d_rs, self.dtype)
        start, i_rs = (self.zero, 0) if init is None else (init, self.d_rs)
        norms = squares.reshape(-1, B * K, self.n_states)
        pair = np.zeros_like(V)
        for t in range(t0, t1):
            states, gates, _ = self._step(record, t)
            now, new = ring[t % 2], ring[(t + 1) % 2]
            pair.reshape(2, -1)[0] = now
            self.cell.tangent(
                self.code, P_hh, start[(t - t0) * B * K * i_rs :], i_rs, states, self.s_rs, gates, self.g_rs, blocks,
                self.d_rs, pair, self.s_rs, norms[t - t0].reshape(-1), self.H, self.R, B, K, 0, 1, 0, B,
            )  # fmt: skip
            made = self.state_view(pair[len(pair) // 2 :], B * K)
            mixed = self.state_view(new, B * K)
            mixed[...] = self._mixed(self.zoneout[None], self.state_view(now, B * K), made)
            norms[t - t0] = row_squares(mixed)

    def read(self, record: Record) -> Array:
        """The states that the steps read, flat; a copy."""
        B = record.schedule.B
        slots = record.states[: record.slots * B * self.s_rs].reshape(record.slots, -1)
        return np.ascontiguousarray(slots[:-1:2]).reshape(-1)

    def jacobian(self, record: Record, weights: Array, t: int, b: int) -> Array:
        """One step's Jacobian, ``diag(z) + diag(1 - z) J``."""
        B = record.schedule.B
        states, gates, _ = self._step(record, t)
        J = np.empty((self.state_size, self.state_size), self.dtype)
        self.cell.jacobian(
            self.code, weights, states, self.s_rs, gates, self.g_rs, self.H, self.R, B, 0, b, J.reshape(-1)
        )
        z = np.repeat(self.zoneout[:, 0], self.state_sizes)
        J *= (1 - z)[:, None]
        J[np.diag_indices(len(z))] += z
        return J
