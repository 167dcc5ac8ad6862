"""Weights into panels and gradients back, against NumPy's transpositions."""

from __future__ import annotations

import numpy as np
import pytest

from elman.cells import ELMAN, GRU, LSTM, MGU
from elman.kernels.packing import BLOCK_BYTES, STRIP, pack_back, transpose
from elman.kernels.tile import padded
from elman.kernels.vector import lanes_of
from elman.layers.affine import columns_of, panels_of
from elman.layers.layout import Layout

ORDERS = {1: [0], 3: [2, 0, 1]}
gates_and_units = [
    pytest.mark.parametrize("gates", [1, 3]),
    pytest.mark.parametrize("H", [1, 3, 8, 21]),
    pytest.mark.parametrize("J", [0, 1, 5, 17, 40]),
]


def over_sizes(test):
    for mark in gates_and_units:
        test = mark(test)
    return test


def weights(gates, H, J, dtype):
    """A weight matrix (gates, H, J), the order of its gates, and H padded."""
    W = np.random.default_rng(1).normal(size=(gates, H, J)).astype(dtype)
    return W, np.array(ORDERS[gates], np.intp), padded(H, dtype.itemsize)


@pytest.mark.parametrize("width", sorted({0, 1, 2, 3, 4, 5, 7, STRIP - 1, STRIP, STRIP + 1, 2 * STRIP + 3}))
def test_transpose_of_blocks_of_every_height(width, dtype):
    """Whole register blocks, what is left at either edge, zeros up to ``least``; nothing else is written."""
    n = BLOCK_BYTES // dtype.itemsize
    heights = np.array([0, 1, n - 1, n, n + 1, 2 * n, 3 * n + 1, 5 * n - 1], np.intp)
    least, gap = 3 * n, 2
    a_rs, t_rs = width + gap, int(heights.max()) + gap
    tall = np.maximum(heights, least)
    starts = np.cumsum([1, *(heights * a_rs)[:-1]])
    places = 3 + np.arange(len(heights))[::-1] * (width * t_rs + 1)
    rng = np.random.default_rng(width)
    a = rng.normal(size=starts[-1] + heights[-1] * a_rs + 1).astype(dtype)
    to = np.full(places[0] + width * t_rs + 2, 7, dtype)
    transpose(a, starts, heights, a_rs, width, to, places, t_rs, least)
    expected = np.full_like(to, 7)
    for start, height, place, most in zip(starts, heights, places, tall, strict=True):
        block = np.zeros((width, most), dtype)
        block[:, :height] = a[start : start + height * a_rs].reshape(height, a_rs)[:, :width].T
        for i, row in enumerate(block):
            expected[place + i * t_rs :][:most] = row
    assert to.tobytes() == expected.tobytes()


def test_transpose_keeps_every_bit(dtype):
    """Signs of zero, infinities, and NaN with what it carries."""
    n = 9
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal])
    a = np.random.default_rng(0).choice(special, n * n).astype(dtype)
    kind = np.dtype(f"u{dtype.itemsize}")
    a.view(kind)[::5] |= 5
    to = np.empty_like(a)
    transpose(a, np.zeros(1, np.intp), np.array([n]), n, n, to, np.zeros(1, np.intp), n, 0)
    assert to.tobytes() == np.ascontiguousarray(a.view(kind).reshape(n, n).T).tobytes()


@over_sizes
def test_panels_hold_every_weight_and_are_padded_with_zeros(gates, H, J, dtype):
    n = lanes_of(dtype.itemsize)
    W, order, Hp = weights(gates, H, J, dtype)
    P = np.full(gates * Hp * J + 1, 7, dtype)
    panels_of(order, H, J, dtype.itemsize).transpose(W.reshape(-1), P)
    panels = P[:-1].reshape(gates, Hp // n, J, n).transpose(0, 1, 3, 2).reshape(gates, Hp, J)
    np.testing.assert_array_equal(panels[:, :H], W[order])
    assert not panels[:, H:].any()
    assert P[-1] == 7


@over_sizes
def test_pack_back_places_every_weight_and_pads_with_zeros(gates, H, J, dtype):
    n = lanes_of(dtype.itemsize)
    W, order, Hp = weights(gates, H, J, dtype)
    Jp, K = padded(J, dtype.itemsize), (gates - 1) * Hp + H
    P = np.full(Jp * K, np.nan, dtype)
    pack_back(W.reshape(-1), order, H, J, P)
    back = P.reshape(Jp // n, K, n).transpose(1, 0, 2).reshape(K, Jp)
    expected = np.zeros((gates, Hp, Jp), dtype)
    expected[:, :H, :J] = W[order]
    np.testing.assert_array_equal(back, expected.reshape(gates * Hp, Jp)[:K])


@over_sizes
def test_columns_are_the_way_back_and_nothing_else_is_written(gates, H, J, dtype):
    W, order, Hp = weights(gates, H, J, dtype)
    w_rs, first = gates * Hp + 5, 3
    dW = np.full(first + J * w_rs + gates * Hp, np.nan, dtype)
    for j in range(J):
        for g in range(gates):
            at = first + j * w_rs + g * Hp
            dW[at : at + H] = W[order[g], :, j]
    out = np.full(gates * H * J + 1, 7, dtype)
    columns_of(order, H, Hp, first, w_rs, J).transpose(dW, out)
    np.testing.assert_array_equal(out[:-1].reshape(gates, H, J), W)
    assert out[-1] == 7


class Scribbled:
    """Memory in which something stands."""

    def take(self, name, n, dtype):
        return np.full(n, np.nan, dtype)


@pytest.mark.parametrize("H", [1, 8, 21])
@pytest.mark.parametrize("cell", [ELMAN, LSTM, GRU, MGU], ids=lambda cell: cell.name)
def test_the_bias_adds_the_two_where_both_enter_a_block(cell, H, dtype):
    """The gates that the blocks are of, by their names."""
    d = Layout(cell, cell.variants[0], 2, H, H, dtype, "_l0")
    rng = np.random.default_rng(2)
    params = {name: rng.normal(size=len(cell.gates) * H).astype(dtype) for name in ("bias_ih_l0", "bias_hh_l0")}
    b_ih, b_hh = (dict(zip(cell.gates, b.reshape(-1, H), strict=True)) for b in params.values())
    expected = np.zeros((cell.blocks, padded(H, dtype.itemsize)), dtype)
    for block, gate in enumerate(cell.x_blocks):
        expected[block, :H] += b_ih[gate]
    for block, gate in enumerate(cell.h_blocks, cell.blocks - len(cell.gates)):
        expected[block, :H] += b_hh[gate]
    np.testing.assert_array_equal(d.pack_bias(params, Scribbled()), expected.reshape(-1))
    assert not d.pack_bias({}, Scribbled()).any()
