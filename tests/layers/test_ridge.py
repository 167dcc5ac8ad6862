"""Readouts that are solved: scikit-learn's numbers, rows left out by hand, closed forms, refusals."""

import json

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError

RNG = np.random.default_rng(6)
T, N, H, Q = 40, 3, 5, 2
S = RNG.standard_normal((T, N, H)) + RNG.standard_normal(H)
Y = S @ RNG.standard_normal((H, Q)) + 0.7 + 0.5 * RNG.standard_normal((T, N, Q)) * [1.0, 100.0]


def readout(**options):
    return elman.Readout(H, Q, rng=0, **options)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 1e-3, 10.0])
def test_scikit_learn(bias, ridge):
    linear = pytest.importorskip("sklearn.linear_model")
    other = linear.Ridge(ridge, fit_intercept=bias, solver="svd").fit(S.reshape(-1, H), Y.reshape(-1, Q))
    net = readout(bias=bias)
    solution = net.solve(S, Y, ridge=ridge)
    np.testing.assert_allclose(net.params["weight"], other.coef_, rtol=1e-10)
    if bias:
        np.testing.assert_allclose(net.params["bias"], other.intercept_, rtol=1e-10)
    rmse = np.sqrt(np.square(net(S) - Y).mean(axis=(0, 1)))
    np.testing.assert_allclose(solution.rmse, rmse, rtol=1e-10)
    assert solution.ridge == [ridge] * Q


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 3.0])
def test_each_row_left_out_in_turn(bias, ridge):
    s, y = S[:12, 0], Y[:12, 0]
    errors = []
    for i in range(12):
        rest = np.arange(12) != i
        other = readout(bias=bias)
        other.solve(s[rest], y[rest], ridge=ridge)
        errors.append(other(s[i]) - y[i])
    solution = readout(bias=bias).solve(s, y, ridge=ridge)
    np.testing.assert_allclose(solution.loo_rmse, np.sqrt(np.square(errors).mean(axis=0)), rtol=1e-10)


def test_each_target_chooses_its_own_strength():
    linear = pytest.importorskip("sklearn.linear_model")
    grid = np.logspace(-3, 4, 15)
    noisy = Y.copy()
    noisy[..., 1] = RNG.standard_normal((T, N))
    other = linear.RidgeCV(grid, alpha_per_target=True).fit(S.reshape(-1, H), noisy.reshape(-1, Q))
    net = readout()
    solution = net.solve(S, noisy, ridge=grid[::-1])
    np.testing.assert_array_equal(solution.ridge, other.alpha_)
    assert solution.ridge[0] < solution.ridge[1]
    np.testing.assert_allclose(net.params["weight"], other.coef_, rtol=1e-9)
    assert solution.candidates == grid.tolist()


def test_the_default_does_not_depend_on_units():
    one, other = readout(), readout()
    a, b = one.solve(S, Y), other.solve(1000 * S, 0.01 * Y)
    np.testing.assert_allclose(np.array(b.ridge) / np.array(a.ridge), 1e6, rtol=1e-9)
    np.testing.assert_allclose(other(1000 * S), 0.01 * one(S), rtol=1e-8, atol=1e-10)


def test_the_derivative_at_the_solution_is_zero():
    net, ridge = readout(), 2.5
    net.solve(S, Y, ridge=ridge)
    d = 2 * (net(S) - Y)
    gradient = net.backward(net.trace(S), d).params
    scale = np.abs(d).sum()
    np.testing.assert_allclose(gradient["weight"] + 2 * ridge * net.params["weight"], 0, atol=1e-12 * scale)
    np.testing.assert_allclose(gradient["bias"], 0, atol=1e-12 * scale)


def test_exact_data_are_found_and_dependent_states_give_the_smallest_weights():
    net = readout()
    exact = S @ np.arange(10.0).reshape(H, Q) - 3
    assert max(net.solve(S, exact, ridge=0.0).rmse) < 1e-12
    np.testing.assert_allclose(net.params["weight"], np.arange(10.0).reshape(H, Q).T, rtol=1e-11, atol=1e-12)
    twice = np.concatenate([S[..., :1], S[..., :1], S[..., 2:]], axis=-1)
    solution = net.solve(twice, Y, ridge=0.0)
    assert solution.condition == np.inf
    assert solution.degrees_of_freedom == pytest.approx([4, 4])
    np.testing.assert_allclose(net.params["weight"][:, 0], net.params["weight"][:, 1], rtol=1e-10)
    few = net.solve(S[:3, 0], Y[:3, 0], ridge=0.0)  # more weights than rows: no row can be left out
    assert max(few.rmse) < 1e-10
    assert few.loo_rmse == [np.inf, np.inf]


