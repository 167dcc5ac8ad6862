"""Numbers that are known exactly, or from the theory of large random networks, for layers of this package."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import brentq

import elman
from elman import initializers


def linear(W_ih, W_hh, b):
    """A linear cell of one unit and one input."""
    layer = elman.RNN(1, 1, nonlinearity="identity")
    layer.load_state_dict(
        {
            "weight_ih_l0": np.array([[W_ih]]),
            "weight_hh_l0": np.array([[W_hh]]),
            "bias_ih_l0": np.array([b]),
            "bias_hh_l0": np.zeros(1),
        }
    )
    return layer


def test_linear_cell_by_hand():
    """h = 5 x + 4 h: 7 -> 38 -> 167, and L is the last state: dL/dW_hh = 4 * 7 + 38 and so on."""
    layer = linear(5.0, 4.0, 0.0)
    trace = layer.trace(np.array([[[2.0]], [[3.0]]]), np.array([[[7.0]]]))
    assert trace.output.ravel().tolist() == [38.0, 167.0]
    grads = layer.backward(trace, d_hn=np.ones((1, 1, 1)))
    got = [float(grads.params[k].item()) for k in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")] + [grads.h0.item()]
    assert got == [11.0, 66.0, 5.0, 16.0]


def test_linear_cell_with_a_loss_at_every_step():
    """L = sum (h - [.5, 1]) for W_ih = .7, W_hh = .001, b = .85: every number by hand."""
    layer = linear(0.7, 0.001, 0.85)
    trace = layer.trace(np.array([[[0.3]], [[2.5]]]))
    np.testing.assert_allclose(trace.output.ravel(), [1.06, 2.60106], rtol=1e-14)
    np.testing.assert_allclose((trace.output.ravel() - [0.5, 1.0]).sum(), 2.16106, rtol=1e-14)
    grads = layer.backward(trace, d_output=np.ones((2, 1, 1)))
    np.testing.assert_allclose(grads.params["weight_ih_l0"], 2.8003, rtol=1e-13)
    np.testing.assert_allclose(grads.params["weight_hh_l0"], 1.06, rtol=1e-13)
    np.testing.assert_allclose(grads.params["bias_ih_l0"], 2.001, rtol=1e-13)
    np.testing.assert_allclose(grads.h0, 0.001001, rtol=1e-13)


@pytest.mark.parametrize(
    ("w", "fixed_point", "multiplier"), [(1.5, 0.8585596366, 0.3943130255), (2.0, 0.9575040241, 0.1663720878)]
)
def test_one_unit_settles_where_tanh_meets_the_diagonal(w, fixed_point, multiplier):
    layer = elman.RNN(0, 1, bias=False)
    layer.params["weight_hh_l0"][...] = w
    x = np.zeros((300, 3, 0))
    _, hn = layer(x, np.array([[[0.2], [-0.01], [0.0]]]))
    np.testing.assert_allclose(hn.ravel(), [fixed_point, -fixed_point, 0.0], atol=2e-10)
    lin = layer.linearize(x, hn)
    np.testing.assert_allclose(lin.jacobian(5, 0), multiplier, atol=2e-10)
    np.testing.assert_allclose(lin.jacobian(5, 2), w, rtol=1e-15)
    exponents = elman.lyapunov_spectrum(lin, sequence=0).exponents
    np.testing.assert_allclose(exponents, np.log(multiplier), atol=1e-9)
    if w == 2.0:
        np.testing.assert_allclose(exponents, -1.79352851, atol=1e-8)


@pytest.mark.parametrize("s", [0.5, 0.97, 1.0, 1.3])
def test_scaled_rotation_scales_every_gradient(s):
    """W_hh = s Q: the norm after k steps is s^k times what it was."""
    layer = elman.RNN(2, 15, nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][...] *= s
    rng = np.random.default_rng(0)
    logs = layer.measure_gradient(rng.standard_normal((60, 3, 2)), rng.standard_normal((3, 15)))
    np.testing.assert_allclose(logs - logs[0], np.log(s) * np.arange(61)[:, None] * np.ones(3), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "sigmoid"])
@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
def test_bounds_of_pascanu_hold_at_every_lag(nonlinearity, gain):
    """prod sigma_min(J_t) <= |d_{t-k}| / |d_t| <= (max|phi'| sigma_max(W_hh))^k (Pascanu, Mikolov, Bengio 2013)."""
    rng = np.random.default_rng(7)
    layer = elman.RNN(3, 24, nonlinearity=nonlinearity, weight_hh_init=initializers.gaussian(gain), rng=rng)
    x = 0.5 * rng.standard_normal((40, 6, 3))
    start = rng.standard_normal((6, 24))
    logs = layer.measure_gradient(x, start)
    growth = logs - logs[0]
    flow = elman.gradient_flow(layer.linearize(x), bounds=True, rng=0)
    slack = 1e-9
    finite = np.isfinite(growth)
    assert finite.any()
    assert (growth <= flow.upper_bound + slack)[finite].all()
    assert (growth >= flow.lower_bound - slack).all() or nonlinearity == "relu"
    assert (flow.upper_bound <= flow.a_priori_bound[:, None] + slack).all()
    a_priori = np.log(elman.spectrum(layer.params["weight_hh_l0"]).norm * (0.25 if nonlinearity == "sigmoid" else 1.0))
    np.testing.assert_allclose(flow.a_priori_bound, a_priori * np.arange(41), rtol=1e-12, atol=1e-12)
    assert (growth <= a_priori * np.arange(41)[:, None] + slack)[finite].all()


def test_identity_relu_network_carries_gradients_unchanged():
    """Le, Jaitly, Hinton 2015: with positive states the Jacobian is the identity; a dead unit passes nothing."""
    layer = elman.RNN(1, 4, nonlinearity="relu", weight_hh_init="identity", rng=0)
    layer.params["weight_ih_l0"][...] = 0.1
    x = np.abs(np.random.default_rng(0).standard_normal((50, 2, 1))) + 0.1
    start = np.random.default_rng(1).standard_normal((2, 4))
    logs = layer.measure_gradient(x, start)
    assert np.array_equal(logs, np.broadcast_to(logs[0], logs.shape))
    layer.params["bias_ih_l0"][2] = -1e3
    only_dead = np.zeros((2, 4))
    only_dead[:, 2] = 1
    logs = layer.measure_gradient(x, only_dead)
    assert np.isneginf(logs[1:]).all()
    exponents = elman.lyapunov_spectrum(layer.linearize(x), rng=0).exponents
    np.testing.assert_allclose(exponents[:3], 0, atol=1e-12)
    assert np.isneginf(exponents[3])


def gauss_mean(f, q):
    """<f(h)> for h normal with variance q."""
    # the trapezoidal rule converges geometrically here; Gauss-Hermite does not, for the poles of tanh
    nodes = np.linspace(-9, 9, 4001)
    return trapezoid(f(np.sqrt(q) * nodes) * np.exp(-(nodes**2) / 2), nodes) / np.sqrt(2 * np.pi)


def mean_field_exponent(g):
    """Sompolinsky, Crisanti, Sommers 1988; discrete time: q = g^2 <tanh^2>, rate = log(g^2 <sech^4>) / 2."""
    q = brentq(lambda q: g**2 * gauss_mean(lambda h: np.tanh(h) ** 2, q) - q, 1e-3, g**2)
    return np.log(g**2 * gauss_mean(lambda h: np.cosh(h) ** -4.0, q)) / 2


@pytest.mark.parametrize(("g", "expected"), [(2.0, 0.154724), (3.0, 0.310249), (5.0, 0.532428)])
def test_largest_exponent_of_a_chaotic_network_is_the_mean_fields(g, expected):
    """N = 1024 without input; finite size allows .03. Networks of N = 4096 gave .154249 and .309583 at g = 2 and 3."""
    theory = elman.mean_field(g).rate
    np.testing.assert_allclose(theory, mean_field_exponent(g), rtol=1e-9)
    np.testing.assert_allclose(theory, expected, atol=1e-6)
    rng = np.random.default_rng(0)
    layer = elman.RNN(0, 1024, bias=False, weight_hh_init=initializers.gaussian(g), rng=rng)
    lin = layer.linearize(np.zeros((500, 1, 0)), rng.standard_normal((1, 1, 1024)))
    exponent = elman.lyapunov_spectrum(lin, k=1, warmup=150, rng=0).exponents[0]
    assert abs(exponent - expected) < 0.03


def test_volume_rule_of_a_tanh_layer():
    """The exponents' sum is log|det W_hh| plus the mean of the logs of all slopes."""
    rng = np.random.default_rng(3)
    layer = elman.RNN(2, 12, weight_hh_init=initializers.gaussian(1.4), rng=rng)
    lin = layer.linearize(rng.standard_normal((400, 1, 2)))
    spectrum = elman.lyapunov_spectrum(lin, warmup=50, rng=0)
    slopes = lin.factors.slopes[50:, 0]
    expected = np.linalg.slogdet(layer.params["weight_hh_l0"])[1] + np.log(slopes).sum(axis=1).mean()
    np.testing.assert_allclose(spectrum.exponents.sum(), expected, atol=1e-9)


def test_horizon_of_the_usual_uniform_weights():
    """Uniform(+-1/sqrt H) has g = 1/sqrt 3, so -.549 nats a step at zero input: log(1e-3) of it is 12.575 steps."""
    layer = elman.RNN(1, 512, weight_hh_init="uniform", bias_init="zeros", rng=0)
    diagnosis = elman.diagnose(layer, np.zeros((40, 16, 1)), rng=0)
    np.testing.assert_allclose(diagnosis.rate, -np.log(3) / 2, atol=0.01)
    assert diagnosis.verdict == "vanishing"
    np.testing.assert_allclose(diagnosis.horizon.steps, 12.575, atol=0.15)
