"""What a training run did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np

from ..errors import DTypeError, MissingExtraError, StateDictError
from ..results import Drawn
from ..validation.scalars import flag, real
from ..validation.words import kind

_RECORDS = ("loss", "validation_loss", "gradient_norm", "lr")
"""Attributes that are lists of numbers."""


@dataclass(repr=False)
class History(Drawn, picture="plot_history"):
    """Record of :func:`elman.fit`.

    Attributes
    ----------
    loss : list of float
        Loss of each complete epoch: mean over all targets while the parameters were being updated.
    validation_loss : list of float
        Loss on the validation data after each complete epoch; empty without validation data.
    gradient_norm : list of float
        Euclidean norm of the whole gradient at each update, before clipping.
    clip_norm : float or None
        The norm above which gradients were clipped.
    seconds : float
        Wall-clock time; ignored in comparisons.
    interrupted : bool
        Whether Ctrl-C ended the training.
    stopped : bool
        Whether a callback ended it.
    lr : list of float
        Learning rate of the last update of each complete epoch.
    metrics : dict of str to list of float
        By name, the value after each complete epoch.
    """

    loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    clip_norm: float | None = None
    seconds: float = field(default=0.0, compare=False)
    interrupted: bool = False
    stopped: bool = False
    lr: list[float] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=dict)

    @property
    def epochs(self) -> int:
        """Number of complete epochs."""
        return len(self.loss)

    @property
    def updates(self) -> int:
        """Number of parameter updates, those of an incomplete last epoch included."""
        return len(self.gradient_norm)

    @property
    def clipped_fraction(self) -> float:
        """Share of the updates whose gradient was clipped."""
        if self.clip_norm is None or not self.gradient_norm:
            return 0.0
        return sum(norm > self.clip_norm for norm in self.gradient_norm) / len(self.gradient_norm)

    def __str__(self) -> str:
        pace = f", {1e3 * self.seconds / self.updates:.3g} ms each" if self.updates else ""
        lines = [f"Training: {self.epochs} epochs, {self.updates} updates in {self.seconds:.3g} s{pace}"]
        for name, losses in (("loss", self.loss), ("validation loss", self.validation_loss)):
            if losses:
                best = min(range(len(losses)), key=losses.__getitem__)
                lines.append(
                    f"  {name:<16} {losses[0]:.4g} -> {losses[-1]:.4g}, best {losses[best]:.4g} (epoch {best})"
                )
        for name, values in self.metrics.items():
            if values:
                lines.append(f"  {name:<16} {values[0]:.4g} -> {values[-1]:.4g}")
        if self.lr and self.lr[0] != self.lr[-1]:
            lines.append(f"  {'learning rate':<16} {self.lr[0]:.3g} -> {self.lr[-1]:.3g}")
        if self.gradient_norm:
            clip = "not clipped"
            if self.clip_norm is not None:
                clip = f"clipped to {self.clip_norm:g} in {100 * self.clipped_fraction:.3g} % of the updates"
            lines.append(
                f"  {'gradient norm':<16} median {median(self.gradient_norm):.3g}, "
                f"largest {max(self.gradient_norm):.3g}, {clip}"
            )
        if self.interrupted or self.stopped:
            by = "Ctrl-C" if self.interrupted else "a callback"
            lines.append(f"  ended by {by} after {self.epochs} complete epochs")
        return "\n".join(lines)

    def __repr__(self) -> str:
        last = f", loss={self.loss[-1]:.4g}" if self.loss else ""
        return f"History(epochs={self.epochs}, updates={self.updates}{last})"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain lists, numbers and booleans.

        Returns
        -------
        dict
            The attributes, and ``epochs``, ``updates``, ``clipped_fraction``.
        """
        return {
            "loss": list(self.loss),
            "validation_loss": list(self.validation_loss),
            "gradient_norm": list(self.gradient_norm),
            "lr": list(self.lr),
            "metrics": {name: list(values) for name, values in self.metrics.items()},
            "clip_norm": self.clip_norm,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "stopped": self.stopped,
            "epochs": self.epochs,
            "updates": self.updates,
            "clipped_fraction": self.clipped_fraction,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> History:
        """Make a history again from what :meth:`to_dict` returned.

        Parameters
        ----------
        record : mapping
            Names of attributes and their values; copied. Attributes that are not in it are those of an empty history.

        Raises
        ------
        DTypeError
            If it is no mapping, or a value is of another kind.
        StateDictError
            If it holds a name that no history has.
        """
        if not isinstance(record, Mapping):
            raise DTypeError(f"record must be a mapping, as to_dict() returns it, got {kind(record)}")
        own = {each.name for each in fields(cls)}
        unknown = set(record) - own - {"epochs", "updates", "clipped_fraction"}
        if unknown:
            raise StateDictError(f"record must be that of a History; it has the unknown names {sorted(unknown)}")
        settings: dict[str, Any] = {name: _numbers(record[name], name) for name in _RECORDS if name in record}
        metrics = record.get("metrics", {})
        if not isinstance(metrics, Mapping):
            raise DTypeError(f"metrics must be a mapping of names to lists of numbers, got {kind(metrics)}")
        settings |= {name: flag(record[name], name) for name in ("interrupted", "stopped") if name in record}
        clip_norm = record.get("clip_norm")
        return cls(
            **settings,
            metrics={str(name): _numbers(values, name) for name, values in metrics.items()},
            clip_norm=None if clip_norm is None else real(clip_norm, "clip_norm"),
            seconds=real(record.get("seconds", 0.0), "seconds"),
        )

    def by_epoch(self) -> dict[str, list[float]]:
        """What was recorded after each epoch: loss, validation loss, learning rate, metrics; what was not is left out.

        Returns
        -------
        dict of str to list of float
            Of ``epochs`` numbers each, or fewer: the last ones, if a record began later.
        """
        columns = {"loss": self.loss, "validation_loss": self.validation_loss, "lr": self.lr, **self.metrics}
        return {name: list(values) for name, values in columns.items() if values}

    def to_frame(self) -> Any:
        """The record by epoch as a table.

        Returns
        -------
        pandas.DataFrame
            One row an epoch, counted from 0; the columns of :meth:`by_epoch`, with NaN before a record began.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        try:
            pandas: Any = import_module("pandas")
        except ImportError as error:
            raise MissingExtraError("pandas", "pandas", "History.to_frame") from error
        columns = {name: [math.nan] * (self.epochs - len(v)) + v for name, v in self.by_epoch().items()}
        return pandas.DataFrame(columns, index=pandas.RangeIndex(self.epochs, name="epoch"))


def _numbers(values: Any, name: str) -> list[float]:
    """A list of numbers."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise DTypeError(f"{name} must be a list of numbers, got {kind(values)}")
    return [real(value, f"{name}[{i}]") for i, value in enumerate(values)]
