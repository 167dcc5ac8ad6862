"""Words and tables for what was measured."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .rows import OURS, Ratio, Results, Row


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table that also reads as plain text: the first column to the left, the others to the right."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    text = [
        [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        for line in lines
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [text[0], rule, *text[1:]])


def publish(text: str, path: Path, name: str) -> None:
    """Write a text to a file; where the file has a place for it, there, and leave the rest as it is.

    A place begins with a line ``<!-- name -->`` and ends with ``<!-- end of name -->``.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if begin in old and end in old:
        before, rest = old.split(begin, 1)
        text = f"{before}{begin}\n{text.strip()}\n\n{end}{rest.split(end, 1)[1]}"
    path.write_text(text, encoding="utf-8")


def processor() -> str:
    """The processor's name and the number of cores this process may use."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} core{'s' * (cores != 1)}, {platform.system()}"


def significant(value: float) -> str:
    """Three significant digits, never in exponential form."""
    text = f"{value:#.3g}"
    return (f"{float(text):.0f}" if "e" in text else text).removesuffix(".")


def spread(values: Sequence[float]) -> str:
    """Median, and in brackets the smallest and the largest."""
    median, low, high = (significant(f(values)) for f in (statistics.median, min, max))
    return f"{median} ({low}-{high})"


def geometric_mean(values: Sequence[float]) -> float:
    """Mean of ratios, of which 2 and 1/2 cancel."""
    return math.exp(statistics.fmean(map(math.log, values)))


def row_cells(row: Row, peers: Sequence[str], peak: float) -> list[str]:
    """A line of the table; ``peak`` is what all threads together could do, in operations per second."""
    timed, ratio = OURS in row.times, row.ratio
    shape = ", ".join(map(str, row.shape)) + (", lengths" if row.ragged else "")
    return [
        row.cell,
        shape,
        row.dtype,
        row.title,
        spread([1e3 * t for t in row.times[OURS]]) if timed else absent(row, OURS),
        *(peer_time(row, name) for name in peers),
        ratio.peer if ratio else "",
        interval(ratio) if ratio else "",
        f"{row.rate / 1e9:.1f} ({row.rate / peak:.0%})" if timed else "",
    ]


def interval(ratio: Ratio) -> str:
    """The ratio of the medians, and in brackets the smallest and the largest of the rounds."""
    return f"{significant(ratio.median)} ({significant(ratio.low)}-{significant(ratio.high)})"


def absent(row: Row, name: str) -> str:
    """What stands where a time would."""
    return "failed" if name in row.failed else "-"


def peer_time(row: Row, name: str) -> str:
    """Median in ms; marked where there was one round for several of ours."""
    if name not in row.times:
        return absent(row, name)
    single = len(row.times[name]) == 1 < len(row.times.get(OURS, ()))
    return significant(1e3 * statistics.median(row.times[name])) + ("*" if single else "")


def results_table(results: Results) -> str:
    """One line a row."""
    peers = list(dict.fromkeys(name for row in results.rows for name in (*row.times, *row.failed) if name != OURS))
    header = [
        "cell", "T, B, D, H", "dtype", "pass", "elman, ms", *(f"{name}, ms" for name in peers),
        "best peer", "best peer / elman", "elman, GF/s (of peak)",
    ]  # fmt: skip
    lines = (row_cells(row, peers, results.threads * results.peaks[row.dtype]) for row in results.rows)
    return markdown_table(header, lines)


def means_table(rows: Sequence[Row]) -> str:
    """Geometric means of the ratios to the best peer: by pass, and within it by cell, dtype and kind of sequences."""
    passes = list(dict.fromkeys(row.title for row in rows))
    groups: dict[str, Callable[[Row], bool]] = {"all": lambda row: True}
    groups |= {cell: lambda row, cell=cell: row.cell == cell for cell in dict.fromkeys(row.cell for row in rows)}
    groups |= {dtype: lambda row, dtype=dtype: row.dtype == dtype for dtype in dict.fromkeys(row.dtype for row in rows)}
    groups |= {"all of T steps": lambda row: not row.ragged, "of several lengths": lambda row: row.ragged}
    lines = []
    for name, chosen in groups.items():
        columns = [[r.ratio.median for r in rows if chosen(r) and r.title == title and r.ratio] for title in passes]
        if any(columns):
            lines.append([name, *(f"{significant(geometric_mean(v))} (n = {len(v)})" if v else "-" for v in columns)])
    return markdown_table(["best peer / elman, geometric mean", *passes], lines)


def losses(rows: Sequence[Row]) -> list[str]:
    """The rows in which a peer is faster, slowest of ours first, below a line that counts them."""
    compared = [(row, row.ratio) for row in rows if row.ratio]
    lost = sorted(((ratio, row) for row, ratio in compared if ratio.median < 1), key=lambda pair: pair[0].median)
    count = f"A peer is faster in {len(lost)} of {len(compared)} rows"
    if not lost:
        return [f"{count}."]
    return [f"{count}:", "", *(f"- {row}: {interval(ratio)}, {ratio.peer}" for ratio, row in lost)]


def results_text(results: Results) -> str:
    """The whole text: what was measured on what, the table, the means, where we lose, and what failed."""
    failed = [f"- {row}, {name}: {reason}" for row in results.rows for name, reason in row.failed.items()]
    failed += [
        f"- {row}, {name}, one thread: {reason}" for row in results.single for name, reason in row.failed.items()
    ]
    return "\n".join(
        [
            *(f"- {what}: {line}" for what, line in results.about.items()),
            "",
            results_table(results),
            "",
            "`*`: more than eight times slower than elman, measured in one round; `-`: it has no such pass.",
            "",
            means_table(results.rows),
            "",
            *losses(results.rows),
            "",
            *(["What failed:", "", *failed, ""] if failed else []),
        ]
    )
