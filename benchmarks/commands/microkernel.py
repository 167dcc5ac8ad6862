"""Speed of the tiled product over this machine's own peak: ``python -m benchmarks.commands.microkernel``.

The peak is measured first: fused multiply-adds on registers alone, as many independent chains as the tile has
accumulators. Then, for each shape N x K x J, two kernels are timed inside compiled code, so that no call counts:

- ``affine``: N rows of K numbers times a packed matrix (K, J), plus a bias: one step of a forward pass;
- ``accumulate``: the gradient (K, J) of that matrix over 100 steps of N rows.

``--sweep`` tries tiles of other shapes, and other blocks of rows of ``accumulate``, each in a process of its own: what
is best for a processor that nobody has measured yet is set in ``kernels/host.py``.

Operations are the 2 N K J that the result needs: what padding to whole vectors adds counts as lost. Each number is the
fastest of several rounds, and no kernel is timed before its answer has been compared with NumPy's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from benchmarks.cases import DTYPES, Array
from benchmarks.comparison.report import markdown_table, processor, publish
from elman.kernels import cover, tile
from elman.kernels.host import HOST, Tile
from elman.kernels.vector import Emitter, declare, lanes_of, pointers
from elman.layers.engine.affine import ALONE, panels_of

SHAPES = (
    *((16, n, n) for n in (20, 64, 100, 128)),
    (32, 256, 1024),
    (32, 512, 2048),
    *((rows, n, n) for rows in (1, 2, 4) for n in (20, 64, 100, 256)),
)
"""Rows N, terms of a sum K, columns J."""

SWEEP_SHAPES = ((16, 20, 80), (16, 128, 128), (32, 256, 1024), (32, 512, 2048), (64, 256, 1024), (32, 1024, 4096))
SWEEP_TILES = ((4, 3), (4, 4), (6, 3), (6, 4), (8, 2), (8, 3), (12, 2))
SWEEP_BLOCKS = (64, 96, 128, 192, 256, 384)
"""What ``--sweep`` tries: rows by columns; rows of delta added up before the next columns."""

STEPS = 100
CHAINS = max(kind.rows * kind.columns for kind in HOST.tiles)
TILES = " and ".join(f"{kind.rows} x {kind.columns}" for kind in HOST.tiles)
TOLERANCE = {"float32": 1e-5, "float64": 1e-13}

compiled = numba.njit(nogil=True, error_model="numpy")


@intrinsic
def multiply_add(typing: Any, a: Any, n: Any) -> Any:
    """``chain = chain * x + y``, n times, for all chains at once: ``a`` holds the vectors x, y and the chains."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder, context.get_value_type(signature.args[0].dtype))
        (data,) = pointers(context, builder, signature, args, [0])
        at = [ir.Constant(args[1].type, e.lanes * i) for i in range(2 + CHAINS)]
        x, y, *chains = [e.load(data, offset) for offset in at]
        fma = declare(builder, "fma", e.vector, 3)
        chains = e.loop(args[1], chains, lambda _, values: [builder.call(fma, [v, x, y]) for v in values])
        for value, offset in zip(chains, at[2:], strict=True):
            e.store(value, data, offset)
        return context.get_dummy_value()

    return types.void(a, types.intp), codegen


@compiled
def run_chains(n, a):  # type: ignore[no-untyped-def]
    multiply_add(a, n)


@compiled
def run_affine(n, A, a_rs, P, K, V, bias, C, c_rs, N):  # type: ignore[no-untyped-def]
    for _ in range(n):
        tile.affine(A, a_rs, P, K, V, bias, C, c_rs, 0, N)


@compiled
def run_accumulate(n, A, a_rs, K, delta, d_rs, R, V, C):  # type: ignore[no-untyped-def]
    for _ in range(n):
        tile.accumulate(A, a_rs, K, delta, d_rs, 0, R, 0, V, C, 0, d_rs)


