"""Weight gradients over many rows: as exact in float32 as torch's, the same bits for any windows and threads."""

from __future__ import annotations

import numpy as np
import pytest

import elman
from elman.kernels import parallel
from elman.kernels.tile import row_stride
from elman.kernels.vector import lanes_of
from elman.kernels.wide import column_sums, fold, narrow
from elman.layers.engine import bptt
from elman.layers.engine.affine import Affine
from elman.layers.engine.rows import Rows
from elman.layers.engine.sums import BLOCK_ROWS


def readout_gradients(n, term, K=3, Q=5):
    """Gradients of a readout over n equal rows: their sums are n times a product."""
    layer = Affine(K, Q, np.dtype(np.float32))
    a, d = np.full((n, K), 0.9, np.float32), np.full((n, Q), term, np.float32)
    stride = row_stride(Q, 4)
    delta = np.zeros((n, stride), np.float32)
    delta[:, :Q] = d
    dW, db = np.zeros((Q, K), np.float32), np.zeros(Q, np.float32)
    layer.gradients(Rows(a.reshape(-1), K, n), Rows(delta.reshape(-1), stride, n), dW, db)
    return dW / (np.float64(a[0, 0]) * d[0, 0] * n), db / (np.float64(d[0, 0]) * n)


@pytest.mark.parametrize("term", [1 / 3, 0.1, 0.7])
def test_a_million_equal_terms(term):
    """One chain would be off by 1e-2; a block of 1024 such terms by at most 512 roundings."""
    weight, bias = readout_gradients(1_000_000, term)
    np.testing.assert_allclose(weight, 1, rtol=512 * 2.0**-24)
    np.testing.assert_allclose(bias, 1, rtol=2.0**-23)


@pytest.mark.parametrize("cell", [elman.RNN, elman.LSTM, elman.GRU, elman.MGU])
def test_gradients_in_float32_over_many_rows_against_float64(cell):
    """torch's product of matrices of this size is off by 2e-6."""
    T, B, D, H = 60, 1000, 3, 9
    rng = np.random.default_rng(1)
    layer, twin = cell(D, H, dtype="float32", rng=0), cell(D, H, dtype="float64", rng=0)
    twin.theta[...] = layer.theta
    x, d = (rng.standard_normal(shape).astype(np.float32) for shape in ((T, B, D), (T, B, H)))
    grads = layer.backward(layer.trace(x), d_output=d).params
    exact = twin.backward(twin.trace(x.astype(np.float64)), d_output=d.astype(np.float64)).params
    for name, value in exact.items():
        assert np.abs(grads[name] - value).max() <= 3e-6 * np.abs(value).max(), name


@pytest.mark.parametrize("cell", [elman.RNN, elman.GRU])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_no_bit_depends_on_windows_or_threads(cell, bidirectional, monkeypatch):
    """Windows that end within blocks, at their ends, and hold several; with lengths, so that steps have fewer rows."""
    T, B = 97, 64
    rng = np.random.default_rng(2)
    layer = cell(3, 20, dtype="float32", bidirectional=bidirectional, rng=0)
    x, lengths = rng.standard_normal((T, B, 3)).astype(np.float32), rng.integers(1, T + 1, B)
    assert lengths.sum() > 2 * BLOCK_ROWS

    def theta(**options):
        trace = layer.trace(x, lengths=lengths, **options)
        return layer.backward(trace, d_output=trace.output).theta.tobytes()

    usual = theta()
    for checkpoint in (1, 7, BLOCK_ROWS // B, 50):
        assert theta(checkpoint=checkpoint) == usual
    monkeypatch.setattr(bptt, "WINDOW_BYTES", 1)
    for rows in (B, 3 * B, BLOCK_ROWS, 3 * BLOCK_ROWS):
        monkeypatch.setattr(bptt, "WINDOW_ROWS", rows)
        assert theta() == usual
    monkeypatch.setattr(parallel, "SPLIT_FLOPS", 0.0)
    before = parallel.get_num_threads()
    try:
        parallel.set_num_threads(3)
        assert theta() == usual
    finally:
        parallel.set_num_threads(before)


@pytest.mark.parametrize("at", [(299, 297), (299, 120), (299, 150, 149, 3)])
def test_windows_that_no_gradient_enters_count_as_rows(at, monkeypatch):
    """Relu units that have died pass nothing on, so that most windows are passed over; blocks end where they would."""
    T, B = 300, 11
    rng = np.random.default_rng(3)
    layer = elman.RNN(2, 12, nonlinearity="relu", dtype="float32", rng=0)
    layer.params["weight_hh_l0"][...] = 0
    x = rng.standard_normal((T, B, 2)).astype(np.float32)
    d = np.zeros((T, B, 12), np.float32)
    d[list(at)] = rng.standard_normal((len(at), B, 12))
    passed, over = [], bptt.Descent.over

    def theta(checkpoint):
        return layer.backward(layer.trace(x, checkpoint=checkpoint), d_output=d).theta.tobytes()

    monkeypatch.setattr(bptt.Descent, "over", lambda self, *args: False)
    usual = theta(False)
    monkeypatch.setattr(bptt.Descent, "over", lambda self, *args: passed.append(over(self, *args)) or passed[-1])
    for checkpoint in (1, 7, 50, 93, 100):
        assert theta(checkpoint) == usual
    assert sum(passed) > len(passed) / 2


@pytest.mark.parametrize("vectors", [1, 3, 4, 7, 9])
@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_column_sums_and_folds_add_row_by_row_in_float64(rows, vectors, dtype):
    rng = np.random.default_rng(rows)
    lanes = lanes_of(dtype.itemsize)
    stride = (vectors + 1) * lanes
    a, total = rng.standard_normal((rows + 2, stride)).astype(dtype), rng.standard_normal(stride)
    expect = total.copy()
    for r in range(rows, 0, -1):
        expect[lanes : vectors * lanes] += a[r, lanes : vectors * lanes]
    column_sums(a.reshape(-1), stride, 1, 1 + rows, 1, vectors, total)
    assert (total == expect).all()
    totals = rng.standard_normal(a.shape)
    expect = totals.copy()
    expect[:, : vectors * lanes] += a[:, : vectors * lanes]
    fold(a.reshape(-1), stride, len(a), 0, vectors, totals.reshape(-1))
    assert (totals == expect).all()
    part = rng.standard_normal(3 * lanes).astype(dtype)
    part[2 * lanes :] = 7
    expect = np.append((totals.reshape(-1)[: 2 * lanes] + part[: 2 * lanes]).astype(dtype), part[2 * lanes :])
    narrow(part, totals.reshape(-1), 2)
    assert (part == expect).all()
