"""One call that says whether gradients vanish or explode over a sequence, how sure that is, why, and what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError
from ..linearization import Array, Linearization
from .causes import Causes, elementwise_terms, norm_bound
from .curve import GrowthCurve
from .growth import backward_growth, unit_vectors
from .report import Diagnosis, prescribe
from .sequences import Diagnosable, as_sequences
from .validation import positive_number, whole_number


def diagnose(
    model: Diagnosable | Linearization,
    x: Any = None,
    y: ArrayLike | None = None,
    *,
    h0: Any = None,
    loss: Any = "mse",
    start: ArrayLike | None = None,
    level: str = "full",
    threshold: float = math.log(100),
    vectors: int = 4,
    max_sequences: int = 64,
    rng: int | np.random.Generator | None = None,
) -> Diagnosis:
    r"""Predict how gradients grow or decay over a sequence.

    Unit vectors at the last state are pulled back along trajectories, :math:`u_k \propto J_{T-k}^T u_{k-1}`, as
    backpropagation through time does; the log of what each step does to their length adds up to a growth curve over
    lags. The curves of different sequences give Student t intervals for the gradient on *other* sequences of the same
    length, distribution and initial state. Sequences are added, 8, 16, 32, 64, until the verdict is decided at 99 %.

    Parameters
    ----------
    model : layer, network, or Linearization
        Anything with the methods of :class:`~elman.diagnostics.sequences.Diagnosable`; or the Jacobians of any network,
        such as a :class:`~elman.linearization.JacobianStack`.
    x : ndarray, shape (T, n, D), or (n, T, D) for a batch-first model
        At least 2 sequences. Half of them, at most 32, are set aside for :meth:`Diagnosis.verify` if there are 4 or
        more. Leave out for a Linearization. Overlapping windows of one series are fewer independent sequences than
        windows: they make the intervals too narrow.
    y : ndarray, optional
        Labels, shape (n, Q) for the last step or with the first two axes of ``x`` and Q for every step; without the
        axis Q for a loss whose labels have none (``target_axes`` 0, as classes for cross entropy). With them the
        gradient of the real loss at the last step is predicted too; without, that of a random combination of outputs.
    h0 : ndarray or tuple of ndarray, optional
        Initial states, shape (layers, n, H), as in training.
    loss : str or loss object, default "mse"
        Which loss ``y`` belongs to; handed to ``model.loss_start``.
    start : array_like, shape (n, S), optional
        For a Linearization: gradients of your loss with respect to the last state, predicted beside random ones.
    level : {"full"}
        How the prediction is made: ``"full"`` runs the model on ``x`` and pulls vectors back.
    threshold : float, default log(100)
        Growth in nats over the whole sequence, either way, that counts as exploding or vanishing.
    vectors : int, default 4
        Random unit vectors for each sequence.
    max_sequences : int, default 64
        Most sequences used for the prediction.
    rng : None, int or numpy.random.Generator
        Shuffles the sequences and draws the start vectors.

    Returns
    -------
    Diagnosis
        ``verdict``, ``rate`` (nats per step) and ``rate_ci``, ``curve``, ``loss``, ``horizon``, ``causes``,
        ``prescription``; ``.verify()`` measures the real gradient beside it.

    Raises
    ------
    ArgumentError
        For an unknown level, numbers out of range, fewer than two sequences, or a NaN or infinity in ``x``, ``y``,
        ``h0`` or ``start``.
    DTypeError
        For masked arrays.
    ShapeError
        If ``x``, ``y``, ``h0`` and ``start`` do not fit together.
    NonFiniteError
        If a state, Jacobian or loss gradient is not finite.

    Notes
    -----
    The spectrum of the recurrent matrix does not decide whether gradients vanish: on trained networks its radius gives
    the wrong verdict more often than the right one. Only ``sigma_max(W_hh) max|phi'| < 1`` is a proof, of decay.

    Exponents of long products were first studied by V. I. Oseledets (1968); the finite-time growth of gradients in
    recurrent networks by S. Hochreiter (1991), Y. Bengio, P. Simard and P. Frasconi (1994), and R. Pascanu, T. Mikolov
    and Y. Bengio (2013).
    """
    if level != "full":
        raise ArgumentError(f'level must be "full" (run the model on x and pull vectors back), got {level!r}')
    threshold = positive_number(threshold, "threshold", "nats (log(100) by default)")
    vectors = whole_number(vectors, "vectors", 1)
    max_sequences = whole_number(max_sequences, "max_sequences (intervals need a spread)", 2)
    rng = np.random.default_rng(rng)
    sequences = as_sequences(model, x, y, h0, loss, start)
    batches, reserved = sequences.split(rng, max_sequences)
    observed = _Observations(threshold)
    for batch in batches:
        pair = batch.loss_start(rng)
        observed.add(batch.linearize(), vectors, pair, rng)
        curves = observed.curves()
        if all(curve.verdict != "undecided" for curve in curves):
            break
    curve, *others = curves
    return Diagnosis(
        curve=curve,
        loss=others[0] if others else None,
        causes=observed.causes(curve),
        bound=observed.bound,
        prescription=prescribe(curve, observed.bound is not None),
        level=level,
        state_size=observed.state_size,
        dtype=observed.dtype,
        _predicted=sequences,
        _reserved=reserved,
        _seed=int(rng.integers(2**63)),
    )


class _Observations:
    """Growth curves and terms of causes, collected batch by batch."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.bound: float | None = None
        self.state_size = 0
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self._random: list[Array] = []
        self._loss: list[Array] = []
        self._loss_name = ""
        self._terms: list[tuple[Array, Array]] = []

    def add(self, lin: Linearization, vectors: int, loss: tuple[str, Array] | None, rng: np.random.Generator) -> None:
        """Pull back random vectors and the start of the loss along the trajectories of one batch, in one sweep."""
        random = unit_vectors(rng, lin.n_sequences, vectors, lin.state_size)
        starts = random
        if loss is not None:
            self._loss_name, start = loss
            starts = np.concatenate([random, np.asarray(start, dtype=np.float64)[:, None]], axis=1)
        logs = backward_growth(lin, starts)
        self.state_size, self.dtype = lin.state_size, np.dtype(lin.dtype)
        self._random.append(logs[..., :vectors])
        if loss is not None:
            self._loss.append(logs[..., vectors:])
        if lin.factors is not None:
            if self.bound is None:
                self.bound = norm_bound(lin.factors)
            first = self.curves()[0].first_lag
            self._terms.append(elementwise_terms(lin.factors, random, first))

    def curves(self) -> list[GrowthCurve]:
        """The curve of random starts and, if there is a loss, its own."""
        out = [GrowthCurve(np.concatenate(self._random, axis=1), "random", self.threshold)]
        if self._loss:
            out.append(GrowthCurve(np.concatenate(self._loss, axis=1), self._loss_name, self.threshold))
        return out

    def causes(self, curve: GrowthCurve) -> Causes | None:
        """Averages of the terms over all sequences; None for cells whose Jacobian does not factor."""
        if not self._terms:
            return None
        terms, rates = (np.concatenate(parts, axis=-1) for parts in zip(*self._terms, strict=True))
        return Causes.from_terms(terms, rates, curve.first_lag, curve.n_steps)
