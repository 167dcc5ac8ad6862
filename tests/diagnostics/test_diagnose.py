"""diagnose and verify: closed forms, a plain NumPy network that backpropagates by its own loop, and coverage."""

import json
import math

import numpy as np
import pytest
from scipy.special import digamma, polygamma
from scipy.stats import ortho_group

import elman
from elman.diagnostics.diagnosis.diagnose import diagnose
from elman.diagnostics.diagnosis.sequences import Chosen, Diagnosable, as_sequences
from elman.diagnostics.diagnosis.verification import Verification, compare
from elman.diagnostics.gradient.curve import GrowthCurve
from elman.diagnostics.gradient.flow import gradient_flow
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from elman.linearization import ElementwiseFactors, JacobianStack, Linearization

THETA = math.log(100)


class Trajectories(Linearization):
    """Jacobians diag(slopes) W by their factors."""

    def __init__(self, slopes, weight):
        self.slopes, self.weight, self.dtype = slopes, weight, slopes.dtype
        self.n_steps, self.n_sequences, self.state_size = slopes.shape

    def jacobian(self, t, sequence=0):
        return self.slopes[t, sequence][:, None] * self.weight

    def _jvp(self, v, t0, t1, norms):
        raise NotImplementedError("a gradient needs products with the transpose only")

    def _vjp(self, u, t0, t1, norms):
        for i, t in enumerate(reversed(range(t0, t1))):
            u = (self.slopes[t][:, None] * u) @ self.weight
            if norms is not None:
                norms[i] = np.linalg.norm(u, axis=-1)
        return u

    @property
    def factors(self):
        return ElementwiseFactors(self.slopes, self.weight, 1.0)


class PlainRNN:
    """h' = phi(W_ih x + W_hh h + b), y = W_out h. Gradients by an explicit loop over steps, sequences and units."""

    def __init__(self, W_ih, W_hh, b, W_out=None, phi="tanh", batch_axis=1, dtype=np.float64):
        self.W_ih, self.W_hh, self.b = (np.asarray(p, dtype) for p in (W_ih, W_hh, b))
        self.W_out, self.phi, self.batch_axis, self.dtype = W_out, phi, batch_axis, dtype
        self.seen = []

    @classmethod
    def random(cls, seed, H=24, D=2, g=1.0, **more):
        rng = np.random.default_rng(seed)
        W_ih, W_hh = 0.7 * rng.standard_normal((H, D)), g * rng.standard_normal((H, H)) / math.sqrt(H)
        return cls(W_ih, W_hh, 0.1 * rng.standard_normal(H), rng.standard_normal((3, H)), **more)

    def run(self, x, h0):
        x = np.asarray(x, self.dtype)
        x = x if self.batch_axis == 1 else x.transpose(1, 0, 2)
        H = len(self.b)
        h = np.zeros((x.shape[1], H), self.dtype) if h0 is None else np.asarray(h0[0], self.dtype)
        states, slopes = [h], []
        for x_t in x:
            a = x_t @ self.W_ih.T + h @ self.W_hh.T + self.b
            h = np.tanh(a) if self.phi == "tanh" else np.maximum(a, 0)
            slopes.append(1 - h**2 if self.phi == "tanh" else (a > 0).astype(self.dtype))
            states.append(h)
        return np.array(states), np.array(slopes)

    def linearize(self, x, h0=None):
        self.seen.append(np.asarray(x).shape[self.batch_axis])
        return Trajectories(self.run(x, h0)[1], self.W_hh)

    def loss_start(self, x, y=None, *, loss=None, h0=None, rng=None, lin=None):
        if self.W_out is None:
            return None
        h = self.run(x, h0)[0][-1]
        if y is None:
            return rng.standard_normal((len(h), 3)) @ self.W_out
        y = np.asarray(y)
        last = y if y.ndim == 2 else (y[-1] if self.batch_axis == 1 else y[:, -1])
        assert loss == "mse"
        return (h @ self.W_out.T - last) @ self.W_out

    def measure_gradient(self, x, start, h0=None):
        slopes = self.run(x, h0)[1]
        T, n, H = slopes.shape
        logs = np.empty((T + 1, n))
        with np.errstate(divide="ignore"):
            for i in range(n):
                d_h = np.asarray(start[i], self.dtype)
                logs[0, i] = np.log(np.linalg.norm(d_h.astype(np.float64)))
                for lag in range(1, T + 1):
                    d_a = slopes[T - lag, i] * d_h
                    d_h = sum(self.W_hh[row] * d_a[row] for row in range(H))
                    logs[lag, i] = np.log(np.linalg.norm(d_h.astype(np.float64)))
        return logs


def data(seed, T=40, n=40, D=2):
    return np.random.default_rng(seed).standard_normal((T, n, D))


def gaussian(rng, T=20, n=8, S=6, scale=1.0):
    return JacobianStack(scale * rng.standard_normal((T, n, S, S)))


def gaussian_drift(S):
    """E log|J^T u| for a Gaussian matrix of variance 1: half the log of a chi-square with S degrees of freedom."""
    return (math.log(2) + digamma(S / 2)) / 2


