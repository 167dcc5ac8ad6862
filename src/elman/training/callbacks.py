"""What a callback is told after each update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .history import History
from .model import Gradients, Model
from .optimizer import Optimizer

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Update:
    """One update of the parameters, just done.

    Arrays belong to the training loop and change with the next update: copy what you keep.

    Attributes
    ----------
    epoch : int
        Epoch, counted from 0.
    step : int
        Update, counted from 0 through all epochs.
    loss : float
        Loss of this batch and window, before the update.
    gradient_norm : float
        Euclidean norm of the whole gradient before clipping.
    model : Model
        The network, with its new parameters.
    optimizer : Optimizer
        Its ``lr`` may be assigned, for a schedule.
    gradients : Gradients
        What ``model.backward`` returned; its ``theta`` is the clipped gradient.
    x, y : ndarray
        The inputs of the window, and its targets; with lengths, the valid ones, one after the other.
    options : dict
        ``lengths`` and ``reset`` of the window, where the data have them: ``model.trace(x, state, **options)``.
    state : object
        State that the window started from; None is the model's own initial state.
    samples : ndarray of intp, shape (B,)
        Indices of the batch along the batch axis of the data.
    history : History
        The record so far.
    epoch_ended : bool
        Whether this was the last update of its epoch. Then the epoch's loss and validation loss are the last entries of
        ``history.loss`` and ``history.validation_loss``.
    metrics : dict of str to float
        Metrics of the epoch that has ended; empty before its end.
    rng : numpy.random.Generator or None
        Source of the order of the samples and of dropout: its state at the end of an epoch is all the randomness that
        a resumed training needs.
    trainer_state : callable
        At the end of an epoch it returns a dict of plain values and arrays, from which, with network, optimizer,
        history and rng, ``fit(..., resume=)`` goes on: see :class:`ModelCheckpoint`.
    weight : ndarray or None
        Weight of each target in ``y``.
    penalty : float
        Sum of the penalties of the regularisers; not in ``loss``.

    Notes
    -----
    With ``accumulate``, ``x``, ``y``, ``weight``, ``options``, ``state`` and ``samples`` are those of the last of the
    batches; loss, norm and gradient are of all.
    """

    epoch: int
    step: int
    loss: float
    gradient_norm: float
    model: Model
    optimizer: Optimizer
    gradients: Gradients
    x: Array
    y: Array
    options: dict[str, Array]
    state: Any
    samples: NDArray[np.intp]
    history: History
    epoch_ended: bool
    metrics: dict[str, float] = field(default_factory=dict)
    rng: np.random.Generator | None = None
    trainer_state: Callable[[], dict[str, Any]] = dict
    weight: Array | None = None
    penalty: float = 0.0


class TrainingInfo(NamedTuple):
    """What a callback's ``begin`` is told: the epochs of the whole run, and the record that a resumed run continues."""

    model: Model
    optimizer: Optimizer
    epochs: int
    history: History


#: Called after each update; training ends if it returns True. A callback with a method ``begin(info)`` or
#: ``end(history, net)`` is also told that training begins or has ended, however it did; the state of one with
#: ``state_dict()`` and ``load_state_dict(state)`` goes into a checkpoint. One with ``runs_last = True`` is told after
#: all others.
Callback = Callable[[Update], bool | None]
