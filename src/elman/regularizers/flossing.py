r"""Gradient flossing: the leading Lyapunov exponents of a network pulled to a value.

.. math:: \frac{1}{n k} \sum_{j=1}^{n} \sum_{i=1}^{k} (\lambda_{ij} - \lambda^*)^2, \qquad
          \lambda_{ij} = \frac{1}{T} \sum_t \log R_{ii}(t), \qquad J_t Q_{t-1} = Q_t R_t

R. Engelken, Gradient flossing: improving gradient descent through dynamic control of Jacobians, NeurIPS 2023,
arXiv:2312.17306. Exponents near 0 let gradients pass in k directions. The gradient is exact: it goes back through every
orthonormalisation and every Jacobian, whose own derivative the cell's equations give on dual numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, NonFiniteError
from ..kernels.orthonormal import orthonormal_rows
from ..validation.scalars import at_least_zero, real, size

Array = NDArray[Any]


class Flossing:
    """Pull the leading finite-time Lyapunov exponents of a recurrent layer to a value.

    Before a training, with :class:`elman.losses.Zero` as the loss, or during it. One call costs about as much as
    passing ``3 k`` times as many sequences through the layer and back, and takes memory for their states, gates and
    tangents at all steps.

    Parameters
    ----------
    k : int
        How many exponents, at most the number of the layer's states.
    target : float, default 0.0
        What they are pulled to, in nats per step: at 0, gradients neither vanish nor explode in k directions.
    strength : float, default 1.0
        Factor of the penalty, at least 0.
    sequences : int, default 8
        So many of each batch are looked at.

    Notes
    -----
    Sequences start from the layer's own initial state, and frames from fixed orthonormal directions, so that the same
    training gives the same bits. The exponents of the last call are in ``exponents``, shape (sequences, k).
    """

    def __init__(self, k: int, *, target: float = 0.0, strength: float = 1.0, sequences: int = 8) -> None:
        self.k, self.sequences = size(k, "k"), size(sequences, "sequences")
        self.target, self.strength = real(target, "target"), at_least_zero(strength, "strength")
        if not np.isfinite(self.target):
            raise ArgumentError(f"target must be finite, got {target!r}")
        self.exponents: Array | None = None
        self._frames: dict[int, Array] = {}

    def __repr__(self) -> str:
        return f"Flossing({self.k}, target={self.target:g}, strength={self.strength:g}, sequences={self.sequences})"

    def penalty_and_gradient(self, model: Any, trace: Any, d_theta: Array, d_states: Array | None) -> float:
        """Add the derivative by the recurrent layer's parameters; see :class:`elman.training.Regularizer`.

        Raises
        ------
        ArgumentError
            For sequences of several lengths, both directions, zoneout, or more exponents than states.
        NonFiniteError
            If directions are lost, as by units that are dead.
        """
        layer = model.layer
        batch, record = trace.layer.batch, trace.layer.records[0]
        if not record.schedule.plain:
            raise ArgumentError("Flossing needs sequences of one length without restarts")
        n = min(self.sequences, batch.B)
        x = record.x.view(layer.input_size).reshape(batch.T, batch.B, -1)[:, :n]
        lin = layer.linearize(x.swapaxes(0, 1) if layer.batch_first else x)
        if self.k > lin.state_size:
            raise ArgumentError(f"k must be at most {lin.state_size}, the number of states, got {self.k}")
        frame = np.broadcast_to(self._frame(lin.state_size), (n, self.k, lin.state_size))
        own = np.zeros(layer.theta.size, layer.dtype)
        self.exponents, penalty = exponents_and_gradient(lin, frame, self.target, layer.parameters.view(own))
        d_theta[: own.size] += self.strength * own
        return self.strength * penalty

    def _frame(self, S: int) -> Array:
        if S not in self._frames:
            self._frames[S] = orthonormal_rows(np.random.default_rng(0).standard_normal((self.k, S)))
        return self._frames[S]


def orthonormalized(V: Array) -> tuple[Array, Array]:
    """The decomposition ``A = Q R`` of frames by Gram and Schmidt, with a positive diagonal of R.

    Parameters
    ----------
    V : ndarray, shape (n, k, S), float64
        The columns of each A as rows.

    Returns
    -------
    Q : ndarray, shape (n, k, S)
        Orthonormal rows; not finite where rows depend on each other.
    R : ndarray, shape (n, k, k)
        Upper triangular: ``V[j] = sum_i R[i, j] Q[i]``.
    """
    Q, k = V.copy(), V.shape[1]
    R = np.zeros((len(V), k, k))
    for j in range(k):
        for i in range(j):
            R[:, i, j] = (Q[:, i] * Q[:, j]).sum(axis=-1)
            Q[:, j] -= R[:, i, j, None] * Q[:, i]
        R[:, j, j] = np.sqrt((Q[:, j] * Q[:, j]).sum(axis=-1))
        with np.errstate(divide="ignore", invalid="ignore"):
            Q[:, j] /= R[:, j, j, None]
    return Q, R


def pulled_back(Q: Array, R: Array, d_Q: Array, d_logs: Array) -> Array:
    r"""The derivative by A of a function of Q and of ``log diag R``.

    :math:`\bar A = (\bar Q + Q\,C)\,R^{-\top}` with C the lower triangle of :math:`R\bar R^\top - \bar Q^\top Q`,
    mirrored (S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions, arXiv:1001.1654).

    Parameters
    ----------
    Q, R : ndarray
        As :func:`orthonormalized` gives them.
    d_Q : ndarray, shape (n, k, S)
    d_logs : ndarray, shape (n, k)

    Returns
    -------
    ndarray, shape (n, k, S)
    """
    k = R.shape[1]
    # R d_R^T has d_logs on its diagonal and nothing below, for d_R is diagonal
    M = -(d_Q[:, :, None] * Q[:, None]).sum(axis=-1)
    M[:, np.arange(k), np.arange(k)] += d_logs
    lower = np.tril(M)
    C = lower + np.swapaxes(np.tril(M, -1), 1, 2)
    X = d_Q + (C[..., None] * Q[:, :, None]).sum(axis=1)
    for j in range(k - 1, -1, -1):
        for i in range(j + 1, k):
            X[:, j] -= R[:, j, i, None] * X[:, i]
        X[:, j] /= R[:, j, j, None]
    return X


def exponents_and_gradient(lin: Any, frame: Array, target: float, out: Any) -> tuple[Array, float]:
    """Finite-time exponents of a linearization, and the penalty with its gradient.

    Parameters
    ----------
    lin : LayerLinearization
    frame : ndarray, shape (n_sequences, k, S), float64
        Orthonormal rows to begin with.
    target : float
        In nats per step.
    out : mapping of str to ndarray
        Receives the penalty's derivative by every parameter of the layer.

    Returns
    -------
    exponents : ndarray, shape (n_sequences, k), float64
        In nats per step.
    penalty : float
        Mean of ``(exponents - target)**2``.
    """
    n, k, _ = frame.shape
    T, tangents, rounding = lin.n_steps, lin.tangents(k), lin.state_size * float(np.finfo(lin.dtype).eps)
    Q, logs, decomposed = frame, np.zeros((n, k)), []
    for t in range(T):
        V = tangents.push(t, Q.astype(lin.dtype)).astype(np.float64)
        Q, R = orthonormalized(V)
        diagonal, lengths = np.diagonal(R, axis1=1, axis2=2), np.sqrt((V * V).sum(axis=-1))
        if not (diagonal > rounding * lengths).all():
            raise NonFiniteError(
                f"the leading {k} exponents must be finite, but at step {t} a direction is lost, as by units that are "
                "dead: give a smaller k"
            )
        logs += np.log(diagonal)
        decomposed.append((Q, R))
    exponents = logs / T
    d_logs = 2.0 * (exponents - target) / (n * k * T)
    d_Q, w = np.zeros_like(frame), np.zeros(frame.shape, lin.dtype)
    for t in range(T - 1, -1, -1):
        u = pulled_back(*decomposed[t], d_Q, d_logs)
        d_Q, w = tangents.pull(t, u.astype(lin.dtype), w)
        d_Q = d_Q.astype(np.float64)
    tangents.gradients(out, w)
    return exponents, float(np.mean((exponents - target) ** 2))