# --- closed forms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("s", "verdict"), [(0.8, "vanishing"), (1.0, "stable"), (1.01, "stable"), (1.2, "exploding")])
def test_scaled_orthogonal_jacobians_have_rate_log_s(s, verdict):
    Q = ortho_group.rvs(7, size=60 * 4, random_state=0).reshape(60, 4, 7, 7)
    d = diagnose(JacobianStack(s * Q), rng=0)
    assert d.rate == pytest.approx(math.log(s), abs=1e-12)
    assert d.rate_ci == pytest.approx((math.log(s), math.log(s)), abs=1e-12)
    assert d.curve.mean == pytest.approx(math.log(s) * np.arange(61), abs=1e-11)
    assert d.verdict == verdict
    assert d.causes is None
    assert d.bound is None
    if s == 0.8:
        assert d.horizon.steps == pytest.approx(math.log(1e-3) / math.log(0.8), rel=1e-11)
    if s == 1.2:
        assert d.horizon.steps == math.inf
    if verdict == "stable":
        assert d.prescription is None
    else:
        assert d.prescription.factor == pytest.approx(1 / s, rel=1e-12)
    v = d.verify(JacobianStack(s * Q[::-1]))
    assert v.agrees
    assert v.random.fraction_inside == 1
    assert v.verdict == verdict


def test_prescription_brings_the_rate_of_a_linear_network_to_zero():
    rng = np.random.default_rng(1)
    lin = gaussian(rng, T=100)
    d = diagnose(lin, rng=2)
    assert d.verdict == "exploding"
    again = diagnose(JacobianStack(d.prescription.factor * lin.jacobians), rng=2)
    assert again.rate == pytest.approx(0, abs=1e-12)
    assert "does not promise better training" in str(d)


def test_uniform_default_weights_without_input_vanish_at_the_rate_of_their_variance():
    """Uniform(-1/sqrt H, 1/sqrt H) has g = 1/sqrt 3: -.549 nats a step, 1e-3 in 12.6 steps; 3 % for one W."""
    H, T = 512, 25
    rng = np.random.default_rng(3)
    net = PlainRNN(np.zeros((H, 1)), rng.uniform(-1, 1, (H, H)) / math.sqrt(H), np.zeros(H))
    d = diagnose(net, np.zeros((T, 8, 1)), rng=0)
    assert d.verdict == "vanishing"
    assert d.rate == pytest.approx(-0.549, abs=0.02)
    assert d.horizon.steps == pytest.approx(12.6, abs=0.4)
    assert d.causes.gain == pytest.approx(-0.549, abs=0.005)
    assert d.causes.saturation == pytest.approx(0, abs=1e-12)


def test_norm_bound_proves_decay_and_is_said():
    H = 16
    W = 0.6 * ortho_group.rvs(H, random_state=4)
    rng = np.random.default_rng(4)
    d = diagnose(PlainRNN(rng.standard_normal((H, 2)), W, np.zeros(H)), data(4), rng=0)
    assert d.bound == pytest.approx(math.log(0.6), abs=1e-12)
    assert d.rate < d.bound
    assert "proves decay on any input" in str(d)
    big = diagnose(PlainRNN.random(4, g=1.5), data(4), rng=0)
    assert big.bound > 0
    assert "proves nothing" in str(big)


def test_identity_relu_network_passes_gradients_unchanged():
    H = 10
    net = PlainRNN(np.abs(np.random.default_rng(5).standard_normal((H, 2))), np.eye(H), np.ones(H), phi="relu")
    d = diagnose(net, np.abs(data(5)), rng=0)
    assert d.verdict == "stable"
    assert d.curve.mean == pytest.approx(0, abs=1e-12)
    assert list(d.causes.terms.values()) == pytest.approx([0, 0, 0, 0], abs=1e-12)


# --- networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("g", [0.6, 2.0])
def test_causes_close_on_the_curve_of_the_diagnosis(g):
    d = diagnose(PlainRNN.random(6, g=g), data(6), rng=1)
    living = d.curve.sequence_logs
    rate = (living[-1] - living[10]).mean() / 30
    assert sum(d.causes.terms.values()) == pytest.approx(rate, abs=1e-10)
    assert d.causes.rate == pytest.approx(rate, abs=1e-10)


@pytest.mark.parametrize("phi", ["tanh", "relu"])
@pytest.mark.parametrize("g", [0.5, 1.3])
def test_measured_gradient_agrees_on_the_sequences_set_aside(phi, g):
    net = PlainRNN.random(7, g=g, phi=phi)
    x, y = data(7), np.random.default_rng(8).standard_normal((40, 3))
    d = diagnose(net, x, y, rng=3)
    v = d.verify()
    assert v.random.measured.n == v.loss.measured.n == 20
    assert v.agrees
    assert v.verdict == d.verdict
    assert d.loss.start == "loss"
    assert "AGREES" in str(v)


def test_changed_weights_are_found_out():
    net = PlainRNN.random(9)
    d = diagnose(net, data(9), rng=0)
    net.W_hh *= 1.2
    v = d.verify()
    assert not v.agrees
    assert not v.random.rate_agrees
    assert "DISAGREES" in str(v)


def test_prediction_on_the_very_sequences_is_the_measured_gradient():
    """With all sequences and the start of the loss on both sides, prediction and the loop differ by rounding only."""
    net, x = PlainRNN.random(10), data(10, n=3)
    y = np.random.default_rng(10).standard_normal((3, 3))
    d = diagnose(net, x, y, rng=0)
    v = d.verify(x, y)
    assert v.loss.measured.mean == pytest.approx(d.loss.mean, abs=1e-10)
    assert np.sort(v.loss.measured.logs[-1].ravel()) == pytest.approx(np.sort(d.loss.logs[-1].ravel()), abs=1e-10)


