"""The four causes: closed forms, each term from its definition, and that they add up."""

import json
import math

import numpy as np
import pytest
from scipy.stats import ortho_group

import elman
from elman.diagnostics.diagnosis.causes import TERMS, Causes, elementwise_terms
from elman.diagnostics.gradient.bounds import norm_bound
from elman.diagnostics.gradient.growth import backward_growth, unit_vectors
from elman.linearization import ElementwiseFactors, JacobianStack


def tanh_factors(rng, T=40, n=5, S=16, g=1.5, dtype=np.float64):
    W = (g * rng.standard_normal((S, S)) / math.sqrt(S)).astype(dtype)
    h, slopes = rng.standard_normal((n, S)), np.empty((T, n, S), dtype)
    for t in range(T):
        h = np.tanh(h @ W.T + 0.5 * rng.standard_normal((n, S)))
        slopes[t] = 1 - h**2
    return ElementwiseFactors(slopes, W, 1.0)


def stack(factors):
    return JacobianStack(factors.slopes[..., None].astype(np.float64) * factors.weight.astype(np.float64))


def test_terms_add_up_to_the_growth_of_the_gradient():
    rng = np.random.default_rng(0)
    f = tanh_factors(rng)
    u = unit_vectors(rng, 5, 3, 16)
    logs = backward_growth(stack(f), u).mean(axis=2)
    for first in (0, 10):
        terms, rates = elementwise_terms(f, u, first)
        assert rates == pytest.approx((logs[-1] - logs[first]) / (40 - first), abs=1e-12)
        assert terms.sum(axis=0) == pytest.approx(rates, abs=1e-12)


def test_each_term_is_its_definition():
    """One vector at a time with dense Jacobians, and |W^T u~| computed as it is written."""
    rng = np.random.default_rng(1)
    f = tanh_factors(rng, T=12, n=2, S=6)
    start, first = unit_vectors(rng, 2, 2, 6), 4
    terms, _ = elementwise_terms(f, start, first)
    W = f.weight
    gain = math.log(math.sqrt((W**2).sum()) / math.sqrt(6))
    for i in range(2):
        rows = []
        for j in range(2):
            u = start[i, j]
            for lag in range(1, 13):
                D = np.diag(f.slopes[12 - lag, i])
                mean_square = (np.diag(D) ** 2).mean()
                u_tilde = D @ u / np.linalg.norm(D @ u)
                preference = math.log(np.linalg.norm(D @ u)) - 0.5 * math.log(mean_square)
                alignment = math.log(np.linalg.norm(W.T @ u_tilde)) - gain
                if lag > first:
                    rows.append((gain, 0.5 * math.log(mean_square), preference, alignment))
                u = (D @ W).T @ u
                u = u / np.linalg.norm(u)
        assert terms[:, i] == pytest.approx(np.mean(rows, axis=0), abs=1e-12)


def test_scaled_orthogonal_weight_with_equal_slopes_has_gain_and_saturation_only():
    Q = ortho_group.rvs(9, random_state=2)
    f = ElementwiseFactors(np.full((20, 3, 9), 0.7), 1.3 * Q, 1.0)
    terms, _ = elementwise_terms(f, unit_vectors(np.random.default_rng(2), 3, 2, 9), 10)
    assert terms[0] == pytest.approx(math.log(1.3), abs=1e-12)
    assert terms[1] == pytest.approx(math.log(0.7), abs=1e-12)
    assert terms[2:] == pytest.approx(0, abs=1e-12)


def test_gradient_on_the_one_unsaturated_unit_is_preference():
    slopes = np.array([1.0, 0.1, 0.1, 0.1])
    f = ElementwiseFactors(np.tile(slopes, (15, 2, 1)), 0.9 * np.eye(4), 1.0)
    terms, rates = elementwise_terms(f, np.eye(4)[None, :1].repeat(2, axis=0), 0)
    mean_square = (1 + 3 * 0.01) / 4
    assert terms[1] == pytest.approx(0.5 * math.log(mean_square), abs=1e-12)
    assert terms[2] == pytest.approx(-0.5 * math.log(mean_square), abs=1e-12)
    assert terms[3] == pytest.approx(0, abs=1e-12)
    assert rates == pytest.approx(math.log(0.9), abs=1e-12)


def test_gradient_along_a_rank_one_weight_is_alignment():
    W = np.zeros((4, 4))
    W[0, 0] = 1.2
    f = ElementwiseFactors(np.ones((15, 2, 4)), W, 1.0)
    terms, rates = elementwise_terms(f, unit_vectors(np.random.default_rng(3), 2, 2, 4), 1)
    assert terms[0] == pytest.approx(math.log(1.2 / 2), abs=1e-12)
    assert terms[3] == pytest.approx(math.log(2), abs=1e-12)
    assert rates == pytest.approx(math.log(1.2), abs=1e-12)


