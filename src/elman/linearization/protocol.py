r"""The protocol between a model and its analysis: the tangent dynamics of a network along trajectories.

A recurrent network :math:`s_{t+1} = F(s_t, x_t)` run on ``n`` sequences of ``T`` steps has the Jacobians
:math:`J_t = \partial s_{t+1} / \partial s_t`, whose rows are outputs. Backpropagation through time and Lyapunov
exponents rest on products of these matrices, applied from the left or the right. Any model that can apply :math:`J_t`
and its transpose can be analysed.

Axes: ``n`` sequences, ``K`` vectors carried together, ``S`` state size, ``t`` in ``0 .. T-1``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..validation.arrays import real_numbers
from ..validation.scalars import index, integer

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ElementwiseFactors:
    """Factors of Jacobians of the form ``J[t] = diag(slopes[t]) @ weight``, as the Elman cell has them.

    Attributes
    ----------
    slopes : ndarray, shape (T, n, S)
        Derivative of the nonlinearity at each step, sequence and unit.
    weight : ndarray, shape (S, S)
        The recurrent matrix ``W_hh``.
    max_slope : float
        Largest value that a slope can have, whatever the input (1 for tanh, 1/4 for the logistic sigmoid).
    """

    slopes: Array
    weight: Array
    max_slope: float


class Linearization(ABC):
    """Products with the Jacobians along ``n_sequences`` trajectories of ``n_steps`` steps.

    To implement: set the four attributes; define :meth:`_jvp`, :meth:`_vjp` and :meth:`jacobian`. Everything public is
    built from these three. ``tests/diagnostics/test_linearization.py`` shows what must hold between them.

    Attributes
    ----------
    n_steps : int
        Number of steps ``T``.
    n_sequences : int
        Number of trajectories ``n``.
    state_size : int
        Size ``S`` of the whole state that one step carries to the next.
    dtype : numpy.dtype
        float32 or float64; vectors are converted to it.
    """

    n_steps: int
    n_sequences: int
    state_size: int
    dtype: np.dtype[Any]

    @abstractmethod
    def _jvp(self, v: Array, t0: int, t1: int, norms: Array | None) -> Array:
        """Return ``J[t1-1] ... J[t0] v`` for v (n, K, S), C-contiguous, of the right dtype; v must not be changed.

        ``norms`` (t1 - t0, n, K) float64 receives the Euclidean norm after step ``t0``, ``t0 + 1``, ...
        """

    @abstractmethod
    def _vjp(self, u: Array, t0: int, t1: int, norms: Array | None) -> Array:
        """Return ``J[t0]^T ... J[t1-1]^T u`` for u (n, K, S); norms in order of application: step ``t1 - 1`` first."""

    @abstractmethod
    def jacobian(self, t: int, sequence: int = 0) -> Array:
        """One step's Jacobian.

        Parameters
        ----------
        t : int
            Step, ``0 <= t < n_steps``.
        sequence : int, default 0
            Which trajectory.

        Returns
        -------
        ndarray, shape (S, S)
            ``J[i, j] = d s[t+1][i] / d s[t][j]``.
        """

    @property
    def factors(self) -> ElementwiseFactors | None:
        """The factors of the Jacobians if these are ``diag(slopes) @ weight``, else None."""
        return None

    def jvp(self, v: ArrayLike, t0: int = 0, t1: int | None = None, *, norms: Array | None = None) -> Array:
        """Push tangent vectors forward: ``J[t1-1] ... J[t0] v``.

        Parameters
        ----------
        v : array_like, shape (S,), (n, S) or (n, K, S)
            Tangent vectors at ``s[t0]``. ``(S,)`` and ``(K, S)`` are allowed for a single sequence.
        t0, t1 : int
            Window of steps ``0 <= t0 <= t1 <= n_steps``; t1 defaults to ``n_steps``.
        norms : ndarray, shape (t1 - t0, n, K), float64, optional
            Receives the norm of each vector after each step, in the order of application.

        Returns
        -------
        ndarray
            Tangent vectors at ``s[t1]``, of the shape of ``v``.

        Raises
        ------
        ShapeError, ArgumentError, DTypeError
            For a wrong shape, a window outside the trajectory, or vectors that are masked or not real.
        """
        return self._product(self._jvp, v, t0, t1, norms)

    def vjp(self, u: ArrayLike, t0: int = 0, t1: int | None = None, *, norms: Array | None = None) -> Array:
        """Pull gradients back: ``J[t0]^T ... J[t1-1]^T u``.

        Parameters
        ----------
        u : array_like, shape (S,), (n, S) or (n, K, S)
            Gradients with respect to ``s[t1]``.
        t0, t1 : int
            Window of steps, as in :meth:`jvp`.
        norms : ndarray, shape (t1 - t0, n, K), float64, optional
            Receives the norm after each step in the order of application: entry 0 belongs to step ``t1 - 1``.

        Returns
        -------
        ndarray
            Gradients with respect to ``s[t0]``, of the shape of ``u``.

        Raises
        ------
        ShapeError, ArgumentError, DTypeError
            For a wrong shape, a window outside the trajectory, or vectors that are masked or not real.
        """
        return self._product(self._vjp, u, t0, t1, norms)

    def _product(self, apply: Any, v: ArrayLike, t0: int, t1: int | None, norms: Array | None) -> Array:
        """Check ``v``, bring it to (n, K, S), apply the product, and return the result in the shape of ``v``."""
        t0, t1 = integer(t0, "t0"), self.n_steps if t1 is None else integer(t1, "t1")
        if not 0 <= t0 <= t1 <= self.n_steps:
            raise ArgumentError(f"the window must satisfy 0 <= t0 <= t1 <= n_steps = {self.n_steps}, got ({t0}, {t1})")
        v = real_numbers(v, "vectors").astype(self.dtype, copy=False)
        n, size = self.n_sequences, self.state_size
        if v.ndim == 3 and v.shape[0] == n and v.shape[2] == size:
            full = v
        elif v.ndim == 2 and v.shape[1] == size and (n == 1 or v.shape[0] == n):
            full = v[None] if n == 1 else v[:, None]
        elif v.ndim == 1 and n == 1 and v.shape == (size,):
            full = v[None, None]
        else:
            one = "(S,), (K, S) or (1, K, S)" if n == 1 else "(n, S) or (n, K, S)"
            raise ShapeError(f"vectors must have shape {one} with n = {n}, S = {size}; got {v.shape}")
        wanted = (t1 - t0, n, full.shape[1])
        if norms is not None and (not isinstance(norms, np.ndarray) or isinstance(norms, np.ma.MaskedArray)):
            raise DTypeError(f"norms must be an array to write to, got {type(norms).__name__}")
        if norms is not None and norms.shape != wanted:
            raise ShapeError(f"norms must have shape (t1 - t0, n, K) = {wanted}, got {norms.shape}")
        if norms is not None and norms.dtype != np.float64:
            raise DTypeError(f"norms must be float64, got {norms.dtype}")
        if t0 == t1:
            # the product of no factors is the identity, and a result never shares memory with its argument
            return v.copy()
        out: Array = apply(np.ascontiguousarray(full), t0, t1, norms)
        return out.reshape(v.shape)

    def _place(self, t: int, sequence: int) -> tuple[int, int]:
        """A step and a sequence, checked.

        Raises
        ------
        DTypeError, ArgumentError
            If one is not an integer, or is out of range.
        """
        t, sequence = integer(t, "t"), integer(sequence, "sequence")
        if not (0 <= t < self.n_steps and 0 <= sequence < self.n_sequences):
            raise ArgumentError(
                f"t must be in 0 .. {self.n_steps - 1} and sequence in 0 .. {self.n_sequences - 1}, got {(t, sequence)}"
            )
        return t, sequence

    def as_linear_operator(self, t0: int = 0, t1: int | None = None, sequence: int = 0) -> LinearOperator:
        """The product ``J[t1-1] ... J[t0]`` of one sequence, for SciPy's iterative solvers; it is never formed.

        Parameters
        ----------
        t0, t1 : int
            Window of steps; t1 defaults to ``n_steps``.
        sequence : int, default 0
            Which trajectory.

        Returns
        -------
        scipy.sparse.linalg.LinearOperator, shape (S, S)

        Raises
        ------
        ArgumentError
            If there is no such sequence; a wrong window is refused only when the operator is applied.
        """
        sequence = index(sequence, "sequence", self.n_sequences)
        from scipy.sparse.linalg import LinearOperator

        def apply(product: Any) -> Any:
            def on(v: Array) -> Array:
                v = np.asarray(v)
                block = np.zeros((self.n_sequences, 1 if v.ndim == 1 else v.shape[1], self.state_size), self.dtype)
                block[sequence] = v.reshape(self.state_size, -1).T
                out: Array = product(block, t0, t1)[sequence].T
                return out.reshape(v.shape)

            return on

        forward, backward = apply(self.jvp), apply(self.vjp)
        return LinearOperator(
            (self.state_size, self.state_size),
            matvec=forward,
            rmatvec=backward,
            matmat=forward,
            rmatmat=backward,
            dtype=self.dtype,
        )
