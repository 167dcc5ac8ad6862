"""How time grows with T, B and H.

Run by ``python -m benchmarks.commands.scaling [--quick] [--output FILE.png] [--json FILE]``.

One size varies and the others stay; float32, inference above, forward + backward below, one line a cell, with PyTorch
dashed where it is installed. Both live in processes of their own and take turns, after their answers were compared. On
these logarithmic axes linear growth has slope one; in H it is two, once the products dominate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cases import CELLS, Shape
from benchmarks.comparison.report import processor
from benchmarks.comparison.rows import OURS, Row
from benchmarks.comparison.turns import Plan, compare
from benchmarks.sides import WHOLE, available
from benchmarks.sides.workers import Peer

AXES = "TBDH"
START: Shape = (100, 16, 16, 64)
"""The sizes that stay."""

VALUES = {
    "T": (1, 3, 10, 30, 100, 300, 1000, 3000),
    "B": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "H": (8, 16, 32, 64, 128, 256, 512),
}
SECONDS = 0.4
"""Seconds a point."""


def vary(axis: str, value: int) -> Shape:
    """The starting sizes with another value on one axis."""
    T, B, D, H = (value if name == axis else size for name, size in zip(AXES, START, strict=True))
    return T, B, D, H


def shapes(values: dict[str, Sequence[int]]) -> list[Shape]:
    """All points, each once, also where axes cross."""
    return list(dict.fromkeys(vary(axis, value) for axis, sizes in values.items() for value in sizes))


def measure(cells: Sequence[str], values: dict[str, Sequence[int]], seconds: float) -> list[Row]:
    """Both passes at all points."""
    rows = []
    with ExitStack() as stack:
        names = [name for name in (OURS, "torch") if name in available()]
        sides = {name: stack.enter_context(Peer(name, 1)) for name in names}
        for shape in shapes(values):
            for cell in cells:
                print(f"{cell} {shape} ...", file=sys.stderr, flush=True)
                rows += compare(sides, Plan(cell, shape, "float32", WHOLE), seconds)
    return rows


def line(rows: Sequence[Row], axis: str, cell: str, name: str, package: str) -> tuple[list[int], list[float]]:
    """Sizes in order, and milliseconds of a package where it has them, along one axis."""
    i = AXES.index(axis)
    others = START[:i] + START[i + 1 :]
    points = sorted(
        (row.shape[i], 1e3 * statistics.median(row.times[package]))
        for row in rows
        if row.cell == cell
        and row.name == name
        and package in row.times
        and row.shape[:i] + row.shape[i + 1 :] == others
    )
    return [size for size, _ in points], [time for _, time in points]


def plot(rows: Sequence[Row]) -> Any:
    """A figure of three columns, T, B and H, and two rows, one a pass."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(11, 6.5), layout="constrained")
    axes = figure.subplots(2, 3, sharex="col", sharey="row")
    cells = list(dict.fromkeys(row.cell for row in rows))
    for k, name in enumerate(WHOLE):
        for j, axis in enumerate(VALUES):
            ax = axes[k, j]
            for color, cell in enumerate(cells):
                for package, style in ((OURS, "o-"), ("torch", "--")):
                    sizes, times = line(rows, axis, cell, name, package)
                    if sizes:
                        label = f"{cell}, {package}"
                        ax.loglog(sizes, times, style, color=f"C{color}", label=label, markersize=3.5, linewidth=1.3)
            ticks = sorted({row.shape[AXES.index(axis)] for row in rows if row.shape in shapes({axis: VALUES[axis]})})
            ax.set_xticks(ticks, map(str, ticks))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.grid(alpha=0.3)
            others = ", ".join(f"{n} = {size}" for n, size in zip(AXES, START, strict=True) if n != axis)
            if k == 0:
                ax.set_title(others, fontsize="medium")
            else:
                ax.set_xlabel({"T": "steps T", "B": "sequences B", "H": "hidden units H"}[axis])
        axes[k, 0].set_ylabel(f"{name.replace('_', ' + ')}, ms")
    axes[0, 0].legend(fontsize="small")
    figure.suptitle(f"One thread, float32; {processor()}", fontsize="medium")
    return figure


def main() -> None:
    """Measure, and draw."""
    parser = argparse.ArgumentParser(description="time over T, B and H, elman and torch")
    parser.add_argument("--quick", action="store_true", help="few points and short: to see that it runs")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS, help="default: all")
    parser.add_argument("--output", type=Path, default=Path("scaling.png"), help="picture (default scaling.png)")
    parser.add_argument("--json", type=Path, help="write all times to this file")
    options = parser.parse_args()
    values = {axis: sizes[1:6:2] for axis, sizes in VALUES.items()} if options.quick else VALUES
    rows = measure(options.cells, values, 0.05 if options.quick else SECONDS)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    plot(rows).savefig(options.output, dpi=150)
    failed = [f"{row}: {row.failed}" for row in rows if row.failed]
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
