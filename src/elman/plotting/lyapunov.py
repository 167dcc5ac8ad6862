"""Lyapunov exponents: how they converged, and how they vary along the trajectory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..diagnostics.gradient.intervals import LEVEL, t_quantile
from ..linearization import Array
from .canvas import BLUE, GREY, add_title, axes_for, draws_results, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..diagnostics.lyapunov.exponents import LyapunovSpectrum

# Shares of the counted steps after which the estimates are shown beside the final ones.
_EARLIER = ((0.25, "x"), (0.5, "+"))


@draws_results
def plot_lyapunov(result: LyapunovSpectrum, ax: Axes | None = None) -> Axes:
    """Draw the exponents in descending order with 95 % t intervals, and what they were earlier in the run.

    Estimates after a quarter and a half of the counted steps indicate convergence if they lie within the intervals of
    the final ones.

    Parameters
    ----------
    result : LyapunovSpectrum
        From :func:`elman.lyapunov_spectrum`. Exponents of -inf are drawn as triangles at the lower edge.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    ax = axes_for(ax, "plot_lyapunov")
    index = np.arange(1, len(result.exponents) + 1)
    shown = [np.zeros(1)]
    ax.axhline(0, color=GREY, linestyle="--", linewidth=0.8)
    history = result.history
    for share, marker in _EARLIER:
        steps = max(1, round(share * result.n_steps))
        earlier = _finite(history[steps - 1])
        label = f"after {steps} steps"
        ax.plot(index, earlier, linestyle="none", marker=marker, markersize=5, color="black", zorder=3, label=label)
        shown.append(earlier)
    values = _finite(result.exponents)
    half = np.nan_to_num(t_quantile(LEVEL, result.n_blocks - 1) * result.stderr)
    label = f"after {result.n_steps} steps, 95 % interval"
    ax.errorbar(index, values, yerr=half, color=BLUE, marker="o", markersize=4, linewidth=0.8, capsize=2, label=label)
    lost = index[np.isneginf(result.exponents)]
    if lost.size:
        ax.plot(
            lost, np.full(len(lost), 0.02), transform=ax.get_xaxis_transform(), linestyle="none", marker="v",
            color="black", markersize=4, label=r"$-\infty$: direction lost",
        )  # fmt: skip
    ax.set_ylabel(r"Lyapunov exponent $\lambda_i$ (nats per step)")
    _index_axis(ax, len(index))
    add_title(ax, f"sum {result.sum:.4g} nats/step, Kaplan-Yorke dimension {result.kaplan_yorke_dimension:.3g}")
    ends = np.concatenate([*shown, values - half, values + half])
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    margin = 0.06 * (high - low) or 1.0
    legend_above(ax, low - margin, high + margin)
    return ax


@draws_results
def plot_finite_time(result: LyapunovSpectrum, length: int, ax: Axes | None = None) -> Axes:
    """Draw how much the exponents over windows of ``length`` steps vary along the trajectory.

    Parameters
    ----------
    result : LyapunovSpectrum
        From :func:`elman.lyapunov_spectrum`.
    length : int
        Steps per window, as for :meth:`~elman.LyapunovSpectrum.finite_time`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        Medians over windows, with bars from the 5th to the 95th percentile, beside the exponents of the whole run.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ArgumentError
        If the windows are too short or too long.
    """
    windows = result.finite_time(length)
    ax = axes_for(ax, "plot_finite_time")
    index = np.arange(1, len(result.exponents) + 1)
    living = np.isfinite(windows).all(axis=0)
    low, middle, high = np.full((3, len(index)), np.nan)
    low[living], middle[living], high[living] = np.percentile(windows[:, living], [5, 50, 95], axis=0)
    ax.axhline(0, color=GREY, linestyle="--", linewidth=0.8)
    label = f"whole run, {result.n_steps} steps"
    ax.plot(index, _finite(result.exponents), color="black", linestyle="none", marker="_", markersize=9, label=label)
    ax.errorbar(
        index, middle, yerr=[middle - low, high - middle], color=BLUE, marker="o", markersize=4, linestyle="none",
        markerfacecolor="white", linewidth=0.8, capsize=2, label=f"{len(windows)} windows: median, 5-95 %",
    )  # fmt: skip
    ax.set_ylabel(rf"exponent $\lambda_i$ over {length} steps (nats per step)")
    _index_axis(ax, len(index))
    add_title(ax, f"finite-time exponents, {length} steps per window")
    ends = np.concatenate([[0.0], low[living], high[living]])
    margin = 0.06 * float(np.ptp(ends)) or 1.0
    legend_above(ax, float(ends.min()) - margin, float(ends.max()) + margin)
    return ax


def _index_axis(ax: Axes, count: int) -> None:
    """Label the x axis with whole numbers from 1 to ``count``."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel("index $i$ of the exponent")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlim(0.5, count + 0.5)


def _finite(values: Array) -> Array:
    """The values with -inf replaced by NaN, which matplotlib leaves out."""
    return np.where(np.isfinite(values), values, np.nan)