def test_batch_first_labels_at_every_step_and_initial_states_follow_their_sequences():
    x, rng = data(11, n=12), np.random.default_rng(11)
    y, h0 = rng.standard_normal((40, 12, 3)), rng.standard_normal((1, 12, 24))
    a = diagnose(PlainRNN.random(11), x, y, h0=h0, rng=5)
    b = diagnose(PlainRNN.random(11, batch_axis=0), x.swapaxes(0, 1), y.swapaxes(0, 1), h0=h0, rng=5)
    last = diagnose(PlainRNN.random(11), x, y[-1], h0=h0, rng=5)
    for other in (b, last):
        assert (other.loss.logs == a.loss.logs).all()
        assert other.verify().to_dict()["loss"]["measured"] == a.verify().to_dict()["loss"]["measured"]
    # the logs belong to states and labels of the same sequence: recompute each sequence alone
    net = PlainRNN.random(11)
    alone = []
    for i in range(12):
        part = x[:, i : i + 1], y[:, i : i + 1], h0[:, i : i + 1]
        start = net.loss_start(part[0], part[1], loss="mse", h0=part[2])
        logs = net.measure_gradient(part[0], start, part[2])
        alone.append(logs[-1, 0] - logs[0, 0])
    seen = np.concatenate([a.loss.logs[-1, :, 0], a.verify().loss.measured.logs[-1, :, 0]])
    assert np.sort(seen) == pytest.approx(np.sort(alone), abs=1e-10)


def test_without_labels_the_readout_starts_the_loss_curve_and_without_readout_there_is_none():
    net = PlainRNN.random(12)
    assert diagnose(net, data(12), rng=0).loss.start == "readout"
    assert "no labels" in str(diagnose(net, data(12), rng=0))
    net.W_out = None
    bare = diagnose(net, data(12), rng=0)
    assert bare.loss is None
    assert bare.verify().loss is None


def test_given_start_vectors_have_their_own_curve():
    """A start in the plane that shrinks: the random curve follows the plane that grows, the given one does not."""
    J = np.diag([1.1, 1.1, 0.8, 0.8]) + np.zeros((50, 4, 1, 1))
    start = np.zeros((4, 4))
    start[:, 2:] = np.random.default_rng(13).standard_normal((4, 2))
    d = diagnose(JacobianStack(J), start=start, rng=0)
    assert d.loss.start == "given"
    assert d.loss.rate == pytest.approx(math.log(0.8), abs=1e-12)
    assert d.rate == pytest.approx(math.log(1.1), abs=1e-3)
    assert d.verify(JacobianStack(J), start=start).loss.agrees


# --- how many sequences ---------------------------------------------------------------------------------------------


def test_eight_sequences_decide_a_clear_case_and_half_are_set_aside():
    net = PlainRNN.random(14, g=0.5)
    d = diagnose(net, data(14, n=200), rng=0)
    assert net.seen == [8]
    assert d.curve.n == 8
    assert d.verify().random.measured.n == 32


def test_doubling_stops_at_the_limit_undecided_with_the_number_it_would_take():
    net, x = PlainRNN.random(15, g=1.0), data(15, n=200)
    on_it = -float(diagnose(net, x, threshold=1e9, max_sequences=64, rng=0).curve.mean[-1])
    net.seen.clear()
    d = diagnose(net, x, threshold=on_it + 0.02, rng=1)
    assert d.verdict == "undecided"
    assert net.seen == [8, 8, 16, 32]
    assert d.curve.n == 64
    assert d.sequences_needed > 64
    assert d.prescription is None
    assert f"about {d.sequences_needed:.0f} sequences would decide" in str(d)


def test_the_number_it_would_take_is_right():
    """Growth of Gaussian products is known, and so is n*; with four times as many the verdict is decided."""
    S, T, rng = 6, 20, np.random.default_rng(16)
    mean, sd = T * gaussian_drift(S), math.sqrt(T * polygamma(1, S / 2) / 4)
    theta = mean - 0.4
    exact = (2.576 * sd / 0.4) ** 2
    few = [diagnose(gaussian(rng), vectors=1, threshold=theta, rng=rng) for _ in range(30)]
    assert sum(d.verdict == "undecided" for d in few) >= 25
    assert exact > 30
    more = int(4 * exact)
    options = {"vectors": 1, "threshold": theta, "max_sequences": more, "rng": rng}
    many = [diagnose(gaussian(rng, n=more), **options).verdict for _ in range(10)]
    assert many.count("exploding") >= 9
    middle = diagnose(gaussian(rng, n=4000), vectors=1, threshold=mean, max_sequences=4000, rng=rng)
    assert middle.curve.sd[-1] == pytest.approx(sd, rel=0.05)
    assert middle.curve.mean[-1] == pytest.approx(mean, abs=4 * sd / math.sqrt(4000))


@pytest.mark.parametrize(("n", "predicted", "kept"), [(2, 2, None), (3, 3, None), (4, 2, 2), (5, 3, 2), (9, 5, 4)])
def test_few_sequences(n, predicted, kept):
    d = diagnose(PlainRNN.random(17, g=0.5), data(17, n=n), rng=0, threshold=1e6)
    assert d.curve.n == predicted
    if kept is None:
        with pytest.raises(ArgumentError, match="at least 4"):
            d.verify()
    else:
        assert d.verify().random.measured.n == kept


def test_more_sequences_and_vectors_are_used_when_asked_for():
    x = data(18, n=100)
    on_it = -float(diagnose(PlainRNN.random(18), x, rng=0).curve.mean[-1])
    assert diagnose(PlainRNN.random(18), x, max_sequences=16, threshold=on_it, rng=0).curve.n == 16
    assert diagnose(PlainRNN.random(18), x, max_sequences=50, threshold=on_it, rng=0).curve.n == 50
    assert diagnose(PlainRNN.random(18), x, vectors=2, rng=0).curve.logs.shape[2] == 2


