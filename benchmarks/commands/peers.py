"""elman beside its peers.

Run by ``python -m benchmarks.commands.peers [--quick] [--threads 1] [--json FILE] [--output FILE.md]``.

Same weights, same data, same number of threads. Each package lives in a process of its own, kept to as many cores as
it has threads, and is timed in turns with the others, so that none disturbs another and all see the same machine. There
is no time without a right answer: outputs and all gradients are compared first, and a package whose answers differ from
ours has no times in that row; where none agrees with us, neither have we.

With ``--threads 2`` each case is also measured with one thread, by processes of their own, right before: what the
second thread brings each package is a second table. With as many threads as cores, leave the machine alone.

All processes get the environment as it is, except for the number of threads (OMP_NUM_THREADS, MKL_NUM_THREADS,
OPENBLAS_NUM_THREADS, and XLA_FLAGS for one thread). What else in it may change the speed of a library
(OPENBLAS_CORETYPE, say) is printed with the table.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.cases import CELLS, DTYPES, RAGGED, SHAPES, STREAMED, Shape
from benchmarks.comparison.report import interval, processor, publish, results_text, significant
from benchmarks.comparison.rows import OURS, Results, Row
from benchmarks.comparison.threads import scaling_text
from benchmarks.comparison.turns import ROUNDS, SECONDS, Asked, Plan, compare
from benchmarks.sides import WHOLE, available
from benchmarks.sides.workers import THREAD_VARIABLES, Peer, cores

LIBRARY_PREFIXES = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "ATEN_", "NUMBA_", "XLA_")


def plans(cells: Sequence[str], chosen: Sequence[int]) -> list[Plan]:
    """What to measure; ``chosen`` counts SHAPES, and STREAMED after them. Small cases come first."""
    shapes = [SHAPES[i] for i in chosen if i < len(SHAPES)]
    streams = [STREAMED[i - len(SHAPES)] for i in chosen if i >= len(SHAPES)]
    kinds: list[tuple[Shape, tuple[str, ...], bool]] = [
        *((shape, ("step",), False) for shape in streams),
        *((shape, WHOLE, False) for shape in shapes),
        *((shape, WHOLE, True) for shape in shapes if shape in RAGGED),
    ]
    return [Plan(c, shape, dtype, names, ragged) for shape, names, ragged in kinds for c in cells for dtype in DTYPES]


class Budget:
    """Divides the minutes there are over what is still to do."""

    def __init__(
        self, minutes: float, todo: Sequence[Plan], packages: Sequence[str], peaks: Mapping[str, float]
    ) -> None:
        self.end = time.monotonic() + 60 * minutes
        self.bounds = [len(packages) * rounds * seconds for rounds, seconds in zip(ROUNDS, SECONDS, strict=True)]
        self.costs = [plan.least(packages, peaks[plan.dtype]) for plan in todo]
        self.passes = [len(plan.passes) for plan in todo]

    def share(self, done: int) -> float:
        """Seconds for each pass of the next case, ``done`` of them being done."""
        spare = self.end - time.monotonic() - sum(self.costs[done:])
        return float(np.clip(spare / sum(self.passes[done:]), *self.bounds))


def progress(row: Row) -> str:
    """One line."""
    ratio = row.ratio
    if ratio is None:
        return f"{row}: no ratio; {row.failed}"
    ours = significant(1e3 * statistics.median(row.times[OURS]))
    return f"{row}: {ours} ms, {ratio.peer} / elman {interval(ratio)} {row.failed or ''}"


def environment() -> str:
    """Variables that may change a library's speed, as all processes see them."""
    found = [
        f"{k}={v}"
        for k, v in sorted(os.environ.items())
        if k.startswith(LIBRARY_PREFIXES) and k not in THREAD_VARIABLES
    ]
    return ", ".join(found) or "nothing that changes a library's speed"


def describe(sides: Mapping[str, Asked], threads: int, peaks: Mapping[str, float]) -> dict[str, str]:
    """Facts for the head of the table."""
    missing = [name for name in ("torch", "onnxruntime", "jax", "keras", "tensorflow") if name not in sides]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{processor()}; Python {platform.python_version()}",
        "packages": ", ".join(side.ask("version") for side in sides.values()),
        "not compared": ", ".join(missing) or "none",
        "threads": f"{threads} each, on as many cores; environment: {environment()}",
        "peak of one core": ", ".join(f"{rate / 1e9:.1f} GF/s {dtype}" for dtype, rate in peaks.items()),
        "times": f"medians of {ROUNDS[0]} to {ROUNDS[1]} interleaved rounds, in brackets the smallest and the largest",
        "passes": "forward is inference; backward gives the gradients of all weights and of the input; step is one "
        "step of a stream, whose state is handed on",
        "lengths": "drawn uniformly from 1 to T",
    }  # fmt: skip


