"""Training histories and forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ShapeError
from ..validation.arrays import real_numbers
from .canvas import BLUE, GREY, ORANGE, axes_for, draws_results, legend_above, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..training.history import History

_FORECAST_STYLES = ((BLUE, "--", "s"), (ORANGE, "-.", "^"), ("#009E73", ":", "D"), ("#CC79A7", (0, (5, 1)), "v"))


@draws_results
def plot_history(history: History, ax: Axes | None = None) -> Axes:
    """Draw losses by epoch, behind them the gradient norm of each update, and below them metrics and learning rate.

    Parameters
    ----------
    history : History
        From :func:`elman.fit`. If training ended within an epoch, the updates are spread evenly up to that epoch.
    ax : matplotlib.axes.Axes, optional
        Where to draw losses and gradient norms alone; a new figure by default, with further axes below for each metric
        and for a learning rate that changed.

    Returns
    -------
    matplotlib.axes.Axes
        Those of the losses. Their twin, with the gradient norm, is the last axes of the figure.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    panels = _panels(history) if ax is None else {}
    ax = axes_for(ax, "plot_history", (6.4, 4.4 + 1.6 * len(panels)))
    from matplotlib.ticker import MaxNLocator

    lowest = _draw_panels(ax, panels, history.epochs)

    epochs = np.arange(1, history.epochs + 1)
    for losses, label, color, style, marker in (
        (history.loss, "loss", BLUE, "-", "o"),
        (history.validation_loss, "validation loss", ORANGE, "--", "s"),
    ):
        if losses:
            ax.plot(
                epochs[: len(losses)], losses, color=color, linestyle=style, marker=marker, markersize=4,
                markerfacecolor="white", markevery=some(len(losses)), label=label,
            )  # fmt: skip
    _log_if_positive(ax, [*history.loss, *history.validation_loss])
    lowest.set_xlabel("epochs completed")
    ax.set_ylabel("loss (mean over targets)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _gradient_norms(ax, history)
    return ax


def _panels(history: History) -> dict[str, dict[str, list[float]]]:
    """What is drawn below the losses: labels of axes, each with its curves by name, also those of held-out data."""
    panels: dict[str, dict[str, list[float]]] = {}
    for name, values in history.metrics.items():
        if values:
            panels.setdefault(name.removeprefix("validation_"), {})[name] = values
    if len(set(history.lr)) > 1:
        panels["learning rate"] = {"lr": history.lr}
    return panels


def _draw_panels(ax: Axes, panels: dict[str, dict[str, list[float]]], epochs: int) -> Axes:
    """Draw axes below those of the losses, over the same epochs, and return the lowest of all."""
    if not panels:
        return ax
    grid = ax.figure.add_gridspec(len(panels) + 1, height_ratios=[2.5, *[1.0] * len(panels)])
    ax.set_subplotspec(grid[0])
    lowest = ax
    for row, (label, curves) in enumerate(panels.items(), start=1):
        lowest = ax.figure.add_subplot(grid[row], sharex=ax)
        for name, values in curves.items():
            held_out = name.startswith("validation_")
            # a record that began later ends with the others
            lowest.plot(
                np.arange(epochs - len(values), epochs) + 1, values, color=ORANGE if held_out else BLUE,
                linestyle="--" if held_out else "-", marker="s" if held_out else "o", markersize=4,
                markerfacecolor="white", markevery=some(len(values)), label=name.replace("_", " "),
            )  # fmt: skip
        lowest.set_ylabel(label)
        if len(curves) > 1:
            legend_above(lowest, *lowest.get_ylim())
    _log_if_positive(lowest, panels.get("learning rate", {}).get("lr", []))
    return lowest


def plot_forecast(
    years: ArrayLike,
    actual: ArrayLike,
    forecasts: Mapping[str, ArrayLike],
    ax: Axes | None = None,
    *,
    ylabel: str = "value",
) -> Axes:
    """Draw a yearly series and forecasts of it, with the root mean square error of each.

    Parameters
    ----------
    years : array_like, shape (n,)
        Year of each value.
    actual : array_like, shape (n,)
        The series.
    forecasts : mapping of str to array_like, shape (n,)
        Forecasts by name, in the unit of the series; NaN where there is none.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    ylabel : str, default "value"
        Name of the series, with its unit.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ShapeError
        If the arrays do not all have the same shape (n,).
    """
    when, series = (real_numbers(a, name).astype(float) for a, name in ((years, "years"), (actual, "actual")))
    curves = {name: real_numbers(values, f"forecasts[{name!r}]").astype(float) for name, values in forecasts.items()}
    for name, values in {"years": when, "actual": series, **curves}.items():
        if values.ndim != 1 or values.shape != when.shape:
            raise ShapeError(f"years, actual and every forecast must share one shape (n,); {name} has {values.shape}")
    ax = axes_for(ax, "plot_forecast", (7.2, 4.0))
    ax.plot(when, series, color="black", marker=".", linewidth=1, label="observed")
    for (name, values), (color, style, marker) in zip(curves.items(), cycle(_FORECAST_STYLES)):
        error = values - series
        known = np.isfinite(error)
        rms = f", RMSE {np.sqrt(np.mean(np.square(error[known]))):.3g}" if known.any() else ""
        ax.plot(
            when, values, color=color, linestyle=style, marker=marker, markersize=3.5, markerfacecolor="white",
            linewidth=1.2, label=name + rms,
        )  # fmt: skip
    ax.set_xlabel("year")
    ax.set_ylabel(ylabel)
    legend_above(ax, *ax.get_ylim())
    return ax


def _gradient_norms(ax: Axes, history: History) -> None:
    """Draw the norm of every update behind the losses, the clipping norm, and a legend for both axes."""
    twin = ax.twinx()
    when = np.arange(1, history.updates + 1) * max(history.epochs, 1) / max(history.updates, 1)
    twin.plot(when, history.gradient_norm, color="0.7", linewidth=0.8, label="gradient norm")
    if history.clip_norm is not None:
        label = f"clip norm, {history.clipped_fraction:.0%} of updates above"
        twin.axhline(history.clip_norm, color=GREY, linestyle=":", linewidth=1, label=label)
    _log_if_positive(twin, history.gradient_norm)
    twin.set_ylabel("gradient norm before clipping")
    ax.set_zorder(twin.get_zorder() + 1)
    ax.patch.set_visible(False)
    legend_above(ax, *ax.get_ylim(), twin=twin)


def _log_if_positive(ax: Axes, values: list[float]) -> None:
    """Make the y axis logarithmic, unless a value has no logarithm."""
    if values and min(values) > 0:
        ax.set_yscale("log")
