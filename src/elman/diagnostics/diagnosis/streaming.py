r"""Growth by lag from tangent vectors that are pushed forward, without a stored trajectory.

Lag ``k`` of backpropagation through time is the window ``[T - k, T]``, and a random direction grows as much under
:math:`M v` as under :math:`M^T v`: both have the singular values of ``M``. So fresh vectors that start at ``T - k``,
for a few lags ``k``, give the gradient's curve at these lags while the model runs forward and discards its states.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ...linearization import Array, ElementwiseFactors, Linearization
from ..gradient.growth import _growth, unit_vectors
from .sequences import ModelSequences, recurrent_part

PIECE = 64
"""Number of steps whose trajectory is in memory at a time."""


def grid_lags(n_steps: int) -> Array:
    """Lags 0, 1, 2, 5, 10, 20, 35, 50, 75, 100, 150, ..., ``n_steps``, which sum to 2 to 3.7 times ``n_steps``.

    Returns
    -------
    ndarray of int, ascending, at least (0, ``n_steps``)
    """
    early, late = [0, 1, 2, 5], [10, 20, 35, 50, 75]
    scale = 1
    lags = early + late
    while lags[-1] < n_steps:
        scale *= 10
        lags += [10 * scale, 15 * scale, *(lag * scale for lag in late[1:])]
    return np.array([lag for lag in lags if lag < n_steps] + [n_steps])


class Streamed(Linearization):
    """Jacobians along a model's trajectories, recomputed piece by piece: memory for :data:`PIECE` steps.

    Parameters
    ----------
    sequences : ModelSequences
        Of at least one step, with an :class:`~elman.diagnostics.Adjustable` model.
    """

    def __init__(self, sequences: ModelSequences) -> None:
        part = recurrent_part(sequences.model)
        assert part is not None
        self._sequences, self._part = sequences, part
        self._states: list[Any] = [sequences.h0]
        self._held: tuple[int, Linearization] | None = None
        self.n_steps, self.n_sequences = sequences.n_steps, sequences.n
        first = self._piece(0)
        self.state_size, self.dtype = first.state_size, np.dtype(first.dtype)

    def _piece(self, i: int) -> Linearization:
        """Jacobians of the piece that begins at step ``i * PIECE``, from the state after the earlier pieces."""
        while len(self._states) <= i:
            at = (len(self._states) - 1) * PIECE
            self._states.append(self._part.final_state(self._sequences.window(at, at + PIECE), self._states[-1]))
        if self._held is None or self._held[0] != i:
            self._held = None  # two pieces are never in memory at once
            window = self._sequences.window(i * PIECE, (i + 1) * PIECE)
            self._held = i, self._sequences.model.linearize(window, self._states[i])
        return self._held[1]

    def _windows(self, t0: int, t1: int) -> list[tuple[int, int, int]]:
        """The pieces that steps t0 .. t1 - 1 lie in, with the steps of each."""
        pieces = range(t0 // PIECE, (t1 - 1) // PIECE + 1)
        return [(i, max(t0, i * PIECE), min(t1, (i + 1) * PIECE)) for i in pieces]

    def _jvp(self, v: Array, t0: int, t1: int, norms: Array | None) -> Array:
        for i, a, b in self._windows(t0, t1):
            part = None if norms is None else norms[a - t0 : b - t0]
            v = self._piece(i).jvp(v, a - i * PIECE, b - i * PIECE, norms=part)
        return v

    def _vjp(self, u: Array, t0: int, t1: int, norms: Array | None) -> Array:
        for i, a, b in reversed(self._windows(t0, t1)):
            part = None if norms is None else norms[t1 - b : t1 - a]
            u = self._piece(i).vjp(u, a - i * PIECE, b - i * PIECE, norms=part)
        return u

    @property
    def form(self) -> ElementwiseFactors | None:
        """Factors along the first piece, for their weight and largest slope; None for cells that have none."""
        return self._piece(0).factors

    def jacobian(self, t: int, sequence: int = 0) -> Array:
        """One step's Jacobian (S, S); see :meth:`elman.Linearization.jacobian`."""
        return self._piece(t // PIECE).jacobian(t % PIECE, sequence)


def staggered_growth(lin: Linearization, lags: Array, vectors: int, rng: np.random.Generator) -> Array:
    """Log norm of fresh tangent vectors pushed from ``T - k`` to the end, for each of some lags ``k``.

    Parameters
    ----------
    lin : Linearization
        ``n`` trajectories of ``T`` steps; each Jacobian is used once, in order.
    lags : ndarray of int, ascending, from 0 to ``T``
    vectors : int
        Random unit vectors K for each sequence and lag.
    rng : numpy.random.Generator
        Their source.

    Returns
    -------
    ndarray, shape (len(lags), n, K), float64
        Nats; -inf where a vector ends as exactly zero.

    Raises
    ------
    NonFiniteError
        As for :func:`elman.diagnostics.gradient.growth.forward_growth`.
    """
    n, K, T = lin.n_sequences, vectors, lin.n_steps
    starts = T - lags[::-1]  # in the order in which the vectors start
    waiting = unit_vectors(rng, n, K * len(starts), lin.state_size)

    def push(v: Array, a: int, b: int, norms: Array) -> Array:
        """Apply steps a .. b - 1 to the vectors that have started; the others stay as they are, at norm 1."""
        out = v.copy()
        norms[...] = 1
        for lo, hi in pairwise([a, *(s for s in starts if a < s < b), b]):
            active = K * int(np.searchsorted(starts, lo, side="right"))
            if active:
                part = np.empty((hi - lo, n, active))
                out[:, :active] = lin.jvp(np.ascontiguousarray(out[:, :active]), lo, hi, norms=part)
                norms[lo - a : hi - a, :, :active] = part
        return out

    total = _growth(push, lin, waiting)[-1]
    by_lag: Array = total.reshape(n, len(starts), K).transpose(1, 0, 2)[::-1]
    return by_lag
