"""Growth of vectors along trajectories: the measurement under every rate that elman reports.

A product of many Jacobians over- or underflows; the logarithm of its effect on a norm does not. Vectors are pushed
through a :class:`~elman.linearization.Linearization` in short windows and brought back to unit length in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ...errors import ArgumentError, NonFiniteError, ShapeError
from ...linearization import Array, Linearization
from ...norms import safe_norm, smallest_exact
from ...validation.arrays import real_numbers

# Squares of norms fit into float64 for factors of 0.007 to 250 per step over 64 steps, into float32 for 0.2 to 6 over
# 24. A window that leaves this range is detected and repeated in shorter ones, so these numbers affect only the speed.
_WINDOW = {np.dtype(np.float32): 24, np.dtype(np.float64): 64}

_SETTLED = 10  # a random start needs about this many steps to turn into the directions that gradients take

Product = Callable[[Array, int, int, Array], Array]


def first_fitted_lag(n_steps: int) -> int:
    """Lag from which a rate is fitted: 10, once the start is forgotten; 1 below 20 steps, 0 for a single step."""
    return _SETTLED if n_steps >= 2 * _SETTLED else min(1, max(n_steps - 1, 0))


def mean_over_living(growth: Array) -> Array:
    """Mean over the last axis of the log norms of living gradients; -inf where none lives."""
    living = np.isfinite(growth)
    count = living.sum(axis=-1)
    total = np.where(living, growth, 0.0).sum(axis=-1)
    mean: Array = np.where(count > 0, total / np.maximum(count, 1), -np.inf)
    return mean


def unit_vectors(rng: np.random.Generator, n: int, K: int, S: int, dtype: DTypeLike = np.float64) -> Array:
    """Random directions, uniform on the sphere.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    n, K, S : int
        Sequences, vectors for each of them, state size (at least 1).
    dtype : dtype, default float64
        Of the result; the draw itself is in float64, so that both types get the same directions.

    Returns
    -------
    ndarray, shape (n, K, S)
        Vectors of Euclidean norm 1.
    """
    v = rng.standard_normal((n, K, S))
    v /= np.linalg.norm(v, axis=-1, keepdims=True)
    return v.astype(dtype, copy=False)


def backward_growth(lin: Linearization, start: ArrayLike) -> Array:
    """Log norm of gradients pulled back from the end of the trajectories, by lag.

    Parameters
    ----------
    lin : Linearization
        ``n`` trajectories of ``T`` steps.
    start : array_like, shape (n, K, S)
        Gradients with respect to the last state; only their directions count.

    Returns
    -------
    ndarray, shape (T + 1, n, K), float64
        Entry ``k`` is ``log |J[T-k]^T ... J[T-1]^T u|`` in nats for the unit vector ``u`` along ``start``: lag ``k`` of
        backpropagation through time, the window ``[T - k, T]``. Entry 0 is 0. Entries are -inf from the lag at which a
        gradient is exactly zero (a dead unit, a lost direction, a zero start).

    Raises
    ------
    ShapeError, ArgumentError
        If ``start`` has another shape or is not finite.
    NonFiniteError
        If a single step turns a unit vector into something that is not finite.
    """
    T = lin.n_steps
    return _growth(lambda v, a, b, norms: lin.vjp(v, T - b, T - a, norms=norms), lin, start)


def forward_growth(lin: Linearization, start: ArrayLike) -> Array:
    """Log norm of tangent vectors pushed forward from the beginning of the trajectories.

    Parameters
    ----------
    lin : Linearization
        ``n`` trajectories of ``T`` steps.
    start : array_like, shape (n, K, S)
        Tangent vectors at the initial state; only their directions count.

    Returns
    -------
    ndarray, shape (T + 1, n, K), float64
        Entry ``k`` is ``log |J[k-1] ... J[0] v|`` in nats for the unit vector ``v`` along ``start``: the window
        ``[0, k]``, not that of lag ``k`` of a gradient. Entry 0 is 0; entries are -inf once a vector is exactly zero.

    Raises
    ------
    ShapeError, ArgumentError, NonFiniteError
        As for :func:`backward_growth`.
    """
    return _growth(lambda v, a, b, norms: lin.jvp(v, a, b, norms=norms), lin, start)


def _growth(product: Product, lin: Linearization, start: ArrayLike) -> Array:
    """Cumulative log norms (T+1, n, K); ``product(v, a, b, norms)`` applies steps a .. b-1 in order of application."""
    v = real_numbers(start, "start").astype(np.float64, copy=False)
    if v.ndim != 3 or v.shape[0] != lin.n_sequences or v.shape[2] != lin.state_size:
        raise ShapeError(
            f"start must have shape (n, K, S) with n = {lin.n_sequences} sequences, S = {lin.state_size}; got {v.shape}"
        )
    if not np.isfinite(v).all():
        raise ArgumentError("start must be finite; it has NaN or infinite entries")
    longest = _WINDOW[np.dtype(lin.dtype)]
    growth = np.empty((lin.n_steps + 1, *v.shape[:2]))
    norm = safe_norm(v)
    growth[0] = np.where(norm > 0, 0.0, -np.inf)
    v = _unit(v, norm, lin.dtype)
    done, window = 0, longest
    while done < lin.n_steps:
        stop = min(done + window, lin.n_steps)
        norms = np.empty((stop - done, *v.shape[:2]))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            pushed = product(v, done, stop, norms)
        if stop - done == 1:
            norms[0] = safe_norm(pushed)
            _require_finite(norms[0], done)
        elif not _squares_fit(norms[:, growth[done] > -np.inf], lin.dtype):
            window = (stop - done) // 2
            continue
        with np.errstate(divide="ignore"):
            growth[done + 1 : stop + 1] = growth[done] + np.log(norms)
        v = _unit(pushed, norms[-1], lin.dtype)
        done, window = stop, min(2 * window, longest)
    return growth


def _unit(v: Array, norm: Array, dtype: np.dtype[Any]) -> Array:
    """Divide vectors (n, K, S) by their norms (n, K); zero vectors stay as they are."""
    return (v / np.where(norm > 0, norm, 1.0)[..., None]).astype(dtype, copy=False)


def _squares_fit(norms: Array, dtype: np.dtype[Any]) -> bool:
    """Whether norms computed as roots of sums of squares in this dtype are finite and not degraded by underflow."""
    return bool(((norms > smallest_exact(dtype)) & np.isfinite(norms)).all())


def _require_finite(norms: Array, step: int) -> None:
    """Refuse a step that leaves the range of the dtype; norms (n, K), step in order of application."""
    if not np.isfinite(norms).all():
        sample = int(np.argwhere(~np.isfinite(norms))[0, 0])
        raise NonFiniteError(
            f"a unit vector pushed through one Jacobian is not finite (sequence {sample}, application {step}): the "
            "Jacobian has NaN, infinite or extremely large entries; check the trajectory it was taken along",
            what="gradient",
            step=step,
            sample=sample,
        )
