"""Words and tables for what was measured."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path


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


def processor() -> str:
    """The processor's name and the number of cores this process may use."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores, {platform.system()}"


def significant(value: float) -> str:
    """Three significant digits, never in exponential form."""
    text = f"{value:#.3g}"
    return (f"{float(text):.0f}" if "e" in text else text).removesuffix(".")


def spread(values: Sequence[float]) -> str:
    """Median, and in brackets the smallest and the largest."""
    median, low, high = (significant(f(values)) for f in (statistics.median, min, max))
    return f"{median} ({low}-{high})"
