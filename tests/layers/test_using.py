"""A trained network in use: predictions, probabilities, scores, steps, and what it generates."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.functional import sigmoid, softmax

RNG = np.random.default_rng(8)


def network(D=3, Q=2, H=6, kind=elman.GRU, head="readout", **options):
    layer = kind(D, H, rng=0, **options)
    dtype = layer.dtype
    readout = elman.Readout(H, Q, dtype=dtype, rng=1) if head == "readout" else elman.MLP(H, 5, Q, dtype=dtype, rng=1)
    return elman.Network(layer, readout)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(dtype, axis):
    x = (RNG.standard_normal((4, 5, 7)) * 30).astype(dtype)
    wide = x.astype(np.longdouble)
    exact = np.exp(wide - wide.max(axis=axis, keepdims=True))
    exact /= exact.sum(axis=axis, keepdims=True)
    out = softmax(x, axis)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, exact, rtol=300 * np.finfo(dtype).eps, atol=1e-37)
    rtol = 1e-3 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(softmax(x + dtype(100), axis), out, rtol=rtol, atol=1e-30)
    assert softmax([0, 0]).tolist() == [0.5, 0.5]
    assert softmax([-np.inf, 0.0, 1e4]).tolist() == [0, 0, 1]
    assert np.isnan(softmax([np.nan, 0.0])).all()


def test_sigmoid():
    x = np.linspace(-40, 40, 101)
    np.testing.assert_allclose(sigmoid(x), 1 / (1 + np.exp(-x)), rtol=1e-15)
    assert sigmoid([0]).tolist() == [0.5]


def test_wrong_arrays_are_refused():
    with pytest.raises(ArgumentError, match="axis must be one of the 2"):
        softmax(np.zeros((2, 2)), 2)
    with pytest.raises(DTypeError):
        softmax(["a"])


def test_predict_is_the_output_and_proba_its_softmax():
    net, x = network(), RNG.standard_normal((5, 4, 3))
    assert np.array_equal(net.predict(x), net(x)[0])
    assert np.array_equal(net.predict_proba(x), softmax(net(x)[0]))
    one = network(Q=1)
    assert np.array_equal(one.predict_proba(x), sigmoid(one(x)[0]))
    sequences = [x[:3, 0], x[:, 1]]
    for proba, output in zip(net.predict_proba(sequences), net(sequences)[0], strict=True):
        assert np.array_equal(proba, softmax(output))


@pytest.mark.parametrize("batch_first", [False, True])
def test_evaluate_at_every_step_and_the_last(batch_first):
    net, x = network(batch_first=batch_first), RNG.standard_normal((7, 4, 3))
    x = x.swapaxes(0, 1) if batch_first else x
    output = net(x)[0]
    y = output + RNG.standard_normal(output.shape)
    found = net.evaluate(x, y, metrics=("mse", "mae"))
    assert found == {
        "mse": pytest.approx(np.mean((output - y) ** 2), rel=1e-13),
        "mae": pytest.approx(np.mean(np.abs(output - y)), rel=1e-13),
    }
    last = output[:, -1] if batch_first else output[-1]
    target = RNG.standard_normal(last.shape)
    assert net.evaluate(x, target)["mse"] == pytest.approx(np.mean((last - target) ** 2), rel=1e-13)
    lengths = np.array([7, 3, 0, 1])
    steps = output.swapaxes(0, 1) if batch_first else output
    counted = np.arange(7)[:, None] < lengths
    wanted = y.swapaxes(0, 1) if batch_first else y
    value = net.evaluate(x, y, lengths=lengths)["mse"]
    assert value == pytest.approx(np.mean((steps - wanted)[counted] ** 2), rel=1e-13)
    ends = [0, 1, 3]
    value = net.evaluate(x, target, lengths=lengths)["mse"]
    errors = [steps[lengths[b] - 1, b] - target[b] for b in ends]
    assert value == pytest.approx(np.mean(np.square(errors)), rel=1e-13)


def test_weights_and_gaps():
    net, x = network(), RNG.standard_normal((6, 4, 3))
    output, y = net(x)[0], RNG.standard_normal((6, 4, 2))
    errors = np.mean((output - y) ** 2, axis=-1)
    weight = RNG.uniform(0, 2, (6, 4))
    of_sequences = np.array([1.0, 0.0, 2.0, 0.5])
    assert net.evaluate(x, y, sample_weight=weight)["mse"] == pytest.approx(np.average(errors, weights=weight))
    expected = np.average(errors, weights=np.broadcast_to(of_sequences, errors.shape))
    assert net.evaluate(x, y, sample_weight=of_sequences)["mse"] == pytest.approx(expected)
    gaps = y.copy()
    gaps[2, 1, 0] = gaps[4, 3] = np.nan
    there = ~np.isnan(gaps).any(axis=-1)
    assert net.evaluate(x, gaps, missing="ignore")["mse"] == pytest.approx(errors[there].mean())
    with pytest.raises(ArgumentError):
        net.evaluate(x, gaps)
    classes = RNG.integers(2, size=(6, 4)).astype(float)
    right = output.argmax(-1) == classes
    classes[0, 0] = np.nan
    right[0, 0] = False
    found = net.evaluate(x, classes, "accuracy", missing="ignore")["accuracy"]
    assert found == pytest.approx(right.sum() / 23)


def test_lists_ends_and_functions():
    net = network()
    sequences = [RNG.standard_normal((n, 3)) for n in (4, 1, 6)]
    outputs = net(sequences)[0]
    y = [o + 1 for o in outputs]
    assert net.evaluate(sequences, y)["mse"] == pytest.approx(1.0)
    last = np.stack([o[-1] for o in outputs]) - 2.0
    assert net.evaluate(sequences, last, "mae")["mae"] == pytest.approx(2.0)

    def worst(output, target, weight=None):
        return np.abs(output - target).max()

    assert net.evaluate(sequences, y, worst)["worst"] == pytest.approx(1.0)
    end = elman.Network(elman.RNN(3, 4, bidirectional=True, rng=0), elman.Readout(8, 2, rng=0), at="end")
    x = RNG.standard_normal((5, 3, 3))
    assert end.evaluate(x, end(x)[0] + 3.0, "rmse")["rmse"] == pytest.approx(3.0)


def test_what_does_not_fit_is_told():
    net, x = network(), RNG.standard_normal((5, 4, 3))
    with pytest.raises(ShapeError, match=r"\(5, 4\), or for the last step of each sequence, \(4,\)"):
        net.evaluate(x, np.zeros((3, 2)))
    with pytest.raises(ArgumentError, match="metric must be one of"):
        net.evaluate(x, np.zeros((5, 4, 2)), "msee")
    with pytest.raises(ArgumentError, match="different names"):
        net.evaluate(x, np.zeros((5, 4, 2)), ("mse", "mse"))
    with pytest.raises(ShapeError, match="sample_weight"):
        net.evaluate(x, np.zeros((5, 4, 2)), sample_weight=np.ones(3))
    with pytest.raises(ShapeError, match="as many targets"):
        net.evaluate([x[:, 0], x[:3, 1]], [np.zeros((5, 2)), np.zeros((2, 2))])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("head", ["readout", "perceptron"])
@pytest.mark.parametrize("B", [1, 3])
def test_steps_have_the_bits_of_a_call(B, head, dtype):
    net = network(kind=elman.LSTM, head=head, num_layers=2, dtype=dtype)
    x = RNG.standard_normal((9, B, 3)).astype(dtype)
    output, hn = net(x)
    step = net.stepper(B)
    assert np.array_equal([step(x_t).copy() for x_t in x], output)
    for one, other in zip(step.state, hn, strict=True):
        assert np.array_equal(one, other)
    other = copy.copy(step)
    again = net.stepper(B, hn)
    assert np.array_equal(other(x[0]), again(x[0]))
    if B == 1:
        alone = net.stepper()
        assert alone(x[0, 0]).shape == (2,)
    assert "output_size=2" in repr(step)


def test_a_series_goes_on_from_its_outputs():
    net = network(D=2, Q=2)
    prefix = RNG.standard_normal((5, 3, 2))
    made = net.generate(prefix, 4)
    x = prefix
    for t in range(4):
        new = net(x)[0][-1:]
        np.testing.assert_allclose(made[t], new[0], rtol=1e-13)
        x = np.concatenate([x, new])
    assert np.array_equal(net.generate(prefix[:, 0], 4), made[:, 0])
    assert net.generate(prefix, 0).shape == (0, 3, 2)
    first = network(D=2, Q=2, batch_first=True)
    assert np.array_equal(first.generate(prefix.swapaxes(0, 1), 4), made.swapaxes(0, 1))


def test_tokens_are_drawn_from_the_softmax():
    net = network(D=4, Q=4)
    prefix = RNG.integers(4, size=(6, 2))
    greedy = net.generate(prefix, 5, temperature=0)
    tokens = prefix
    for t in range(5):
        likeliest = net(np.eye(4)[tokens])[0][-1].argmax(-1)
        assert np.array_equal(greedy[t], likeliest)
        tokens = np.concatenate([tokens, likeliest[None]])
    assert np.array_equal(net.generate(prefix, 5, rng=3), net.generate(prefix, 5, rng=3))
    assert net.generate(prefix[:, 0], 5, rng=0).shape == (5,)
    many = np.broadcast_to(prefix[:, :1], (6, 20000))
    for temperature in (0.5, 1.0):
        drawn = net.generate(many, 1, temperature=temperature, rng=0)[0]
        expected = softmax(net(np.eye(4)[prefix[:, :1]])[0][-1, 0] / temperature)
        np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20000, expected, atol=0.015)


def test_what_cannot_be_generated_is_told():
    series, tokens = RNG.standard_normal((5, 3, 3)), RNG.integers(3, size=5)
    for net, prefix, options, message in (
        (network(), series, {}, "as many outputs as inputs, got 2 and 3"),
        (network(Q=3), series, {"temperature": 1.0}, "leave it out"),
        (network(Q=3), tokens + 3, {}, r"0 \.\. 2"),
        (elman.Network(elman.RNN(3, 4, rng=0), elman.Readout(4, 3, rng=0), at="end"), series, {}, "every step"),
        (elman.Network(elman.RNN(3, 4, bidirectional=True, rng=0), elman.Readout(8, 3, rng=0)), series, {}, "stream"),
    ):
        with pytest.raises(ArgumentError, match=message):
            net.generate(prefix, 3, **options)
    with pytest.raises(ShapeError, match="at least one step"):
        network(Q=3).generate(series[:0], 3)
    with pytest.raises(ArgumentError, match="cannot stream"):
        elman.Network(elman.RNN(3, 4, rng=0), elman.Readout(4, 3, rng=0), at="end").stepper()
