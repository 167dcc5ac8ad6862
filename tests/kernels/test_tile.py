"""The register-tiled product against plain products, against its NumPy twin, and in other shapes: the same bits."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from numba import config, njit
from numpy.lib.stride_tricks import as_strided

from elman.kernels import tile
from elman.kernels.cover import SINGLE, TILES
from elman.kernels.host import AVX2, AVX512, NEON, SSE2, host_for_tests, host_from_features
from elman.kernels.operands import grid_at, rows_at
from elman.kernels.tile import affine, padded, row_stride
from elman.kernels.vector import lanes, lanes_of

compiled = pytest.mark.skipif(
    config.DISABLE_JIT, reason="bits are promised for compiled code; NumPy sums in its own order"
)

COLUMNS = TILES[0].columns
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 13, 22)


def rows_of(rng, n, width, stride, dtype, offset=0):
    """A flat array with ``n`` rows of random numbers, NaN in every place that is not part of a row; and the rows."""
    flat = np.full(offset + n * stride + 3, np.nan, dtype)
    view = as_strided(flat[offset:], (n, width), (stride * dtype.itemsize, dtype.itemsize))
    view[...] = rng.normal(size=(n, width))
    return flat, view


def assert_close(value, exact, magnitude, K):
    """Equal up to K + 1 roundings of terms that add up to ``magnitude``."""
    eps = np.finfo(value.dtype).eps
    assert value.shape == exact.shape
    assert (np.abs(value - exact) <= (K + 2) * eps * magnitude).all()


def test_row_stride_is_whole_vectors_and_never_a_multiple_of_a_kibibyte(dtype):
    n = lanes_of(dtype.itemsize)
    assert row_stride(0, dtype.itemsize) == 0
    for size in range(1, 5000):
        stride = row_stride(size, dtype.itemsize)
        assert stride % n == 0
        assert size <= padded(size, dtype.itemsize) <= stride < size + 2 * n
        assert stride * dtype.itemsize % 1024
        assert padded(size, dtype.itemsize) - size < n


# ---- products


@pytest.mark.parametrize("K", SIZES)
@pytest.mark.parametrize("Q", [1, 8, 21, 70])
def test_affine_against_a_matrix_product(K, Q, dtype):
    rng = np.random.default_rng(K * 100 + Q)
    n, Qp = lanes_of(dtype.itemsize), padded(Q, dtype.itemsize)
    W, b = rng.normal(size=(Q, K)).astype(dtype), rng.normal(size=Q).astype(dtype)
    padding = ((0, Qp - Q), (0, 0))
    P = np.pad(W, padding).reshape(Qp // n, n, K).swapaxes(1, 2).reshape(-1)
    bias = np.pad(b, padding[0])
    for N, gap in itertools.product(SIZES, (0, 3)):
        a, A = rows_of(rng, N, K, K + gap, dtype)
        c_rs = row_stride(Q, dtype.itemsize) + gap
        c = np.full(N * c_rs + 1, 7, dtype)
        affine(a, K + gap, P, K, Qp // n, bias, c, c_rs, 0, N)
        rows = c[: N * c_rs].reshape(N, c_rs)
        wide = A.astype(np.longdouble)
        exact = wide @ W.T.astype(np.longdouble) + b
        assert_close(rows[:, :Q], exact, np.abs(wide) @ np.abs(W.T) + np.abs(b), K)
        assert not rows[:, Q:Qp].any()
        assert (rows[:, Qp:] == 7).all()
        assert c[-1] == 7


@njit(error_model="numpy")
def product(N, V, init, io, i_rs, i_vs, factor, C, co, c_rs, down=0):
    """:func:`elman.kernels.tile.product`, which can be called from compiled code only."""
    K, A, ao, a_rs, a_ks, P, po, p_vs, p_ks = factor
    tile.product(
        down, N, V, grid_at(init, io, i_rs, i_vs), K, grid_at(A, ao, a_rs, a_ks), grid_at(P, po, p_vs, p_ks),
        rows_at(C, co, c_rs),
    )  # fmt: skip


@njit(error_model="numpy")
def two_products(N, V, init, io, i_rs, i_vs, first, second, C, co, c_rs, down=0):
    """:func:`elman.kernels.tile.two_products` likewise."""
    K, A, ao, a_rs, a_ks, P, po, p_vs, p_ks = first
    L, B, bo, b_rs, b_ks, Q, qo, q_vs, q_ks = second
    tile.two_products(
        down, N, V, grid_at(init, io, i_rs, i_vs), K, grid_at(A, ao, a_rs, a_ks), grid_at(P, po, p_vs, p_ks), L,
        grid_at(B, bo, b_rs, b_ks), grid_at(Q, qo, q_vs, q_ks), rows_at(C, co, c_rs),
    )  # fmt: skip


@njit(error_model="numpy")
def accumulate(A, a_rs, M, delta, d_rs, r0, r1, v0, v1, C, coff, c_rs):
    """:func:`elman.kernels.tile.accumulate` likewise."""
    tile.accumulate(A, a_rs, M, delta, d_rs, r0, r1, v0, v1, C, coff, c_rs)


def numbers(flat, offset, shape, strides):
    """The numbers at ``offset + i * strides[0] + j * strides[1] + ...``, by their indices."""
    at = sum(np.arange(n).reshape(-1, *[1] * (len(shape) - 1 - i)) * strides[i] for i, n in enumerate(shape))
    return flat[offset + at] if all(shape) else np.empty(shape, flat.dtype)


def strided(rng, shape, strides, dtype):
    """A flat array of random numbers with room for ``shape`` at ``strides``, of either sign, and an offset into it."""
    ends = [(n - 1) * s if n else 0 for n, s in zip(shape, strides, strict=True)]
    before = -sum(e for e in ends if e < 0) + int(rng.integers(4))
    return rng.normal(size=before + sum(e for e in ends if e > 0) + 1 + int(rng.integers(4))).astype(dtype), before


def factor(rng, N, V, K, dtype, signs=(1, 1, 1, 1)):
    """A random ``(K, A, aoff, a_rs, a_ks, P, poff, p_vs, p_ks)``: along rows or down columns, with gaps."""
    n = lanes_of(dtype.itemsize)
    a_rs, a_ks = (K + 2, 1) if rng.integers(2) else (1, N + 3)
    p_ks = n + int(rng.integers(3))
    p_vs = K * p_ks + int(rng.integers(3))
    a_rs, a_ks, p_vs, p_ks = (int(sign * stride) for sign, stride in zip(signs, (a_rs, a_ks, p_vs, p_ks), strict=True))
    A, ao = strided(rng, (N, K), (a_rs, a_ks), dtype)
    P, po = strided(rng, (K, V, n), (p_ks, p_vs, 1), dtype)
    return K, A, ao, a_rs, a_ks, P, po, p_vs, p_ks


def start_values(rng, N, V, dtype):
    """Random ``(init, ioff, i_rs, i_vs)``: one vector, one row, or a row for each."""
    n = lanes_of(dtype.itemsize)
    i_rs, i_vs = ((0, 0), (0, n), (V * n + 1, n))[rng.integers(3)]
    init, io = strided(rng, (N, V, n), (i_rs, i_vs, 1), dtype)
    return init, io, i_rs, i_vs


def assert_sum_of_products(value, N, V, start, factors):
    """``value (N, V, lanes)`` is the start plus the products, computed with NumPy in wider numbers."""
    init, io, i_rs, i_vs = start
    n = value.shape[-1]
    exact = numbers(init, io, (N, V, n), (i_rs, i_vs, 1)).reshape(N, V * n).astype(np.longdouble)
    magnitude = np.abs(exact)
    for K, A, ao, a_rs, a_ks, P, po, p_vs, p_ks in factors:
        left = numbers(A, ao, (N, K), (a_rs, a_ks)).astype(np.longdouble)
        right = numbers(P, po, (K, V, n), (p_ks, p_vs, 1)).reshape(K, V * n).astype(np.longdouble)
        exact, magnitude = exact + left @ right, magnitude + np.abs(left) @ np.abs(right)
    assert_close(value.reshape(N, V * n), exact, magnitude, sum(f[0] for f in factors))


def output(N, V, dtype, gap=3, offset=2):
    """An array of sevens for C, its offset and row stride, and the places of C in it."""
    n = lanes_of(dtype.itemsize)
    c_rs = V * n + gap
    C = np.full(offset + N * c_rs + 1, 7, dtype)
    return (C, offset, c_rs), as_strided(C[offset:], (N, V, n), [s * dtype.itemsize for s in (c_rs, n, 1)])


def assert_sevens_elsewhere(C, view):
    view[...] = 7
    assert (C[0] == 7).all()


@pytest.mark.parametrize("seed", range(40))
def test_product_over_random_shapes_and_strides(seed, dtype):
    """Half of them with strides below zero: a weight gradient goes down the rows."""
    rng = np.random.default_rng(seed)
    N, K = (int(rng.choice([0, 1, rng.integers(2, 20)])) for _ in range(2))
    V = int(rng.choice([0, 1, rng.integers(2, 2 * SINGLE)]))
    signs = rng.choice([-1, 1], 4) if seed % 2 else (1, 1, 1, 1)
    start, one = start_values(rng, N, V, dtype), factor(rng, N, V, K, dtype, signs)
    C, value = output(N, V, dtype, gap=int(rng.integers(5)))
    product(N, V, *start, one, *C)
    assert_sum_of_products(value, N, V, start, [one])
    assert_sevens_elsewhere(C, value)


@pytest.mark.parametrize("seed", range(30))
def test_two_products_over_random_shapes_and_strides(seed, dtype):
    """Against NumPy, and to the bit as one product that starts from what the other wrote."""
    rng = np.random.default_rng(seed)
    N, K, L = (int(rng.choice([0, 1, rng.integers(2, 20)])) for _ in range(3))
    V = int(rng.choice([0, 1, rng.integers(2, 2 * SINGLE)]))
    start = start_values(rng, N, V, dtype)
    first, second = (factor(rng, N, V, k, dtype, rng.choice([-1, 1], 4)) for k in (K, L))
    C, value = output(N, V, dtype)
    two_products(N, V, *start, first, second, *C)
    assert_sum_of_products(value, N, V, start, [first, second])
    after, expected = output(N, V, dtype)
    product(N, V, *start, first, *after)
    product(N, V, *after, lanes_of(dtype.itemsize), second, *after)
    assert value.tobytes() == expected.tobytes()
    back, down = output(N, V, dtype)
    two_products(N, V, *start, first, second, *back, 1)
    assert down.tobytes() == value.tobytes()
    assert_sevens_elsewhere(C, value)


@pytest.mark.parametrize("V", range(1, 3 * SINGLE + 3))
def test_every_number_of_vectors_and_few_rows(V, dtype):
    """However the vectors are shared among tiles and passes, 3 + 1 taken as 2 + 2 among them, and from whichever end:
    none left out, none twice, and every vector with the bits it has alone."""
    rng = np.random.default_rng(V)
    n, K = lanes_of(dtype.itemsize), 6
    for N in range(1, 10):
        start, one = start_values(rng, N, V, dtype), factor(rng, N, V, K, dtype)
        C, value = output(N, V, dtype)
        product(N, V, *start, one, *C)
        assert_sum_of_products(value, N, V, start, [one])
        back, down = output(N, V, dtype)
        product(N, V, *start, one, *back, 1)
        assert down.tobytes() == value.tobytes()
        assert_sevens_elsewhere(back, down)
        if not config.DISABLE_JIT:
            init, io, i_rs, i_vs = start
            A, ao, a_rs, a_ks, P, po, p_vs, p_ks = one[1:]
            alone, single = output(N, V, dtype)
            for r, v in itertools.product(range(N), range(V)):
                part = K, A, ao + r * a_rs, a_rs, a_ks, P, po + v * p_vs, p_vs, p_ks
                product(1, 1, init, io + r * i_rs + v * i_vs, i_rs, i_vs, part, alone[0], 2 + r * C[2] + v * n, C[2])
            assert value.tobytes() == single.tobytes()
        assert_sevens_elsewhere(C, value)


@pytest.mark.parametrize(("N", "V"), [(3, -2), (1, -1), (-1, 2), (0, 0)])
def test_fewer_than_no_rows_or_vectors_leave_everything_alone(N, V, dtype):
    """A share of the columns may end before it begins: where x or h enters none of its blocks."""
    n = lanes_of(dtype.itemsize)
    A, P, C = (np.full(40 * n, value, dtype) for value in (1, 1, 7))
    product(N, V, C, 0, 0, n, (2, A, 0, 2, 1, P, 0, 2 * n, n), C, 0, 4 * n)
    assert (C == 7).all()


def test_product_may_add_to_what_is_there(dtype):
    n = lanes_of(dtype.itemsize)
    rng = np.random.default_rng(4)
    N, V, K = 7, COLUMNS + 1, 6
    A, P, C = (rng.normal(size=size).astype(dtype) for size in (N * K, V * K * n, N * V * n))
    twice, init = C.copy(), C.copy()
    one = K, A, 0, K, 1, P, 0, K * n, n
    product(N, V, init, 0, V * n, n, one, twice, 0, V * n)
    product(N, V, C, 0, V * n, n, one, C, 0, V * n)
    assert C.tobytes() == twice.tobytes()


@pytest.mark.parametrize("M", [0, 1, 4, 7])
@pytest.mark.parametrize("R", [0, 1, 2, 127, 128, 129, 600])
def test_accumulate_adds_a_weight_gradient(M, R, dtype):
    rng = np.random.default_rng(M * 1000 + R)
    n, V = lanes_of(dtype.itemsize), 5
    a, A = rows_of(rng, R, M, M + 3, dtype)
    delta, D = rows_of(rng, R, V * n, V * n + n, dtype)
    c_rs, coff = V * n + 2 * n, 5
    C = rng.normal(size=coff + M * c_rs + 1).astype(dtype)
    before = C.copy()
    accumulate(a, M + 3, M, delta, V * n + n, 0, R, 0, V, C, coff, c_rs)
    left, right = A.T.astype(np.longdouble), D.astype(np.longdouble)
    start = before[coff : coff + M * c_rs].reshape(M, c_rs)[:, : V * n].astype(np.longdouble)
    value = as_strided(C[coff:], (M, V * n), (c_rs * dtype.itemsize, dtype.itemsize))
    assert_close(value, start + left @ right, np.abs(start) + np.abs(left) @ np.abs(right), R)
    value[...] = start
    assert C.tobytes() == before.tobytes()


def test_a_constant_row_gives_the_gradient_of_a_bias(dtype):
    rng = np.random.default_rng(6)
    n, R = lanes_of(dtype.itemsize), 37
    delta, D = rows_of(rng, R, 3 * n, 3 * n, dtype)
    C = np.zeros(3 * n, dtype)
    accumulate(np.ones(1, dtype), 0, 1, delta, 3 * n, 0, R, 0, 3, C, 0, 3 * n)
    np.testing.assert_allclose(
        C, D.astype(np.longdouble).sum(0), rtol=0, atol=R * np.finfo(dtype).eps * np.abs(D).sum(0).max()
    )


# ---- the same bits


@compiled
@pytest.mark.parametrize("V", [1, 2, COLUMNS, COLUMNS + 2, SINGLE, 2 * SINGLE + 3])
def test_a_row_has_the_same_bits_in_any_batch_slab_and_place(V, dtype):
    rng = np.random.default_rng(V)
    n, K, most = lanes_of(dtype.itemsize), 23, 33
    c_rs = V * n
    A = rng.normal(size=(most, K)).astype(dtype)
    P, bias = rng.normal(size=V * K * n).astype(dtype), rng.normal(size=V * n).astype(dtype)

    def run(rows, edges):
        c = np.full(len(rows) * c_rs, np.nan, dtype)
        for n0, n1 in itertools.pairwise(edges):
            affine(np.ascontiguousarray(rows).reshape(-1), K, P, K, V, bias, c, c_rs, n0, n1)
        return c.reshape(len(rows), c_rs)

    whole = run(A, (0, most))
    for N in range(1, most + 1):
        assert run(A[:N], (0, N)).tobytes() == whole[:N].tobytes()
        assert run(A[most - N :], (0, N)).tobytes() == whole[most - N :].tobytes()
        assert run(A, (0, N, most)).tobytes() == whole.tobytes()
    order = rng.permutation(most)
    assert run(A[order], (0, most)).tobytes() == whole[order].tobytes()
    assert run(A, range(most + 1)).tobytes() == whole.tobytes()


@compiled
@pytest.mark.parametrize("M", [1, 2, 7, 33])
def test_a_weight_gradient_has_the_same_bits_for_any_split_of_columns_and_blocks_of_rows(M, dtype):
    rng = np.random.default_rng(M)
    n, V, R = lanes_of(dtype.itemsize), SINGLE + COLUMNS + 3, 700
    A, D = rng.normal(size=R * M).astype(dtype), rng.normal(size=R * V * n).astype(dtype)
    start = rng.normal(size=M * V * n).astype(dtype)

    def run(row_edges, column_edges):
        C = start.copy()
        for v0, v1 in itertools.pairwise(column_edges):
            for r0, r1 in reversed(list(itertools.pairwise(row_edges))):
                accumulate(A, M, M, D, V * n, r0, r1, v0, v1, C, 0, V * n)
        return C.tobytes()

    whole = run((0, R), (0, V))
    for v in range(V + 1):
        assert run((0, R), (0, v, V)) == whole
    assert run((0, R), range(V + 1)) == whole
    for r in (0, 1, 2, 3, 4, 100, 127, 128, 129, 256, 699, 700):
        assert run((0, r, R), (0, V)) == whole
    assert run((0, 3, 259, 300, R), (0, 1, 5, V)) == whole


@compiled
@pytest.mark.parametrize("M", [0, 1, 5, 33])
def test_a_weight_gradient_entry_does_not_depend_on_the_others(M, dtype):
    """One column of A at a time, as a matrix with a single row of output, gives the bits of all of them together."""
    rng = np.random.default_rng(M)
    n, V, R = lanes_of(dtype.itemsize), COLUMNS + 1, 300
    A, D = rng.normal(size=R * M).astype(dtype), rng.normal(size=R * V * n).astype(dtype)
    together, alone = (np.zeros(M * V * n, dtype) for _ in range(2))
    accumulate(A, M, M, D, V * n, 0, R, 0, V, together, 0, V * n)
    for m in range(M):
        accumulate(A[m:], M, 1, D, V * n, 0, R, 0, V, alone, m * V * n, V * n)
    assert together.tobytes() == alone.tobytes()


@compiled
def test_every_output_is_one_chain_of_multiply_adds_in_ascending_order(dtype):
    """The chain computed one exact step and one rounding at a time: the order over k and the accumulator are fixed."""
    from fractions import Fraction

    rng = np.random.default_rng(15)
    n, N, V, K = lanes_of(dtype.itemsize), 5, COLUMNS + 1, 40
    A, P = rng.normal(size=(N, K)).astype(dtype), rng.normal(size=(V, K, n)).astype(dtype)
    bias, C = rng.normal(size=(V, n)).astype(dtype), np.empty((N, V, n), dtype)
    affine(A.reshape(-1), K, P.reshape(-1), K, V, bias.reshape(-1), C.reshape(-1), V * n, 0, N)

    def rounded(x):
        if dtype == np.float64:
            return float(x)
        # a double nearest to x, then its neighbours in single precision, compared exactly: no double rounding
        near = np.float32(float(x))
        return min((near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))),
                   key=lambda c: (abs(Fraction(float(c)) - x), int(c.view(np.int32)) & 1))  # fmt: skip

    for r, v, lane in itertools.product((0, 3, 4), range(V), (0, n - 1)):
        acc = bias[v, lane]
        for k in range(K):
            acc = rounded(Fraction(float(A[r, k])) * Fraction(float(P[v, k, lane])) + Fraction(float(acc)))
        assert C[r, v, lane] == dtype.type(acc)


# ---- the twin


@compiled
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("columns", sorted({1, 2, COLUMNS, COLUMNS + 1, SINGLE + 1}))
def test_the_compiled_product_equals_its_twin(rows, columns, dtype):
    """To the rounding of the multiply-adds; to the bit where numbers are small integers, which nothing rounds."""
    n = lanes_of(dtype.itemsize)
    for whole, K, L in itertools.product((False, True), (0, 1, 9), (None, 0, 5)):
        rng = np.random.default_rng(K)
        signs = (1, -1, 1, -1)
        start = start_values(rng, rows, columns, dtype)
        factors = [factor(rng, rows, columns, k, dtype, signs) for k in (K, L) if k is not None]
        if whole:
            for a in (start[0], *(f[i] for f in factors for i in (1, 5))):
                a[...] = rng.integers(-9, 10, a.size)
        C, value = output(rows, columns, dtype)
        other, twin = output(rows, columns, dtype)
        (product if L is None else two_products)(rows, columns, *start, *factors, *C)
        operands = itertools.chain(*((f[0], f[1:5], f[5:9]) for f in factors))
        tile._array_products(0, rows, columns, start, *operands, other)
        assert value.shape == (rows, columns, n)
        if whole:
            assert C[0].tobytes() == other[0].tobytes()
        else:
            np.testing.assert_allclose(value, twin, rtol=0, atol=60 * np.finfo(dtype).eps)
            assert_sevens_elsewhere(other, twin)


@njit(error_model="numpy")
def from_nothing(N, V, K, A, P, C):
    """Operands whose inner strides are those of rows and of packed panels."""
    n = lanes(C)
    tile.product(0, N, V, None, K, rows_at(A, 0, K), rows_at(P, 0, K * n), rows_at(C, 0, V * n))


@pytest.mark.parametrize("N", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("K", [0, 1, 9])
def test_sums_without_a_start_begin_at_zero(N, K, dtype):
    n, V, rng = lanes_of(dtype.itemsize), COLUMNS + 1, np.random.default_rng(N + K)
    A, P = rng.integers(-9, 10, N * K).astype(dtype), rng.integers(-9, 10, V * K * n).astype(dtype)
    C = np.full(N * V * n, np.nan, dtype)
    from_nothing(N, V, K, A, P, C)
    panels = P.reshape(V, K, n).swapaxes(0, 1).reshape(K, V * n)
    assert (C.reshape(N, V * n) == A.reshape(N, K) @ panels).all()


# ---- the tile for the processor


@pytest.mark.parametrize(
    ("features", "host"),
    [
        ("+sse2,+avx,+avx2,+fma,+avx512f,+avx512vl", AVX512),
        ("+avx512f", AVX512),
        ("+sse2,+avx,+avx2,+fma,-avx512f", AVX2),
        ("+fma,+avx2", AVX2),
        ("+avx2,-fma", SSE2),
        ("+avx,+fma,-avx2", SSE2),
        ("+neon,+fp-armv8", NEON),
        ("+sse2,-avx", SSE2),
        ("-avx512f,-avx2,-neon", SSE2),
        ("", SSE2),
    ],
)
def test_the_tile_is_chosen_from_the_features(features, host):
    assert host_from_features(features) == host


@pytest.mark.parametrize("machine", ["arm64", "aarch64", "ARM64"])
def test_every_64_bit_arm_has_32_registers(machine):
    """Apple's: LLVM is told of no features."""
    assert host_from_features("", machine) == NEON
    assert host_from_features("", "x86_64") == SSE2


