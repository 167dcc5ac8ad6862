"""Training by mini-batches and backpropagation through time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..losses import Loss, get_loss
from ..validation.rng import generator
from ..validation.scalars import flag, size
from .callbacks import Callback
from .data import training_data, updates, validation_data
from .descent import Options
from .history import History
from .loop import Plan, Training
from .model import Model, check_finite, check_model
from .optimizer import Optimizer
from .penalties import Regularizer, checked_regularizers
from .resume import Progress, Saved
from .schedules import Schedule
from .selection import frozen_names
from .settings import (
    checked_callbacks,
    checked_clipping,
    checked_metrics,
    checked_optimizer,
    checked_passes,
    checked_schedule,
)  # fmt: skip
from .weights import checked_missing


def fit(
    net: Model,
    x: Any,
    y: Any = None,
    *,
    loss: str | Loss = "mse",
    optimizer: Optimizer | None = None,
    epochs: int = 100,
    batch_size: int = 32,
    clip_norm: float | None = 1.0,
    truncation: int | tuple[int, int] | None = None,
    checkpoint: bool | int = False,
    lengths: ArrayLike | None = None,
    reset: ArrayLike | None = None,
    validation: Any = None,
    sample_weight: Any = None,
    missing: str = "refuse",
    train: str | Sequence[str] | None = None,
    clip_value: float | None = None,
    accumulate: int = 1,
    metrics: Sequence[Any] = (),
    regularizers: Sequence[Regularizer] = (),
    schedule: str | Schedule | None = None,
    resume: Any = None,
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
        :class:`~elman.datasets.Windows`, and maps of files, are read a batch at a time. Without y, any iterable of
        batches (x, y) or (x, y, sample_weight) that begins anew for each epoch.
    y : array_like, optional
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
    truncation : int or (int, int), optional
        Truncated backpropagation through time: sequences are cut into windows of this many steps, with one update per
        window. The state is carried from window to window, the gradient is not. Windows without a target only carry.
        Two numbers are the steps from one update to the next and those that its gradient goes back, BPTT(h; h') of
        Williams & Peng (Neural Computation 2, 1990): each target counts once, and the steps before it are run again.
    checkpoint : bool or int, default False
        Keep the states of some steps only, and make the others again on the way back: less memory for long sequences,
        the same bits. True chooses the number; see :meth:`RNN.trace`.
    lengths : array_like of int, shape (N,), optional
        Valid steps of each sequence. The loss counts those alone, or the last of them; what x and y hold beyond is
        never read, and may be NaN. A sequence of length 0 has nothing to learn from.
    reset : array_like of bool, shape of x without its last axis, optional
        True where a sequence starts anew before the step: several recordings in one row.
    validation : (x, y), (x, y, lengths) or (x, y, lengths, sample_weight), or iterable of batches, optional
        Held-out data, whose loss is computed after each epoch, without dropout or the like; lengths may be None. What
        ``missing`` says of y holds here too.
    sample_weight : array_like, shape (N,) or that of the targets' positions, optional
        How much each sequence, or each target, counts in the loss: numbers of at least 0. At weight 0 y may hold
        anything, NaN too. For a list x, a list of the weights of each sequence's steps, or an array of N.
    missing : {"refuse", "ignore"}, default "refuse"
        What NaN in y means: an error, or that there is no target. A step with NaN in one channel has none in all.
    train : str or sequence of str, optional
        Patterns, as of :mod:`fnmatch`, of the names of the parameters to be trained, such as ``"readout.*"``; the
        others stay as they are to the bit. Where the readout alone is trained, nothing goes back through time.
    clip_value : float, optional
        After ``clip_norm``, what of the gradient lies beyond ``-clip_value .. clip_value`` is set to that.
    accumulate : int, default 1
        Batches per update: the update is that of one batch as large as all of them, with the memory of one.
    metrics : sequence of str or callable, default ()
        Names of :mod:`elman.metrics`, or functions ``metric(output, target, weight) -> float``; of all targets of an
        epoch together, with the outputs as they were in training, and of the validation data. Outputs are kept for an
        epoch. They go into ``history.metrics``, as ``"rmse"`` and ``"validation_rmse"``.
    regularizers : sequence of Regularizer, default ()
        Penalties that are added to the loss, see :class:`~elman.training.Regularizer`; ``history.loss`` is without
        them, ``history.metrics["penalty"]`` their mean.
    schedule : str or Schedule, optional
        Learning rates, see :mod:`elman.schedules`, counted from the optimizer's, which it has again at the end.
    resume : elman.saving.Saved, optional
        What :func:`elman.load` returned for a file of :class:`~elman.ModelCheckpoint`: training goes on from there, to
        the bits of a training that was never stopped. ``epochs`` counts from the first beginning. Network, optimizer,
        callbacks and schedule of the same kinds are given their saved states. What batches of your own come in is yours
        to restore.
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

    Warns
    -----
    DataWarning
        If x seems to have its axes in another order than the network, or data are far from unit scale. To silence it:
        ``warnings.simplefilter("ignore", elman.errors.DataWarning)``.

    Notes
    -----
    An epoch's loss is the mean over all targets, by their weights: batches and windows count by the number of their
    targets, so it does not depend on how the data were split, except that the parameters change on the way.
    """
    check_model(net)
    check_finite(net)
    progress = flag(progress, "progress")
    epochs, batch_size, accumulate = (
        size(epochs, "epochs"),
        size(batch_size, "batch_size"),
        size(accumulate, "accumulate"),
    )
    cutting = checked_passes(net, truncation, checkpoint)
    clip_norm, clip_value = checked_clipping(clip_norm, "clip_norm"), checked_clipping(clip_value, "clip_value")
    told = checked_callbacks(callbacks)
    saved = None if resume is None else Saved(resume)
    loss, ignore = get_loss(loss), checked_missing(missing)
    optimizer = checked_optimizer(optimizer) if saved is None else saved.own_optimizer(optimizer)
    frozen, penalties = frozen_names(net, train), checked_regularizers(regularizers, net)
    measured = checked_metrics(metrics)
    given = {"lengths": lengths, "reset": reset, "sample_weight": sample_weight}
    source, loss = training_data(net, x, y, loss, cutting, given, ignore, accumulate)
    held_out = validation_data(net, validation, loss, ignore)
    rates = checked_schedule(schedule, epochs, partial(updates, source, batch_size, accumulate, epochs))
    rng = generator(rng) if saved is None else saved.own_generator(rng)
    start = Progress(History(clip_norm=clip_norm), optimizer.lr)
    if saved is not None:
        start = saved.restore(net, optimizer, rng, told, rates)
    options = Options(clip_norm, clip_value, checkpoint, frozen, penalties, rates)
    plan = Plan(source, held_out, batch_size, accumulate, measured, told)
    training = Training(net, loss, optimizer, plan, options, rng, start)
    training.run(epochs, progress)
    return training.history
