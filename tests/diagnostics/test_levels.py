"""The levels of a diagnosis: tangents pushed forward against dense products and exact growth, simulated inputs."""

import json
import math
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from scipy.special import digamma
from scipy.stats import ortho_group

import elman
from elman.diagnostics.diagnosis.inputs import autocorrelated, resampled
from elman.diagnostics.diagnosis.sequences import ModelSequences
from elman.diagnostics.diagnosis.streaming import PIECE, Streamed, grid_lags, staggered_growth
from elman.diagnostics.diagnosis.track_record import RECORD
from elman.diagnostics.gradient.curve import GrowthCurve
from elman.diagnostics.gradient.growth import unit_vectors
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.linearization import JacobianStack

plt = pytest.importorskip("matplotlib.pyplot")


def network(layer, seed=5):
    return elman.Network(layer, elman.Readout(layer.output_size, 2, rng=seed))


def inputs(seed, T=60, n=40, D=3, mean=0.0, sd=1.0):
    return mean + sd * np.random.default_rng(seed).standard_normal((T, n, D))


def with_weights(layer, **values):
    for name, value in values.items():
        layer.params[name][...] = value
    return layer


# --- the grid -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [1, 2, 7, 50, 200, 1000, 12345])
def test_the_grid_reaches_from_no_lag_to_all_of_them_at_less_than_four_times_the_cost_of_one_vector(T):
    grid = grid_lags(T)
    assert grid[0] == 0
    assert grid[-1] == T
    assert (np.diff(grid) > 0).all()
    assert grid.sum() <= 3.7 * T
    if T >= 50:
        assert {10, 20, 35, 50} <= set(grid.tolist())


def test_between_the_lags_of_a_grid_the_curve_is_straight_and_says_so():
    grid = np.array([0, 1, 5, 10])
    logs = np.array([0.0, -1.0, -9.0, -9.5])[:, None, None] * np.array([1.0, 2.0])[None, :, None]
    curve = GrowthCurve.from_grid(grid, logs, "random", 1.0)
    assert curve.sequence_logs[:, 0] == pytest.approx(np.interp(np.arange(11), grid, [0, -1, -9, -9.5]), abs=1e-14)
    assert curve.sequence_logs[grid] == pytest.approx(logs[..., 0], abs=0)
    assert curve.to_dict()["grid"] == [0, 1, 5, 10]
    assert curve.truncated(7).grid.tolist() == [0, 1, 5, 7]


def test_a_gradient_that_died_between_two_lags_of_the_grid_is_dead_from_behind_the_last_living_one():
    logs = np.array([0.0, -1.0, -np.inf, -np.inf])[:, None, None] * np.ones((1, 3, 2))
    curve = GrowthCurve.from_grid(np.array([0, 4, 8, 12]), logs, "random", 1.0)
    assert curve.alive.tolist() == [3] * 5 + [0] * 8
    assert curve.verdict == "vanishing"


def test_spread_between_the_lags_of_a_grid_is_not_that_of_interpolated_curves():
    """Vectors of neighbouring lags are independent, so the mean of two of them spreads less than either."""
    rng = np.random.default_rng(0)
    grid = np.array([0, 10, 20])
    logs = np.concatenate([np.zeros((1, 50, 4)), rng.standard_normal((2, 50, 4))])
    curve = GrowthCurve.from_grid(grid, logs, "random", 1.0)
    assert curve.sd[15] == pytest.approx((curve.sd[10] + curve.sd[20]) / 2, rel=1e-12)
    half = curve.single_high - curve.mean
    assert half[15] == pytest.approx((half[10] + half[20]) / 2, rel=1e-12)


# --- tangents pushed forward ----------------------------------------------------------------------------------------


