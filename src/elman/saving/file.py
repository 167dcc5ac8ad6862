"""One file for a model and all that belongs to it, from which it is made again without knowing it beforehand."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from ..errors import DTypeError, StateDictError
from ..files import check_target, shown
from ..layers.parameters import Parameterised
from ..tensor_file import DESCRIPTION, NET, TensorFile, open_tensors, write_tensors
from ..training import History, Optimizer
from ..validation.words import kind
from .companions import (
    described_history,
    described_optimizer,
    described_rng,
    described_scaler,
    made_history,
    made_optimizer,
    made_rng,
    made_scaler,
)
from .models import build, check_cells, describe
from .values import decode, encode

Array = NDArray[Any]
FORMAT = 1
"""Of the description; raised when an older elman would misread it."""
DIGEST = "elman.digest"
"""Where in the metadata the digest of the description and of the arrays is."""


@dataclass(frozen=True, eq=False)
class Saved:
    """What a file of :func:`elman.save` held.

    Attributes
    ----------
    net : RNN, LSTM, GRU, MGU, Readout, MLP or Network
        The model, made anew: the same class, options, dtype and bits.
    optimizer : Optimizer or None
        With its state; its next step continues exactly.
    history : History or None
        The record of the training.
    rng : numpy.random.Generator or None
        In the state in which it was saved.
    scaler : object or None
        What made the data ready.
    notes : str
        As given.
    training : dict
        Values from which a training goes on, as given; empty if none were.
    versions : dict of str to str or int
        ``"format"`` of the file; ``"elman"``, ``"numpy"`` and ``"python"`` that wrote it.
    """

    net: Any
    optimizer: Optimizer | None = None
    history: History | None = None
    rng: np.random.Generator | None = None
    scaler: Any = None
    notes: str = ""
    training: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        names = ("optimizer", "history", "rng", "scaler", "notes", "training")
        beside = [f"{name}={getattr(self, name)!r}" for name in names[:2] if getattr(self, name) is not None]
        beside += [name for name in names[2:] if getattr(self, name) not in (None, "", {})]
        return f"Saved({', '.join([repr(self.net), *beside])})"


def save(
    path: str | os.PathLike[str], net: Parameterised, *, optimizer: Optimizer | None = None,
    history: History | None = None, rng: np.random.Generator | None = None, scaler: Any = None, notes: str = "",
    training: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write a model, and what belongs to it, into one file, from which :func:`elman.load` makes it again.

    It is a safetensors file: anything that reads these finds the parameters in it, under their names after ``"net."``.
    How to make the model again stands in JSON in its header. Nothing in it is run when it is read.

    Parameters
    ----------
    path : path-like
        The file, such as ``"model.safetensors"``; it appears whole or not at all.
    net : RNN, LSTM, GRU, MGU, Readout, MLP or Network
        The model; of a user's class too, whose further attributes must be plain values and arrays.
    optimizer : Optimizer, optional
        Written with its state.
    history : History, optional
        What :func:`elman.fit` returned.
    rng : numpy.random.Generator, optional
        Written with its state, and with that from which it spawns others.
    scaler : object, optional
        Something with ``to_dict()``, and ``from_dict`` in its class, such as elman's scaler.
    notes : str, optional
        Words of your own.
    training : dict, optional
        From what a training goes on: numbers, strings, arrays, lists, tuples and dicts of them. They come back equal
        bit for bit.

    Raises
    ------
    DTypeError, ArgumentError
        If something is of another kind, or holds what cannot be written down.
    NonFiniteError
        If a parameter is not finite: such a model could not be loaded.
    OSError
        If the file cannot be written; WriteError on a full disk. What was there before is as it was.
    """
    check_target(path)
    if not isinstance(notes, str):
        raise DTypeError(f"notes must be a string, got {kind(notes)}; values and arrays can go into training=")
    if training is not None and not isinstance(training, dict):
        raise DTypeError(f"training must be a dict of plain values and arrays, got {kind(training)}")
    tensors: dict[str, Array] = {}
    description = {
        "format": FORMAT,
        "elman": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "net": describe(net, tensors),
        "optimizer": described_optimizer(optimizer, tensors),
        "history": described_history(history, tensors),
        "rng": described_rng(rng, tensors),
        "scaler": described_scaler(scaler, tensors),
        "notes": notes,
        "training": encode(training or {}, "training", tensors),
    }
    tensors |= {NET + name: array for name, array in net.state_dict().items()}
    net.parameters.check_finite()
    text = json.dumps(description, separators=(",", ":"), allow_nan=False)
    write_tensors(path, tensors, {DESCRIPTION: text, DIGEST: _digest(text, tensors)})


