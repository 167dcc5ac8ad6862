"""Callbacks that write: a model from which training goes on, and a table of its epochs."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..errors import StateDictError, WriteError
from ..files import check_target, checked_name, replacing, shown
from ..validation.scalars import flag, size
from ..validation.words import kind
from .best import Best
from .callbacks import TrainingInfo, Update
from .history import History


class ModelCheckpoint:
    """Save the model during training, with all that is needed to go on from there.

    The file is one of :func:`elman.save`, replaced whole or not at all: network, optimizer, history, source of random
    numbers, and the state of schedule and callbacks. ``fit(..., resume=elman.load(path))`` goes on to the same bits.

    Parameters
    ----------
    path : path-like
        The file, such as ``"run.safetensors"``.
    every : int, default 1
        Epochs from one save to the next.
    best_only : bool, default False
        Whether to save only after an epoch that is better than all before it.
    monitor : str, default "validation_loss"
        What that is decided by: ``"validation_loss"``, ``"loss"``, or a metric that the training records.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type; in training, if what is monitored is not recorded.
    OSError
        If nothing can be written there; WriteError on a full disk, after which the file of before is still there.
    """

    runs_last = True
    """Told of an update after all other callbacks, so that what it saves holds their state after that update."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: int = 1,
        best_only: bool = False,
        monitor: str = "validation_loss",
    ) -> None:
        check_target(path)
        self.path, self.every = checked_name(path), size(every, "every")
        self.best_only, self._best = flag(best_only, "best_only"), Best(monitor)

    def begin(self, info: TrainingInfo) -> None:
        """Forget what was seen of another training; one that is resumed goes on."""
        if not info.history.epochs:
            self._best.forget()

    def __call__(self, update: Update) -> None:
        """Save after an epoch that is due."""
        if not update.epoch_ended:
            return
        due = (update.epoch + 1) % self.every == 0
        if self.best_only:
            # every epoch is looked at, also one that is not due: a due one is saved if it is the best of all
            due = self._best.improved(update.history) and due
        if due:
            # by name: saving stands above training, and is no part of it
            import_module("elman.saving").save(
                self.path,
                update.model,
                optimizer=update.optimizer,
                history=update.history,
                rng=update.rng,
                training=update.trainer_state(),
            )

    def state_dict(self) -> dict[str, Any]:
        """The best value so far."""
        return {"best": self._best.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned.

        Raises
        ------
        StateDictError
            If it is not such a state.
        """
        if not isinstance(state, Mapping) or set(state) != {"best"}:
            raise StateDictError(f"the state of ModelCheckpoint must have the key best, got {kind(state)}")
        self._best.load_state_dict(state["best"])

    def __repr__(self) -> str:
        return f"ModelCheckpoint({self.path!r}, every={self.every}, best_only={self.best_only})"


class CSVLog:
    """Write a line for each epoch into a table: epoch, loss, validation loss, learning rate, metrics.

    There are whole lines only. The table is that of the history: a training that is resumed writes it anew as far as
    the history goes, so that epochs that a killed run had done after its last checkpoint do not stand there twice.

    Parameters
    ----------
    path : path-like
        The file, such as ``"run.csv"``. What is there is replaced after the first epoch.

    Raises
    ------
    DTypeError, ArgumentError, OSError
        If nothing can be written there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        check_target(path)
        self.path = checked_name(path)
        self._history: History | None = None
        self._columns: list[str] = []

    def __call__(self, update: Update) -> None:
        """Write the line of an epoch that has ended."""
        if not update.epoch_ended:
            return
        history = update.history
        table = history.by_epoch()
        if history is self._history and list(table) == self._columns and os.path.isfile(self.path):
            self._append(_lines(table, history.epochs - 1))
        else:
            with replacing(self.path) as temporary:
                temporary.write_text(_lines(table, 0, header=True), encoding="utf-8", newline="")
        self._history, self._columns = history, list(table)

    def begin(self, info: TrainingInfo) -> None:
        """A training begins: its table is written anew."""
        self._history = None

    def _append(self, line: str) -> None:
        """Add a line in one write; a part of one is taken back."""
        data = line.encode()
        try:
            with open(self.path, "ab", buffering=0) as file:
                start = file.tell()
                written = file.write(data)
                if written != len(data):
                    file.truncate(start)
                    raise WriteError(f"could not write {shown(self.path)}: only a part of a line went in")
        except WriteError:
            raise
        except OSError as error:
            raise WriteError(f"could not write {shown(self.path)}: {error.strerror or error}", error.errno) from error

    def __repr__(self) -> str:
        return f"CSVLog({self.path!r})"


def _lines(table: Mapping[str, list[float]], first: int, header: bool = False) -> str:
    """Rows of a table from ``first`` on; numbers as Python writes them, which reads them back to the same bits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(["epoch", *table])
    columns = list(table.values())
    n = max(map(len, columns), default=0)
    for epoch in range(first, n):
        # a training may lack a record of some epochs, as of a metric that was added when it was resumed
        row = [column[epoch - n + len(column)] if epoch - n + len(column) >= 0 else "" for column in columns]
        writer.writerow([epoch, *(repr(float(value)) if value != "" else "" for value in row)])
    return text.getvalue()