def test_same_rng_same_result_and_verification_is_repeatable():
    net, x = PlainRNN.random(19), data(19)
    a, b = diagnose(net, x, rng=7), diagnose(net, x, rng=np.random.default_rng(7))
    assert a.to_dict() == b.to_dict()
    assert a.to_dict() != diagnose(net, x, rng=8).to_dict()
    assert a.verify().to_dict() == a.verify().to_dict()


# --- coverage -------------------------------------------------------------------------------------------------------


def test_intervals_cover_the_exact_growth_of_gaussian_products_and_the_gradient_measured_beside():
    """400 diagnoses with 8 and 6 sequences: the standard error of a coverage of .95 is .011, so 3 of them is .033."""
    rng, S, T, trials = np.random.default_rng(20), 5, 15, 400
    drift = gaussian_drift(S)
    counts = np.zeros(5)
    for _ in range(trials):
        d = diagnose(gaussian(rng, T, 8, S), vectors=2, rng=rng)
        v = d.verify(gaussian(rng, T, 6, S))
        low, high = v.random.rate_interval()
        counts += (
            d.curve.low[-1] <= drift * T <= d.curve.high[-1],
            d.rate_ci[0] <= drift <= d.rate_ci[1],
            v.random.inside[-1],
            low <= v.random.measured.rate <= high,
            v.random.agrees,
        )
    assert counts[:4] / trials == pytest.approx([0.95] * 4, abs=0.033)
    assert 0.96 <= counts[4] / trials <= 1.0


# --- failure modes --------------------------------------------------------------------------------------------------


def dead_network(dead, n=24, T=30):
    """A ReLU network in which a strong negative input silences every unit in the sequences ``dead``."""
    x = np.abs(data(21, T=T, n=n, D=1))
    x[12, dead] = -1e6
    H = 8
    return PlainRNN(np.ones((H, 1)), 0.9 * np.eye(H), np.zeros(H), phi="relu"), x


def test_dead_sequences_are_reported_and_the_living_ones_predicted():
    net, x = dead_network(np.arange(0, 24, 4))
    d = diagnose(net, x, rng=0)
    dead = d.curve.n - d.curve.alive[-1]
    assert 0 < dead < d.curve.n
    assert d.dead_fraction == pytest.approx(dead / d.curve.n)
    assert d.rate == pytest.approx(math.log(0.9), abs=1e-12)
    assert d.causes.gain == pytest.approx(math.log(0.9), abs=1e-12)
    assert "exactly zero" in str(d)
    assert d.verify().random.rate_agrees


def test_all_gradients_exactly_zero():
    net, x = dead_network(np.arange(24))
    d = diagnose(net, x, rng=0)
    assert (d.verdict, d.rate, d.dead_fraction) == ("vanishing", -math.inf, 1.0)
    assert d.horizon.steps == 30 - 12
    assert d.causes is None
    assert d.prescription is None
    assert "dead units" in str(d)
    v = d.verify()
    assert v.agrees
    assert v.random.measured.dead_fraction == 1
    assert len(v.random.lags) == 17


def test_a_sequence_without_loss_is_dead_in_the_loss_curve_only():
    net, x = PlainRNN.random(22, g=0.8), data(22, n=20)
    y = net.run(x, None)[0][-1] @ net.W_out.T + 1.0
    y[::2] -= 1.0
    d = diagnose(net, x, y, rng=0)
    assert d.dead_fraction == 0
    assert 0 < d.loss.dead_fraction < 1
    assert d.verify().loss.rate_agrees


def test_a_float32_gradient_is_compared_as_far_as_its_range_goes():
    net = PlainRNN.random(23, g=0.3, dtype=np.float32)
    d = diagnose(net, data(23, T=100).astype(np.float32), rng=0)
    assert d.curve.mean[-1] < -110
    v = d.verify()
    assert v.agrees
    assert 15 < v.random.last_lag < 60
    assert v.random.measured.dead_fraction == 0
    assert "beyond it" in str(v)


def test_an_exploding_product_is_compared_before_it_overflows():
    Q = 3.0 * ortho_group.rvs(5, size=800 * 2, random_state=0).reshape(800, 2, 5, 5)
    d = diagnose(JacobianStack(Q), rng=0)
    assert d.curve.mean[-1] == pytest.approx(800 * math.log(3), rel=1e-12)
    assert "e+381" in str(d)
    v = d.verify(JacobianStack(Q))
    assert v.agrees
    assert v.random.last_lag == math.floor(0.5 * math.log(np.finfo(float).max) / math.log(3))
    assert v.verdict == "exploding"


def test_no_scale_is_prescribed_when_loss_and_rate_have_different_signs():
    """The first ten lags lose all, the others gain a little: W_hh must not be made smaller still."""
    Q = ortho_group.rvs(5, size=50 * 4, random_state=1).reshape(50, 4, 5, 5)
    factors = np.where(np.arange(50) >= 40, 0.3, 1.05)
    d = diagnose(JacobianStack(factors[:, None, None, None] * Q), rng=0)
    assert d.verdict == "vanishing"
    assert d.rate == pytest.approx(math.log(1.05), abs=1e-12)
    assert d.prescription is None
    assert "different signs" in str(d)