@pytest.mark.parametrize(("setting", "host"), [("16", NEON), ("32", AVX2), ("64", AVX512)])
def test_another_length_of_vectors_can_be_set(setting, host):
    own = AVX2
    assert host_for_tests(own, None) == host_for_tests(own, "") == own
    assert host_for_tests(own, setting) == host
    with pytest.raises(ValueError, match="ELMAN_VECTOR_BYTES must be 16, 32 or 64, got '8'"):
        host_for_tests(own, "8")


EMIT = """
    import importlib, re
    import llvmlite.binding as llvm
    from numba import types
    from elman.kernels import cover, host, tile, vector

    host.HOST = host.host_from_features({features!r})
    if {columns}:
        host.HOST = host.HOST._replace(tiles=(host.Tile(4, {columns}),))
    for module in (vector, cover, tile):
        importlib.reload(module)

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple({triple!r})
    machine = target.create_target_machine(cpu={cpu!r}, features={features!r}, opt=3)

    def assembler(signature):
        text = tile.affine.inspect_llvm(signature)
        for function in re.findall("^define .*?^}}\\n", text, re.M | re.S):
            # what numba wraps around the kernel has been lowered for this processor already
            text = text if "llvm.fma" in function else text.replace(function, "")
        # and so have the attributes of functions, which name its instructions
        text = re.sub('"(target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = {triple!r}, str(machine.target_data)
        return machine.emit_assembly(module)

    for name in {names}:
        a, i = getattr(types, name)[::1], types.intp
        tile.affine.compile((a, i, a, i, i, a, a, i, i, i))
        print("====", assembler(tile.affine.signatures[-1]))
"""
"""Prints the assembler of the product for a processor, on a machine that may have another; nothing of it is run."""

