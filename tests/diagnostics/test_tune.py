"""The search for a change, on functions with a known zero, and the words for how it ended."""

import dataclasses

import numpy as np
import pytest

import elman
from elman.diagnostics.diagnosis.tune import search


@pytest.mark.parametrize("side", [1, -1], ids=["above", "below"])
@pytest.mark.parametrize("guess", [0.7, -0.7])
@pytest.mark.parametrize("zero", [2.5, 4.0])
def test_a_zero_behind_a_dip_is_found(side, guess, zero):
    """|f| has a minimum of .05 (zero - 1) at 1, from which secant steps do not lead to the only zero."""

    def miss(a):
        return (zero - side * a) * ((side * a - 1) ** 2 + 0.05)

    tried = search(miss, miss(0.0), guess, 0.7, 1e-6, 60)
    assert min(tried, key=lambda a: abs(tried[a])) == pytest.approx(side * zero, abs=1e-5)
    assert len(tried) < 40


@pytest.mark.parametrize("miss", [lambda a: -1.0 - a * a, lambda a: -1.0 - 0.5 * np.sin(5 * a)])
def test_a_search_without_a_zero_uses_every_run_and_goes_both_ways(miss):
    tried = search(miss, miss(0.0), 0.7, 0.7, 1e-3, 20)
    assert len(tried) == 20
    assert min(tried) < 0 < max(tried)


def gru(tolerance):
    x = np.random.default_rng(0).standard_normal((30, 40, 2))
    d = elman.diagnose(elman.GRU(2, 12, rng=0), x, rng=0)
    return d.prescribe(-0.02, tolerance=tolerance, max_runs=30)


def test_a_gru_whose_rate_falls_before_it_rises_gets_to_its_target_and_is_not_blamed_for_sampling():
    p = gru(0.005)
    assert abs(p.after.rate + 0.02) <= 0.0005
    assert len(p.runs) < 15
    low, high = p.measured.rate_ci
    assert low < -0.02 + 0.005
    assert high > -0.02 - 0.005
    assert not p.reached
    assert "not decided by 20 held-out sequences whether within 0.005 of the target: take more" in str(p)
    assert "lever alone" not in str(p)


def test_what_held_out_sequences_contradict_did_not_carry_over():
    p = gru(0.005)
    apart = dataclasses.replace(p, measured=p.measured_before)
    assert apart.measured.rate_ci[1] < -0.025
    assert "NOT within 0.005 of the target: what was found did not carry over to held-out sequences" in str(apart)
    missed = dataclasses.replace(apart, after=p.before)
    assert f"this lever alone does not get there in {len(p.runs)} runs" in str(missed)
