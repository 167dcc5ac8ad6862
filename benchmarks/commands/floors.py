"""How far each pass is from what the machine allows, and where the rest goes: ``python -m benchmarks.commands.floors``.

The floor of a pass is the larger of two times: its matrix products at the peak of multiply-adds, and, for few rows,
the reading of ``W_hh`` once a step (backward: twice) at the bandwidth of an array of that size. Beside it stand the
measured time, what the nonlinearities take by themselves, and the share of each phase. One core, fastest of several
calls.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

import elman
from benchmarks.cases import CELLS, DTYPES, GATES, SHAPES, Case, Shape, flops, make_case
from benchmarks.commands.microkernel import fastest, peak
from benchmarks.comparison.report import markdown_table, processor, publish, significant
from elman.cells import gru, lstm
from elman.kernels.activations import activate, times_slope
from elman.kernels.operands import blocks, rows_at
from elman.kernels.tile import padded
from elman.kernels.vector import Emitter, lanes_of, pointers
from elman.layers.engine import bptt
from elman.layers.engine.buffers import Buffers
from elman.layers.engine.direction import Direction
from elman.layers.engine.layout import Layout
from elman.layers.engine.prepared import PreparedDirection

PHASES: dict[str, tuple[tuple[Any, tuple[str, ...]], ...]] = {
    "packing": ((Layout, ("panels", "pack_input_back", "pack_state_back")),),
    "forward": ((Direction, ("_run",)), (PreparedDirection, ("run",))),
    "sweep": ((Direction, ("sweep",)),),
    "weight gradients": ((bptt.WeightSums, ("__init__", "add")),),
    "input gradient": ((bptt, ("_input_gradient",)),),
}
"""What is timed by itself, and where it is: the functions of a phase."""

UNITS, CHAINS = 256, 8
FEW_ROWS, CACHE = 16, 1 << 16
"""Rows from which the products hide the reading of the weights, and bytes up to which they are read from caches that
keep up with the arithmetic."""

compiled = numba.njit(error_model="numpy")
_lstm_rows, _lstm_delta = lstm._forward_rows, lstm._delta_rows
_gru_rows, _gru_delta = gru._forward_rows, gru._delta_rows


@compiled
def run_rnn(n, g, s, d, q, rows, U, H):  # type: ignore[no-untyped-def]
    for _ in range(n):
        activate(0, rows_at(g, 0, H), rows, U)


@compiled
def run_rnn_delta(n, g, s, d, q, rows, U, H):  # type: ignore[no-untyped-def]
    for _ in range(n):
        times_slope(0, rows_at(g, 0, H), rows_at(s, 0, H), rows_at(d, 0, H), rows, 1, U, q, 0)


@compiled
def run_lstm(n, g, s, d, q, rows, U, H):  # type: ignore[no-untyped-def]
    i, f, c, o = blocks(rows_at(g, 0, 4 * H), H, 4)
    for _ in range(n):
        _lstm_rows(i, f, c, o, rows_at(s, 0, H), rows_at(d, 0, H), rows_at(d, H, H), rows, 1, U)


@compiled
def run_lstm_delta(n, g, s, d, q, rows, U, H):  # type: ignore[no-untyped-def]
    i, f, c, o = blocks(rows_at(g, 0, 4 * H), H, 4)
    d_i, d_f, d_c, d_o = blocks(rows_at(d, 0, 4 * H), H, 4)
    a, b = rows_at(s, 0, H), rows_at(s, H, H)
    for _ in range(n):
        _lstm_delta(i, f, c, o, a, b, a, b, d_i, d_f, d_c, d_o, rows, 1, U, q, 0)


@compiled
def run_gru(n, g, s, d, q, rows, U, H):  # type: ignore[no-untyped-def]
    new, r, z, of_h = blocks(rows_at(g, 0, 4 * H), H, 4)
    for _ in range(n):
        _gru_rows(new, r, z, of_h, rows_at(s, 0, H), rows_at(d, 0, H), rows, 1, U)


@compiled
def run_gru_delta(n, g, s, d, q, rows, U, H):  # type: ignore[no-untyped-def]
    new, r, z, of_h = blocks(rows_at(g, 0, 4 * H), H, 4)
    d_n, d_r, d_z, d_h = blocks(rows_at(d, 0, 4 * H), H, 4)
    a, b = rows_at(s, 0, H), rows_at(s, H, H)
    for _ in range(n):
        _gru_delta(new, r, z, of_h, a, b, d_n, d_r, d_z, d_h, rows, 1, U, q, 0)


RUNS = {"RNN": (run_rnn, run_rnn_delta), "LSTM": (run_lstm, run_lstm_delta), "GRU": (run_gru, run_gru_delta)}


def unit_seconds(cell: str, dtype: str, seconds: float) -> tuple[float, float]:
    """What one unit's nonlinearities take forwards, and their derivatives backwards, on rows in the nearest cache."""
    rng, rows = np.random.default_rng(0), 2
    U, n = UNITS // lanes_of(np.dtype(dtype).itemsize), rows * UNITS
    gates, states, delta = rng.random(4 * n).astype(dtype), rng.random(4 * n).astype(dtype), np.zeros(4 * n + 8, dtype)
    states *= 1e-3
    squares = np.zeros(4 * rows)
    forward, backward = (
        fastest(lambda k, run=run: run(k, gates, states, delta, squares, rows, U, UNITS), seconds) / n  # type: ignore[misc]
        for run in RUNS[cell]
    )
    return forward, backward


