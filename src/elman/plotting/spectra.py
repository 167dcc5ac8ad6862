"""Eigenvalues, field of values and pseudospectra in the complex plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from ..diagnostics.spectra.resolvent import top_eigenpair
from ..errors import ArgumentError, MissingExtraError
from ..linearization import Array, Linearization
from ..validation.arrays import real_numbers
from .canvas import BLUE, GREEN, GREY, ORANGE, add_title, axes_for, draws_results, legend_above_plane, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..diagnostics.spectra.dense import Spectrum
    from ..diagnostics.spectra.gates import SpectrumByGate
    from ..diagnostics.spectra.partial import PartialSpectrum
    from ..diagnostics.spectra.pseudospectrum import Pseudospectrum

# The boundary takes one eigenvalue problem per direction: 61 take a few seconds for 500 units, minutes for 2000.
_LARGEST_BOUNDARY = 500
_DIRECTIONS = 61
_STEPS = 6
_CIRCLE = "unit circle"
_LEAST_CONTOURS, _MOST_CONTOURS = 5, 8
_COLUMNS = 4


@draws_results
def plot_spectrum(spectrum: Spectrum, ax: Axes | None = None) -> Axes:
    """Draw the eigenvalues of a recurrent matrix with the unit circle and its field of values; marginal ones marked.

    The field of values (numerical range) ``{x^* W x: |x| = 1}`` contains the eigenvalues; how far it reaches beyond
    their convex hull shows how far the matrix is from normal; where it leaves the unit disc, short-term growth is
    possible.

    Parameters
    ----------
    spectrum : Spectrum
        From :func:`elman.spectrum`. The field of values is drawn for up to 500 units.
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
    _add_eigenvalues(ax, spectrum, rf"eigenvalues of $W_{{hh}}$, $|\lambda|_\max$ = {spectrum.radius:.3g}")
    add_title(ax, f"H = {len(spectrum.W)}, departure from normality {spectrum.departure_from_normality:.3g}")
    _finish(ax)
    return ax


