"""The numbers of a growth curve in words and units."""

from __future__ import annotations

import math

import numpy as np

from ..gradient.curve import GrowthCurve
from ..gradient.intervals import interval_text
from .prescribe import LARGEST_LOG


def describe(curve: GrowthCurve) -> list[str]:
    """The numbers of one curve, each on a line."""
    T, end = curve.n_steps, curve.mean[-1]
    if curve.alive[-1] > 0:
        one_more = "no interval (fewer than two sequences live)"
        if curve.alive[-1] > 1:
            one_more = f"[{curve.single_low[-1]:+.3f}, {curve.single_high[-1]:+.3f}] nats for a single sequence, 95 %"
        lines = [
            f"  growth    {end:+.3f} nats over T = {T} steps (a factor {factor(end)}), "
            f"{interval_text(curve.low[-1], curve.high[-1], 3, 'of the mean ')}, n = {curve.n} sequences",
            f"  one more  {one_more}; clipping and batch norms see the upper end",
            f"  rate      {curve.rate:+.4f} nats/step (a factor {factor(curve.rate)} a step), "
            f"{interval_text(*curve.rate_ci, 4)}, lags {curve.first_lag}..{T}",
        ]
    else:
        lines = [f"  growth    none: every gradient is exactly zero after T = {T} steps, n = {curve.n} sequences"]
    lines.append(f"  horizon   {curve.horizon}")
    if curve.alive[-1] < curve.n:
        rest = "; the numbers above hold for the others" if curve.alive[-1] else ""
        lines.append(
            f"  dead      {curve.dead_fraction:.0%} of {curve.n} sequences have a gradient of exactly zero{rest}"
        )
    lines.append(
        f"  verdict   {curve.verdict} at 99 %, threshold {curve.threshold:.3g} nats either way "
        f"(a factor {factor(curve.threshold)})"
    )
    return lines


def factor(nats: float, digits: int = 4, far: float = LARGEST_LOG, far_digits: int = 4) -> str:
    """``exp(nats)`` as text, even where it would leave the range of float64.

    Parameters
    ----------
    digits : int
        Significant digits.
    far, far_digits : float, int
        From ``far`` nats on, either way, a power of ten with ``far_digits`` digits before it, such as ``2.000e-1000``.
    """
    if not math.isfinite(nats) or abs(nats) < far:
        return f"{math.exp(nats):.{digits}g}"
    exponent, rest = divmod(nats / math.log(10), 1)
    mantissa = round(10**rest, far_digits - 1)
    if mantissa >= 10:  # what rounds up to 10 belongs to the next power
        mantissa, exponent = 1.0, exponent + 1
    return f"{mantissa:.{far_digits - 1}f}e{int(exponent):+d}"


def local_rates(curve: GrowthCurve) -> list[str]:
    """Rates by stretch of lag, if there is a living sequence."""
    edges, rates = curve.local_rates()
    if np.isnan(rates).any():
        return []
    parts = (f"{a}..{b} {r:+.4f}" for a, b, r in zip(edges[:-1], edges[1:], rates, strict=True))
    return [f"  by lag    {', '.join(parts)} nats/step"]


def why_undecided(curve: GrowthCurve) -> str:
    """What is missing for a verdict: living sequences, or a mean far enough from the threshold for their spread."""
    if curve.alive[-1] < 2:
        return "fewer than two of them have a gradient, so there is no interval"
    distance = abs(abs(curve.mean[-1]) - curve.threshold)
    return (
        f"the sequences differ too much to decide (standard deviation {curve.sd[-1]:.3g} nats, mean "
        f"{distance:.3g} nats from the threshold)"
    )
