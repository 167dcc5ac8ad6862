r"""Fisher memory: how well the state of a noisy linear network shows a small change of a past input.

For :math:`s_t = W s_{t-1} + v u_t + \xi_t` with Gaussian noise of variance :math:`\epsilon` in every unit, the Fisher
information of :math:`s_t` about :math:`u_{t-k}` is :math:`J_k = (W^k v)^T C^{-1} W^k v` with the noise covariance
:math:`C = \epsilon \sum_j W^j W^{jT}` (Ganguli, Huh and Sompolinsky, PNAS 105, 2008). Unlike in the memory capacity,
:math:`C` is never smaller than :math:`\epsilon I`, so that solving with it is safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from ...errors import ArgumentError
from ...linearization import Array
from ...results import Drawn
from ...validation.scalars import positive, size
from .capacity import NEGLIGIBLE, lag_table, linear_network

# Doublings of the number of summed powers: enough for radii up to about 1 - 1e-12.
_DOUBLINGS = 50
_MOST_LAGS = 1_000_000
# Lags whose information is computed at once.
_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class FisherMemory(Drawn, picture="plot_memory"):
    """Fisher memory curve; made by :func:`fisher_memory`.

    Attributes
    ----------
    per_lag : ndarray, shape (L,)
        Fisher information ``J_k`` about the input ``k`` steps ago, ``k = 0 .. L - 1``; 1 is the information that one
        unit without recurrence holds about its present input, at unit input weight and noise.
    total : float
        Sum over all lags, including those beyond :attr:`per_lag`. With a unit vector ``v`` and unit noise, exactly 1
        for a normal matrix, and at most N for any.
    state_size : int
        Number of units N.
    """

    per_lag: Array
    total: float
    state_size: int

    def __repr__(self) -> str:
        return f"FisherMemory(total={self.total:.6g}, N={self.state_size}, lags={len(self.per_lag)})"

    def __str__(self) -> str:
        return "\n".join(
            [
                f"Fisher memory of {self.state_size} linear units with noise in the state",
                f"  total             {self.total:.6g} over all lags (unit input vector and noise: 1 for a normal",
                f"                    matrix, at most {self.state_size} for any)",
                *lag_table(self.per_lag, "information"),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python."""
        return {"per_lag": self.per_lag.tolist(), "total": self.total, "state_size": self.state_size}


def fisher_memory(
    W: ArrayLike, v: ArrayLike, *, noise_variance: float = 1.0, max_lag: int | None = None
) -> FisherMemory:
    """Fisher memory curve of the linear network ``s[t] = W s[t-1] + v u[t] + noise``.

    Parameters
    ----------
    W : array_like, shape (N, N)
        Recurrent matrix with spectral radius below 1.
    v : array_like, shape (N,)
        Input vector, used as given, including its norm.
    noise_variance : float, default 1
        Variance of the independent Gaussian noise in every unit and step, above 0; the information is proportional to
        its inverse.
    max_lag : int, optional
        Last lag to return; by default such that all later lags together hold less than 1e-9 of the total.

    Returns
    -------
    FisherMemory

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If W is not a finite real square matrix, v does not fit it, the noise is not positive, or the spectral radius is
        1 or more, too near 1 for float64, or, without ``max_lag``, so near that more than a million lags count.

    References
    ----------
    Ganguli, Huh and Sompolinsky, Memory traces in dynamical systems, PNAS 105 (2008) 18970.

    Examples
    --------
    >>> import numpy as np
    >>> delay_line = np.eye(12, k=-1)
    >>> round(fisher_memory(delay_line, np.eye(12)[0]).total, 10)
    3.1032106782
    """
    matrix, vector = linear_network(W, v)
    noise = positive(noise_variance, "noise_variance", "squared units of the state")
    wanted = None if max_lag is None else size(max_lag, "max_lag", 0) + 1
    factor = scipy.linalg.cho_factor(_gramian(matrix, noise * np.eye(len(matrix))))
    information = scipy.linalg.cho_solve(factor, np.eye(len(matrix)))
    # the information of W^k v and all later ones together, by the equation for the transpose
    later = _gramian(matrix.T, information)
    whole = float(vector @ later @ vector)
    negligible = NEGLIGIBLE * whole
    if wanted is None:
        last = np.linalg.matrix_power(matrix, _MOST_LAGS) @ vector
        if last @ later @ last > negligible:
            raise ArgumentError(
                f"the spectral radius of W is so near 1 that the memory extends over more than {_MOST_LAGS} lags; "
                "scale W down, or set the last lag to return with max_lag"
            )
    limit, count, signal = wanted or _MOST_LAGS, 0, vector
    parts: list[Array] = []
    while count < limit:
        signals = np.empty((min(_BLOCK, limit - count), len(matrix)))
        for row in signals:
            row[:] = signal
            signal = matrix @ signal
        parts.append(np.maximum(0.0, (signals * scipy.linalg.cho_solve(factor, signals.T).T).sum(axis=1)))
        count += len(signals)
        if wanted is None and signal @ later @ signal <= negligible:
            rest = ((signals @ later) * signals).sum(axis=1)
            parts[-1] = parts[-1][: max(1 if count <= _BLOCK else 0, int(np.count_nonzero(rest > negligible)))]
            break
    return FisherMemory(np.concatenate(parts), whole, len(matrix))


def _gramian(W: Array, start: Array) -> Array:
    """``sum_k W^k start W^{kT}`` for symmetric ``start``, by doubling the number of summed powers (Smith 1968).

    A sum of positive semidefinite terms keeps its digits where a direct solve of the Lyapunov equation loses them.
    """
    total, power = start, W
    for _ in range(_DOUBLINGS):
        term = power @ total @ power.T
        total = total + (term + term.T) / 2
        if not np.isfinite(total).all():
            break
        if np.linalg.norm(term) <= 1e-17 * np.linalg.norm(total):
            return total
        power = power @ power
    raise ArgumentError("W is too close to a matrix of spectral radius 1 for the covariance of its noise; scale W down")
