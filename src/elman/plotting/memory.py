"""Memory by lag: capacity, exact or measured, and Fisher information."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..diagnostics.memory.fisher import FisherMemory
from ..diagnostics.memory.measured import MeasuredMemory
from .canvas import BLUE, GREY, ORANGE, axes_for, draws_results, legend_above, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..diagnostics.memory.capacity import MemoryCapacity

_MARKS = 40


@draws_results
def plot_memory(memory: MemoryCapacity | MeasuredMemory | FisherMemory, ax: Axes | None = None) -> Axes:
    """Draw by lag how much of its input a network holds. Several may share the axes, such as exact and measured.

    Parameters
    ----------
    memory : MemoryCapacity, MeasuredMemory or FisherMemory
        Measured capacity is drawn without its bias, with the threshold that chance exceeds once in 10,000; the biased
        estimate is a thin line.
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
    ax = axes_for(ax, "plot_memory")
    lags, values = np.arange(len(memory.per_lag)), memory.per_lag
    at = some(len(values), _MARKS)
    if isinstance(memory, MeasuredMemory):
        label = f"with bias {memory.bias:.3g}"
        ax.plot(lags, memory.biased, color=ORANGE, linewidth=0.8, linestyle=":", label=label)
        ax.axhline(
            memory.threshold, color=GREY, linewidth=0.8, linestyle="-.", label="chance exceeds it once in 10,000"
        )
        name, color, style, marker = f"measured, total {memory.total:.4g}", ORANGE, "--", "s"
    else:
        kind = "Fisher information" if isinstance(memory, FisherMemory) else "capacity, exact"
        name, color, style, marker = f"{kind}, total {memory.total:.5g}", BLUE, "-", "o"
    ax.plot(
        lags, values, color=color, linestyle=style, marker=marker, markersize=3.5, markerfacecolor="white",
        markevery=at, label=name,
    )  # fmt: skip
    shown = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in ax.lines])
    low, high = min(0.0, float(shown.min())), float(shown.max()) or 1.0
    ax.set_xlabel("lag $k$ (steps)")
    ax.set_ylabel("Fisher information" if isinstance(memory, FisherMemory) else "share of the input's variance held")
    legend_above(ax, low - 0.03 * high, 1.05 * high)
    return ax
