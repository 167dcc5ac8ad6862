"""What the pictures share: axes to draw on, a decade axis for log norms, a legend, the colours."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ..diagnostics.diagnosis.text import factor
from ..errors import DTypeError, MissingExtraError
from ..linearization import Array
from ..validation.words import kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette (2008), which the colour-blind can tell apart; in print, blue is darker than orange
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.4"
_DECADES_WITH_MINOR_TICKS = 8
# Size in inches of a legend entry of about 30 letters in this font.
_FONT, _ENTRY_WIDTH, _ENTRY_HEIGHT = 8.5, 2.4, 0.18


P = ParamSpec("P")
R = TypeVar("R")


def draws_results(plot: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that draws a result: it raises DTypeError if its first argument is not of a declared class.

    Classes are compared by name, so that drawing one kind of result does not import all others.
    """
    declared = next(iter(plot.__annotations__.values())).split(" | ")

    @functools.wraps(plot)
    def checked(*args: P.args, **others: P.kwargs) -> R:
        result = args[0] if args else next(iter(others.values()), None)
        if isinstance(result, type) or not {c.__name__ for c in type(result).__mro__} & set(declared):
            raise DTypeError(f"{plot.__name__} draws a {' or '.join(declared)}, got {kind(result)}")
        return plot(*args, **others)

    return checked


def axes_for(ax: Axes | None, purpose: str, size: tuple[float, float] = (6.4, 4.4)) -> Axes:
    """Return the given axes, or those of a new figure of ``size`` inches; MissingExtraError without matplotlib."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", purpose) from error
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def decades(nats: Any) -> Array:
    """Convert nats to decimal logarithms; anything not finite becomes NaN, which matplotlib leaves out."""
    values = np.asarray(nats, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan) / math.log(10)


short_factor = functools.partial(factor, digits=3, far=math.log(1e4), far_digits=1)
"""Write the factor that a number of nats stands for, for labels: ``88.1``, or ``3e-175``."""


def decade_axis(ax: Axes, low: float, high: float) -> None:
    """Make y an axis of decimal logarithms from ``low`` to ``high``, ticks at powers of ten, with the legend above."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

    if ax.get_legend() is not None:
        # keep another picture on the same axes in view
        bottom, top = below_legend(ax)
        low, high = min(low, bottom), max(high, top)
    legend_above(ax, low, high)
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda k, _: f"$10^{{{k:.0f}}}$"))
    within = np.arange(math.floor(low), math.ceil(high)) if high - low <= _DECADES_WITH_MINOR_TICKS else np.empty(0)
    ax.yaxis.set_minor_locator(FixedLocator((within[:, None] + np.log10(np.arange(2, 10))).ravel().tolist()))


def below_legend(ax: Axes) -> tuple[float, float]:
    """The range of y without the strip that the legend fills."""
    legend, (bottom, top) = ax.get_legend(), ax.get_ylim()
    if legend is None:
        return bottom, top
    return bottom, top - (top - bottom) * _strip(ax, len(legend.get_texts())) / _inches(ax)[1]


def span(*curves: Any) -> tuple[float, float]:
    """Smallest and largest finite number in arrays of decades, widened to at least one decade on either side of 1."""
    finite = [values[np.isfinite(values)] for values in (np.asarray(curve, dtype=np.float64) for curve in curves)]
    return min([-1.0, *(v.min() for v in finite if v.size)]), max([1.0, *(v.max() for v in finite if v.size)])


def some(n: int, most: int = 10) -> list[int]:
    """Indices 0 .. n - 1, thinned to at most ``most`` evenly spaced ones: where a curve has markers."""
    return sorted({round(i) for i in np.linspace(0, n - 1, min(n, most)).tolist()})


def mark_extinct(ax: Axes, mean: Array) -> None:
    """Hatch the lags from which a mean log norm (T + 1,) is -inf: nothing is left to draw there."""
    extinct = np.flatnonzero(np.isneginf(mean))
    if extinct.size:
        ax.axvspan(
            float(extinct[0]), len(mean) - 1, facecolor="none", edgecolor="0.75", hatch="///", linewidth=0, zorder=0,
            label=f"all exactly zero from lag {extinct[0]}",
        )  # fmt: skip


def legend_above(ax: Axes, low: float, high: float, twin: Axes | None = None) -> None:
    """Set the y range so that ``low`` .. ``high`` lies below a strip for the legend, which then covers no curve.

    The legend names each label once, even if several pictures share the axes. With ``twin``, it names the artists of
    both axes, and the present range of the twin is extended by the same strip.
    """
    named: dict[str, Any] = {}
    for each in (ax, twin) if twin else (ax,):
        handles, labels = each.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    strip, height = _strip(ax, len(named)), _inches(ax)[1]
    for each, (bottom, top) in [(ax, (low, high))] + ([(twin, twin.get_ylim())] if twin else []):
        scale = each.yaxis.get_transform()
        start, end = scale.transform([bottom, top])
        stretched = end + (end - start) * strip / (height - strip)
        each.set_ylim(bottom, float(scale.inverted().transform(stretched)))
    show_legend(ax, named)


def legend_above_plane(ax: Axes, left: float, right: float, bottom: float, top: float) -> None:
    """Set ranges of equal scale that contain the rectangle, with a strip above it for the legend."""
    handles, labels = ax.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    strip, (width, height) = _strip(ax, len(named)), _inches(ax)
    scale = min(width / (right - left), (height - strip) / (top - bottom))
    # the whole width is used, so that the axes stay as wide as their legend where there is little height
    centre, half = (left + right) / 2, width / scale / 2
    ax.set_aspect("equal")
    ax.set_xlim(centre - half, centre + half)
    ax.set_ylim(bottom, top + strip / scale)
    show_legend(ax, named)


def show_legend(ax: Axes, named: dict[str, Any]) -> None:
    """Show the legend at the upper edge, without a frame but in front of lines that cross the strip."""
    ax.legend(
        named.values(), named.keys(), loc="upper center", ncols=_columns(ax), fontsize=_FONT, facecolor="white",
        edgecolor="none", framealpha=1, borderaxespad=0.2, columnspacing=1.2,
    )  # fmt: skip


def _inches(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in inches."""
    return ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi


def _columns(ax: Axes) -> int:
    """Number of legend columns that fit side by side."""
    return max(1, int(_inches(ax)[0] / _ENTRY_WIDTH))


def _strip(ax: Axes, labels: int) -> float:
    """Height in inches of a legend with this many labels, at most half that of the axes."""
    return min(math.ceil(labels / _columns(ax)) * _ENTRY_HEIGHT + 0.12, _inches(ax)[1] / 2)


def add_title(ax: Axes, *lines: str) -> None:
    """Write the numbers that belong to the picture above it, on the left."""
    ax.set_title("\n".join(lines), loc="left", fontsize=_FONT)
