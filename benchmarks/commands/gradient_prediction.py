"""How right predictions of gradients are.

Run by ``python -m benchmarks.commands.gradient_prediction [--full] [--results FILE]``.

A population of networks, untrained and trained; for each of them the gradient measured on held-out sequences, and what
every predictor says from other sequences or from the weights. The quick form takes less than two minutes on one core,
the full one about ten. Results are added to a file snapshot by snapshot: Ctrl-C ends it with the tables of what
there is, and the same command goes on where it stopped. Delete the file after a change of the code.

It ends with an error if a gradient lies outside its bounds, or if two ways of measuring it differ.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from tqdm import tqdm

import elman
from benchmarks.comparison.report import processor
from benchmarks.prediction.networks import Spec, full_population, quick_population, snapshots
from benchmarks.prediction.predictors import record
from benchmarks.prediction.scores import Record
from benchmarks.prediction.table import report
from elman.errors import NonFiniteError

AGREEMENT = 1e-9  # nats by which two orders of the same sums may differ


def records_of(spec: Spec, done: set[tuple[str, str]]) -> Iterator[Record]:
    """Records of a network's snapshots that are not yet there; a training that overflows ends them."""
    missing = [phase for phase in spec.phases if (spec.name, phase) not in done]
    if not missing:
        return
    try:
        for snapshot in snapshots(spec):
            if snapshot.phase in missing:
                missing.remove(snapshot.phase)
                yield record(snapshot)
    except NonFiniteError as error:
        for phase in missing:
            yield {"name": spec.name, "phase": phase, "failed": str(error)}


def load(file: Path) -> list[Record]:
    """Records of earlier runs; a line that was cut off is none."""
    if not file.exists():
        return []
    records = []
    for line in filter(None, file.read_text(encoding="utf-8").splitlines()):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{file}: a line that was cut off is left out", file=sys.stderr)
    return records


def run(specs: Sequence[Spec], file: Path | None = None, progress: bool = True) -> list[Record]:
    """Records of all snapshots, those in the file among them; what there is after Ctrl-C."""
    records = [] if file is None else load(file)
    done = {(r["name"], r["phase"]) for r in records}
    try:
        for spec in tqdm(specs, unit="network", disable=not progress):
            for one in records_of(spec, done):
                records.append(one)
                if file is not None:
                    with file.open("a", encoding="utf-8") as stream:
                        stream.write("\n" + json.dumps(one))  # a line that was cut off before stays by itself
    except KeyboardInterrupt:
        print(f"interrupted after {len(records)} snapshots", file=sys.stderr)
    return records


@cache
def quick_records() -> tuple[Record, ...]:
    """Records of the quick form, made once in a process."""
    return tuple(run(quick_population(), progress=False))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="predicted beside measured gradients, over many networks")
    parser.add_argument("--full", action="store_true", help="the whole population (ten minutes)")
    parser.add_argument("--results", type=Path, help="file to add results to, and to go on from")
    parser.add_argument("--output", type=Path, help="write the tables to this file, too")
    return parser.parse_args()


def main() -> None:
    """Measure, predict, and print the tables."""
    options = arguments()
    elman.set_num_threads(1)
    records = run(full_population() if options.full else quick_population(), options.results)
    about = f"- {processor()}; Python {platform.python_version()}, NumPy {np.__version__}, elman {elman.__version__}\n"
    text = about + report(records)
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    broken = [r["name"] for r in records if "gap" in r and (r["gap"] > AGREEMENT or r["bounds"]["outside"])]
    if broken:
        sys.exit(f"measured gradients that differ from themselves, or lie outside their bounds: {broken}")


if __name__ == "__main__":
    main()
