"""One call that says whether gradients vanish or explode over a sequence, how sure that is, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError, DTypeError
from ...linearization import Array, ElementwiseFactors, Linearization
from ...validation.rng import generator
from ...validation.scalars import positive, size
from ..gradient.curve import THRESHOLD, GrowthCurve
from ..gradient.growth import backward_growth, unit_vectors
from .bidirectional import diagnose_directions, is_bidirectional
from .levels import LEVELS, Declared, WeightFacts, forward_capable, simulated
from .result import Diagnosis
from .sequences import Diagnosable, ModelSequences, Sequences, as_sequences, check_model
from .streaming import Streamed, grid_lags, staggered_growth


def diagnose(
    model: Diagnosable | Linearization,
    x: Any = None,
    y: ArrayLike | None = None,
    *,
    h0: Any = None,
    loss: Any = None,
    start: ArrayLike | None = None,
    level: str = "full",
    input_mean: ArrayLike | None = None,
    input_sd: ArrayLike | None = None,
    input_autocorrelation: ArrayLike | None = None,
    length: int | None = None,
    threshold: float = THRESHOLD,
    vectors: int | None = None,
    max_sequences: int = 64,
    rng: int | np.random.Generator | None = None,
) -> Diagnosis:
    r"""Predict how gradients grow or decay over a sequence.

    Unit vectors at the last state are pulled back along trajectories, :math:`u_k \propto J_{T-k}^T u_{k-1}`, as
    backpropagation through time does; the logs of the growth in each step add up to a growth curve over lags. The
    curves of different sequences give Student t intervals for the gradient on *other* sequences of the same length,
    distribution and initial state. Sequences are added, 8, 16, 32, 64, until the verdict is decided at 99 % (from 16 on
    where tangents are pushed forward).

    Parameters
    ----------
    model : layer, network, or Linearization
        Anything with the methods of :class:`~elman.diagnostics.Diagnosable`; or the Jacobians of
        any network, such as a :class:`~elman.linearization.JacobianStack`.
    x : array_like, shape (T, n, D), or (n, T, D) for a batch-first model; or list of array_like, each (T, D)
        At least 2 sequences. Half of them, at most 32, are set aside for :meth:`Diagnosis.verify` if there are 4 or
        more. Leave out for a Linearization. Of :class:`~elman.datasets.Windows`, at most 256 are used, evenly
        spaced from the first to the last. Overlapping windows of one series are fewer independent sequences than
        windows: they make the intervals too narrow.
    y : ndarray, optional
        Labels, shape (n, Q) for the last step or with the first two axes of ``x`` and Q for every step; without the
        axis Q for a loss whose labels have none (``target_axes`` 0, as classes for cross entropy). With them, the
        gradient of the real loss at the last step is predicted too; without, that of a random combination of outputs.
    h0 : ndarray or tuple of ndarray, optional
        Initial states, shape (layers, n, H), as in training.
    loss : str or loss object, optional
        Which loss ``y`` belongs to, "mse" by default; passed to ``model.loss_start``. Refused without ``y``.
    start : array_like, shape (n, S), optional
        For a Linearization: gradients of your loss with respect to the last state, predicted along with random ones.
    level : {"full", "forward", "weights"}
        How the prediction is made. ``"full"`` runs the model on ``x`` and pulls vectors back, at the cost of one
        training step on the same sequences, about twice that with 4 vectors. ``"forward"`` pushes fresh tangent vectors
        from ``T - k``, for a few lags ``k``, to the end while the model runs, with 64 steps of the trajectory in memory
        at a time, at the cost of about two runs of the model and 2 to 3.7 of each vector; the curve is measured at
        these lags and interpolated between them. ``"weights"`` does the same on simulated inputs, without data or with
        a small sample of them. Only ``"full"`` predicts the gradient of the loss.
    input_mean, input_sd : array_like, shape (D,) or (), optional
        For ``level="weights"``: mean (0 by default) and standard deviation of each input channel. They are taken from
        ``x``, if that is given and one of them or the autocorrelation is declared. With nothing declared, ``x`` is a
        sample of inputs: sequences are made of stretches of it, so that they have its moments and correlations; of 4 or
        more sequences, half are set aside for :meth:`Diagnosis.verify`. Text and other correlated input is not white
        noise: give a sample. The report says how often each kind of prediction was right
        (``elman.diagnostics.diagnosis.track_record``).
    input_autocorrelation : array_like, shape (p,) or (p, D), optional
        For ``level="weights"``: autocorrelation of the inputs at lags 1 .. p, of all channels or each; 0 by default.
        Gaussian noise with this autocorrelation is simulated, with independent channels.
    length : int, optional
        For ``level="weights"``: steps ``T`` of a sequence; by default the length of ``x``.
    threshold : float, default log(100)
        Growth in nats over the whole sequence, either way, that counts as exploding or vanishing.
    vectors : int, optional
        Random unit vectors for each sequence, and for each lag of the grid at ``level="forward"`` and ``"weights"``: by
        default 4 (``"full"``, ``"weights"``) or 2 (``"forward"``).
    max_sequences : int, default 64
        Largest number of sequences used for the prediction; of a Linearization that has more, this many are drawn, and
        up to 32 of the others are set aside for :meth:`Diagnosis.verify`.
    rng : None, int or numpy.random.Generator
        Shuffles the sequences and draws the start vectors.

    Returns
    -------
    Diagnosis
        With ``verdict``, ``rate`` (nats per step) and ``rate_ci``, ``curve``, ``loss``, ``horizon``, ``causes``,
        ``prescription``; ``.verify()`` compares it with the measured gradient. A
        :class:`~elman.diagnostics.BidirectionalDiagnosis` for a bidirectional layer or network.

    Raises
    ------
    ArgumentError
        For an unknown level, numbers out of range, fewer than two sequences, a NaN or infinity in ``x``, ``y``, ``h0``
        or ``start``, and for what would have no effect: ``y`` for a layer without a readout, ``loss`` without ``y``, an
        argument of another level.
    DTypeError
        For masked arrays.
    ShapeError
        If ``x``, ``y``, ``h0`` and ``start`` do not fit together.
    NonFiniteError
        If a state, Jacobian or loss gradient is not finite.

    Notes
    -----
    The spectrum of the recurrent matrix does not decide whether gradients vanish: on trained networks its radius gives
    the wrong verdict more often than the right one. Only ``sigma_max(W_hh) max|phi'| < 1`` proves anything: decay.

    Exponents of long products were first studied by V. I. Oseledets (1968); the finite-time growth of gradients in
    recurrent networks by S. Hochreiter (1991), Y. Bengio, P. Simard and P. Frasconi (1994), and R. Pascanu, T. Mikolov
    and Y. Bengio (2013).
    """
    if not isinstance(level, str) or level not in LEVELS:
        names = ", ".join(f'"{name}" ({each.words})' for name, each in LEVELS.items())
        raise (ArgumentError if isinstance(level, str) else DTypeError)(f"level must be one of {names}; got {level!r}")
    plan = LEVELS[level]
    check_model(model)
    threshold = positive(threshold, "threshold", "nats (log(100) by default)")
    vectors = plan.vectors if vectors is None else size(vectors, "vectors")
    max_sequences = size(max_sequences, "max_sequences (intervals need a spread)", 2)
    declared = {
        "input_mean": input_mean, "input_sd": input_sd, "input_autocorrelation": input_autocorrelation,
        "length": length,
    }  # fmt: skip
    _check_level(level, declared, {"y": y, "start": start, "loss": loss})
    if loss is not None and y is None:
        raise ArgumentError("loss says what labels y are for, and there is no y: give y, or leave loss out")
    if is_bidirectional(model):
        options = {
            "h0": h0, "loss": loss, "start": start, "threshold": threshold, "vectors": vectors,
            "max_sequences": max_sequences, **declared,
        }  # fmt: skip
        return diagnose_directions(model, x, y, level, rng, diagnose, options)  # type: ignore[arg-type]
    rng = generator(rng)
    facts: WeightFacts | None = None
    reserved: Sequences | None
    batches: Iterator[Sequences]
    if level == "weights":
        told = Declared(input_mean, input_sd, input_autocorrelation, length)
        made, facts, reserved = simulated(model, x, h0, told, max_sequences, rng)
        batches = made.split(rng, plan.first, max_sequences, reserve=False)[0]
    else:
        sequences = as_sequences(model, x, y, h0, "mse" if loss is None else loss, start)
        if level == "forward":
            forward_capable(sequences)
        batches, reserved = sequences.split(rng, plan.first, max_sequences)
    observed = _Observations(threshold)
    for batch in batches:
        if level == "full":
            observed.pull(batch, vectors, rng)
        else:
            observed.push(batch, vectors, rng)
        curves = observed.curves()
        if all(curve.verdict != "undecided" for curve in curves):
            break
    # one more batch: trials of a change need 16 sequences even where 8 decided
    spare: list[Sequences] = list(islice(batches, 1))
    curve, *others = curves
    return Diagnosis(
        curve=curve,
        loss=others[0] if others else None,
        level=level,
        facts=facts,
        state_size=observed.state_size,
        dtype=observed.dtype,
        _form=observed.form,
        _factors=tuple(observed.factors),
        _predicted=(*observed.batches, *spare),
        _reserved=reserved,
        _seed=int(rng.integers(2**63)),
    )


def _check_level(level: str, declared: dict[str, Any], labels: dict[str, Any]) -> None:
    """Refuse arguments that this level would not use."""
    for name, value in declared.items():
        if value is not None and level != "weights":
            raise ArgumentError(f'{name} is declared for level="weights"; at level="{level}" it comes from the data')
    for name, value in labels.items():
        if value is not None and level != "full":
            raise ArgumentError(
                f'{name} belongs to level="full": at level="{level}" random tangents are pushed forward, whatever the '
                "loss or the start vectors"
            )


class _Observations:
    """Growth curves, and the factors from which causes are found, collected batch by batch."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.state_size = 0
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self.batches: list[Sequences] = []
        self.form: ElementwiseFactors | None = None
        self.factors: list[tuple[ElementwiseFactors, Array]] = []
        self._grid: Array | None = None
        self._random: list[Array] = []
        self._loss: list[Array] = []
        self._loss_name = ""

    def pull(self, batch: Sequences, vectors: int, rng: np.random.Generator) -> None:
        """Pull back random vectors and the start of the loss along the trajectories of one batch, in one sweep."""
        lin = batch.linearize()
        loss = batch.loss_start(rng, lin)
        random = unit_vectors(rng, lin.n_sequences, vectors, lin.state_size)
        starts = random
        if loss is not None:
            self._loss_name, start = loss
            starts = np.concatenate([random, np.asarray(start, dtype=np.float64)[:, None]], axis=1)
        logs = backward_growth(lin, starts)
        self._note(batch, lin, logs[..., :vectors])
        if loss is not None:
            self._loss.append(logs[..., vectors:])
        factors = lin.factors
        if factors is not None:
            self.form = factors
            self.factors.append((factors, random))

    def push(self, batch: Sequences, vectors: int, rng: np.random.Generator) -> None:
        """Push random tangents forward to the end of the trajectories of one batch, from a grid of lags."""
        lin: Linearization
        if isinstance(batch, ModelSequences):
            lin = Streamed(batch)
            self.form = lin.form
        else:
            lin = batch.linearize()
            self.form = lin.factors
        self._grid = grid_lags(lin.n_steps)
        self._note(batch, lin, staggered_growth(lin, self._grid, vectors, rng))

    def _note(self, batch: Sequences, lin: Linearization, random: Array) -> None:
        self.state_size, self.dtype = lin.state_size, np.dtype(lin.dtype)
        self.batches.append(batch)
        self._random.append(random)

    def curves(self) -> list[GrowthCurve]:
        """The curve of random starts and, if there is a loss, its own."""
        random = np.concatenate(self._random, axis=1)
        if self._grid is not None:
            return [GrowthCurve.from_grid(self._grid, random, "random", self.threshold)]
        out = [GrowthCurve(random, "random", self.threshold)]
        if self._loss:
            out.append(GrowthCurve(np.concatenate(self._loss, axis=1), self._loss_name, self.threshold))
        return out
