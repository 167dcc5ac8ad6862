"""The tables of the benchmark of predictions, in Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ..comparison.report import markdown_table
from .predictors import THRESHOLD, verdict
from .scores import GROUPS, Record, bounds, coverage, decisions, group, near_threshold, score, scored

PREDICTORS = ("full 16x4", "full 8x1", "forward 16x2", "weights", "weights N(0,1)")
BASELINES = (
    "log radius of W", "log norm of W", "log radius of J at rest", "log radius of the mean J",
    "mean log Frobenius norm of J", "mean field", "Lyapunov exponent",
)  # fmt: skip
WORST = 8
Figure = Callable[[Sequence[Record]], float]
FEW = 40  # snapshots below which a group's coverage says little


def cell(value: float | None, digits: int) -> str:
    """A number with so many decimals; a dash for none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def triple(records: Sequence[Record], predictor: str, loss: bool = False) -> str:
    """Slope error / decades / verdicts, and how often there was no finite number."""
    s = score(records, predictor, loss)
    if s is None:
        return "-"
    silent = f" ({s.silent} none)" if s.silent else ""
    return f"{cell(s.slope, 4)} / {cell(s.decades, 2)} / {cell(s.verdicts, 3)}{silent}"


def population(records: Sequence[Record]) -> str:
    """What was looked at, in a few lines."""
    kept, failed = scored(records), [r for r in records if "failed" in r]
    dead = [r for r in records if r.get("dead")]
    lines = [
        f"- {len(records)} snapshots of {len({r['name'] for r in records})} networks; left out: {len(dead)} where the "
        f"gradient is exactly zero for some sequence, {len(failed)} that overflow"
    ]
    for name in ("untrained", "trained"):
        some = group(kept, name)
        sides = Counter(verdict(r["truth"]["end"]) for r in some)
        counts = ", ".join(f"{sides[side]} {side}" for side in ("vanishing", "stable", "exploding"))
        lines.append(f"- {name}: {len(some)}; {counts}")
    trained = group(kept, "trained")
    if trained:
        ratio, change = (np.median([r[key] for r in trained]) for key in ("loss_ratio", "change"))
        lines.append(f"- training: median loss {ratio:.2f} of the first epoch's, weights W_hh moved by {change:.2f}")
    gap = max((r["gap"] for r in records if "gap" in r), default=math.nan)
    lines.append(f"- measured in two ways, with and without rescaling: largest difference {gap:.1e} nats")
    return "\n".join(lines)


def targets(records: Sequence[Record]) -> str:
    """What should be reached and what is."""
    untrained, trained = group(records, "untrained"), group(records, "trained")

    def both(text: str, must: str, wish: str, digits: int, of: Figure) -> list[str]:
        return [text, must, wish, *(cell(of(some) if some else None, digits) for some in (untrained, trained))]

    def of_score(predictor: str, what: str, loss: bool = False) -> Figure:
        return lambda some: getattr(score(some, predictor, loss), what)

    def of_coverage(predictor: str, what: str) -> Figure:
        return lambda some: getattr(coverage(some, predictor), what)

    def of_decisions(what: str) -> Figure:
        return lambda some: getattr(decisions(some), what)

    near, limits = [near_threshold(some) for some in (untrained, trained)], bounds(records)
    beside = {
        name: [cell(count[name] / count["tried"] if count["tried"] else math.nan, 3) for count in near]
        for name in ("decided", "wrong")
    }
    rows = [
        both("`full` 16x4: slope, nats/step", ".006", ".005", 4, of_score("full 16x4", "slope")),
        both("`full` 16x4: slope, 95th percentile", ".020", ".016", 4, of_score("full 16x4", "slope_p95")),
        both("`full` 16x4: decades at lag 100 or T", ".20", ".14", 3, of_score("full 16x4", "decades")),
        both("`full` 16x4: verdicts", ".985", ".995", 3, of_score("full 16x4", "verdicts")),
        both("loss gradient, labels: verdicts", ".99", "1.00", 3, of_score("loss 16", "verdicts", True)),
        both("loss gradient, labels: decades", ".20", ".16", 3, of_score("loss 16", "decades", True)),
        both("loss gradient, readout: verdicts", ".975", ".99", 3, of_score("readout 16", "verdicts", True)),
        both("loss gradient, readout: decades", ".30", ".22", 3, of_score("readout 16", "decades", True)),
        both("`forward` 16x2: slope", ".012", ".0095", 4, of_score("forward 16x2", "slope")),
        both("`forward` 16x2: decades", ".20", ".14", 3, of_score("forward 16x2", "decades")),
        both("`forward` 16x2: verdicts", ".985", "1.00", 3, of_score("forward 16x2", "verdicts")),
        both("`weights`, declared input: slope", ".05", ".03", 4, of_score("weights", "slope")),
        both("`weights`, declared input: verdicts", ".94", ".96", 3, of_score("weights", "verdicts")),
        both("`weights`, N(0,1): slope", "-", ".11", 4, of_score("weights N(0,1)", "slope")),
        both("`weights`, N(0,1): verdicts", ".82", ".85", 3, of_score("weights N(0,1)", "verdicts")),
        both("coverage of 95 %, growth at T, two samples", ".92-.98", ".94-.96", 3, of_coverage("full 16x4", "end")),
        both("coverage, rate, two samples", ".92-.98", ".94-.96", 3, of_coverage("full 16x4", "rate")),
        both("coverage, single sequence", ".92-.98", ".94-.96", 3, of_coverage("full 16x4", "single")),
        both("normalised error: mean", "+-.2", "+-.1", 3, of_coverage("full 16x4", "mean")),
        both("normalised error: sd", ".85-1.2", ".95-1.1", 3, of_coverage("full 16x4", "sd")),
        both("doubling at 99 %: decided", ".93", ".97", 3, of_decisions("decided")),
        both("doubling: right among decided", ".995", "1.00", 3, of_decisions("right")),
        ["threshold .2 nats beside: decided", "-", "-", *beside["decided"]],
        ["threshold .2 nats beside: wrong", ".01", ".005", *beside["wrong"]],
        [f"bounds: outside, of {limits['checked']}", "0", "0", f"{limits['outside']}", ""],
    ]
    return markdown_table(["quantity", "must", "ambition", "untrained", "trained"], rows)


