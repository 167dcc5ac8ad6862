"""Weights in safetensors files: names, shapes and numbers, and nothing that runs when it is read.

The format is read by PyTorch, JAX and others: https://huggingface.co/docs/safetensors. Beside the weights a file says
what their names and shapes do not tell, such as the nonlinearity, so that they do not get into another kind of layer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ArgumentError, DTypeError, ElmanError, MissingExtraError, StateDictError, WriteError
from ..files import check_source, check_target, listed, quoted, replacing, shown
from ..layers import MLP, Network, Readout
from ..layers.parameters import Parameterised
from ..layers.recurrent import Recurrent
from .metadata import KEY, StatedWeights, kinds
from .state_dict import model_from_weights

Array = NDArray[Any]
Model = TypeVar("Model", bound=Parameterised)
UNSTATED = ("batch_first", "dropout", "recurrent_dropout", "nonlinearity", "reset_after", "zoneout", "at")
"""Options that a file may leave open."""
READABLE = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")
"""Types of the format that NumPy holds exactly, bfloat16 as float32."""


def save_safetensors(
    model: Parameterised, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the weights of a layer, readout or network.

    Parameters
    ----------
    model : RNN, LSTM, GRU, Readout, MLP or Network
        Whose ``state_dict()`` is written, in its dtype.
    path : path-like
        The file; it appears whole or not at all.
    metadata : mapping of str to str, optional
        Further words for the header. Keys that start with ``"elman"`` are taken.

    Raises
    ------
    MissingExtraError
        Without the package safetensors.
    DTypeError, ArgumentError
        If the metadata are not text, or take a reserved key.
    OSError
        If the file cannot be written; WriteError on a full disk.
    """
    package = _import("save_safetensors")
    check_target(path)
    given = dict(metadata or {})
    for name, value in given.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise DTypeError(f"metadata must map text to text, got {name!r}: {value!r}; numbers go in with str()")
        if name.startswith(KEY):
            raise ArgumentError(f"metadata must not have keys that start with {KEY!r}, got {name!r}")
    own = {KEY + ":" + prefix: kind for prefix, kind in kinds(model).items()}
    with replacing(path) as temporary:
        try:
            package.numpy.save_file(model.state_dict(), temporary, metadata=given | own)
        except package.SafetensorError as error:  # a full disk has no class of its own there
            raise WriteError(f"could not write {shown(os.fspath(path))}: {error}") from error


@overload
def load_safetensors(path: str | os.PathLike[str], model: None = None, *, prefix: str = "") -> StatedWeights: ...


@overload
def load_safetensors(path: str | os.PathLike[str], model: Model, *, prefix: str = "") -> Model: ...


def load_safetensors(
    path: str | os.PathLike[str], model: Parameterised | None = None, *, prefix: str = ""
) -> StatedWeights | Parameterised:
    """Read weights, into a model if one is given.

    Parameters
    ----------
    path : path-like
        A file of :func:`save_safetensors`, PyTorch or others.
    model : layer, readout or network, optional
        Takes all weights, exactly, or is not changed.
    prefix : str, default ""
        Only weights whose names start so, such as ``"encoder.rnn."``; it is taken off.

    Returns
    -------
    dict of str to ndarray, or model
        The weights by name, bfloat16 as float32 (exact), with an attribute ``stated``: what a file of elman says
        beside them, such as ``{"": "GRU(reset_after=False)"}``, which :func:`elman.interop.from_torch` obeys. Or the
        model that was given.

    Raises
    ------
    MissingExtraError
        Without the package safetensors.
    StateDictError
        If the file is damaged, has no weights at ``prefix``, holds a type that NumPy does not have, was written from
        another kind of model, or has other names than the model.
    DTypeError
        If the model's dtype cannot hold the numbers exactly.
    ShapeError, ArgumentError
        If a shape does not fit, or a weight is not finite; if the path is a device or pipe.
    OSError
        If the file cannot be read.
    """
    weights = _load(path, prefix)
    if model is None:
        return weights
    for part, kind in kinds(model).items():
        written = weights.stated.get(part, kind)
        if written != kind:
            raise StateDictError(
                f"{shown(os.fspath(path))} holds the weights of {shown(written)}, which compute other things in "
                f"{kind}; make the model the same, or let from_safetensors(path) make it"
            )
    for name, value in weights.items():
        if value.dtype == np.float64 and model.dtype != np.float64:
            raise DTypeError(
                f'{shown(name)} is float64, which a float32 model would round; make it with dtype="float64"'
            )
    model.load_state_dict(weights)
    return model