def load(path: str | os.PathLike[str], *, cells: Collection[Any] = ()) -> Saved:
    """Make a model again, and what belongs to it, from a file of :func:`elman.save`.

    Parameters
    ----------
    path : path-like
        The file.
    cells : collection of Cell or class
        What the file names and elman does not have: your own classes of layers, records of cells, optimizers, scalers.
        Nothing else is imported because a file names it.

    Returns
    -------
    Saved
        ``.net``, ``.optimizer``, ``.history``, ``.rng``, ``.scaler``, ``.notes``, ``.training``, ``.versions``.

    Raises
    ------
    StateDictError
        If the file is damaged, of another format or of a later version, or names a class that must be given.
    DTypeError, ArgumentError
        If ``cells`` is no collection of classes and records; if the path is a device or pipe.
    OSError
        If it cannot be read.
    """
    cells = check_cells(cells)
    file = open_tensors(path)
    said, text = _description(file)
    try:
        tensors = {name: file.read(name) for name in file.entries}
        if _digest(text, tensors) != file.metadata.get(DIGEST):
            raise StateDictError("the digest is of other content; the file is damaged, or was changed by hand")
        return _made(said, tensors, cells)
    except StateDictError as error:
        raise StateDictError(f"{shown(os.fspath(path))} cannot be loaded: {error}") from error
    except MemoryError as error:
        raise StateDictError(
            f"{shown(os.fspath(path))} cannot be loaded: it needs more memory than there is"
        ) from error


def _description(file: TensorFile) -> tuple[dict[str, Any], str]:
    """What the header says, if this version understands it; and the text of it."""
    path, text = shown(file.path), file.metadata.get(DESCRIPTION)
    if text is None:
        raise StateDictError(
            f"{path} is a safetensors file, but not one of elman.save: it has no {DESCRIPTION!r} in its metadata. "
            "Weights alone are read by elman.interop.from_safetensors(path)"
        )
    try:
        said = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, MemoryError) as error:
        raise StateDictError(f"{path} is damaged: its description is no JSON ({shown(error, 200)})") from error
    written = said.get("format") if isinstance(said, dict) else None
    if type(written) is not int or written < 1:
        raise StateDictError(f"{path} is damaged: its description has no format")
    if written != FORMAT:
        raise StateDictError(
            f"{path} has format {written}, written by elman {shown(said.get('elman'))}; this is elman {__version__}, "
            f"which reads format {FORMAT}: load it with that version"
        )
    return said, text


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is none")


def _digest(text: str, tensors: Mapping[str, Array]) -> str:
    """Of all that a file means, whatever order its arrays lie in."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)
    for name in sorted(tensors):
        array = tensors[name]
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(json.dumps([name, little.dtype.str, array.shape]).encode())
        digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _made(said: Mapping[str, Any], tensors: Mapping[str, Array], cells: tuple[Any, ...]) -> Saved:
    """All that a description says."""
    weights = {name.removeprefix(NET): array for name, array in tensors.items() if name.startswith(NET)}
    net = build(said.get("net", {}), cells, tensors=tensors, most=weights)
    if odd := [name for name, array in weights.items() if array.dtype != net.dtype]:
        raise StateDictError(f"{shown(odd[0])} is {weights[odd[0]].dtype}, and the model {net.dtype}")

    def one(name: str, make: Callable[..., Any], *more: Any) -> Any:
        values = said.get(name)
        try:
            return None if values is None else make(values, tensors, *more)
        except StateDictError as error:
            raise StateDictError(f"{name}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise StateDictError(f"its {name} is none that elman writes ({shown(error, 200)})") from error

    try:
        net.load_state_dict(weights)
    except ValueError as error:  # of any class of elman
        raise StateDictError(f"the parameters do not fit the model: {shown(error, 300)}") from error
    notes, training = said.get("notes"), one("training", decode)
    if not isinstance(notes, str) or not isinstance(training, dict):
        raise StateDictError("notes or training are of another kind than elman writes")
    return Saved(
        net, one("optimizer", made_optimizer, cells), one("history", made_history), one("rng", made_rng),
        one("scaler", made_scaler, cells), notes, training,
        {name: said.get(name) for name in ("format", "elman", "numpy", "python")},
    )  # fmt: skip
