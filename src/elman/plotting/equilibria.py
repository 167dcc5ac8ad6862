"""Fixed points: their eigenvalues, and where they lie among the states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ShapeError
from ..linearization import Array
from ..validation.arrays import real_numbers
from .canvas import BLUE, GREEN, GREY, ORANGE, add_title, axes_for, draws_results, legend_above, legend_above_plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..diagnostics.equilibria.search import FixedPoints

_SHOWN_TRAJECTORIES = 50


@draws_results
def plot_fixed_points(result: FixedPoints, axes: Any = None, *, trajectories: ArrayLike | None = None) -> Any:
    """Draw the eigenvalues of every point, and the points on two principal components, side by side.

    Parameters
    ----------
    result : FixedPoints
        From :func:`elman.fixed_points`.
    axes : sequence of two matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    trajectories : array_like, shape (T, n, S), optional
        As for :func:`plot_points`.

    Returns
    -------
    ndarray of two matplotlib.axes.Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ShapeError
        If there are not two axes, or the trajectories have another shape.
    """
    if axes is None:
        first = axes_for(None, "plot_fixed_points", (10.4, 5.0))
        figure = first.figure
        first.remove()
        axes = figure.subplots(1, 2)
    axes = np.asarray(axes)
    if axes.shape != (2,):
        raise ShapeError(f"axes must be two matplotlib axes, got an array of shape {axes.shape}")
    plot_point_eigenvalues(result, axes[0])
    plot_points(result, axes[1], trajectories=trajectories)
    return axes


@draws_results
def plot_point_eigenvalues(result: FixedPoints, ax: Axes | None = None) -> Axes:
    """Draw the eigenvalues of the Jacobian at every point, in the complex plane with the unit circle.

    Parameters
    ----------
    result : FixedPoints
        From :func:`elman.fixed_points`.
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
    ax = axes_for(ax, "plot_point_eigenvalues", (5.2, 5.6))
    angle = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(angle), np.sin(angle), color=GREY, linestyle="--", linewidth=0.8, label="unit circle")
    for chosen, label, style in _kinds(result):
        z = result.eigenvalues[chosen].ravel()
        ax.plot(z.real, z.imag, label=label, **style)
    ax.set_xlabel(r"$\mathrm{Re}\,\lambda$ (factor per step)")
    ax.set_ylabel(r"$\mathrm{Im}\,\lambda$ (factor per step)")
    add_title(ax, "eigenvalues of the Jacobian at each point")
    # a few eigenvalues may lie far outside the circle
    z = result.eigenvalues
    right, top = max(1.05, z.real.max(initial=0) + 0.1), max(1.05, abs(z.imag).max(initial=0) + 0.1)
    legend_above_plane(ax, min(-1.05, z.real.min(initial=0) - 0.1), right, -top, top)
    return ax


@draws_results
def plot_points(result: FixedPoints, ax: Axes | None = None, *, trajectories: ArrayLike | None = None) -> Axes:
    """Draw the points on the two directions in which they, or the trajectories, vary most.

    Parameters
    ----------
    result : FixedPoints
        From :func:`elman.fixed_points`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    trajectories : array_like, shape (T, n, S), optional
        States of the layer, from which the components are then computed; the first 50 sequences are drawn.

    Returns
    -------
    matplotlib.axes.Axes
        The axes are principal components, in units of the state.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ShapeError
        If the trajectories have another shape.
    """
    ax = axes_for(ax, "plot_points", (5.2, 5.0))
    S = result.points.shape[1]
    paths = (
        np.empty((0, 0, S)) if trajectories is None else real_numbers(trajectories, "trajectories").astype(np.float64)
    )
    if paths.ndim != 3 or paths.shape[2] != S:
        raise ShapeError(f"trajectories must have shape (T, n, S) with S = {S}, got {paths.shape}")
    cloud = paths.reshape(-1, S) if paths.size else result.points
    centre, components, shares = _principal(cloud)
    drawn = (paths[:, :_SHOWN_TRAJECTORIES] - centre) @ components
    for i in range(drawn.shape[1]):
        label = "trajectories" if i == 0 else None
        ax.plot(drawn[:, i, 0], drawn[:, i, 1], color="0.7", linewidth=0.4, zorder=1, label=label)
    places = (result.points - centre) @ components
    for chosen, label, style in _kinds(result):
        ax.plot(places[chosen, 0], places[chosen, 1], label=label, zorder=3, **style)
    ax.set_xlabel(f"principal component 1 (state units, {shares[0]:.0%} of the variance)")
    ax.set_ylabel(f"principal component 2 (state units, {shares[1]:.0%})")
    add_title(ax, f"{len(result)} points found from {result.n_starts} starts")
    ends = np.concatenate([places[:, 1], drawn[:, :, 1].ravel()])
    low, high = (float(ends.min()), float(ends.max())) if ends.size else (-1.0, 1.0)
    margin = 0.06 * (high - low) or 1.0
    legend_above(ax, low - margin, high + margin)
    return ax


def _kinds(result: FixedPoints) -> list[tuple[Array, str, dict[str, Any]]]:
    """For each kind that occurs: which points (m,) are of it, its name, and how it is drawn."""
    open_marker = {"linestyle": "none", "markersize": 5, "markerfacecolor": "none"}
    kinds = [
        (result.stable, "stable", {**open_marker, "marker": "o", "color": BLUE}),
        (result.marginal, "marginal", {**open_marker, "marker": "D", "color": GREEN}),
        (result.saddle, "saddle", {**open_marker, "marker": "x", "color": ORANGE}),
        (~result.converged, "slow", {**open_marker, "marker": "^", "color": "black"}),
    ]
    return [(chosen, f"{name}, {chosen.sum()} points", style) for chosen, name, style in kinds if chosen.any()]


def _principal(cloud: Array) -> tuple[Array, Array, Array]:
    """Mean (S,), two orthonormal directions (S, 2) of largest variance, and their shares of it; zeros if no points."""
    S = cloud.shape[1]
    if not len(cloud):
        return np.zeros(S), np.zeros((S, 2)), np.zeros(2)
    centre = cloud.mean(axis=0)
    _, sizes, directions = np.linalg.svd(cloud - centre, full_matrices=False)
    components, shares = np.zeros((S, 2)), np.zeros(2)
    count = min(2, len(sizes))
    components[:, :count] = directions[:count].T
    shares[:count] = sizes[:count] ** 2 / max(float((sizes**2).sum()), np.finfo(np.float64).tiny)
    return centre, components, shares
