"""Full-batch training: closed forms, SciPy's own answer, weights, interrupts, failures."""

import json
import signal

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

import elman
from elman.errors import ArgumentError, DTypeError, NonFiniteError

RNG = np.random.default_rng(4)
T, N = 8, 10
X = RNG.standard_normal((T, N, 2))
Y = np.cumsum(X[..., :1], axis=0) / 3
ROWS, VALUES = RNG.standard_normal((30, 3)), RNG.standard_normal((30, 2))
QUIET = {"progress": False}


def network(**options):
    return elman.Network(elman.RNN(2, 4, rng=0, **options), elman.Readout(4, 1, rng=1, **options))


def gradient_of(net, x, y):
    trace = net.trace(x)
    return net.backward(trace, 2 * (trace.output - y) / y.size).theta


@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "CG"])
def test_a_linear_model_ends_at_the_least_squares(method):
    net = elman.Readout(3, 2, rng=0)
    result = elman.minimize(net, ROWS, VALUES, method=method, tolerance=1e-14, **QUIET)
    padded = np.column_stack([ROWS, np.ones(30)])
    expected, *_ = np.linalg.lstsq(padded, VALUES, rcond=None)
    np.testing.assert_allclose(net.params["weight"], expected[:3].T, atol=1e-6)
    np.testing.assert_allclose(net.params["bias"], expected[3], atol=1e-6)
    assert result.best == pytest.approx(np.square(padded @ expected - VALUES).mean(), rel=1e-10)
    assert result.gradient_norm < 1e-6 < result.gradient_norm_start
    assert result.loss[0] == pytest.approx(np.square(elman.Readout(3, 2, rng=0)(ROWS) - VALUES).mean(), rel=1e-12)
    assert result.loss[-1] <= result.loss[0]


def test_the_same_as_scipy_with_a_gradient_by_hand():
    net, twin = network(), network()

    def loss(theta):
        twin.theta[:] = theta
        trace = twin.trace(X)
        return np.square(trace.output - Y).mean(), gradient_of(twin, X, Y)

    other = scipy_minimize(loss, twin.theta.copy(), jac=True, method="L-BFGS-B", options={"maxiter": 15})
    result = elman.minimize(net, X, Y, max_iterations=15, **QUIET)
    np.testing.assert_allclose(net.theta, other.x, rtol=1e-7, atol=1e-9)
    assert result.iterations == other.nit == 15
    assert result.evaluations == other.nfev
    assert result.best == pytest.approx(other.fun, rel=1e-9)
    assert result.gradient_norm == pytest.approx(np.linalg.norm(other.jac), rel=1e-5)
    assert not result.converged


def test_it_ends_lower_than_as_many_passes_of_adam():
    net, other = network(), network()
    result = elman.minimize(net, X, Y, max_iterations=60, **QUIET)
    elman.fit(other, X, Y, optimizer=elman.Adam(0.02), epochs=result.evaluations, batch_size=N, rng=0, **QUIET)
    assert np.square(net(X)[0] - Y).mean() == pytest.approx(result.best, rel=1e-12)
    assert result.best < 0.5 * np.square(other(X)[0] - Y).mean()


def test_batches_do_not_matter():
    nets = [network() for _ in range(3)]
    for net, batch in zip(nets, (N, 3, 1), strict=True):
        elman.minimize(net, X, Y, batch_size=batch, max_iterations=5, **QUIET)
        np.testing.assert_allclose(net.theta, nets[0].theta, rtol=1e-9, atol=1e-11)


def test_lengths_and_lists():
    lengths = np.array([8, 8, 3, 5, 8, 1, 2, 8, 7, 8])
    spoilt = X.copy()
    for i, length in enumerate(lengths):
        spoilt[length:, i] = np.nan
    nets = [network(), network()]
    elman.minimize(nets[0], spoilt, Y, lengths=lengths, max_iterations=5, batch_size=4, **QUIET)
    items = [[a[:length, i] for i, length in enumerate(lengths)] for a in (X, Y)]
    elman.minimize(nets[1], *items, max_iterations=5, **QUIET)
    np.testing.assert_allclose(nets[0].theta, nets[1].theta, rtol=1e-9, atol=1e-11)


