"""Penalties: their gradients by differences, and that training with them does what they are for."""

from __future__ import annotations

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, NonFiniteError
from elman.losses import Zero
from elman.regularizers import L2, Activity, Flossing, SoftOrthogonality
from elman.regularizers.flossing import orthonormalized, pulled_back

RNG = np.random.default_rng(4)
LAYERS = {
    "tanh": (elman.RNN, {}),
    "sigmoid": (elman.RNN, {"nonlinearity": "sigmoid"}),
    "learned start": (elman.RNN, {"learn_initial_state": True}),
    "two layers": (elman.RNN, {"num_layers": 2}),
    "LSTM": (elman.LSTM, {}),
    "LSTM, two layers, no bias": (elman.LSTM, {"num_layers": 2, "bias": False}),
    "projected": (elman.LSTM, {"proj_size": 4}),
    "GRU": (elman.GRU, {}),
    "GRU, reset before": (elman.GRU, {"reset_after": False}),
    "MGU": (elman.MGU, {"batch_first": True}),
}


def network(name="tanh", H=6, **more):
    kind, options = LAYERS[name]
    layer = kind(3, H, rng=0, **options, **more)
    layer.theta[:] = np.random.default_rng(1).uniform(-0.7, 0.7, layer.theta.size)
    return elman.Network(layer, elman.Readout(layer.output_size, 2, rng=1))


def data(net, T=9, B=3):
    x = np.random.default_rng(2).standard_normal((T, B, 3)).astype(net.dtype)
    return x.swapaxes(0, 1) if net.layer.batch_first else x


def penalty_of(net, regularizer, x):
    """Penalty and gradient, that through the states included."""
    trace = net.trace(x, training=False)
    d_theta, d_states = np.zeros_like(net.theta), np.zeros_like(trace.layer.output)
    value = regularizer.penalty_and_gradient(net, trace, d_theta, d_states)
    if getattr(regularizer, "uses_states", False):
        d_theta += net.backward(trace, np.zeros_like(trace.output), d_states=d_states).theta
    return value, d_theta