def comparison(records: Sequence[Record]) -> str:
    """Every predictor and baseline."""
    names = [name for name in ("untrained", "trained", "critical", "exploding") if group(records, name)]
    header = ["slope, nats/step / decades / verdicts", *(f"{name}, {len(group(records, name))}" for name in names)]
    rows = [[p, *(triple(group(records, name), p) for name in names)] for p in (*BASELINES, *PREDICTORS[::-1])]
    return markdown_table(header, rows)


def of_loss(records: Sequence[Record]) -> str:
    """Predictions of the gradient of the loss."""
    trained = group(records, "trained")
    gated = [r for r in trained if r["cell"] == "LSTM"]
    rows = [
        [name, triple(trained, key, True), triple(gated, key, True)]
        for name, key in (("random", "random 16x4"), ("readout, no labels", "readout 16"), ("loss", "loss 16"))
    ]
    return markdown_table(["start", "trained", "trained LSTM"], rows)


def by_group(records: Sequence[Record]) -> str:
    """Accuracy and coverage of ``full`` 16x4, group by group."""
    rows = []
    for name in GROUPS:
        some = group(records, name)
        covered, doubled = coverage(some, "full 16x4"), decisions(some)
        short = coverage(some, "full 8x1")
        if covered is None or doubled is None or short is None:
            continue
        few = " (few)" if covered.n < FEW else ""
        rows.append(
            [
                f"{name}, {covered.n}{few}",
                triple(some, "full 16x4"),
                triple(some, "Lyapunov exponent"),
                *(cell(value, 3) for value in (covered.end, covered.rate, covered.single, short.end, short.single)),
                f"{cell(covered.mean, 2)} / {cell(covered.sd, 2)}",
                f"{cell(doubled.decided, 3)} / {cell(doubled.right, 3)}",
            ]
        )
    header = [
        "group", "`full` 16x4", "Lyapunov exponent", "95 % at T", "95 % rate", "95 % single", "8x1: at T",
        "8x1: single", "error / SE", "decided / right",
    ]  # fmt: skip
    return markdown_table(header, rows)


def worst(records: Sequence[Record]) -> str:
    """The snapshots on which ``full`` 16x4 errs most."""

    def error(r: Record) -> float:
        return float(r["predictions"]["full 16x4"]["rate"] - r["truth"]["rate"])

    rows = [
        [
            r["name"],
            r["phase"],
            f"{r['truth']['rate']:+.4f}",
            f"{error(r):+.4f}",
            cell(r["intervals"]["full 16x4"]["normalised"], 2),
            f"{r['error of the truth']:.2f}",
        ]
        for r in sorted(scored(records), key=lambda r: -abs(error(r)))[:WORST]
    ]
    return markdown_table(["network", "phase", "rate", "error", "in SE", "SE of the truth at T, nats"], rows)


def wrong_verdicts(records: Sequence[Record]) -> str:
    """The snapshots that ``full`` 16x4 puts on the wrong side of the threshold, and how near to it they lie."""
    rows = []
    for r in scored(records):
        said, measured = r["predictions"]["full 16x4"]["end"], r["truth"]["end"]
        if verdict(said) != verdict(measured):
            distance = abs(abs(measured) - THRESHOLD)
            beside = [f"{value:+.2f}" for value in (measured, said)]
            doubling = r["doubling"]
            asked = f"{doubling['verdict']}, {doubling['n']}"
            rows.append([r["name"], r["phase"], *beside, f"{distance / r['error of the truth']:.1f}", asked])
    header = ["network", "phase", "measured, nats", "predicted", "to the threshold, SE of the truth", "doubling, n"]
    return markdown_table(header, rows)


def report(records: Sequence[Record]) -> str:
    """All of it."""
    parts = [
        population(records),
        "## Targets", targets(records),
        "## Predictors and baselines", comparison(records),
        "## Gradient of the loss", of_loss(records),
        "## Groups", by_group(records),
        "## Wrong verdicts of `full` 16x4 (without an interval)", wrong_verdicts(records),
        "## Largest errors of `full` 16x4", worst(records),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"
