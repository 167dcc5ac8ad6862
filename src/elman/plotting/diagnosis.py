"""Predicted growth of gradients, and the measured growth beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics.gradient.curve import GrowthCurve
from ..diagnostics.gradient.horizon import HORIZON, Horizon
from .canvas import (
    BLUE,
    GREY,
    ORANGE,
    add_title,
    axes_for,
    decade_axis,
    decades,
    draws_results,
    mark_extinct,
    some,
    span,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..diagnostics.diagnosis.bidirectional import BidirectionalDiagnosis
    from ..diagnostics.diagnosis.result import Diagnosis
    from ..diagnostics.diagnosis.verification import Comparison, Verification

_LEVEL = math.log10(HORIZON)
# A horizon within twice the length of the sequences is drawn where it is; of one farther off, only the direction is.
_FARTHEST, _DIRECTION = 2.0, 1.3


@draws_results
def plot_diagnosis(diagnosis: Diagnosis, ax: Axes | None = None) -> Axes:
    """Draw the predicted growth of gradients by lag, with its intervals, the thresholds of the verdict and the horizon.

    Parameters
    ----------
    diagnosis : Diagnosis
        From :func:`elman.diagnose`. The line is the mean over sequences, started from random unit vectors; the dark
        band is its 95 % interval, the light band that of one more sequence. The gradient of the loss, if it was
        predicted too, is dashed, with 95 % intervals of its mean. Extrapolation beyond the length of the sequences is
        dotted, with an open marker.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default. Ordinates are decimal logarithms.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    ax = axes_for(ax, "plot_diagnosis")
    curve, loss = diagnosis.curve, diagnosis.loss
    limit = curve.threshold / math.log(10)
    low, high = decades(curve.single_low), decades(curve.single_high)
    ax.fill_between(curve.lags, low, high, facecolor=BLUE, alpha=0.15, linewidth=0, label="one more sequence, 95 %")
    low_mean, high_mean = decades(curve.low), decades(curve.high)
    ax.fill_between(curve.lags, low_mean, high_mean, facecolor=BLUE, alpha=0.35, linewidth=0)
    ax.plot(curve.lags, decades(curve.mean), color=BLUE, label=f"{curve.start} start: mean, 95 % band")
    if curve.grid is not None:
        ax.plot(
            curve.grid, decades(curve.mean[curve.grid]), color=BLUE, linestyle="none", marker="o", markersize=4,
            markerfacecolor="white", label="measured here, lines between",
        )  # fmt: skip
    shown = [decades(curve.mean), low, high, [-limit, limit]]
    if loss is not None:
        _line_with_bars(ax, loss, f"{loss.start} start: mean, 95 % bars")
        shown += [decades(loss.mean), decades(loss.low), decades(loss.high)]
    for y in (-limit, limit):
        ax.axhline(
            y, color=GREY, linestyle="--", linewidth=0.8, label=f"verdict thresholds, ±{curve.threshold:.3g} nats"
        )
    bottom, top = span(*shown)
    if _horizon(ax, curve) or bottom < _LEVEL:
        bottom = min(bottom, _LEVEL)
        ax.axhline(_LEVEL, color=GREY, linestyle=(0, (1, 3)), linewidth=1, label="1e-3 left")
    mark_extinct(ax, curve.mean)
    _label_lags(ax, bottom, top)
    add_title(ax, *_title(curve))
    return ax