def assert_gradient(net, regularizer, x, rel=3e-7):
    value, gradient = penalty_of(net, regularizer, x)
    assert value > 0
    theta, direction, h = net.theta.copy(), np.random.default_rng(3).standard_normal(net.theta.size), 1e-5
    values = []
    for e in (h, -h, 2 * h, -2 * h):
        net.theta[:] = theta + e * direction
        values.append(penalty_of(net, regularizer, x)[0])
    net.theta[:] = theta
    # without the term of third order
    expected = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
    assert gradient @ direction == pytest.approx(expected, rel=rel, abs=1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_flossing_s_gradient_is_exact_for_every_cell(name):
    net = network(name)
    assert_gradient(net, Flossing(3, target=0.1, strength=0.7), data(net))


@pytest.mark.parametrize("name", ["tanh", "LSTM", "GRU", "two layers", "MGU"])
@pytest.mark.parametrize(
    "regularizer", [L2(0.3), L2(0.1, "readout.*"), Activity(0.5), SoftOrthogonality(0.2)], ids=repr
)
def test_gradients_are_derivatives(name, regularizer):
    net = network(name)
    assert_gradient(net, regularizer, data(net))


def test_closed_forms():
    net = network()
    x, p = data(net), net.params
    weights = sum(np.sum(p[name] ** 2) for name in p if "weight" in name)
    assert penalty_of(net, L2(0.5), x)[0] == pytest.approx(0.5 * weights, rel=1e-14)
    assert penalty_of(net, Activity(2.0), x)[0] == pytest.approx(2 * np.mean(net.layer(x)[0] ** 2), rel=1e-13)
    W = p["layer.weight_hh_l0"]
    distance = np.sum((W.T @ W - np.eye(6)) ** 2)
    assert penalty_of(net, SoftOrthogonality(0.1), x)[0] == pytest.approx(0.1 * distance, rel=1e-13)


def test_activity_counts_the_steps_that_there_are():
    net = network()
    x, lengths = data(net), np.array([9, 4, 1])
    trace = net.trace(x, lengths=lengths, training=False)
    output = trace.layer.output
    value = Activity(1.0).penalty_and_gradient(net, trace, np.zeros_like(net.theta), np.zeros_like(output))
    assert value == pytest.approx(np.sum(output**2) / (14 * 6), rel=1e-13)


@pytest.mark.parametrize("name", ["tanh", "GRU", "LSTM"])
def test_exponents_are_those_of_the_jacobians(name):
    net = network(name)
    x, flossing = data(net), Flossing(2)
    penalty_of(net, flossing, x)
    lin = net.layer.linearize(x)
    for i in range(3):
        Q, logs = flossing._frame(lin.state_size).T, np.zeros(2)
        for t in range(lin.n_steps):
            Q, R = np.linalg.qr(lin.jacobian(t, i) @ Q)
            logs += np.log(np.abs(np.diag(R)))
        np.testing.assert_allclose(flossing.exponents[i], logs / lin.n_steps, rtol=1e-11)


def test_the_derivative_of_the_decomposition():
    V = RNG.standard_normal((2, 3, 7))
    d_Q, d_logs, direction = RNG.standard_normal(V.shape), RNG.standard_normal((2, 3)), RNG.standard_normal(V.shape)

    def f(V):
        Q, R = orthonormalized(V)
        return (Q * d_Q).sum() + (np.log(np.diagonal(R, axis1=1, axis2=2)) * d_logs).sum()

    Q, R = orthonormalized(V)
    np.testing.assert_allclose(np.einsum("bij,bik->bjk", R, Q), V, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(Q @ Q.swapaxes(1, 2), np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-14)
    expected = (f(V + 1e-6 * direction) - f(V - 1e-6 * direction)) / 2e-6
    assert (pulled_back(Q, R, d_Q, d_logs) * direction).sum() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", [0.0, -0.2])
def test_flossing_alone_brings_exponents_to_the_target(target, dtype):
    layer = elman.RNN(1, 16, weight_hh_init=elman.initializers.gaussian(0.5), dtype=dtype, rng=0)
    net = elman.Network(layer, elman.Readout(16, 1, dtype=dtype, rng=1))
    x = RNG.standard_normal((40, 24, 1))
    flossing = Flossing(3, target=target, sequences=6)
    history = elman.fit(
        net, x, x, loss=Zero(), regularizers=[flossing], epochs=40, batch_size=6, optimizer=elman.Adam(1e-2),
        progress=False, rng=0,
    )  # fmt: skip
    assert np.allclose(flossing.exponents.mean(axis=0), target, atol=0.05)
    penalty = history.metrics["penalty"]
    assert penalty[-1] < 0.05 * penalty[0]
    assert not any(history.loss)


MEASURES = {
    "L2": (L2(0.05), lambda net, x: sum(np.sum(net.params[n] ** 2) for n in net.params if "weight" in n)),
    "Activity": (Activity(5.0), lambda net, x: np.mean(net.layer(x)[0] ** 2)),
    "SoftOrthogonality": (
        SoftOrthogonality(1.0),
        lambda net, x: np.abs(np.linalg.svd(net.params["layer.weight_hh_l0"])[1] - 1).max(),
    ),
}


@pytest.mark.parametrize("name", MEASURES)
def test_training_with_a_penalty_makes_what_it_measures_smaller(name):
    regularizer, measure = MEASURES[name]
    x = RNG.standard_normal((10, 30, 3))
    y = np.cumsum(x[..., :2], axis=0) / 3
    left = []
    for penalties in ((), (regularizer,)):
        net = network()
        elman.fit(net, x, y, regularizers=penalties, epochs=30, optimizer=elman.Adam(1e-2), progress=False, rng=0)
        left.append(measure(net, x))
    assert left[1] < 0.7 * left[0]


def test_what_cannot_be_regularised_is_refused():
    x = np.random.default_rng(0).standard_normal((6, 3, 3))
    zoned = elman.Network(elman.RNN(3, 4, zoneout=0.1, rng=0), elman.Readout(4, 1, rng=0))
    both = elman.Network(elman.RNN(3, 4, bidirectional=True, rng=0), elman.Readout(8, 1, rng=0))
    plain = elman.Network(elman.RNN(3, 4, rng=0), elman.Readout(4, 1, rng=0))
    projected = elman.Network(elman.LSTM(3, 4, proj_size=3, rng=0), elman.Readout(3, 1, rng=0))
    for net, regularizer, options, message in (
        (zoned, Flossing(2), {}, "without zoneout"),
        (both, Flossing(2), {}, "bidirectional"),
        (plain, Flossing(5), {}, "at most 4"),
        (plain, Flossing(2), {"lengths": [6, 3, 2]}, "one length"),
        (plain, L2(1.0, "nothing*"), {}, "match names"),
        (projected, SoftOrthogonality(1.0), {}, "proj_size"),
    ):
        trace = net.trace(x, training=False, **options)
        with pytest.raises(ArgumentError, match=message):
            regularizer.penalty_and_gradient(net, trace, np.zeros_like(net.theta), None)
    for make in (lambda: L2(-1), lambda: Flossing(0), lambda: Flossing(2, target=np.inf), lambda: Activity(np.nan)):
        with pytest.raises(ArgumentError):
            make()


def test_lost_directions_are_told():
    net = elman.Network(elman.RNN(3, 4, nonlinearity="relu", rng=0), elman.Readout(4, 1, rng=0))
    net.params["layer.bias_ih_l0"][:] = -100.0
    with pytest.raises(NonFiniteError, match="smaller k"):
        penalty_of(net, Flossing(2), np.zeros((5, 2, 3)))
