"""Sums of squares: exact sums, range, strides, and one order of addition."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numba import config

from elman.kernels.squares import row_squares, sum_of_squares


def exact(a):
    return sum(Fraction(float(v)) ** 2 for v in a.reshape(-1))


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (8,), (16,), (17,), (5, 13), (3, 4, 33)])
def test_sum_is_that_of_exact_arithmetic(shape, dtype):
    a = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    assert sum_of_squares(a) == pytest.approx(float(exact(a)), rel=1e-15, abs=0)
    rows = a.reshape(math.prod(shape[:-1]), shape[-1])
    np.testing.assert_allclose(row_squares(rows), [float(exact(r)) for r in rows], rtol=1e-15)


def test_float32_is_summed_in_float64():
    assert sum_of_squares(np.full(100, 1e30, np.float32)) == pytest.approx(1e62, rel=1e-6)


def test_strides_do_not_matter(dtype):
    a = np.random.default_rng(1).standard_normal((6, 40)).astype(dtype)
    assert sum_of_squares(a[::-2, ::3]) == sum_of_squares(np.ascontiguousarray(a[::-2, ::3]))
    np.testing.assert_array_equal(row_squares(a.T), row_squares(np.ascontiguousarray(a.T)))


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e200])
def test_what_is_not_finite_is_told_without_a_warning(bad):
    for place in (0, 8, 20):
        a = np.ones(21)
        a[place] = bad
        assert not math.isfinite(sum_of_squares(a))


@pytest.mark.skipif(config.DISABLE_JIT, reason="NumPy adds in an order of its own")
def test_the_order_is_that_of_a_row_of_the_backward_pass(dtype):
    """Number j goes to the partial sum j mod (64 bytes), and halves are added: written out in NumPy."""
    a = np.random.default_rng(2).standard_normal(150).astype(dtype)
    n = 64 // dtype.itemsize
    partial = [Fraction(0)] * n
    for j, v in enumerate(a):
        # a fused multiply-add in float64 is the exact sum, rounded once
        partial[j % n] = Fraction(float(Fraction(float(v)) ** 2 + partial[j % n]))
    sums = np.array([float(p) for p in partial])
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    assert row_squares(a[None])[0] == sums[0]