@draws_results
def plot_directions(diagnosis: BidirectionalDiagnosis, ax: Axes | None = None) -> Axes:
    """Draw the growth of gradients in every direction of a bidirectional model, and in the whole model.

    Parameters
    ----------
    diagnosis : BidirectionalDiagnosis
        From :func:`elman.diagnose`. Each direction's mean is a line, by its own lags, with the 95 % interval as a
        band; backward directions are dashed. The gradient of the loss through all of them is black.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default. Ordinates are decimal logarithms.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    ax = axes_for(ax, "plot_directions")
    limit = diagnosis.curve.threshold / math.log(10)
    curves = {name: each.curve for name, each in diagnosis.directions.items()}
    shown: list[Any] = [[-limit, limit]]
    colors = (BLUE, ORANGE, "#009E73", "#CC79A7")  # of layers, from the first up (Okabe and Ito)
    for i, (name, curve) in enumerate(curves.items()):
        color, style = colors[i // 2 % len(colors)], "--" if name.endswith("_reverse") else "-"
        low, high, mean = decades(curve.low), decades(curve.high), decades(curve.mean)
        ax.fill_between(curve.lags, low, high, facecolor=color, alpha=0.2, linewidth=0)
        ax.plot(curve.lags, mean, color=color, linestyle=style, label=f"{name}: {curve.verdict}")
        shown += [low, high, mean]
    if diagnosis.whole is not None:
        whole = diagnosis.whole
        ax.plot(whole.lags, decades(whole.mean), color="black", label=f"whole, {whole.start}: {whole.verdict}")
        shown.append(decades(whole.mean))
    for y in (-limit, limit):
        ax.axhline(y, color=GREY, linestyle="--", linewidth=0.8)
    bottom, top = span(*shown)
    _label_lags(ax, bottom, top, "the end of a direction's reading")
    add_title(ax, f"{diagnosis.verdict}: {diagnosis.strongest} reaches farthest", "mean, 95 % bands")
    return ax


@draws_results
def plot_verification(verification: Verification, ax: Axes | None = None) -> Axes:
    """Draw measured gradients beside the prediction, which was made from other sequences.

    Parameters
    ----------
    verification : Verification
        From :meth:`elman.Diagnosis.verify`. The dark band is where the mean of these measured sequences should lie in
        95 % of cases (Welch's two-sample interval), the light band holds 95 % of single sequences. Points are measured
        means with their 95 % intervals; they are open where the mean lies outside the dark band.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default. Ordinates are decimal logarithms.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    ax = axes_for(ax, "plot_verification")
    p = verification.random.predicted
    low, high = decades(p.single_low), decades(p.single_high)
    ax.fill_between(p.lags, low, high, facecolor=BLUE, alpha=0.15, linewidth=0, label="one sequence, 95 %")
    bottom, top = span(low, high)
    for comparison, color, style, marker, points in (
        (verification.random, BLUE, "-", "o", 10),
        # at other lags, so that the points stand side by side
        (verification.loss, ORANGE, "--", "s", 9),
    ):
        if comparison is not None:
            least, most = _compared(ax, comparison, color, style, marker, points)
            bottom, top = min(bottom, least), max(top, most)
    mark_extinct(ax, p.mean)
    _label_lags(ax, bottom, top)
    add_title(ax, *_verdicts(verification))
    return ax


def _label_lags(ax: Axes, bottom: float, top: float, start: str = "the end") -> None:
    """Make axes of gradient norms by lag, in decades from ``bottom`` to ``top`` with some room."""
    decade_axis(ax, bottom - 0.3, top + 0.3)
    ax.set_xlabel(f"lag (steps back from {start})")
    ax.set_ylabel("gradient norm relative to lag 0")


def _compared(
    ax: Axes, comparison: Comparison, color: str, style: str, marker: str, points: int
) -> tuple[float, float]:
    """Draw one prediction and its measurement at some lags; return their range in decades."""
    p, m, half = comparison.predicted, comparison.measured, comparison.half_width()
    low, high = decades(p.mean - half), decades(p.mean + half)
    ax.fill_between(p.lags, low, high, facecolor=color, alpha=0.3, linewidth=0)
    ax.plot(p.lags, decades(p.mean), color=color, linestyle=style, label=f"{p.start} start: predicted, 95 % band")
    at = some(len(comparison.lags), points)
    lags, inside = comparison.lags[at], comparison.inside[at]
    for chosen, face, label in (
        (lags[inside], color, f"{m.start} start: measured, n = {m.n}"),
        (lags[~inside], "white", f"{m.start} start: outside the band"),
    ):
        if len(chosen):
            mean, ends = decades(m.mean[chosen]), decades(np.stack([m.low[chosen], m.high[chosen]]))
            ax.errorbar(
                chosen, mean, yerr=np.abs(ends - mean), color=color, linestyle="none", marker=marker, markersize=5,
                markerfacecolor=face, capsize=2, label=label,
            )  # fmt: skip
    return span(decades(p.mean), low, high, decades(m.low[lags]), decades(m.high[lags]))


def _line_with_bars(ax: Axes, curve: GrowthCurve, label: str) -> None:
    """Draw the mean as a dashed line, marked at some lags, with bars for its 95 % interval where there is one."""
    mean, at = decades(curve.mean), some(curve.n_steps + 1)
    ax.plot(
        curve.lags, mean, color=ORANGE, linestyle="--", marker="s", markersize=4, markerfacecolor="white",
        markevery=at, label=label,
    )  # fmt: skip
    known = [k for k in at if np.isfinite(curve.low[k])]
    ends = decades(np.stack([curve.low[known], curve.high[known]]))
    ax.errorbar(known, mean[known], yerr=np.abs(ends - mean[known]), fmt="none", ecolor=ORANGE, capsize=2)


def _horizon(ax: Axes, curve: GrowthCurve) -> bool:
    """Mark the lag where 1e-3 is left, or draw the direction towards it; return whether the mark is drawn."""
    horizon, T = curve.horizon, curve.n_steps
    if not math.isfinite(horizon.steps):
        return False
    label = f"horizon {horizon.steps:.3g} steps"
    if not horizon.extrapolated:
        # a gradient that becomes exactly zero from one lag to the next does not pass through 1e-3
        crossed = bool(np.isfinite(curve.mean[math.ceil(horizon.steps)]))
        if crossed:
            _show_lags(ax, T, T)
            _mark_horizon(ax, horizon, "black", label)
        return crossed
    near = horizon.steps <= _FARTHEST * T
    last, end = horizon.steps if near else _DIRECTION * T, decades(curve.mean)[-1]
    drop = (_LEVEL - end) * (last - T) / (horizon.steps - T)
    ax.plot([T, last], [end, end + drop], color=BLUE, linestyle=":", label=None if near else f"{label}, extrapolated")
    ax.axvline(T, color=GREY, linewidth=0.6)
    _show_lags(ax, T, max(last, horizon.high) if near and horizon.high <= _FARTHEST * T else last)
    if near:
        _mark_horizon(ax, horizon, "white", f"{label}, extrapolated")
    return near


def _show_lags(ax: Axes, T: int, last: float) -> None:
    """Set the range of x to lags 0 .. ``last``, or wider if another picture on the axes needs it."""
    left, right = -0.03 * T, last + 0.05 * T
    if not ax.get_autoscalex_on():
        left, right = min(left, ax.get_xlim()[0]), max(right, ax.get_xlim()[1])
    ax.set_xlim(left, right)


def _mark_horizon(ax: Axes, horizon: Horizon, face: str, label: str) -> None:
    """Draw a diamond at the horizon with its 95 % interval, which may extend beyond the picture or be unknown."""
    ends = (horizon.low, min(horizon.high, 2 * ax.get_xlim()[1]))
    bar = [[0.0 if math.isnan(end) else abs(end - horizon.steps)] for end in ends]
    ax.errorbar(
        [horizon.steps], [_LEVEL], xerr=bar, color="black", marker="D", markersize=6, markerfacecolor=face, capsize=3,
        linestyle="none", label=label, zorder=3,
    )  # fmt: skip


def _title(curve: GrowthCurve) -> list[str]:
    """Verdict, number of sequences and how many died; rate with its interval."""
    dead = f", {curve.dead_fraction:.0%} dead (gradient exactly zero)" if curve.dead_fraction else ""
    low, high = curve.rate_ci
    interval = "" if math.isnan(low) else f" [{low:+.4f}, {high:+.4f}]"
    rate = [f"rate {curve.rate:+.4f}{interval} nats/step"] if curve.alive[-1] else []
    return [f"{curve.verdict}, n = {curve.n} sequences{dead}", *rate]


def _verdicts(verification: Verification) -> list[str]:
    """Whether measurement and prediction agree, how far they were compared, their rates, and their dead fractions."""
    p, m = verification.random.predicted, verification.random.measured
    lines = [f"measurement {'agrees' if verification.agrees else 'DISAGREES'} with the prediction"]
    if verification.random.last_lag < verification.n_steps:
        lines[0] += f", to lag {verification.random.last_lag} of {verification.n_steps}"
    if p.alive[-1] and m.alive[-1]:
        lines.append(f"rate predicted {p.rate:+.4f}, measured {m.rate:+.4f} nats/step")
    if m.dead_fraction or p.dead_fraction:
        lines.append(f"dead (gradient exactly zero): predicted {p.dead_fraction:.0%}, measured {m.dead_fraction:.0%}")
    return lines
