"""Tangent vectors along trajectories, and the gradient of any function of the tangents.

:meth:`Tangents.push` carries K tangent vectors of each sequence through a step of all layers. :meth:`Tangents.pull`
goes backwards: from the derivatives of a function with respect to the tangents and the state after the step it computes
those with respect to the tangents and the state before it, and adds up those with respect to the weights. Both run the
cell's own equations on dual numbers (:mod:`elman.cells.dual_steps`), so the derivative is exact for every cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cells.dual_steps import backward_dual, forward_dual, step_of
from ...errors import ArgumentError, NonFiniteError
from ...kernels.vector import lanes_of
from .buffers import Fresh
from .direction import Direction
from .sums import Sums
from .views import Record

Array = NDArray[Any]


class Tangents:
    """K tangent vectors along each trajectory of a linearization.

    Parameters
    ----------
    directions : list of Direction
        One for each layer, all forward.
    params : mapping of str to ndarray
    records : tuple of Record
        Records of a pass over sequences of one length, with all states.
    K : int
        Number of tangent vectors of each sequence.

    Raises
    ------
    ArgumentError
        If the cell was not made from steps, or the layer has zoneout, whose mixing is not part of the cell.
    """

    def __init__(
        self, directions: list[Direction], params: Mapping[str, Array], records: tuple[Record, ...], K: int
    ) -> None:
        self._levels: list[_Level] = []
        for d, record in zip(directions, records, strict=True):
            self._levels.append(_Level(d, params, record, K, self._levels[-1] if self._levels else None))
        self._ends = np.cumsum([level.layout.state_size for level in self._levels]).tolist()

    def push(self, t: int, v: Array) -> Array:
        """Tangents of the state after step t from those before it, both (n_sequences, K, S).

        Raises
        ------
        NonFiniteError
            If a state is not finite.
        """
        for level, part in zip(self._levels, self._split(v), strict=True):
            level.push(t, part)
        return self._joined([level.layout.vector_out(level.v_after[t], level.n) for level in self._levels], v.shape)

    def pull(self, t: int, u: Array, w: Array) -> tuple[Array, Array]:
        """Derivatives with respect to the tangents and the state before step t, from those after it.

        Parameters
        ----------
        u, w : ndarray, shape (n_sequences, K, S)
            Derivatives with respect to each tangent, and to the state; of the latter only the sum over K counts.
        """
        parts = list(zip(self._levels, self._split(u), self._split(w), strict=True))
        above: tuple[Array, Array] | None = None
        left = []
        for i, (level, of_tangent, of_state) in reversed(list(enumerate(parts))):
            left.append(level.pull(t, of_tangent, of_state, above))
            above = level.input_parts() if i else None
        of_tangents, of_states = (self._joined([pair[k] for pair in reversed(left)], u.shape) for k in range(2))
        return of_tangents, of_states

    def gradients(self, out: Mapping[str, Array], w: Array) -> None:
        """Write the derivative with respect to every parameter, after the last :meth:`pull`.

        Parameters
        ----------
        out : mapping of str to ndarray
            Receives them by name.
        w : ndarray, shape (n_sequences, K, S)
            The derivative with respect to the initial state, which may be learned.
        """
        for level, part in zip(self._levels, self._split(w), strict=True):
            level.gradients(out, part)

    def _split(self, v: Array) -> list[Array]:
        return np.split(v.reshape(-1, self._ends[-1]), self._ends[:-1], axis=1)

    @staticmethod
    def _joined(parts: list[Array], shape: tuple[int, ...]) -> Array:
        return np.concatenate(parts, axis=1).reshape(shape)


class _Level:
    """One layer: its rows, each repeated K times, with tangents at every step."""

    def __init__(self, d: Direction, params: Mapping[str, Array], record: Record, K: int, below: _Level | None) -> None:
        self.d, self.layout, self.record, self.K, self.below = d, d.layout, record, K, below
        layout, T, self.B = d.layout, record.schedule.T, record.schedule.B
        self.n = self.B * K
        forward, backward = step_of(layout.cell.forward), step_of(layout.cell.backward)
        if forward is None or backward is None or not d.uninterrupted:
            raise ArgumentError(
                f"{layout.label}: second derivatives need a cell made by the decorators of elman.cells.steps, without "
                f"zoneout, got {layout.cell.name}{d.kernels}"
            )
        self._forward, self._backward = forward_dual(forward), backward_dual(backward)
        self._panels, self._back = layout.panels(params, Fresh()), layout.pack_state_back(params, Fresh())
        self._input_back = layout.pack_input_back(params, Fresh())
        self.v_before, self.v_after = (np.zeros((T, self.n * layout.s_rs), layout.dtype) for _ in range(2))
        self._v_gates = np.zeros((T, self.n * layout.g_rs), layout.dtype)
        self._delta, self._v_delta = (np.zeros(self.n * layout.d_rs, layout.dtype) for _ in range(2))
        height = layout.D + layout.R + layout.cell.projects * layout.H
        # the derivative of [x, h]^T delta has two parts: of delta, and of x and h; that of a bias has only the first
        self._sums = [Sums(f"{layout.label} tangents {k}", height, layout.d_rs, layout.dtype) for k in range(2)]

    def push(self, t: int, v: Array) -> None:
        """One step with the tangents v (n, S)."""
        layout = self.layout
        layout.vector_in(v, self.v_before[t])
        x, v_x, stride = self._inputs(t)
        before, gates = self._states(t), np.zeros(self.n * layout.g_rs, layout.dtype)
        after = np.zeros(self.n * layout.s_rs, layout.dtype)
        finite = self._forward(
            layout.code, self.n, x, v_x, stride, self._panels.P_ih, self._panels.P_hh, self._panels.bias, before,
            self.v_before[t], after, self.v_after[t], layout.s_rs, gates, self._v_gates[t], layout.g_rs, layout.D,
            layout.H, layout.R,
        )  # fmt: skip
        if not finite:
            raise NonFiniteError(f"{layout.label}: the state must stay finite, but stopped being so at step {t}")

    def pull(self, t: int, u: Array, w: Array, above: tuple[Array, Array] | None) -> tuple[Array, Array]:
        """One step backwards, from the derivatives (n, S) and what the layer above adds to those of the output."""
        layout, rows = self.layout, []
        for k, part in enumerate((u, w)):
            flat = np.empty(self.n * layout.s_rs, layout.dtype)
            layout.vector_in(part, flat)
            if above is not None:
                flat.reshape(self.n, layout.s_rs)[:, : layout.R] += above[k]
            rows.append(flat)
        self._backward(
            layout.code, self.n, self._back, self._gates(t), self._v_gates[t], layout.g_rs, self._states(t),
            self.v_before[t], self._states(t + 1), self.v_after[t], layout.s_rs, *rows, self._delta, self._v_delta,
            layout.d_rs, np.empty(self.n * layout.n_states), layout.H, layout.R,
        )  # fmt: skip
        self._add(t)
        return layout.vector_out(rows[0], self.n), layout.vector_out(rows[1], self.n)

    def input_parts(self) -> tuple[Array, Array]:
        """Derivatives with respect to the input's tangent and the input, of the step just pulled, each (n, D)."""
        both = (self._delta, self._v_delta)
        u, w = (self.d.input_rows(self._input_back, rows, self.n).view(self.layout.D).copy() for rows in both)
        return u, w

    def gradients(self, out: Mapping[str, Array], w: Array) -> None:
        """Write the derivatives with respect to the parameters."""
        layout = self.layout
        first, second = (sums.finish() for sums in self._sums)
        first[layout.d_rs :] += second[layout.d_rs :]
        layout.unpack_gradients(first, out)
        at = 0
        for name, size in zip(layout.initial, layout.state_sizes, strict=True):
            if name in out:
                out[name][...] = w[:, at : at + size].sum(axis=0, dtype=np.float64)
            at += size

    def _add(self, t: int) -> None:
        """Add the step's terms for the weights: ``[x, h]^T v_delta`` and ``[v_x, v_h]^T delta``."""
        layout = self.layout
        x, v_x, stride = self._inputs(t)
        values = x, self._states(t), self._gates(t), self._v_delta
        tangents = v_x, self.v_before[t], self._v_gates[t], self._delta
        U = layout.Hp // lanes_of(layout.dtype.itemsize)
        flops = 2.0 * self.n * (layout.D + layout.R) * layout.H * layout.n_gates
        for sums, (read, states, gates, delta) in zip(self._sums, (values, tangents), strict=True):

            def piece(
                r0: int, r1: int, v0: int, v1: int, read: Array = read, states: Array = states, gates: Array = gates,
                delta: Array = delta, sums: Sums = sums,
            ) -> None:  # fmt: skip
                layout.cell.gradients(
                    read, stride, states, layout.s_rs, gates, layout.g_rs, delta, layout.d_rs, layout.D, layout.H,
                    layout.R, layout.n_gates * U, layout.h_first * U, r0, r1, v0, v1, sums.rows, layout.d_rs,
                )  # fmt: skip

            sums.add(delta, self.n, layout.vectors, flops, piece)

    def _inputs(self, t: int) -> tuple[Array, Array, int]:
        """The step's input, x or the output of the layer below, its tangents, and the stride of the rows."""
        if self.below is not None:
            return self.below._states(t + 1), self.below.v_after[t], self.below.layout.s_rs
        D = self.layout.D
        x = self.record.x.view(D)[t * self.B : (t + 1) * self.B]
        return np.repeat(x, self.K, axis=0).reshape(-1), np.zeros(self.n * D, self.layout.dtype), D

    def _states(self, t: int) -> Array:
        """The state in slot t, repeated K times for each sequence."""
        size = self.B * self.layout.s_rs
        return self._repeated(self.record.states[t * size : (t + 1) * size])

    def _gates(self, t: int) -> Array:
        size = self.B * self.layout.g_rs
        return self._repeated(self.record.gates[t * size : (t + 1) * size])

    def _repeated(self, rows: Array) -> Array:
        return np.repeat(rows.reshape(self.B, -1), self.K, axis=0).reshape(-1)