def test_lags_choose_what_is_compared():
    d = diagnose(PlainRNN.random(24), data(24), rng=0)
    v = d.verify(lags=[40, 1, 20])
    assert v.random.lags.tolist() == [1, 20, 40]
    assert len(v.random.inside) == 3
    assert v.random.inside.tolist() == d.verify().random.inside[[0, 19, 39]].tolist()
    for bad in ([0], [41], [], [1.5]):
        with pytest.raises(ArgumentError, match="from 1 to T = 40"):
            d.verify(lags=bad)


def test_reports_name_units_and_intervals():
    d = diagnose(PlainRNN.random(25, g=0.5), data(25), rng=0)
    text = str(d)
    assert text.startswith("Diagnosis: gradients VANISH")
    for word in ("nats/step", "95 %", "horizon", "gain", "alignment", "by lag", "exp(-rate)", "threshold"):
        assert word in text
    assert repr(d).startswith("<Diagnosis: vanishing, rate -")
    assert "\n" not in repr(d)
    assert repr(d.verify()) == "<Verification: agrees, measured vanishing>"


def test_dictionaries_are_json():
    d = diagnose(PlainRNN.random(26), data(26), rng=0)
    back = json.loads(json.dumps(d.to_dict()))
    assert back["verdict"] == d.verdict
    assert back["rate_ci"] == pytest.approx(list(d.rate_ci))
    assert back["curve"]["mean"] == pytest.approx(d.curve.mean.tolist())
    assert back["dtype"] == "float64"
    check = json.loads(json.dumps(d.verify().to_dict()))
    assert check["agrees"] in (True, False)
    assert len(check["random"]["measured"]) == 40


