"""Activations against 80-bit arithmetic over the whole range, and their derivatives from the output.

Without the JIT there is no fused multiply-add and each becomes two roundings. The last operations rule the error, so
that it hardly grows: a tenth of a place is added to the bounds.
"""

from __future__ import annotations

import numpy as np
import pytest
from naive import FLUSHES, flushed_numbers
from numba import config
from ulp import extended, neighbours, points, ulp_error

from elman.kernels.activations import (
    COEFFICIENTS_DOUBLE,
    COEFFICIENTS_SINGLE,
    MAX_SLOPE,
    NONLINEARITIES,
    activate_rows,
    evaluate,
    scale_rows,
    slope,
)
from elman.kernels.vector import lanes_of

BOUND = {"tanh": 1.6, "sigmoid": 2.1} if config.DISABLE_JIT else {"tanh": 1.5, "sigmoid": 2.0}
"""Largest error in units in the last place; with the JIT what the docstring of the module states."""


def reference(name, x):
    """The function in extended precision."""
    x = x.astype(np.longdouble)
    with np.errstate(over="ignore"):
        return np.tanh(x) if name == "tanh" else 1 / (1 + np.exp(-x))


@extended
@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_error_is_as_stated_over_the_whole_range(name, dtype):
    for where, x in points(dtype).items():
        exact = reference(name, x)
        if name == "sigmoid" or FLUSHES:
            # results below the smallest normal number are 0: the tests after the next
            keep = np.abs(exact) >= np.finfo(dtype).smallest_normal
            x, exact = x[keep], exact[keep]
            if not len(x):
                continue
        value = evaluate(name, x)
        assert value.dtype == dtype
        error = ulp_error(value, exact)
        worst = int(np.argmax(error))
        assert error[worst] <= BOUND[name], f"{where}: {float(error[worst]):.3f} ULP at {x[worst]!r}"


@pytest.mark.skipif(config.DISABLE_JIT, reason="the bound is that of compiled code")
@extended
def test_the_error_measure_sees_one_place(dtype):
    x = np.linspace(-3, 3, 1001).astype(dtype)
    exact = reference("tanh", x)
    shifted = np.nextafter(np.nextafter(evaluate("tanh", x), dtype.type(2)), dtype.type(2))
    assert ulp_error(shifted, exact).max() > BOUND["tanh"]


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_limits(name, dtype):
    largest = np.finfo(dtype).max
    x = np.array([1e4, largest, np.inf], dtype)
    upper, lower = {"tanh": (1, -1), "sigmoid": (1, 0), "relu": (x, 0), "identity": (x, -x)}[name]
    np.testing.assert_array_equal(evaluate(name, x), np.broadcast_to(upper, 3).astype(dtype))
    np.testing.assert_array_equal(evaluate(name, -x), np.broadcast_to(lower, 3).astype(dtype))


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_nan_stays_nan_and_spoils_no_neighbour(name, dtype):
    x = np.linspace(-3, 3, 67).astype(dtype)
    spoiled = x.copy()
    spoiled[[0, 13, 66]] = np.nan, -np.nan, np.nan
    value, clean = evaluate(name, spoiled), evaluate(name, x)
    assert np.flatnonzero(np.isnan(value)).tolist() == [0, 13, 66]
    rest = ~np.isnan(spoiled)
    assert value[rest].tobytes() == clean[rest].tobytes()


@pytest.mark.parametrize("name", ["tanh", "relu", "identity"])
def test_the_sign_of_zero_is_kept(name, dtype):
    value = evaluate(name, np.array([0.0, -0.0], dtype))
    assert (value == 0).all()
    assert np.signbit(value).tolist() == [False, True]


@pytest.mark.parametrize("name", ["relu", "identity"])
def test_piecewise_linear_functions_are_exact(name, dtype):
    x = np.concatenate(list(points(dtype).values()))
    expected, value = np.where(x < 0, 0, x) if name == "relu" else x, evaluate(name, x)
    # nothing is computed, so a subnormal number may pass; a product gives none
    np.testing.assert_array_equal(flushed_numbers(value), flushed_numbers(expected))


def test_tanh_is_odd_and_tiny_arguments_pass_unchanged(dtype):
    x = np.concatenate(list(points(dtype).values()))
    assert evaluate("tanh", -x).tobytes() == (-evaluate("tanh", x)).tobytes()
    tiny = x[np.abs(x) < np.sqrt(np.finfo(dtype).eps) / 4]
    assert len(tiny) > 1000
    np.testing.assert_array_equal(evaluate("tanh", tiny), flushed_numbers(tiny))


@extended
def test_sigmoid_is_zero_exactly_where_the_truth_is_below_the_smallest_normal_number(dtype):
    single = dtype == np.float32
    lowest = dtype.type((COEFFICIENTS_SINGLE if single else COEFFICIENTS_DOUBLE).sigmoid_lowest)
    near = np.sort(neighbours([-lowest], dtype, 2_000))
    near = near[near < 0]
    normal = reference("sigmoid", near) >= np.finfo(dtype).smallest_normal
    assert 0 < normal.sum() < len(near)
    value = evaluate("sigmoid", near)
    assert (value[~normal] == 0).all()
    assert (value[normal] >= np.finfo(dtype).smallest_normal).all()
    assert -87.34 < lowest < -87.33 if single else -708.40 < lowest < -708.39


def test_sigmoid_stays_within_its_range_and_reaches_one_where_one_is_nearest(dtype):
    x = np.concatenate(list(points(dtype).values()))
    value = evaluate("sigmoid", x)
    assert value.min() >= 0
    assert value.max() == 1
    # 1 - e^-x rounds to 1 from x = ln(2 / eps) on, where e^-x is a quarter of a place above and half of one below
    assert (value[x > np.log(4 / np.finfo(dtype).eps)] == 1).all()


