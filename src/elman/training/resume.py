"""What a training that goes on needs beside network, optimizer, history and random numbers; and going on from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, StateDictError
from ..validation.words import kind
from .history import History
from .model import Model
from .optimizer import Optimizer

FORMAT = 1


@dataclass
class Progress:
    """Where a training begins: with nothing, or after some epochs."""

    history: History
    base_lr: float


def trainer_state(training: Any, epoch_ended: bool) -> dict[str, Any]:
    """Counters, and the states of schedule and callbacks, at the end of an epoch.

    Raises
    ------
    ArgumentError
        In the middle of an epoch, from which no training can go on.
    """
    if not epoch_ended:
        raise ArgumentError(
            "trainer_state() must be called at the end of an epoch, where update.epoch_ended is True: within one, the "
            "samples that are still to come are not part of it"
        )
    return {
        "format": FORMAT,
        "epochs": training.history.epochs,
        "updates": training.history.updates,
        "base_lr": training.base_lr,
        "schedule": _state(training.options.schedule),
        "callbacks": [{"class": type(each).__name__, "state": _state(each)} for each in training.plan.callbacks],
    }


def _state(thing: Any) -> dict[str, Any] | None:
    """State of what has one."""
    return deepcopy(dict(thing.state_dict())) if hasattr(thing, "state_dict") else None


class Saved:
    """A saved training, checked.

    Parameters
    ----------
    saved : elman.saving.Saved or an object with its attributes
        ``net``, ``optimizer``, ``history``, ``rng`` and ``training``, of the end of one epoch.

    Raises
    ------
    DTypeError, ArgumentError
        If it is something else, or lacks one of them.
    """

    def __init__(self, saved: Any) -> None:
        names = ("net", "optimizer", "history", "rng", "training")
        lacking = [name for name in names if not hasattr(saved, name)]
        if lacking:
            raise DTypeError(
                "resume must be what elman.load returned for a file of ModelCheckpoint, with net, optimizer, history, "
                f"rng and training; {kind(saved)} lacks {', '.join(lacking)}"
            )
        parts = {name: getattr(saved, name) for name in names}
        lacking = [name for name, part in parts.items() if part is None or (name == "training" and not part)]
        if lacking:
            raise ArgumentError(
                f"resume must hold all that a training goes on from, and has no {', '.join(lacking)}: "
                "give a file of ModelCheckpoint, or save(..., optimizer=, history=, rng=, "
                "training=update.trainer_state()) at the end of an epoch"
            )
        self.net, self.optimizer, self.rng = saved.net, saved.optimizer, saved.rng
        self.history: History = deepcopy(saved.history)
        self.training: Mapping[str, Any] = saved.training
        if self.training.get("format") != FORMAT:
            raise ArgumentError(
                f"resume must be of the format {FORMAT} of this version of elman, got {self.training.get('format')!r}"
            )
        done = (self.history.epochs, self.history.updates)
        if done != (self.training["epochs"], self.training["updates"]):
            raise ArgumentError(
                f"resume must be of one moment: its history has {done[0]} epochs and {done[1]} updates, its training "
                f"{self.training['epochs']} and {self.training['updates']}"
            )
        self.history.interrupted = False

    def own_optimizer(self, given: Optimizer | None) -> Optimizer:
        """The optimizer to go on with: the caller's, if it is of the saved kind, or a copy of the saved one."""
        if given is None:
            return deepcopy(self.optimizer)
        if type(given) is not type(self.optimizer):
            raise ArgumentError(
                f"optimizer must be of the kind that the saved training used, {type(self.optimizer).__name__}, or left "
                f"out; got {type(given).__name__}"
            )
        return given

    def own_generator(self, given: Any) -> np.random.Generator:
        """A generator with the saved state: the caller's, where that is one of the same kind, or a new one."""
        saved = self.rng.bit_generator
        if isinstance(given, np.random.Generator):
            if type(given.bit_generator) is not type(saved):
                raise ArgumentError(
                    f"rng must be of the kind of the saved training, {type(saved).__name__}, or left out; got "
                    f"{type(given.bit_generator).__name__}"
                )
            return given
        return deepcopy(self.rng)

    def restore(
        self, model: Model, optimizer: Optimizer, rng: np.random.Generator, callbacks: Sequence[Any], schedule: Any
    ) -> Progress:
        """Put everything in the state in which it was saved; what is refused is refused before anything changes.

        Raises
        ------
        StateDictError, ArgumentError
            If network, callbacks or schedule are not those of the saved training.
        """
        theirs, ours = self.net.params, model.params
        if {n: v.shape for n, v in theirs.items()} != {n: v.shape for n, v in ours.items()}:
            raise StateDictError(
                f"net must have the parameters of the saved one, {list(theirs)}; got {list(ours)}, or other shapes"
            )
        if self.net.theta.dtype != model.theta.dtype:
            raise StateDictError(f"net must have the dtype of the saved one, {self.net.theta.dtype}")
        kept, now = self.training["callbacks"], [type(each).__name__ for each in callbacks]
        if [each["class"] for each in kept] != now:
            raise ArgumentError(
                "callbacks must be of the kinds and in the order of the saved training, "
                f"{[each['class'] for each in kept]}, got {now}"
            )
        if (self.training["schedule"] is None) != (_state(schedule) is None):
            raise ArgumentError("schedule must be of the kind of the saved training")
        for each, own in zip(kept, callbacks, strict=True):
            _load(own, each["state"])
        _load(schedule, self.training["schedule"])
        optimizer.load_state_dict(self.optimizer.state_dict())
        rng.bit_generator.state = self.rng.bit_generator.state
        for name, values in theirs.items():
            ours[name][...] = values
        return Progress(self.history, float(self.training["base_lr"]))


def _load(thing: Any, state: Any) -> None:
    """Give back a state to what had one."""
    if state is not None and hasattr(thing, "load_state_dict"):
        thing.load_state_dict(state)
