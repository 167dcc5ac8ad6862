"""The tangent dynamics of a layer: products with its Jacobians, by the tangent and backward kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ArgumentError
from ...kernels.squares import row_squares
from ...linearization import ElementwiseFactors, Linearization
from ...norms import out_of_range, safe_norm
from .affine import Affine
from .buffers import Fresh, scratch
from .direction import Direction
from .rows import Rows
from .tangents import Tangents
from .views import Record, last_state, state_slots

Array = NDArray[Any]


class LayerLinearization(Linearization):
    """A layer's Jacobians along the trajectories of a record; a snapshot of the weights.

    See :class:`elman.Linearization` for what it offers. The state is what one step carries to the next: ``h`` for the
    Elman cell, (h, c) for the LSTM; for a stack, the states of all layers, one after the other. Within a step, each
    layer reads the new output of the one below, so a stack is pushed step by step, and a single layer a whole window
    at once.

    Parameters
    ----------
    directions : list of Direction
        One for each layer.
    params : mapping of str to ndarray
        The weights, which are copied.
    records : tuple of Record
        Records of a pass over sequences of one length.
    """

    def __init__(self, directions: list[Direction], params: Mapping[str, Array], records: tuple[Record, ...]) -> None:
        self._directions, self._records = directions, records
        self._layouts = layouts = [d.layout for d in directions]
        self._params = {name: np.array(view) for name, view in params.items()}
        self._panels = [layout.pack_state(self._params, Fresh()) for layout in layouts]
        self._back = [layout.pack_state_back(self._params, Fresh()) for layout in layouts]
        self._input_back = [layout.pack_input_back(self._params, Fresh()) for layout in layouts[1:]]
        self.n_steps, self.n_sequences = records[0].schedule.T, records[0].schedule.B
        self._ends = np.cumsum([layout.state_size for layout in layouts]).tolist()
        self.state_size, self.dtype = self._ends[-1], layouts[0].dtype

    def last_output(self) -> Array:
        """The output (n_sequences, R) of the last layer after the last step."""
        layout = self._layouts[-1]
        return np.ascontiguousarray(last_state(layout, self._records[-1])[:, 0, : layout.R])

    def check_weights(self, params: Mapping[str, Array]) -> None:
        """Refuse to be used together with other weights.

        Raises
        ------
        ArgumentError
            With the first parameter that differs.
        """
        for name, view in params.items():
            if view.tobytes() != self._params[name].tobytes():
                raise ArgumentError(
                    f"lin must be of the weights as they are now, but {name} has been changed since it was made: call "
                    "linearize() again"
                )

    def _parts(self, v: Array) -> list[Array]:
        """State vectors (n * K, S) cut into those of each layer."""
        return np.split(v.reshape(-1, self.state_size), self._ends[:-1], axis=1)

    def _windows(self, t0: int, t1: int) -> list[tuple[int, int]]:
        """The windows of steps that can be pushed at once."""
        return [(t0, t1)] if len(self._directions) == 1 else [(t, t + 1) for t in range(t0, t1)]

    def _jvp(self, v: Array, t0: int, t1: int, norms: Array | None) -> Array:
        n, K, _ = v.shape
        squares = np.zeros((t1 - t0, n, K))
        rings = []
        for layout, part in zip(self._layouts, self._parts(v), strict=True):
            ring = np.zeros((2, n * K * layout.s_rs), self.dtype)
            layout.vector_in(part, ring[t0 % 2])
            rings.append(ring)
        for a, b in self._windows(t0, t1) if n * K else []:
            below: Rows | None = None
            for i, d in enumerate(self._directions):
                layout = d.layout
                own = np.empty((b - a, n, K, layout.n_states))
                init = None if below is None else self._input_tangent(i, below)
                d.tangent(
                    self._records[i], self._panels[i], init, rings[i].reshape(-1), own.reshape(-1), K, a, b
                )  # fmt: skip
                squares[a - t0 : b - t0] += own.sum(axis=3)
                below = Rows(rings[i][b % 2], layout.s_rs, n * K)
        if norms is not None:
            norms[...] = np.sqrt(squares)
            self._correct(norms, squares, v, range(t0, t1), self._jvp)
        out = [layout.vector_out(ring[t1 % 2], n * K) for layout, ring in zip(self._layouts, rings, strict=True)]
        return np.concatenate(out, axis=1).reshape(v.shape)

    def _input_tangent(self, i: int, below: Rows) -> Array:
        """What the tangents of the layer below add to the pre-activations of layer i: flat rows of blocks."""
        layout = self._layouts[i]
        out = np.zeros((below.n, layout.d_rs), self.dtype)
        H, affine = layout.H, Affine(layout.D, layout.H, self.dtype)
        for block, gate in enumerate(layout.x_order):
            W, at = self._params[layout.weight_ih][gate * H : (gate + 1) * H], block * layout.Hp
            out[:, at : at + H] = affine.forward(W, None, below, "tangent", scratch()).view(H)
        return out.reshape(-1)

    def _vjp(self, u: Array, t0: int, t1: int, norms: Array | None) -> Array:
        n, K, _ = u.shape
        rows = []
        for layout, part in zip(self._layouts, self._parts(u), strict=True):
            flat = np.empty(n * K * layout.s_rs, self.dtype)
            layout.vector_in(part, flat)
            rows.append(flat)
        # entry i is the norm of what reaches s[t1 - 1 - i]
        squares = np.zeros((t1 - t0, n, K))
        for a, b in reversed(self._windows(t0, t1)) if n * K else []:
            above = np.empty(0, self.dtype), 0
            for i in reversed(range(len(self._directions))):
                d, layout = self._directions[i], self._layouts[i]
                # the kernel indexes by t, but only the window's rows are wanted
                own = np.zeros((b, n, K, layout.n_states))
                delta = np.empty(n * K * layout.d_rs, self.dtype)
                dY, y_rs = self._at_step(above, a, n * K)
                d.sweep(self._records[i], dY, y_rs, self._back[i], delta, rows[i], own.reshape(-1), K, False, a, b)
                # the kernel records what enters each step; what leaves step t enters step t - 1
                squares[t1 - b : t1 - a - 1] += own[a : b - 1][::-1].sum(axis=3)
                squares[t1 - a - 1] += row_squares(layout.state_view(rows[i], n * K)).sum(axis=1).reshape(n, K)
                if i:
                    rows_below = d.input_rows(self._input_back[i - 1], delta, n * K).view(layout.D)
                    above = np.ascontiguousarray(rows_below).reshape(-1), layout.D
        if norms is not None:
            norms[...] = np.sqrt(squares)
            self._correct(norms, squares, u, range(t1 - 1, t0 - 1, -1), self._vjp)
        out = [layout.vector_out(flat, n * K) for layout, flat in zip(self._layouts, rows, strict=True)]
        return np.concatenate(out, axis=1).reshape(u.shape)

    def _correct(self, norms: Array, squares: Array, v: Array, steps: range, product: Any) -> None:
        """Correct norms whose squares left the range of float64: repeat the steps from there one by one, with scaling.

        The kernels store no vector but the last. Squares of float32 numbers all fit.
        """
        hard = out_of_range(squares) & v.any(axis=-1)  # a zero vector stays zero
        if self.dtype != np.float64 or not hard.any():
            return
        first = int(np.flatnonzero(hard.any(axis=(1, 2)))[0])
        if first:
            v = product(v, min(steps[0], steps[first - 1]), max(steps[0], steps[first - 1]) + 1, None)
        for i in range(first, len(steps)):
            v = product(v, steps[i], steps[i] + 1, None)
            norms[i] = np.where(out_of_range(squares[i]), safe_norm(v), norms[i])
            if not v.any():
                norms[i:] = 0.0
                return

    def _at_step(self, above: tuple[Array, int], t: int, n: int) -> tuple[Array, int]:
        """Gradients of the output at step t alone, where the kernel expects them: after those of t earlier steps."""
        flat, stride = above
        if not flat.size:
            return above
        padded = np.empty((t + 1) * n * stride, self.dtype)
        padded[t * n * stride :] = flat
        return padded, stride

    def jacobian(self, t: int, sequence: int = 0) -> Array:
        """One step's Jacobian (S, S), rows are outputs; see :meth:`elman.Linearization.jacobian`."""
        t, sequence = self._place(t, sequence)
        if len(self._directions) > 1:
            every = np.zeros((self.n_sequences, self.state_size, self.state_size), self.dtype)
            every[sequence] = np.eye(self.state_size)
            pushed: Array = self.jvp(every, t, t + 1)[sequence].T
            return pushed
        (d,), layout, p = self._directions, self._layouts[0], self._params
        weights = [p[name].reshape(-1) for name in (layout.weight_hh, layout.weight_hr) if name in p]
        return d.jacobian(self._records[0], np.concatenate(weights), t, sequence)

    def tangents(self, K: int) -> Tangents:
        """K tangent vectors for each sequence, with the gradient of any function of them.

        Raises
        ------
        ArgumentError
            If the layer has zoneout, or its cell has no steps that work on dual numbers.
        """
        return Tangents(self._directions, self._params, self._records, K)

    @property
    def factors(self) -> ElementwiseFactors | None:
        """Slopes and recurrent matrix if the Jacobian is their product: for one layer of some cells."""
        d, layout, cell = self._directions[0], self._layouts[0], self._layouts[0].cell
        if len(self._directions) > 1 or not d.uninterrupted or cell.factors is None or cell.max_slope is None:
            return None
        slopes = cell.factors(layout.variant, state_slots(layout, self._records[0])[1:, :, 0])
        return ElementwiseFactors(slopes, self._params[layout.weight_hh], cell.max_slope(layout.variant))