def test_each_lag_is_the_norm_of_a_dense_product_over_the_last_steps():
    rng = np.random.default_rng(1)
    J = 0.9 * rng.standard_normal((23, 3, 5, 5)) / math.sqrt(5)
    lags = grid_lags(23)
    found = staggered_growth(JacobianStack(J), lags, 2, np.random.default_rng(7))
    v = unit_vectors(np.random.default_rng(7), 3, 2 * len(lags), 5).reshape(3, len(lags), 2, 5)[:, ::-1]
    for g, lag in enumerate(lags):
        for i in range(3):
            product = np.eye(5)
            for t in range(23 - lag, 23):
                product = J[t, i] @ product
            expected = np.log(np.linalg.norm(v[i, g] @ product.T, axis=-1))
            assert found[g, i] == pytest.approx(expected, abs=1e-11)


def test_growth_far_beyond_the_range_of_floating_point_numbers_is_followed():
    Q = ortho_group.rvs(4, size=300 * 2, random_state=2).reshape(300, 2, 4, 4)
    for s in (1e-6, 1e6):
        logs = staggered_growth(JacobianStack(s * Q), grid_lags(300), 1, np.random.default_rng(0))
        assert logs[..., 0] == pytest.approx(math.log(s) * grid_lags(300)[:, None] * np.ones((1, 2)), rel=1e-12)


@pytest.mark.parametrize(
    "layer", [elman.LSTM(3, 6, 2, rng=1), elman.RNN(3, 7, zoneout=0.3, rng=2)], ids=["lstm", "zone"]
)
def test_a_streamed_trajectory_is_the_stored_one_piece_by_piece(layer):
    x = inputs(3, T=2 * PIECE + 20, n=3)
    lengths = []

    class Spy(elman.Network):
        def linearize(self, x, h0=None):
            lengths.append(len(x))
            return super().linearize(x, h0)

    net = Spy(layer, elman.Readout(layer.output_size, 1, rng=0))
    h0 = layer(inputs(4, T=5, n=3))[1]
    whole = layer.linearize(x, h0)
    streamed = Streamed(ModelSequences(net, x, None, h0, None))
    rng = np.random.default_rng(5)
    v = rng.standard_normal((3, 2, whole.state_size))
    for product in ("jvp", "vjp"):
        norms = np.empty((2, 100, 3, 2))
        a = getattr(streamed, product)(v, 30, 130, norms=norms[0])
        b = getattr(whole, product)(v, 30, 130, norms=norms[1])
        assert np.array_equal(a, b)
        assert norms[0] == pytest.approx(norms[1], rel=1e-13)
    assert np.array_equal(streamed.jacobian(PIECE + 3, 1), whole.jacobian(PIECE + 3, 1))
    assert max(lengths) == PIECE


@pytest.mark.parametrize("s", [0.8, 1.0, 1.2])
def test_forward_level_has_the_rate_of_scaled_orthogonal_jacobians(s):
    Q = ortho_group.rvs(7, size=60 * 16, random_state=0).reshape(60, 16, 7, 7)
    d = elman.diagnose(JacobianStack(s * Q), level="forward", rng=0)
    assert d.level == "forward"
    assert d.rate == pytest.approx(math.log(s), abs=1e-12)
    assert d.curve.mean == pytest.approx(math.log(s) * np.arange(61), abs=1e-11)
    assert d.verify(JacobianStack(s * Q[::-1])).agrees


def test_forward_intervals_hold_the_exact_growth_of_gaussian_products():
    """Acceptance: E log|J v| = (log 2 + digamma(S/2)) / 2 for entries of variance 1; 95 % intervals at lag T."""
    S, T, hits = 6, 40, 0
    drift = (math.log(2) + digamma(S / 2)) / 2
    rng = np.random.default_rng(11)
    for _ in range(200):
        d = elman.diagnose(JacobianStack(rng.standard_normal((T, 8, S, S))), level="forward", rng=rng)
        hits += d.curve.low[-1] <= drift * T <= d.curve.high[-1]
    assert 180 <= hits <= 199


