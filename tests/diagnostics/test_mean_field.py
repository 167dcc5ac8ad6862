import json
import math

import numpy as np
import pytest
from scipy.integrate import quad

import elman
from elman.diagnostics.random_networks.phase_diagram import phase_diagram
from elman.diagnostics.random_networks.theory import NONLINEARITIES, mean_field
from elman.errors import ArgumentError, DTypeError, ShapeError

SMOOTH = ("tanh", "sigmoid")


def gaussian_mean(f, q):
    """<f(sqrt(q) z)>, by adaptive quadrature."""
    density = lambda z: f(math.sqrt(q) * z) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    return sum(quad(density, a, b, epsabs=1e-13, limit=200)[0] for a, b in ((-12, -1), (-1, 0), (0, 1), (1, 12)))


PHI = {
    "tanh": (math.tanh, lambda x: 1 / math.cosh(min(abs(x), 300)) ** 2),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)), lambda x: 1 / (2 + 2 * math.cosh(min(abs(x), 300)))),
    "relu": (lambda x: max(x, 0.0), lambda x: float(x > 0)),
    "identity": (lambda x: x, lambda x: 1.0),
}


@pytest.mark.parametrize(("g", "rate"), [(2, 0.154724), (3, 0.310249), (5, 0.532428)])
def test_undriven_tanh_networks(g, rate):
    # Sompolinsky, Crisanti and Sommers 1988; networks of N = 4096 gave .154249 and .309583 (davidclark1/rnn-lyapunov)
    field = mean_field(g)
    assert field.rate == pytest.approx(rate, abs=1e-6)
    assert field.phase == "chaotic"
    assert field.critical_gain == 1


@pytest.mark.parametrize(("g", "s2", "rate"), [(0.9, 0.1, -0.26375), (1.5, 0.25, -0.01673), (2, 1, 0.04598)])
def test_driven_tanh_networks(g, s2, rate):
    assert mean_field(g, s2).rate == pytest.approx(rate, abs=1e-5)


def growth(g, s2, N=1024, warmup=150, steps=250):
    """Nats a step by which a tangent vector grows in one network."""
    rng = np.random.default_rng(11)
    layer = elman.RNN(N, N, bias=False, rng=0)
    layer.params["weight_hh_l0"][...] = g * rng.standard_normal((N, N)) / np.sqrt(N)
    layer.params["weight_ih_l0"][...] = np.sqrt(s2) * np.eye(N)
    x = rng.standard_normal((warmup + steps, 1, N))
    lin = layer.linearize(x, rng.standard_normal((1, 1, N)))
    v = rng.standard_normal((1, 1, N))
    v = lin.jvp(v, 0, warmup)
    return math.log(np.linalg.norm(lin.jvp(v, warmup)) / np.linalg.norm(v)) / steps


@pytest.mark.parametrize(("g", "s2"), [(2, 0), (3, 0), (0.9, 0.1), (1.5, 0.25), (2, 1)])
def test_networks_of_1024_units_do_as_predicted(g, s2):
    # for g >= 2 without input: finite size rules near g = 1
    assert growth(g, s2) == pytest.approx(mean_field(g, s2).rate, abs=0.03)


def test_default_uniform_weights():
    # variance (2 / sqrt H)^2 / 12 = (1 / sqrt 3)^2 / H; a gradient falls to 1e-3 in 12.6 steps
    field = mean_field(1 / math.sqrt(3))
    assert field.rate == pytest.approx(-0.549, abs=5e-4)
    assert field.q == 0
    assert field.phase == "ordered"
    assert math.log(1e-3) / field.rate == pytest.approx(12.6, abs=0.05)


@pytest.mark.parametrize("nonlinearity", SMOOTH)
@pytest.mark.parametrize(("g", "s2", "b2"), [(0.5, 0.2, 0.0), (1.3, 0.0, 0.4), (4.0, 0.7, 0.1), (20.0, 0.0, 0.0)])
def test_q_reproduces_itself(nonlinearity, g, s2, b2):
    value, slope = PHI[nonlinearity]
    field = mean_field(g, s2, b2, nonlinearity)
    assert field.q == pytest.approx(g * g * gaussian_mean(lambda x: value(x) ** 2, field.q) + s2 + b2, rel=1e-9)
    assert field.chi == pytest.approx(g * g * gaussian_mean(lambda x: slope(x) ** 2, field.q), rel=1e-9)
    # input and bias add to the same variance
    assert mean_field(g, s2 + b2, 0.0, nonlinearity).chi == pytest.approx(field.chi, rel=1e-12)


@pytest.mark.parametrize("nonlinearity", sorted(NONLINEARITIES))
@pytest.mark.parametrize("q", [1e-4, 0.5, 30.0, 4e4])
def test_moments(nonlinearity, q):
    value, slope = PHI[nonlinearity]
    squares, slopes = NONLINEARITIES[nonlinearity].moments(q)
    if q < 100:
        assert squares == pytest.approx(gaussian_mean(lambda x: value(x) ** 2, q), rel=1e-9)
        assert slopes == pytest.approx(gaussian_mean(lambda x: slope(x) ** 2, q), rel=1e-9)
    elif nonlinearity in SMOOTH:
        # far out the slope is a peak at 0 of area int phi'^2: 4/3 for tanh, 1/6 for the sigmoid
        area = 4 / 3 if nonlinearity == "tanh" else 1 / 6
        assert slopes == pytest.approx(area / math.sqrt(2 * math.pi * q), rel=1e-3)


