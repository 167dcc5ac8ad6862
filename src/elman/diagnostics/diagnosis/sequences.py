"""What a diagnosis needs from a model, and the sequences that it is made on.

Diagnostics do not depend on layers. They need three methods of a model, defined in :class:`Diagnosable`, or the
Jacobians of any other network as a :class:`~elman.linearization.Linearization`. Two small classes give both the same
interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError, NonFiniteError, ShapeError
from ...linearization import Array, Linearization
from ...norms import row_norms
from ...states import mapped, parts
from ...targets import positions, target_axes
from ...validation.arrays import finite, finite_numbers, real_numbers
from ...validation.sequences import side_by_side
from ...validation.words import kind, model_cure
from ...windows import spread
from ..trajectories import trajectories
from .chosen import Chosen

MOST_RESERVED = 32
MOST_WINDOWS = 256
"""Largest number of windows of a series that are used, evenly spaced: more would mostly repeat each other's steps."""


@runtime_checkable
class Diagnosable(Protocol):
    """A model whose gradients can be predicted and measured."""

    @property
    def batch_axis(self) -> int:
        """Axis of ``x`` that holds the sequences: 1 for (T, n, D), 0 for (n, T, D)."""

    def linearize(self, x: Any, h0: Any = None) -> Linearization:
        """Run the model on ``x`` from ``h0`` and return the Jacobians of its ``n`` trajectories."""

    def loss_start(
        self, x: Any, y: Any = None, *, loss: Any = None, h0: Any = None, rng: Any = None, lin: Any = None
    ) -> Array | None:
        """Gradient of the loss at the last step with respect to the last state, shape (n, S).

        With labels, that of the real loss; without, ``W_out^T e`` with random ``e``. None if the model has no readout.
        ``lin`` is the result of :meth:`linearize` for the same ``x`` and ``h0``, and may save a run of the model.
        """

    def measure_gradient(self, x: Any, start: Array, h0: Any = None) -> Array:
        """Log norms (T + 1, n) by lag of the gradient that training would see, pulled back from ``start`` (n, S).

        Computed by the kernels of training; entry 0 is ``log |start|``, -inf where the gradient is exactly 0, +inf or
        NaN from where it overflows: an overflow is a result here, not an error. ``start`` may be float64 throughout.
        """


@runtime_checkable
class Adjustable(Protocol):
    """A recurrent layer that can be streamed, split into paths and changed: the model or its attribute ``layer``.

    Needed for ``level="forward"`` and ``"weights"``, :meth:`Diagnosis.explain` and :meth:`Diagnosis.prescribe`.
    Copies of it are made by :func:`copy.deepcopy`.
    """

    @property
    def input_size(self) -> int:
        """Numbers in each step's input."""

    @property
    def levers(self) -> Mapping[str, Literal["keep", "renew"] | None]:
        """What :meth:`change` can change, by name.

        ``"recurrent"``, and the bias of each gate that multiplies the old state, such as ``"forget_bias"``, with what
        an open gate does to that state: ``"keep"`` or ``"renew"``. Without such a gate, ``"bias"``: all biases
        together. The value of ``"recurrent"`` and of ``"bias"`` is None.
        """

    def final_state(self, x: Any, h0: Any = None) -> Any:
        """The state after the last step, from which the next piece of a sequence continues."""

    def paths(self, x: Any, h0: Any = None) -> Mapping[str, Linearization]:
        """Linearizations along one set of trajectories, from which one path after another is removed.

        The first has every path; each further one also lacks the path of its name; the last has only what states carry
        past all of these paths.
        """

    def change(self, lever: str, amount: float) -> None:
        """Multiply the recurrent weights by ``amount``, or add it to a bias, in place."""


def recurrent_part(model: Any) -> Adjustable | None:
    """The part of a model that can be changed; None if it has none."""
    part = getattr(model, "layer", model)
    return part if isinstance(part, Adjustable) else None


