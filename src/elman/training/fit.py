"""Training by mini-batches and backpropagation through time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError, DTypeError
from ..layers.trace import spacing
from ..losses import Loss, get_loss
from ..validation.rng import generator
from ..validation.scalars import flag, real, size
from ..validation.words import kind, model_cure
from .callbacks import Callback
from .history import History
from .loop import Training
from .model import Model, check_finite, check_model, trace_options
from .optimizer import Optimizer
from .optimizers import Adam
from .samples import Samples


def fit(
    net: Model,
    x: Any,
    y: Any,
    *,
    loss: str | Loss = "mse",
    optimizer: Optimizer | None = None,
    epochs: int = 100,
    batch_size: int = 32,
    clip_norm: float | None = 1.0,
    truncation: int | None = None,
    checkpoint: bool | int = False,
    lengths: ArrayLike | None = None,
    reset: ArrayLike | None = None,
    validation: tuple[Any, ...] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    rng: int | np.random.Generator | None = None,
) -> History:
    """Train a network in place.

    Parameters
    ----------
    net : elman.Network or another :class:`~elman.training.Model`
        Its ``theta`` is updated.
    x : array_like, shape (T, N, D), or (N, T, D) with ``batch_first``, or (T, D) for one sequence
        Inputs, of a floating dtype; converted to the dtype of the network. (N, D) for a network without time. A list
        holds one sequence (T_i, D) an item, of any lengths: arrays, tensors, data frames or nested lists.
    y : array_like
        Targets: with a time axis, (T, N, Q), the loss sees every step; without, (N, Q), the last step only. For
        ``"cross_entropy"``, integer classes of shape (T, N) or (N,). A single sequence has no axis N. For a list x, a
        list of targets for every step of each sequence, or an array of those for the last.
    loss : {"mse", "cross_entropy"} or object, default "mse"
        Name, or an object with ``value_and_gradient(output, target)`` as :class:`~elman.losses.Loss` describes it.
    optimizer : Optimizer, optional
        A new ``Adam(1e-3)`` by default. An optimizer that has been used continues where it stopped.
    epochs : int, default 100
        Passes through the data.
    batch_size : int, default 32
        Samples per update. Batches are drawn along the batch axis without replacement, anew in each epoch.
    clip_norm : float or None, default 1.0
        A gradient whose norm over all parameters exceeds this is scaled down to it. None does not clip.
    truncation : int, optional
        Truncated backpropagation through time: sequences are cut into windows of this many steps, with one update per
        window. The state is carried from window to window, the gradient is not. Windows without a target only carry.
    checkpoint : bool or int, default False
        Keep the states of some steps only, and make the others again on the way back: less memory for long sequences,
        the same bits. True chooses the number; see :meth:`RNN.trace`.
    lengths : array_like of int, shape (N,), optional
        Valid steps of each sequence. The loss counts those alone, or the last of them; what x and y hold beyond is
        never read, and may be NaN. A sequence of length 0 has nothing to learn from.
    reset : array_like of bool, shape of x without its last axis, optional
        True where a sequence starts anew before the step: several recordings in one row.
    validation : (x, y) or (x, y, lengths), optional
        Held-out data, whose loss is computed after each epoch, without dropout or the like.
    callbacks : sequence of callables, optional
        Each receives an :class:`~elman.training.Update` after every update. Training ends if one returns True.
    progress : bool, default True
        Whether to show a bar over the epochs.
    rng : None, int or numpy.random.Generator
        Source of the order of the samples. The same seed gives the same bits.

    Returns
    -------
    History
        Losses, gradient norms, and how it ended. Ctrl-C in the main thread lets the current update finish and returns
        what there is, with ``interrupted`` set; a second Ctrl-C raises KeyboardInterrupt.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If an argument does not fit; nothing has been changed.
    NonFiniteError
        If a parameter, state, loss, gradient or update is not finite. Parameters and optimizer are as the last complete
        update left them. Its ``step`` and ``sample`` count along the axes of ``x``.

    Notes
    -----
    An epoch's loss is the mean over all targets: batches and windows count by the number of their targets, so it does
    not depend on how the data were split, except that the parameters change on the way.
    """
    check_model(net)
    check_finite(net)
    progress = flag(progress, "progress")
    epochs, batch_size = size(epochs, "epochs"), size(batch_size, "batch_size")
    truncation = None if truncation is None else size(truncation, "truncation")
    if clip_norm is not None and not real(clip_norm, "clip_norm") > 0.0:
        raise ArgumentError(f"clip_norm must be positive, or None for no clipping, got {clip_norm!r}")
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise DTypeError(f"callbacks must be a sequence of callables, such as (callback,), got {callbacks!r}")
    if validation is not None and not (isinstance(validation, (tuple, list)) and len(validation) in (2, 3)):
        raise DTypeError(f"validation must be (x, y) or (x, y, lengths), got {type(validation).__name__}")
    if truncation is not None and getattr(net, "bidirectional", False):
        raise ArgumentError(
            "truncation must be None for a bidirectional network: its backward direction comes from the end of the "
            "sequence, which a window does not see"
        )
    if spacing(checkpoint, 1) and "checkpoint" not in trace_options(net):
        raise ArgumentError(f"checkpoint must be left out: the trace of {type(net).__name__} takes none")
    loss = get_loss(loss)
    optimizer = Adam(1e-3) if optimizer is None else optimizer
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(
            f"optimizer must be an Optimizer such as elman.Adam(1e-3), got {kind(optimizer)}{model_cure(optimizer)}"
        )
    samples = Samples(net, x, y, loss, truncation, lengths, reset)
    held_out = None
    if validation is not None:
        held_lengths = validation[2] if len(validation) == 3 else None
        held_out = Samples(net, validation[0], validation[1], loss, None, held_lengths, prefix="validation ")
    rng = generator(rng)
    training = Training(
        net, loss, optimizer, samples, held_out, batch_size, clip_norm, tuple(callbacks), rng, checkpoint
    )  # fmt: skip
    training.run(epochs, progress)
    return training.history
