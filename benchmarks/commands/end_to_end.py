"""Time to a given loss, elman beside torch: ``python -m benchmarks.commands.end_to_end [--quick] [--output FILE.md]``.

The adding problem over 200 steps, and 8x8 digits read pixel by pixel: the same network with the same initial weights,
the same batches in the same order, Adam with the same settings, gradients clipped to norm 1, the same threads. Each
package trains in a process of its own, pinned to as many cores as it has threads. They take turns, a few updates
each, so that both see the same machine.

Time is that of the updates alone, with the drawing of batches: not of evaluations, nor of a first update on another
network, which is stated apart. It ends at the first evaluation on held-out data that is below the target.

There is no time for curves that differ: in float64 the losses of the first updates must be the same to 1e-6. Rounding
separates the curves of any two programs later; how far is printed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.cases import CELLS, DTYPES
from benchmarks.comparison.report import markdown_table, processor, publish, significant, spread
from benchmarks.end_to_end.curves import SMOOTHED, Agreement, Curve, agreement
from benchmarks.end_to_end.problems import PROBLEMS, QUICK, SETTINGS, Problem, Settings, make_problem
from benchmarks.end_to_end.workers import Ready, Stint, serve
from benchmarks.sides.workers import THREAD_VARIABLES, cores

PACKAGES = ("elman", "torch")
CHECKED = 100
"""Updates over which the curves must agree in float64."""
TOLERANCE = {"float32": 1e-4, "float64": 1e-6}


class Disagreement(AssertionError):
    """Two packages did not learn the same: none of them is timed."""


class Trainer:
    """A package in a process of its own, for as long as the ``with`` block lasts.

    Parameters
    ----------
    package : str
        Its name.
    threads : int
        Threads, and cores.
    cache : str or None
        Folder of numba's compiled code; None for the one it would take anyway.
    """

    def __init__(self, package: str, threads: int, cache: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.package = package
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, package, threads), daemon=True)
        set_variables = dict.fromkeys(THREAD_VARIABLES, str(threads)) | ({"NUMBA_CACHE_DIR": cache} if cache else {})
        before = {name: os.environ.get(name) for name in set_variables}
        os.environ.update(set_variables)
        try:
            self.process.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        # else the end of the process would not end a wait for its answer
        theirs.close()

    def send(self, message: Any) -> None:
        """A problem, whether to go on, or None for the end."""
        self.connection.send(message)

    def receive(self) -> Any:
        """The answer.

        Raises
        ------
        RuntimeError
            With its traceback if it failed, or if the process is gone.
        """
        try:
            answer = self.connection.recv()
        except EOFError:
            raise RuntimeError(f"the process of {self.package} ended; its own message is above") from None
        if isinstance(answer, str):
            raise RuntimeError(f"{self.package} failed:\n{answer}")
        return answer

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.send(None)
        else:
            self.process.terminate()
        self.process.join()


class Run(NamedTuple):
    """One problem learned by both."""

    problem: str
    cell: str
    dtype: str
    target: float
    ours: Curve
    theirs: Curve
    agreement: Agreement

    def to_dict(self) -> dict[str, Any]:
        return self._asdict() | {
            "ours": self.ours.to_dict(), "theirs": self.theirs.to_dict(), "agreement": self.agreement._asdict(),
        }  # fmt: skip


def learn(trainers: Sequence[Trainer], problem: Problem, checked: int) -> Run:
    """Train both in turns until both have reached the target or the batches are used up.

    Raises
    ------
    Disagreement
        If the losses of the first batch differ, or in float64 any of the first ``checked``.
    """
    curves = []
    for trainer in trainers:
        trainer.send(problem)
        ready: Ready = trainer.receive()
        curves.append(Curve(*ready, problem.every))
    left = len(problem.batches)
    while left > 0 and not all(curve.reached(problem.target) for curve in curves):
        for trainer, curve in zip(trainers, curves, strict=True):
            trainer.send(True)
            stint: Stint = trainer.receive()
            curve.loss += stint.loss
            curve.seconds += stint.seconds
            curve.held_out.append(stint.held_out)
            curve.accuracy.append(stint.accuracy)
        left -= problem.every
        check_agreement(agreement(curves[0].loss, curves[1].loss, checked), problem)
    for trainer in trainers:
        trainer.send(False)
    ours, theirs = curves
    found = agreement(ours.loss, theirs.loss, checked)
    return Run(problem.name, problem.cell, problem.dtype, problem.target, ours, theirs, found)


def check_agreement(found: Agreement, problem: Problem) -> None:
    """Refuse to go on with curves that are not the same where they must be."""
    allowed = TOLERANCE[problem.dtype]
    deviation = found.largest if problem.dtype == "float64" else found.first
    # written so that NaN does not pass
    if not deviation <= allowed:
        where = f"within {found.updates} updates" if problem.dtype == "float64" else "before any update"
        raise Disagreement(
            f"{problem.name}, {problem.cell}, {problem.dtype}: the losses of elman and torch differ by "
            f"{deviation:.1e} of their value {where}, and {allowed:.0e} is allowed"
        )


def row_of_times(run: Run) -> list[str]:
    """A row of the table of times; updates and seconds are missing where the target was not reached."""
    reached = [curve.reached(run.target) for curve in (run.ours, run.theirs)]
    updates = " / ".join("not reached" if r is None else str(r.updates) for r in reached)
    right = " / ".join("-" if r is None or r.accuracy is None else f"{r.accuracy:.1%}" for r in reached)
    seconds = ["-" if r is None else significant(r.seconds) for r in reached]
    a, b = reached
    ratio = "-" if a is None or b is None else significant(b.seconds / a.seconds)
    rounds = [[1e3 * t for t in curve.rounds] for curve in (run.ours, run.theirs)]
    each = [t / o for o, t in zip(*rounds, strict=True)]
    return [
        run.problem, run.cell, run.dtype, f"{run.target:g}", updates, right, *seconds, ratio, *map(spread, rounds),
        spread(each), *(significant(curve.first) for curve in (run.ours, run.theirs)),
    ]  # fmt: skip


TIMES = (
    "problem", "cell", "dtype", "loss to reach", "updates, elman / torch", "right then", "elman, s", "torch, s",
    "torch / elman", "elman, ms an update", "torch, ms an update", "ratio of these",
    "elman, first update, s", "torch, first update, s",
)  # fmt: skip


def row_of_deviations(run: Run) -> list[str]:
    """A row of the table of deviations."""
    found = run.agreement
    apart = f"not within {min(len(run.ours.loss), len(run.theirs.loss))}" if found.apart is None else str(found.apart)
    smoothed = "-" if found.smoothed is None else f"{found.smoothed:.1%}"
    return [
        run.problem, run.cell, run.dtype, f"{found.first:.1e}", f"{found.largest:.1e} ({found.updates})", apart,
        smoothed,
    ]  # fmt: skip


DEVIATIONS = (
    "problem", "cell", "dtype", "first loss", "largest (over updates)", "first update above 1 %", "smoothed curves",
)  # fmt: skip


def report(runs: Sequence[Run], checks: Sequence[Run], about: Sequence[str]) -> str:
    """The whole text: what was measured on what, times, and how far the curves agree."""
    parts = [
        "\n".join(f"- {line}" for line in about),
        markdown_table(TIMES, map(row_of_times, runs)),
        "Deviation of the two losses by update, relative. The last column is the median distance of running means over "
        f"{SMOOTHED} updates.",
        markdown_table(DEVIATIONS, map(row_of_deviations, [*checks, *runs])),
    ]
    return "\n\n".join(parts) + "\n"


def plot(runs: Sequence[Run], path: Path) -> None:
    """Held-out loss over the seconds of training: a column a problem, a row a cell."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    problems, cells = (list(dict.fromkeys(getattr(run, name) for run in runs)) for name in ("problem", "cell"))
    size = (4.5 * len(problems), 3.4 * len(cells))
    figure, axes = pyplot.subplots(len(cells), len(problems), squeeze=False, figsize=size, layout="constrained")
    names = {"adding": "mean squared error", "digits": "cross-entropy, nats"}
    for run in runs:
        ax = axes[cells.index(run.cell), problems.index(run.problem)]
        for package, curve in zip(PACKAGES, (run.ours, run.theirs), strict=True):
            ax.plot(curve.elapsed, curve.held_out, marker=".", label=package)
        ax.axhline(run.target, color="0.5", linestyle="--", linewidth=1, label="loss to reach")
        ax.set(title=f"{run.problem}, {run.cell}, {run.dtype}", yscale="log", xlim=(0, None))
        ax.set(xlabel="wall time of training, s", ylabel=f"held-out {names[run.problem]}")
        ax.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="time to a given loss, elman beside torch, taken in turns")
    parser.add_argument("--quick", action="store_true", help="tiny networks, few updates: to see that the curves agree")
    parser.add_argument("--threads", type=int, default=1, help="threads of each package (default 1)")
    parser.add_argument("--cell", nargs="+", choices=CELLS, default=["GRU"], help="recurrent layers (default GRU)")
    parser.add_argument("--problem", nargs="+", choices=PROBLEMS, default=[*PROBLEMS], help="problems (default both)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of network and data (default float32)")
    parser.add_argument("--output", type=Path, help="write the text to this file, or to its place there, too")
    parser.add_argument("--json", type=Path, help="write all curves to this file")
    parser.add_argument("--plot", type=Path, help="draw the losses over time into this file")
    options = parser.parse_args(argv)
    if not 1 <= options.threads <= len(cores()):
        parser.error(f"--threads must be from 1 to the {len(cores())} cores there are, got {options.threads}")
    return options


