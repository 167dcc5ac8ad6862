"""How changes of a network affect its rate: trials of its causes, and the search for a target rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .canvas import BLUE, GREY, ORANGE, add_title, axes_for, draws_results, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..diagnostics.diagnosis.explain import Explanation
    from ..diagnostics.diagnosis.prescribe import TunedPrescription


@draws_results
def plot_explanation(explanation: Explanation, ax: Axes | None = None) -> Axes:
    """Draw how each trial changed the rate: predicted, measured, and for W_hh along the frozen trajectory.

    Parameters
    ----------
    explanation : Explanation
        From :meth:`elman.Diagnosis.explain`. Filled circles with bars: predicted by running the sequences again, mean
        and 95 % interval. Open squares: measured on held-out sequences. The title lists the causes.
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
    ax = axes_for(ax, "plot_explanation", (6.4, 4.0))
    at = np.arange(len(explanation.trials))
    predicted = np.array([trial.predicted for trial in explanation.trials]).reshape(-1, 3).T
    measured = np.array([trial.found or (math.nan,) * 3 for trial in explanation.trials]).reshape(-1, 3).T
    for values, shift, color, marker, face, label in (
        (predicted, -0.12, BLUE, "o", BLUE, f"predicted: run again, n = {explanation.n}, 95 %"),
        (measured, 0.12, ORANGE, "s", "white", f"measured: held out, n = {explanation.n_held_out}, 95 %"),
    ):
        if np.isfinite(values[0]).any():
            mean = values[0]
            ends = np.nan_to_num(np.abs(values[1:] - mean))
            ax.errorbar(
                at + shift, mean, yerr=ends, color=color, linestyle="none", marker=marker, markersize=6,
                markerfacecolor=face, capsize=3, label=label,
            )  # fmt: skip
    frozen = [(i, trial.frozen) for i, trial in enumerate(explanation.trials) if trial.frozen is not None]
    if frozen:
        x, y = zip(*frozen, strict=True)
        ax.plot(x, y, color="black", linestyle="none", marker="x", markersize=8, label="if the trajectory stayed")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xticks(at, [trial.name for trial in explanation.trials])
    ax.set_xlim(-0.5, len(at) - 0.5)
    ax.set_ylabel("change of the rate (nats/step)")
    low, high = ax.get_ylim()
    legend_above(ax, min(low, -0.01), max(high, 0.01))
    add_title(ax, *_causes(explanation))
    return ax


@draws_results
def plot_prescription(tuned: TunedPrescription, ax: Axes | None = None) -> Axes:
    """Draw the rate against the amounts that a search tried, the target, and the rates of held-out sequences.

    Parameters
    ----------
    tuned : TunedPrescription
        From :meth:`elman.Diagnosis.prescribe`. Circles are runs, numbered in their order; squares with bars are
        measured on held-out sequences, with 95 % intervals, before and after. The band is the tolerance.
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
    ax = axes_for(ax, "plot_prescription", (6.4, 4.0))
    runs = np.array(tuned.runs)
    finite = np.isfinite(runs[:, 1])
    low, high = tuned.target - tuned.tolerance, tuned.target + tuned.tolerance
    ax.axhspan(low, high, color="0.88", zorder=0, label=f"target {tuned.target:+.3g} ± {tuned.tolerance:g}")
    order = np.argsort(runs[finite, 0])
    ax.plot(
        *runs[finite][order].T, color=BLUE, marker="o", markersize=5, markerfacecolor="white",
        label=f"runs 1 to {len(runs)}, n = {tuned.after.n}",
    )  # fmt: skip
    for number, (amount, rate) in enumerate(tuned.runs, 1):
        if math.isfinite(rate) and (number <= 3 or number == len(runs)):
            ax.annotate(str(number), (amount, rate), textcoords="offset points", xytext=(6, -11), fontsize=8)
    start = tuned.runs[0][0]
    for amount, curve in ((start, tuned.measured_before), (tuned.amount, tuned.measured)):
        if curve is not None and curve.alive[-1] > 1:
            ends = np.abs(np.array(curve.rate_ci)[:, None] - curve.rate)
            ax.errorbar(
                [amount], [curve.rate], yerr=ends, color=ORANGE, marker="s", markersize=6, markerfacecolor="none",
                linestyle="none", capsize=4, label=f"measured, held out, n = {curve.n}",
            )  # fmt: skip
    ax.set_xlabel({"recurrent": "factor of W_hh"}.get(tuned.lever, f"added to the {tuned.lever.replace('_', ' ')}"))
    ax.set_ylabel("rate (nats/step)")
    legend_above(ax, *ax.get_ylim())
    reached = "reached" if tuned.reached else "NOT reached"
    add_title(ax, f"target {reached}; this moves the rate, it does not promise better training")
    return ax


def _causes(explanation: Explanation) -> list[str]:
    """Causes or paths, in lines short enough for a picture."""
    if explanation.causes is not None:
        terms = ", ".join(f"{name} {value:+.3f}" for name, value in explanation.causes.terms.items())
        return [f"rate {explanation.causes.rate:+.3f} nats/step, the sum of", terms]
    if explanation.paths is not None:
        shares = ", ".join(f"{name} {share:+.2f}" for name, share in explanation.paths.shares.items())
        return ["shares of the gradient's paths:", shares]
    return ["no living gradient"]
