"""Lyapunov exponents of a network along a trajectory, by repeated QR decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError, NonFiniteError, ShapeError
from ..linearization import Array, Linearization
from .validation import trajectories, whole_number


@dataclass(frozen=True, eq=False)
class LyapunovSpectrum:
    """Lyapunov exponents; made by :func:`lyapunov_spectrum`.

    Attributes
    ----------
    exponents : ndarray, shape (k,)
        In nats per step, descending; -inf for directions that the trajectory loses altogether.
    stderr : ndarray, shape (k,)
        Standard error from the means of ``n_blocks`` consecutive blocks, for a t interval with ``n_blocks - 1`` degrees
        of freedom; NaN where there is none (-inf, or fewer than two blocks).
    history : ndarray, shape (n_steps, k)
        Running estimates: row ``i`` is the mean over the first ``i + 1`` counted steps.
    n_steps : int
        Counted steps, without the warm-up.
    warmup : int
        Steps propagated and not counted.
    n_blocks : int
        Blocks behind ``stderr``.
    state_size : int
        Size of the state, the number of exponents there are.
    """

    exponents: Array
    stderr: Array
    history: Array
    n_steps: int
    warmup: int
    n_blocks: int
    state_size: int

    @property
    def sum(self) -> float:
        """Sum of the exponents: log growth of k-volumes in nats per step, ``mean log |det J|`` if all are here."""
        return float(self.exponents.sum())

    @property
    def kaplan_yorke_dimension(self) -> float:
        """``j + (lambda_1 + .. + lambda_j) / |lambda_{j+1}|`` for the largest j with a sum that is not negative.

        0 if the first exponent is negative, the state size if all sums are not; NaN if the k exponents do not reach the
        one that turns the sum negative: ask for more (Kaplan and Yorke 1979).
        """
        sums = np.cumsum(self.exponents)
        j = int(np.count_nonzero(sums >= 0))
        if j == len(sums):
            return float(j) if j == self.state_size else float("nan")
        return float(j + (sums[j - 1] / abs(self.exponents[j]) if j else 0.0))

    def __repr__(self) -> str:
        return f"LyapunovSpectrum(k={len(self.exponents)}, first={self.exponents[0]:.6g}, n_steps={self.n_steps})"

    def __str__(self) -> str:
        shown = min(len(self.exponents), 8)
        lines = [
            f"Lyapunov exponents, {len(self.exponents)} of {self.state_size}, over {self.n_steps} steps "
            f"after {self.warmup} of warm-up",
            "      nats/step   std. error   factor a step",
        ]
        for i in range(shown):
            value, error = self.exponents[i], self.stderr[i]
            lines.append(f"  {i + 1:<3} {value:<+11.5g} {error:<12.2g} {np.exp(value):.5g}")
        if shown < len(self.exponents):
            lines.append(f"  ... last {self.exponents[-1]:+.5g}")
        lines.append(f"  sum {self.sum:+.5g} nats/step   Kaplan-Yorke dimension {self.kaplan_yorke_dimension:.5g}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All numbers but the history as plain Python."""
        return {
            "exponents": self.exponents.tolist(),
            "stderr": self.stderr.tolist(),
            "sum": self.sum,
            "kaplan_yorke_dimension": self.kaplan_yorke_dimension,
            "n_steps": self.n_steps,
            "warmup": self.warmup,
            "n_blocks": self.n_blocks,
            "state_size": self.state_size,
        }

    def plot(self, ax: Any = None) -> Any:
        """The exponents and their convergence; returns the matplotlib axes."""
        from ..plotting import plot_lyapunov

        return plot_lyapunov(self, ax=ax)


