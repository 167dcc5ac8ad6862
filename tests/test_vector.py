"""Formulas over vectors: the compiled operations, their NumPy twin, and the loop over rows that both run in."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numba import config, njit

from elman.kernels.elementwise import _array_loop, elementwise
from elman.kernels.vector import ArrayOps, lanes, lanes_of

compiled = pytest.mark.skipif(config.DISABLE_JIT, reason="compares compiled code")

OPERATIONS = {
    "add": lambda m, x, y: (x + y,),
    "add number": lambda m, x, y: (1.5 + x + 0.25,),
    "subtract": lambda m, x, y: (x - y,),
    "subtract from number": lambda m, x, y: (2.0 - x,),
    "multiply": lambda m, x, y: (3.0 * x * y,),
    "divide": lambda m, x, y: (x / y,),
    "divide number": lambda m, x, y: (1.0 / x,),
    "negate": lambda m, x, y: (-x,),
    "abs": lambda m, x, y: (m.abs(x),),
    "copysign": lambda m, x, y: (m.copysign(x, y),),
    "where less": lambda m, x, y: (m.where(x < y, x, 7.0),),
    "where greater": lambda m, x, y: (m.where(x > 0.0, 7.0, y),),
    "pow2": lambda m, x, y: (m.pow2(x * 8.0 + m.format.magic),),
}


compiled_call = njit(error_model="numpy")
"""Intrinsics are called from compiled code only."""


def loop(formula, arrays, stores, reduce="finite"):
    """The loop as a function."""
    inner = elementwise(formula, arrays, stores, reduce)
    if (arrays, reduce) == (2, "finite"):
        return compiled_call(lambda a, ao, ar, b, bo, br, rows, vectors: inner(a, ao, ar, b, bo, br, rows, vectors))
    if (arrays, reduce) == (3, "finite"):
        return compiled_call(
            lambda a, ao, ar, b, bo, br, c, co, cr, rows, vectors: inner(a, ao, ar, b, bo, br, c, co, cr, rows, vectors)
        )
    assert (arrays, reduce) == (1, "squares")
    return compiled_call(lambda a, ao, ar, rows, vectors, q, qo: inner(a, ao, ar, rows, vectors, q, qo))


def test_lanes_fill_the_register(dtype):
    assert lanes_of(4) == 2 * lanes_of(8)
    assert lanes_of(4) in (4, 8, 16)
    assert compiled_call(lambda a: lanes(a))(np.empty(0, dtype)) == lanes_of(dtype.itemsize)


@compiled
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_equal_their_twin_to_the_bit(name, dtype):
    formula, n = OPERATIONS[name], 2 * lanes_of(dtype.itemsize)
    rng = np.random.default_rng(8)
    x, y = (rng.normal(size=n).astype(dtype) for _ in range(2))
    x[:2], y[:3] = (0.0, -0.0), (0.5, -0.5, -0.0)
    x[3] = y[3]
    if name == "divide number":
        x[:2] = 3.0
    if name == "divide":
        y[2] = 2.0
    (expected,) = formula(ArrayOps(dtype), x, y)
    assert expected.dtype == dtype
    value = x.copy()
    assert loop(formula, 2, (0,))(value, 0, n, y, 0, n, 1, 2) == 1
    assert value.tobytes() == expected.tobytes()


def test_pow2_covers_the_normal_range_and_passes_nan(dtype):
    n, info = lanes_of(dtype.itemsize), np.finfo(dtype)
    exponents = np.arange(info.minexp, info.maxexp)
    exponents = exponents[: len(exponents) // n * n]
    value, y = exponents.astype(dtype), np.zeros(len(exponents), dtype)
    raise_two = loop(lambda m, x, y: (m.pow2(x + m.format.magic),), 2, (0,))
    raise_two(value, 0, 0, y, 0, 0, 1, len(value) // n)
    np.testing.assert_array_equal(value, np.ldexp(dtype.type(1), exponents))
    # compiled bit work makes of a NaN what it may; the formulas around it meet the NaN once more
    multiplied = loop(lambda m, x, y: (m.pow2(x + m.format.magic) * x,), 2, (0,))
    value = np.full(n, np.nan, dtype)
    multiplied(value, 0, 0, y, 0, 0, 1, 1)
    assert np.isnan(value).all()


@compiled
def test_the_multiply_add_is_rounded_once(dtype):
    n = 4 * lanes_of(dtype.itemsize)
    rng = np.random.default_rng(9)
    x, y = (rng.normal(size=n).astype(dtype) for _ in range(2))
    z = -(x * y)
    value = x.copy()
    loop(lambda m, x, y, z: (m.fma(x, y, z),), 3, (0,))(value, 0, 0, y, 0, 0, z, 0, 0, 1, 4)
    # the exact difference of a product and its rounding fits the format: rounded twice it would be 0
    exact = [
        float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))) for a, b, c in zip(x, y, z, strict=True)
    ]
    np.testing.assert_array_equal(value, np.array(exact, dtype))
    assert np.count_nonzero(value) > n // 2


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("vectors", [0, 1, 3])
def test_offsets_strides_and_stores(rows, vectors, dtype):
    """Results go to two arrays at other places than the arguments came from; the third is one row for all."""
    n = lanes_of(dtype.itemsize)
    width = vectors * n
    rng = np.random.default_rng(10)
    a, b, c = (rng.normal(size=4 * (3 * n + 5) + 7).astype(dtype) for _ in range(3))
    before_a, before_b, before_c = a.copy(), b.copy(), c.copy()
    a_rs, b_rs = 3 * n + 1, 3 * n + 5
    run = loop(lambda m, x, y, z: (x + z, x * y), 3, (1, 0))
    assert run(a, 3, a_rs, b, 0, b_rs, c, 7, 0, rows, vectors) == 1
    want_a, want_b = before_a.copy(), before_b.copy()
    for r in range(rows):
        x, y = before_a[3 + r * a_rs :][:width], before_b[r * b_rs :][:width]
        want_b[r * b_rs :][:width] = x + before_c[7:][:width]
        want_a[3 + r * a_rs :][:width] = x * y
    assert a.tobytes() == want_a.tobytes()
    assert b.tobytes() == want_b.tobytes()
    assert c.tobytes() == before_c.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_every_lane_of_the_first_result_decides_the_status(bad, dtype):
    n = lanes_of(dtype.itemsize)
    run = loop(lambda m, x, y: (x - y, y), 2, (1, 0))
    for at in range(2 * n):
        x, y = np.ones(2 * n, dtype), np.zeros(2 * n, dtype)
        x[at] = bad
        assert run(x, 0, n, y, 0, n, 2, 1) == 0
    largest = np.full(2 * n, np.finfo(dtype).max)
    assert run(largest, 0, n, np.zeros(2 * n, dtype), 0, n, 2, 1) == 1


def test_squares_are_summed_by_row_in_double_precision(dtype):
    n = lanes_of(dtype.itemsize)
    rows, vectors, stride = 5, 7, 8 * n
    a = np.random.default_rng(12).normal(size=rows * stride).astype(dtype)
    before, q = a.copy(), np.full(rows + 4, -1.0)
    run = loop(lambda m, x: (2.0 * x,), 1, (0,), "squares")
    run(a, 0, stride, rows, vectors, q, 2)
    used = 2 * before.reshape(rows, stride)[:, : vectors * n]
    assert a.reshape(rows, stride)[:, : vectors * n].tobytes() == used.astype(dtype).tobytes()
    np.testing.assert_allclose(q[2 : 2 + rows], (used.astype(np.longdouble) ** 2).sum(1), rtol=1e-14)
    assert q[:2].tolist() == [-1, -1]
    assert q[2 + rows :].tolist() == [-1, -1]


@compiled
def test_a_row_has_the_same_sum_of_squares_wherever_it_stands(dtype):
    n = lanes_of(dtype.itemsize)
    a = np.random.default_rng(13).normal(size=6 * 3 * n).astype(dtype)
    run = loop(lambda m, x: (x,), 1, (0,), "squares")
    q, alone = np.empty(6), np.empty(1)
    run(a, 0, 3 * n, 6, 3, q, 0)
    for r in range(6):
        run(a, r * 3 * n, 0, 1, 3, alone, 0)
        assert alone[0] == q[r]


@compiled
@pytest.mark.parametrize("reduce", ["finite", "squares"])
def test_the_loop_equals_its_twin(reduce, dtype):
    n = lanes_of(dtype.itemsize)
    stride = 3 * n
    a = np.random.default_rng(14).normal(size=4 * stride + n).astype(dtype)
    b = a.copy()
    if reduce == "squares":
        formula, q, q_twin = (lambda m, x: (x * x - 1.0,)), np.empty(4), np.empty(4)
        loop(formula, 1, (0,), reduce)(a, n, stride, 4, 2, q, 0)
        _array_loop(formula, 1, (0,), reduce)(b, n, stride, 4, 2, q_twin, 0)
        np.testing.assert_allclose(q, q_twin, rtol=1e-13)
    else:
        formula = lambda m, x, y: (x * y, x - y)  # noqa: E731
        c = a[::-1].copy()
        d = c.copy()
        assert loop(formula, 2, (0, 1))(a, n, stride, c, 0, stride, 4, 2) == 1
        assert _array_loop(formula, 2, (0, 1), reduce)(b, n, stride, d, 0, stride, 4, 2) == 1
        assert c.tobytes() == d.tobytes()
    assert a.tobytes() == b.tobytes()