def test_frozen_parameters_keep_their_bits():
    net = network()
    before = {name: value.copy() for name, value in net.params.items()}
    result = elman.minimize(net, X, Y, train="readout.*", max_iterations=100, tolerance=1e-13, **QUIET)
    for name, value in net.params.items():
        assert (value.tobytes() == before[name].tobytes()) == (not name.startswith("readout."))
    solved = network()
    solved.readout.solve(solved.layer(X)[0], Y, ridge=0.0)  # the same problem in closed form
    assert result.best == pytest.approx(np.square(solved(X)[0] - Y).mean(), rel=1e-8)


class Weighted:
    """The mean over weights of squared differences."""

    takes_weight = True

    def value_and_gradient(self, output, target, weight=None):
        share = np.ones(output.shape[:-1]) if weight is None else weight
        share = (share / share.sum())[..., None] / output.shape[-1]
        difference = np.where(share > 0, output - target, 0.0)
        return float((share * difference**2).sum()), 2 * share * difference


@pytest.mark.parametrize("batch", [30, 7])
def test_weights_and_gaps(batch):
    """Whole weights are repetitions; what is missing in y has weight 0."""
    weight, net, solved = RNG.integers(0, 4, 30), elman.Readout(3, 2, rng=0), elman.Readout(3, 2)
    gaps = VALUES.copy()
    gaps[weight == 0] = np.nan
    options = {"loss": Weighted(), "tolerance": 1e-14, "batch_size": batch, "missing": "ignore"} | QUIET
    elman.minimize(net, ROWS, gaps, sample_weight=weight.astype(float), **options)
    solved.solve(np.repeat(ROWS, weight, axis=0), np.repeat(VALUES, weight, axis=0), ridge=0.0)
    np.testing.assert_allclose(net.theta, solved.theta, atol=1e-6)


class L2:
    """``strength |theta|**2``."""

    def __init__(self, strength):
        self.strength = strength

    def penalty_and_gradient(self, model, trace, d_theta, d_states):
        d_theta += 2 * self.strength * model.theta
        return self.strength * float(model.theta @ model.theta)


def test_regularisers_are_part_of_the_loss():
    net, solved = elman.Readout(3, 2, bias=False, rng=0), elman.Readout(3, 2, bias=False)
    result = elman.minimize(net, ROWS, VALUES, regularizers=[L2(0.3)], tolerance=1e-14, batch_size=7, **QUIET)
    solved.solve(ROWS, VALUES, ridge=0.3 * VALUES.size)
    np.testing.assert_allclose(net.theta, solved.theta, atol=1e-6)
    penalty = 0.3 * float(net.theta @ net.theta)
    assert result.best == pytest.approx(np.square(net(ROWS) - VALUES).mean() + penalty, rel=1e-10)


def test_float32():
    net = network(dtype="float32")
    result = elman.minimize(net, X, Y, max_iterations=30, **QUIET)
    assert net.theta.dtype == np.float32
    assert result.best < 0.1 * result.loss[0]


class Calls:
    """The mean squared error, which does something at one of its calls."""

    def __init__(self, at, what):
        self.at, self.what, self.seen, self.values, self.thetas, self.net = at, what, 0, [], [], network()

    def value_and_gradient(self, output, target):
        self.seen += 1
        value, d = elman.losses.MeanSquaredError().value_and_gradient(output, target)
        self.values.append(value)
        self.thetas.append(self.net.theta.copy())
        if self.seen in self.at:
            changed = self.what()
            if changed is not None:
                value = changed
        return value, d


def fail():
    raise ZeroDivisionError


@pytest.mark.parametrize("at", [1, 2, 9])
def test_a_failure_leaves_the_bits_of_before(at):
    loss = Calls([at], fail)
    before = loss.net.theta.tobytes()
    with pytest.raises(ZeroDivisionError):
        elman.minimize(loss.net, X, Y, loss=loss, **QUIET)
    assert loss.seen == at
    assert loss.net.theta.tobytes() == before


def test_ctrl_c_keeps_the_best():
    loss = Calls([9], lambda: signal.raise_signal(signal.SIGINT))
    result = elman.minimize(loss.net, X, Y, loss=loss, **QUIET)
    assert result.interrupted
    assert loss.seen == result.evaluations == 9
    best = int(np.argmin(loss.values))
    assert best > 0
    assert loss.net.theta.tobytes() == loss.thetas[best].tobytes()
    assert result.best == loss.values[best]
    assert "Ctrl-C" in str(result)


