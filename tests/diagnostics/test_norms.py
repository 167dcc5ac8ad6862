"""Norms of gradients over the whole range of float64, where squares are zero below 1e-162, infinite above 1e154."""

from __future__ import annotations

import math

import numpy as np
import pytest

import elman
from elman.kernels.squares import sum_of_squares
from elman.norms import row_norms, safe_norm, smallest_exact, whole_norm

T, B = 6, 3
POWERS = (-1000, -900, -600, 600, 900, 1010)
LAYERS = {
    "rnn": lambda: elman.RNN(2, 7, rng=0),
    "relu": lambda: elman.RNN(2, 7, nonlinearity="relu", rng=0),
    "lstm": lambda: elman.LSTM(2, 7, rng=0),
    "lstmp": lambda: elman.LSTM(2, 7, proj_size=3, rng=0),
    "gru": lambda: elman.GRU(2, 7, rng=0),
    "gru_before": lambda: elman.GRU(2, 7, reset_after=False, rng=0),
    "mgu": lambda: elman.MGU(2, 7, rng=0),
    "stack": lambda: elman.LSTM(2, 7, 2, rng=0),
    "zoneout": lambda: elman.RNN(2, 7, zoneout=0.3, rng=0),
}


def inputs():
    return np.random.default_rng(1).standard_normal((T, B, 2))


def test_row_norms_against_exact_ones():
    """math.hypot scales by itself. Subnormal numbers have few digits, but a norm of them is as good as any."""
    rng = np.random.default_rng(0)
    v = rng.standard_normal((2000, 5)) * 10.0 ** rng.uniform(-307, 307, (2000, 1))
    v = np.concatenate([v, np.full((1, 5), 5e-324), np.zeros((1, 5)), np.full((1, 5), 7e307)])
    exact = np.array([math.hypot(*row) for row in v])
    for norms in (row_norms(v), safe_norm(v)):
        np.testing.assert_allclose(norms, exact, rtol=1e-15, atol=0)
    usual = v[(exact > 1e-140) & (exact < 1e140)]
    assert len(usual) > 500
    assert np.array_equal(row_norms(usual), np.sqrt(np.square(usual).sum(axis=1)))


@pytest.mark.parametrize("power", [-1074, -900, -600, -480, 0, 480, 600, 900, 1015])
def test_one_norm_of_all_entries_against_the_exact_one(power):
    """On both sides of where squares leave the range; within it the bits are those of the given sum."""
    v = np.ldexp(np.random.default_rng(0).uniform(0.5, 1.0, (7, 9)), power)
    assert whole_norm(v, sum_of_squares) == pytest.approx(math.hypot(*v.ravel()), rel=1e-15, abs=0)
    assert elman.training.global_norm(v) == whole_norm(v, sum_of_squares)
    if abs(power) <= 480:
        assert whole_norm(v, sum_of_squares) == math.sqrt(sum_of_squares(v))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_smallest_norm_whose_squares_are_exact(dtype):
    """A component that is just seen beside it has a normal square; a quarter of it has not."""
    info = np.finfo(dtype)
    seen = smallest_exact(dtype) * math.sqrt(float(info.eps))
    assert float(info.tiny) <= seen**2 * (1 + 1e-15)
    assert (seen / 2) ** 2 < float(info.tiny)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(value):
    norms = np.array([row_norms(np.array([[1.0, value]]))[0], safe_norm(np.array([[1.0, value]]))[0]])
    assert np.isnan(norms).all() if math.isnan(value) else np.array_equal(norms, [np.inf, np.inf])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("power", POWERS)
def test_measured_gradients_are_linear_in_their_start(name, power):
    layer, x = LAYERS[name](), inputs()
    lin = layer.linearize(x)
    start = np.random.default_rng(2).standard_normal((B, lin.state_size))
    usual, scaled = layer.measure_gradient(x, start), layer.measure_gradient(x, np.ldexp(start, power))
    # terms below the smallest normal number, 2**-1022, count as zero: for the smallest of these norms a last digit
    lost = 2.0 ** (-1022 - min(power, 0))
    np.testing.assert_allclose(scaled, usual + power * np.log(2), rtol=1e-12, atol=lost)
    for product in (lin.jvp, lin.vjp):
        norms, far = np.empty((2, T, B, 1))
        product(start, norms=norms)
        product(np.ldexp(start, power), norms=far)
        np.testing.assert_allclose(np.ldexp(far, -power), norms, rtol=1e-9 + lost, atol=0)


