"""Fixed points: closed forms of one unit, zeros of every cell checked by the layer itself, a trained flip-flop."""

import json

import numpy as np
import pytest

from elman.diagnostics.equilibria.search import fixed_points
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.layers import GRU, LSTM, MGU, RNN, Network, Readout
from elman.tasks import flip_flop
from elman.training import Adam, fit


def unit(w, bias=0.0):
    """h' = tanh(w h + bias), without input."""
    layer = RNN(0, 1, rng=0)
    layer.params["weight_hh_l0"][:], layer.params["bias_hh_l0"][:] = w, bias
    return layer


def drawn(layer, scale=1.0, seed=0):
    """The layer with random parameters, none of them zero."""
    rng = np.random.default_rng(seed)
    for view in layer.params.values():
        view[:] = scale * rng.standard_normal(view.shape) / np.sqrt(view.shape[-1])
    return layer


@pytest.mark.parametrize("w", [-0.9, 0.3, 0.99])
def test_a_weak_unit_has_one_fixed_point(w):
    found = fixed_points(unit(w), None, np.linspace(-3, 3, 13)[:, None])
    assert found.points.shape == (1, 1)
    assert found.points[0, 0] == pytest.approx(0, abs=1e-9)
    assert found.eigenvalues[0, 0] == pytest.approx(w, rel=1e-9)
    assert found.counts.tolist() == [13]
    assert found.stable.all()


def test_a_unit_at_its_bifurcation_has_one_fixed_point():
    # h - tanh h ~ h^3 / 3: a residual of 1e-12 leaves h known to about 1e-4
    found = fixed_points(unit(1.0), None, np.linspace(-2, 2, 9)[:, None])
    assert len(found) == 1
    assert found.counts.tolist() == [9]
    np.testing.assert_allclose(found.points, [[0]], atol=2e-4)
    assert found.eigenvalues[0, 0] == pytest.approx(1, abs=1e-6)


def test_three_points_just_above_the_bifurcation_are_told_apart():
    # tanh(w h) = h at h^2 ~ 3 (w - 1)
    found = fixed_points(unit(1 + 5e-8), None, np.linspace(-2, 2, 9)[:, None])
    np.testing.assert_allclose(np.sort(found.points[:, 0]), [-np.sqrt(15e-8), 0, np.sqrt(15e-8)], atol=3e-5)


@pytest.mark.parametrize(
    ("w", "point", "multiplier"), [(1.5, 0.8585596366, 0.3943130255), (2.0, 0.9575040241, 0.1663720878)]
)
def test_a_strong_unit_has_three(w, point, multiplier):
    found = fixed_points(unit(w), None, np.linspace(-2, 2, 9)[:, None])
    assert len(found) == 3
    order = np.argsort(found.points[:, 0])
    np.testing.assert_allclose(found.points[order, 0], [-point, 0, point], atol=1e-9)
    np.testing.assert_allclose(found.eigenvalues[order, 0], [multiplier, w, multiplier], rtol=1e-9)
    assert found.stable[order].tolist() == [True, False, True]
    assert found.n_unstable[order].tolist() == [0, 1, 0]
    np.testing.assert_allclose(found.exponents[order], np.log([multiplier, w, multiplier]), rtol=1e-9)
    assert found.counts.sum() == found.n_starts == 9
    if w == 2:
        assert found.exponents[order][0] == pytest.approx(-1.79352851, abs=1e-8)


def test_the_ghost_of_a_fold_is_a_slow_point():
    # tanh(2 h + b) = h has a double root where 2 (1 - h^2) = 1, so h = +-1/sqrt 2; beyond it the upper pair is gone
    h = -np.sqrt(0.5)
    fold = np.arctanh(h) - 2 * h
    gap = 1e-3
    found = fixed_points(unit(2.0, fold + gap), None, np.linspace(-1.5, 0.2, 30)[:, None], slow=1e-5)
    assert found.converged.sum() == 1
    ghost = ~found.converged
    assert ghost.sum() == 1
    assert found.points[ghost][0, 0] == pytest.approx(h, abs=1e-3)
    # at the fold F(h) - h = (1 - h^2) gap
    np.testing.assert_allclose(np.sqrt(2 * found.q[ghost]), gap / 2, rtol=0.01)
    # a minimum of q has (J - 1)(F - h) = 0
    assert found.eigenvalues[ghost][0, 0] == pytest.approx(1, abs=1e-6)
    assert not found.stable[ghost].any()
    none = fixed_points(unit(2.0, fold + gap), None, np.linspace(-1.5, 0.2, 30)[:, None], slow=1e-8)
    assert len(none) == 1
    assert none.n_lost == found.counts[ghost][0]


