"""Exponential and logarithm against 80-bit arithmetic, with the bounds that the module states."""

from __future__ import annotations

import numpy as np
import pytest
from numba import config
from ulp import extended, neighbours, points, ulp_error

from elman.kernels.exponential import exp, log

MARGIN = 0.2 if config.DISABLE_JIT else 0.0
"""Without the JIT a fused multiply-add is two roundings."""


@extended
def test_error_of_the_exponential(dtype):
    for where, x in points(dtype).items():
        x = -np.abs(x)
        exact = np.exp(x.astype(np.longdouble))
        keep = exact >= np.finfo(dtype).smallest_normal
        x, exact = x[keep], exact[keep]
        value = exp(x.copy())
        assert value.dtype == dtype
        assert ulp_error(value, exact).max() <= 1.0 + MARGIN, where


@extended
def test_error_of_the_logarithm():
    float64, rng = np.dtype(np.float64), np.random.default_rng(5)
    near_one = np.concatenate([1 + np.exp(np.linspace(-37, 0, 100_001)), 1 - np.exp(np.linspace(-37, -0.7, 100_001))])
    sets = {
        "around 1": np.concatenate([np.abs(neighbours([1.0, 0.5, 2.0], float64, 10_000)), near_one]),
        "change of exponent": np.abs(neighbours(2.0 ** (np.arange(-1022, 1023) + 0.5), float64, 40)),
        "wide": np.ldexp(1 + rng.random(200_000), rng.integers(-1022, 1023, 200_000)),
        "sums of a softmax": 1 + 1000 * rng.random(200_000),
    }
    for where, x in sets.items():
        exact = np.log(x.astype(np.longdouble))
        value, zero = log(x.copy()), exact == 0
        assert np.all(value[zero] == 0)
        assert ulp_error(value[~zero], exact[~zero]).max() <= 1.0 + MARGIN, where


def test_limits_and_exact_values(dtype):
    lowest = np.log(np.longdouble(np.finfo(dtype).smallest_normal))
    x = np.array([0, -0.0, -np.inf, np.nan, 1.001 * lowest, -np.finfo(dtype).max, -np.finfo(dtype).tiny], dtype)
    np.testing.assert_array_equal(exp(x), np.array([1, 1, 0, np.nan, 0, 0, 1], dtype))
    np.testing.assert_array_equal(log(np.array([1.0, np.nan])), [0.0, np.nan])


@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 67])
def test_no_number_knows_its_place(size, dtype):
    """Whole vectors and what is left over give the same bits; shape and neighbours that are NaN do not matter."""
    x = -np.abs(np.random.default_rng(1).standard_normal((2, size))).astype(dtype)
    alone = np.array([exp(np.array([v])) for v in x.reshape(-1)], dtype).reshape(x.shape)
    np.testing.assert_array_equal(exp(x.copy()), alone)
    spoiled = x.copy()
    spoiled[:, ::2] = np.nan
    np.testing.assert_array_equal(exp(spoiled)[:, 1::2], alone[:, 1::2])


def test_it_works_in_place(dtype):
    x = -np.arange(40, dtype=dtype)
    assert exp(x) is x
    np.testing.assert_allclose(x, np.exp(-np.arange(40.0)), rtol=1e-6)