@pytest.mark.parametrize("make", [elman.RNN, elman.LSTM, elman.GRU, elman.MGU])
def test_three_levels_agree_on_driven_networks_and_with_the_measured_gradient(make):
    net = network(make(3, 20, rng=1))
    x = inputs(2, mean=0.3, sd=0.8)
    full = elman.diagnose(net, x, rng=0, max_sequences=20, threshold=1e-6)
    forward = elman.diagnose(net, x, level="forward", rng=0)
    weights = elman.diagnose(net, level="weights", input_mean=0.3, input_sd=0.8, length=60, rng=0)
    assert (forward.curve.n, forward.curve.logs.shape[2]) == (16, 2)
    assert (weights.curve.n, weights.curve.logs.shape[2]) == (16, 4)
    for d in (forward, weights):
        assert d.rate == pytest.approx(full.rate, abs=0.03)
        assert d.verdict == elman.diagnose(net, x, rng=0).verdict
        assert d.loss is None
    assert forward.verify().agrees
    assert weights.verify(x).agrees
    assert forward.verify().random.lags.tolist() == [1, 2, 5, 10, 20, 35, 50, 60]


def test_the_loss_of_an_lstm_starts_in_h_alone():
    net = network(elman.LSTM(3, 8, 2, rng=1))
    start = net.loss_start(inputs(2, n=4), rng=0)
    h, c = start.reshape(4, 2, 2, 8).transpose(2, 0, 1, 3)
    assert (h[:, 1] != 0).all()
    assert (h[:, 0] == 0).all()
    assert (c == 0).all()


def test_the_start_of_a_loss_is_the_same_with_and_without_a_linearization():
    net = network(elman.GRU(3, 8, rng=1))
    x, y = inputs(2, n=4), np.random.default_rng(3).standard_normal((4, 2))
    assert np.array_equal(net.loss_start(x, y), net.loss_start(x, y, lin=net.linearize(x)))


# --- weights and declared inputs ------------------------------------------------------------------------------------


def test_a_linear_network_needs_no_right_inputs():
    layer = with_weights(
        elman.RNN(2, 9, nonlinearity="identity", rng=0), weight_hh_l0=0.7 * ortho_group.rvs(9, random_state=1)
    )
    d = elman.diagnose(layer, level="weights", input_sd=3.0, length=30, rng=0)
    assert d.rate == pytest.approx(math.log(0.7), abs=1e-12)
    assert d.facts.norm == pytest.approx(0.7, rel=1e-12)
    assert d.facts.radius == pytest.approx(0.7, rel=1e-12)
    assert d.facts.rest_radius == pytest.approx(0.7, rel=1e-12)
    assert d.bound == pytest.approx(math.log(0.7), abs=1e-12)


def test_declared_moments_are_those_of_the_simulated_inputs_and_matter():
    seen = []

    class Spy(elman.RNN):
        def linearize(self, x, h0=None):
            seen.append(np.asarray(x))
            return super().linearize(x, h0)

    layer = Spy(2, 20, rng=0)
    mean, sd = np.array([1.0, -2.0]), np.array([0.5, 0.0])
    strong = elman.diagnose(layer, level="weights", input_mean=mean, input_sd=sd, length=60, rng=0)
    at_rest, x = seen
    assert at_rest.ravel() == pytest.approx(mean, abs=0)
    assert x.shape == (60, 16, 2)
    error = 0.5 / math.sqrt(60 * 16)
    assert x[..., 0].mean() == pytest.approx(1.0, abs=4 * error)
    assert x[..., 0].std() == pytest.approx(0.5, abs=4 * error)
    assert (x[..., 1] == -2).all()
    quiet = elman.diagnose(layer, level="weights", input_sd=0.0, length=60, rng=0)
    assert strong.rate < quiet.rate - 0.1


