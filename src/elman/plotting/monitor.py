"""The record of a monitor: how far gradients reached while a network was trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, MissingExtraError
from .canvas import BLUE, GREY, ORANGE, draws_results, legend_above, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..monitor import Monitor


@draws_results
def plot_monitor(monitor: Monitor, axes: Any = None) -> Any:
    """Draw rate, horizon, radius with saturation, and gradient norm by lag over the updates of a training run.

    Parameters
    ----------
    monitor : elman.Monitor
        After training.
    axes : sequence of four matplotlib.axes.Axes, optional
        Where to draw; those of a new figure by default.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (4,)

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ArgumentError
        If there are no readings, or not four axes.
    """
    if not monitor.readings:
        raise ArgumentError("the monitor has no readings yet: give it to fit(..., callbacks=[monitor]) first")
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "plot_monitor") from error
    if axes is None:
        axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")[1]
    axes = np.asarray(axes).ravel()
    if axes.shape != (4,):
        raise ArgumentError(f"axes must be four matplotlib axes, got {axes.size}")
    steps = np.array([reading.step for reading in monitor.readings])
    _rate(axes[0], steps, monitor)
    _horizon(axes[1], steps, monitor)
    _weights(axes[2], steps, monitor)
    _by_lag(axes[3], steps, monitor)
    for ax in axes[:3]:
        ax.set_xlabel("updates")
    axes[3].set_xlabel("lag (steps back from the end)")
    return axes


def _column(monitor: Any, name: str) -> Any:
    """One number from every reading."""
    return np.array([getattr(reading, name) for reading in monitor.readings], dtype=np.float64)


def _rate(ax: Axes, steps: Any, monitor: Any) -> None:
    """Draw the rate with its interval, and the rates beyond which gradients vanish or explode over the sequence."""
    rate, low, high = (_column(monitor, name) for name in ("rate", "rate_low", "rate_high"))
    ax.fill_between(steps, low, high, facecolor=BLUE, alpha=0.25, linewidth=0, label="95 %")
    ax.plot(steps, rate, color=BLUE, marker="o", markersize=4, markevery=some(len(steps)), label="rate")
    limit = monitor.threshold / monitor.readings[-1].n_steps
    ax.axhline(0, color=GREY, linewidth=0.8)
    for y in (-limit, limit):
        ax.axhline(y, color=GREY, linestyle="--", linewidth=0.8, label="vanish or explode beyond")
    ax.set_ylabel("growth of gradients (nats/step)")
    legend_above(ax, *ax.get_ylim())


def _horizon(ax: Axes, steps: Any, monitor: Any) -> None:
    """Draw the horizon on a logarithmic axis, triangles where there is none, and the length of the sequences."""
    horizon, length = _column(monitor, "horizon"), _column(monitor, "n_steps")
    known = np.where(np.isfinite(horizon), horizon, np.nan)
    ax.plot(steps, known, color=BLUE, marker="o", markersize=4, markevery=some(len(steps)), label="horizon")
    top = max(float(np.nanmax(known, initial=0.0)), float(length.max()))
    none = np.isinf(horizon)
    if none.any():
        ax.plot(
            steps[none], np.full(int(none.sum()), top), color=ORANGE, linestyle="none", marker="^", markersize=6,
            markerfacecolor="white", label="none: 1e-3 is never reached",
        )  # fmt: skip
    ax.plot(steps, length, color=GREY, linestyle="--", linewidth=0.8, label="length of the sequences")
    ax.set_yscale("log")
    ax.set_ylabel("lag where 1e-3 is left (steps)")
    legend_above(ax, *ax.get_ylim())


def _weights(ax: Axes, steps: Any, monitor: Any) -> None:
    """Draw the largest radius, and the share of saturated units on a second axis."""
    radius = np.array([max(r.radius.values(), default=math.nan) for r in monitor.readings])
    ax.plot(steps, radius, color=BLUE, marker="o", markersize=4, markevery=some(len(steps)), label="radius of W_hh")
    ax.set_ylabel("spectral radius (largest of the gates)")
    twin = ax.twinx()
    twin.plot(
        steps, 100 * _column(monitor, "saturation"), color=ORANGE, linestyle="--", marker="s", markersize=4,
        markerfacecolor="white", markevery=some(len(steps)), label="saturated",
    )  # fmt: skip
    twin.set_ylabel("units below a tenth of the slope (%)")
    twin.set_ylim(0, max(5.0, twin.get_ylim()[1]))
    legend_above(ax, *ax.get_ylim(), twin=twin)


def _by_lag(ax: Axes, steps: Any, monitor: Any) -> None:
    """Draw the gradient of training by lag: a curve for each of a few readings, later ones darker."""
    chosen = [monitor.readings[i] for i in some(len(steps), 5)]
    values = [np.array(reading.log_norms) / math.log(10) for reading in chosen]
    for i, (reading, decades) in enumerate(zip(chosen, values, strict=True)):
        if decades.size:
            shade = 0.75 * (1 - i / max(1, len(chosen) - 1))
            style = ("-", "--", "-.", ":", (0, (5, 1)))[i % 5]
            ax.plot(decades, color=str(shade), linestyle=style, label=f"update {reading.step}")
    ax.set_ylabel("log10 |dL/dh| of training")
    if any(v.size for v in values):
        legend_above(ax, *ax.get_ylim())
    else:
        ax.text(0.5, 0.5, "not recorded for this model", ha="center", transform=ax.transAxes)
