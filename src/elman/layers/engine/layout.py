"""Where the numbers of one direction of any cell lie: names, padded rows, packed weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...cells import Cell
from ...errors import NonFiniteError
from ...kernels import packing, tile
from ...kernels.vector import lanes_of
from .affine import ALONE, Blocks, columns_of, panels_of
from .buffers import CACHE_LINE, Buffers

Array = NDArray[Any]


class Panels(NamedTuple):
    """Packed weights of a forward pass."""

    P_ih: Array
    P_hh: Array
    bias: Array


class Layout:
    """Sizes and names of a cell's arrays, from its record.

    Parameters
    ----------
    cell : Cell
        The record.
    variant : str
        One of ``cell.variants``.
    D, H, R : int
        Sizes of the input, of the gates, and of the output; R is H unless the cell projects.
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
        # W_ih feeds the first n_gates blocks of a row and W_hh the last ones; a product reads this many numbers of them
        self.reach = (self.n_gates - 1) * self.Hp + H
        self.h_first = cell.blocks - self.n_gates
        fed = cell.x_blocks, cell.h_blocks
        self.orders = np.array([[cell.gate_names.index(gate) for gate in blocks] for blocks in fed], np.intp)
        self.x_order, self.h_order = self.orders
        # where matrix and biases begin in the vector of parameters, and in the memory of the panels
        G, line = self.n_gates * H, CACHE_LINE // size
        self.start_hh, self.start_bias = G * D, G * (D + R)
        self.hh_at = -(-self.n_gates * self.Hp * D // line) * line
        n_hh = self.n_gates * self.Hp * R + cell.projects * tile.padded(R, size) * H
        self.bias_at = self.hh_at + -(-n_hh // line) * line

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
        """An empty array."""
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
    def _plans(self) -> dict[bool, tuple[Blocks, Blocks]]:
        return {}

    def _plan(self, biased: bool) -> tuple[Blocks, Blocks]:
        """Blocks from the parameter vector to panels, and from rows [1, x, h] of blocks, then rows m, to the vector."""
        if biased not in self._plans:
            G, D, R, H, Hp = self.n_gates * self.H, self.D, self.R, self.H, self.Hp
            hh, hr = self.start_hh, self.start_bias + 2 * G * biased
            panels = self._x_panels + self._h_panels.moved(hh, self.hh_at)
            h, rows = self.h_first * Hp, self.d_rs
            columns = columns_of(self.x_order, H, Hp, rows, rows, D)
            columns += columns_of(self.h_order, H, Hp, (1 + D) * rows + h, rows, R).moved(0, hh)
            if biased:
                columns += columns_of(self.x_order, H, Hp, 0, rows, 1).moved(0, self.start_bias)
                columns += columns_of(self.h_order, H, Hp, h, rows, 1).moved(0, self.start_bias + G)
            if self.cell.projects:
                panels += self._r_panels.moved(hr, self.hh_at + self.n_gates * Hp * R)
                columns += columns_of(ALONE, R, 0, (1 + D + R) * rows + self.cell.blocks * Hp, rows, H).moved(0, hr)
            self._plans[biased] = panels, columns
        return self._plans[biased]

    def vector(self, params: Mapping[str, Array]) -> Array:
        """The parameters one after the other, as in a layer's vector, in the order of :meth:`shapes`.

        If they lie in one vector, this is a view of it, which may extend beyond them; else a copy.
        """
        theta: Array | None = getattr(params, "theta", None)
        if theta is None:
            own = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, self.weight_hr)
            return np.concatenate([params[name].reshape(-1) for name in own if name in params])
        return theta[params.slices[self.weight_ih][0].start :]  # type: ignore[attr-defined]

    def unpack_gradients(self, sums: Array, out: Mapping[str, Array]) -> None:
        """Convert rows [1, x, h] of padded blocks, flat, to the parameters' own shapes and order of gates."""
        self._plan(self.bias_ih in out)[1].transpose(sums, self.vector(out))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_") and k not in ("zero", "nothing")}

    def panels(self, params: Mapping[str, Array], buffers: Buffers) -> Panels:
        """The weights of a forward pass as the kernels read them.

        Raises
        ------
        NonFiniteError
            If the sum of the two biases overflows: tanh would turn it into a finite number.
        """
        biased, blocks = self.bias_ih in params, self.cell.blocks * self.Hp
        theta, P = self.vector(params), buffers.take("panels", self.bias_at + blocks, self.dtype, weights=True)
        self._plan(biased)[0].transpose(theta, P)
        bias, ih = P[self.bias_at :], self.start_bias
        if not biased:
            bias[:] = 0
        elif not packing.add_biases(
            theta, ih, ih + self.n_gates * self.H, self.orders, self.H, self.Hp, self.h_first, bias
        ):
            raise NonFiniteError(
                f"the sum of {self.bias_ih} and {self.bias_hh} must be finite, and overflows {self.dtype}: "
                "give smaller biases",
                what="parameter",
            )
        return Panels(P[: self.hh_at], P[self.hh_at : self.bias_at], bias)

    def pack_input_back(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """Panels of W_ih for ``delta @ W_ih``."""
        P = buffers.take("P_ih_back", tile.padded(self.D, self.dtype.itemsize) * self.reach, self.dtype, weights=True)
        packing.pack_back(params[self.weight_ih].reshape(-1), self.x_order, self.H, self.D, P)
        return P

    def pack_state(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """Panels of W_hh for ``h @ W_hh^T``, then those of W_hr."""
        n, Rp = self.n_gates * self.Hp * self.R, tile.padded(self.R, self.dtype.itemsize)
        P = buffers.take("P_hh", n + self.cell.projects * Rp * self.H, self.dtype, weights=True)
        self._h_panels.transpose(params[self.weight_hh].reshape(-1), P)
        if self.cell.projects:
            self._r_panels.transpose(params[self.weight_hr].reshape(-1), P[n:])
        return P

    def pack_state_back(self, params: Mapping[str, Array], buffers: Buffers) -> Array:
        """Panels of W_hh for ``delta @ W_hh``, then those of W_hr."""
        n = tile.padded(self.R, self.dtype.itemsize) * self.reach
        P = buffers.take("P_back", n + self.cell.projects * self.Hp * self.R, self.dtype, weights=True)
        packing.pack_back(params[self.weight_hh].reshape(-1), self.h_order, self.H, self.R, P[:n])
        if self.cell.projects:
            packing.pack_back(params[self.weight_hr].reshape(-1), ALONE, self.R, self.H, P[n:])
        return P

    def state_view(self, rows: Array, n: int) -> Array:
        """``n`` padded state rows as an array (n, n_states, H): a view, in which only R numbers of the first count."""
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


def state_overflow(layout: Layout, state: int, step: int, sample: int, cure: str) -> NonFiniteError:
    """What to raise where a state, given by its index, stopped being finite."""
    part = layout.cell.states[state]
    return NonFiniteError(
        f"{layout.label}: the state {part} must stay finite, but stopped being so at step {step} of sample {sample}; "
        f"{cure}",
        what="state", layer=layout.label, gate=part, step=step, sample=sample,
    )  # fmt: skip