def test_what_the_weights_prove_at_rest():
    rng = np.random.default_rng(4)
    layer = elman.RNN(2, 8, rng=0)
    layer.params["bias_ih_l0"][...] = rng.standard_normal(8)
    W, U = layer.params["weight_hh_l0"], layer.params["weight_ih_l0"]
    mean = np.array([0.4, -1.0])
    d = elman.diagnose(layer, level="weights", input_mean=mean, input_sd=1.0, length=20, rng=0)
    slopes = 1 - np.tanh(U @ mean + layer.params["bias_ih_l0"]) ** 2
    assert d.facts.rest_radius == pytest.approx(np.abs(np.linalg.eigvals(slopes[:, None] * W)).max(), rel=1e-10)
    assert d.facts.norm == pytest.approx(np.linalg.svd(W)[1][0], rel=1e-12)
    assert "proves nothing about gradients of a driven network" in str(d)


def test_a_gru_at_rest_has_the_jacobian_of_its_closed_form():
    """J = I/2 + W_n/4 at zero state, input and bias."""
    layer = elman.GRU(2, 7, rng=3)
    d = elman.diagnose(layer, level="weights", input_sd=1.0, length=20, rng=0)
    J = np.eye(7) / 2 + layer.params["weight_hh_l0"][14:] / 4
    assert d.facts.rest_radius == pytest.approx(np.abs(np.linalg.eigvals(J)).max(), rel=1e-10)
    assert d.facts.radius is None
    assert d.bound is None
    assert "rho(W_hh)" not in str(d)


def test_data_declare_what_is_not_and_then_verify():
    net = network(elman.GRU(3, 16, batch_first=True, rng=2))
    x = inputs(6, mean=-1.0, sd=2.0).swapaxes(0, 1)
    d = elman.diagnose(net, x, level="weights", input_mean=x.mean((0, 1)), rng=0)
    same = elman.diagnose(net, level="weights", input_mean=x.mean((0, 1)), input_sd=x.std((0, 1)), length=60, rng=0)
    assert np.array_equal(d.curve.logs, same.curve.logs)
    assert d.facts.inputs == "white"
    v = d.verify()
    assert v.random.measured.n == 40
    assert v.agrees


# --- inputs that are not white --------------------------------------------------------------------------------------


def test_noise_of_a_declared_autocorrelation_has_it():
    """AR(1) by its powers at all lags; a cosine under an exponential; white where nothing correlates."""
    k = np.arange(1, 6)
    wave = 0.9**k * np.cos(k)
    x = autocorrelated(8, 60000, np.stack([0.8**k, wave, 0 * k], axis=1), np.random.default_rng(0))
    assert x.var(axis=1) == pytest.approx(np.ones((8, 3)), abs=0.03)
    for channel, wanted in enumerate((0.8 ** np.arange(1, 8), [*wave, None, None], np.zeros(7))):
        for lag, value in enumerate(wanted, 1):
            if value is not None:
                for t in (0, 7 - lag):
                    found = (x[t, :, channel] * x[t + lag, :, channel]).mean()
                    assert found == pytest.approx(value, abs=0.025), (channel, lag, t)
    assert abs((x[:, :, 0] * x[:, :, 1]).mean()) < 0.02


def test_a_declared_autocorrelation_longer_than_the_sequence_is_cut():
    x = autocorrelated(3, 50000, 0.5 ** np.arange(1, 9)[:, None], np.random.default_rng(1))
    assert x.shape == (3, 50000, 1)
    assert (x[0] * x[2]).mean() == pytest.approx(0.25, abs=0.02)


def test_stretches_of_a_sample_keep_its_tokens_their_frequencies_and_their_order():
    """A cycle of tokens, one hot: after each comes the next, but for where a stretch ends."""
    S = 40
    sample = np.eye(5)[(np.arange(S)[:, None] + np.arange(3)) % 5]
    x = resampled(sample, 300, 40, np.random.default_rng(0))
    assert x.shape == (300, 40, 5)
    assert np.array_equal(x.sum(axis=2), np.ones((300, 40)))
    assert x.mean(axis=(0, 1)) == pytest.approx(np.full(5, 0.2), abs=0.02)
    token = x.argmax(axis=2)
    # of joins, drawn anew with probability 2 / S, four in five show
    follows = ((token[1:] - token[:-1]) % 5 == 1).mean()
    assert follows == pytest.approx(1 - 0.8 * 2 / S, abs=0.01)