def measure(options: argparse.Namespace) -> Results:
    """Compare all that was asked for."""
    todo = plans(options.cells, options.shapes)
    with ExitStack() as stack:
        counts = dict.fromkeys((1, options.threads))
        groups = {n: {name: stack.enter_context(Peer(name, n)) for name in (OURS, *options.peers)} for n in counts}
        for sides in groups.values():
            for side in sides.values():
                side.ask("version")  # all have started: none takes the core from the measurement of the peak
        many = groups[options.threads]
        peaks = {dtype: groups[1][OURS].ask("peak", dtype, 0.01 if options.quick else 0.05) for dtype in DTYPES}
        results = Results(describe(many, options.threads, peaks), options.threads, peaks, [])
        work = [(plan, n) for plan in todo for n in groups]
        budget = Budget(options.budget, [plan for plan, _ in work], list(many), peaks)
        for done, (plan, n) in enumerate(work):
            for row in compare(groups[n], plan, budget.share(done)):
                print(f"{done + 1}/{len(work)}, threads {n}: {progress(row)}", file=sys.stderr, flush=True)
                (results.rows if n == options.threads else results.single).append(row)
            if options.json:
                results.save(options.json)
    return results


def indices(text: str) -> list[int]:
    """Numbers of shapes: ``0,3,12``."""
    found = [int(part) for part in text.split(",")]
    last = len(SHAPES) + len(STREAMED) - 1
    if not all(0 <= i <= last for i in found):
        raise argparse.ArgumentTypeError(f"shapes are numbered from 0 to {last}, got {text}")
    return found


def arguments() -> argparse.Namespace:
    """The command line."""
    peers = [name for name in available() if name != OURS]
    parser = argparse.ArgumentParser(description="elman beside its peers, checked and timed in turns")
    parser.add_argument("--quick", action="store_true", help="three shapes in a few minutes: to see that it runs")
    parser.add_argument("--threads", type=int, default=1, help="threads of each package (default 1); with more, one "
                        "thread is measured beside them")  # fmt: skip
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS, help="default: all")
    parser.add_argument("--peers", nargs="+", choices=peers, default=peers, help="default: all that are installed")
    parser.add_argument("--shapes", type=indices, help="numbers of shapes, 0,3,12: those of cases.SHAPES, and then "
                        "cases.STREAMED; default: all")  # fmt: skip
    parser.add_argument("--budget", type=float, help="minutes to aim at (default 25 for each number of threads, with "
                        "--quick 2)")  # fmt: skip
    parser.add_argument("--json", type=Path, help="write what was measured to this file, after each case")
    parser.add_argument("--from-json", type=Path, help="make the text from such a file; measure nothing. One "
                        "with several threads has two texts: see --threads")  # fmt: skip
    parser.add_argument("--output", type=Path, help="write the text to this file, or to its place there, too")
    options = parser.parse_args()
    if not 1 <= options.threads <= len(cores()):
        parser.error(f"--threads must be from 1 to the {len(cores())} cores there are, got {options.threads}")
    quick = [0, SHAPES.index(RAGGED[0]), len(SHAPES)]
    options.shapes = options.shapes or (quick if options.quick else list(range(len(SHAPES) + len(STREAMED))))
    options.budget = options.budget or (2 if options.quick else 25) * (1 + (options.threads > 1))
    return options


def main() -> None:
    """Compare, print the text, and say so with the exit code if something failed."""
    options = arguments()
    results = Results.load(options.from_json) if options.from_json else measure(options)
    if options.threads == 1:
        results = results.one_thread()
    text = "\n".join([results_text(results), scaling_text(results)]).rstrip() + "\n"
    print(text)
    if options.output:
        publish(text, options.output, "peers.py" if results.threads == 1 else f"peers.py --threads {results.threads}")
    if any(row.failed for row in (*results.rows, *results.single)):
        raise SystemExit("there are rows in which a package failed; they are listed at the end")


if __name__ == "__main__":
    main()
