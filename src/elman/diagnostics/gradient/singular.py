"""Extreme singular values of products of many Jacobians, without forming the product."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from ...errors import NonFiniteError
from ...linearization import Array, Linearization
from ...norms import safe_norm

# The smallest scale, relative to the largest, at which a column enters a pivoted decomposition: far below any rounding,
# far above underflow. The rest of its scale is added to the logarithm afterwards.
_CLIP = -500.0


class Graded(NamedTuple):
    """A matrix ``U diag(exp(log_d)) T``, whose singular values may span more than the range of floating-point numbers.

    Attributes
    ----------
    U : ndarray, shape (S, r)
        Orthonormal columns.
    log_d : ndarray, shape (r,)
        Logarithms of the scales.
    T : ndarray, shape (r, S)
        Well-conditioned.
    """

    U: Array
    log_d: Array
    T: Array

    def times(self, image: Array, rounding: float) -> Graded:
        """The factors of ``A U diag(exp(log_d)) T`` from ``image = A U`` (S, r); the rank falls if A loses directions.

        A column is lost if its part outside the span of those before it is at most ``rounding`` times its norm.

        QR with pivoting sorts the scales, so that the factor put into T is bounded by 1 (Loh and Gubernatis 1992).
        """
        if not len(self.log_d):
            return self
        scale = np.maximum(self.log_d - self.log_d.max(), _CLIP)
        q, r, order = scipy.linalg.qr(image * np.exp(scale), mode="economic", pivoting=True, check_finite=False)
        diagonal, sizes = abs(np.diag(r)), safe_norm(r.T)
        rank = int(np.count_nonzero(diagonal > rounding * sizes))
        q, r, diagonal = q[:, :rank], r[:rank], diagonal[:rank]
        rest = self.log_d[order] - scale[order]
        with np.errstate(divide="ignore"):
            sign = np.sign(r)
            logs = np.log(abs(r)) + rest
            log_d = np.log(diagonal) + rest[:rank]
        unit = sign * np.exp(logs - log_d[:, None])
        return Graded(q, log_d, unit @ self.T[order])

    def extremes(self) -> tuple[float, float]:
        """Logarithms of the largest and the smallest singular value; -inf for one that is zero.

        Each is a norm, of the product or of its inverse, taken relative to the extreme scale: numbers that underflow
        beside it do not matter.
        """
        r, S = self.T.shape
        if not r:
            return -np.inf, -np.inf
        top, bottom = self.log_d.max(), self.log_d.min()
        largest = top + np.log(np.linalg.norm(np.exp(self.log_d - top)[:, None] * self.T, 2))
        if r < S:
            return largest, -np.inf
        inverse = np.linalg.solve(self.T, np.diag(np.exp(bottom - self.log_d)))
        return largest, bottom - np.log(np.linalg.norm(inverse, 2))


def singular_growth(lin: Linearization, lags: Array) -> tuple[Array, Array]:
    """Extreme singular values of ``d s[T] / d s[T-k]`` for some lags k, in nats.

    No gradient can grow by a larger, or a smaller, factor over the lag. An orthonormal frame of the whole state is
    pulled back step by step, and its QR factors are collected in a graded matrix, whose conditioning, and with it the
    number of valid digits, does not get worse with the lag.

    Parameters
    ----------
    lin : Linearization
        ``n`` trajectories of ``T`` steps; S vectors are carried, so that the cost per step is of order ``n S^3``.
    lags : ndarray of int, ascending
        From 0 to at most T.

    Returns
    -------
    largest, smallest : ndarray, shape (len(lags), n)
        Natural logarithms; -inf for a product that is zero, or singular.

    Raises
    ------
    NonFiniteError
        If a Jacobian is not finite.

    References
    ----------
    Loh and Gubernatis, in Electronic Phase Transitions (1992), for the factors; Stewart, SIAM J. Matrix Anal. Appl. 16
    (1995) 1, for products of many matrices.
    """
    n, S, T = lin.n_sequences, lin.state_size, lin.n_steps
    rounding = S * float(np.finfo(lin.dtype).eps)
    factors = [Graded(np.eye(S), np.zeros(S), np.eye(S)) for _ in range(n)]
    largest, smallest = np.zeros((2, len(lags), n))
    wanted = {int(lag): row for row, lag in enumerate(lags)}
    for lag in range(1, max(wanted, default=0) + 1):
        frames = np.zeros((n, S, S), lin.dtype)
        for i, factor in enumerate(factors):
            frames[i, : factor.U.shape[1]] = factor.U.T
        with np.errstate(over="ignore", invalid="ignore"):
            pulled = lin.vjp(frames, T - lag, T - lag + 1).astype(np.float64, copy=False)
        if not np.isfinite(pulled).all():
            raise NonFiniteError(
                f"the Jacobian of step {T - lag} is not finite; check the trajectory it was taken along",
                what="gradient",
                step=T - lag,
            )
        factors = [f.times(pulled[i, : f.U.shape[1]].T, rounding) for i, f in enumerate(factors)]
        if lag in wanted:
            row = wanted[lag]
            largest[row], smallest[row] = np.array([f.extremes() for f in factors]).T
    return largest, smallest
