"""The constants of the activations are the ones that the script in ``tests/data`` finds, with the error it finds."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from elman.kernels.activations import COEFFICIENTS_DOUBLE, COEFFICIENTS_SINGLE
from elman.kernels.exponential import LOG

mp = pytest.importorskip("mpmath")

FORMATS = [
    pytest.param(COEFFICIENTS_SINGLE, 4, (1, 1), -28.2, -27.6, id="float32"),
    pytest.param(COEFFICIENTS_DOUBLE, 10, (2, 3), -64.0, -60.5, id="float64"),
]
"""Constants, degree of P, degrees of A and B, binary logarithms of the relative error of e^r and of tanh x."""


@pytest.fixture(scope="module")
def fits():
    path = Path(__file__).parents[1] / "data" / "make_coefficients.py"
    spec = importlib.util.spec_from_file_location("make_coefficients", path)
    module = importlib.util.module_from_spec(spec)
    before = mp.mp.dps
    spec.loader.exec_module(module)
    yield module
    mp.mp.dps = before


@pytest.mark.parametrize(("constants", "degree", "ratio", "exp_error", "tanh_error"), FORMATS)
def test_constants_are_the_fitted_ones(fits, constants, degree, ratio, exp_error, tanh_error):
    P, _, error = fits.exponential(degree)
    np.testing.assert_allclose(constants.exp, [float(c) for c in P], rtol=1e-15)
    assert mp.log(error, 2) <= exp_error
    A, B, error = fits.tangent(*ratio)
    np.testing.assert_allclose(constants.tanh_numerator, [float(c) for c in A], rtol=1e-15)
    np.testing.assert_allclose(constants.tanh_denominator, [1.0, *(float(c) for c in B)], rtol=1e-15)
    assert mp.log(error, 2) <= tanh_error


def test_constants_of_the_logarithm_are_the_fitted_ones(fits):
    L, _, error = fits.logarithm(6)
    np.testing.assert_allclose(LOG, [float(c) for c in L], rtol=1e-15)
    assert mp.log(error, 2) <= -59.4

    def error_at(z):
        s = (z - 1) / (z + 1)
        return abs((2 * s + s**3 * fits.evaluate([mp.mpf(c) for c in LOG], s * s)) / mp.log(z) - 1)

    # rounded to float64 they keep it
    grid = [mp.mpf(2) ** (mp.mpf(i) / 2000) for i in range(-1000, 1001) if i]
    assert max(error_at(z) for z in grid) <= mp.mpf(2) ** -58.8


ROUNDED = [
    pytest.param(COEFFICIENTS_SINGLE, np.float32, -27.8, -27.1, id="float32"),
    pytest.param(COEFFICIENTS_DOUBLE, np.float64, -60.1, -56.7, id="float64"),
]
"""Constants, format, and the same logarithms once the constants are rounded to the format: well below half a place."""


@pytest.mark.parametrize(("constants", "format_", "exp_error", "tanh_error"), ROUNDED)
def test_formulas_with_rounded_constants_keep_well_below_a_rounding_error(
    fits, constants, format_, exp_error, tanh_error
):
    def sum_of(c, u):
        return fits.evaluate([mp.mpf(float(format_(x))) for x in c], u)

    def exp_error_at(r):
        return abs((1 + r + r * r * sum_of(constants.exp, r)) / mp.exp(r) - 1)

    def tanh_error_at(x):
        u = x * x
        return abs(
            (x + x * u * sum_of(constants.tanh_numerator, u) / sum_of(constants.tanh_denominator, u)) / mp.tanh(x) - 1
        )

    half = mp.log(2) / 2
    assert max(exp_error_at(half * mp.mpf(i) / 1000) for i in range(-1000, 1001)) <= mp.mpf(2) ** exp_error
    assert max(tanh_error_at(mp.mpf("0.625") * i / 1000) for i in range(1, 1001)) <= mp.mpf(2) ** tanh_error


@pytest.mark.parametrize(
    ("constants", "digits", "largest"), [(COEFFICIENTS_SINGLE, 24, 127), (COEFFICIENTS_DOUBLE, 53, 1023)]
)
def test_ln2_is_split_so_that_its_multiples_are_exact(fits, constants, digits, largest):
    high, low = mp.mpf(constants.ln2_high), mp.mpf(constants.ln2_low)
    # what k ln 2 misses stays below a rounding error of the reduced argument
    assert abs(high + low - mp.log(2)) * largest <= mp.mpf(2) ** (-digits - 1)
    numerator, _ = constants.ln2_high.as_integer_ratio()
    odd = numerator
    while odd % 2 == 0:
        odd //= 2
    assert odd * largest < 2**digits