def compare(options: argparse.Namespace, cache: str | None) -> tuple[list[Run], list[Run]]:
    """Times, and the float64 runs that only show that the curves agree."""
    table: dict[str, Settings] = QUICK if options.quick else SETTINGS
    runs, checks = [], []
    with Trainer("elman", options.threads, cache) as ours, Trainer("torch", options.threads, None) as theirs:
        for cell in options.cell:
            for name in options.problem:
                settings = table[name]
                print(f"{name}, {cell} ...", file=sys.stderr)
                if options.dtype != "float64":
                    # one evaluation, after the last update that is compared
                    n = min(CHECKED, settings.updates)
                    short = settings._replace(updates=n, every=n)
                    checks.append(learn((ours, theirs), make_problem(name, cell, "float64", short), n))
                runs.append(learn((ours, theirs), make_problem(name, cell, options.dtype, settings), CHECKED))
    return runs, checks


def describe(options: argparse.Namespace, runs: Sequence[Run]) -> list[str]:
    """What was measured on what."""
    table = QUICK if options.quick else SETTINGS
    compiled = "may come from the cache on disk" if options.quick else "are compiled, none being on disk"
    return [
        f"{processor()}; Python {platform.python_version()}",
        f"{runs[0].ours.version} beside {runs[0].theirs.version}, {options.threads} thread(s) each",
        *(
            f"{name}: {s.hidden} hidden units, batches of {s.batch_size} out of {s.samples} sequences, Adam with "
            f"lr {s.lr:g}, gradients clipped to norm 1, evaluated every {s.every} updates"
            for name, s in table.items()
            if name in options.problem
        ),
        "loss to reach: on held-out data, of which 'right then' is the share recognised at that time",
        "ms an update: median of the medians between two evaluations, in brackets the smallest and the largest",
        f"first update: of a network of its own, before the clock starts; elman's kernels {compiled}, and are ready "
        "when the same cell and dtype come again",
    ]


def main() -> None:
    """Compare, and print the tables."""
    options = arguments()
    if options.quick:
        runs, checks = compare(options, None)
    else:
        with TemporaryDirectory() as cache:
            runs, checks = compare(options, cache)
    about = describe(options, runs)
    text = report(runs, checks, about)
    print(text)
    if options.output:
        publish(text, options.output, "end_to_end.py")
    if options.json:
        content = {"about": about, "runs": [r.to_dict() for r in runs], "checks": [r.to_dict() for r in checks]}
        options.json.write_text(json.dumps(content), encoding="utf-8")
    if options.plot:
        plot(runs, options.plot)


if __name__ == "__main__":
    main()
