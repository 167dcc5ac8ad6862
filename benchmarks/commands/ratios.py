"""A picture of the tables of ``peers.py``: best peer / elman, row by row, one panel a table.

``python -m benchmarks.commands.ratios docs/performance-tables.md --output docs/performance-ratios.png``
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MARKERS = {"forward": "o", "forward + backward": "s", "step": "^"}
COLOURS = {"RNN": "#0072b2", "LSTM": "#d55e00", "GRU": "#009e73"}
"""Of Okabe and Ito's palette, which colour-blind readers can tell apart."""


class Point(NamedTuple):
    """One row of a table."""

    cell: str
    shape: str
    dtype: str
    name: str
    ratio: float


class Table(NamedTuple):
    """The rows of one run, the machine, which is the heading of its section if it has one, and the threads."""

    machine: str
    threads: str
    points: list[Point]


def tables(text: str) -> list[Table]:
    """Every table of ``peers.py`` in a page, in its order."""
    found: list[Table] = []
    heading = machine = threads = ""
    columns: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("- machine:"):
            machine = line.removeprefix("- machine:").split(";")[0].strip()
        elif line.startswith("- threads:"):
            threads = line.removeprefix("- threads:").split()[0]
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if "best peer / elman" in cells:
            columns = {cell: i for i, cell in enumerate(cells)}
            found.append(Table(heading or machine, threads, []))
        elif not cells:
            columns = {}
        elif columns and (value := re.match(r"[\d.]+", cells[columns["best peer / elman"]])):
            cell, shape, dtype, name = (cells[columns[key]] for key in ("cell", "T, B, D, H", "dtype", "pass"))
            found[-1].points.append(Point(cell, shape, dtype, name, float(value[0])))
    return [table for table in found if table.points]


def draw(found: list[Table], path: Path) -> None:
    """One panel a table: shapes along the axis, every pass of every cell above its shape."""
    figure, panels = plt.subplots(
        len(found), 1, figsize=(9, 0.6 + 3.1 * len(found)), squeeze=False, layout="constrained"
    )
    for axes, table in zip(panels[:, 0], found, strict=True):
        shapes = list(dict.fromkeys(point.shape for point in table.points))
        for cell, colour in COLOURS.items():
            for name, marker in MARKERS.items():
                for dtype in ("float32", "float64"):
                    mine = [p for p in table.points if (p.cell, p.name, p.dtype) == (cell, name, dtype)]
                    shift = 0.22 * (list(COLOURS).index(cell) - 1) + (0.07 if dtype == "float64" else -0.07)
                    axes.plot(
                        [shapes.index(p.shape) + shift for p in mine], [p.ratio for p in mine], marker, color=colour,
                        markersize=4.5, linestyle="", markerfacecolor=colour if dtype == "float32" else "white",
                    )  # fmt: skip
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
        axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.set_xticks(range(len(shapes)), [shape.replace(", lengths", "\nlengths") for shape in shapes], rotation=60)
        axes.tick_params(axis="x", labelsize=7)
        axes.set_xlim(-0.6, len(shapes) - 0.4)
        for i in range(1, len(shapes), 2):
            axes.axvspan(i - 0.5, i + 0.5, color="0.95", zorder=0)
        behind = sum(point.ratio < 1 for point in table.points)
        axes.set_title(
            f"{table.machine}; threads: {table.threads}; behind in {behind} of {len(table.points)}", fontsize=9
        )
        axes.set_ylabel("best peer's time / elman's")
    panels[-1, 0].set_xlabel("T, B, D, H")
    figure.legend(handles=_key(), loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _key() -> list[plt.Line2D]:
    """One entry for each colour, marker and filling."""
    line = plt.Line2D
    cells = [line([], [], color=colour, marker="o", linestyle="", label=cell) for cell, colour in COLOURS.items()]
    passes = [line([], [], color="0.3", marker=marker, linestyle="", label=name) for name, marker in MARKERS.items()]
    hollow = line([], [], color="0.3", marker="o", markerfacecolor="white", linestyle="", label="hollow: float64")
    return [*cells, *passes, hollow]


def main() -> None:
    """Read the page, write the picture."""
    parser = argparse.ArgumentParser(description="a picture of the tables that peers.py wrote into a page")
    parser.add_argument("page", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="a picture, such as docs/performance-ratios.png")
    options = parser.parse_args()
    found = tables(options.page.read_text(encoding="utf-8"))
    if not found:
        parser.error(f"{options.page} has no table of peers.py")
    draw(found, options.output)


if __name__ == "__main__":
    main()