def test_washout_and_layouts():
    spoilt = S.copy(), Y.copy()
    for a in spoilt:
        a[:7] = 1e6 * RNG.standard_normal(a[:7].shape)
    wanted = readout()
    wanted.solve(S[7:], Y[7:], ridge=0.1)
    swapped = [a.swapaxes(0, 1) for a in spoilt]
    for states, y, options in (
        (*spoilt, {}),
        (*swapped, {"batch_first": True}),
        (list(swapped[0]), list(swapped[1]), {}),
        (list(swapped[0]), list(swapped[1]), {"batch_first": True}),
    ):
        net = readout()
        net.solve(states, y, ridge=0.1, washout=7, **options)
        np.testing.assert_allclose(net.theta, wanted.theta, rtol=1e-11)
    uneven, rows = [swapped[0][0], swapped[0][1][:20]], [swapped[1][0], swapped[1][1][:20]]
    net, by_hand = readout(), readout()
    net.solve(uneven, rows, ridge=0.1, washout=7)
    by_hand.solve(*(np.concatenate([a[7:] for a in each]) for each in (uneven, rows)), ridge=0.1)
    np.testing.assert_allclose(net.theta, by_hand.theta, rtol=1e-11)


def test_an_echo_state_network_remembers():
    """A fixed random layer and a solved readout give the input of two steps before."""
    layer = elman.RNN(1, 60, weight_hh_init=elman.initializers.spectral_radius(0.9), rng=0)
    u = np.random.default_rng(1).uniform(-0.5, 0.5, (600, 1))
    y = np.roll(u, 2, axis=0)
    states, _ = layer(u)
    net = elman.Readout(60, 1, rng=0)
    solution = net.solve(states[:400], y[:400], washout=50)
    error = np.sqrt(np.square(net(states[400:]) - y[400:]).mean()) / y.std()
    assert error < 0.02
    assert solution.n_rows == 350


def test_float32_and_the_summary():
    net, wide = readout(dtype="float32"), readout()
    solution = net.solve(S.astype(np.float32), Y.astype(np.float32), ridge=1.0)
    wide.solve(S, Y, ridge=1.0)
    assert net.theta.dtype == np.float32
    np.testing.assert_allclose(net.theta, wide.theta, rtol=1e-4)
    assert json.loads(json.dumps(solution.to_dict()))["n_rows"] == T * N
    assert "target 1: RMSE" in str(solution)
    assert "at the edge" in str(wide.solve(S, Y, ridge=[100.0, 1e6]))
    assert "at the edge" not in str(wide.solve(S, Y, ridge=100.0))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda net: net.solve(S[..., :3], Y), ShapeError, "states must have shape .* H = 5"),
        (lambda net: net.solve(S, Y[..., 0]), ShapeError, r"y must have shape \(40, 3, 2\)"),
        (lambda net: net.solve(S, Y[:30]), ShapeError, "y must have shape"),
        (lambda net: net.solve(list(S), list(Y)[:3]), ShapeError, "lists of as many sequences"),
        (lambda net: net.solve(S, list(Y)), ShapeError, "both be arrays"),
        (lambda net: net.solve(S * np.nan, Y), ArgumentError, "states must be finite"),
        (lambda net: net.solve(S, Y.astype(int)), DTypeError, "y must be an array of real floating"),
        (lambda net: net.solve(S, Y, ridge=-1.0), ArgumentError, "ridge must be finite and at least 0"),
        (lambda net: net.solve(S, Y, ridge=[1.0, -1.0]), ArgumentError, r"ridge\[1\] must be"),
        (lambda net: net.solve(S, Y, ridge=[]), ArgumentError, "at least one number"),
        (lambda net: net.solve(S, Y, ridge="loo"), DTypeError, "ridge must be None, a number"),
        (lambda net: net.solve(S, Y, washout=T), ArgumentError, "washout must leave a step"),
        (lambda net: net.solve(S, Y, washout=-1), ArgumentError, "washout must be at least 0"),
        (lambda net: net.solve(S, Y, batch_first=1), DTypeError, "batch_first must be True or False"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(call, error, words):
    net = readout()
    before = net.theta.tobytes()
    with pytest.raises(error, match=words):
        call(net)
    assert net.theta.tobytes() == before


def test_one_target_without_an_axis_and_overflow():
    with pytest.raises(ShapeError, match=r"add the axis of targets, y\[..., None\]"):
        elman.Readout(H, 1).solve(S, Y[..., 0])
    net = readout(dtype="float32")
    before = net.theta.tobytes()
    with pytest.raises(NonFiniteError, match="the weights overflow float32"):
        net.solve(1e-30 * S, 1e30 * Y, ridge=0.0)
    assert net.theta.tobytes() == before
