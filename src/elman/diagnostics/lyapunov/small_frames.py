"""Frames of small systems, pushed through all segments of a trajectory at once.

A step of a map with two or three variables takes nanoseconds, but a call of a NumPy function a microsecond. So the
trajectory is cut into segments, which are processed side by side, each from a guess of its first frame. The last frame
of a segment is a better guess for the next segment, since frames forget their start; once no guess changes, the result
is that of processing the segments one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...linearization import Array, JacobianStack, Linearization

_LARGEST_STATE = 4  # loops over pairs of columns run in Python
_MOST_ROUNDS = 12  # the Henon map takes 2; more rounds than this would cost nearly as much as a pass step by step
_LONGEST_WINDOW = 8  # products of more steps save little, and are more likely to be too long
_FEWEST_WINDOWS = 64
# Frames that differ by less than this change growth by less than rounding, as the difference fades within the segment.
_SAME = 1e-10


class Growth(NamedTuple):
    """The growth of a frame along a trajectory.

    Attributes
    ----------
    logs : ndarray, shape (T / window, k)
        ``log |R_ii|`` of each window.
    window : int
        Steps between two decompositions.
    condition : float
        Worst condition of a frame before a decomposition, as in :class:`~elman.diagnostics.lyapunov.frames.Frame`.
    """

    logs: Array
    window: int
    condition: float


def small_growth(
    lin: Linearization, start: Array, sequence: int, edges: Sequence[int], longest: int | None
) -> Growth | None:
    """The growth of a frame along a long trajectory of a small system given by its Jacobians.

    Parameters
    ----------
    lin, start, sequence, edges, longest
        As for :func:`~elman.diagnostics.lyapunov.frames.pushed_frames`.

    Returns
    -------
    Growth or None
        With the longest window that divides all edges and keeps the condition below ``eps**(-1/2)``; None for another
        kind of system, or if its frames forget too slowly, a direction is lost, or numbers leave their range: these
        cases must be handled step by step.
    """
    if not isinstance(lin, JacobianStack) or lin.dtype != np.float64 or lin.state_size > _LARGEST_STATE:
        return None
    common = math.gcd(*edges)
    most = min(_LONGEST_WINDOW, longest or _LONGEST_WINDOW, lin.n_steps // _FEWEST_WINDOWS)
    jacobians = np.ascontiguousarray(lin.jacobians[:, sequence].transpose(1, 2, 0))
    with np.errstate(all="ignore"):
        first, independent, sizes = _orthonormal(start.T[:, :, None])
        if not (independent > _SAME * sizes).all():
            return None
        for window in (w for w in range(most, 0, -1) if common % w == 0):
            settled = _settled(_products(jacobians, window), first)
            if settled is None:
                return None
            growth, condition = settled
            strained = condition > np.finfo(np.float64).eps ** -0.5 or not _in_range(growth)
            if not strained or (window == 1 and condition < 1 / (lin.state_size * np.finfo(np.float64).eps)):
                return Growth(np.log(growth), window, condition) if np.isfinite(np.log(growth)).all() else None
    return None


def _in_range(growth: Array) -> bool:
    """Whether the fourth powers of these numbers can be computed."""
    tiny = float(np.finfo(np.float64).tiny) ** 0.25
    return bool(((growth > tiny) & (growth < 1 / tiny)).all())


def _products(jacobians: Array, window: int) -> Array:
    """Products (S, S, T / window) of consecutive Jacobians (S, S, T)."""
    S, _, T = jacobians.shape
    steps = jacobians.reshape(S, S, T // window, window)
    product = steps[..., 0]
    for j in range(1, window):
        product = np.einsum("abw,bcw->acw", steps[..., j], product)
    return product


def _settled(products: Array, first: Array) -> tuple[Array, float] | None:
    """Growth (windows, k) of the frame ``first`` (k, S, 1) under products (S, S, windows), and the worst condition.

    None if the frames forget too slowly.
    """
    S, _, windows = products.shape
    length = max(4, math.isqrt(windows) // 8)
    segments = -(-windows // length)
    # the identity matrices that are appended change no frame
    padding = np.repeat(np.eye(S)[:, :, None], segments * length - windows, axis=2)
    laid = np.concatenate([products, padding], axis=2).reshape(S, S, segments, length)
    laid = np.ascontiguousarray(laid.transpose(3, 0, 1, 2))
    begin = np.repeat(first, segments, axis=2)
    growth, sizes = np.empty((2, length, len(first), segments))
    for _ in range(min(segments, _MOST_ROUNDS)):
        Q = begin
        for i in range(length):
            Q, growth[i], sizes[i] = _orthonormal(np.einsum("abm,kbm->kam", laid[i], Q))
        then = np.concatenate([first, Q[:, :, :-1]], axis=2)
        then *= np.where((then * begin).sum(axis=1) < 0, -1.0, 1.0)[:, None]
        change = abs(then - begin).max()
        begin = then
        # NaN ends the loop too: a lost direction does not come back in later rounds
        if not change > _SAME:
            by_window: Array = growth.transpose(2, 0, 1).reshape(-1, len(first))[:windows]
            return by_window, float((sizes / growth).max())
    return None


def _orthonormal(columns: Array) -> tuple[Array, Array, Array]:
    """Orthonormal columns (k, S, m) of m matrices side by side, ``|R_ii|`` (k, m), and the norms before (k, m).

    By the Gram-Schmidt process, applied twice to each column, since once leaves errors proportional to the condition.
    """
    Q = np.empty_like(columns)
    growth, sizes = np.empty((2, len(columns), columns.shape[2]))
    for j, column in enumerate(columns):
        sizes[j] = growth[j] = np.sqrt(np.einsum("sm,sm->m", column, column))
        for i in [*range(j), *range(j)]:
            column = column - np.einsum("sm,sm->m", Q[i], column) * Q[i]
        if j:
            growth[j] = np.sqrt(np.einsum("sm,sm->m", column, column))
        Q[j] = column / growth[j]
    return Q, growth, sizes