@pytest.mark.parametrize("name", NONLINEARITIES)
@pytest.mark.parametrize("shape", [(0,), (1,), (33,), (3, 5, 7), (2, 0, 4), ()])
def test_any_shape_and_any_place_give_the_same_bits(name, shape, dtype):
    x = np.asarray(np.random.default_rng(2).normal(size=shape) * 3, dtype)
    before = x.copy()
    value = evaluate(name, x)
    assert value.shape == x.shape
    assert value.dtype == dtype
    assert x.tobytes() == before.tobytes()
    one_by_one = np.array([evaluate(name, x.reshape(-1)[i : i + 1])[0] for i in range(x.size)], dtype)
    assert value.tobytes() == one_by_one.tobytes()


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_rows_apart_are_treated_and_the_gaps_are_not(name, dtype):
    width = lanes_of(dtype.itemsize)
    rows, stride = 5, 4 * width
    a = np.random.default_rng(3).normal(size=rows * stride).astype(dtype)
    before = a.reshape(rows, stride).copy()
    assert activate_rows(NONLINEARITIES.index(name), a, stride, rows, 3) == 1
    after = a.reshape(rows, stride)
    assert after[:, : 3 * width].tobytes() == evaluate(name, before[:, : 3 * width]).tobytes()
    assert after[:, 3 * width :].tobytes() == before[:, 3 * width :].tobytes()


@pytest.mark.parametrize("name", NONLINEARITIES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_status_tells_whether_every_result_is_finite(name, bad, dtype):
    width = lanes_of(dtype.itemsize)
    code, n = NONLINEARITIES.index(name), 2 * 3 * width
    finite_limit = not np.isnan(bad) and (name in ("tanh", "sigmoid") or (name == "relu" and bad < 0))
    for at in (0, width - 1, width, 3 * width, n - 1):
        a = np.linspace(-1, 1, n).astype(dtype)
        a[at] = bad
        assert activate_rows(code, a, 3 * width, 2, 3) == int(finite_limit)
    assert activate_rows(code, np.ones(n, dtype), 3 * width, 0, 3) == 1


def true_slope(name, x):
    """Derivative of the function, in extended precision, where it exists."""
    x = x.astype(np.longdouble)
    if name == "tanh":
        return 1 / np.cosh(x) ** 2
    if name == "sigmoid":
        s = 1 / (1 + np.exp(-x))
        return s * (1 / (1 + np.exp(x)))
    return (x > 0).astype(np.longdouble) if name == "relu" else np.ones_like(x)


def slope_from(name, y):
    """The derivative that an output stands for, in extended precision and without cancellation."""
    y = y.astype(np.longdouble)
    return {"tanh": (1 - y) * (1 + y), "sigmoid": y * (1 - y), "relu": (y > 0) * 1, "identity": np.ones_like(y)}[name]


@extended
@pytest.mark.parametrize("name", NONLINEARITIES)
def test_slope_from_the_output(name, dtype):
    x = np.linspace(-20, 20, 40_001).astype(dtype)
    y = evaluate(name, x)
    given = slope(name, y)
    assert given.dtype == dtype
    assert given.shape == y.shape
    # an output is known to two places, and the slope of a saturated unit is the small difference of its output and 1
    eps = np.finfo(dtype).eps
    assert np.abs(given - true_slope(name, x)).max() <= 4 * eps
    assert 0 <= given.min() <= given.max() <= MAX_SLOPE[name]
    assert given.max() >= MAX_SLOPE[name] * (1 - 1e-6)
    assert np.abs(given - slope_from(name, y)).max() <= eps


@extended
@pytest.mark.parametrize("name", NONLINEARITIES)
def test_rows_scaled_by_the_slope(name, dtype):
    width = lanes_of(dtype.itemsize)
    rows, vectors, stride = 7, 3, 4 * width
    rng = np.random.default_rng(11)
    y = evaluate(name, (4 * rng.normal(size=rows * stride)).astype(dtype))
    v = rng.normal(size=rows * stride).astype(dtype)
    before = v.copy().reshape(rows, stride)
    squares = np.full(rows + 1, -1.0)
    scale_rows(NONLINEARITIES.index(name), y, v, stride, rows, vectors, squares)
    used = slice(0, vectors * width)
    after, exact = v.reshape(rows, stride), before[:, used] * slope_from(name, y.reshape(rows, stride)[:, used])
    eps = np.finfo(dtype).eps
    if config.DISABLE_JIT:
        # 1 - y**2 loses what the rounding of y**2 took
        assert np.abs(after[:, used] - exact).max() <= 4 * eps
    else:
        # one rounding in the fused multiply-add, one in the product
        assert (np.abs(after[:, used] - exact) <= eps * np.abs(exact)).all()
    assert after[:, vectors * width :].tobytes() == before[:, vectors * width :].tobytes()
    np.testing.assert_allclose(squares[:rows], (after[:, used].astype(np.longdouble) ** 2).sum(1), rtol=1e-15 * width)
    assert squares[rows] == -1


def test_squares_of_single_precision_rows_neither_overflow_nor_underflow():
    width = lanes_of(4)
    for size in (1e30, 1e-30):
        v, squares = np.full(width, size, np.float32), np.empty(1)
        scale_rows(NONLINEARITIES.index("identity"), v.copy(), v, width, 1, 1, squares)
        np.testing.assert_allclose(squares[0], width * float(np.float32(size)) ** 2, rtol=1e-14)