HASWELL = "+sse2,+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2"
SKYLAKE = HASWELL + ",+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512cd"

PROCESSORS = {
    "avx512": ("skylake-avx512", SKYLAKE, "x86_64-unknown-linux-gnu", AVX512, "%zmm"),
    "avx2": ("haswell", HASWELL, "x86_64-unknown-linux-gnu", AVX2, "%ymm"),
    "neon": ("neoverse-n1", "+neon", "aarch64-unknown-linux-gnu", NEON, "fmla\tv"),
}
"""Processor, features, triple, what is chosen for it, vector registers."""


def inner_loops(assembler, multiply_add):
    """Loops of a single basic block that hold multiply-adds: (how many, lines)."""
    found, block, label = [], [], None
    for line in assembler.splitlines():
        start = re.match(r"(\.?L\w+):", line)
        if start:
            block, label = [], start[1]
            continue
        block.append(line)
        if (
            re.match(r"\s+(j\w+|b\.\w+|cbn?z|tbn?z)\s", line)
            and label is not None
            and re.search(rf"{re.escape(label)}\b", line)
        ):
            count = sum(multiply_add in each for each in block)
            if count:
                found.append((count, block.copy()))
    return found


def through_the_stack(lines):
    """Lines of x86 or ARM code that read or write a vector register by way of the stack."""
    memory = re.compile(r"\(%rsp|\[sp\b")
    return [line for line in lines if memory.search(line) and re.search(r"%[xyz]mm|\b[qvds]\d+\b", line)]


