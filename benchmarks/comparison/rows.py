"""What a comparison measured, one row a case and pass: times of every package, or why there are none."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..cases import Shape, flops

OURS = "elman"


class Ratio(NamedTuple):
    """The best peer's time over ours: of the medians, and the smallest and largest over the rounds."""

    peer: str
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One pass of one case.

    ``times`` are seconds a call by package, one number a round; ``failed`` says of a package without times what went
    wrong. A package in neither has no such pass. ``steps`` are the valid ones of all sequences.
    """

    cell: str
    shape: Shape
    dtype: str
    name: str
    ragged: bool
    steps: int
    times: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lengths = ", lengths" if self.ragged else ""
        return f"{self.cell} ({', '.join(map(str, self.shape))}{lengths}) {self.dtype} {self.title}"

    @property
    def title(self) -> str:
        """The pass in words."""
        return self.name.replace("_", " + ")

    @property
    def ratio(self) -> Ratio | None:
        """Beside the fastest of the peers; None without times of ours and of a peer."""
        peers = {name: statistics.median(times) for name, times in self.times.items() if name != OURS}
        if not peers or OURS not in self.times:
            return None
        best = min(peers, key=lambda name: peers[name])
        ours, theirs = self.times[OURS], self.times[best]
        # one round alone stands for all
        turns = theirs * len(ours) if len(theirs) == 1 else theirs
        ratios = [b / a for a, b in zip(ours, turns, strict=True)]
        return Ratio(best, peers[best] / statistics.median(ours), min(ratios), max(ratios))

    @property
    def rate(self) -> float:
        """Operations per second of ours, counting those of the products."""
        work = flops(self.shape, self.cell, self.name == "forward_backward", self.steps)
        return work / statistics.median(self.times[OURS])


@dataclass(frozen=True)
class Results:
    """All rows, the peak of one core by dtype, and facts on how they came about: lines of text by what they are.

    ``single`` are the same rows with one thread each, where ``rows`` have several.
    """

    about: dict[str, str]
    threads: int
    peaks: dict[str, float]
    rows: list[Row]
    single: list[Row] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write them as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    def one_thread(self) -> Results:
        """What was measured with one thread, as if that had been all."""
        if self.threads == 1:
            return self
        about = self.about | {"threads": self.about["threads"].replace(str(self.threads), "1", 1)}
        return replace(self, about=about, threads=1, rows=self.single, single=[])

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what :meth:`save` wrote."""
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))

        def rows(name: str) -> list[Row]:
            return [Row(**(row | {"shape": tuple(row["shape"])})) for row in raw.pop(name, ())]

        return cls(rows=rows("rows"), single=rows("single"), **raw)
