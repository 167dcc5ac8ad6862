r"""A direction whose units keep their state from the step before at random.

.. math:: s_t = z_t s_{t-1} + (1 - z_t) \tilde s_t, \qquad \tilde s_t = F(s_{t-1}, x_t)

with z drawn for each unit and step in training, and its mean in an evaluation. Krueger et al., Zoneout, ICLR 2017,
arXiv:1606.01305. The cell's own kernels compute F and its derivatives one step at a time, so every cell has it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cells import zoneout as loops
from .buffers import scratch
from .direction import Direction
from .rows import Rows
from .schedule import Schedule
from .views import Record

Array = NDArray[Any]

NOTHING = np.empty(0, np.uint8)
"""What an evaluation draws."""


class ZonedDirection(Direction):
    """A direction with zoneout.

    Two slots of states a step, where states are kept: 2 t holds what step t reads, 2 t + 1 what the cell made of it.

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

    @cached_property
    def _mean(self) -> Array:
        """Z of an evaluation: one row for all."""
        row = np.zeros(self.s_rs, self.dtype)
        row[: self.n_states * self.Hp] = np.repeat(self.zoneout[:, 0], self.Hp)
        return row

    def _mixing(self, record: Record) -> tuple[int, Array, Array, int]:
        """Number of states, what was drawn, z of a step, and how far apart its rows are."""
        if record.kept is None:
            return self.n_states, NOTHING, self._mean, 0
        Z = scratch().take("z", record.schedule.B * self.s_rs, self.dtype)
        return self.n_states, record.kept.reshape(-1), Z, self.s_rs

    def in_kernel_order(self, drawn: Array, schedule: Schedule) -> Array:
        """Drawn z (outer_T * outer_B, n_states, H) as rows of the kernel, (T * B, n_states, Hp)."""
        rows = np.zeros((schedule.T * schedule.B, self.n_states, self.Hp), drawn.dtype)
        if schedule.base is None:
            rows[..., : self.H] = drawn
        else:
            inner, outer = schedule.pairs()
            rows[inner, :, : self.H] = drawn[outer]
        return rows

    def forward_kernel(self, record: Record) -> Callable[..., int]:
        """The cell's, and the mixing after each step."""
        address = loops.FORWARD.address(self.cell.forward, self.dtype)
        return partial(loops.forward, address, *self._mixing(record))

    def backward_kernel(self, record: Record, K: int) -> Callable[..., None]:
        """The cell's; what was kept passes it by."""
        n = record.schedule.B * K
        past, unused = scratch().take("past", n * self.s_rs, self.dtype), np.empty(2 * n * self.n_states)
        address = loops.BACKWARD.address(self.cell.backward, self.dtype)
        return partial(loops.backward, address, *self._mixing(record), past, unused)

    def tangent_kernel(self, record: Record, K: int) -> Callable[..., None]:
        """The cell's, and the mixing after each step."""
        unused = np.empty(2 * record.schedule.B * K * self.n_states)
        address = loops.TANGENT.address(self.cell.tangent, self.dtype)
        return partial(loops.tangent, address, *self._mixing(record), unused)

    def settle(self, record: Record, slot: int, out: Array) -> None:
        """Mix the state that a stepper's kernel wrote with the one in ``slot`` before it."""
        loops.settle(
            record.states, self.s_rs, slot, out.reshape(-1), self.H, self.R, record.schedule.B, self.n_states,
            self._mean,
        )  # fmt: skip

    def read(self, record: Record) -> Rows:
        """The states that the steps read: every other slot."""
        B, T = record.schedule.B, record.schedule.T
        if B == 1:
            return Rows(record.states, 2 * self.s_rs, T)
        rows, n = scratch().take("read", T * B * self.s_rs, self.dtype), B * self.s_rs
        rows.reshape(T, n)[...] = record.states[: 2 * T * n].reshape(T, 2, n)[:, 0]
        return Rows(rows, self.s_rs, T * B)

    def jacobian(self, record: Record, weights: Array, t: int, b: int) -> Array:
        """One step's Jacobian, ``diag(z) + diag(1 - z) J``."""
        B = record.schedule.B
        states, gates = record.states[2 * t * B * self.s_rs :], record.gates[t * B * self.g_rs :]
        J = np.empty((self.state_size, self.state_size), self.dtype)
        self.cell.jacobian(
            self.code, weights, states, self.s_rs, gates, self.g_rs, self.H, self.R, B, 0, b, J.reshape(-1)
        )
        z = np.repeat(self.zoneout[:, 0], self.state_sizes)
        J *= (1 - z)[:, None]
        J[np.diag_indices(len(z))] += z
        return J