def from_safetensors(
    path: str | os.PathLike[str], *, prefix: str = "", dtype: DTypeLike | None = None, **options: Any
) -> Recurrent | Readout | MLP | Network:
    """Build the layer, readout or network whose weights a file holds.

    Parameters
    ----------
    path : path-like
        A file of :func:`save_safetensors`, which also states class and options; or one of others with PyTorch's names,
        whose names and shapes tell the cell and the sizes.
    prefix : str, default ""
        Which part of the file, such as ``"layer."``.
    dtype : {None, "float64", "float32"}
        None for that of the weights; a narrower one rounds.
    **options
        What the file does not state: ``batch_first``, ``dropout``, ``recurrent_dropout``; for files of others also
        ``nonlinearity`` (needed for an Elman network), ``reset_after``, ``zoneout``, ``at``.

    Returns
    -------
    RNN, LSTM, GRU, MGU, Readout, MLP or Network
        New.

    Raises
    ------
    MissingExtraError, OSError
        As for :func:`load_safetensors`.
    ArgumentError
        If an option contradicts what the file states, or is missing; if a weight is not finite.
    StateDictError, ShapeError, DTypeError
        If the file is damaged, or no model has weights of these names, shapes and types.
    """
    weights = _load(path, prefix)
    if unknown := sorted(set(options) - set(UNSTATED)):
        raise ArgumentError(f"{', '.join(unknown)} must not be given: options are {', '.join(UNSTATED)}")
    return model_from_weights(weights, dtype, options, weights.stated)


def _load(path: str | os.PathLike[str], prefix: str) -> StatedWeights:
    """The weights at a prefix, and what is stated about them."""
    package = _import("load_safetensors")
    check_source(path)
    try:
        with package.safe_open(path, framework="np") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 not a mapping
            if not names:
                got = listed(file.keys(), 20) or "no weights"
                raise StateDictError(f"{shown(os.fspath(path))}: no name starts with {quoted(prefix)}; it holds {got}")
            words = file.metadata() or {}
            weights = {name.removeprefix(prefix): v for name, v in _read(package, path, file, names).items()}
    except ElmanError:
        raise
    except Exception as error:  # also what NumPy says of a shape that the header states
        raise StateDictError(
            f"{shown(os.fspath(path))} is not a safetensors file, or is damaged: {shown(error, 300)}"
        ) from error
    start = f"{KEY}:{prefix}"
    stated = {name.removeprefix(start): kind for name, kind in words.items() if name.startswith(start)}
    return StatedWeights(weights, stated)


def _import(purpose: str) -> Any:
    """The package with its NumPy side, or the error that names the extra."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtraError("safetensors", "io", purpose) from error
    return safetensors


def _read(package: Any, path: str | os.PathLike[str], file: Any, names: list[str]) -> dict[str, Array]:
    """Arrays by name; bfloat16 is the upper half of a float32, and so becomes one exactly."""
    kinds = {name: file.get_slice(name).get_dtype() for name in names}
    for name, kind in kinds.items():
        if kind not in READABLE:
            raise StateDictError(
                f"{shown(name)} has the type {kind}, which NumPy does not have; convert it to float32 first"
            )
    raw = dict(package.deserialize(Path(path).read_bytes())) if "BF16" in kinds.values() else {}

    def one(name: str) -> Array:
        if kinds[name] != "BF16":
            array: Array = file.get_tensor(name)
            return array
        upper = np.frombuffer(raw[name]["data"], "<u2").astype(np.uint32)
        return (upper << 16).view(np.float32).reshape(raw[name]["shape"])

    return {name: one(name) for name in names}
