"""The search for a change that gives a target rate: secant steps, outward until there is a bracket, then inside it."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...errors import ArgumentError, NonFiniteError
from ...validation.scalars import choice
from ..gradient.curve import GrowthCurve
from .prescribe import LARGEST_LOG, TunedPrescription
from .rerun import Change, Rerun, turned, unchanged
from .sequences import recurrent_part

_AIM = 0.1  # of the tolerance: the rest is left to the sampling error of held-out sequences
_LONGEST = 0.7  # longest step on the log scale of W_hh
_SHIFTS = {"keep": (0.5, 2.0), "renew": (-0.5, 2.0), None: (-0.25, 0.5)}
"""First shift of a bias to raise the rate, a guess, and the longest shift; by role of its gate."""


def tune(run: Rerun, lever: str, target: float, tolerance: float, max_runs: int) -> TunedPrescription:
    """Find how far to turn a lever, run again with the change, and measure on held-out sequences.

    Raises
    ------
    ArgumentError
        If the model has no such lever.
    """
    part = recurrent_part(run.batches[0].model)
    if part is None:
        raise ArgumentError(f"lever must be left out: this model offers no change, got {lever!r}")
    levers = part.levers
    choice(lever, "lever", levers)

    def change(position: float) -> Change:
        return turned(lever, _amount(lever, position)) if position else unchanged

    curves: dict[float, GrowthCurve] = {}

    def rate(position: float) -> float:
        try:
            curves[position] = run.curve(change(position))[0]
        except NonFiniteError:
            return math.inf
        return curves[position].rate

    first = rate(0.0)
    if lever == "recurrent":
        longest = _LONGEST
        guess = max(-longest, min(longest, target - first))
    else:
        shift, longest = _SHIFTS[levers[lever]]
        guess = math.copysign(1.0, target - first) * shift
    tried = search(lambda a: rate(a) - target, first - target, guess, longest, _AIM * tolerance, max_runs)
    best = min((a for a in tried if a in curves), key=lambda a: abs(tried[a]))
    before, after, made = curves[0.0], curves[best], change(best)
    factor, size, truncation = _limits(run, after, made)
    return TunedPrescription(
        lever=lever,
        amount=_amount(lever, best),
        target=target,
        tolerance=tolerance,
        runs=tuple((_amount(lever, a), miss + target) for a, miss in tried.items()),
        before=before,
        after=after,
        measured_before=run.measured(before),
        measured=run.measured(after, made),
        clip_factor=factor,
        clip_norm=None if factor is None or size is None else factor * size,
        truncation=truncation,
        model=run.batches[0].changed(lever, _amount(lever, best)).model,
    )


def search(
    miss: Callable[[float], float], first: float, guess: float, longest: float, aim: float, max_runs: int
) -> dict[float, float]:
    """Zero of a function, from two points, by secant steps; by halving where these leave the bracket.

    Until there is a bracket, a secant step to between the points already tried is replaced by one beyond them.

    Parameters
    ----------
    miss : callable
        The function; may be infinite.
    first : float
        Its value at 0.
    guess : float
        The second point.
    longest : float
        Longest step.
    aim : float
        Absolute value at which the search ends.
    max_runs : int
        Largest number of evaluations, including the first.

    Returns
    -------
    dict of float to float
        Points in the order of evaluation, with values.
    """
    tried = {0.0: first}
    at = guess
    while len(tried) < max_runs and min(map(abs, tried.values())) > aim and at not in tried:
        tried[at] = miss(at)
        at = _next(list(tried.items()), longest)
    return tried


def _next(points: list[tuple[float, float]], longest: float) -> float:
    """The next position after two or more points (position, value)."""
    latest_first = points[::-1]  # of two that miss by the same amount, the later one is nearer
    (a, f), (b, g) = sorted(latest_first, key=lambda p: abs(p[1]))[1::-1]
    slope = (g - f) / (b - a) if math.isfinite(f) and math.isfinite(g) else math.nan
    sides = [[p for p, value in points if (value > 0) == positive] for positive in (True, False)]
    if sides[0] and sides[1]:
        low, high = min(((p, q) for p in sides[0] for q in sides[1]), key=lambda pair: abs(pair[0] - pair[1]))
        low, high = min(low, high), max(low, high)
        step = b - g / slope if slope else math.nan
        return step if low < step < high else (low + high) / 2
    if math.isnan(slope) or slope == 0:
        step = b + math.copysign(longest, b) if b else -a
    else:
        step = b + max(-longest, min(longest, -g / slope))
    low, high = min(points)[0], max(points)[0]
    return _outward(points, b, longest) if low <= step <= high else step


def _outward(points: list[tuple[float, float]], best: float, longest: float) -> float:
    """One longest step beyond all points: further on if the latest point was the best, else on the other side."""
    (low, at_low), (high, at_high), latest = min(points), max(points), points[-1][0]
    up = (latest == high) == (latest == best) if latest in (low, high) else abs(at_high) <= abs(at_low)
    return high + longest if up else low - longest


def _amount(lever: str, position: float) -> float:
    """A factor from a position on the log scale; a shift is its own position."""
    return math.exp(position) if lever == "recurrent" else position


def _limits(run: Rerun, after: GrowthCurve, made: Change) -> tuple[float | None, float | None, int | None]:
    """Relative clipping limit, size of the loss gradient at the last step, and truncation; see the result's class."""
    labelled = run.loss_curve(made)
    curve, size = (after, None) if labelled is None else labelled
    highest = float(curve.single_high.max())
    factor = math.exp(highest) if math.isfinite(highest) and highest < LARGEST_LOG else None
    end = curve.horizon.high
    truncation = math.ceil(end) if math.isfinite(end) and 1 <= end < curve.n_steps else None
    return factor, size, truncation