def test_the_plain_network_fulfils_the_protocol():
    assert isinstance(PlainRNN.random(0), Diagnosable)
    assert not isinstance(np.eye(2), Diagnosable)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"level": "deep"}, ArgumentError, 'level must be one of "weights".*"forward".*"full".*got \'deep\''),
        ({"level": "forward"}, ArgumentError, "runs the model piece by piece, for which PlainRNN lacks"),
        ({"level": "weights", "length": 9}, ArgumentError, "needs a layer or network of elman"),
        ({"length": 9}, ArgumentError, 'length is declared for level="weights"'),
        ({"threshold": 0.0}, ArgumentError, "positive number of nats"),
        ({"vectors": 0}, ArgumentError, "at least 1"),
        ({"vectors": 2.5}, DTypeError, "vectors must be an integer, got 2.5"),
        ({"vectors": "3"}, DTypeError, "vectors must be an integer, got '3'"),
        ({"threshold": "a"}, DTypeError, "threshold must be a number, got 'a'"),
        ({"threshold": math.nan}, ArgumentError, "positive number of nats"),
        ({"max_sequences": 8.5}, DTypeError, "must be an integer, got 8.5"),
        ({"max_sequences": 1}, ArgumentError, "at least 2"),
        ({"y": np.zeros(40)}, ShapeError, r"add the axis of channels, y\[\.\.\., None\]"),
        ({"x": None}, ArgumentError, "got None"),
        (
            {"x": [np.zeros((4, 2)), np.zeros((5, 2))]},
            ShapeError,
            r"x\[1\] has shape \(5, 2\).*Cut windows of one length",
        ),
        ({"x": []}, ShapeError, "three axes"),
        ({"x": np.zeros((40, 2))}, ArgumentError, r"at least 2 sequences, got 1.*elman\.datasets\.windows"),
        ({"x": np.zeros((40, 1, 2))}, ArgumentError, "at least 2 sequences, got 1"),
        ({"x": np.zeros((0, 5, 2))}, ArgumentError, "at least one time step"),
        ({"x": np.zeros(40)}, ShapeError, "three axes"),
        ({"y": np.zeros((7, 3))}, ShapeError, r"or \(40, Q\) \(at the last step only\), got \(7, 3\)"),
        ({"h0": np.zeros((1, 7, 24))}, ShapeError, r"\(layers, 40, H\).*got \(1, 7, 24\)"),
        ({"h0": np.zeros((40, 24))}, ShapeError, "one state for each sequence"),
        ({"start": np.zeros((40, 24))}, ArgumentError, "belongs to a Linearization"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(arguments, error, words):
    given = {"x": data(27), "y": None, "rng": 0} | arguments
    with pytest.raises(error, match=words):
        diagnose(PlainRNN.random(27), given.pop("x"), given.pop("y"), **given)


def test_wrong_linearizations_and_models_are_refused():
    J = np.eye(3) + np.zeros((5, 4, 1, 1))
    for name in ("x", "y", "h0"):
        with pytest.raises(ArgumentError, match=f"{name} has no meaning"):
            diagnose(JacobianStack(J), **{name: np.zeros((5, 4, 2))})
    with pytest.raises(ArgumentError, match="at least 2 sequences"):
        diagnose(JacobianStack(J[:, 0]))
    with pytest.raises(ShapeError, match=r"\(4, 3\).*got \(3, 3\)"):
        diagnose(JacobianStack(J), start=np.eye(3))
    with pytest.raises(ArgumentError, match=r"layer or network of elman.*got ndarray"):
        diagnose(J)


def test_wrong_verifications_are_refused():
    x = data(28)
    y = np.zeros((40, 3))
    net = PlainRNN.random(28)
    d = diagnose(net, x, y, h0=np.zeros((1, 40, 24)), rng=0)
    with pytest.raises(ArgumentError, match="give y for these"):
        d.verify(x, h0=np.zeros((1, 40, 24)))
    with pytest.raises(ArgumentError, match="give h0 for these"):
        d.verify(x, y)
    with pytest.raises(ArgumentError, match="go with x"):
        d.verify(y=y)
    with pytest.raises(ShapeError, match="length of the predicted ones, T = 40"):
        diagnose(net, x, rng=0).verify(x[:30])
    lin = JacobianStack(np.eye(3) + np.zeros((5, 4, 1, 1)))
    with pytest.raises(ArgumentError, match="another Linearization"):
        diagnose(lin).verify()
    with pytest.raises(ArgumentError, match="give another one, got ndarray"):
        diagnose(lin).verify(x)
    with pytest.raises(ArgumentError, match="give start for these"):
        diagnose(lin, start=np.ones((4, 3))).verify(lin)


def test_gradients_that_are_not_finite_are_refused():
    net, bad = PlainRNN.random(29), PlainRNN.random(29)
    bad.loss_start = lambda x, y=None, **more: np.full((x.shape[1], 24), np.inf)
    with pytest.raises(NonFiniteError, match="check the labels"):
        diagnose(bad, data(29), np.zeros((40, 3)), rng=0)
    d = diagnose(net, data(29), rng=0)
    broken = PlainRNN.random(29)
    broken.measure_gradient = lambda x, start, h0=None: np.full((41, start.shape[0]), np.nan)
    object.__setattr__(d._reserved, "model", broken)
    with pytest.raises(NonFiniteError, match="measured gradient is not finite at lag 0"):
        d.verify()


# --- layout of labels, numbers that are missing, identity ------------------------------------------------------------


class Classes:
    """A loss whose labels have no axis of channels."""

    target_axes = 0


@pytest.mark.parametrize("batch_axis", [0, 1])
@pytest.mark.parametrize("loss", ["cross_entropy", Classes(), "mse", object()], ids=["name", "object", "mse", "other"])
@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("T", [9, 12])
def test_labels_follow_their_sequences_where_lengths_coincide(batch_axis, loss, every, T):
    """Each label tells its sequence; n = Q = 12, and T = 12 as well in half of the cases."""
    n, channels = 12, () if loss == "cross_entropy" or isinstance(loss, Classes) else (12,)
    lengths = (T, n) if batch_axis == 1 else (n, T)
    number = np.arange(n)[:, None] if batch_axis == 0 and every else np.arange(n)
    positions = np.broadcast_to(number, lengths if every else (n,))
    y = np.broadcast_to(positions.reshape(*positions.shape, *(1 for _ in channels)), (*positions.shape, *channels))
    net = PlainRNN.random(40, batch_axis=batch_axis)
    sequences = as_sequences(net, np.zeros((*lengths, 2)), y, None, loss, None)
    which = np.array([3, 7])
    taken = sequences.take(which).y
    if every and batch_axis == 1:
        expected = np.broadcast_to(which.reshape(1, 2, *(1 for _ in channels)), (T, 2, *channels))
    else:
        expected = np.broadcast_to(which.reshape(2, *(1 for _ in taken.shape[1:])), (2, *taken.shape[1:]))
        assert taken.shape == (2, *([T] if every else []), *channels)
    np.testing.assert_array_equal(taken, expected)


def test_swapped_labels_are_named():
    with pytest.raises(ShapeError, match="time and batch are swapped"):
        diagnose(PlainRNN.random(41), data(41, n=20), np.zeros((20, 40, 3)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["x", "y", "h0"])
def test_missing_numbers_are_refused_before_anything_runs(name, value):
    given = {"x": data(42), "y": np.zeros((40, 3)), "h0": np.zeros((1, 40, 24))}
    for i in range(40):
        broken = {key: array.copy() for key, array in given.items()}
        index = {"x": (5, i, 1), "y": (i, 2), "h0": (0, i, 3)}[name]
        broken[name][index] = value
        net = PlainRNN.random(42)
        at = ", ".join(map(str, index))
        with pytest.raises(ArgumentError, match=rf"{name} must be finite, {name}\[{at}\] is {value}"):
            diagnose(net, broken["x"], broken["y"], h0=broken["h0"])
        assert net.seen == []


@pytest.mark.parametrize("name", ["x", "y", "h0"])
def test_masked_arrays_are_refused_with_a_cure(name):
    given = {"x": data(42), "y": np.zeros((40, 3)), "h0": np.zeros((1, 40, 24))}
    given[name] = np.ma.masked_greater(given[name], -1)
    with pytest.raises(DTypeError, match=rf"{name}\.filled"):
        diagnose(PlainRNN.random(42), given["x"], given["y"], h0=given["h0"])


def test_a_start_that_is_not_finite_and_a_state_of_no_size_are_refused():
    start = np.ones((4, 3))
    start[2, 1] = np.nan
    with pytest.raises(ArgumentError, match=r"start\[2, 1\] is nan"):
        diagnose(JacobianStack(np.eye(3) + np.zeros((5, 4, 1, 1))), start=start)
    with pytest.raises(ShapeError, match="a state of at least one number"):
        diagnose(JacobianStack(np.empty((5, 4, 0, 0))))


def test_results_compare_by_identity_and_can_be_keys():
    x = data(43)
    a, b = diagnose(PlainRNN.random(43), x, rng=0), diagnose(PlainRNN.random(43), x, rng=0)
    v, w = a.verify(), b.verify()
    for one, other in ((a, b), (a.curve, b.curve), (a.causes, b.causes), (v, w), (v.random, w.random)):
        assert one == one
        assert one != other
        assert len({one, other}) == 2


def test_gradient_flow_and_diagnosis_fit_over_the_same_lags():
    for T in (1, 2, 19, 20, 30):
        lin = gaussian(np.random.default_rng(T), T=T)
        d = diagnose(lin, rng=0, threshold=1e6)
        assert gradient_flow(lin, rng=0).rate == pytest.approx(d.rate, abs=1e-12)


# --- what is printed where there is little to print -------------------------------------------------------------------


def test_dead_networks_print_words_and_no_nan():
    net, x = dead_network(np.arange(24))
    d = diagnose(net, x, rng=0)
    assert "growth    none: every gradient is exactly zero after T = 30 steps" in str(d)
    assert "every gradient is exactly zero; the verdicts decide" in str(d.verify())
    for text in (str(d), str(d.verify())):
        assert "nan" not in text
    dead_at_once = diagnose(JacobianStack(np.zeros((5, 8, 3, 3))), rng=0)
    v = dead_at_once.verify(JacobianStack(np.zeros((5, 8, 3, 3))))
    assert "no lag to compare" in str(v)
    assert "nan" not in str(dead_at_once) + str(v)


def test_one_living_sequence_prints_no_nan():
    J = np.zeros((12, 2, 3, 3))
    J[:, 0] = 0.9 * np.eye(3)
    d = diagnose(JacobianStack(J), rng=0)
    text = str(d)
    assert d.verdict == "undecided"
    assert "fewer than two of them have a gradient" in text
    assert "no interval" in text
    assert "nan" not in text
    v = d.verify(JacobianStack(J))
    assert "fewer than two sequences live on one side; the verdicts decide" in str(v)
    assert "nan" not in str(v)


def test_undecided_says_how_much_the_sequences_differ_and_how_far_the_threshold_is():
    rates = np.array([-2.0, 2.0] * 4)
    J = np.exp(rates)[None, :, None, None] * np.eye(3) + np.zeros((20, 8, 3, 3))
    d = diagnose(JacobianStack(J), rng=0)
    assert d.verdict == "undecided"
    sd, distance = np.std(20 * rates, ddof=1), THETA - abs(d.curve.mean[-1])
    assert f"differ too much to decide (standard deviation {sd:.3g} nats, mean {distance:.3g} nats" in str(d)
    assert "close to the threshold" not in str(d)


def test_verification_says_what_decides():
    """Early lags far off, the end and the rate as predicted: agreement stands above few lags inside, and says why."""
    Q = ortho_group.rvs(4, size=60 * 8, random_state=2).reshape(60, 8, 4, 4)
    spread = np.exp(0.001 * np.random.default_rng(44).standard_normal(8))[None, :, None, None]
    bump = np.ones((60, 1, 1, 1))
    bump[-2], bump[0] = 1.5, 1 / 1.5
    d = diagnose(JacobianStack(spread * Q), rng=0)
    v = d.verify(JacobianStack(bump * spread * Q))
    text = str(v)
    assert v.random.end_agrees
    assert v.random.fraction_inside < 0.1
    assert "decided at 99 % by the rate and by the growth at the last lag" in text
    assert "nats at lag 60 -> agrees at 99 %" in text
    assert "which decides nothing" in text


# --- every argument has an effect, or is refused --------------------------------------------------------------------


def test_a_linearization_of_more_sequences_than_allowed_gives_so_many_and_keeps_others_to_verify():
    rng = np.random.default_rng(40)
    J = rng.standard_normal((15, 128, 5, 5))
    start = rng.standard_normal((128, 5))
    d = diagnose(JacobianStack(J), start=start, rng=3)
    assert d.curve.n == d.loss.n == 64
    v = d.verify()
    assert v.random.measured.n == 32
    assert v.agrees
    assert diagnose(JacobianStack(J), max_sequences=128, rng=3).curve.n == 128
    forward = diagnose(JacobianStack(J), level="forward", max_sequences=20, rng=3)
    assert forward.curve.n == 20
    # the one left over is too few for a spread
    with pytest.raises(ArgumentError, match="no sequences were set aside"):
        diagnose(JacobianStack(J[:, :65]), rng=3).verify()


def test_chosen_trajectories_have_their_own_products_factors_and_norms():
    rng = np.random.default_rng(41)
    slopes, W = rng.standard_normal((9, 6, 4)), rng.standard_normal((4, 4))
    which = np.array([4, 1])
    of_stack = Chosen(JacobianStack(slopes[..., None] * W), which)
    of_any = Chosen(Trajectories(slopes, W), which)
    u = rng.standard_normal((2, 3, 4))
    few = JacobianStack((slopes[..., None] * W)[:, which])
    noted = [np.empty((5, 2, 3)) for _ in range(3)]
    pulled = [lin.vjp(u, 2, 7, norms=norms) for lin, norms in zip((few, of_stack, of_any), noted, strict=True)]
    assert pulled[1] == pytest.approx(pulled[0], rel=1e-12)
    assert pulled[2] == pytest.approx(pulled[0], rel=1e-12)
    assert noted[2] == pytest.approx(noted[0], rel=1e-12)
    assert of_stack.jvp(u, 2, 7) == pytest.approx(few.jvp(u, 2, 7), rel=1e-12)
    assert np.array_equal(of_any.factors.slopes, slopes[:, which])
    for t, i in ((0, 0), (8, 1)):
        assert np.array_equal(of_any.jacobian(t, i), of_stack.jacobian(t, i))
        assert np.array_equal(of_stack.jacobian(t, i), slopes[t, which[i]][:, None] * W)


@pytest.mark.parametrize("n_max", [2, 5, 13])
@pytest.mark.parametrize("level", ["full", "forward", "weights"])
@pytest.mark.parametrize("build", [elman.RNN, elman.LSTM, elman.GRU])
def test_no_level_uses_more_sequences_than_allowed(build, level, n_max):
    layer = build(2, 5, rng=0)
    for model in (layer, elman.Network(layer, elman.Readout(5, 2, rng=1))):
        d = elman.diagnose(model, data(42), level=level, max_sequences=n_max, threshold=1e-9, rng=0)
        assert sum(batch.n for batch in d._predicted) <= n_max
        assert d.curve.n == (n_max if level != "full" else min(n_max, 8))


def test_labels_without_a_readout_are_refused_with_the_cure():
    x, y = data(43), np.zeros((40, 3))
    for layer in (elman.RNN(2, 6, rng=0), elman.LSTM(2, 6, rng=0)):
        with pytest.raises(ArgumentError, match=r"readout, which \w+ does not have.*elman\.Network\(layer"):
            diagnose(layer, x, y, rng=0)
        d = diagnose(layer, x, rng=0)
        with pytest.raises(ArgumentError, match="leave y out"):
            d.verify(data(44), y)
    assert diagnose(elman.Network(layer, elman.Readout(6, 3, rng=0)), x, y, rng=0).loss.start == "loss"


def test_arguments_without_effect_are_refused():
    x, y = data(45), np.zeros((40, 3))
    net, J = PlainRNN.random(45), JacobianStack(np.eye(3) + np.zeros((5, 4, 1, 1)))
    with pytest.raises(ArgumentError, match="there is no y"):
        diagnose(net, x, loss="mse", rng=0)
    with pytest.raises(ArgumentError, match="there is no y"):
        diagnose(J, loss="mse", rng=0)
    with pytest.raises(ArgumentError, match='loss belongs to level="full"'):
        elman.diagnose(elman.RNN(2, 4, rng=0), x, level="forward", loss="mse")
    with pytest.raises(ArgumentError, match="leave start out"):
        diagnose(J, rng=0).verify(J, start=np.ones((4, 3)))
    assert diagnose(net, x, y, loss="mse", rng=0).loss.start == "loss"


# --- what a verification is decided by ------------------------------------------------------------------------------


def comparison(shift=0.0, slope=-0.1, dtype=np.float64, predicted=-0.1, T=400):
    """Straight curves of eight sequences, 1e-4 nats a step apart; all lags of the measured ones are moved by shift."""
    lags, spread = np.arange(T + 1)[:, None], 1e-4 * np.linspace(-1, 1, 8)
    measured = lags * (slope + spread)
    measured[1:] += shift
    curve = GrowthCurve((lags * (predicted + spread))[..., None], "random", THETA)
    return compare(curve, measured[..., None], "random", dtype, np.arange(1, T + 1))


def test_a_verification_fails_by_its_end_alone_and_by_its_rate_alone():
    assert comparison().agrees
    moved = comparison(shift=3.0)
    assert (moved.rate_agrees, moved.end_agrees, moved.agrees) == (True, False, False)
    # turned about its end
    turned = comparison(slope=-0.11, shift=4.0)
    assert (turned.rate_agrees, turned.end_agrees, turned.agrees) == (False, True, False)


def test_a_verification_fails_by_its_loss_alone():
    right, wrong = comparison(), comparison(shift=3.0)
    assert Verification(right, right, 400).agrees
    assert Verification(right, None, 400).agrees
    assert not Verification(right, wrong, 400).agrees
    assert not Verification(wrong, right, 400).agrees
    assert "DISAGREES" in repr(Verification(right, wrong, 400))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("slope", [-1.0, 1.0])
def test_the_last_lag_is_where_sums_of_squares_leave_the_range_of_the_dtype(dtype, slope):
    """e^(2k) overflows; e^(-2k) keeps all digits down to the smallest normal number over eps."""
    lags, info = np.arange(401), np.finfo(dtype)
    logs = np.repeat((slope * lags)[:, None], 4, axis=1)[..., None]
    found = compare(GrowthCurve(logs, "random", THETA), logs, "random", dtype, lags[1:])
    with np.errstate(over="ignore", under="ignore"):
        squares = np.exp(2 * slope * lags.astype(np.longdouble))
    fits = squares <= info.max if slope > 0 else squares >= np.longdouble(info.tiny) / info.eps
    assert found.last_lag == np.flatnonzero(fits)[-1]
    expected = {(np.float32, -1.0): 35, (np.float32, 1.0): 44, (np.float64, -1.0): 336, (np.float64, 1.0): 354}
    assert found.last_lag == expected[dtype, slope]


class Diagonal:
    """Two units that never meet: one grows by 1.5 a step, the other by e^x; the loss reads the second."""

    batch_axis = 1

    def linearize(self, x, h0=None):
        J = np.zeros((*x.shape[:2], 2, 2))
        J[..., 0, 0], J[..., 1, 1] = 1.5, np.exp(x[..., 0])
        return JacobianStack(J)

    def loss_start(self, x, y=None, *, loss=None, h0=None, rng=None, lin=None):
        return np.tile([0.0, 1.0], (x.shape[1], 1))

    def measure_gradient(self, x, start, h0=None):
        raise NotImplementedError


def test_sampling_goes_on_while_only_the_random_start_is_decided():
    """Random vectors find the direction that always grows; that of the loss lies about the threshold."""
    x = np.zeros((40, 200, 1)) + THETA / 40 + np.where(np.arange(200) % 2, 0.2, -0.2)[:, None]
    d = diagnose(Diagonal(), x, rng=0)
    assert (d.curve.verdict, d.loss.verdict) == ("exploding", "undecided")
    assert d.curve.n == d.loss.n == 64
