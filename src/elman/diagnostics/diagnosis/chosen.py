"""Some of the trajectories of a linearization, as another linearization."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...linearization import Array, ElementwiseFactors, JacobianStack, Linearization


class Chosen(Linearization):
    """Some of the trajectories of a linearization.

    Products run over all trajectories, with zero vectors for the others, as the protocol has no other way; of a
    :class:`~elman.linearization.JacobianStack`, only the chosen ones are used.

    Parameters
    ----------
    lin : Linearization
    which : ndarray of int
        Indices of trajectories, each once.
    """

    def __init__(self, lin: Linearization, which: Array) -> None:
        stacked = isinstance(lin, JacobianStack)
        self._lin = JacobianStack(lin.jacobians[:, which]) if isinstance(lin, JacobianStack) else lin
        self._at = np.arange(len(which)) if stacked else which
        self.n_steps, self.n_sequences, self.state_size = lin.n_steps, len(which), lin.state_size
        self.dtype = np.dtype(lin.dtype)

    def _apply(self, product: Any, v: Array, t0: int, t1: int, norms: Array | None) -> Array:
        every = np.zeros((self._lin.n_sequences, *v.shape[1:]), self.dtype)
        every[self._at] = v
        noted = None if norms is None else np.empty((t1 - t0, *every.shape[:2]))
        out: Array = product(every, t0, t1, norms=noted)[self._at]
        if norms is not None and noted is not None:
            norms[...] = noted[:, self._at]
        return out

    def _jvp(self, v: Array, t0: int, t1: int, norms: Array | None) -> Array:
        return self._apply(self._lin.jvp, v, t0, t1, norms)

    def _vjp(self, u: Array, t0: int, t1: int, norms: Array | None) -> Array:
        return self._apply(self._lin.vjp, u, t0, t1, norms)

    def jacobian(self, t: int, sequence: int = 0) -> Array:
        """One step's Jacobian (S, S); see :meth:`elman.Linearization.jacobian`."""
        return self._lin.jacobian(t, int(self._at[sequence]))

    @property
    def factors(self) -> ElementwiseFactors | None:
        """Those of the chosen trajectories."""
        whole = self._lin.factors
        return None if whole is None else replace(whole, slopes=whole.slopes[:, self._at])