@intrinsic
def add_up(typing: Any, a: Any, blocks: Any, turn: Any) -> Any:
    """Add vectors of ``a`` to eight sums, a block of eight vectors at a time, from the last block on if ``turn``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder, context.get_value_type(signature.args[0].dtype))
        (data,) = pointers(context, builder, signature, args, [0])
        _, blocks, turn = args
        one, block = ir.Constant(blocks.type, 1), ir.Constant(blocks.type, CHAINS * e.lanes)
        back = builder.icmp_signed("!=", turn, ir.Constant(turn.type, 0))

        def step(i: Any, sums: list[Any]) -> list[Any]:
            at = builder.mul(builder.select(back, builder.sub(builder.sub(blocks, one), i), i), block)
            places = [builder.add(at, ir.Constant(at.type, j * e.lanes)) for j in range(CHAINS)]
            return [builder.fadd(x, e.load(data, place)) for x, place in zip(sums, places, strict=True)]

        for j, x in enumerate(e.loop(blocks, [e.zero()] * CHAINS, step)):
            e.store(x, data, ir.Constant(blocks.type, j * e.lanes))
        return context.get_dummy_value()

    return types.void(a, types.intp, types.intp), codegen


@compiled
def read(n, a, blocks):  # type: ignore[no-untyped-def]
    for i in range(n):
        add_up(a, blocks, i % 2)


def read_seconds(size: int) -> float:
    """Seconds to read ``size`` bytes over and over, there and back as steps of one row read their weights."""
    a = np.full(size // 4, 1e-9, np.float32)  # zeros would all be one page
    return fastest(lambda n: read(n, a, len(a) // (CHAINS * lanes_of(4))), 0.03, rounds=8)


@contextmanager
def timed_phases(spent: Counter[str]) -> Iterator[None]:
    """Add up the seconds that each phase takes."""
    with ExitStack() as stack:
        places = [(phase, owner, names) for phase, some in PHASES.items() for owner, names in some]
        for phase, owner, names in places:
            for name in names:
                stack.enter_context(patch.object(owner, name, _timed(getattr(owner, name), phase, spent)))
        yield


def _timed(function: Callable[..., Any], phase: str, spent: Counter[str]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            spent[phase] += time.perf_counter() - start

    return call


def fastest_call(call: Callable[[], object], seconds: float) -> tuple[float, Counter[str]]:
    """The fastest of calls that take at least ``seconds`` together, three at least, and its phases."""
    best, phases, until = float("inf"), Counter[str](), time.perf_counter() + seconds
    with timed_phases(spent := Counter()):
        call()
        for i in range(10**9):
            if i >= 3 and time.perf_counter() > until:
                break
            spent.clear()
            start = time.perf_counter()
            call()
            elapsed = time.perf_counter() - start
            if elapsed < best:
                best, phases = elapsed, Counter(spent)
    return best, phases


def calls(case: Case) -> dict[str, Callable[[], object]]:
    """Both passes of a case."""
    layer = getattr(elman, case.cell)(case.input_size, case.hidden_size, dtype=case.x.dtype)
    layer.load_state_dict(case.weights)
    buffers = Buffers()
    return {
        "forward": lambda: layer(case.x),
        "forward + backward": lambda: layer.backward(
            layer.trace(case.x, buffers=buffers), case.d_output, buffers=buffers
        ),
    }


def rows(
    shape: Shape, cell: str, dtype: str, rate: float, units: tuple[float, float], seconds: float
) -> list[list[str]]:
    """Two lines of the table: forward, and forward + backward."""
    T, B, _, H = shape
    size = np.dtype(dtype).itemsize
    panels = GATES[cell] * padded(H, size) * H * size
    weights = read_seconds(panels) if B < FEW_ROWS and panels > CACHE else 0.0
    lines = []
    for name, call in calls(make_case(shape, dtype, cell)).items():
        backward = name != "forward"
        products = flops(shape, cell, backward) / rate
        reading = T * weights * (1 + backward)
        nonlinear = T * B * H * (units[0] + backward * units[1])
        best, phases = fastest_call(call, seconds)
        floor = max(products, reading)
        parts = [phases[phase] / best for phase in PHASES]
        lines.append(
            [
                cell, ", ".join(map(str, shape)), dtype, name, significant(1e3 * best), significant(1e3 * products),
                significant(1e3 * reading) if weights else "-", f"{floor / best:.0%}", f"{nonlinear / best:.0%}",
                *(f"{part:.0%}" for part in parts), f"{max(0.0, 1 - sum(parts)):.0%}",
            ]
        )  # fmt: skip
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="floors beside measured times, on one core")
    parser.add_argument("--quick", action="store_true", help="two shapes: to see that it runs")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--output", type=Path, help="write the text to this file, or to its place there, too")
    options = parser.parse_args()
    elman.set_num_threads(1)
    seconds = 0.01 if options.quick else 0.3
    rate = peak(options.dtype, seconds / 6)
    header = [
        "cell", "T, B, D, H", "dtype", "pass", "ms", "products, ms", "weights, ms", "floor / time", "nonlinear",
        *PHASES, "rest",
    ]  # fmt: skip
    lines = []
    for cell in options.cells:
        units = unit_seconds(cell, options.dtype, seconds / 6)
        for shape in (SHAPES[0], SHAPES[3]) if options.quick else SHAPES:
            lines += rows(shape, cell, options.dtype, rate, units, seconds)
            print(" ".join(lines[-1][:5]), file=sys.stderr, flush=True)
    text = (
        f"- {processor()}; peak of one core {rate / 1e9:.1f} GF/s {options.dtype}\n\n{markdown_table(header, lines)}\n"
    )
    print(text)
    if options.output:
        publish(text, options.output, "floors.py")


if __name__ == "__main__":
    main()