@pytest.mark.parametrize("nonlinearity", SMOOTH)
@pytest.mark.parametrize("s2", [0.0, 1e-8, 0.3, 5.0])
def test_chi_is_1_at_the_critical_gain(nonlinearity, s2):
    critical = mean_field(1.0, s2, nonlinearity=nonlinearity).critical_gain
    assert mean_field(critical, s2, nonlinearity=nonlinearity).rate == pytest.approx(0, abs=1e-9)
    assert mean_field(0.99 * critical, s2, nonlinearity=nonlinearity).phase == "ordered"
    assert mean_field(1.01 * critical, s2, nonlinearity=nonlinearity).phase == "chaotic"


def test_input_suppresses_chaos():
    critical = [mean_field(1.0, s2).critical_gain for s2 in (0, 0.01, 0.1, 1.0)]
    assert critical[0] == 1
    assert (np.diff(critical) > 0).all()


def test_relu_and_linear_networks_have_closed_forms():
    for name, share in (("relu", 0.5), ("identity", 1.0)):
        field = mean_field(0.8, 0.3, 0.2, name)
        assert field.q == pytest.approx(0.5 / (1 - 0.64 * share), rel=1e-14)
        assert field.chi == pytest.approx(0.64 * share, rel=1e-14)
        assert field.critical_gain == pytest.approx(1 / math.sqrt(share), rel=1e-14)
        grown = mean_field(3.0, 0.3, nonlinearity=name)
        assert grown.q == math.inf
        assert grown.phase == "unbounded"
        assert mean_field(0.5, nonlinearity=name).q == 0
    critical = mean_field(1.0, nonlinearity="identity")
    assert math.isnan(critical.q)
    assert critical.phase == "critical"
    assert mean_field(1.0, 0.1, nonlinearity="identity").q == math.inf


def test_limits_are_defined():
    none = mean_field(0.0, 0.5)
    assert (none.q, none.chi, none.rate) == (0.5, 0, -math.inf)
    assert none.phase == "ordered"
    assert mean_field(0.0).q == 0
    assert mean_field(1.0).phase == "critical"
    # the sigmoid's resting output of 1/2 alone: q = g^2 / 4, chi = g^2 / 16 for small g
    assert mean_field(1e-3, nonlinearity="sigmoid").chi == pytest.approx(1e-6 / 16, rel=1e-6)


def test_summary_and_dict():
    field = mean_field(2.0, 0.5)
    for part in ("tanh", "chaotic", "nats/step", "critical gain", "before training"):
        assert part in str(field)
    plain = json.loads(json.dumps(field.to_dict()))
    assert plain["phase"] == "chaotic"
    assert plain["rate"] == field.rate


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(-1, ArgumentError), (math.nan, ArgumentError), (math.inf, ArgumentError)]
    + [(value, DTypeError) for value in ("1", True, None)],
)
def test_wrong_numbers_are_refused(wrong, error):
    for name, arguments in (("gain", (wrong,)), ("input_variance", (1, wrong)), ("bias_variance", (1, 0, wrong))):
        with pytest.raises(error, match=name):
            mean_field(*arguments)


def test_an_unknown_nonlinearity_is_refused():
    with pytest.raises(ArgumentError, match="'tanh', 'relu', 'sigmoid', 'identity', got 'gelu'"):
        mean_field(1.0, nonlinearity="gelu")


def test_a_sweep_is_many_mean_fields():
    gains, variances = [0.5, 1.5, 3.0], [0.0, 0.4]
    diagram = phase_diagram(gains, variances, 0.1, "tanh")
    expected = [[mean_field(g, s2, 0.1).rate for g in gains] for s2 in variances]
    np.testing.assert_array_equal(diagram.rate, expected)
    np.testing.assert_array_equal(diagram.critical_gain, [mean_field(1.0, s2, 0.1).critical_gain for s2 in variances])
    assert "critical gain" in str(diagram)
    assert "2 input variances x 3 gains" in repr(diagram)
    assert json.loads(json.dumps(diagram.to_dict()))["gains"] == gains


def test_the_nonlinearities_have_the_names_of_a_layer():
    assert set(NONLINEARITIES) == set(elman.RNN.NONLINEARITIES)
    with pytest.raises(ArgumentError, match="'identity', got 'linear'"):
        mean_field(1.0, nonlinearity="linear")


def test_wrong_sweeps_are_refused():
    with pytest.raises(ArgumentError, match="gains must ascend"):
        phase_diagram([1, 1], [0, 1])
    with pytest.raises(ShapeError, match="input_variances must be a sequence of at least two"):
        phase_diagram([1, 2], [0])
    with pytest.raises(ArgumentError, match="gain"):
        phase_diagram([-1, 2], [0, 1])


@pytest.mark.parametrize("name", ["tanh", "relu", "sigmoid", "identity"])
@pytest.mark.parametrize("numbers", [(1e200,), (1.0, 1e308, 1e308)])
def test_a_variance_that_overflows_is_refused(name, numbers):
    with pytest.raises(ArgumentError, match="must be a finite float64"):
        elman.mean_field(*numbers, nonlinearity=name)
