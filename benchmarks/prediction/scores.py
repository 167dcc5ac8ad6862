"""Scores of predictions over groups of snapshots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .data import FORECASTS, SYMBOLIC
from .networks import CELLS
from .predictors import verdict

Record = dict[str, Any]

CRITICAL = 0.03  # nats a step

GROUPS: dict[str, Callable[[Record], bool]] = {
    "untrained": lambda r: r["phase"] == "start",
    "trained": lambda r: r["phase"] != "start",
    **{cell: (lambda r, cell=cell: r["cell"] == cell) for cell in CELLS},  # type: ignore[misc]
    "critical": lambda r: abs(r["truth"]["rate"]) < CRITICAL,
    "exploding": lambda r: verdict(r["truth"]["end"]) == "exploding",
    "non-normal": lambda r: r["init"] == "non-normal",
    "symbolic": lambda r: r["phase"] != "start" and r["source"] in SYMBOLIC,
    "forecasting": lambda r: r["phase"] != "start" and r["source"] in FORECASTS,
}


@dataclass(frozen=True)
class Score:
    """How near a predictor came.

    Attributes
    ----------
    n, silent : int
        Snapshots, and those for which it gave no finite number: they count in ``verdicts`` alone.
    slope, slope_p95 : float
        Mean and 95th percentile of the error of the rate, nats per step.
    decades : float
        Mean of |log10| of predicted over measured gradient at lag 100, or at the last.
    verdicts : float
        Share of right sides of the threshold at the last lag.
    """

    n: int
    silent: int
    slope: float
    slope_p95: float
    decades: float
    verdicts: float


def scored(records: Iterable[Record]) -> list[Record]:
    """Snapshots with a prediction: of a gradient that is finite, and not exactly zero for any sequence."""
    return [r for r in records if "predictions" in r]


def score(records: Sequence[Record], predictor: str, loss: bool = False) -> Score | None:
    """Score of one predictor, of the loss gradient if ``loss``; None if it predicted none of these."""
    where, truth = ("loss predictions", "loss truth") if loss else ("predictions", "truth")
    pairs = [(r[where][predictor], r[truth]) for r in records if predictor in r[where]]
    if not pairs:
        return None
    finite = [(p, t) for p, t in pairs if math.isfinite(p["rate"])]
    errors = [(abs(p["rate"] - t["rate"]), abs(p["far"] - t["far"]) / math.log(10)) for p, t in finite]
    slopes, far = np.array(errors or [(math.nan, math.nan)]).T
    right = [verdict(p["end"]) == verdict(t["end"]) for p, t in pairs]
    return Score(
        n=len(pairs),
        silent=len(pairs) - len(finite),
        slope=float(slopes.mean()),
        slope_p95=float(np.quantile(slopes, 0.95)),
        decades=float(far.mean()),
        verdicts=float(np.mean(right)),
    )


@dataclass(frozen=True)
class Coverage:
    """How often intervals of 95 % held the truth, and the error of the rate in standard errors.

    Attributes
    ----------
    n : int
        Snapshots.
    end, rate : float
        Shares of two-sample intervals, at the last lag and of the rate.
    single : float
        Share of single sequences and vectors, at the last lag.
    mean, sd : float
        Of the normalised error, where anything varies at all.
    """

    n: int
    end: float
    rate: float
    single: float
    mean: float
    sd: float


def coverage(records: Sequence[Record], predictor: str) -> Coverage | None:
    """Coverage over some snapshots; None for none."""
    rows = [r["intervals"][predictor] for r in records]
    if not rows:
        return None
    errors = np.array([row["normalised"] for row in rows if row["normalised"] is not None])
    varied = len(errors) > 1
    return Coverage(
        n=len(rows),
        end=float(np.mean([row["end"] for row in rows])),
        rate=float(np.mean([row["rate"] for row in rows])),
        single=float(np.mean([row["single"] for row in rows])),
        mean=float(errors.mean()) if varied else math.nan,
        sd=float(errors.std(ddof=1)) if varied else math.nan,
    )


@dataclass(frozen=True)
class Decisions:
    """Verdicts of diagnoses that double their sequences until decided at 99 %.

    Attributes
    ----------
    n : int
        Diagnoses.
    decided, right : float
        Share that was decided; of these, share with the measured verdict.
    sequences : float
        Mean number used.
    """

    n: int
    decided: float
    right: float
    sequences: float


def decisions(records: Sequence[Record]) -> Decisions | None:
    """Decisions over some snapshots; None for none."""
    if not records:
        return None
    said = [(r["doubling"]["verdict"], verdict(r["truth"]["end"])) for r in records]
    right = [mine == measured for mine, measured in said if mine != "undecided"]
    return Decisions(
        n=len(said),
        decided=len(right) / len(said),
        right=float(np.mean(right)) if right else math.nan,
        sequences=float(np.mean([r["doubling"]["n"] for r in records])),
    )


def near_threshold(records: Iterable[Record]) -> dict[str, int]:
    """Diagnoses with the threshold beside the growth: how many, how many decided, how many of them wrong."""
    counts = [r["near"] for r in records if "near" in r]
    return {name: sum(count[name] for count in counts) for name in ("tried", "decided", "wrong")}


def bounds(records: Iterable[Record]) -> dict[str, int]:
    """Norms compared with Pascanu's bounds, and how many lie outside."""
    counts = [r["bounds"] for r in records if "bounds" in r]
    return {name: sum(count[name] for count in counts) for name in ("checked", "outside")}


def group(records: Iterable[Record], name: str) -> list[Record]:
    """The scored snapshots of a group."""
    return [r for r in scored(records) if GROUPS[name](r)]
