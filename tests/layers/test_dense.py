"""Readout, perceptron and network: values, derivatives, and how their parameters live together."""

import copy
import pickle

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.testing import check_gradients

PHI = {
    "tanh": np.tanh,
    "relu": lambda a: np.maximum(a, 0),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "identity": lambda a: a,
}


def randomise(model, rng):
    model.theta[:] = rng.uniform(-0.6, 0.6, model.theta.size)
    return model


def network(rng, readout=None, **options):
    layer = elman.RNN(3, 12, **options)
    return randomise(elman.Network(layer, readout or elman.Readout(12, 2, dtype=layer.dtype.name)), rng)


@pytest.mark.parametrize("shape", [(5,), (7, 5), (3, 4, 5), (0, 5), (1, 5)])
def test_readout_is_an_affine_map(shape):
    rng = np.random.default_rng(0)
    readout = randomise(elman.Readout(5, 9), rng)
    h = rng.standard_normal(shape)
    expected = h @ readout.params["weight"].T + readout.params["bias"]
    np.testing.assert_allclose(readout(h), expected, rtol=1e-13, atol=1e-14)
    d = rng.standard_normal(expected.shape)
    grads = readout.backward(readout.trace(h), d)
    rows, deltas = h.reshape(-1, 5), d.reshape(-1, 9)
    np.testing.assert_allclose(grads.params["weight"], deltas.T @ rows, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(grads.params["bias"], deltas.sum(0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(grads.x, d @ readout.params["weight"], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("nonlinearity", list(PHI))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_perceptron(nonlinearity, dtype):
    rng = np.random.default_rng(1)
    mlp = randomise(elman.MLP(3, 11, 2, nonlinearity, dtype=dtype), rng)
    p = {k: v.astype(np.float64) for k, v in mlp.params.items()}
    x = rng.standard_normal((6, 4, 3)).astype(dtype)
    hidden = PHI[nonlinearity](x.astype(np.float64) @ p["weight_ih"].T + p["bias_ih"])
    trace = mlp.trace(x)
    rtol = 1e-12 if dtype == "float64" else 2e-6
    np.testing.assert_allclose(trace.hidden, hidden, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(trace.output, hidden @ p["weight_ho"].T + p["bias_ho"], rtol=rtol, atol=rtol)
    if dtype == "float64":
        check_gradients(mlp, x)


def test_perceptron_learns_what_no_line_can():
    x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = np.array([0, 1, 1, 0])
    mlp = elman.MLP(2, 8, 2, rng=0)
    history = elman.fit(mlp, x, y, loss="cross_entropy", optimizer=elman.Adam(0.05), epochs=200, progress=False, rng=0)
    assert history.loss[-1] < 0.05
    assert np.array_equal(mlp(x).argmax(-1), y)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("readout", ["linear", "perceptron"])
def test_network_gradients(batch_first, readout):
    rng = np.random.default_rng(2)
    part = elman.MLP(12, 7, 2) if readout == "perceptron" else None
    net = network(rng, part, batch_first=batch_first)
    x, h0 = rng.standard_normal((6, 4, 3)), rng.standard_normal((1, 6 if batch_first else 4, 12))
    check_gradients(net, x, h0)
    check_gradients(net, x[:, 0], h0[:, 0])
    output, hn = net(x, h0)
    hidden, expected_hn = net.layer(x, h0)
    np.testing.assert_array_equal(output, net.readout(hidden))
    np.testing.assert_array_equal(hn, expected_hn)
    np.testing.assert_array_equal(net.trace(x, h0).output, output)


@pytest.mark.parametrize(("T", "B"), [(0, 2), (3, 0)])
def test_empty_network(T, B):
    net = network(np.random.default_rng(0))
    trace = net.trace(np.zeros((T, B, 3)))
    assert trace.output.shape == (T, B, 2)
    grads = net.backward(trace, np.zeros((T, B, 2)))
    assert not grads.theta.any()


def test_network_has_one_vector():
    rng = np.random.default_rng(0)
    layer, readout = elman.RNN(3, 12, rng=0), elman.Readout(12, 2, rng=1)
    parts = np.concatenate([layer.theta, readout.theta])
    net = elman.Network(layer, readout)
    assert np.array_equal(net.theta, parts)
    assert next(iter(net.params)) == "layer.weight_ih_l0"
    assert np.shares_memory(net.theta, layer.params["weight_hh_l0"])
    x = rng.standard_normal((4, 2, 3))
    before = net(x)[0]
    layer.params["weight_hh_l0"][0, 0] += 1
    assert not np.array_equal(net(x)[0], before)
    net.theta[:] = 0
    assert not net(x)[0].any()
    assert not layer.theta.any()


def test_a_part_that_moved_on_is_not_used_with_stale_weights():
    layer = elman.RNN(3, 12)
    first = elman.Network(layer, elman.Readout(12, 2))
    second = elman.Network(layer, elman.Readout(12, 4))
    x = np.zeros((2, 1, 3))
    second(x)
    for call in (first, first.trace, first.linearize):
        with pytest.raises(ArgumentError, match="another network"):
            call(x)


def test_copies_of_a_network_stand_alone():
    rng = np.random.default_rng(0)
    net = network(rng)
    x = rng.standard_normal((4, 2, 3))
    for other in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
        assert np.array_equal(other(x)[0], net(x)[0])
        assert np.shares_memory(other.theta, other.layer.params["weight_hh_l0"])
        other.theta[:] = 0
        assert net.theta.any()
        assert not other(x)[0].any()


def test_state_dict_of_a_network():
    rng = np.random.default_rng(0)
    net = network(rng)
    saved = net.state_dict()
    net.theta[:] = 0
    net.load_state_dict(saved)
    assert all(np.array_equal(net.params[k], v) for k, v in saved.items())


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="output_size = 12"):
        elman.Network(elman.RNN(3, 12), elman.Readout(11, 2))
    with pytest.raises(ArgumentError, match="one dtype"):
        elman.Network(elman.RNN(3, 12, dtype="float32"), elman.Readout(12, 2))
    with pytest.raises(ShapeError, match="input_size = 5"):
        elman.Readout(5, 2)(np.zeros((3, 4)))
    with pytest.raises(DTypeError, match="integer"):
        elman.Readout(5, 2.0)


class TestLossStart:
    """The gradient of the last-step loss with respect to the last state."""

    @pytest.mark.parametrize("batch_first", [False, True])
    @pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
    def test_is_the_gradient_of_each_sequences_own_loss(self, batch_first, loss):
        rng = np.random.default_rng(3)
        net = network(rng, elman.MLP(12, 7, 4), batch_first=batch_first)
        x = rng.standard_normal((5, 6, 3))
        B = 5 if batch_first else 6
        y = rng.integers(0, 4, B) if loss == "cross_entropy" else rng.standard_normal((B, 4))
        start = net.loss_start(x, y, loss=loss)
        _, hn = net.layer(x)
        for b in range(B):
            for j in (0, 5, 11):
                value = []
                for h in (1e-5, -1e-5):
                    state = hn[0, b].copy()
                    state[j] += h
                    output = net.readout(state)
                    if loss == "mse":
                        value.append(np.mean((output - y[b]) ** 2))
                    else:
                        value.append(np.log(np.exp(output).sum()) - output[y[b]])
                np.testing.assert_allclose(start[b, j], (value[0] - value[1]) / 2e-5, rtol=1e-5, atol=1e-9)

    def test_targets_of_every_step_count_at_the_last(self):
        rng = np.random.default_rng(4)
        net = network(rng)
        x, y = rng.standard_normal((5, 6, 3)), rng.standard_normal((5, 6, 2))
        assert np.array_equal(net.loss_start(x, y), net.loss_start(x, y[-1]))

    def test_without_targets_it_lies_in_the_readouts_rows(self):
        rng = np.random.default_rng(5)
        net = network(rng)
        start = net.loss_start(rng.standard_normal((5, 6, 3)), rng=0)
        W = net.readout.params["weight"]
        projected = start @ np.linalg.pinv(W) @ W
        np.testing.assert_allclose(projected, start, rtol=1e-10, atol=1e-12)
        assert np.array_equal(start, net.loss_start(rng.standard_normal((5, 6, 3)), rng=0))

    def test_a_bare_layer_has_none(self):
        assert elman.RNN(3, 4).loss_start(np.zeros((2, 1, 3))) is None

    def test_wrong_targets_are_refused(self):
        net = network(np.random.default_rng(6))
        with pytest.raises(ShapeError, match=r"or \(6, Q\) \(at the last step only\)"):
            net.loss_start(np.zeros((5, 6, 3)), np.zeros((4, 2)))
        with pytest.raises(ArgumentError, match="T = 0"):
            net.loss_start(np.zeros((0, 6, 3)))


def test_targets_are_told_by_their_axes_where_lengths_coincide():
    """T = B = Q: only the number of axes tells a target of every step from one of the last."""
    rng = np.random.default_rng(8)
    for batch_first in (False, True):
        net = elman.Network(elman.RNN(3, 12, batch_first=batch_first, rng=0), elman.Readout(12, 6, rng=1))
        x = rng.standard_normal((6, 6, 3))
        every, classes = rng.standard_normal((6, 6, 6)), rng.integers(0, 6, (6, 6))
        last = every[:, -1] if batch_first else every[-1]
        assert np.array_equal(net.loss_start(x, every), net.loss_start(x, last))
        last = classes[:, -1] if batch_first else classes[-1]
        got = net.loss_start(x, classes, loss="cross_entropy")
        assert np.array_equal(got, net.loss_start(x, last, loss="cross_entropy"))


def test_a_network_whose_part_moved_on_neither_saves_nor_loads():
    layer = elman.RNN(3, 12)
    first = elman.Network(layer, elman.Readout(12, 2))
    saved = first.state_dict()
    elman.Network(layer, elman.Readout(12, 4))
    with pytest.raises(ArgumentError, match="another network"):
        first.state_dict()
    with pytest.raises(ArgumentError, match="another network"):
        first.load_state_dict(saved)


def test_a_network_needs_a_layer_and_a_readout():
    with pytest.raises(DTypeError, match="RNN and RNN"):
        elman.Network(elman.RNN(3, 12), elman.RNN(12, 12))