def chains(dtype: str) -> Array:
    """x = 1/2, y = 1 and the starts of the chains, all different: what they tend to is 2, far from overflow."""
    width = lanes_of(np.dtype(dtype).itemsize)
    return np.concatenate([np.full(width, 0.5), np.ones(width), np.arange(CHAINS * width)]).astype(dtype)


def fastest(repeat: Callable[[int], None], seconds: float, rounds: int = 5) -> float:
    """Seconds of one repetition in the fastest of several rounds; ``seconds`` is the least that a round takes."""

    def clock(n: int) -> float:
        start = time.perf_counter()
        repeat(n)
        return time.perf_counter() - start

    n = 1
    clock(n)
    while clock(n) < seconds:
        n *= 2
    return min(clock(n) for _ in range(rounds)) / n


def peak(dtype: str, seconds: float = 0.05) -> float:
    """Operations per second of one core at its best."""
    a = chains(dtype)
    width = lanes_of(a.itemsize)
    return 2 * CHAINS * width / fastest(lambda n: run_chains(n, a), seconds, rounds=20)


def affine(N: int, K: int, J: int, dtype: str) -> Callable[[int], None]:
    """A repeatable ``affine``, once its answer is right."""
    rng = np.random.default_rng(0)
    A, W, b = (rng.standard_normal(size).astype(dtype) for size in ((N, K), (J, K), J))
    Jp, stride = tile.padded(J, A.itemsize), tile.row_stride(J, A.itemsize)
    P, bias, C = np.empty(Jp * K, dtype), np.zeros(Jp, dtype), np.zeros(N * stride, dtype)
    panels_of(ALONE, J, K, A.itemsize).transpose(W.reshape(-1), P)
    bias[:J] = b
    arguments = (A.reshape(-1), K, P, K, Jp // lanes_of(A.itemsize), bias, C, stride, N)
    run_affine(1, *arguments)
    expect(C.reshape(N, stride)[:, :J], A.astype("float64") @ W.T + b, dtype)
    return lambda n: run_affine(n, *arguments)


def accumulate(R: int, K: int, J: int, dtype: str) -> Callable[[int], None]:
    """A repeatable ``accumulate`` over R rows, once its answer is right; both sides lie as a layer keeps them."""
    rng = np.random.default_rng(0)
    size = np.dtype(dtype).itemsize
    a_rs, d_rs = tile.row_stride(K, size), tile.row_stride(J, size)
    A, delta, C = np.zeros((R, a_rs), dtype), np.zeros((R, d_rs), dtype), np.zeros((K, d_rs), dtype)
    A[:, :K], delta[:, :J] = rng.standard_normal((R, K)), rng.standard_normal((R, J))
    V = tile.padded(J, size) // lanes_of(size)
    arguments = (A.reshape(-1), a_rs, K, delta.reshape(-1), d_rs, R, V, C.reshape(-1))
    run_accumulate(1, *arguments)
    expect(C[:, :J], A[:, :K].T.astype("float64") @ delta[:, :J], dtype)
    return lambda n: run_accumulate(n, *arguments)


def expect(value: Array, reference: Array, dtype: str) -> None:
    """Refuse a wrong answer: sums of K random terms, so errors grow at most with K.

    Raises
    ------
    AssertionError
        If an entry is off by more than rounding.
    """
    scale = np.max(np.abs(reference))
    np.testing.assert_allclose(value, reference, rtol=0, atol=TOLERANCE[dtype] * scale)


def row(shape: tuple[int, int, int], peaks: dict[str, float], seconds: float, steps: int = STEPS) -> list[str]:
    """GF/s and share of the peak of both kernels in both dtypes."""
    N, K, J = shape
    cells = [f"{N} x {K} x {J}"]
    for make, rows in ((affine, N), (accumulate, steps * N)):
        for dtype in DTYPES:
            rate = 2.0 * rows * K * J / fastest(make(rows, K, J, dtype), seconds)
            cells.append(f"{rate / 1e9:.1f} ({rate / peaks[dtype]:.0%})")
    return cells


def sweep(options: argparse.Namespace) -> list[str]:
    """Tables of GF/s for other tiles, and for other blocks with the tiles that are used; each in a fresh process."""

    def rates(label: str, tiles: tuple[tuple[int, int], ...], block: int) -> list[str]:
        arguments = ["--child", json.dumps([tiles, block]), *(["--quick"] if options.quick else [])]
        with tempfile.TemporaryDirectory() as folder:
            # code that was compiled for another tile may not be found
            environment = os.environ | {"NUMBA_CACHE_DIR": folder}
            text = subprocess.run(
                [sys.executable, "-m", __spec__.name, *arguments],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        return [label, *json.loads(text.splitlines()[-1])]

    tiles = tuple((kind.rows, kind.columns) for kind in HOST.tiles)
    shapes = [f"{N} x {K} x {J}" for N, K, J in SWEEP_SHAPES[: 2 if options.quick else None]]
    some = SWEEP_TILES if not options.quick else SWEEP_TILES[:2]
    blocks = SWEEP_BLOCKS if not options.quick else SWEEP_BLOCKS[:1]
    by_tile = [rates(f"{r} x {c}", ((r, c), tiles[-1]) if r > 4 else ((r, c),), tile.BLOCK) for r, c in some]
    by_block = [rates(f"{n} rows", tiles, n) for n in blocks]
    return [
        "- GF/s of affine float32, float64 / accumulate float32, float64, one run each; peak of each process beside it",
        "",
        markdown_table(["tile", "peak", *shapes], by_tile),
        "",
        markdown_table([f"block, tiles {TILES}", "peak", *shapes], by_block),
    ]


def child(settings: str, seconds: float, shapes: Sequence[tuple[int, int, int]]) -> list[str]:
    """Rates with other tiles and another block: they are constants of code that is compiled after this."""
    tiles, block = json.loads(settings)
    cover.TILES = tuple(Tile(*kind) for kind in tiles)
    tile.BLOCK = block
    peaks = {dtype: peak(dtype, seconds) for dtype in DTYPES}
    cells = [" ".join(f"{rate / 1e9:.0f}" for rate in peaks.values())]
    for N, K, J in shapes:
        rates = [
            2.0 * rows * K * J / fastest(make(rows, K, J, dtype), seconds) / 1e9
            for make, rows in ((affine, N), (accumulate, STEPS * N))
            for dtype in DTYPES
        ]
        cells.append("{:.0f} {:.0f} / {:.0f} {:.0f}".format(*rates))
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="GF/s of the tiled product over this machine's peak, on one core")
    parser.add_argument("--quick", action="store_true", help="short rounds: to see that it runs")
    parser.add_argument("--sweep", action="store_true", help="try other tiles and blocks")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="write the text to this file, or to its place there, too")
    options = parser.parse_args()
    seconds = 0.002 if options.quick else 0.03
    if numba.config.DISABLE_JIT:
        raise SystemExit("NUMBA_DISABLE_JIT is set: there is no compiled code to measure; unset it")
    if options.child:
        print(json.dumps(child(options.child, seconds, SWEEP_SHAPES[: 2 if options.quick else None])))
        return
    peaks = {dtype: peak(dtype, seconds) for dtype in DTYPES}
    rates = ", ".join(f"{rate / 1e9:.1f} GF/s {dtype}" for dtype, rate in peaks.items())
    header = ["N x K x J", *(f"{kernel} {dtype}" for kernel in ("affine", "accumulate") for dtype in DTYPES)]
    lines = [
        f"- {processor()}; vectors of {HOST.vector_bytes} bytes, tiles {TILES}; numba {numba.__version__}",
        f"- peak of one core: {rates}; in the table GF/s (share of the peak)",
    ]
    if options.sweep:
        lines += sweep(options)
    else:
        lines += ["", markdown_table(header, (row(shape, peaks, seconds) for shape in SHAPES))]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.output:
        publish(text, options.output, "microkernel.py")


if __name__ == "__main__":
    main()
