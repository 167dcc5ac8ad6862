"""What :func:`elman.fit` is given as data: arrays, windows, lists of sequences, or a supply of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError
from ..losses import Loss
from ..validation.words import kind
from .batches import Batches, Source, is_supply
from .cuts import Truncation
from .model import Model
from .samples import Samples
from .signs import warn_of_axes, warn_of_scale

CALLER = 5  # frames from here to who called fit


def training_data(
    net: Model, x: Any, y: Any, loss: Loss, truncation: Truncation | None, given: Mapping[str, Any], missing: bool,
    slots: int,
) -> tuple[Source, Loss]:  # fmt: skip
    """Checked data, and the loss fitted to them.

    Parameters
    ----------
    given : mapping
        ``lengths``, ``reset`` and ``sample_weight``, each perhaps None.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If they do not fit.
    """
    if y is None:
        if not is_supply(x):
            raise DTypeError(
                "y must be an array of real numbers, got None: give the targets; x comes without them only as an "
                f"iterable of batches (x, y), and is {kind(x)}"
            )
        own = [name for name, value in given.items() if value is not None]
        if own:
            raise ArgumentError(f"{', '.join(own)} must be left out for batches: they come as (x, y, sample_weight)")
        batches = Batches(net, x, loss, truncation, missing=missing)
        _warn(net, batches.first, loss, truncation, given)
        return batches, fitted(loss, batches.checked())
    samples = Samples(
        net, x, y, loss, truncation, given["lengths"], given["reset"], weight=given["sample_weight"], missing=missing,
        slots=slots,
    )  # fmt: skip
    _warn(net, samples, loss, truncation, given)
    return samples, fitted(loss, [samples])


def fitted(loss: Loss, all_samples: Iterable[Samples]) -> Loss:
    """The loss for these data, if it takes something from them, such as the variance of the targets."""
    fit_to = getattr(loss, "fitted_to", None)
    if fit_to is None:
        return loss
    targets, weights = zip(*(samples.targets() for samples in all_samples), strict=True)
    made: Loss = fit_to(np.concatenate(targets), np.concatenate(weights))
    return made


def validation_data(net: Model, validation: Any, loss: Loss, missing: bool) -> Source | None:
    """Checked held-out data.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If they do not fit.
    """
    if validation is None:
        return None
    must = "validation must be (x, y) or (x, y, lengths, sample_weight), or an iterable of batches (x, y)"
    pairs = isinstance(validation, list) and all(isinstance(item, tuple) and len(item) in (2, 3) for item in validation)
    if is_supply(validation) and (pairs or not isinstance(validation, tuple | list)):
        return Batches(net, validation, loss, prefix="validation ", missing=missing)
    if not isinstance(validation, tuple | list) or not 2 <= len(validation) <= 4:
        raise DTypeError(f"{must}, got {kind(validation)}")
    x, y, lengths, weight = (*validation, None, None)[:4]
    return Samples(net, x, y, loss, None, lengths, prefix="validation ", weight=weight, missing=missing)


def updates(source: Any, batch_size: int, accumulate: int, epochs: int) -> int | None:
    """Updates of the whole training; None if it is not known how many batches there are."""
    if isinstance(source, Samples):
        n = -(-source.n_samples // batch_size)
        windows = sum(window.y is not None for window in source.windows)
    else:
        try:
            n = len(source.batches)
        except TypeError:
            return None
        windows = len(source.first.windows)
    return -(-n // accumulate) * windows * epochs


def _warn(
    net: Model, samples: Samples, loss: Loss, truncation: Truncation | None, given: Mapping[str, Any]
) -> None:  # fmt: skip
    """Warn of data that are probably not meant so."""
    if truncation is None and given["lengths"] is None and given["reset"] is None and samples.every_step:
        warn_of_axes(net, samples.x.array, CALLER)
    reached = samples.axes == 1 and not getattr(loss, "log_input", False)
    warn_of_scale(samples.x.array, samples.y.array if reached else None, CALLER)
