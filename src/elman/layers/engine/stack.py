"""Stacked layers, in one direction or both, each reading the output of the one below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...cells import Cell
from ...errors import NonFiniteError
from ...validation.arrays import all_finite
from . import bptt
from .batch import Batch
from .buffers import Buffers, scratch
from .direction import Direction
from .layout import Layout, Panels
from .noise import Noise
from .rows import Rows
from .schedule import Schedule
from .views import Record, initial_gradient, inner_bytes, last_state, outer_norms

Array = NDArray[Any]
Weights = Mapping[str, Array]


class Pass(NamedTuple):
    """A forward pass through all layers.

    Attributes
    ----------
    records : tuple of Record
        One for each direction, layer by layer.
    output : Rows
        The last layer's output, rows ``t * B + b``, both directions side by side.
    """

    records: tuple[Record, ...]
    output: Rows


class BackwardPass(NamedTuple):
    """Gradients of all layers in the caller's order.

    Attributes
    ----------
    x : ndarray, shape (T * B, D), or None
    state : ndarray, shape (directions, B, n_states, H)
        Gradient of the initial states.
    norms : ndarray, shape (directions, T, B, n_states), float64
        ``|dL/ds_{t+1}|``.
    """

    x: Array | None
    state: Array
    norms: Array


class Stack:
    """All directions of all layers.

    Parameters
    ----------
    layers : list of list of Direction
        For each layer one direction, or two: forward, then backward.
    """

    def __init__(self, layers: list[list[Direction]]) -> None:
        self.layers = layers
        self.directions = [d for layer in layers for d in layer]
        self.per_layer = len(layers[0])
        self.layouts = [d.layout for d in self.directions]
        first = self.layouts[0]
        self.width, self.dtype = self.per_layer * first.R, first.dtype
        self.key = tuple((*d.layout.key, *d.kernels.key) for d in self.directions)

    @classmethod
    def of(
        cls, cell: Cell, variant: str, D: int, H: int, R: int, dtype: np.dtype[Any], num_layers: int,
        bidirectional: bool, zoneout: tuple[float, ...],
    ) -> Stack:  # fmt: skip
        """Layers of one cell: the first reads D numbers, and each other the R of every direction below."""
        layers, width = [], D
        ways = (("", False), ("_reverse", True))[: 1 + bidirectional]
        for i in range(num_layers):
            layouts = [(Layout(cell, variant, width, H, R, dtype, f"_l{i}{suffix}"), way) for suffix, way in ways]
            layers.append([Direction(layout, zoneout, reverse) for layout, reverse in layouts])
            width = len(ways) * R
        return cls(layers)

    def __str__(self) -> str:
        d, layout = self.directions[0], self.layouts[0]
        return (
            f"{layout.cell.name} ({layout.variant}, {len(self.layouts)} directions in all{d.kernels}) with "
            f"input_size {layout.D}, hidden_size {layout.H}, {layout.dtype}"
        )

    def forward(
        self, params: Weights, batch: Batch, state: Array | None, keep: bool, noise: Noise | None, buffers: Buffers,
        top: Buffers | None, checkpoint: int = 0, panels: list[Panels] | None = None, keep_output: bool = True,
    ) -> Pass:  # fmt: skip
        """Run all layers.

        Parameters
        ----------
        state : ndarray, shape (directions, B, n_states, H), or None
        keep : bool
            Whether a backward pass is to follow.
        buffers, top : Buffers
            Memory for all but the last output, and for the last output; None for a new array.
        checkpoint : int
            Steps between the stored states; 0 for all.
        panels : list of Panels, optional
            The weights of each direction, if they are already packed.
        keep_output : bool
            False, with a checkpoint, for no output of the last layer.
        """
        rows, records, last = batch.rows, [], len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            memory = top if i == last else buffers
            # the states of a single direction, which are stored anyway, are its output
            own = keep and not checkpoint and len(layer) == 1 and layer[0].uninterrupted
            own = own and batch.schedule(layer[0].reverse).base is None
            out = None if own or (i == last and not keep_output) else self._output(batch, layer, i, memory)
            for j, d in enumerate(layer):
                k = i * self.per_layer + j
                schedule, drawn = batch.schedule(d.reverse), None if noise is None else noise.zoneout[k]
                kept = None if drawn is None else inner_bytes(d.layout, schedule, drawn)
                columns = None if out is None else _from(out, j * d.layout.R)
                start = None if state is None else state[k]
                weights = params if noise is None else _thinned(params, d, noise, k)
                packed = d.layout.panels(weights, scratch()) if panels is None else panels[k]
                records.append(
                    d.forward(weights, packed, schedule, rows, start, keep, columns, buffers, kept, checkpoint)
                )
            if out is None and not own:
                return Pass(tuple(records), Rows(layer[0].layout.nothing, 0, 0))
            first, r = layer[0].layout, records[-1]
            rows = out or Rows(r.states[r.schedule.B * first.s_rs :], first.s_rs, r.schedule.T * r.schedule.B)
            factor = None if noise is None else noise.between[i]
            if factor is not None:
                rows = Rows((rows.view(self.width) * factor).reshape(-1), self.width, rows.n)
        return Pass(tuple(records), rows)

    def final_states(self, records: tuple[Record, ...]) -> Array:
        """The final states (directions, B, n_states, H), perhaps a view into a record."""
        if len(records) == 1:
            return last_state(self.layouts[0], records[0])[None]
        return np.stack([last_state(layout, r) for layout, r in zip(self.layouts, records, strict=True)])

    def _output(self, batch: Batch, layer: list[Direction], i: int, memory: Buffers | None) -> Rows:
        """Rows for the output of layer i, 0 in the padding."""
        n = batch.T * batch.B
        size, dtype = n * self.width, layer[0].layout.dtype
        flat = np.empty(size, dtype) if memory is None else memory.take(f"output_l{i}", size, dtype)
        batch.schedule(layer[0].reverse).clear_padding(flat, self.width)
        return Rows(flat, self.width, n)

    def backward(
        self, params: Weights, records: tuple[Record, ...], noise: Noise | None, d_output: Rows | None,
        d_state: Array | None, need_x: bool, views: Weights, weight_norms: Array | None = None,
    ) -> BackwardPass:  # fmt: skip
        """Sweep back through all layers; the parameters' gradients go to ``views``.

        ``weight_norms`` (directions, T), if given, receives the norm of each step's term of that of W_hh.
        """
        schedule = records[0].schedule
        T, B = schedule.outer_T, schedule.outer_B
        first = self.layouts[0]
        state = np.empty((len(self.directions), B, first.n_states, first.H), first.dtype)
        norms = np.empty((len(self.directions), T, B, first.n_states))
        d_x: Array | None = None
        for i in reversed(range(len(self.layers))):
            layer = self.layers[i]
            d_x = self._input_memory(schedule, layer[0].layout.D, first.dtype) if i or need_x else None
            for j, d in enumerate(layer):
                k = i * self.per_layer + j
                weights, record = _thinned(params, d, noise, k), records[k]
                columns = None if d_output is None else _from(d_output, j * d.layout.R)
                way = weights, record, columns, None if d_state is None else d_state[k]
                d_initial, steps = bptt.backward(d, *way, views, d_x, add=j > 0)
                if weight_norms is not None:
                    weight_norms[k] = bptt.weight_norms(d, *way)[:: -1 if d.reverse else 1]
                if weights is not params:
                    views[d.layout.weight_hh][...] *= noise.recurrent[k]  # type: ignore[union-attr]
                state[k], norms[k] = initial_gradient(record, d_initial), outer_norms(d.layout, record, steps)
            if i:
                assert d_x is not None
                factor = None if noise is None else noise.between[i - 1]
                if factor is not None:
                    d_x *= factor
                d_output = Rows(d_x.reshape(-1), d_x.shape[1], len(d_x))
        return BackwardPass(d_x, state, norms)

    @staticmethod
    def _input_memory(schedule: Schedule, D: int, dtype: np.dtype[Any]) -> Array:
        """An array for ``dL/dx``, 0 in the padding."""
        out = np.empty((schedule.outer_T * schedule.outer_B, D), dtype)
        schedule.clear_padding(out.reshape(-1), D)
        return out

    def check_gradient(self, done: BackwardPass, theta: Array) -> None:
        """Refuse a gradient that overflowed; if that of a state did, say at which step of the backward pass it began.

        Raises
        ------
        NonFiniteError
        """
        if all_finite(theta) and all_finite(done.state) and (done.x is None or all_finite(done.x)):
            return
        arrays = {"the initial state": done.state, "the parameters": theta, "x": done.x}
        broken = [name for name, a in arrays.items() if a is not None and not all_finite(a)]
        for d, of_direction in reversed(list(zip(self.directions, done.norms, strict=True))):
            bad = np.argwhere(~np.isfinite(of_direction))
            if len(bad):
                step, sample, state = (int(i) for i in bad[0 if d.reverse else -1])
                layout, part = d.layout, d.layout.cell.states[state]
                raise NonFiniteError(
                    f"{layout.label}: the gradient of the state {part} overflows at step {step} of sample {sample} on "
                    "its way back; it explodes: scale weight_hh down, or shorten the window (truncation)",
                    what="gradient", layer=layout.label, gate=part, step=step, sample=sample,
                )  # fmt: skip
        label = self.layouts[0].label
        raise NonFiniteError(
            f"{label}: the gradient of {broken[0]} overflows in {theta.dtype}; scale the loss down",
            what="gradient", layer=label,
        )  # fmt: skip


def _from(rows: Rows, first: int) -> Rows:
    """Rows from a column on."""
    return Rows(rows.flat[first:], rows.stride, rows.n) if first else rows


def _thinned(params: Weights, d: Direction, noise: Noise | None, k: int) -> Weights:
    """The parameters, with the columns of W_hh set to 0 for the units that recurrent dropout drew."""
    factor = None if noise is None else noise.recurrent[k]
    return params if factor is None else {**params, d.layout.weight_hh: params[d.layout.weight_hh] * factor}
