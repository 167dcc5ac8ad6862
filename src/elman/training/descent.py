"""One update: forward and backward through some pieces, gradients put together, clipped, and applied."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import NonFiniteError
from ..layers.engine.buffers import Buffers
from ..losses import Loss, checked, is_own
from ..validation.arrays import all_finite
from .clipping import global_norm, scale
from .faults import gradient_error, loss_error, placed
from .model import Gradients, Model, trace_options
from .optimizer import Optimizer
from .penalties import Penalties, Regularizer
from .samples import Draw, Piece
from .selection import backward_options, places
from .tally import Tally

Array = NDArray[Any]


@dataclass(frozen=True)
class Options:
    """How updates are made; as :func:`elman.fit` describes them.

    Attributes
    ----------
    frozen : frozenset of str
        Names of the parameters that are not trained.
    """

    clip_norm: float | None = None
    clip_value: float | None = None
    checkpoint: bool | int = False
    frozen: frozenset[str] = frozenset()
    regularizers: tuple[Regularizer, ...] = ()
    schedule: Any = None


class Done(NamedTuple):
    """An update that was made; piece, state and samples are those of the last of its batches."""

    value: float
    norm: float
    penalty: float
    gradients: Gradients
    piece: Piece
    state: Any
    samples: Array


class Descent:
    """What makes updates, with what it keeps between them."""

    def __init__(
        self, model: Model, loss: Loss, optimizer: Optimizer, options: Options, rng: np.random.Generator
    ) -> None:
        self.model, self.loss, self.optimizer, self.options = model, loss, optimizer, options
        self._max_norm = math.inf if options.clip_norm is None else options.clip_norm
        self._frozen = places(model, options.frozen)
        self._penalties = Penalties(options.regularizers, model) if options.regularizers else None
        self._sum = np.zeros_like(model.theta)
        self._spread: dict[tuple[int, ...], Array] = {}
        arguments = trace_options(model)
        # memory used again by every update: fresh pages would cost more than the arithmetic of a middle-sized network
        kept = {"buffers": Buffers()} if "buffers" in arguments else {}
        self._backward: dict[str, Any] = kept | backward_options(model, options.frozen)
        # an evaluation needs no state at all, but would fill the same memory with every one
        shared: dict[str, Any] = kept | ({"checkpoint": options.checkpoint} if options.checkpoint else {})
        self._training, self.evaluation = shared, dict(shared)
        if "training" in arguments:
            self._training |= {"training": True, "rng": rng}
            self.evaluation |= {"training": False}

    def update(
        self,
        group: Sequence[Draw],
        pieces: Sequence[Piece | None],
        states: list[Any],
        tally: Tally,
        place: str,
        lr: Any,
    ) -> Done | None:
        """One update from the same window of every batch in a group, as if those were one batch.

        Parameters
        ----------
        group : sequence of Draw
        pieces : sequence of Piece or None
            Of each batch its window; None of a batch that has ended.
        states : list
            Of each batch the state that its window starts from; those of the next windows are put in their places.
        tally : Tally
            Grows by the losses.
        place : str
            Where in the training this is, for messages.
        lr : callable
            Gives the learning rate of the update, or None to leave it.

        Returns
        -------
        Done or None
            None where no batch has a target in this window.
        """
        total = sum(piece.amount for piece in pieces if piece is not None)
        alone = len(group) == 1
        value = penalty = 0.0
        last: tuple[Gradients, Piece, Any, Array] | None = None
        if not alone:
            self._sum[...] = 0
        for i, piece in enumerate(pieces):
            if piece is None:
                continue
            samples, state = group[i].samples, states[i]
            with _placed(place, piece, samples):
                if piece.target is None:
                    states[i] = self._carried(piece, state)
                    continue
                gradients, states[i], own, added = self.gradient(piece, state, tally)
            last = gradients, piece, state, samples
            if alone:
                value, penalty = own, added
            else:
                share = piece.amount / total
                value, penalty = value + share * own, penalty + share * added
                self._sum += np.multiply(gradients.theta, share, dtype=self._sum.dtype)
        if last is None:
            return None
        with _placed(place, last[1], last[3]):
            if not alone:
                last[0].theta[...] = self._sum
            norm = self._step(last[0].theta, lr)
        return Done(value, norm, penalty, *last)

    def _carried(self, piece: Piece, state: Any) -> Any:
        """The state that the next window starts from."""
        x, options = piece.onward or (piece.x, piece.options)
        return self.model.trace(x, state, **options, **self._training).hn

    def gradient(self, piece: Piece, state: Any, tally: Tally) -> tuple[Gradients, Any, float, float]:
        """Gradient of a piece, the state of the next one, its loss, and the penalties."""
        trace = self.model.trace(piece.x, state, **piece.options, **self._training)
        carried, penalty = trace.hn, 0.0
        options: dict[str, Any] = {}
        value, d_output = self.loss_of(trace.output, piece, tally)
        if piece.output is not ...:
            d_output = self._spread_over(trace.output, d_output, piece)
        if self._penalties is not None:
            penalty, options = self._penalties.of(trace)
            if "d_states" in options:
                options |= {"readout_only": False} if "readout_only" in self._backward else {}
        gradients = self.model.backward(trace, d_output, **(self._backward | options))
        if self._penalties is not None:
            gradients.theta[...] += self._penalties.d_theta
        for frozen in self._frozen:
            gradients.theta[frozen] = 0
        if piece.onward is not None:
            carried = state if not piece.onward.x.size else self._carried(piece, state)
        return gradients, carried, value, penalty

    def loss_of(self, output: Array, piece: Piece, tally: Tally) -> tuple[float, Array]:
        """The loss and its derivative at the outputs that have a target; a refusal if they are not finite."""
        assert piece.target is not None
        chosen = output[piece.output]
        weight = () if piece.weight is None else (piece.weight,)
        value, d_output = checked(self.loss, chosen, piece.target, *weight)
        if not math.isfinite(value) or not (is_own(self.loss) or all_finite(d_output)):
            raise loss_error(self.loss, value, d_output, chosen, output, self.model)
        tally.add(value, chosen, piece)
        return value, d_output

    def _spread_over(self, output: Array, d_output: Array, piece: Piece) -> Array:
        """Put the derivative by the outputs that have a target among zeros for the others, in a kept buffer."""
        spread = self._spread.get(output.shape)
        if spread is None:
            spread = self._spread[output.shape] = np.empty(output.shape, output.dtype)
        spread[...] = 0
        spread[piece.output] = d_output
        return spread

    def _step(self, gradient: Array, lr: Any) -> float:
        """Clip, and apply to the parameters; nothing is changed unless all of it is finite."""
        norm = global_norm(gradient)
        if not math.isfinite(norm):
            raise gradient_error(norm, gradient, self.model)
        if norm > self._max_norm:
            scale(gradient, self._max_norm / norm)
        if self.options.clip_value is not None:
            np.clip(gradient, -self.options.clip_value, self.options.clip_value, out=gradient)
        rate = lr()
        if rate is not None:
            self.optimizer.lr = rate
        if self._frozen:
            self.optimizer.apply(self.model.theta, gradient, self._frozen)
        else:
            self.optimizer.apply(self.model.theta, gradient)
        return norm


@contextmanager
def _placed(place: str, piece: Piece, samples: Array) -> Iterator[None]:
    """An error with its place in the training and the data."""
    try:
        yield
    except NonFiniteError as error:
        raise placed(error, place, piece.window.start, samples) from error
