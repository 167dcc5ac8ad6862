"""Jacobians as plain arrays, from a network in any framework."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError, ShapeError
from ..norms import row_norms
from ..validation.arrays import real_numbers
from ..validation.sequences import holds
from .protocol import Array, Linearization


class JacobianStack(Linearization):
    """A linearization given by plain arrays, for a network in any framework.

    Parameters
    ----------
    jacobians : array_like, shape (T, S, S) or (T, n, S, S)
        ``J[t, i, j] = d s[t+1][i] / d s[t][j]``: rows are outputs. Not copied if C-contiguous and float32 or float64;
        otherwise converted to such a copy, so that results do not depend on the layout.

    Raises
    ------
    ShapeError
        If the last two axes are not square or there are not three or four axes.
    DTypeError
        If the numbers are masked or not real.
    ArgumentError
        If an entry is not finite.
    """

    def __init__(self, jacobians: ArrayLike) -> None:
        if holds(jacobians, 3):
            raise ShapeError(
                "jacobians must be one array (T, n, S, S), got a list of arrays: np.stack(jacobians, axis=1) if each "
                "is a sequence, axis=0 if each is a step"
            )
        stack = real_numbers(jacobians, "jacobians")
        if stack.dtype not in (np.float32, np.float64):
            stack = stack.astype(np.float64)
        if stack.ndim == 3:
            stack = stack[:, None]
        if stack.ndim != 4 or stack.shape[2] != stack.shape[3]:
            raise ShapeError(f"jacobians must have shape (T, S, S) or (T, n, S, S), got {np.shape(jacobians)}")
        if not np.isfinite(stack).all():
            t = int(np.argwhere(~np.isfinite(stack))[0, 0])
            raise ArgumentError(f"jacobians must be finite; the first entry that is not belongs to step {t}")
        # the order of summation in a product depends on the layout
        self.jacobians = np.ascontiguousarray(stack)
        self.n_steps, self.n_sequences, self.state_size = stack.shape[0], stack.shape[1], stack.shape[2]
        self.dtype = stack.dtype

    def _steps(self, v: Array, order: range, transpose: bool, norms: Array | None) -> Array:
        """Apply one Jacobian after another to rows: ``v @ J`` is ``J^T`` applied to each row, ``v @ J^T`` is ``J``."""
        for i, t in enumerate(order):
            v = v @ (self.jacobians[t] if transpose else self.jacobians[t].transpose(0, 2, 1))
            if norms is not None:
                norms[i] = row_norms(v)
        return v

    def _jvp(self, v: Array, t0: int, t1: int, norms: Array | None) -> Array:
        return self._steps(v, range(t0, t1), False, norms)

    def _vjp(self, u: Array, t0: int, t1: int, norms: Array | None) -> Array:
        return self._steps(u, range(t1 - 1, t0 - 1, -1), True, norms)

    def jacobian(self, t: int, sequence: int = 0) -> Array:
        """One step's Jacobian, a view (S, S); ArgumentError if out of range; see :meth:`Linearization.jacobian`."""
        t, sequence = self._place(t, sequence)
        view: Array = self.jacobians[t, sequence]
        return view