@pytest.mark.parametrize("name", [*LAYERS, "bidirectional"])
@pytest.mark.parametrize("power", POWERS[:3])
@pytest.mark.parametrize(
    "options", [{}, {"lengths": [6, 0, 4]}, {"checkpoint": 2}], ids=["dense", "lengths", "checkpoint"]
)
def test_state_norms_are_linear_in_the_gradient(name, power, options):
    layer = elman.GRU(2, 7, bidirectional=True, rng=0) if name == "bidirectional" else LAYERS[name]()
    trace = layer.trace(inputs(), training=False, **options)
    d = np.random.default_rng(2).standard_normal(trace.output.shape)
    usual = layer.backward(trace, d).state_norms
    scaled = layer.backward(trace, np.ldexp(d, power)).state_norms
    assert (usual > 0).any()
    np.testing.assert_allclose(np.ldexp(scaled, -power), usual, rtol=1e-9, atol=0)


def test_large_state_norms():
    layer = elman.RNN(2, 7, rng=0)
    trace = layer.trace(inputs())
    d = np.random.default_rng(2).standard_normal(trace.output.shape)
    usual, scaled = layer.backward(trace, d).state_norms, layer.backward(trace, np.ldexp(d, 900)).state_norms
    np.testing.assert_allclose(np.ldexp(scaled, -900), usual, rtol=1e-12, atol=0)


@pytest.mark.parametrize("factor", [1e-200, 1e-60, 1e-3])
def test_decay_by_a_known_factor_down_to_the_end_of_the_format(factor):
    """|dL/ds| = factor^k exactly as long as float64 holds it, then zero; also where one step leaves the range."""
    layer, x = elman.RNN(1, 2, nonlinearity="identity"), np.zeros((130, 1, 1))
    layer.params["weight_hh_l0"][...] = factor * np.eye(2)
    lags = np.arange(131)
    logs = layer.measure_gradient(x, np.array([[0.6, 0.8]]))[:, 0]
    held = lags * math.log10(factor) > -307
    np.testing.assert_allclose(logs[held], lags[held] * math.log(factor), rtol=1e-12, atol=1e-15)
    assert np.isneginf(logs[lags * math.log10(factor) < -325]).all()
    norms = layer.backward(layer.trace(x), d_hn=np.array([[[0.6, 0.8]]])).state_norms[0, ::-1, 0]
    np.testing.assert_allclose(norms[held[:-1]], factor ** lags[:-1][held[:-1]].astype(float), rtol=1e-12, atol=0)
    assert not norms[lags[:-1] * math.log10(factor) < -325].any()


def test_growth_up_to_the_end_of_the_format():
    layer, x = elman.RNN(1, 2, nonlinearity="identity"), np.zeros((102, 1, 1))
    layer.params["weight_hh_l0"][...] = 1e3 * np.eye(2)
    logs = layer.measure_gradient(x, np.array([[0.6, 0.8]]))[:, 0]
    np.testing.assert_allclose(logs, np.arange(103) * math.log(1e3), rtol=1e-12, atol=1e-15)


def test_ordinary_norms_keep_the_bits_of_the_kernels():
    """A tiny gradient of one sequence changes no bit of another's."""
    layer, x = elman.GRU(2, 7, rng=0), inputs()
    start = np.random.default_rng(2).standard_normal((B, 7))
    usual = layer.measure_gradient(x, start)
    start[0] *= 1e-200
    assert np.array_equal(layer.measure_gradient(x, start)[:, 1:], usual[:, 1:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms_of_stacks_and_steps(dtype):
    rng = np.random.default_rng(3)
    J = rng.standard_normal((5, 2, 4, 4)).astype(dtype)
    far = 1e-30 if dtype == "float32" else 1e-250
    stack, v = elman.JacobianStack(J), rng.standard_normal((2, 4)).astype(dtype)
    norms, small = np.empty((2, 5, 2, 1))
    stack.vjp(v, norms=norms)
    stack.vjp((v * far).astype(dtype), norms=small)
    np.testing.assert_allclose(small, norms * far, rtol=1e-5 if dtype == "float32" else 1e-12, atol=0)
    map_ = elman.StepLinearization(
        lambda s: 1e-70 * s, lambda s, V: 1e-70 * V, [0.0, 0.0], 4, vjp=lambda s, U: 1e-70 * U
    )
    norms = np.empty((4, 1, 1))
    map_.vjp([0.6, 0.8], norms=norms)
    np.testing.assert_allclose(norms.ravel(), [1e-70, 1e-140, 1e-210, 1e-280], rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [1e-200, 1e150])
def test_measured_gradient_of_a_loss(scale):
    net = elman.Network(elman.RNN(2, 7, bidirectional=True, rng=0), elman.Readout(14, 2, rng=1))
    usual = net.measure_loss_gradient(inputs(), rng=0)
    net.params["readout.weight"][...] *= scale
    np.testing.assert_allclose(net.measure_loss_gradient(inputs(), rng=0), usual + math.log(scale), rtol=1e-11)
