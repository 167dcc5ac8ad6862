r"""The kernels that a direction runs: a cell's own, or these combined with units that randomly keep their state.

.. math:: s_t = z_t s_{t-1} + (1 - z_t) \tilde s_t, \qquad \tilde s_t = F(s_{t-1}, x_t)

with z drawn for each unit and step in training, and replaced by its mean in an evaluation. Krueger et al., Zoneout,
ICLR 2017, arXiv:1606.01305. The cell's own kernels compute F and its derivatives one step at a time, so zoneout works
for every cell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cells import zoneout as loops
from .buffers import scratch
from .layout import Layout
from .views import Record

Array = NDArray[Any]

NOTHING = np.empty(0, np.uint8)
"""The noise of an evaluation: none."""


class CellKernels:
    """The kernels of a cell, unchanged.

    Attributes
    ----------
    stretch : int
        Number of slots of states that a step takes, if states are stored.
    key : tuple
        What distinguishes them from those of other layers with the same cell and sizes.
    """

    stretch = 1
    key: tuple[Any, ...] = ()

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __str__(self) -> str:
        """Text that messages append to the cell's name."""
        return ""

    def forward(self, record: Record) -> Callable[..., int]:
        """The kernel of a forward pass."""
        return self.layout.cell.forward

    def backward(self, record: Record, K: int) -> Callable[..., None]:
        """The kernel of a backward pass of K vectors."""
        return self.layout.cell.backward

    def tangent(self, record: Record, K: int) -> Callable[..., None]:
        """The kernel that pushes K tangents."""
        return self.layout.cell.tangent

    def settle(self, record: Record, slot: int, out: Array) -> None:
        """Complete a stepper's step after the cell's kernel."""

    def settle_jacobian(self, J: Array) -> None:
        """Complete one step's Jacobian, in place."""


class ZoneoutKernels(CellKernels):
    """Kernels with zoneout.

    If states are stored, each step has two slots: 2 t holds the state that step t reads, 2 t + 1 the cell's result.

    Parameters
    ----------
    layout : Layout
    rates : tuple of float
        The mean of z for each state.
    """

    stretch = 2

    def __init__(self, layout: Layout, rates: tuple[float, ...]) -> None:
        super().__init__(layout)
        self.rates, self.key = np.array(rates, layout.dtype), (rates,)

    def __str__(self) -> str:
        return f", zoneout {self.key[0]}"

    @cached_property
    def _mean(self) -> Array:
        """The z of an evaluation: one row for all."""
        row = np.zeros(self.layout.s_rs, self.layout.dtype)
        row[: self.layout.n_states * self.layout.Hp] = np.repeat(self.rates, self.layout.Hp)
        return row

    def _mixing(self, record: Record) -> tuple[int, Array, Array, int]:
        """Number of states, the random draws, z of a step, and the stride of its rows."""
        n, s_rs = self.layout.n_states, self.layout.s_rs
        if record.kept is None:
            return n, NOTHING, self._mean, 0
        Z = scratch().take("z", record.schedule.B * s_rs, self.layout.dtype)
        return n, record.kept.reshape(-1), Z, s_rs

    def forward(self, record: Record) -> Callable[..., int]:
        """The cell's, and the mixing after each step."""
        address = loops.FORWARD.address(self.layout.cell.forward, self.layout.dtype)
        return partial(loops.forward, address, *self._mixing(record))

    def backward(self, record: Record, K: int) -> Callable[..., None]:
        """The cell's kernel; what was kept bypasses it."""
        layout, n = self.layout, record.schedule.B * K
        past, unused = scratch().take("past", n * layout.s_rs, layout.dtype), np.empty(2 * n * layout.n_states)
        address = loops.BACKWARD.address(layout.cell.backward, layout.dtype)
        return partial(loops.backward, address, *self._mixing(record), past, unused)

    def tangent(self, record: Record, K: int) -> Callable[..., None]:
        """The cell's, and the mixing after each step."""
        unused = np.empty(2 * record.schedule.B * K * self.layout.n_states)
        address = loops.TANGENT.address(self.layout.cell.tangent, self.layout.dtype)
        return partial(loops.tangent, address, *self._mixing(record), unused)

    def settle(self, record: Record, slot: int, out: Array) -> None:
        """Mix the state that a stepper's kernel wrote with the one in ``slot`` before it."""
        layout = self.layout
        loops.settle(
            record.states, layout.s_rs, slot, out.reshape(-1), layout.H, layout.R, record.schedule.B, layout.n_states,
            self._mean,
        )  # fmt: skip

    def settle_jacobian(self, J: Array) -> None:
        """One step's Jacobian, ``diag(z) + diag(1 - z) J``."""
        z = np.repeat(self.rates, self.layout.state_sizes)
        J *= (1 - z)[:, None]
        J[np.diag_indices(len(z))] += z


def kernels_of(layout: Layout, zoneout: tuple[float, ...]) -> CellKernels:
    """A direction's kernels for given fractions of each state that zoneout keeps."""
    return ZoneoutKernels(layout, zoneout) if any(zoneout) else CellKernels(layout)
