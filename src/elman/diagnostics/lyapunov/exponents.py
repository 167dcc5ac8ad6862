"""Lyapunov exponents of a network along a trajectory, by repeated QR decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError, ShapeError
from ...linearization import Array, Linearization
from ...results import Drawn
from ...validation.arrays import finite_numbers
from ...validation.rng import generator
from ...validation.scalars import size
from ..matrices import computing_error
from ..trajectories import trajectories
from .frames import pushed_frames
from .small_frames import small_growth


@dataclass(frozen=True, eq=False)
class LyapunovSpectrum(Drawn, picture="plot_lyapunov"):
    """Lyapunov exponents; made by :func:`lyapunov_spectrum`.

    Attributes
    ----------
    exponents : ndarray, shape (k,)
        In nats per step, descending; -inf for directions that the trajectory loses entirely.
    stderr : ndarray, shape (k,)
        Standard error from the means of ``n_blocks`` consecutive blocks, for a t interval with ``n_blocks - 1`` degrees
        of freedom; NaN where there is none (-inf, or fewer than two blocks).
    local_rates : ndarray, shape (n_steps, k)
        Growth of each direction in nats at each counted step; steps between two decompositions share their mean.
    n_steps : int
        Counted steps, without the warm-up.
    warmup : int
        Steps propagated but not counted.
    n_blocks : int
        Blocks used for ``stderr``; no two of them share a decomposition.
    interval : int
        Largest number of steps between two decompositions.
    condition : float
        Worst condition of a frame before a decomposition: rounding errors of the growth are this many times ``eps``.
    state_size : int
        Size of the state, which is the number of exponents that exist.
    rounding : float
        Nats per step that rounding may have added to an exponent, ``10 S eps condition``: within it an exponent counts
        as 0, so that neither a dimension nor an entropy depends on its sign.
    """

    exponents: Array
    stderr: Array
    local_rates: Array
    n_steps: int
    warmup: int
    n_blocks: int
    interval: int
    condition: float
    state_size: int
    rounding: float

    @property
    def history(self) -> Array:
        """Running estimates (n_steps, k): row ``i`` is the mean over the first ``i + 1`` counted steps."""
        history: Array = np.cumsum(self.local_rates, axis=0) / np.arange(1, self.n_steps + 1)[:, None]
        return history

    @property
    def sum(self) -> float:
        """Sum of the exponents: log growth of k-volumes in nats per step, ``mean log |det J|`` if all are included."""
        return float(self.exponents.sum())

    @property
    def kaplan_yorke_dimension(self) -> float:
        """``j + (lambda_1 + .. + lambda_j) / |lambda_{j+1}|`` for the largest j with a sum that is not negative.

        0 if the first exponent is negative, the state size if no sum is; NaN if the k exponents do not include the one
        that turns the sum negative: then compute more of them (Kaplan and Yorke 1979).
        """
        sums = np.cumsum(self.exponents)
        j = int(np.count_nonzero(sums >= -self.rounding * np.arange(1, len(sums) + 1)))
        if j == len(sums):
            return float(j) if j == self.state_size else float("nan")
        return float(j + (max(sums[j - 1], 0.0) / abs(self.exponents[j]) if j else 0.0))

    @property
    def entropy(self) -> float:
        """Sum of the positive exponents in nats per step: the rate at which the system forgets its earlier state.

        An upper bound on the Kolmogorov-Sinai entropy (Ruelle 1978), equal to it where the invariant measure is smooth
        along the unstable directions (Pesin 1977). NaN if all k exponents are positive and there are more.
        """
        if self.exponents[-1] > self.rounding and len(self.exponents) < self.state_size:
            return float("nan")
        return float(self.exponents[self.exponents > self.rounding].sum())

    def finite_time(self, length: int) -> Array:
        """Exponents over windows of ``length`` steps, whose spread shows how much growth varies along the trajectory.

        Parameters
        ----------
        length : int
            Steps per window, from ``interval`` to ``n_steps``.

        Returns
        -------
        ndarray, shape (n_steps // length, k)
            Nats per step, one row per window, in order of time; the steps left over are those at the beginning.

        Raises
        ------
        ArgumentError
            If the windows are shorter than the interval between decompositions: ask for ``interval=length`` then.
        """
        length = size(length, "length", 1, self.n_steps)
        if length < self.interval:
            raise ArgumentError(
                f"length must be at least the {self.interval} steps between two decompositions, got {length}; run "
                f"lyapunov_spectrum with interval={length}"
            )
        count = self.n_steps // length
        rates: Array = self.local_rates[self.n_steps - count * length :].reshape(count, length, -1).mean(axis=1)
        return rates

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
        lines.append(
            f"  sum {self.sum:+.5g} nats/step   entropy {self.entropy:.5g} nats/step   "
            f"Kaplan-Yorke dimension {self.kaplan_yorke_dimension:.5g}"
        )
        lines.append(f"  a decomposition at least every {self.interval} steps, condition up to {self.condition:.2g}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All numbers except those of single steps, as plain Python."""
        return {
            "exponents": self.exponents.tolist(),
            "stderr": self.stderr.tolist(),
            "sum": self.sum,
            "entropy": self.entropy,
            "kaplan_yorke_dimension": self.kaplan_yorke_dimension,
            "n_steps": self.n_steps,
            "warmup": self.warmup,
            "n_blocks": self.n_blocks,
            "interval": self.interval,
            "condition": self.condition,
            "state_size": self.state_size,
            "rounding": self.rounding,
        }


def lyapunov_spectrum(
    lin: Linearization,
    k: int | None = None,
    *,
    warmup: int | None = None,
    sequence: int = 0,
    frame: ArrayLike | None = None,
    interval: int | None = None,
    blocks: int = 20,
    rng: int | np.random.Generator | None = None,
) -> LyapunovSpectrum:
    """Lyapunov exponents along one trajectory: a frame is pushed forward and repeatedly made orthonormal.

    The trajectory determines the system that they describe: driven by an input, or autonomous with an input of zeros
    (or of no features at all: ``layer.linearize(np.zeros((T, 1, 0)))``).

    Parameters
    ----------
    lin : Linearization
        ``T >= 1`` steps. If it has several sequences, all of them are pushed: linearize only the one you need.
    k : int, optional
        How many of the largest exponents, ``1 <= k <= S``; all by default. Cost per step is of order ``S k^2``.
    warmup : int, optional
        First steps, propagated but not counted, while state and frame settle together. By default 50 or a tenth of the
        trajectory, whichever is more, and at most half of it.
    sequence : int, default 0
        Which trajectory.
    frame : array_like, shape (S, k), optional
        Linearly independent columns to start from; random by default.
    interval : int, optional
        Largest number of steps between two decompositions. By default as many as the gap between the exponents,
        measured during the run, allows; in either case, a window that strains the frame more is repeated in shorter
        ones.
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
        If ``lin`` is not a Linearization, or the frame is not real.
    ArgumentError, ShapeError
        If a number is outside its range, the frame has another shape, dependent columns or a number that is not
        finite, or there is no sequence, step or state.
    NonFiniteError
        If a Jacobian product is not finite.

    Notes
    -----
    A direction is lost, and its exponent is -inf, once a diagonal entry of R is not above the rounding of its column
    (``S eps`` times the column's norm): memory below the precision of the dtype cannot be told from none.

    References
    ----------
    Benettin, Galgani, Giorgilli and Strelcyn, Meccanica 15 (1980) 9; Geist, Parlitz and Lauterborn, Prog. Theor. Phys.
    83 (1990) 875.
    """
    lin = trajectories(lin, "lyapunov_spectrum")
    T, S = lin.n_steps, lin.state_size
    k, warmup, start = frame_arguments(lin, k, warmup, frame, rng, "lyapunov_spectrum")
    sequence = size(sequence, "sequence", 0, lin.n_sequences - 1)
    interval = None if interval is None else size(interval, "interval")
    blocks = min(size(blocks, "blocks", 2), T - warmup)
    length = (T - warmup) // blocks
    edges = [edge for edge in (warmup, *range(T - blocks * length, T + 1, length)) if edge > 0]
    rates, longest, condition = _local_rates(lin, start, sequence, edges, interval, warmup)
    rates = rates[warmup:]
    exponents = rates.mean(axis=0)
    order = np.argsort(-exponents, kind="stable")
    return LyapunovSpectrum(
        exponents=exponents[order],
        stderr=_block_stderr(rates, blocks)[order],
        local_rates=rates[:, order],
        n_steps=len(rates),
        warmup=warmup,
        n_blocks=blocks,
        interval=longest,
        condition=condition,
        state_size=S,
        rounding=computing_error(S, lin.dtype) * condition,
    )


def _local_rates(
    lin: Linearization, start: Array, sequence: int, edges: list[int], interval: int | None, warmup: int
) -> tuple[Array, int, float]:
    """Growth (T, k) of each step in nats, largest number of steps between decompositions, and the worst condition."""
    small = small_growth(lin, start, sequence, edges, interval)
    if small is not None:
        return np.repeat(small.logs / small.window, small.window, axis=0), small.window, small.condition
    rates, longest, condition = np.full((lin.n_steps, start.shape[1]), -np.inf), 1, 1.0
    for step in pushed_frames(lin, start, sequence, edges, interval):
        steps = step.t1 - step.t0
        rates[step.t0 : step.t1, step.alive] = np.log(abs(np.diag(step.R))) / steps
        if step.t0 >= warmup:
            longest, condition = max(longest, steps), max(condition, step.condition)
    return rates, longest, condition


def frame_arguments(
    lin: Linearization, k: int | None, warmup: int | None, frame: ArrayLike | None, rng: Any, caller: str
) -> tuple[int, int, Array]:
    """Checked number of directions, warm-up steps and start frame (S, k); errors as for :func:`lyapunov_spectrum`."""
    T, S = lin.n_steps, lin.state_size
    if T < 1:
        raise ArgumentError(f"{caller} needs a trajectory of at least 1 step, got 0")
    if warmup is None:
        warmup = min(max(50, T // 10), T // 2)
    k = size(S if k is None else k, "k", 1, S)
    warmup = size(warmup, "warmup", 0, T - 1)
    if frame is None:
        return k, warmup, generator(rng).standard_normal((S, k))
    start = finite_numbers(frame, "frame")
    if start.shape != (S, k):
        raise ShapeError(f"frame must have shape (S, k) = {(S, k)}, got {start.shape}")
    return k, warmup, start


def _block_stderr(rates: Array, blocks: int) -> Array:
    """Standard error (k,) of the mean of ``rates`` (n, k) from equal blocks, without the first ``n % blocks`` rows."""
    stderr = np.full(rates.shape[1], np.nan)
    length = len(rates) // blocks
    finite = np.isfinite(rates).all(axis=0)
    if blocks > 1:
        means = rates[len(rates) - length * blocks :, finite].reshape(blocks, length, -1).mean(axis=1)
        stderr[finite] = means.std(axis=0, ddof=1) / np.sqrt(blocks)
    return stderr
