"""Weights into panels and gradients back, against NumPy's transpositions."""

from __future__ import annotations

import numpy as np
import pytest

import elman
from elman.cells import ELMAN, GRU, LSTM, LSTM_PROJECTED, MGU
from elman.errors import NonFiniteError
from elman.kernels.packing import BLOCK_BYTES, STRIP, pack_back, transpose
from elman.kernels.tile import padded
from elman.kernels.vector import lanes_of
from elman.layers.engine.affine import Blocks, columns_of, panels_of
from elman.layers.engine.buffers import CACHE_LINE, Fresh
from elman.layers.engine.layout import Layout
from elman.layers.parameters import Parameters

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
    Blocks.of(starts, heights, a_rs, width, places, t_rs, least).transpose(a, to)
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
    transpose(a, to, np.array([[0, n, n, n, 0, n, 0]], np.intp))
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

    def take(self, name, n, dtype, *, weights=False):
        return np.full(n, np.nan, dtype)


@pytest.mark.parametrize("H", [1, 8, 21])
@pytest.mark.parametrize("cell", [ELMAN, LSTM, GRU, MGU], ids=lambda cell: cell.name)
def test_the_bias_adds_the_two_where_both_enter_a_block(cell, H, dtype):
    """The gates that the blocks are of, by their names."""
    d = Layout(cell, cell.variants[0], 2, H, H, dtype, "_l0")
    rng = np.random.default_rng(2)
    params = {name: rng.normal(size=shape).astype(dtype) for name, shape in d.shapes(True, False).items()}
    b_ih, b_hh = (
        dict(zip(cell.gate_names, params[b].reshape(-1, H), strict=True)) for b in ("bias_ih_l0", "bias_hh_l0")
    )
    expected = np.zeros((cell.blocks, padded(H, dtype.itemsize)), dtype)
    for block, gate in enumerate(cell.x_blocks):
        expected[block, :H] += b_ih[gate]
    for block, gate in enumerate(cell.h_blocks, cell.blocks - len(cell.gates)):
        expected[block, :H] += b_hh[gate]
    np.testing.assert_array_equal(d.panels(params, Scribbled()).bias, expected.reshape(-1))
    without = {name: params[name] for name in d.shapes(False, False)}
    assert not d.panels(without, Scribbled()).bias.any()


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("cell", [ELMAN, LSTM, GRU, LSTM_PROJECTED], ids=lambda cell: cell.name)
def test_a_mapping_packs_as_the_vector_that_it_came_from(cell, biased, dtype):
    """Two directions in one vector, from views of it and from copies; and their gradients, the way back."""
    R = 3 if cell.projects else 5
    first, second = (Layout(cell, cell.variants[0], D, 5, R, dtype, f"_l{i}") for i, D in enumerate((2, R)))
    parameters = Parameters(first.shapes(biased, True) | second.shapes(biased, True), dtype)
    rng = np.random.default_rng(3)
    parameters.theta[:] = rng.normal(size=parameters.size)
    out = parameters.view(np.full(parameters.size, np.nan, dtype))
    for d in (first, second):
        copies = {name: parameters[name].copy() for name in reversed(d.shapes(biased, True))}
        P_ih, bare = np.empty(d.n_gates * d.Hp * d.D, dtype), d.pack_state(parameters, Fresh())
        panels_of(d.x_order, d.H, d.D, dtype.itemsize).transpose(parameters[d.weight_ih].reshape(-1), P_ih)
        for ours in (d.panels(parameters, Fresh()), d.panels(copies, Fresh())):
            # behind each part there is room that nobody reads
            assert ours.P_ih[: P_ih.size].tobytes() == P_ih.tobytes()
            assert ours.P_hh[: bare.size].tobytes() == bare.tobytes()
            assert all(P.ctypes.data % CACHE_LINE == 0 for P in ours)
        assert ours.bias.tobytes() == d.panels(parameters, Fresh()).bias.tobytes()
        sums = rng.normal(size=(1 + d.D + d.R + cell.projects * d.H, d.d_rs)).astype(dtype)
        d.unpack_gradients(sums.reshape(-1), out)
        gates = range(d.n_gates)
        for name, rows, order, at in (
            (d.weight_ih, sums[1 : 1 + d.D], d.x_order.tolist(), 0),
            (d.weight_hh, sums[1 + d.D :][: d.R], d.h_order.tolist(), d.h_first),
            (d.bias_ih, sums[:1], d.x_order.tolist(), 0),
            (d.bias_hh, sums[:1], d.h_order.tolist(), d.h_first),
        ):
            if name in parameters:
                blocks = [rows[:, (at + order.index(gate)) * d.Hp :][:, : d.H].T for gate in gates]
                assert np.array_equal(out[name].reshape(-1, len(rows)), np.concatenate(blocks))
        if cell.projects:
            assert np.array_equal(out[d.weight_hr], sums[1 + d.D + d.R :, cell.blocks * d.Hp :][:, : d.R].T)
    # nothing but what belongs to the two was written
    assert {name for name, view in out.items() if np.isnan(view).all()} == {*first.initial, *second.initial}
    assert not any(np.isnan(view).any() for name, view in out.items() if name not in (*first.initial, *second.initial))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("largest", [2.0, -2.0])
def test_biases_whose_sum_overflows_are_refused(largest, dtype):
    layer = elman.GRU(2, 3, dtype=dtype, rng=0)
    for name in ("bias_ih_l0", "bias_hh_l0"):
        layer.params[name][4] = largest / 3 * np.finfo(dtype).max
    for call in (layer, layer.trace, lambda _: layer.stepper()):
        with pytest.raises(NonFiniteError, match="the sum of bias_ih_l0 and bias_hh_l0 must be finite, and overflows"):
            call(np.ones((2, 1, 2), dtype))