@pytest.mark.parametrize(
    "layer",
    [
        RNN(2, 8, rng=0),
        RNN(2, 6, 2, rng=0, batch_first=True),
        GRU(2, 8, rng=0),
        GRU(2, 8, rng=0, reset_after=False),
        MGU(2, 8, rng=0),
        LSTM(2, 8, rng=0),
        LSTM(2, 6, 2, rng=0, proj_size=3),
    ],
    ids=repr,
)
def test_points_of_every_cell_stand_still(layer):
    drawn(layer, 1.5)
    x = np.array([0.3, -0.7])
    found = fixed_points(layer, x, 40, rng=1)
    assert found.converged.any()
    fixed = found.points[found.converged]
    # the layer itself, started there, stays; states as its linearization has them, taken apart by hand
    L = layer.num_layers
    step = x[None, None]
    for s, J, values in zip(fixed, found.jacobians, found.eigenvalues, strict=False):
        if isinstance(layer, LSTM):
            width = layer.proj_size or layer.hidden_size
            rows = s.reshape(L, -1)
            h0 = rows[:, None, :width].copy(), rows[:, None, width:].copy()
        else:
            h0 = s.reshape(L, 1, -1)
        hn = layer(step, h0)[1]
        for after, before in zip(
            hn if isinstance(hn, tuple) else (hn,), h0 if isinstance(h0, tuple) else (h0,), strict=True
        ):
            np.testing.assert_allclose(after, before, atol=1e-11)
        expected = layer.linearize(step, h0).jacobian(0)
        np.testing.assert_allclose(J, expected, atol=1e-13)
        mine = np.sort_complex(np.round(values, 6))
        np.testing.assert_allclose(mine, np.sort_complex(np.round(np.linalg.eigvals(expected), 6)), atol=1e-5)


def test_lstm_at_rest_has_the_closed_eigenvalues():
    # zero state, input and bias of the g gate: J of (h, c) has N zeros and sigmoid(b_f) + mu / 4, mu in eig(W_g)
    N, b_f = 5, 0.4
    layer = LSTM(1, N, rng=3)
    for name, view in layer.params.items():
        if "bias" in name:
            view[:] = 0
    layer.params["bias_hh_l0"][N : 2 * N] = b_f
    found = fixed_points(layer, None, np.zeros((1, 2 * N)))
    mu = np.linalg.eigvals(layer.params["weight_hh_l0"][2 * N : 3 * N])
    expected = np.concatenate([1 / (1 + np.exp(-b_f)) + mu / 4, np.zeros(N)])
    expected = expected[np.argsort(-abs(expected), kind="stable")]
    np.testing.assert_allclose(np.sort(abs(found.eigenvalues[0])), np.sort(abs(expected)), atol=1e-9)
    np.testing.assert_allclose(found.eigenvalues[0].sum(), expected.sum(), atol=1e-12)


def test_modes_are_eigenvectors():
    found = fixed_points(drawn(GRU(2, 7, rng=0), 1.2), [0.1, 0.2], 20, rng=0)
    values, vectors = found.modes(0)
    np.testing.assert_allclose(found.jacobians[0] @ vectors, vectors * values, atol=1e-12)
    np.testing.assert_allclose(abs(values), abs(found.eigenvalues[0]), atol=1e-12)
    with pytest.raises(ArgumentError, match="point must be in"):
        found.modes(len(found))


def test_linear_layer_has_the_solution_of_its_equation():
    layer = drawn(RNN(3, 6, nonlinearity="identity", rng=0), 0.8)
    p = {name: np.array(view) for name, view in layer.params.items()}
    x = np.array([1.0, -2.0, 0.5])
    expected = np.linalg.solve(np.eye(6) - p["weight_hh_l0"], p["weight_ih_l0"] @ x + p["bias_ih_l0"] + p["bias_hh_l0"])
    found = fixed_points(layer, x, 10, rng=0)
    assert len(found) == 1
    np.testing.assert_allclose(found.points[0], expected, rtol=1e-10)


@pytest.fixture(scope="module", name="memory")
def _memory():
    """A network that holds three bits, and states that it visits."""
    x, y = flip_flop(60, 512, bits=3, rng=0)
    net = Network(RNN(3, 24, rng=1), Readout(24, 3, rng=2))
    history = fit(net, x, y, optimizer=Adam(5e-3), epochs=60, progress=False, rng=3)
    assert history.loss[-1] < 0.01
    return net, net.layer(x[:, :64])[0]


def test_a_trained_flip_flop_has_an_attractor_for_each_word(memory):
    # Sussillo and Barak 2013: 2^3 stable points for three bits
    net, states = memory
    rng = np.random.default_rng(4)
    starts = rng.choice(states.reshape(-1, 24), 1000, replace=False)
    found = fixed_points(net.layer, None, starts + rng.standard_normal(starts.shape))
    # 3^3 in all: each bit has two attractors and a saddle between them; undecided bits are growing modes
    assert np.bincount(found.n_unstable).tolist() == [8, 12, 6, 1]
    assert found.converged.all()
    read = found.points[found.stable] @ net.params["readout.weight"].T + net.params["readout.bias"]
    np.testing.assert_allclose(abs(read), 1, atol=0.1)
    assert len(np.unique(np.sign(read), axis=0)) == 8
    # a state that the network is left in moves to the attractor of its word
    after = net.layer(np.zeros((200, 64, 3)), states[-1][None])[1][0]
    distance = np.linalg.norm(after[:, None] - found.points[found.stable], axis=2).min(axis=1)
    np.testing.assert_allclose(distance, 0, atol=1e-6)


