"""The register-tiled product against plain products, against its NumPy twin, and in other shapes: the same bits."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from numba import config, njit
from numpy.lib.stride_tricks import as_strided

from elman.kernels import tile
from elman.kernels.compile import integer
from elman.kernels.host import Host, host_from_features
from elman.kernels.packing import pack
from elman.kernels.tile import COLUMNS, SINGLE, accumulate, affine, padded, row_stride
from elman.kernels.vector import lanes_of

compiled = pytest.mark.skipif(
    config.DISABLE_JIT, reason="bits are promised for compiled code; NumPy sums in its own order"
)

SIZES = (0, 1, 2, 3, 4, 5, 7, 13)


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
    Qp = padded(Q, dtype.itemsize)
    W, b = rng.normal(size=(Q, K)).astype(dtype), rng.normal(size=Q).astype(dtype)
    P, bias = np.empty(Qp * K, dtype), np.zeros(Qp, dtype)
    pack(W.reshape(-1), np.zeros(1, np.intp), Q, K, P)
    bias[:Q] = b
    for N, gap in itertools.product(SIZES, (0, 3)):
        a, A = rows_of(rng, N, K, K + gap, dtype)
        c_rs = row_stride(Q, dtype.itemsize) + gap
        c = np.full(N * c_rs + 1, 7, dtype)
        affine(a, K + gap, P, K, Qp // lanes_of(dtype.itemsize), bias, c, c_rs, 0, N)
        rows = c[: N * c_rs].reshape(N, c_rs)
        wide = A.astype(np.longdouble)
        exact = wide @ W.T.astype(np.longdouble) + b
        assert_close(rows[:, :Q], exact, np.abs(wide) @ np.abs(W.T) + np.abs(b), K)
        assert not rows[:, Q:Qp].any()
        assert (rows[:, Qp:] == 7).all()
        assert c[-1] == 7


def covering(N, V, K, init, offsets, strides, A, P, C):
    """:func:`elman.kernels.tile.product` with all its offsets and strides, called from compiled code."""
    io, ao, po, co = offsets
    i_rs, i_vs, a_rs, a_ks, p_vs, p_ks, c_rs = strides
    tile.product(N, V, init, io, i_rs, i_vs, K, A, ao, a_rs, a_ks, P, po, p_vs, p_ks, C, co, c_rs)


product = njit(error_model="numpy")(covering)


@pytest.mark.parametrize("seed", range(40))
def test_product_over_random_shapes_and_strides(seed, dtype):
    rng = np.random.default_rng(seed)
    n = lanes_of(dtype.itemsize)
    N, K = (int(rng.choice([0, 1, rng.integers(2, 20)])) for _ in range(2))
    V = int(rng.choice([0, 1, rng.integers(2, 2 * SINGLE)]))
    io, ao, po, co = (int(o) for o in rng.integers(0, 9, 4))
    # A is read along its rows or down its columns, panels with gaps, rows of C apart
    by_row = bool(rng.integers(2))
    a_rs, a_ks = (K + 2, 1) if by_row else (1, N + 3)
    p_ks = n + int(rng.integers(3))
    p_vs, c_rs = K * p_ks + int(rng.integers(3)), V * n + int(rng.integers(5))
    i_rs, i_vs = [(0, 0), (0, n), (V * n + 1, n)][rng.integers(3)]
    init, A, P = (
        rng.normal(size=size).astype(dtype) for size in (io + N * i_rs + V * n + n, ao + 25 * 25, po + V * p_vs + n)
    )
    C = np.full(co + N * c_rs + 1, 7, dtype)
    before = C.copy()
    product(N, V, K, init, (io, ao, po, co), (i_rs, i_vs, a_rs, a_ks, p_vs, p_ks, c_rs), A, P, C)

    def view(flat, offset, shape, strides):
        return as_strided(flat[offset:], shape, [s * flat.itemsize for s in strides]).astype(np.longdouble)

    left = view(A, ao, (N, K), (a_rs, a_ks))
    right = view(P, po, (K, V, n), (p_ks, p_vs, 1)).reshape(K, V * n)
    start = view(init, io, (N, V, n), (i_rs, i_vs, 1)).reshape(N, V * n)
    exact, magnitude = start + left @ right, np.abs(start) + np.abs(left) @ np.abs(right)
    value = as_strided(C[co:], (N, V * n), (c_rs * dtype.itemsize, dtype.itemsize))
    assert_close(value, exact, magnitude, K)
    value[...] = 7
    assert C.tobytes() == before.tobytes()


def test_product_may_add_to_what_is_there(dtype):
    n = lanes_of(dtype.itemsize)
    rng = np.random.default_rng(4)
    N, V, K = 7, COLUMNS + 1, 6
    A, P, C = (rng.normal(size=size).astype(dtype) for size in (N * K, V * K * n, N * V * n))
    twice, init = C.copy(), C.copy()
    product(N, V, K, init, (0, 0, 0, 0), (V * n, n, K, 1, K * n, n, V * n), A, P, twice)
    product(N, V, K, C, (0, 0, 0, 0), (V * n, n, K, 1, K * n, n, V * n), A, P, C)
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


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("columns", sorted({1, 2, COLUMNS, SINGLE}))
def test_the_compiled_tile_equals_its_twin(rows, columns, dtype):
    inner = tile.make_tile(rows, columns)

    @njit(error_model="numpy")
    def run(init, io, i_rs, i_vs, a, ao, a_rs, a_ks, b, bo, b_vs, b_ks, K, c, co, c_rs):
        inner(init, io, i_rs, i_vs, a, ao, a_rs, a_ks, b, bo, b_vs, b_ks, K, c, co, c_rs)

    twin = tile._array_tile(rows, columns)
    n = lanes_of(dtype.itemsize)
    for K, (a_rs, a_ks), (i_rs, i_vs) in itertools.product(
        (0, 1, 2, 9), ((11, 1), (1, 5), (0, 0)), ((0, 0), (0, n), (columns * n + 3, n))
    ):
        rng = np.random.default_rng(K)
        init, a, b = (
            rng.normal(size=size).astype(dtype)
            for size in (4 + 5 * (columns + 1) * n + 9, 80, 2 + (columns + 1) * (K + 1) * n)
        )
        c = rng.normal(size=6 + rows * (columns * n + 2)).astype(dtype)
        other = c.copy()
        rest = (4, i_rs, i_vs, a, 3, a_rs, a_ks, b, 2, K * n, n, K)
        run(init, *rest, c, 5, columns * n + 2)
        twin(init, *rest, other, 5, columns * n + 2)
        np.testing.assert_allclose(c, other, rtol=0, atol=40 * np.finfo(dtype).eps)
        if K == 0:
            assert c.tobytes() == other.tobytes()


# ---- the tile for the processor


@pytest.mark.parametrize(
    ("features", "host"),
    [
        ("+sse2,+avx,+avx2,+fma,+avx512f,+avx512vl", Host(64, 4, 8)),
        ("+avx512f", Host(64, 4, 8)),
        ("+sse2,+avx,+avx2,+fma,-avx512f", Host(32, 3, 8)),
        ("+fma,+avx2", Host(32, 3, 8)),
        ("+avx2,-fma", Host(16, 3, 8)),
        ("+avx,+fma,-avx2", Host(16, 3, 8)),
        ("+neon,+fp-armv8", Host(16, 4, 8)),
        ("+sse2,-avx", Host(16, 3, 8)),
        ("-avx512f,-avx2,-neon", Host(16, 3, 8)),
        ("", Host(16, 3, 8)),
    ],
)
def test_the_tile_is_chosen_from_the_features(features, host):
    assert host_from_features(features) == host


EMIT = """
    import importlib, re
    from numba import types
    from elman.kernels import host, tile, vector

    columns, triple = {columns}, {triple!r}
    if triple:
        host.HOST = host.host_from_features("+neon")
    if columns:
        host.HOST = host.HOST._replace(columns=columns)
    importlib.reload(vector)
    importlib.reload(tile)

    def assembler(signature):
        if not triple:
            return tile.affine.inspect_asm(signature)
        import llvmlite.binding as llvm
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machine = llvm.Target.from_triple(triple).create_target_machine(cpu="neoverse-n1", opt=3)
        text = tile.affine.inspect_llvm(signature)
        for function in re.findall("^define .*?^}}\\n", text, re.M | re.S):
            # what numba wraps around the kernel has been lowered for this processor already
            text = text if "llvm.fma" in function else text.replace(function, "")
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = triple, str(machine.target_data)
        return machine.emit_assembly(module)

    for name in {names}:
        a, i = getattr(types, name)[::1], types.intp
        tile.affine.compile((a, i, a, i, i, a, a, i, i, i))
        print("====", assembler(tile.affine.signatures[-1]))
