"""elman.RNN beside torch.nn.RNN: ``python benchmarks/peers.py [--quick] [--threads 1] [--output FILE.md]``.

Same weights, same data, same number of threads. Each package lives in a process of its own and is timed in turns with
the other, so that neither disturbs the other and both see the same machine. There is no time without a right answer:
outputs and all gradients are compared first, and the program stops where they differ.

Both processes get the environment as it is, except that OMP_NUM_THREADS, MKL_NUM_THREADS and OPENBLAS_NUM_THREADS are
set to the number of threads. What else in it may change the speed of a library (OPENBLAS_CORETYPE, say) is printed with
the table.
"""

from __future__ import annotations

import argparse
import os
import pickle
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

# run as a script, the folder above is not on the path
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cases import DTYPES, SHAPES, Array, flops, make_case
from benchmarks.report import markdown_table, processor, significant, spread
from benchmarks.workers import PASSES

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LIBRARY_PREFIXES = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "ATEN_", "NUMBA_")

Shape = tuple[int, int, int, int]


class Disagreement(AssertionError):
    """Two packages gave different answers: none of them is timed."""


class Asked(Protocol):
    """Something that answers requests, such as :class:`Peer`."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of :class:`benchmarks.workers.Side`."""


class Peer:
    """A package in a process of its own, for as long as the ``with`` block lasts."""

    def __init__(self, name: str, threads: int) -> None:
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        command = [sys.executable, "-m", "benchmarks.workers", name, str(threads)]
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the side over there.

        Raises
        ------
        RuntimeError
            With its traceback if it failed, or if the process is gone.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((method, *arguments), self.process.stdin)
            self.process.stdin.flush()
            ok, answer = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):
            raise RuntimeError(f"the process of {self.name} ended; its own message is above") from None
        if not ok:
            raise RuntimeError(f"{self.name} failed at {method}:\n{answer}")
        return answer

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


class Timing(NamedTuple):
    """Seconds a call, one number a round, of one pass of one case."""

    shape: Shape
    dtype: str
    name: str
    ours: list[float]
    theirs: list[float]


def check_agreement(ours: dict[str, Array], theirs: dict[str, Array], dtype: str) -> None:
    """Compare answers by name; deviations count relative to the largest entry of the peer's array.

    Raises
    ------
    Disagreement
        Naming the first array that is missing, of another shape, or off by more than the dtype allows.
    """
    if ours.keys() != theirs.keys():
        raise Disagreement(f"one side has answers that the other lacks: {sorted(ours.keys() ^ theirs.keys())}")
    for name, reference in theirs.items():
        value = ours[name]
        if value.shape != reference.shape or value.dtype != reference.dtype:
            raise Disagreement(f"{name}: {value.dtype}{value.shape} against {reference.dtype}{reference.shape}")
        error, largest = np.max(np.abs(value - reference)), np.max(np.abs(reference))
        # written so that NaN does not pass
        if not error <= TOLERANCE[dtype] * largest:
            raise Disagreement(
                f"{name} differs by {error:.1e}, with {largest:.1e} its largest entry; {dtype} allows "
                f"{TOLERANCE[dtype]:.0e} of that"
            )


def compare(ours: Asked, theirs: Asked, shape: Shape, dtype: str, rounds: int, seconds: float) -> list[Timing]:
    """Check one case, warm up, and time both passes in turns.

    Raises
    ------
    Disagreement
        Before anything is timed.
    """
    case, sides = make_case(shape, dtype), (ours, theirs)
    check_agreement(ours.ask("prepare", case), theirs.ask("prepare", case), dtype)
    timings = []
    for name in PASSES:
        turns = [[side.ask("measure", name, seconds) for side in sides] for _ in range(1 + rounds)]
        # the first turn is the warm-up
        a, b = (list(column) for column in zip(*turns[1:], strict=True))
        timings.append(Timing(shape, dtype, name, a, b))
    return timings


def cells(timing: Timing, peak: float) -> list[str]:
    """A row of the table; ``peak`` is what all threads together could do, in operations per second."""
    ratios = [b / a for a, b in zip(timing.ours, timing.theirs, strict=True)]
    ratio = statistics.median(timing.theirs) / statistics.median(timing.ours)
    rate = flops(timing.shape, timing.name == "forward_backward") / statistics.median(timing.ours)
    return [
        ", ".join(map(str, timing.shape)),
        timing.dtype,
        timing.name.replace("_", " + "),
        *(spread([1e3 * t for t in times]) for times in (timing.ours, timing.theirs)),
        f"{significant(ratio)} ({significant(min(ratios))}-{significant(max(ratios))})",
        f"{rate / 1e9:.1f} ({rate / peak:.0%})",
    ]


HEADER = ("T, B, D, H", "dtype", "pass", "elman, ms", "torch, ms", "torch / elman", "elman, GF/s (of peak)")


def report(timings: Sequence[Timing], peaks: dict[str, float], about: Sequence[str]) -> str:
    """The whole text: what was measured on what, and the table."""
    table = markdown_table(HEADER, (cells(timing, peaks[timing.dtype]) for timing in timings))
    return "\n".join([*(f"- {line}" for line in about), "", table, ""])


def environment() -> str:
    """Variables that may change a library's speed, as both processes see them."""
    found = [
        f"{k}={v}"
        for k, v in sorted(os.environ.items())
        if k.startswith(LIBRARY_PREFIXES) and k not in THREAD_VARIABLES
    ]
    return ", ".join(found) or "nothing that changes a library's speed"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="elman.RNN beside torch.nn.RNN, checked and timed in turns")
    parser.add_argument("--quick", action="store_true", help="short and few rounds: to see that it runs")
    parser.add_argument("--threads", type=int, default=1, help="threads of each package (default 1)")
    parser.add_argument("--output", type=Path, help="write the text to this file, too")
    options = parser.parse_args()
    if options.threads < 1:
        parser.error(f"--threads must be at least 1, got {options.threads}")
    return options


def main() -> None:
    """Compare, and print the table."""
    options = arguments()
    rounds, seconds = (3, 0.02) if options.quick else (9, 0.3)
    with Peer("elman", options.threads) as ours, Peer("torch", options.threads) as theirs:
        about = [
            f"{processor()}; Python {platform.python_version()}",
            f"{ours.ask('version')} beside {theirs.ask('version')}",
            f"{options.threads} thread{'s' * (options.threads > 1)} each; environment: {environment()}",
            f"medians of {rounds} interleaved rounds of at least {seconds} s, in brackets the smallest and the largest",
            "forward is inference; backward gives the gradients of all weights and of the input",
        ]
        peaks = {dtype: options.threads * ours.ask("peak", dtype, seconds / 6) for dtype in DTYPES}
        about.append("peak: " + ", ".join(f"{rate / 1e9:.1f} GF/s {dtype}" for dtype, rate in peaks.items()))
        timings = []
        for shape in SHAPES:
            for dtype in DTYPES:
                print(f"{shape} {dtype} ...", file=sys.stderr)
                timings += compare(ours, theirs, shape, dtype, rounds, seconds)
    text = report(timings, peaks, about)
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