def markov_text(seed, T, n):
    """Letters that are mostly repeated, one hot: far from white."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(4, size=(T, n))
    for t in range(1, T):
        letters[t] = np.where(rng.random(n) < 0.95, letters[t - 1], letters[t])
    return 3 * np.eye(4)[letters]


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_sample_of_correlated_inputs_is_right_where_white_noise_is_not(batch_first):
    layer = elman.RNN(4, 24, batch_first=batch_first, rng=2)
    layer.params["weight_ih_l0"][...] *= 0.5
    text = markov_text(0, 80, 64)
    x = text.swapaxes(0, 1) if batch_first else text
    truth = elman.diagnose(layer, np.moveaxis(markov_text(1, 80, 128), 0, int(batch_first)), rng=0)
    sample = elman.diagnose(layer, x, level="weights", rng=0)
    white = elman.diagnose(layer, x, level="weights", input_sd=text.std(axis=(0, 1)), rng=0)
    assert sample.facts.inputs == "sample"
    assert abs(sample.rate - truth.rate) < 0.3 * abs(white.rate - truth.rate)
    assert sample.verify().random.measured.n == 32


def test_a_declared_autocorrelation_is_right_where_white_noise_is_not():
    layer, rng = elman.RNN(3, 24, rng=3), np.random.default_rng(4)
    x = autocorrelated(80, 128, 0.97 ** np.arange(1, 2)[:, None] * np.ones(3), rng)
    truth = elman.diagnose(layer, x, rng=0)
    told = {"level": "weights", "input_sd": 1.0, "length": 80, "rng": 0}
    white = elman.diagnose(layer, **told)
    right = elman.diagnose(layer, input_autocorrelation=[0.97], **told)
    assert right.facts.inputs == "autocorrelation"
    assert abs(right.rate - truth.rate) < 0.3 * abs(white.rate - truth.rate)
    # with x the moments come from it, and all of it can verify
    beside = elman.diagnose(layer, x[:, :40], level="weights", input_autocorrelation=[0.97], rng=0)
    assert beside.verify().random.measured.n == 40


def test_half_of_a_sample_is_kept_to_verify_if_there_are_four_and_of_the_length():
    layer, x = elman.GRU(3, 6, rng=0), inputs(2, T=30, n=20)
    d = elman.diagnose(layer, x, level="weights", rng=0)
    v = d.verify()
    assert v.random.measured.n == 10
    used = {row.tobytes() for row in d._reserved.x.swapaxes(0, 1)[:, 0]}
    drawn = {row.tobytes() for batch in d._predicted for row in batch.x.reshape(-1, 3)}
    assert not used & drawn
    for other in ({"x": x[:, :3]}, {"x": x, "length": 45}):
        with pytest.raises(ArgumentError, match="give x"):
            elman.diagnose(layer, level="weights", rng=0, **other).verify()


def test_what_is_printed_of_the_record_is_what_was_measured():
    recorded = json.loads(
        (Path(__file__).parents[2] / "benchmarks" / "prediction" / "weights_inputs.json").read_text("utf-8")
    )
    for told, rows in RECORD.items():
        assert {k: (v["right"], v["of"], v["rate_error"]) for k, v in recorded[told].items()} == dict(rows)
    layer = elman.RNN(3, 6, rng=0)
    told = {"input_sd": 1.0, "length": 20}
    for kind, given in (
        ("white", told), ("autocorrelation", told | {"input_autocorrelation": [0.5]}), ("sample", {"x": inputs(1)}),
    ):  # fmt: skip
        text = str(elman.diagnose(layer, level="weights", rng=0, **given))
        right, of, error = RECORD[kind]["embedded text"]
        assert f"embedded text {right} of {of} (rate off by {error:.3f})" in text


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ([1.2], ArgumentError, r"in -1 \.\. 1, got 1.2"),
        ([0.9, -0.9], ArgumentError, "stationary process, but that of channel 0 is not"),
        ([[0.5, 0.5]], ShapeError, r"\(p, 3\)"),
        ([], ShapeError, r"got shape \(0,\)"),
        ([math.nan], ArgumentError, "must be finite"),
    ],
)
def test_autocorrelations_that_cannot_be_are_refused(value, error, words):
    told = {"level": "weights", "input_sd": 1.0, "length": 9, "input_autocorrelation": value}
    with pytest.raises(error, match=words):
        elman.diagnose(elman.RNN(3, 4, rng=0), **told)


def test_initial_states_of_training_are_drawn_for_simulated_sequences():
    layer = elman.LSTM(2, 5, rng=1)
    seen = []

    class Spy(elman.LSTM):
        def linearize(self, x, h0=None):
            seen.append(h0)
            return super().linearize(x, h0)

    spy = Spy(2, 5, rng=1)
    rng = np.random.default_rng(0)
    h0 = rng.standard_normal((1, 3, 5)), rng.standard_normal((1, 3, 5))
    d = elman.diagnose(spy, level="weights", input_sd=1.0, length=10, h0=h0, rng=0)
    h, c = seen[-1]
    rows = [next(j for j in range(3) if np.array_equal(h[0, i], h0[0][0, j])) for i in range(16)]
    assert len(set(rows)) > 1
    assert np.array_equal(c[0], h0[1][0, rows])
    with pytest.raises(ArgumentError, match="was made with h0"):
        d.verify(inputs(1, T=10, n=4, D=2))
    assert d.rate != elman.diagnose(layer, level="weights", input_sd=1.0, length=10, rng=0).rate


def test_single_precision_networks_are_simulated_too():
    d = elman.diagnose(elman.GRU(2, 8, dtype="float32", rng=1), level="weights", input_sd=1.0, length=90, rng=0)
    exact = elman.GRU(2, 8, rng=1)
    assert d.dtype == np.float32
    assert d.rate == pytest.approx(
        elman.diagnose(exact, level="weights", input_sd=1.0, length=90, rng=0).rate, abs=1e-3
    )


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ArgumentError, "declare input_sd"),
        ({"input_sd": 1.0}, ArgumentError, "declare length"),
        ({"input_autocorrelation": [0.5], "length": 5}, ArgumentError, "declare input_sd"),
        ({"input_sd": -1.0, "length": 5}, ArgumentError, "must not be negative, got -1"),
        ({"input_sd": math.nan, "length": 5}, ArgumentError, "input_sd must be finite"),
        ({"input_sd": np.ones(4), "length": 5}, ShapeError, r"each of the 3 channels; got shape \(4,\)"),
        ({"input_sd": 1.0, "length": 0}, ArgumentError, r"length \(steps\) must be at least 1"),
        ({"input_sd": 1.0, "length": 5, "y": np.zeros((4, 2))}, ArgumentError, 'y belongs to level="full"'),
        ({"input_sd": np.ma.masked_array([1.0] * 3), "length": 5}, DTypeError, "input_sd must be a plain array"),
    ],
)
def test_wrong_declarations_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        elman.diagnose(elman.RNN(3, 4, rng=0), level="weights", **arguments)


def test_other_levels_refuse_what_they_would_not_use():
    layer, x = elman.RNN(3, 4, rng=0), inputs(0, n=4)
    with pytest.raises(ArgumentError, match='input_sd is declared for level="weights"'):
        elman.diagnose(layer, x, input_sd=1.0)
    with pytest.raises(ArgumentError, match='y belongs to level="full"'):
        elman.diagnose(layer, x, np.zeros((4, 2)), level="forward")
    with pytest.raises(ArgumentError, match="needs a layer or network of elman"):
        elman.diagnose(JacobianStack(np.ones((3, 2, 2, 2))), level="weights", input_sd=1.0, length=3)


def test_reports_name_the_level_its_grid_and_are_json():
    layer = elman.RNN(3, 6, rng=0)
    d = elman.diagnose(layer, level="weights", input_sd=1.0, length=30, rng=0)
    text = str(d)
    assert "weights: tangents pushed forward along inputs simulated" in text
    assert "lags 0, 1, 2, 5, 10, 20, 30; lines between" in text
    back = json.loads(json.dumps(d.to_dict()))
    assert back["level"] == "weights"
    assert back["facts"]["radius"] == pytest.approx(d.facts.radius)
    with pytest.raises(ArgumentError, match="give x"):
        d.verify()


def test_the_picture_marks_the_lags_of_the_grid():
    matplotlib.use("Agg")
    d = elman.diagnose(elman.RNN(3, 6, rng=0), inputs(1), level="forward", rng=0)
    ax = d.plot()
    (marks,) = [line for line in ax.lines if line.get_label() == "measured here, lines between"]
    assert marks.get_xdata().tolist() == [0, 1, 2, 5, 10, 20, 35, 50, 60]
    assert marks.get_ydata() == pytest.approx(d.curve.mean[d.curve.grid] / math.log(10))
    plt.close("all")


def test_long_batch_first_sequences_are_streamed_along_the_right_axis():
    x = inputs(1, T=150)
    first, second = (elman.GRU(3, 8, batch_first=b, rng=0) for b in (False, True))
    a = elman.diagnose(first, x, level="forward", rng=0)
    b = elman.diagnose(second, x.swapaxes(0, 1), level="forward", rng=0)
    assert np.array_equal(a.curve.logs, b.curve.logs)


def test_undecided_at_the_forward_level_says_how_many_sequences_it_would_take():
    layer = elman.RNN(3, 10, rng=0)
    d = elman.diagnose(layer, inputs(1), level="forward", rng=0)
    near = elman.diagnose(layer, inputs(1), level="forward", threshold=-d.curve.mean[-1] + 0.05, rng=0)
    assert near.verdict == "undecided"
    assert near.curve.n == 20
    assert near.sequences_needed > 20
    assert f"about {near.sequences_needed:.0f} sequences would decide" in str(near)


def test_the_radius_at_rest_is_that_at_the_mean_of_the_initial_states():
    layer = elman.RNN(2, 6, rng=0)
    W, b = layer.params["weight_hh_l0"], layer.params["bias_ih_l0"]
    b[...] = np.random.default_rng(2).standard_normal(6)
    h0 = 2 + np.random.default_rng(1).standard_normal((1, 5, 6))
    d = elman.diagnose(layer, level="weights", input_sd=1.0, length=20, h0=h0, rng=0)
    slopes = 1 - np.tanh(W @ h0[0].mean(axis=0) + b) ** 2
    assert d.facts.rest_radius == pytest.approx(np.abs(np.linalg.eigvals(slopes[:, None] * W)).max(), rel=1e-10)


@pytest.mark.parametrize("h0", [0.0, np.zeros(6), np.zeros((1, 0, 6)), (), (np.zeros((1, 2, 6)), np.zeros((1, 1, 6)))])
def test_initial_states_of_another_shape_are_refused(h0):
    with pytest.raises(ShapeError, match="h0 must be an array of shape"):
        elman.diagnose(elman.RNN(2, 6, rng=0), level="weights", input_sd=1.0, length=20, h0=h0, rng=0)


def test_initial_states_that_are_no_numbers_are_refused():
    with pytest.raises(DTypeError, match=r"h0 must be an array of real numbers, got 'abc' \(str\)"):
        elman.diagnose(elman.RNN(2, 6, rng=0), level="weights", input_sd=1.0, length=20, h0="abc", rng=0)