def loops_for(run_script, tmp_path, processor, names, columns=None):
    """The loops with multiply-adds, for each dtype."""
    cpu, features, triple, _, _ = PROCESSORS[processor]
    text = run_script(
        EMIT.format(columns=columns, triple=triple, names=names, cpu=cpu, features=features), NUMBA_CACHE_DIR=tmp_path
    )
    return [inner_loops(each, "fmla" if processor == "neon" else "vfmadd") for each in text.split("====")[1:]]


@compiled
@pytest.mark.ci
@pytest.mark.parametrize("processor", PROCESSORS)
def test_no_tile_spills(processor, run_script, tmp_path):
    *_, chosen, register = PROCESSORS[processor]
    accumulators = [kind.rows * kind.columns for kind in chosen.tiles]
    for loops in loops_for(run_script, tmp_path, processor, ("float32", "float64")):
        widest, lines = max(loops, key=lambda loop: loop[0])
        counts = sorted(count for count, _ in loops)
        assert widest == max(accumulators), counts
        # the rows of the tiles and the vectors of a single row, each over one product and over the other
        assert {*accumulators, 2 * chosen.tiles[-1].columns, *range(1, SINGLE + 1)} <= set(counts)
        assert register in "".join(lines)
        for _, lines in loops:
            assert not through_the_stack(lines), "\n".join(lines)


@compiled
@pytest.mark.parametrize(("processor", "columns"), [("avx2", 6), ("neon", 7)])
def test_the_search_for_spills_finds_those_of_a_tile_that_is_too_wide(processor, columns, run_script, tmp_path):
    (loops,) = loops_for(run_script, tmp_path, processor, ("float32",), columns)
    assert any(through_the_stack(lines) for count, lines in loops if count % (4 * columns) == 0)
