"""The tangent dynamics of a layer: products with its Jacobians by the tangent and backward kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..linearization import ElementwiseFactors, Linearization
from .buffers import Fresh
from .direction import Direction, Record

Array = NDArray[Any]


class LayerLinearization(Linearization):
    """A layer's Jacobians along the trajectories of a record; a snapshot of the weights.

    See :class:`elman.Linearization` for what it offers. The state is what one step carries to the next: ``h`` for the
    Elman cell.
    """

    def __init__(self, direction: Direction, params: Mapping[str, Array], record: Record) -> None:
        self._direction, self._record = direction, record
        self._weight = params[direction.weight_hh].copy()
        self._panels = direction.pack(self._weight, direction.h_order, "P_hh", Fresh())
        self._back = direction.pack_back(self._weight, direction.h_order, "P_back", Fresh())
        self.n_steps, self.n_sequences = record.T, record.B
        self.state_size, self.dtype = direction.state_size, direction.dtype

    def _jvp(self, v: Array, t0: int, t1: int, norms: Array | None) -> Array:
        d, (n, K, S) = self._direction, v.shape
        rows = np.zeros(2 * n * K * d.s_rs, self.dtype)
        half = n * K * d.s_rs
        d.place_state(rows[t0 % 2 * half :][:half], v.reshape(n * K, d.n_states, d.H))
        squares = np.empty((t1 - t0) * n * K * d.n_states)
        if squares.size:
            d.tangent(self._record, self._panels, rows, squares, K, t0, t1)
        if norms is not None:
            norms[...] = np.sqrt(squares.reshape(*norms.shape, d.n_states).sum(axis=-1))
        return d.state_view(rows[t1 % 2 * half :], n * K).reshape(n, K, S)

    def _vjp(self, u: Array, t0: int, t1: int, norms: Array | None) -> Array:
        d, (n, K, S) = self._direction, u.shape
        rows = np.zeros(n * K * d.s_rs, self.dtype)
        d.place_state(rows, u.reshape(n * K, d.n_states, d.H))
        # the kernel indexes squares by t, but only the window's rows are wanted
        squares = np.zeros((t1, n, K, d.n_states))
        if t1 > t0 and n * K:
            delta = np.empty(n * K * d.d_rs, self.dtype)
            nothing = np.empty(0, self.dtype)
            d.sweep(self._record, nothing, 0, self._back, delta, rows, squares.reshape(-1), K, False, t0, t1)
        out = d.state_view(rows, n * K).reshape(n, K, S)
        if norms is not None and t1 > t0:
            # the kernel notes what enters each step; what leaves step t enters step t - 1
            norms[:-1] = np.sqrt(squares[t0 : t1 - 1][::-1].sum(axis=-1))
            norms[-1] = np.linalg.norm(out.astype(np.float64), axis=2)
        return out

    def jacobian(self, t: int, sequence: int = 0) -> Array:
        """One step's Jacobian (S, S), rows are outputs; see :meth:`elman.Linearization.jacobian`."""
        if not 0 <= t < self.n_steps or not 0 <= sequence < self.n_sequences:
            raise ArgumentError(
                f"the step must lie in 0 .. {self.n_steps - 1} and the sequence in 0 .. {self.n_sequences - 1}, "
                f"got step {t}, sequence {sequence}"
            )
        d, record = self._direction, self._record
        J = np.empty((self.state_size, self.state_size), self.dtype)
        d.cell.jacobian(
            d.code, self._weight.reshape(-1), record.states, d.s_rs, record.gates, d.g_rs, d.H, record.B, t, sequence,
            J.reshape(-1),
        )  # fmt: skip
        return J

    @property
    def factors(self) -> ElementwiseFactors | None:
        """Slopes and recurrent matrix if the cell's Jacobian is their product."""
        d, record = self._direction, self._record
        if d.cell.factors is None or d.cell.max_slope is None:
            return None
        rows = d.state_view(record.states, (record.T + 1) * record.B)[record.B :, 0]
        slopes = d.cell.factors(d.variant, rows).reshape(record.T, record.B, d.H)
        return ElementwiseFactors(slopes, self._weight, d.cell.max_slope(d.variant))
