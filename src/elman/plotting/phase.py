"""Mean-field rates over gains: one network's line, and the map with the boundary between order and chaos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..diagnostics.mean_field import mean_field
from .canvas import BLUE, GREY, ORANGE, add_title, axes_for, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..diagnostics.mean_field import MeanField
    from ..diagnostics.phase_diagram import PhaseDiagram

_GAINS = 60
_GAIN = "gain $g$ of the recurrent weights"
_RATE = "mean-field rate (nats per step)"


def plot_mean_field(field: MeanField, ax: Axes | None = None) -> Axes:
    """Draw the mean-field rate over the gain for the variances of one network, and the network on it.

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
    from matplotlib.colors import TwoSlopeNorm

    gains, variances = diagram.gains, diagram.input_variances
    rate = np.where(np.isfinite(diagram.rate), diagram.rate, np.nan)
    low, high = min(float(np.nanmin(rate)), -1e-3), max(float(np.nanmax(rate)), 1e-3)
    # dark below and light above 0 in grey as well, equally graded to both sides
    mesh = ax.pcolormesh(
        gains, variances, rate, cmap="cividis", norm=TwoSlopeNorm(0, vmin=low, vmax=high), shading="nearest",
        rasterized=True,
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label=_RATE)
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    inside = (diagram.critical_gain > left) & (diagram.critical_gain < right)
    ax.plot(diagram.critical_gain, variances, color="white", linewidth=4)
    ax.plot(diagram.critical_gain, variances, color="black", linewidth=1.8)
    box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 2}
    if inside.any():
        middle = float(np.median(diagram.critical_gain[inside]))
        height = (bottom + top) / 2
        ax.text((left + middle) / 2, height, "order", ha="center", va="center", bbox=box)
        ax.text((middle + right) / 2, height, "chaos" if diagram.has_chaos else "unbounded", ha="center", bbox=box)
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)
    ax.set_xlabel(_GAIN)
    ax.set_ylabel(r"input variance $\sigma_I^2$")
    add_title(ax, f"{diagram.nonlinearity}, bias variance {diagram.bias_variance:.3g}; line: rate 0")
    return ax
