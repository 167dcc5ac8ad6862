"""The tangent dynamics of any step function that comes with its derivative: maps, flows, large sparse networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from ..norms import row_norms
from ..validation.arrays import plain, real_numbers
from ..validation.scalars import size
from .protocol import Array, Linearization


class StepLinearization(Linearization):
    r"""A linearization given by functions: ``s[t+1] = step(s[t])`` and products with its derivative.

    The trajectories are run once, on construction. Nothing of size S x S is formed, so that the cost of a sparse
    network is that of its non-zeros; only the ``(T + 1) n S`` numbers of the states are stored.

    Parameters
    ----------
    step : callable, ``step(s) -> (S,)``, or ``step(s, x_t)`` with ``inputs``
        The next state from the state (S,). For an ordinary differential equation, one step of the integrator.
    jvp : callable, ``jvp(s, V) -> (S, K)``, or ``jvp(s, V, x_t)``
        ``J(s) @ V`` for columns V (S, K), where ``J[i, j] = d step(s)[i] / d s[j]``.
    s0 : array_like, shape (S,) or (n, S)
        State to start from, for one trajectory or n of them. Everything is computed in float64.
    n_steps : int
        Steps T.
    vjp : callable, ``vjp(s, U) -> (S, K)``, or ``vjp(s, U, x_t)``, optional
        ``J(s).T @ U`` for columns U (S, K). Without it, exponents can be computed, but gradients cannot be pulled
        backward.
    inputs : array_like, shape (T, ...) or (T, n, ...) for several trajectories, optional
        Inputs that drive the system: ``x_t`` is ``inputs[t]``, or ``inputs[t, i]`` for trajectory i.

    Attributes
    ----------
    states : ndarray, shape (T + 1, n, S)
        The trajectories.

    Raises
    ------
    DTypeError, ShapeError, ArgumentError
        If an argument does not fit, or a function returns a wrong shape.
    NonFiniteError
        If a state is not finite; the error has its step and trajectory.

    Examples
    --------
    The Henon map, whose exponents are 0.419 and -1.623:

    >>> import numpy as np, elman
    >>> from elman.linearization import StepLinearization
    >>> henon = lambda s: np.array([1 - 1.4 * s[0] ** 2 + s[1], 0.3 * s[0]])
    >>> push = lambda s, V: np.array([-2.8 * s[0] * V[0] + V[1], 0.3 * V[0]])
    >>> lin = StepLinearization(henon, push, [0.1, 0.1], 5000)
    >>> f"{elman.lyapunov_spectrum(lin, rng=0).sum:.6f} {np.log(0.3):.6f}"
    '-1.203973 -1.203973'
    """

    def __init__(
        self,
        step: Callable[..., ArrayLike],
        jvp: Callable[..., ArrayLike],
        s0: ArrayLike,
        n_steps: int,
        vjp: Callable[..., ArrayLike] | None = None,
        inputs: ArrayLike | None = None,
    ) -> None:
        for name, function in (("step", step), ("jvp", jvp)):
            if not callable(function):
                raise DTypeError(f"{name} must be a function, got {type(function).__name__}")
        if vjp is not None and not callable(vjp):
            raise DTypeError(f"vjp must be a function or None, got {type(vjp).__name__}")
        start = _start(s0)
        self._push, self._pull = jvp, vjp
        self.n_steps, self.state_size = size(n_steps, "n_steps", least=0), start.shape[-1]
        self.n_sequences = 1 if start.ndim == 1 else len(start)
        self.dtype = np.dtype(np.float64)
        self._inputs = self._driven(inputs, start.ndim == 1)
        self.states = np.empty((self.n_steps + 1, self.n_sequences, self.state_size))
        self.states[0] = start
        for t in range(self.n_steps):
            for i in range(self.n_sequences):
                with np.errstate(over="ignore", invalid="ignore"):
                    # the function may store or change its argument
                    after = step(self.states[t, i].copy(), *self._input(t, i))
                self.states[t + 1, i] = self._checked(after, "step", ())
                if not np.isfinite(self.states[t + 1, i]).all():
                    raise NonFiniteError(
                        f"the state after step {t} of trajectory {i} is not finite: start elsewhere, or use a "
                        "smaller integration step",
                        step=t,
                        sample=i,
                    )

    def _driven(self, inputs: ArrayLike | None, single: bool) -> Array | None:
        """Inputs as (T, n, ...)."""
        if inputs is None:
            return None
        given = plain(inputs, "inputs")
        full = given[:, None] if single and given.ndim else given
        if full.ndim < 2 or full.shape[:2] != (self.n_steps, self.n_sequences):
            wanted = f"({self.n_steps}, ...)" if single else f"({self.n_steps}, {self.n_sequences}, ...)"
            raise ShapeError(f"inputs must have shape {wanted}, one entry for each step, got {given.shape}")
        return full

    def _input(self, t: int, sequence: int) -> tuple[Any, ...]:
        """What ``step`` and the products receive after their other arguments."""
        return () if self._inputs is None else (self._inputs[t, sequence],)

    def _checked(self, result: ArrayLike, name: str, columns: tuple[int, ...]) -> Array:
        """The result of a user's function, if it has the right shape."""
        array = real_numbers(result, f"what {name} returns").astype(np.float64, copy=False)
        if array.shape != (self.state_size, *columns):
            raise ShapeError(f"{name} must return shape {(self.state_size, *columns)}, it returned {array.shape}")
        return array

    def _steps(self, v: Array, order: range, name: str, norms: Array | None) -> Array:
        """Apply one step's product after another to each sequence's vectors, as columns."""
        apply = self._push if name == "jvp" else self._pull
        if apply is None:
            raise ArgumentError(
                "products with the transposed Jacobians need vjp: StepLinearization(step, jvp, s0, n_steps, vjp=...)"
            )
        out = np.empty_like(v)
        for i in range(self.n_sequences):
            columns = v[i].T.copy(order="C")  # C order, as sparse products need it
            for j, t in enumerate(order):
                pushed = apply(self.states[t, i].copy(), columns, *self._input(t, i))
                columns = self._checked(pushed, name, columns.shape[1:])
                if norms is not None:
                    norms[j, i] = row_norms(columns.T)
            out[i] = columns.T
        return out

    def _jvp(self, v: Array, t0: int, t1: int, norms: Array | None) -> Array:
        return self._steps(v, range(t0, t1), "jvp", norms)

    def _vjp(self, u: Array, t0: int, t1: int, norms: Array | None) -> Array:
        return self._steps(u, range(t1 - 1, t0 - 1, -1), "vjp", norms)

    def jacobian(self, t: int, sequence: int = 0) -> Array:
        """One step's Jacobian (S, S), from its products with the unit vectors; see :meth:`Linearization.jacobian`."""
        t, sequence = self._place(t, sequence)
        pushed = self._push(self.states[t, sequence].copy(), np.eye(self.state_size), *self._input(t, sequence))
        return self._checked(pushed, "jvp", (self.state_size,))


def _start(s0: ArrayLike) -> Array:
    """The state or states to start from, as a finite float64 copy."""
    given = real_numbers(s0, "s0")
    if given.ndim not in (1, 2) or not given.size:
        raise ShapeError(f"s0 must have shape (S,) or (n, S) with at least one number, got {given.shape}")
    start = given.astype(np.float64)
    bad = np.argwhere(~np.isfinite(start))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        raise ArgumentError(f"s0 must be finite, s0[{', '.join(map(str, at))}] is {start[at]}")
    return start
