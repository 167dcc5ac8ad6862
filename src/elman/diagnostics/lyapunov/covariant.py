"""Covariant Lyapunov vectors: the directions that grow at the rate of each exponent, forward and backward in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from ...errors import ArgumentError
from ...linearization import Array, Linearization
from ...results import Result
from ...validation.rng import generator
from ...validation.scalars import size
from ..trajectories import trajectories
from .exponents import frame_arguments
from .frames import Frame, pushed_frames


@dataclass(frozen=True, eq=False)
class CovariantVectors(Result):
    """Covariant Lyapunov vectors; made by :func:`covariant_vectors`.

    Attributes
    ----------
    steps : ndarray of int, shape (m,)
        Times t of the states s[t] that the vectors belong to, ascending.
    vectors : ndarray, shape (m, S, k)
        Unit columns; the Jacobians between two times map each to a multiple of its successor. Signs are arbitrary.
    exponents : ndarray, shape (k,)
        Growth of each vector from the first to the last of these times, in nats per step.
    """

    steps: Array
    vectors: Array
    exponents: Array

    def angles(self, split: int) -> Array:
        """Smallest angle (m,), in radians, between the first ``split`` vectors and the others.

        An angle that comes near 0 is a tangency: with the unstable directions in front, the motion is not hyperbolic
        there. ArgumentError unless ``1 <= split < k``.
        """
        split = size(split, "split", 1, self.vectors.shape[2] - 1)
        left, right = np.linalg.qr(self.vectors[:, :, :split])[0], np.linalg.qr(self.vectors[:, :, split:])[0]
        cosines = np.linalg.svd(left.transpose(0, 2, 1) @ right, compute_uv=False)[:, 0]
        # where the cosine is 1 up to rounding, its angle is known only to 1e-8
        angles: Array = np.arccos(np.minimum(cosines, 1.0))
        return angles

    def participation(self) -> Array:
        """Mean over time (k,) of ``1 / sum v_i^4``: over how many of the S units each direction is spread."""
        counts: Array = (1 / (self.vectors**4).sum(axis=1)).mean(axis=0)
        return counts

    def __repr__(self) -> str:
        return f"CovariantVectors(k={len(self.exponents)}, times={len(self.steps)})"

    def __str__(self) -> str:
        S, k = self.vectors.shape[1:]
        lines = [
            f"{k} covariant Lyapunov vectors at {len(self.steps)} times, steps {self.steps[0]} to {self.steps[-1]}",
            f"      nats/step   units taking part, of {S}",
        ]
        shown = 8
        for i, (rate, units) in enumerate(zip(self.exponents[:shown], self.participation()[:shown], strict=True)):
            lines.append(f"  {i + 1:<3} {rate:<+11.5g} {units:.4g}")
        if k > shown:
            lines.append(f"  ... and {k - shown} more")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All numbers except the vectors, as plain Python."""
        return {
            "steps": self.steps.tolist(),
            "exponents": self.exponents.tolist(),
            "participation": self.participation().tolist(),
        }


def covariant_vectors(
    lin: Linearization,
    k: int | None = None,
    *,
    warmup: int | None = None,
    settle: int | None = None,
    sequence: int = 0,
    interval: int | None = None,
    rng: int | np.random.Generator | None = None,
) -> CovariantVectors:
    """Covariant Lyapunov vectors along one trajectory, by a frame pushed forward and a backward pass over its factors.

    Parameters
    ----------
    lin : Linearization
        ``T >= 1`` steps.
    k : int, optional
        How many, ``1 <= k <= S``; all by default. Memory is of order ``T S k``.
    warmup : int, optional
        First steps, in which the frame settles; a fifth of the trajectory by default.
    settle : int, optional
        Last steps, in which the coefficients settle in the backward pass; a fifth of the trajectory by default.
    sequence : int, default 0
        Which trajectory.
    interval : int, optional
        Largest number of steps from one time to the next; as for :func:`elman.lyapunov_spectrum`.
    rng : None, int or numpy.random.Generator
        For the random frame and coefficients.

    Returns
    -------
    CovariantVectors

    Raises
    ------
    DTypeError, ShapeError, NonFiniteError
        As for :func:`elman.lyapunov_spectrum`.
    ArgumentError
        Likewise; also if the trajectory loses a direction, which then has no covariant vector.

    References
    ----------
    Ginelli, Poggi, Turchi, Chate, Livi and Politi, Phys. Rev. Lett. 99 (2007) 130601.
    """
    lin = trajectories(lin, "covariant_vectors")
    T = lin.n_steps
    rng = generator(rng)
    warmup = T // 5 if warmup is None else warmup
    k, warmup, start = frame_arguments(lin, k, warmup, None, rng, "covariant_vectors")
    settle = size(T // 5 if settle is None else settle, "settle", 0, T - warmup - 1)
    sequence = size(sequence, "sequence", 0, lin.n_sequences - 1)
    interval = None if interval is None else size(interval, "interval")
    edges = [edge for edge in sorted({warmup, T - settle, T}) if edge > 0]
    frames = []
    for frame in pushed_frames(lin, start, sequence, edges, interval):
        if len(frame.alive) < k:
            raise ArgumentError(
                f"a direction is lost by step {frame.t1}, so that there are not k = {k} covariant vectors: ask for at "
                f"most {len(frame.alive)}"
            )
        if frame.t1 >= warmup:
            frames.append(frame)
    return _taken_back(frames, T - settle, rng)


def _taken_back(frames: list[Frame], last: int, rng: np.random.Generator) -> CovariantVectors:
    """Solve ``R C = C' diag(growth)`` from the last frame to the first, and keep the vectors ``Q C`` up to ``last``."""
    k = frames[-1].R.shape[1]
    C = np.triu(rng.standard_normal((k, k)))
    C /= np.linalg.norm(C, axis=0)
    steps, vectors, growth = [], [], np.zeros(k)
    for frame in reversed(frames):
        if frame.t1 <= last:
            steps.append(frame.t1)
            vectors.append(frame.Q @ C)
        before = scipy.linalg.solve_triangular(frame.R, C, check_finite=False)
        sizes = np.linalg.norm(before, axis=0)
        if frame.t1 <= last and frame is not frames[0]:
            growth -= np.log(sizes)
        C = before / sizes
    return CovariantVectors(
        steps=np.array(steps[::-1]),
        vectors=np.array(vectors[::-1]),
        exponents=growth / max(1, steps[0] - steps[-1]),
    )