def lyapunov_spectrum(
    lin: Linearization,
    k: int | None = None,
    *,
    warmup: int | None = None,
    sequence: int = 0,
    frame: ArrayLike | None = None,
    blocks: int = 20,
    rng: int | np.random.Generator | None = None,
) -> LyapunovSpectrum:
    """Lyapunov exponents along one trajectory: a frame is pushed forward and made orthonormal again after every step.

    Parameters
    ----------
    lin : Linearization
        ``T >= 1`` steps. Where it has several sequences all of them are pushed; linearize the one you want.
    k : int, optional
        How many of the largest exponents, ``1 <= k <= S``; all by default. Cost per step is of order ``S k^2``.
    warmup : int, optional
        First steps that are propagated and not counted, while state and frame settle together. By default 50 or a tenth
        of the trajectory, whichever is more, and at most half of it.
    sequence : int, default 0
        Which trajectory.
    frame : array_like, shape (S, k), optional
        Linearly independent columns to start from; random by default.
    blocks : int, default 20
        Blocks for the standard error. They must be longer than the correlation of the local growth rates.
    rng : None, int or numpy.random.Generator
        For the random frame.

    Returns
    -------
    LyapunovSpectrum

    Raises
    ------
    DTypeError
        If ``lin`` is not a Linearization.
    ArgumentError, ShapeError
        If a number is outside its range, the frame has another shape, or there is no sequence, step or state.
    NonFiniteError
        If a Jacobian product is not finite.

    Notes
    -----
    A direction is lost, and its exponent -inf, once a diagonal entry of R is not above the rounding of its column
    (``S eps`` times the column's norm): a longer memory than the dtype's cannot be told from none.

    References
    ----------
    Benettin, Galgani, Giorgilli and Strelcyn, Meccanica 15 (1980) 9; Geist, Parlitz and Lauterborn, Prog. Theor. Phys.
    83 (1990) 875.
    """
    lin = trajectories(lin, "lyapunov_spectrum")
    T, S = lin.n_steps, lin.state_size
    if T < 1:
        raise ArgumentError("lyapunov_spectrum needs a trajectory of at least 1 step, got 0")
    if warmup is None:
        warmup = min(max(50, T // 10), T // 2)
    k = whole_number(S if k is None else k, "k", 1, S)
    warmup = whole_number(warmup, "warmup", 0, T - 1)
    sequence = whole_number(sequence, "sequence", 0, lin.n_sequences - 1)
    blocks = whole_number(blocks, "blocks", 2)
    if frame is None:
        start = np.random.default_rng(rng).standard_normal((S, k))
    else:
        start = np.asarray(frame, dtype=np.float64)
        if start.shape != (S, k):
            raise ShapeError(f"frame must have shape (S, k) = {(S, k)}, got {start.shape}")
    logs = _local_rates(lin, start, sequence)[warmup:]
    history = np.cumsum(logs, axis=0) / np.arange(1, len(logs) + 1)[:, None]
    order = np.argsort(-history[-1], kind="stable")
    blocks = min(blocks, len(logs))
    return LyapunovSpectrum(
        exponents=history[-1, order],
        stderr=_block_stderr(logs, blocks)[order],
        history=history[:, order],
        n_steps=len(logs),
        warmup=warmup,
        n_blocks=blocks,
        state_size=S,
    )


def _local_rates(lin: Linearization, start: Array, sequence: int) -> Array:
    """``log |R_ii|`` of every step, (T, k) for a start frame (S, k); -inf from where a direction is lost."""
    rates = np.full((lin.n_steps, start.shape[1]), -np.inf)
    alive = np.arange(start.shape[1])
    # float32 vectors carry float32 rounding, whatever the type that QR works in
    rounding = lin.state_size * float(np.finfo(lin.dtype).eps)
    Q, R = np.linalg.qr(start)
    if (abs(np.diag(R)) <= lin.state_size * np.finfo(np.float64).eps * np.linalg.norm(start, axis=0)).any():
        raise ArgumentError("frame must have linearly independent columns")
    vectors = np.zeros((lin.n_sequences, len(alive), lin.state_size), lin.dtype)
    for t in range(lin.n_steps):
        vectors[sequence] = Q.T
        with np.errstate(over="ignore", invalid="ignore"):
            pushed = lin.jvp(vectors, t, t + 1)[sequence].T.astype(np.float64, copy=False)
        if not np.isfinite(pushed).all():
            raise NonFiniteError(
                f"the Jacobian of step {t} turns a unit vector into one that is not finite; check the trajectory it "
                "was taken along",
                what="tangent",
                step=t,
                sample=sequence,
            )
        Q, R = np.linalg.qr(pushed)
        growth = abs(np.diag(R))
        kept = growth > rounding * np.linalg.norm(pushed, axis=0)
        if not kept.all():
            # A lost column lies in the span of those before it. Whatever QR put in its place belongs to no trajectory,
            # and would take growth away from the columns behind it: the frame goes on without it.
            alive, growth, Q = alive[kept], growth[kept], Q[:, kept]
            vectors = np.zeros((lin.n_sequences, len(alive), lin.state_size), lin.dtype)
            if not len(alive):
                break
        rates[t, alive] = np.log(growth)
    return rates


def _block_stderr(logs: Array, blocks: int) -> Array:
    """Standard error (k,) of the mean of ``logs`` (n, k) from equal blocks, without the first ``n % blocks`` rows."""
    stderr = np.full(logs.shape[1], np.nan)
    length = len(logs) // blocks
    finite = np.isfinite(logs).all(axis=0)
    if blocks > 1:
        means = logs[len(logs) - length * blocks :, finite].reshape(blocks, length, -1).mean(axis=1)
        stderr[finite] = means.std(axis=0, ddof=1) / np.sqrt(blocks)
    return stderr