"""
"""Prints the assembler of the product for another processor; nothing of it is run."""

AVX2 = "+sse2,+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2"
AVX512 = AVX2 + ",+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512cd"

PROCESSORS = {
    "avx512": ("skylake-avx512", AVX512, None, 16, "%zmm"),
    "avx2": ("haswell", AVX2, None, 12, "%ymm"),
    "neon": (None, None, "aarch64-unknown-linux-gnu", 16, "fmla\tv"),
}
"""Processor, features, triple where the architecture is another, accumulators of the widest tile, vector registers."""


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
        EMIT.format(columns=columns, triple=triple, names=names),
        NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features, NUMBA_CACHE_DIR=tmp_path,
    )  # fmt: skip
    return [inner_loops(each, "fmla" if triple else "vfmadd") for each in text.split("====")[1:]]


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
def test_no_tile_spills(processor, run_script, tmp_path):
    *_, accumulators, register = PROCESSORS[processor]
    for loops in loops_for(run_script, tmp_path, processor, ("float32", "float64")):
        widest, lines = max(loops, key=lambda loop: loop[0])
        assert widest == accumulators, sorted(count for count, _ in loops)
        assert register in "".join(lines)
        for _, lines in loops:
            assert not through_the_stack(lines), "\n".join(lines)


@compiled
@pytest.mark.parametrize(("processor", "columns"), [("avx2", 6), ("neon", 7)])
def test_the_search_for_spills_finds_those_of_a_tile_that_is_too_wide(processor, columns, run_script, tmp_path):
    (loops,) = loops_for(run_script, tmp_path, processor, ("float32",), columns)
    assert any(through_the_stack(lines) for count, lines in loops if count % (4 * columns) == 0)


def test_integer_literals_have_the_type_of_sizes():
    assert njit(lambda: integer(3))() == 3
