"""Newton's method with a line search for the zeros of ``F(s) - s``, many starts at once."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...linearization import Array

_DAMPING = 0.01  # of |g|^2: of 1 to 1e-4, tried on saddles of random networks, this found as many in the fewest steps
_DECREASE = 1e-4  # share of the decrease predicted by the slope that a step must reach (Armijo 1966)
_HALVINGS = 40  # 2**-40 of a step changes no more than the last digits
_FLAT = 1e-8  # slope of q relative to |g| |J - I| below which it is only rounding
_LONGEST = 10.0  # longest step relative to the state's norm: beyond it, the linear map is too far from the real one


class Map(Protocol):
    """A map of states (n, S), with its Jacobians (n, S, S)."""

    def __call__(self, states: Array) -> Array:
        """The next states."""
        ...

    def jacobians(self, states: Array) -> Array:
        """Derivatives, rows are outputs."""
        ...


def local_minima(system: Map, starts: Array, tol: float, max_iterations: int) -> tuple[Array, Array]:
    """Descend from each start to a zero, or a local minimum, of ``q(s) = |F(s) - s|^2 / 2``.

    Parameters
    ----------
    system : Map
        ``F`` and its Jacobians.
    starts : ndarray, shape (n, S)
    tol : float
        A state is at rest once ``|F(s) - s| <= tol max(1, |s|)``.
    max_iterations : int
        Largest number of steps.

    Returns
    -------
    states : ndarray, shape (n, S)
        Where each start ended: at rest, at a minimum of q, or where the steps ran out.
    speed : ndarray, shape (n,)
        ``|F(s) - s|`` there.
    """
    s = starts.copy()
    g = system(s) - s
    speed = np.linalg.norm(g, axis=1)
    active = np.arange(len(s))
    for _ in range(max_iterations):
        active = active[speed[active] > tol * np.maximum(1.0, np.linalg.norm(s[active], axis=1))]
        if not len(active):
            break
        A = system.jacobians(s[active]) - np.eye(s.shape[1])
        slope = np.einsum("nij,ni->nj", A, g[active])
        sizes = np.linalg.norm(slope, axis=1)
        descending = sizes > _FLAT * speed[active] * np.linalg.norm(A, axis=(1, 2))
        active, A, slope = active[descending], A[descending], slope[descending]
        if not len(active):
            break
        step = _damped_step(A, g[active])
        reach = _LONGEST * np.maximum(1.0, np.linalg.norm(s[active], axis=1)) / np.linalg.norm(step, axis=1)
        step *= np.minimum(1.0, reach)[:, None]
        active = active[_line_search(system, s, g, speed, active, step, (slope * step).sum(axis=1))]
    return s, speed


def _damped_step(A: Array, g: Array) -> Array:
    """Minimiser (n, S) of ``|A p + g|^2 + damping |p|^2``."""
    normal = A.transpose(0, 2, 1) @ A
    # damping below the rounding of these sums would leave a singular matrix singular
    floor = A.shape[1] * np.finfo(np.float64).eps * np.trace(normal, axis1=1, axis2=2)
    damping = _DAMPING * (g * g).sum(axis=1) + floor
    normal += damping[:, None, None] * np.eye(A.shape[1])
    return -np.linalg.solve(normal, np.einsum("nij,ni->nj", A, g)[..., None])[..., 0]


def _line_search(system: Map, s: Array, g: Array, speed: Array, active: Array, step: Array, slope: Array) -> Array:
    """Halve each step until q falls enough, and take it: s, g and speed are updated. Return which (m,) could move."""
    moved = np.zeros(len(active), dtype=bool)
    length = 1.0
    for _ in range(_HALVINGS):
        left = np.flatnonzero(~moved)
        if not len(left):
            break
        index = active[left]
        trial = s[index] + length * step[left]
        residual = system(trial) - trial
        new = np.linalg.norm(residual, axis=1)
        good = new**2 / 2 <= speed[index] ** 2 / 2 + _DECREASE * length * slope[left]
        taken = index[good]
        s[taken], g[taken], speed[taken] = trial[good], residual[good], new[good]
        moved[left[good]] = True
        length /= 2
    return moved
