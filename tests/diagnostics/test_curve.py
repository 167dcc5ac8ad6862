"""Statistics of growth curves against SciPy's, closed forms, and by counting how often intervals hold the truth."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from elman.diagnostics.gradient.curve import GrowthCurve
from elman.diagnostics.gradient.intervals import mean_interval, t_quantile, welch_half_width
from elman.errors import ArgumentError

THETA = math.log(100)


def curve(logs, threshold=THETA):
    logs = np.asarray(logs, dtype=np.float64)
    return GrowthCurve(logs if logs.ndim == 3 else logs[..., None], "random", threshold)


def lines(slopes, T=40):
    """Straight curves (T + 1, n)."""
    return np.arange(T + 1)[:, None] * np.asarray(slopes)


def walks(rng, T, n, K, drift=0.0, between=0.3, within=0.2):
    """Gaussian random walks with a part shared by the vectors of a sequence: the statistics are known exactly."""
    steps = drift + between * rng.standard_normal((T, n, 1)) + within * rng.standard_normal((T, n, K))
    return np.concatenate([np.zeros((1, n, K)), steps.cumsum(axis=0)])


def test_t_quantile_is_that_of_scipy_and_nan_without_degrees_of_freedom():
    for df in (1, 3, 7, 63):
        assert t_quantile(0.95, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-10)
    both = t_quantile(0.99, np.array([0, 5]))
    assert np.isnan(both[0])
    assert both[1] == pytest.approx(stats.t.ppf(0.995, 5), rel=1e-10)


def test_mean_interval_is_students():
    x = np.random.default_rng(0).normal(2, 3, 9)
    mean, low, high = mean_interval(x, 0.9)
    assert (low, high) == pytest.approx(stats.t.interval(0.9, 8, x.mean(), stats.sem(x)), rel=1e-10)
    assert mean == pytest.approx(x.mean())
    assert np.isnan(mean_interval(np.array([]))).all()
    assert mean_interval(np.array([4.0]))[0] == 4.0
    assert np.isnan(mean_interval(np.array([4.0]))[1])


def test_welch_half_width_is_that_of_scipys_unequal_variance_test():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, 6), rng.normal(0, 4, 17)
    ours = welch_half_width((a.std(ddof=1), b.std(ddof=1)), (6, 17), 0.95)
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert ours == pytest.approx((theirs.high - theirs.low) / 2, rel=1e-9)
    assert welch_half_width((0.0, 0.0), (5, 5)) == 0
    assert np.isnan(welch_half_width((1.0, 1.0), (1, 5)))


def test_straight_curves_give_rate_and_horizon_exactly():
    c = curve(lines([-0.23, -0.17, -0.2]))
    assert c.rate == pytest.approx(-0.2, rel=1e-12)
    assert c.slopes == pytest.approx([-0.23, -0.17, -0.2], rel=1e-12)
    assert c.horizon.steps == pytest.approx(math.log(1e-3) / -0.2, rel=1e-12)
    assert not c.horizon.extrapolated
    half = stats.t.ppf(0.975, 2) * 0.03 / math.sqrt(3)
    assert c.rate_ci == pytest.approx((-0.2 - half, -0.2 + half), rel=1e-9)
    assert c.horizon.low == pytest.approx(math.log(1e-3) / (-0.2 - half), rel=1e-9)
    assert c.horizon.high == pytest.approx(math.log(1e-3) / (-0.2 + half), rel=1e-9)
    assert c.horizon.high > 40
    assert "* EXTRAPOLATED beyond T = 40" in str(c.horizon)


def test_rate_begins_where_the_start_is_forgotten():
    bent = np.where(np.arange(41) < 10, 3.0, 0.0)[:, None] + lines([-0.1, -0.3])
    assert curve(bent).first_lag == 10
    assert curve(bent).rate == pytest.approx(-0.2, rel=1e-12)
    assert [curve(lines([0.0, 0.0], T=T)).first_lag for T in (1, 2, 19, 20, 21)] == [0, 1, 1, 10, 10]
    assert curve(bent[:21]).rate == pytest.approx(-0.2, rel=1e-12)
    assert curve(bent[:20]).first_lag == 1
    assert curve(bent[:20]).rate != pytest.approx(-0.2, rel=0.1)
    assert curve(lines([0.5, 0.7], T=1)).rate == pytest.approx(0.6)


def test_horizon_beyond_the_sequence_is_extrapolated_or_infinite():
    c = curve(lines([-0.1, -0.1], T=30))
    assert c.horizon.steps == pytest.approx(math.log(1e-3) / -0.1, rel=1e-12)
    assert c.horizon.extrapolated
    assert curve(lines([0.1, 0.0])).horizon.steps == math.inf
    assert curve(lines([-0.1, -0.1], T=100)).horizon.extrapolated is False


def test_local_rates_follow_the_position():
    steps = np.repeat([-0.1, -0.2, -0.3, -0.4], 10)
    logs = np.concatenate([[0], steps.cumsum()])[:, None] + np.zeros(3)
    edges, rates = curve(logs).local_rates()
    assert edges.tolist() == [0, 10, 20, 30, 40]
    assert rates == pytest.approx([-0.1, -0.2, -0.3, -0.4], rel=1e-12)


def test_dead_sequences_are_counted_and_never_averaged():
    logs = lines([-0.1, -0.1, -0.1, -0.1, -0.1])
    logs[7:, 1] = -np.inf
    c = curve(logs)
    assert c.dead_fraction == pytest.approx(0.2)
    assert c.alive.tolist() == [5] * 7 + [4] * 34
    assert c.mean == pytest.approx(-0.1 * np.arange(41), abs=1e-12)
    assert c.rate == pytest.approx(-0.1, rel=1e-12)
    assert c.verdict == "stable"


@pytest.mark.parametrize(
    ("n", "dead", "verdict"),
    [(8, 8, "vanishing"), (16, 15, "vanishing"), (16, 14, "vanishing"), (16, 13, "stable"), (8, 5, "stable")],
)
def test_sign_test_on_dead_sequences(n, dead, verdict):
    # P(X >= 13, 14, 15 of 16) = .0106, .0021, 2.6e-4 for a median that lives, P(X >= 5 of 8) = .36; the level is .01
    logs = lines(np.zeros(n))
    logs[3:, :dead] = -np.inf
    assert curve(logs).verdict == verdict


def test_nobody_alive():
    logs = lines([-0.1, -0.2])
    logs[5:, 0], logs[9:, 1] = -np.inf, -np.inf
    c = curve(logs)
    assert (c.verdict, c.rate, c.dead_fraction) == ("vanishing", -math.inf, 1.0)
    assert c.horizon.steps == 9
    assert np.isnan(c.rate_ci).all()
    assert np.isnan(c.sd[9:]).all()
    assert np.isneginf(c.mean[9:]).all()
    assert np.isnan(c.local_rates()[1]).all()
    assert c.sequences_needed is None


def test_one_survivor_of_two_decides_nothing():
    logs = lines([0.0, 0.0])
    logs[5:, 0] = -np.inf
    assert curve(logs).verdict == "undecided"
    assert curve(logs).sequences_needed is None


@pytest.mark.parametrize(
    ("end", "verdict"),
    [(-8, "vanishing"), (-5.2, "undecided"), (-4, "undecided"), (0, "stable"), (4.3, "undecided"), (8, "exploding")],
)
def test_verdict_asks_the_99_per_cent_interval(end, verdict):
    sample = np.array([-1.0, 1.0, -0.5, 0.5, 0.7, -0.7])
    half = stats.t.ppf(0.995, 5) * stats.sem(sample)
    assert 1.2 < half < 1.5
    assert curve(lines((end + sample) / 40)).verdict == verdict


def test_sequences_needed_is_the_smallest_number_that_decides():
    sample = np.array([-1.0, 1.0, -0.5, 0.5, 0.7, -0.7])
    c = curve(lines((sample - 4.2) / 40))
    n = c.sequences_needed
    sd = sample.std(ddof=1)
    distance = THETA - 4.2

    def half(m):
        return stats.t.ppf(0.995, m - 1) * sd / math.sqrt(m)

    assert half(n) < distance <= half(n - 1)
    assert n == pytest.approx((2.6 * sd / distance) ** 2, rel=0.15)
    assert curve(lines((sample - 8) / 40)).sequences_needed is None
    assert curve(lines(np.array([-1.0, 1.0])), 1e-300).sequences_needed == math.inf


def test_sequences_needed_allows_for_dead_ones():
    sample = np.array([-1.0, 1.0, -0.5, 0.5, 0.7, -0.7])
    alive = lines((sample - 4.2) / 40)
    with_dead = np.concatenate([alive, np.full((41, 2), -np.inf)], axis=1)
    assert curve(with_dead).sequences_needed == math.ceil(curve(alive).sequences_needed * 8 / 6)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """2000 samples of 8 sequences x 3 vectors: standard error of a coverage of .95 is .005, so 3.5 of them is .017."""
    rng = np.random.default_rng(5)
    T, trials, drift = 12, 2000, -0.1
    inside_mean = inside_rate = inside_single = inside_two = 0
    for _ in range(trials):
        c = curve(walks(rng, T, 8, 3, drift))
        inside_mean += c.low[-1] <= drift * T <= c.high[-1]
        inside_rate += c.rate_ci[0] <= drift <= c.rate_ci[1]
        one = walks(rng, T, 1, 1, drift)[-1, 0, 0]
        inside_single += c.single_low[-1] <= one <= c.single_high[-1]
        other = curve(walks(rng, T, 5, 3, drift))
        half = welch_half_width((c.sd[-1], other.sd[-1]), (8, 5))
        inside_two += abs(c.mean[-1] - other.mean[-1]) <= half
    for count in (inside_mean, inside_rate, inside_single, inside_two):
        assert count / trials == pytest.approx(0.95, abs=0.017)


def test_single_interval_is_wider_than_that_of_the_average_over_vectors():
    rng = np.random.default_rng(6)
    c = curve(walks(rng, 40, 4000, 4))
    width = (c.single_high - c.single_low)[-1] / 2 / stats.norm.ppf(0.975)
    assert width == pytest.approx(math.sqrt(40 * (0.3**2 + 0.2**2)), rel=0.04)
    assert c.sd[-1] == pytest.approx(math.sqrt(40 * (0.3**2 + 0.2**2 / 4)), rel=0.04)


def test_truncated_and_to_dict():
    c = curve(lines([-0.1, -0.2]))
    assert c.truncated(15).n_steps == 15
    assert c.truncated(15).rate == pytest.approx(-0.15)
    for last in (0, 41):
        with pytest.raises(ArgumentError, match="lag of the curve"):
            c.truncated(last)
    d = json.loads(json.dumps(c.to_dict()))
    assert d["lags"] == list(range(41))
    assert d["mean"] == pytest.approx(c.mean.tolist())
    assert d["horizon"]["extrapolated"] is (c.horizon.steps > 40)
    assert "rate -0.15" in repr(c)


def test_equality_is_identity_and_curves_are_hashable():
    a, b = curve(lines([0.1, 0.2])), curve(lines([0.1, 0.2]))
    assert a == a
    assert a != b
    assert len({a, b}) == 2


def test_a_horizon_without_interval_says_so():
    one = curve(lines([-0.5]))
    assert one.horizon.steps == pytest.approx(math.log(1e3) / 0.5)
    assert "no interval" in str(one.horizon)
    assert "nan" not in str(one.horizon)