def test_a_second_ctrl_c_is_obeyed_at_once_and_keeps_the_best():
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    loss, handler = Calls([6], twice), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        elman.minimize(loss.net, X, Y, loss=loss, **QUIET)
    assert signal.getsignal(signal.SIGINT) is handler
    best = int(np.argmin(loss.values[:5]))  # the sixth was not finished
    assert loss.net.theta.tobytes() == loss.thetas[best].tobytes()


def test_it_turns_back_from_numbers_that_are_not_finite():
    loss = Calls([2, 3, 8], lambda: float("nan"))
    result = elman.minimize(loss.net, X, Y, loss=loss, max_iterations=40, **QUIET)
    assert result.not_finite == 3
    assert result.best < 0.1 * result.loss[0]
    assert "3 trial points" in str(result)
    loss = Calls([1], lambda: float("nan"))
    before = loss.net.theta.tobytes()
    with pytest.raises(NonFiniteError):
        elman.minimize(loss.net, X, Y, loss=loss, **QUIET)
    assert loss.net.theta.tobytes() == before


@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "CG"])
def test_an_exploding_network_comes_back(method):
    """A linear recurrence that grows overflows float32 at the first trial steps, within 400 steps of time."""
    x = np.random.default_rng(4).standard_normal((400, 1, 1))
    options = {"nonlinearity": "identity", "dtype": "float32", "rng": 0}
    layer = elman.RNN(1, 3, weight_hh_init=elman.initializers.spectral_radius(1.05), **options)
    net = elman.Network(layer, elman.Readout(3, 1, dtype="float32", rng=1))
    result = elman.minimize(net, x, np.roll(x, 1, axis=0), method=method, max_iterations=50, **QUIET)
    assert result.not_finite > 0
    assert result.best < 1.0 < 1e10 < result.loss[0]
    assert np.isfinite(net(x)[0]).all()


def test_the_result_is_plain_and_readable():
    result = elman.minimize(network(), X, Y, max_iterations=2, **QUIET)
    assert json.loads(json.dumps(result.to_dict()))["iterations"] == 2
    text = str(result)
    assert text.startswith("Minimization by L-BFGS-B: 2 iterations, ")
    assert "not converged" in text
    assert "Minimization('L-BFGS-B', iterations=2" in repr(result)


def test_the_bar(capfd):
    elman.minimize(network(), X, Y, max_iterations=3)
    assert "L-BFGS-B" in capfd.readouterr().err
    elman.minimize(network(), X, Y, max_iterations=3, progress=False)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"method": "trust-ncg"}, ArgumentError, "got 'trust-ncg': it needs products with the Hessian"),
        ({"method": "SLSQP"}, ArgumentError, "method must be one of 'L-BFGS-B'"),
        ({"method": 3}, DTypeError, "method must be one of"),
        ({"max_iterations": 0}, ArgumentError, "max_iterations must be at least 1"),
        ({"tolerance": -1.0}, ArgumentError, "tolerance must be a positive"),
        ({"batch_size": 0}, ArgumentError, "batch_size must be at least 1"),
        ({"progress": 1}, DTypeError, "progress must be True or False"),
        ({"train": "nothing"}, ArgumentError, "'nothing' matches none"),
        ({"loss": "nonsense"}, ArgumentError, "loss must be one of"),
    ],
)
def test_refusals_change_nothing(options, error, words):
    net = network()
    before = net.theta.tobytes()
    with pytest.raises(error, match=words):
        elman.minimize(net, X, Y, **(QUIET | options))
    assert net.theta.tobytes() == before


def test_noise_and_size_are_refused():
    with pytest.raises(ArgumentError, match="net must have no recurrent_dropout, got 0.2"):
        elman.minimize(noisy(), X, Y, **QUIET)
    with pytest.raises(ArgumentError, match="BFGS keeps a matrix"):
        elman.minimize(elman.Readout(100, 60), np.ones((2, 100)), np.ones((2, 60)), method="BFGS", **QUIET)


def noisy():
    return elman.Network(elman.RNN(2, 4, recurrent_dropout=0.2, rng=0), elman.Readout(4, 1, rng=1))
