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
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, MissingExtraError, StateDictError
from ..files import replacing
from ..layers import Network
from ..layers.parameters import Parameterised

Array = NDArray[Any]
Model = TypeVar("Model", bound=Parameterised)
KEY = "elman"
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
        If the file cannot be written.
    """
    save_file = _import("save_safetensors").numpy.save_file
    given = dict(metadata or {})
    for name, value in given.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise DTypeError(f"metadata must map text to text, got {name!r}: {value!r}; numbers go in with str()")
        if name.startswith(KEY):
            raise ArgumentError(f"metadata must not have keys that start with {KEY!r}, got {name!r}")
    own = {KEY + ":" + prefix: kind for prefix, kind in _kinds(model).items()}
    with replacing(path) as temporary:
        save_file(model.state_dict(), temporary, metadata=given | own)


@overload
def load_safetensors(path: str | os.PathLike[str], model: None = None, *, prefix: str = "") -> dict[str, Array]: ...


@overload
def load_safetensors(path: str | os.PathLike[str], model: Model, *, prefix: str = "") -> Model: ...


def load_safetensors(
    path: str | os.PathLike[str], model: Parameterised | None = None, *, prefix: str = ""
) -> dict[str, Array] | Parameterised:
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
        The weights by name, bfloat16 as float32 (exact); or the model that was given.

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
        If a shape does not fit, or a weight is not finite.
    OSError
        If the file cannot be read.
    """
    package = _import("load_safetensors")
    try:
        with package.safe_open(path, framework="np") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 not a mapping
            if not names:
                got = ", ".join(file.keys()) or "no weights"
                raise StateDictError(f"{os.fspath(path)}: no name starts with {prefix!r}; it holds {got}")
            words = file.metadata() or {}
            weights = {name.removeprefix(prefix): v for name, v in _read(package, path, file, names).items()}
    except package.SafetensorError as error:
        raise StateDictError(f"{os.fspath(path)} is not a safetensors file, or is damaged: {error}") from error
    if model is None:
        return weights
    for part, kind in _kinds(model).items():
        written = words.get(f"{KEY}:{prefix}{part}", kind)
        if written != kind:
            raise StateDictError(
                f"{os.fspath(path)} holds the weights of {written}, which compute other things in {kind}; make the "
                "model the same"
            )
    for name, value in weights.items():
        if value.dtype == np.float64 and model.dtype != np.float64:
            raise DTypeError(f'{name} is float64, which a float32 model would round; make it with dtype="float64"')
    model.load_state_dict(weights)
    return model


def _import(purpose: str) -> Any:
    """The package with its NumPy side, or the error that names the extra."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtraError("safetensors", "io", purpose) from error
    return safetensors


def _kinds(model: Parameterised) -> dict[str, str]:
    """What names and shapes of weights do not tell, by the prefix of the part."""
    if isinstance(model, Network):
        return {"": f"Network(at={model.at!r})", "layer.": _kind(model.layer), "readout.": _kind(model.readout)}
    if not isinstance(model, Parameterised):
        raise DTypeError(f"model must be a layer, a readout or a network of elman, got {type(model).__name__}")
    return {"": _kind(model)}


def _kind(model: Parameterised) -> str:
    """Class and the options that decide what the weights mean."""
    names = ["nonlinearity", "reset_after"] + ["zoneout"] * any(getattr(model, "zoneout", ()))
    options = [f"{name}={getattr(model, name)!r}" for name in names if hasattr(model, name)]
    return f"{type(model).__name__}({', '.join(options)})"


def _read(package: Any, path: str | os.PathLike[str], file: Any, names: list[str]) -> dict[str, Array]:
    """Arrays by name; bfloat16 is the upper half of a float32, and so becomes one exactly."""
    kinds = {name: file.get_slice(name).get_dtype() for name in names}
    for name, kind in kinds.items():
        if kind not in READABLE:
            raise StateDictError(f"{name} has the type {kind}, which NumPy does not have; convert it to float32 first")
    raw = dict(package.deserialize(Path(path).read_bytes())) if "BF16" in kinds.values() else {}

    def one(name: str) -> Array:
        if kinds[name] != "BF16":
            array: Array = file.get_tensor(name)
            return array
        upper = np.frombuffer(raw[name]["data"], "<u2").astype(np.uint32)
        return (upper << 16).view(np.float32).reshape(raw[name]["shape"])

    return {name: one(name) for name in names}