def test_dead_sequences_are_left_out():
    rng = np.random.default_rng(4)
    f = tanh_factors(rng, n=4)
    f.slopes[20, 1] = 0
    u = unit_vectors(rng, 4, 2, 16)
    terms, rates = elementwise_terms(f, u, 10)
    assert np.isnan(rates).tolist() == [False, True, False, False]
    causes = Causes.from_terms(terms, rates, 10, 40)
    others = np.array([0, 2, 3])
    expected, _ = elementwise_terms(ElementwiseFactors(f.slopes[:, others], f.weight, 1.0), u[others], 10)
    assert list(causes.terms.values()) == pytest.approx(expected.mean(axis=1), abs=1e-12)
    f.slopes[3] = 0
    assert Causes.from_terms(*elementwise_terms(f, u, 10), 10, 40) is None


def test_single_precision_factors_close_too():
    rng = np.random.default_rng(5)
    f = tanh_factors(rng, dtype=np.float32)
    u = unit_vectors(rng, 5, 2, 16, np.float32)
    terms, rates = elementwise_terms(f, u, 10)
    logs = backward_growth(stack(f), u).mean(axis=2)
    assert terms.sum(axis=0) == pytest.approx(rates, abs=1e-12)
    assert rates == pytest.approx((logs[-1] - logs[10]) / 30, abs=1e-12)


@pytest.mark.parametrize("g", [0.4, 1.0, 2.5])
def test_no_gradient_grows_faster_than_the_bound(g):
    rng = np.random.default_rng(6)
    f = tanh_factors(rng, g=g)
    bound = norm_bound(f)
    assert bound == pytest.approx(math.log(np.linalg.svd(f.weight)[1][0]), abs=1e-12)
    logs = backward_growth(stack(f), unit_vectors(rng, 5, 20, 16))
    assert (logs <= bound * np.arange(41)[:, None, None] + 1e-9).all()


def test_bound_counts_the_steepest_slope_and_survives_a_weight_of_zero():
    f = tanh_factors(np.random.default_rng(7))
    quarter = ElementwiseFactors(f.slopes / 4, f.weight, 0.25)
    assert norm_bound(quarter) == pytest.approx(norm_bound(f) - math.log(4), abs=1e-12)
    assert norm_bound(ElementwiseFactors(f.slopes, 0 * f.weight, 1.0)) == -math.inf


def test_report_shows_all_four_names_the_largest_and_is_json():
    rng = np.random.default_rng(8)
    f = tanh_factors(rng, g=0.3)
    causes = Causes.from_terms(*elementwise_terms(f, unit_vectors(rng, 5, 2, 16), 10), 10, 40)
    assert causes.largest == "gain"
    text = str(causes)
    assert all(name in text for name in TERMS)
    assert next(line for line in text.splitlines() if "largest" in line).strip().startswith("gain")
    d = json.loads(json.dumps(causes.to_dict()))
    assert sum(d[name] for name in TERMS) == pytest.approx(d["rate"], abs=1e-12)
    low, high = d["intervals"]["saturation"]
    assert low < d["saturation"] < high


def test_one_living_sequence_has_no_interval_and_says_so():
    causes = Causes.from_terms(np.ones((4, 1)), np.full(1, 4.0), 1, 3)
    assert str(causes).count("no interval (fewer than two sequences live)") == 4
    assert "nan" not in str(causes)
    assert causes != Causes.from_terms(np.ones((4, 1)), np.full(1, 4.0), 1, 3)
    assert {causes: 1}[causes] == 1


def test_a_layer_with_zoneout_has_no_elementwise_causes():
    """Its Jacobian, z + (1 - z) D W, is no product of slopes and a weight: the four terms would not add up."""
    x = np.random.default_rng(0).standard_normal((30, 24, 2))
    plain, zoned = elman.RNN(2, 12, rng=0), elman.RNN(2, 12, zoneout=0.3, rng=0)
    assert elman.diagnose(plain, x, rng=0).causes is not None
    lin, d = zoned.linearize(x), elman.diagnose(zoned, x, rng=0)
    assert lin.factors is None
    assert d.causes is None
    assert "states are carried past W_hh" in d.prescription.expect
    # what would be taken for them: the Jacobians are not elementwise
    h = np.zeros(12)
    for t in range(2):
        new = np.tanh(plain.params["weight_ih_l0"] @ x[t, 0] + plain.params["weight_hh_l0"] @ h
                      + plain.params["bias_ih_l0"] + plain.params["bias_hh_l0"])  # fmt: skip
        expected = 0.3 * np.eye(12) + 0.7 * (1 - new**2)[:, None] * plain.params["weight_hh_l0"]
        np.testing.assert_allclose(lin.jacobian(t, 0), expected, rtol=1e-12, atol=1e-14)
        h = 0.3 * h + 0.7 * new