def test_what_is_printed_and_kept(memory):
    net, states = memory
    found = fixed_points(net.layer, np.zeros(3), states[-1])
    text = str(found)
    for part in ("8 of them stable", "from 64 starts", "nats/step", "largest |eigenvalue|"):
        assert part in text
    assert repr(found).startswith("FixedPoints(")
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["points"] == found.points.tolist()
    assert plain["n_starts"] == 64
    layer = RNN(0, 1, nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][:], layer.params["bias_hh_l0"][:] = 1.0, 0.0
    many = fixed_points(layer, None, np.linspace(-1, 1, 200)[:, None])
    assert len(many) == 200  # all states stand still: those of a line attractor are not one
    assert "more" in str(many)


def test_same_seed_same_points():
    layer = drawn(RNN(2, 6, rng=0), 2.0)
    a, b = fixed_points(layer, None, 30, rng=5), fixed_points(layer, None, 30, rng=np.random.default_rng(5))
    np.testing.assert_array_equal(a.points, b.points)


def test_nothing_found_is_a_result():
    # h' = h + 1 never stands still, and not slowly either
    layer = RNN(0, 1, nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][:], layer.params["bias_hh_l0"][:] = 1.0, 1.0
    found = fixed_points(layer, None, 5, rng=0)
    assert len(found) == 0
    assert found.n_lost == 5
    assert found.stable.shape == (0,)
    assert "0 fixed points" in str(found)


def test_saturated_gates_far_out_are_no_slow_points():
    layer = drawn(MGU(2, 16, rng=1), 2.2, seed=3)
    found = fixed_points(layer, [0.1, -0.3], 60, rng=0)
    assert found.converged.any()
    assert (abs(found.points[~found.converged]) <= 2).all()
    assert found.n_lost > 0


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "message"),
    [
        ((np.eye(3),), {}, DTypeError, "takes a recurrent layer such as elman.RNN, got ndarray"),
        ((RNN(2, 3, dtype="float32", rng=0),), {}, DTypeError, "must be float64, got float32"),
        ((RNN(2, 3, rng=0), np.ones(3)), {}, ShapeError, r"x_const must have shape \(D,\) = \(2,\)"),
        ((RNN(2, 3, rng=0), [1.0, np.nan]), {}, ArgumentError, r"x_const must be finite, x_const\[1\]"),
        ((RNN(2, 3, rng=0), None, np.ones((4, 2))), {}, ShapeError, r"\(n, S\) with S = 3"),
        ((RNN(2, 3, rng=0), None, np.ones((4, 3), complex)), {}, DTypeError, "starts must be real"),
        ((RNN(2, 3, rng=0), None, [[np.inf, 0.0, 0.0]]), {}, ArgumentError, "starts must be finite"),
        ((RNN(2, 3, rng=0), None, 0), {}, ArgumentError, "starts must be at least 1"),
        ((RNN(2, 3, rng=0),), {"slow": -1}, ArgumentError, "slow must be a positive number"),
        ((RNN(2, 3, rng=0),), {"tol": 0}, ArgumentError, "tol must be a positive number"),
        ((RNN(2, 3, rng=0),), {"max_iterations": 0}, ArgumentError, "max_iterations must be at least 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, keywords, error, message):
    with pytest.raises(error, match=message):
        fixed_points(*arguments, **keywords)


def test_a_network_is_told_to_give_its_layer():
    with pytest.raises(DTypeError, match=r"got Network; give its recurrent layer, network\.layer"):
        fixed_points(Network(RNN(2, 3, rng=0), Readout(3, 1, rng=0)))


def test_every_start_is_counted_once():
    """At a point of its own, at one that others found too, or among the lost."""
    found = fixed_points(unit(2.0), None, np.linspace(-2, 2, 41)[:, None])
    assert (len(found), found.n_lost, found.n_starts) == (3, 0, 41)
    assert sorted(found.counts.tolist()) != [1, 1, 39]
    assert found.counts.sum() == 41
    some_lost = fixed_points(drawn(MGU(2, 16, rng=1), 2.2, seed=3), [0.1, -0.3], 60, rng=0)
    assert 0 < some_lost.n_lost < 60 - len(some_lost)
    assert some_lost.counts.min() >= 1
    assert some_lost.counts.sum() + some_lost.n_lost == some_lost.n_starts == 60