@draws_results
def plot_partial_spectrum(spectrum: PartialSpectrum, ax: Axes | None = None) -> Axes:
    """Draw the eigenvalues found of a large matrix, with the circle of its norm, which contains all eigenvalues.

    Parameters
    ----------
    spectrum : PartialSpectrum
        From :func:`elman.spectrum`.
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
    ax = axes_for(ax, "plot_partial_spectrum", (5.2, 5.6))
    circle = spectrum.norm * np.exp(1j * np.linspace(0, 2 * np.pi, 361))
    ax.plot(circle.real, circle.imag, color=BLUE, linestyle="--", linewidth=1, label=f"norm {spectrum.norm:.4g}")
    found = f"{len(spectrum.eigenvalues)} of {spectrum.size} eigenvalues"
    _add_eigenvalues(ax, spectrum, rf"{found}, $|\lambda|_\max$ = {spectrum.radius:.4g}")
    add_title(ax, f"H = {spectrum.size}, radius {spectrum.radius_estimate}")
    _finish(ax)
    return ax


def _add_eigenvalues(ax: Axes, spectrum: Spectrum | PartialSpectrum, label: str) -> None:
    """Draw circles, with diamonds around those that lie on the unit circle within rounding, if there are any."""
    z = spectrum.eigenvalues
    ax.plot(z.real, z.imag, linestyle="none", marker="o", markersize=5, markerfacecolor="none", color=BLUE, label=label)
    z = z[spectrum.marginal]
    if len(z):
        label = f"{len(z)} marginal: modulus 1 within rounding"
        ax.plot(z.real, z.imag, "D", markersize=8, markerfacecolor="none", color=GREEN, label=label)


@draws_results
def plot_pseudospectrum(
    pseudospectrum: Pseudospectrum, ax: Axes | None = None, *, levels: Sequence[float] | None = None
) -> Axes:
    """Draw the boundaries of pseudospectra with the eigenvalues and the unit circle.

    Parameters
    ----------
    pseudospectrum : Pseudospectrum
        From :meth:`elman.Spectrum.pseudospectrum`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    levels : sequence of float, optional
        Sizes of the perturbation, ascending, above 0. By default at most eight powers of ten, from 1e-12 upward, whose
        contours close within the grid, with fractional exponents where there are few.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ArgumentError
        If the levels are not positive or do not ascend.
    """
    ax = axes_for(ax, "plot_pseudospectrum", (5.2, 5.6))
    # a point on an eigenvalue has sigma_min = 0
    log_sigma = np.log10(np.maximum(pseudospectrum.sigma_min, 1e-300))
    chosen = _levels(log_sigma) if levels is None else real_numbers(levels, "levels").astype(np.float64)
    if chosen.ndim != 1 or not len(chosen) or chosen[0] <= 0 or (np.diff(chosen) <= 0).any():
        raise ArgumentError(f"levels must be positive and ascend, got {levels}")
    real, imag, z = pseudospectrum.real, pseudospectrum.imag, pseudospectrum.eigenvalues
    lines = ax.contour(real, imag, log_sigma, levels=np.log10(chosen), colors="0.35", linewidths=0.9)
    lines.set_linestyle("solid")
    ax.clabel(lines, fmt=lambda level: f"$10^{{{level:.3g}}}$", fontsize=7)
    ax.plot([], [], color="0.35", linewidth=0.9, label=r"$\varepsilon$-pseudospectra")
    if not any(label.startswith("eigenvalues") for label in ax.get_legend_handles_labels()[1]):
        label = f"eigenvalues, H = {len(z)}"
        ax.plot(z.real, z.imag, "o", markersize=4, markerfacecolor="none", color=BLUE, label=label)
    _finish(ax, (real[0], real[-1], imag[0], imag[-1]))
    return ax


def _levels(log_sigma: Array) -> Array:
    """Powers of ten whose contours close within a grid, with fractional exponents where there are few."""
    border = np.concatenate([log_sigma[0], log_sigma[-1], log_sigma[:, 0], log_sigma[:, -1]])
    low, high = max(-12.0, float(log_sigma.min())), float(border.min())
    for spacing in (1.0, 0.5, 0.25, 0.1):
        powers = np.arange(np.ceil(low / spacing), np.floor(high / spacing) + 1) * spacing
        if len(powers) >= _LEAST_CONTOURS:
            break
    # contours of the lowest of many levels are specks around the eigenvalues
    return 10.0 ** powers[-_MOST_CONTOURS:]


@draws_results
def plot_spectrum_by_gate(spectra: SpectrumByGate) -> Figure:
    """Draw the eigenvalues of each recurrent matrix in its own panel, all to the same scale.

    Parameters
    ----------
    spectra : SpectrumByGate
        From :func:`elman.spectrum`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "plot_spectrum_by_gate") from error
    columns = min(len(spectra), _COLUMNS)
    rows = -(-len(spectra) // columns)
    figure, panels = plt.subplots(
        rows,
        columns,
        figsize=(3.6 * columns, 4.2 * rows),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for ax, (gate, spectrum) in zip(panels.flat, spectra.items(), strict=False):
        spectrum.plot(ax)
        add_title(ax, f"{gate}: radius {spectrum.radius:.4g}, norm {spectrum.norm:.4g}")
    for ax in panels.flat[len(spectra) :]:
        ax.set_axis_off()
    drawn = list(panels.flat[: len(spectra)])
    corners = np.array([ax.dataLim.extents for ax in drawn])
    (left, bottom), (right, top) = corners[:, :2].min(axis=0), corners[:, 2:].max(axis=0)
    for ax in drawn:
        _finish(ax, (left, right, bottom, top))
        ax.label_outer()
    return figure


@draws_results
def plot_jacobian_spectrum(
    lin: Linearization, ax: Axes | None = None, *, steps: Sequence[int] | None = None, sequence: int = 0
) -> Axes:
    """Draw the eigenvalues of Jacobians along a trajectory with the unit circle.

    On the axes of :func:`plot_spectrum`, this shows the effect of the nonlinearity: a gradient is multiplied by
    ``J_t``, not by ``W_hh``.

    Parameters
    ----------
    lin : Linearization
        ``T >= 1`` steps, state size S. Each Jacobian is formed and decomposed, at a cost of order ``S^3`` per step.
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
        If no step is given, or a step or the sequence is out of range.
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
    symmetric, skew = (W + W.T) / 2, (W - W.T) / 2
    upper = np.empty(_DIRECTIONS, dtype=np.complex128)
    for i, theta in enumerate(np.linspace(0, np.pi, _DIRECTIONS)):
        hermitian = np.cos(theta) * symmetric - 1j * np.sin(theta) * skew
        v = top_eigenpair(hermitian)[1]
        upper[i] = np.vdot(v, W @ v)
    # The range of a real matrix is symmetric about the real axis. The point of a multiple eigenvalue may lie on the
    # other side.
    upper.imag = np.abs(upper.imag)
    return np.concatenate([upper, upper[::-1].conj(), upper[:1]])


def _finish(ax: Axes, window: Sequence[float] | None = None) -> None:
    """Add the unit circle, equal aspect, labels, and a legend in a strip above the points and the given window."""
    if _CIRCLE not in ax.get_legend_handles_labels()[1]:
        angle = np.linspace(0, 2 * np.pi, 361)
        ax.plot(np.cos(angle), np.sin(angle), color="black", linewidth=0.8, label=_CIRCLE, zorder=1.5)
        ax.axhline(0, color=GREY, linewidth=0.4, zorder=0)
        ax.axvline(0, color=GREY, linewidth=0.4, zorder=0)
    ax.set_xlabel("real part")
    ax.set_ylabel("imaginary part")
    drawn = [line for line in ax.lines if line.get_transform() == ax.transData]
    points = np.concatenate([np.column_stack(line.get_data()) for line in drawn])
    if window is not None:
        points = np.concatenate([points, np.reshape(window, (2, 2)).T])
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    margin = 0.05 * max(right - left, top - bottom)
    legend_above_plane(ax, left - margin, right + margin, bottom - margin, top + margin)
