"""Checks of what :func:`elman.fit` is given beside data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError, DTypeError
from ..layers.trace import spacing
from ..metrics import get_metric
from ..validation.scalars import real
from ..validation.words import kind, model_cure
from .callbacks import Callback
from .cuts import Truncation, checked_truncation
from .model import Model, trace_options
from .optimizer import Optimizer
from .optimizers import Adam
from .schedules import Schedule, get_schedule
from .tally import Metric


def checked_passes(net: Model, truncation: Any, checkpoint: Any) -> Truncation | None:
    """How passes are cut, if the network can be cut so.

    Raises
    ------
    ArgumentError, DTypeError
        For a bidirectional network, or a checkpoint that it does not take.
    """
    cutting = checked_truncation(truncation)
    if cutting is not None and getattr(net, "bidirectional", False):
        raise ArgumentError(
            "truncation must be None for a bidirectional network: its backward direction comes from the end of the "
            "sequence, which a window does not see"
        )
    if spacing(checkpoint, 1) and "checkpoint" not in trace_options(net):
        raise ArgumentError(f"checkpoint must be left out: the trace of {type(net).__name__} takes none")
    return cutting


def checked_clipping(value: Any, name: str) -> float | None:
    """A positive bound, or None."""
    if value is not None and not real(value, name) > 0.0:
        raise ArgumentError(f"{name} must be positive, or None for no clipping, got {value!r}")
    return None if value is None else float(value)


def checked_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Callbacks as a tuple."""
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise DTypeError(f"callbacks must be a sequence of callables, such as (callback,), got {callbacks!r}")
    return tuple(callbacks)


def checked_optimizer(optimizer: Any) -> Optimizer:
    """The optimizer, by default Adam's."""
    optimizer = Adam(1e-3) if optimizer is None else optimizer
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(
            f"optimizer must be an Optimizer such as elman.Adam(1e-3), got {kind(optimizer)}{model_cure(optimizer)}"
        )
    return optimizer


def checked_metrics(metrics: Any) -> dict[str, Metric]:
    """Metrics by name.

    Raises
    ------
    DTypeError, ArgumentError
        If they are not names of metrics or functions, or two have one name.
    """
    given = (metrics,) if isinstance(metrics, str) or callable(metrics) else metrics
    if not isinstance(given, Sequence):
        raise DTypeError(f'metrics must be a sequence of names or functions, such as ("rmse",), got {kind(metrics)}')
    pairs = [get_metric(metric) for metric in given]
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        raise ArgumentError(f"metrics must have different names, got {[name for name, _ in pairs]}")
    return by_name


def checked_schedule(schedule: Any, epochs: int, updates: Callable[[], int | None]) -> Schedule | None:
    """A schedule by name or as it is.

    Parameters
    ----------
    updates : callable
        Returns their number in the whole training; None if it cannot be known.

    Raises
    ------
    DTypeError, ArgumentError
        As :func:`get_schedule`; ArgumentError for a warm-up by name over batches of unknown number.
    """
    if schedule is None or not isinstance(schedule, str):
        return None if schedule is None else get_schedule(schedule, epochs, 1)
    number = updates()
    if schedule == "warm-up" and number is None:
        raise ArgumentError(
            'schedule="warm-up" needs the number of updates, and these batches have no len(): give '
            "elman.schedules.WarmUp(updates)"
        )
    return get_schedule(schedule, epochs, number or 1)
