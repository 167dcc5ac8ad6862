"""Formulas over vectors: the compiled operations, their NumPy twin, and the loop over rows that both run in."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numba import config, njit

from elman.kernels.activations import sigmoid, tanh
from elman.kernels.elementwise import _array_loop, add_rows, copy_rows, elementwise
from elman.kernels.operands import blocks, grid_at, rows_at, within
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


def loop(formula, operands, stores, reduce="finite"):
    """The loop as a function of arrays with offsets and strides, whose rows follow each other."""
    inner = elementwise(formula, operands, stores, reduce)
    if (operands, reduce) == (2, "finite"):
        return compiled_call(
            lambda a, ao, ar, b, bo, br, rows, vectors: inner(rows_at(a, ao, ar), rows_at(b, bo, br), rows, 1, vectors)
        )
    if (operands, reduce) == (3, "finite"):
        return compiled_call(
            lambda a, ao, ar, b, bo, br, c, co, cr, rows, vectors: inner(
                rows_at(a, ao, ar), rows_at(b, bo, br), rows_at(c, co, cr), rows, 1, vectors
            )
        )
    assert (operands, reduce) == (1, "squares")
    return compiled_call(lambda a, ao, ar, rows, vectors, q, qo: inner(rows_at(a, ao, ar), rows, 1, vectors, q, qo))


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
        _array_loop(formula, 1, (0,), reduce, 1)((b, n, stride), 4, 1, 2, q_twin, 0)
        np.testing.assert_allclose(q, q_twin, rtol=1e-13)
    else:
        formula = lambda m, x, y: (x * y, x - y)  # noqa: E731
        c = a[::-1].copy()
        d = c.copy()
        assert loop(formula, 2, (0, 1))(a, n, stride, c, 0, stride, 4, 2) == 1
        assert _array_loop(formula, 2, (0, 1), reduce, 1)((b, n, stride), (d, 0, stride), 4, 1, 2) == 1
        assert c.tobytes() == d.tobytes()
    assert a.tobytes() == b.tobytes()


# ---- vectors abreast


VECTORS = range(1, 10)
"""Numbers of vectors in a row: some abreast, and what is left over."""


def gated(m, x, y):
    """Long chains of operations, as a cell has them."""
    return tanh(m, x) * sigmoid(m, y), sigmoid(m, m.fma(x, y, x / (1.0 + m.abs(y))))


@compiled
@pytest.mark.parametrize("reduce", ["finite", "squares"])
def test_a_row_of_vectors_has_the_bits_of_each_alone(reduce, dtype):
    n, rng = lanes_of(dtype.itemsize), np.random.default_rng(15)
    inner = elementwise(gated, 2, (0, 1), reduce)
    if reduce == "finite":

        @compiled_call
        def run(x, y, off, rs, rows, vectors, q):
            return inner(rows_at(x, off, rs), rows_at(y, off, rs), rows, 1, vectors)
    else:

        @compiled_call
        def run(x, y, off, rs, rows, vectors, q):
            return inner(rows_at(x, off, rs), rows_at(y, off, rs), rows, 1, vectors, q, 0)

    for vectors in VECTORS:
        stride = vectors * n + 3
        x, y = (rng.normal(scale=3, size=3 * stride + 1).astype(dtype) for _ in range(2))
        x[1], y[2] = 0.0, -0.0
        alone = x.copy(), y.copy()
        assert run(x, y, 1, stride, 3, vectors, np.empty(3)) == 1
        for row in range(3):
            for v in range(vectors):
                assert run(*alone, 1 + row * stride + v * n, 0, 1, 1, np.empty(1)) == 1
        assert x.tobytes() == alone[0].tobytes()
        assert y.tobytes() == alone[1].tobytes()


@pytest.mark.parametrize("vectors", VECTORS)
def test_any_lane_of_any_vector_decides_the_status(vectors, dtype):
    n = lanes_of(dtype.itemsize)
    run = loop(lambda m, x, y: (x - y, y), 2, (1, 0))
    for at in range(vectors * n):
        x, y = np.ones(vectors * n, dtype), np.zeros(vectors * n, dtype)
        assert run(x, 0, 0, y, 0, 0, 1, vectors) == 1
        x[:], y[:] = 1, 0
        x[at] = np.inf
        assert run(x, 0, 0, y, 0, 0, 1, vectors) == 0


@compiled
@pytest.mark.parametrize("vectors", VECTORS)
def test_squares_are_added_up_in_sixteen_sums_whatever_the_vector(vectors):
    """In single precision, whose squares double precision holds exactly: the order of the sums is seen in the bits."""
    a = np.random.default_rng(vectors).normal(size=vectors * lanes_of(4)).astype(np.float32)
    sums = np.zeros(16)
    for first in range(0, a.size, 16):
        part = a[first : first + 16].astype(np.float64) ** 2
        sums[: part.size] += part
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    q = np.empty(1)
    loop(lambda m, x: (x,), 1, (0,), "squares")(a, 0, 0, 1, vectors, q, 0)
    assert q[0] == sums[0]


@pytest.mark.parametrize("name", ["copy", "add"])
def test_rows_of_any_length_are_copied_and_added(name, dtype):
    """Whole vectors, and the numbers that fill none; nothing else is written."""
    inner = copy_rows if name == "copy" else add_rows
    run = compiled_call(
        lambda to, toff, to_rs, a, off, a_rs, N, n: inner(rows_at(to, toff, to_rs), rows_at(a, off, a_rs), N, n)
    )
    rng = np.random.default_rng(16)
    for length in range(4 * lanes_of(dtype.itemsize) + 2):
        for N in (0, 1, 3):
            a, to = (rng.normal(size=N * (length + gap) + 9).astype(dtype) for gap in (2, 1))
            expected = to.copy()
            for row in range(N):
                part = expected[5 + row * (length + 1) :][:length]
                part[...] = a[2 + row * (length + 2) :][:length] + (part if name == "add" else 0)
            run(to, 5, length + 1, a, 2, length + 2, N, length)
            assert to.tobytes() == expected.tobytes()


@compiled_call
def blend(shared, s_rs, x, x_rs, out, N, K, vectors, q, first):
    """One row of ``shared`` for each K of x, to rows of ``out`` that follow each other."""
    each = grid_at(shared, 1, s_rs, 0), grid_at(x, 0, K * x_rs + 1, x_rs)
    _blend(*each, rows_at(out, 0, vectors * lanes(x)), N, K, vectors, q, first)


_blend = elementwise(lambda m, a, b, _: (a - b, 2.0), 3, (2, 1), "squares")


@pytest.mark.parametrize("dims", [(0, 2, 1), (2, 0, 1), (1, 1, 3), (3, 2, 2), (2, 5, 1)])
def test_operands_of_a_grid_have_a_stride_of_their_own_for_each_axis(dims, dtype):
    """Rows that K others share, and rows with a gap after each K; a plain number fills whole vectors."""
    N, K, vectors = dims
    n, rng = vectors * lanes_of(dtype.itemsize), np.random.default_rng(17)
    s_rs, x_rs = n + 2, n + 1
    shared = rng.normal(size=1 + max(N, 1) * s_rs).astype(dtype)
    x = rng.normal(size=max(N, 1) * (K * x_rs + 1)).astype(dtype)
    out, q, expected = np.full(N * K * n, 7, dtype), np.full(N * K + 3, 7.0), x.copy()
    differences = np.empty((N, K, n), dtype)
    for i, k in np.ndindex(N, K):
        row = slice(i * (K * x_rs + 1) + k * x_rs, i * (K * x_rs + 1) + k * x_rs + n)
        differences[i, k] = shared[1 + i * s_rs :][:n] - x[row]
        expected[row] = 2.0
    blend(shared, s_rs, x, x_rs, out, N, K, vectors, q, 2)
    assert out.tobytes() == differences.tobytes()
    assert x.tobytes() == expected.tobytes()
    np.testing.assert_allclose(q[2:-1], np.square(differences, dtype=float).sum(axis=-1).ravel(), rtol=1e-14)
    assert q[[0, 1, -1]].tolist() == [7, 7, 7]


@compiled_call
def parts(a, offset, stride, width):
    """Numbers in blocks of an operand, and the same by ``within``."""
    rows = rows_at(a, offset, stride)
    first, second, third = blocks(rows, width, 3)
    out = np.zeros((3, 2, 4), a.dtype)
    flat = out.reshape(-1)
    for i, block in enumerate((first, second, third)):
        copy_rows(rows_at(flat, i * 8, 4), block, 2, width)
    copy_rows(rows_at(flat, 3, 4), within(rows, 2 * width), 2, 1)
    return out


def test_blocks_are_parts_of_each_row(dtype):
    a = np.arange(40).astype(dtype)
    out = parts(a, 5, 12, 3)
    rows = np.stack([a[5:17], a[17:29]])
    for i in range(3):
        assert (out[i, :, :3] == rows[:, i * 3 : i * 3 + 3]).all()
    assert (out[0, :, 3] == rows[:, 6]).all()
