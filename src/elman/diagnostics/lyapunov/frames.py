"""An orthonormal frame pushed along a trajectory, from which Lyapunov exponents and covariant vectors are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import ArgumentError, NonFiniteError
from ...linearization import Array, Linearization
from ...norms import safe_norm

# Windows are planned for this share of the strain allowed, which leaves room for more strain than in the last one.
_CAUTION = 0.8


class Frame(NamedTuple):
    """A frame after one window of steps.

    Attributes
    ----------
    t0, t1 : int
        The window: ``J[t1-1] ... J[t0]`` times the frame before, without its lost columns, is ``Q R``.
    Q : ndarray, shape (S, k')
        Orthonormal columns.
    R : ndarray, shape (k', k')
        Upper triangular; the moduli of the diagonal are the growth of each direction.
    alive : ndarray of int, shape (k',)
        Which columns of the start frame these are.
    condition : float
        Largest ratio of a column's norm to its part outside the span of those before it, which multiplies the rounding
        of the growth.
    """

    t0: int
    t1: int
    Q: Array
    R: Array
    alive: Array
    condition: float


def pushed_frames(
    lin: Linearization, start: Array, sequence: int, edges: Sequence[int], longest: int | None
) -> Iterator[Frame]:
    """Push a frame through all steps, made orthonormal again after windows as long as its condition allows.

    Between two decompositions, the columns turn towards the fastest direction, and the longer the window, the less
    accurate is their growth. The gap measured in one window sets the length of the next; a window that strained the
    frame beyond ``eps**(-1/2)`` of the dtype (so that growth keeps at least half of its digits), or left the range of
    numbers whose squares are safe, is repeated in shorter ones, of at least one step.

    Parameters
    ----------
    lin : Linearization
        ``T`` steps.
    start : ndarray, shape (S, k)
        Linearly independent columns.
    sequence : int
        Which trajectory.
    edges : sequence of int, ascending, the last one T
        Steps that no window crosses.
    longest : int or None
        Largest number of steps in a window, if there is a limit.

    Yields
    ------
    Frame
        Until the end, or until every direction is lost: a direction is lost once its part outside the span of those
        before it is no larger than the rounding of its column, ``S eps`` times its norm.

    Raises
    ------
    ArgumentError
        If the columns of ``start`` are linearly dependent.
    NonFiniteError
        If one step turns a unit vector into one that is not finite.
    """
    info = np.finfo(lin.dtype)
    # float32 vectors carry float32 rounding, whatever the type that QR works in
    rounding, strain_of_condition = lin.state_size * float(info.eps), -np.log(float(info.eps)) / 2
    strain_of_size = -np.log(float(info.tiny)) / 4
    Q, R = np.linalg.qr(start)
    if (abs(np.diag(R)) <= lin.state_size * np.finfo(np.float64).eps * np.linalg.norm(start, axis=0)).any():
        raise ArgumentError("frame must have linearly independent columns")
    alive = np.arange(start.shape[1])
    t, window, limit = 0, 1, longest or lin.n_steps
    while t < lin.n_steps and len(alive):
        stop = min(t + window, next(edge for edge in edges if edge > t))
        pushed = _push(lin, Q, sequence, t, stop)
        if not np.isfinite(pushed).all():
            _require_single(stop - t, t, sequence)
            window = max(1, (stop - t) // 2)
            continue
        q, R = np.linalg.qr(pushed)
        growth, sizes = abs(np.diag(R)), safe_norm(R.T)
        with np.errstate(divide="ignore", invalid="ignore"):
            # a column of zeros is lost, and strains the frame like any lost column
            ratios = np.where(sizes > 0, sizes / growth, np.inf)
            strain = max(np.log(ratios.max()) / strain_of_condition, abs(np.log(growth)).max() / strain_of_size, 1e-9)
        if strain > 1 and stop - t > 1:
            window = max(1, min(int(_CAUTION * (stop - t) / strain), (stop - t) // 2))
            continue
        # A lost column lies in the span of those before it. Whatever QR put in its place does not stem from the
        # trajectory, and would take growth away from the columns after it, so the frame continues without it.
        kept = growth > rounding * sizes
        alive, Q, R = alive[kept], q[:, kept], R[np.ix_(kept, kept)]
        yield Frame(t, stop, Q, R, alive, float(ratios[kept].max(initial=1.0)))
        window = max(1, min(int(_CAUTION * (stop - t) / strain), 2 * max(window, stop - t), limit))
        t = stop


def _push(lin: Linearization, Q: Array, sequence: int, t0: int, t1: int) -> Array:
    """Push columns (S, k) of one trajectory through a window, in float64; the other trajectories carry zeros."""
    vectors = np.zeros((lin.n_sequences, Q.shape[1], lin.state_size), lin.dtype)
    vectors[sequence] = Q.T
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out: Array = lin.jvp(vectors, t0, t1)[sequence].T.astype(np.float64, copy=False)
    return out


def _require_single(steps: int, t: int, sequence: int) -> None:
    """Raise if a single step gave vectors that are not finite; several steps may leave the range, and are split."""
    if steps == 1:
        raise NonFiniteError(
            f"the Jacobian of step {t} turns a unit vector into one that is not finite; check the trajectory it was "
            "taken along",
            what="tangent",
            step=t,
            sample=sequence,
        )
