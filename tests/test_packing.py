"""Weights into panels and gradients back, against NumPy's transpositions."""

from __future__ import annotations

import numpy as np
import pytest

from elman.kernels.packing import pack, pack_back, pack_bias, unpack
from elman.kernels.tile import padded
from elman.kernels.vector import lanes_of

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


@over_sizes
def test_pack_places_every_weight_and_pads_with_zeros(gates, H, J, dtype):
    n = lanes_of(dtype.itemsize)
    W, order, Hp = weights(gates, H, J, dtype)
    P = np.full(gates * Hp * J, np.nan, dtype)
    pack(W.reshape(-1), order, H, J, P)
    panels = P.reshape(gates, Hp // n, J, n).transpose(0, 1, 3, 2).reshape(gates, Hp, J)
    np.testing.assert_array_equal(panels[:, :H], W[order])
    assert not panels[:, H:].any()


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
def test_unpack_is_the_way_back_and_writes_nothing_else(gates, H, J, dtype):
    W, order, Hp = weights(gates, H, J, dtype)
    w_rs, woff = gates * Hp + 5, 3
    dW = np.full(woff + J * w_rs + gates * Hp, np.nan, dtype)
    for j in range(J):
        for g in range(gates):
            at = woff + j * w_rs + g * Hp
            dW[at : at + H] = W[order[g], :, j]
    out = np.full(gates * H * J + 1, 7, dtype)
    unpack(dW, woff, w_rs, J, order, H, Hp, out[:-1])
    np.testing.assert_array_equal(out[:-1].reshape(gates, H, J), W)
    assert out[-1] == 7


@pytest.mark.parametrize("H", [1, 8, 21])
@pytest.mark.parametrize("h_first", [0, 1])
def test_pack_bias_adds_the_two_where_both_enter_a_block(h_first, H, dtype):
    rng = np.random.default_rng(2)
    b_ih, b_hh = (rng.normal(size=3 * H).astype(dtype) for _ in range(2))
    x_order, h_order = np.array([2, 0, 1], np.intp), np.array([0, 1, 2], np.intp)
    Hp = padded(H, dtype.itemsize)
    bias = np.full((3 + h_first) * Hp, np.nan, dtype)
    pack_bias(b_ih, x_order, b_hh, h_order, h_first, H, bias)
    expected = np.zeros((3 + h_first, H), dtype)
    expected[:3] += b_ih.reshape(3, H)[x_order]
    expected[h_first:] += b_hh.reshape(3, H)
    np.testing.assert_array_equal(bias.reshape(-1, Hp)[:, :H], expected)
    assert not bias.reshape(-1, Hp)[:, H:].any()
