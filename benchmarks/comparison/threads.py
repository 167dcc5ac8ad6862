"""What more threads bring: each package with several beside itself with one, row by row."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .report import geometric_mean, markdown_table, significant
from .rows import OURS, Results, Row

LONG = 2e-3
"""Seconds of a call with one thread from which a second one should pay in full."""

AIM = 0.85
"""Share of the number of threads that is aimed at there: 1.7 times with two."""

EVEN = 0.97
"""A call that is too short to gain should not be slower than this."""


class Pair(NamedTuple):
    """A row with one thread, and the same with several."""

    single: Row
    several: Row

    def times(self, name: str) -> tuple[float, float] | None:
        """Median seconds of a package with one thread and with several; None unless it has both."""
        if name not in self.single.times or name not in self.several.times:
            return None
        return statistics.median(self.single.times[name]), statistics.median(self.several.times[name])

    def gain(self, name: str) -> float | None:
        """The first over the second."""
        times = self.times(name)
        return times[0] / times[1] if times else None


def pairs(results: Results) -> Iterator[Pair]:
    """The rows that were measured both ways."""
    single = {str(row): row for row in results.single}
    return (Pair(single[str(row)], row) for row in results.rows if str(row) in single)


def scaling_table(results: Results) -> str:
    """One line a row: our times, and how many times as fast each package is with several threads as with one."""
    both = list(pairs(results))
    names = list(dict.fromkeys(name for pair in both for name in pair.several.times if name != OURS))
    header = ["cell", "T, B, D, H", "dtype", "pass", "elman, ms: 1 thread", f"{results.threads} threads", OURS, *names]

    def cells(pair: Pair) -> list[str]:
        row, ours = pair.several, pair.times(OURS)
        shape = ", ".join(map(str, row.shape)) + (", lengths" if row.ragged else "")
        times = [significant(1e3 * t) for t in ours] if ours else ["-", "-"]
        gains = (pair.gain(name) for name in (OURS, *names))
        return [row.cell, shape, row.dtype, row.title, *times, *("-" if g is None else significant(g) for g in gains)]

    return markdown_table(header, map(cells, both))


def gains_table(results: Results) -> str:
    """Geometric means of the gains by package: of calls that by our time are long enough for threads, and of others."""
    both = [(pair, times[0]) for pair in pairs(results) if (times := pair.times(OURS))]
    names = list(dict.fromkeys(name for pair, _ in both for name in pair.several.times))
    groups = {
        f"more than {1e3 * LONG:g} ms": [pair for pair, time in both if time > LONG],
        f"up to {1e3 * LONG:g} ms": [pair for pair, time in both if time <= LONG],
    }

    def mean(chosen: Sequence[Pair], name: str) -> str:
        gains = [gain for pair in chosen if (gain := pair.gain(name)) is not None]
        return f"{significant(geometric_mean(gains))} (n = {len(gains)})" if gains else "-"

    lines = [[name, *(mean(chosen, name) for chosen in groups.values())] for name in names]
    return markdown_table([f"1 thread / {results.threads} threads, by elman's time with one", *groups], lines)


def short_of(results: Results) -> list[str]:
    """Rows of ours that gain less than they should, least first, below a line that counts them."""
    aim = AIM * results.threads
    found, count = [], 0
    for pair in pairs(results):
        gain, times = pair.gain(OURS), pair.times(OURS)
        if gain is None or times is None:
            continue
        count += 1
        if gain < (aim if times[0] > LONG else EVEN):
            found.append((gain, f"- {pair.several}: {significant(gain)}, {significant(1e3 * times[0])} ms with one"))
    line = (
        f"elman gains less than {significant(aim)} times in a call of more than {1e3 * LONG:g} ms, or loses in a "
        f"shorter one, in {len(found)} of {count} rows"
    )
    return [f"{line}:", "", *(text for _, text in sorted(found))] if found else [f"{line}."]


def scaling_text(results: Results) -> str:
    """All of it; empty without rows of one thread."""
    if not results.single:
        return ""
    parts = [
        f"Gains from 1 thread to {results.threads}, each package beside itself:",
        "",
        scaling_table(results),
        "",
        gains_table(results),
        "",
        *short_of(results),
        "",
    ]
    return "\n".join(parts)
