"""Where the numbers of one direction lie: names, padded rows, packed weights. Knows no cell by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cells import Cell
from ..errors import NonFiniteError
from ..kernels import packing, tile
from ..kernels.vector import lanes_of
from ..validation import all_finite
from .affine import ALONE, Blocks, columns_of, panels_of
from .buffers import Buffers

Array = NDArray[Any]


class Layout:
    """Sizes and names of a cell's arrays, as its record gives them.

    Parameters
    ----------
    cell : Cell
        The record.
    variant : str
        One of ``cell.variants``.
    D, H, R : int
        Sizes of input, of the gates, and of the output; R is H unless the cell projects.
    dtype : numpy.dtype
        float32 or float64.
    suffix : str
        End of the parameters' names, such as ``"_l0"``.
    """

    def __init__(self, cell: Cell, variant: str, D: int, H: int, R: int, dtype: np.dtype[Any], suffix: str) -> None:
        self.cell, self.variant, self.D, self.H, self.R = cell, variant, D, H, R
        self.dtype, self.suffix = dtype, suffix
        self.code = cell.variants.index(variant)
        self.label = cell.name + suffix
        self.states_name, self.gates_name = "states" + suffix, "gates" + suffix
        self.key: tuple[Any, ...] = (cell.name, variant, D, H, R, dtype.char, suffix)
        self.weight_ih, self.weight_hh, self.weight_hr = (f"weight_{kind}{suffix}" for kind in ("ih", "hh", "hr"))
        self.bias_ih, self.bias_hh = "bias_ih" + suffix, "bias_hh" + suffix
        self.initial = tuple(f"{state}0{suffix}" for state in cell.states)
        size, self.n_gates, self.n_states = dtype.itemsize, len(cell.gates), len(cell.states)
        self.state_sizes = (R, *[H] * (self.n_states - 1))
        self.state_size = sum(self.state_sizes)
        self.Hp = tile.padded(H, size)
        self.vectors = (cell.blocks + cell.projects) * self.Hp // lanes_of(size)
        self.s_rs = tile.row_stride(self.n_states * self.Hp, size)
        self.g_rs = tile.row_stride(len(cell.stored) * self.Hp, size)
        self.d_rs = tile.row_stride((cell.blocks + cell.projects) * self.Hp, size)
        # W_ih feeds the first n_gates blocks of a row and W_hh the last ones; a product reads so many numbers of them
        self.reach = (self.n_gates - 1) * self.Hp + H
        self.h_first = cell.blocks - self.n_gates
        self.x_gates, self.h_gates = (
            [cell.gates.index(gate) for gate in blocks] for blocks in (cell.x_blocks, cell.h_blocks)
        )
        self.x_order, self.h_order = np.array(self.x_gates, np.intp), np.array(self.h_gates, np.intp)

    def shapes(self, bias: bool, learn_initial_state: bool) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        G = self.n_gates * self.H
        shapes: dict[str, tuple[int, ...]] = {self.weight_ih: (G, self.D), self.weight_hh: (G, self.R)}
        if bias:
            shapes |= {self.bias_ih: (G,), self.bias_hh: (G,)}
        if self.cell.projects:
            shapes[self.weight_hr] = (self.R, self.H)
        if learn_initial_state:
            shapes |= {name: (n,) for name, n in zip(self.initial, self.state_sizes, strict=True)}
        return shapes

    @cached_property
    def zero(self) -> Array:
        """A row of zeros."""
        return np.zeros(self.d_rs, self.dtype)

    @cached_property
    def nothing(self) -> Array:
        """No numbers."""
        return np.empty(0, self.dtype)

    @cached_property
    def _x_panels(self) -> Blocks:
        return panels_of(self.x_order, self.H, self.D, self.dtype.itemsize)

    @cached_property
    def _h_panels(self) -> Blocks:
        return panels_of(self.h_order, self.H, self.R, self.dtype.itemsize)

    @cached_property
    def _r_panels(self) -> Blocks:
        return panels_of(ALONE, self.R, self.H, self.dtype.itemsize)

    @cached_property
    def _columns(self) -> tuple[tuple[str, Blocks], ...]:
        """For each parameter, where its gradient stands in rows [1, x, h] of blocks."""
        h, after_x = self.h_first * self.Hp, (1 + self.D) * self.d_rs
        places = (
            (self.weight_ih, self.x_order, self.d_rs, self.D), (self.weight_hh, self.h_order, after_x + h, self.R),
            (self.bias_ih, self.x_order, 0, 1), (self.bias_hh, self.h_order, h, 1),
        )  # fmt: skip
        return tuple(
            (name, columns_of(order, self.H, self.Hp, first, self.d_rs, rows)) for name, order, first, rows in places
        )

    def unpack_gradients(self, sums: Array, out: Mapping[str, Array]) -> None:
        """Bring rows [1, x, h] of padded blocks, flat, to the parameters' own shapes and order of gates."""
        for name, columns in self._columns:
            if name in out:
                columns.transpose(sums, out[name].reshape(-1))
        if self.cell.projects:
            first, blocks = 1 + self.D + self.R, self.cell.blocks * self.Hp
            of_m = sums.reshape(-1, self.d_rs)[first:, blocks : blocks + self.R]
            out[self.weight_hr][...] = of_m.T

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_") and k not in ("zero", "nothing")}

    def pack_input(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """Panels of W_ih for ``x @ W_ih^T``."""
        P = buffers.take("P_ih", self.n_gates * self.Hp * self.D, self.dtype)
        self._x_panels.transpose(params[self.weight_ih].reshape(-1), P)
        return P

    def pack_input_back(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """Panels of W_ih for ``delta @ W_ih``."""
        P = buffers.take("P_ih_back", tile.padded(self.D, self.dtype.itemsize) * self.reach, self.dtype)
        packing.pack_back(params[self.weight_ih].reshape(-1), self.x_order, self.H, self.D, P)
        return P

    def pack_state(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """Panels of W_hh for ``h @ W_hh^T``, then those of W_hr."""
        n, Rp = self.n_gates * self.Hp * self.R, tile.padded(self.R, self.dtype.itemsize)
        P = buffers.take("P_hh", n + self.cell.projects * Rp * self.H, self.dtype)
        self._h_panels.transpose(params[self.weight_hh].reshape(-1), P)
        if self.cell.projects:
            self._r_panels.transpose(params[self.weight_hr].reshape(-1), P[n:])
        return P

    def pack_state_back(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """Panels of W_hh for ``delta @ W_hh``, then those of W_hr."""
        n = tile.padded(self.R, self.dtype.itemsize) * self.reach
        P = buffers.take("P_back", n + self.cell.projects * self.Hp * self.R, self.dtype)
        packing.pack_back(params[self.weight_hh].reshape(-1), self.h_order, self.H, self.R, P[:n])
        if self.cell.projects:
            packing.pack_back(params[self.weight_hr].reshape(-1), ALONE, self.R, self.H, P[n:])
        return P

    def pack_bias(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """The bias of every block, padded; zeros without bias.

        Raises
        ------
        NonFiniteError
            If the sum of the two biases overflows: tanh would make a number of it.
        """
        bias = buffers.take("bias", self.cell.blocks * self.Hp, self.dtype)
        bias[:] = 0
        b_ih, b_hh = params.get(self.bias_ih), params.get(self.bias_hh)
        if b_ih is None or b_hh is None:
            return bias
        H, Hp = self.H, self.Hp
        # gate by gate: indexing with the orders costs more than a small pass
        for block, gate in enumerate(self.x_gates):
            bias[block * Hp : block * Hp + H] = b_ih[gate * H : gate * H + H]
        with np.errstate(over="ignore"):
            for block, gate in enumerate(self.h_gates, self.h_first):
                bias[block * Hp : block * Hp + H] += b_hh[gate * H : gate * H + H]
        if not all_finite(bias):
            raise NonFiniteError(
                f"the sum of {self.bias_ih} and {self.bias_hh} must be finite, and overflows {self.dtype}: "
                "give smaller biases",
                what="parameter",
            )
        return bias

    def state_view(self, rows: Array, n: int) -> Array:
        """``n`` padded state rows as an array (n, n_states, H): a view, whose first state counts R numbers."""
        step = self.dtype.itemsize
        shape, strides = (n, self.n_states, self.H), (self.s_rs * step, self.Hp * step, step)
        return np.ndarray(shape, self.dtype, rows, 0, strides)

    def vector_in(self, v: Array, rows: Array) -> None:
        """Write state vectors (n, S) to padded flat rows."""
        rows[:] = 0
        view, at = self.state_view(rows, len(v)), 0
        for i, size in enumerate(self.state_sizes):
            view[:, i, :size] = v[:, at : at + size]
            at += size

    def vector_out(self, rows: Array, n: int) -> Array:
        """State vectors (n, S), a copy, from padded flat rows."""
        view = self.state_view(rows, n)
        return np.concatenate([view[:, i, :size] for i, size in enumerate(self.state_sizes)], axis=1)