@dataclass(frozen=True, eq=False)
class ModelSequences:
    """Input sequences of one length together with the model that runs on them.

    Attributes
    ----------
    model : Diagnosable
    x : ndarray, shape (T, n, D) or (n, T, D)
    y : ndarray or None
        Labels: (n, ...) for the last step, or the first two axes of ``x`` and further ones for every step.
    h0 : ndarray, tuple of ndarray or None
        Initial state, shape (layers, n, H).
    loss : object
        Passed to ``model.loss_start``.
    """

    model: Diagnosable
    x: Array
    y: Array | None
    h0: Any
    loss: Any

    @property
    def n(self) -> int:
        """Number of sequences."""
        return int(self.x.shape[self.model.batch_axis])

    def take(self, which: Array) -> ModelSequences:
        """The sequences of these indices, with their labels and initial states."""
        axis = self.model.batch_axis
        y = None if self.y is None else np.take(self.y, which, axis=axis if self.labels_every_step else 0)
        h0 = mapped(lambda h: np.take(h, which, axis=1), self.h0)
        return replace(self, x=np.take(self.x, which, axis=axis), y=y, h0=h0)

    @property
    def labels_every_step(self) -> bool:
        """Whether there are labels for every step, rather than for the last or none."""
        return self.y is not None and self.y.ndim == 2 + target_axes(self.loss)

    @property
    def n_steps(self) -> int:
        """Length of the sequences."""
        return int(self.x.shape[1 - self.model.batch_axis])

    def changed(self, lever: str, amount: float) -> ModelSequences:
        """The same sequences with a copy of the model in which one thing is changed; see :class:`Adjustable`."""
        twin = deepcopy(self.model)
        part = recurrent_part(twin)
        assert part is not None
        part.change(lever, amount)
        return replace(self, model=twin)

    def scaled(self, factor: float) -> ModelSequences:
        """The same sequences with inputs multiplied by ``factor``."""
        return replace(self, x=self.x * self.x.dtype.type(factor))

    def window(self, t0: int, t1: int) -> Array:
        """Inputs of steps t0 .. t1 - 1."""
        return self.x[t0:t1] if self.model.batch_axis == 1 else self.x[:, t0:t1]

    def split(
        self, rng: np.random.Generator, first: int, most: int, reserve: bool = True
    ) -> tuple[Iterator[ModelSequences], ModelSequences | None]:
        """Shuffle; return batches of ``first``, then as many as so far, up to ``most``, and those set aside."""
        order = rng.permutation(self.n)
        kept = min(MOST_RESERVED, self.n // 2) if reserve and self.n >= 4 else 0
        available = min(most, self.n - kept)
        edges = [0]
        while edges[-1] < available:
            edges.append(min(available, max(first, 2 * edges[-1])))
        batches = (self.take(order[a:b]) for a, b in pairwise(edges))
        return batches, self.take(order[self.n - kept :]) if kept else None

    def linearize(self) -> Linearization:
        """Jacobians along the trajectories."""
        return self.model.linearize(self.x, self.h0)

    def loss_start(self, rng: np.random.Generator, lin: Linearization | None = None) -> tuple[str, Array] | None:
        """Name and value (n, S) of the start vector of the loss; None without a readout, where labels are refused."""
        start = self.model.loss_start(self.x, self.y, loss=self.loss, h0=self.h0, rng=rng, lin=lin)
        if start is None:
            if self.y is not None:
                raise ArgumentError(
                    f"y holds labels, whose loss needs the output of a readout, which {type(self.model).__name__} "
                    "does not have: put the layer into a network, "
                    "elman.Network(layer, elman.Readout(layer.output_size, Q)), or leave y out"
                )
            return None
        if not np.isfinite(start).all():
            sample = int(np.argwhere(~np.isfinite(start))[0, 0])
            raise NonFiniteError(
                f"the gradient of the loss with respect to the last state is not finite (sequence {sample}); check the "
                "labels and the size of the outputs",
                what="gradient",
                sample=sample,
            )
        return ("readout" if self.y is None else "loss"), start

    def measure(self, start: Array) -> Array:
        """Log norms (T + 1, n) of the gradient of training from ``start`` (n, S)."""
        return np.asarray(self.model.measure_gradient(self.x, start, self.h0), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class GivenJacobians:
    """Trajectories known only by their Jacobians, with start vectors (n, S) if the user gave some."""

    lin: Linearization
    start: Array | None

    @property
    def n(self) -> int:
        """Number of trajectories."""
        return self.lin.n_sequences

    def take(self, which: Array) -> GivenJacobians:
        """The trajectories of these indices, with their start vectors."""
        return GivenJacobians(Chosen(self.lin, which), None if self.start is None else self.start[which])

    def split(
        self, rng: np.random.Generator, first: int, most: int, reserve: bool = True
    ) -> tuple[Iterator[GivenJacobians], GivenJacobians | None]:
        """All at once; if there are more than ``most``, this many drawn from them, and others held out to verify."""
        if self.n <= most:
            return iter([self]), None
        order = rng.permutation(self.n)
        kept = order[most : most + MOST_RESERVED]
        return iter([self.take(order[:most])]), self.take(kept) if reserve and len(kept) > 1 else None

    def linearize(self) -> Linearization:
        """The Jacobians as given."""
        return self.lin

    def loss_start(self, rng: np.random.Generator, lin: Linearization | None = None) -> tuple[str, Array] | None:
        """The given start vectors."""
        return None if self.start is None else ("given", self.start)

    def measure(self, start: Array) -> Array:
        """Log norms (T + 1, n) of the plain product of Jacobians, as backpropagation forms it, unscaled."""
        norms = np.empty((self.lin.n_steps + 1, self.n, 1))
        with np.errstate(all="ignore"):
            norms[0, :, 0] = row_norms(start)
            self.lin.vjp(start[:, None], norms=norms[1:])
            out: Array = np.log(norms[..., 0])
        return out


Sequences = ModelSequences | GivenJacobians


def as_sequences(model: Any, x: Any, y: ArrayLike | None, h0: Any, loss: Any, start: ArrayLike | None) -> Sequences:
    """Check the arguments of a diagnosis against each other and bring them into one form.

    Raises
    ------
    ArgumentError
        For a model of another kind, arguments that do not go together, fewer than two sequences, or a number that is
        not finite.
    DTypeError
        For masked arrays.
    ShapeError
        If ``x``, ``y``, ``h0`` or ``start`` do not have one entry for each sequence.
    """
    if isinstance(model, Linearization):
        return _given(model, {"x": x, "y": y, "h0": h0}, start)
    check_model(model)
    if start is not None:
        raise ArgumentError("start belongs to a Linearization; a model gives its own start vectors (labels y, readout)")
    if x is None:
        raise ArgumentError("x must be one array of sequences, or a list of sequences of one length, got None")
    axis = model.batch_axis
    few = spread(x, axis, MOST_WINDOWS)
    if few is not None:
        every = (slice(None),) * axis
        if y is not None:
            y = np.asarray(y)
            y = y[(*every, few)] if y.shape[:2] == x.shape[:2] else y[few] if len(y) == x.shape[axis] else y
        h0 = mapped(lambda h: np.asarray(h)[:, few] if np.shape(h)[1:2] == (x.shape[axis],) else h, h0)
        x = np.asarray(x)[(*every, few)]
    array = real_numbers(side_by_side(x, "x", axis), "x")
    if array.ndim not in (2, 3):
        raise ShapeError(f"x must have three axes, sequences along axis {axis}; got shape {array.shape}")
    n = 1 if array.ndim == 2 else array.shape[axis]
    if n < 2:
        raise ArgumentError(
            f"x must hold at least 2 sequences, got {n} (shape {array.shape}): intervals come from the differences "
            "between sequences. Cut one long series into windows (elman.datasets.windows); 16 or more allow a "
            "verification"
        )
    if array.shape[1 - axis] == 0:
        raise ArgumentError(f"x must have at least one time step, got shape {array.shape}")
    finite(array, "x")
    labels = None if y is None else side_by_side(y, "y", axis, 1 + target_axes(loss))
    if labels is not None:
        labels = real_numbers(labels, "y")
        positions(labels.shape, "y", array.shape[:2], (n,), target_axes(loss))
        finite(labels, "y")
    return ModelSequences(model, array, labels, _states(h0, n), loss)


def check_model(model: Any) -> None:
    """Refuse what is neither a model nor a linearization.

    Raises
    ------
    ArgumentError
        The message says what it was, and what to do.
    """
    if isinstance(model, type) or not isinstance(model, Diagnosable | Linearization):
        raise ArgumentError(
            "model must be a layer or network of elman, or a Linearization such as JacobianStack made from the "
            f"Jacobians of any other network; got {kind(model)}{model_cure(model)}"
        )


def _states(h0: Any, n: int) -> Any:
    """Check the initial states of ``n`` sequences, one array or a tuple of them."""
    h0 = mapped(lambda h: real_numbers(h, "h0"), h0)
    for h in parts(h0):
        if h.ndim != 3 or h.shape[1] != n:
            swapped = h.ndim == 3 and h.shape[0] == n
            cure = "; sequences are its second axis with batch_first too: h0.swapaxes(0, 1)" if swapped else ""
            raise ShapeError(f"h0 must have shape (layers, {n}, H), one state for each sequence; got {h.shape}{cure}")
        finite(h, "h0")
    return h0


def _given(lin: Linearization, others: dict[str, Any], start: ArrayLike | None) -> GivenJacobians:
    """Check the arguments given with a linearization."""
    for name, value in others.items():
        if value is not None:
            raise ArgumentError(
                f"{name} has no meaning with a Linearization, which holds its trajectories; leave it out"
            )
    trajectories(lin, "diagnose", sequences=0)
    if lin.n_sequences < 2 or lin.n_steps < 1:
        raise ArgumentError(
            f"a Linearization must hold at least 2 sequences of at least 1 step, got {lin.n_sequences} of "
            f"{lin.n_steps}: intervals come from the differences between sequences. Cut one long series into windows "
            "(elman.datasets.windows)"
        )
    vectors = None if start is None else finite_numbers(start, "start")
    if vectors is not None and vectors.shape != (lin.n_sequences, lin.state_size):
        raise ShapeError(
            f"start must have shape (n, S) = {(lin.n_sequences, lin.state_size)}, one gradient with respect to the "
            f"last state for each sequence; got {vectors.shape}"
        )
    return GivenJacobians(lin, vectors)


def require_same(pairs: dict[str, tuple[Any, Any]]) -> None:
    """Refuse sequences to verify that lack an argument that the prediction had."""
    for name, (before, now) in pairs.items():
        if before is not None and now is None:
            raise ArgumentError(f"the prediction was made with {name}; give {name} for these sequences too")


def refuse_unused(name: str, value: Any, predicted: Any) -> None:
    """Refuse an argument that starts a gradient, if no growth from such a start was predicted."""
    if value is not None and predicted is None:
        raise ArgumentError(
            f"{name} says where a gradient starts, and the prediction was made from random starts alone: leave {name} "
            "out, or give it to diagnose as well (where the model has a readout)"
        )
