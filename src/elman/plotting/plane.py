"""Eigenvalues in the complex plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from ..errors import ArgumentError
from ..linearization import Array, Linearization
from .canvas import BLUE, GREY, ORANGE, add_title, axes_for, legend_above_plane, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..diagnostics.spectrum import Spectrum

# The boundary takes one eigenvalue problem a direction: 61 of 500 units are a few seconds, of 2000 minutes.
_LARGEST_BOUNDARY = 500
_DIRECTIONS = 61
_STEPS = 6
_CIRCLE = "unit circle"


def plot_spectrum(spectrum: Spectrum, ax: Axes | None = None) -> Axes:
    """Draw the eigenvalues of a recurrent matrix with the unit circle and its field of values.

    The field of values (numerical range) ``{x^* W x: |x| = 1}`` holds the eigenvalues; how far it reaches beyond their
    convex hull shows how far the matrix is from normal; where it leaves the unit disc short-term growth is possible.

    Parameters
    ----------
    spectrum : Spectrum
        From :func:`elman.spectrum`. The field of values is drawn up to 500 units.
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
    ax = axes_for(ax, "plot_spectrum", (5.2, 5.6))
    if len(spectrum.W) <= _LARGEST_BOUNDARY:
        boundary = field_of_values(spectrum.W)
        ax.fill(boundary.real, boundary.imag, facecolor=BLUE, alpha=0.1, zorder=1)
        label = f"field of values, radius {spectrum.numerical_radius:.3g}"
        ax.plot(boundary.real, boundary.imag, color=BLUE, linestyle="--", linewidth=1, label=label)
    z = spectrum.eigenvalues
    label = rf"eigenvalues of $W_{{hh}}$, $|\lambda|_\max$ = {spectrum.radius:.3g}"
    ax.plot(z.real, z.imag, linestyle="none", marker="o", markersize=5, markerfacecolor="none", color=BLUE, label=label)
    add_title(ax, f"H = {len(spectrum.W)}, departure from normality {spectrum.departure_from_normality:.3g}")
    _finish(ax)
    return ax


def plot_jacobian_spectrum(
    lin: Linearization, ax: Axes | None = None, *, steps: Sequence[int] | None = None, sequence: int = 0
) -> Axes:
    """Draw the eigenvalues of Jacobians along a trajectory with the unit circle.

    On the axes of :func:`plot_spectrum` it shows what the nonlinearity makes of the recurrent matrix: a gradient meets
    ``J_t``, not ``W_hh``.

    Parameters
    ----------
    lin : Linearization
        ``T >= 1`` steps, state size S. Each Jacobian is formed and decomposed, of order ``S^3`` a step.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    steps : sequence of int, optional
        Steps ``0 <= t < T``; by default 6 or fewer, evenly spaced from the first to the last.
    sequence : int, default 0
        Which trajectory.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ArgumentError
        If no step is given, or one or the sequence is out of range.
    """
    chosen = some(lin.n_steps, _STEPS) if steps is None else list(steps)
    if not chosen or not all(0 <= t < lin.n_steps for t in chosen):
        raise ArgumentError(f"steps must name at least one step from 0 to {lin.n_steps - 1}, got {chosen}")
    if not 0 <= sequence < lin.n_sequences:
        raise ArgumentError(f"sequence must be in 0 .. {lin.n_sequences - 1}, got {sequence}")
    ax = axes_for(ax, "plot_jacobian_spectrum", (5.2, 5.6))
    z = np.concatenate([scipy.linalg.eigvals(lin.jacobian(t, sequence)) for t in chosen])
    shown = ", ".join(map(str, chosen)) if len(chosen) <= _STEPS else f"{len(chosen)} steps"
    label = rf"eigenvalues of $J_t$, $t$ = {shown}"
    ax.plot(z.real, z.imag, linestyle="none", marker="x", markersize=4, color=ORANGE, alpha=0.8, label=label)
    _finish(ax)
    return ax


def field_of_values(W: Array) -> Array:
    """Points on the boundary of the numerical range of a real matrix.

    Parameters
    ----------
    W : ndarray, shape (H, H), float64
        Finite.

    Returns
    -------
    ndarray, shape (123,), complex
        A closed polygon with corners on the boundary, counter-clockwise: ``v^* W v`` with ``v`` the eigenvector of the
        largest eigenvalue of ``(e^{-i theta} W + h.c.) / 2`` (C. R. Johnson, SIAM J. Numer. Anal. 15, 1978).
    """
    symmetric, skew, top = (W + W.T) / 2, (W - W.T) / 2, len(W) - 1
    upper = np.empty(_DIRECTIONS, dtype=np.complex128)
    for i, theta in enumerate(np.linspace(0, np.pi, _DIRECTIONS)):
        hermitian = np.cos(theta) * symmetric - 1j * np.sin(theta) * skew
        v = scipy.linalg.eigh(hermitian, subset_by_index=(top, top))[1][:, 0]
        upper[i] = np.vdot(v, W @ v)
    # A real matrix looks the same above and below the real axis. The point of a multiple eigenvalue may have come from
    # the other side.
    upper.imag = np.abs(upper.imag)
    return np.concatenate([upper, upper[::-1].conj(), upper[:1]])


def _finish(ax: Axes) -> None:
    """Unit circle, equal aspect, labels, and a legend in a strip above the points."""
    if _CIRCLE not in ax.get_legend_handles_labels()[1]:
        angle = np.linspace(0, 2 * np.pi, 361)
        ax.plot(np.cos(angle), np.sin(angle), color="black", linewidth=0.8, label=_CIRCLE, zorder=1.5)
        ax.axhline(0, color=GREY, linewidth=0.4, zorder=0)
        ax.axvline(0, color=GREY, linewidth=0.4, zorder=0)
    drawn = [line for line in ax.lines if line.get_transform() == ax.transData]
    points = np.concatenate([np.column_stack(line.get_data()) for line in drawn])
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    margin = 0.05 * max(right - left, top - bottom)
    ax.set_xlabel("real part")
    ax.set_ylabel("imaginary part")
    legend_above_plane(ax, left - margin, right + margin, bottom - margin, top + margin)
