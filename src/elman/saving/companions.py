"""What is saved beside a model: optimizer, history, source of random numbers, scaler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import training
from ..errors import DTypeError, StateDictError
from ..files import quoted, shown
from ..training import History, Optimizer
from ..validation.arrays import plain
from ..validation.words import kind
from .values import decode, encode

Array = NDArray[Any]
GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
"""Bit generators of NumPy."""
SCALERS = {"Scaler": "elman.forecast"}
"""Scalers of elman, and where they are."""


def _own(name: Any, cells: Collection[Any], what: str) -> Any:
    """A class of the user's by its name."""
    for each in cells:
        if isinstance(each, type) and each.__name__ == name:
            return each
    raise StateDictError(
        f"{what} of the class {quoted(name)}, which elman does not have: if it is yours, give it, "
        f"elman.load(path, cells=[{shown(name)}])"
    )


def described_optimizer(optimizer: Any, tensors: dict[str, Array]) -> Any:
    """Class and state of an optimizer for JSON."""
    if optimizer is None:
        return None
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(f"optimizer must be one of elman, such as elman.Adam(), got {kind(optimizer)}")
    return {"class": type(optimizer).__name__, "state": encode(optimizer.state_dict(), "optimizer", tensors)}


def made_optimizer(said: Mapping[str, Any], tensors: Mapping[str, Array], cells: Collection[Any]) -> Optimizer:
    """The optimizer that :func:`described_optimizer` described."""
    own = getattr(training, str(said["class"]), None)
    made = own if isinstance(own, type) and issubclass(own, Optimizer) else _own(said["class"], cells, "an optimizer")
    if not issubclass(made, Optimizer):
        raise StateDictError(f"{made.__name__} must be an optimizer, a class made of elman.training.Optimizer")
    state = decode(said["state"], tensors)
    settings = {name: plain(state[name], name).tolist() for name in made.hyperparameters}
    optimizer = made(**settings)
    optimizer.load_state_dict(state)
    return optimizer


def described_history(history: Any, tensors: dict[str, Array]) -> Any:
    """The record of a training for JSON."""
    if history is None:
        return None
    if not isinstance(history, History):
        raise DTypeError(f"history must be what elman.fit returned, got {kind(history)}")
    return encode({each.name: getattr(history, each.name) for each in fields(history) if each.init}, "history", tensors)


def made_history(said: Any, tensors: Mapping[str, Array]) -> History:
    """The record that :func:`described_history` described."""
    said, empty = decode(said, tensors), History()
    for name, value in said.items():
        if not _fits(value, getattr(empty, name)):
            raise StateDictError(f"{shown(name)} is {kind(value)}")
    return History(**said)


def _fits(value: Any, default: Any) -> bool:
    """Whether a value is of the kind of a field's default; a number where that is None or a number with a point."""
    if default is None:
        return value is None or type(value) in (int, float)
    return type(value) is type(default) or (type(default) is float and type(value) is int)


def described_rng(rng: Any, tensors: dict[str, Array]) -> Any:
    """The state of a source of random numbers for JSON."""
    if rng is None:
        return None
    name = type(rng.bit_generator).__name__ if isinstance(rng, np.random.Generator) else ""
    if name not in GENERATORS:
        raise DTypeError(
            f"rng must be a numpy.random.Generator on one of {', '.join(GENERATORS)}, such as "
            f"numpy.random.default_rng(0), got {name or kind(rng)}"
        )
    seed = rng.bit_generator.seed_seq
    spawn = None
    if isinstance(seed, np.random.SeedSequence):
        spawn = {n: getattr(seed, n) for n in ("entropy", "spawn_key", "pool_size", "n_children_spawned")}
    return encode({"bit_generator": name, "state": rng.bit_generator.state, "seed": spawn}, "rng", tensors)


def made_rng(said: Any, tensors: Mapping[str, Array]) -> np.random.Generator:
    """The source in the state that :func:`described_rng` described."""
    said = decode(said, tensors)
    if said["bit_generator"] not in GENERATORS:
        raise StateDictError(f"a bit generator {quoted(said['bit_generator'])}, which is none of NumPy's")
    seed = None if said["seed"] is None else np.random.SeedSequence(**said["seed"])
    bits = getattr(np.random, said["bit_generator"])(seed)
    bits.state = said["state"]
    return np.random.Generator(bits)


def described_scaler(scaler: Any, tensors: dict[str, Array]) -> Any:
    """Class and values of a scaler for JSON."""
    if scaler is None:
        return None
    if not (callable(getattr(scaler, "to_dict", None)) and callable(getattr(type(scaler), "from_dict", None))):
        raise DTypeError(
            f"scaler must have to_dict(), and from_dict in its class, as elman's has; got {kind(scaler)}: put its "
            "numbers into training= as a dict of arrays"
        )
    return {"class": type(scaler).__name__, "values": encode(scaler.to_dict(), "scaler.to_dict()", tensors)}


def made_scaler(said: Mapping[str, Any], tensors: Mapping[str, Array], cells: Collection[Any]) -> Any:
    """The scaler that :func:`described_scaler` described."""
    name = said["class"]
    given = any(isinstance(each, type) and each.__name__ == name for each in cells)
    if name in SCALERS and not given and find_spec(SCALERS[name]):
        made: Any = getattr(import_module(SCALERS[name]), name)
    else:
        made = _own(name, cells, "a scaler")
    return made.from_dict(decode(said["values"], tensors))
