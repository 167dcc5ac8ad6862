"""Gradient growth by lag, in both directions and between its bounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics.gradient.horizon import HORIZON
from ..linearization import Array
from .canvas import (
    BLUE,
    GREY,
    ORANGE,
    add_title,
    axes_for,
    below_legend,
    decade_axis,
    decades,
    draws_results,
    mark_extinct,
    short_factor,
    some,
    span,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from ..diagnostics.gradient.flow import GradientFlow


@draws_results
def plot_gradient_flow(flow: GradientFlow, ax: Axes | None = None) -> Axes:
    """Draw, by lag, gradients pulled back and tangent vectors pushed forward, with the bounds if there are any.

    Parameters
    ----------
    flow : GradientFlow
        From :func:`elman.gradient_flow`. Curves are means over the living sequences; the band contains all of them.
        Bounds (Pascanu, Mikolov and Bengio 2013) and singular values are the extremes over sequences; a bound that is
        far away leaves the picture, and its legend entry says where it ends.
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
    ax = axes_for(ax, "plot_gradient_flow")
    T, n = int(flow.lags[-1]), flow.backward.shape[1]
    backward, forward = flow.backward_mean, flow.forward_mean
    low, high = _extremes(flow.backward)
    every = f"backward, all {n} sequences" if n > 1 else None
    ax.fill_between(flow.lags, low, high, facecolor=BLUE, alpha=0.2, linewidth=0, label=every)
    for mean, label, color, line, marker in (
        (backward, "backward, from the end", BLUE, "-", "o"),
        (forward, "forward, from the beginning", ORANGE, "--", "s"),
    ):
        ax.plot(
            flow.lags, decades(mean), color=color, linestyle=line, marker=marker, markersize=4, markerfacecolor="white",
            markevery=some(T + 1), label=label,
        )  # fmt: skip
    extremes = _add_singular_values(ax, flow)
    bottom, top = span(decades(backward), decades(forward), low, high, *extremes)
    if bottom < -1:
        bottom = min(bottom, math.log10(HORIZON))
        ax.axhline(math.log10(HORIZON), color=GREY, linestyle=(0, (1, 3)), label="1e-3 left")
    mark_extinct(ax, backward)
    _add_bounds(ax, flow, bottom - 0.3, top + 0.3)
    ax.set_xlabel("lag (steps)")
    ax.set_ylabel("gradient or tangent norm relative to lag 0")
    add_title(ax, *_title(flow))
    return ax


@draws_results
def plot_bounds(flow: GradientFlow, ax: Axes) -> Axes:
    """Add the bounds of a flow to another picture of the same gradients, whose range grows by at most half.

    A bound that leaves this range is cut off below the legend; its entry there says where it ends.

    Parameters
    ----------
    flow : GradientFlow
        From :func:`elman.gradient_flow` with ``bounds=True``.
    ax : matplotlib.axes.Axes
        Axes that a picture of gradients by lag has been drawn on.

    Returns
    -------
    matplotlib.axes.Axes
    """
    _add_bounds(ax, flow, *below_legend(ax))
    return ax


def _add_bounds(ax: Axes, flow: GradientFlow, low: float, high: float) -> None:
    """Draw the bounds and make the decade axis from ``low`` to ``high``, higher if that brings bounds into view."""
    from matplotlib.patches import Rectangle

    bounds = _bounds(ax, flow)
    highest = span(*(line.get_ydata() for line in bounds))[1]
    decade_axis(ax, low, max(high, min(highest + 0.3, high + (high - low) / 2)))
    bottom, top = below_legend(ax)
    for line in bounds:
        # without this, the line would pass behind the legend and reappear above it
        line.set_clip_path(Rectangle((0, bottom), 1, top - bottom, transform=ax.get_yaxis_transform()))


def _bounds(ax: Axes, flow: GradientFlow) -> list[Line2D]:
    """Draw those bounds that the flow has."""
    lines: list[tuple[Array, str, Any]] = []
    if flow.upper_bound is not None and flow.lower_bound is not None:
        lines += [
            (flow.upper_bound.max(axis=1), r"$\sigma_\max(J_t)$", "-."),
            (flow.lower_bound.min(axis=1), r"$\sigma_\min(J_t)$", (0, (3, 1, 1, 1, 1, 1))),
        ]
    if flow.a_priori_bound is not None:
        lines.append((flow.a_priori_bound, r"$\sigma_\max(W_{hh})$", ":"))
    drawn = []
    for bound, name, style in lines:
        label = f"{name} bound, {short_factor(bound[-1])} at lag {flow.lags[-1]}"
        drawn += ax.plot(flow.lags, decades(bound), color="black", linestyle=style, linewidth=1, label=label)
    return drawn


def _add_singular_values(ax: Axes, flow: GradientFlow) -> list[Array]:
    """Draw the extreme singular values, if the flow has them; return the decades of those that gradients come near."""
    if flow.singular_lags is None or flow.largest is None or flow.smallest is None:
        return []
    largest, smallest = decades(flow.largest.max(axis=1)), decades(flow.smallest.min(axis=1))
    end = f"{short_factor(flow.smallest[-1].min())} at lag {flow.lags[-1]}"
    for values, label, marker in ((largest, "largest $\\sigma$", "^"), (smallest, f"smallest $\\sigma$, {end}", "v")):
        ax.plot(
            flow.singular_lags, values, color="black", linewidth=0.6, marker=marker, markersize=3.5,
            markerfacecolor="white", label=label,
        )  # fmt: skip
    # the smallest may fall a hundred times as fast as any observed gradient, and would flatten the picture
    return [largest]


def _title(flow: GradientFlow) -> list[str]:
    """Both rates and, where gradients died, how many."""
    dead = float(flow.dead_fraction[-1])
    died = [f"{dead:.0%} of the gradients exactly zero at lag {flow.lags[-1]}"] if dead else []
    if not np.isfinite([flow.rate, flow.forward_rate]).all():
        return died or ["no rate: there is no step"]
    return [f"rate backward {flow.rate:+.4f}, forward {flow.forward_rate:+.4f} nats/step", *died]


def _extremes(growth: Array) -> tuple[Array, Array]:
    """Decades (T + 1,) of the smallest and largest growth (T + 1, n) that is not -inf; NaN where all of it is."""
    living = np.isfinite(growth)
    return decades(np.where(living, growth, np.inf).min(axis=1)), decades(np.where(living, growth, -np.inf).max(axis=1))
