"""Mean-field rates by gain: a line for one network, and a map with the boundary between order and chaos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..diagnostics.random_networks.theory import mean_field
from .canvas import BLUE, GREY, ORANGE, add_title, axes_for, draws_results, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..diagnostics.random_networks.phase_diagram import PhaseDiagram
    from ..diagnostics.random_networks.theory import MeanField

_GAINS = 60
_GAIN = "gain $g$ of the recurrent weights"
_RATE = "mean-field rate (nats per step)"


@draws_results
def plot_mean_field(field: MeanField, ax: Axes | None = None) -> Axes:
    """Draw the mean-field rate against the gain for the variances of one network, and mark the network.

    Parameters
    ----------
    field : MeanField
        From :func:`elman.mean_field`.
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
    ax = axes_for(ax, "plot_mean_field")
    critical = field.critical_gain
    gains = np.linspace(0.2, 2, _GAINS) * max(critical, field.gain / 1.5)
    others = (field.input_variance, field.bias_variance, field.nonlinearity)
    rates = np.array([mean_field(float(g), *others).rate for g in gains])
    ax.axhline(0, color=GREY, linestyle="--", linewidth=0.8)
    ax.axvline(critical, color="black", linestyle=":", linewidth=1, label=f"critical gain {critical:.4g}")
    label = f"input variance {field.input_variance:.3g}, bias {field.bias_variance:.3g}"
    ax.plot(gains, rates, color=BLUE, label=label)
    if np.isfinite(field.rate):
        label = f"this network, {field.phase}: {field.rate:+.3g}"
        ax.plot([field.gain], [field.rate], color=ORANGE, marker="o", linestyle="none", label=label)
    ax.set_xlabel(_GAIN)
    ax.set_ylabel(_RATE)
    add_title(ax, f"{field.nonlinearity}, q = {field.q:.4g}, $\\chi$ = {field.chi:.4g}")
    shown = np.append(rates, field.rate)
    shown = shown[np.isfinite(shown)]
    margin = 0.06 * float(np.ptp(shown))
    legend_above(ax, float(shown.min()) - margin, float(shown.max()) + margin)
    return ax


@draws_results
def plot_phase_diagram(diagram: PhaseDiagram, ax: Axes | None = None) -> Axes:
    """Draw the mean-field rate as a map over gain and input variance, with the boundary between order and chaos.

    Parameters
    ----------
    diagram : PhaseDiagram
        From :func:`elman.phase_diagram`.
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
    ax = axes_for(ax, "plot_phase_diagram")
    gains, variances = diagram.gains, diagram.input_variances
    rate = np.where(np.isfinite(diagram.rate), diagram.rate, np.nan)
    low, high = float(np.nanmin(rate)), float(np.nanmax(rate))
    # Dark below 0 and light above it, in grey as well. Rates fall without bound as the gain goes to 0: those farther
    # below 0 than the highest is above it share the darkest shade.
    most = high if high > 0 else -low
    mesh = ax.pcolormesh(
        gains, variances, rate, cmap="cividis", vmin=-most, vmax=most, shading="gouraud", rasterized=True
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label=_RATE, extend="min" if low < -most else "neither")
    levels = _level_lines(most)
    shades = ["white" if level < 0 else "black" for level in levels]
    lines = ax.contour(gains, variances, rate, levels=levels, colors=shades, linewidths=0.6)
    lines.set_linestyle("solid")
    ax.clabel(lines, fmt="%+.2g", fontsize=7)
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    # the boundary starts with a vertical tangent: more points where it is steep
    fine = bottom + (top - bottom) * np.linspace(0, 1, _GAINS) ** 3
    others = (diagram.bias_variance, diagram.nonlinearity)
    boundary = np.array([mean_field(1.0, float(v), *others).critical_gain for v in fine])
    inside = (boundary > left) & (boundary < right)
    for color, width in (("white", 4.0), ("black", 1.8)):
        ax.plot(boundary, fine, color=color, linewidth=width)
    box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 2}
    if inside.any():
        middle = float(np.interp((bottom + top) / 2, fine, boundary))
        height = (bottom + top) / 2
        ax.text((left + middle) / 2, height, "order", ha="center", va="center", bbox=box)
        ax.text(
            (middle + right) / 2,
            height,
            "chaos" if diagram.has_chaos else "unbounded",
            ha="center",
            va="center",
            bbox=box,
        )
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)
    ax.set_xlabel(_GAIN)
    ax.set_ylabel(r"input variance $\sigma_I^2$")
    add_title(ax, f"{diagram.nonlinearity}, bias variance {diagram.bias_variance:.3g}; line: rate 0")
    return ax


def _level_lines(most: float) -> list[float]:
    """Rates at which lines are drawn, apart from 0: two to four on either side within ``most``, and more below them."""
    step = 10.0 ** np.floor(np.log10(most / 2))
    step *= max(factor for factor in (1, 2, 5) if 2 * factor * step <= most)
    return [float(step * k) for k in range(-20, 5) if k]
