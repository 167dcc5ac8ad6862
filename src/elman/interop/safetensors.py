"""Weights in safetensors files: names, shapes and numbers, and nothing that runs when it is read.

The format is read by PyTorch, JAX and others: https://huggingface.co/docs/safetensors. Besides the weights, a file
states what their names and shapes do not tell, such as the nonlinearity, so that they are not loaded into another kind
of layer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike

from ..errors import ArgumentError, DTypeError, StateDictError
from ..files import check_target, listed, quoted, shown
from ..layers import MLP, Network, Readout
from ..layers.parameters import Parameterised
from ..layers.recurrent import Recurrent
from ..tensor_file import DESCRIPTION, NET, open_tensors, write_tensors
from .metadata import KEY, StatedWeights, kinds, stated_by
from .state_dict import model_from_weights

Model = TypeVar("Model", bound=Parameterised)
UNSTATED = ("batch_first", "dropout", "recurrent_dropout", "nonlinearity", "reset_after", "zoneout", "at")
"""Options that a file may leave open."""


def save_safetensors(
    model: Parameterised, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the weights of a layer, readout or network.

    Parameters
    ----------
    model : RNN, LSTM, GRU, Readout, MLP or Network
        The model whose ``state_dict()`` is written, in its dtype.
    path : path-like
        The file; it appears whole or not at all.
    metadata : mapping of str to str, optional
        Further text for the header. Keys that start with ``"elman"`` are reserved.

    Raises
    ------
    DTypeError, ArgumentError
        If the metadata are not text, or use a reserved key.
    OSError
        If the file cannot be written; WriteError on a full disk.
    """
    check_target(path)
    given = dict(metadata or {})
    for name, value in given.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise DTypeError(f"metadata must map text to text, got {name!r}: {value!r}; numbers go in with str()")
        if name.startswith(KEY):
            raise ArgumentError(f"metadata must not have keys that start with {KEY!r}, got {name!r}")
    own = {KEY + ":" + prefix: kind for prefix, kind in kinds(model).items()}
    write_tensors(path, model.state_dict(), given | own)


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
        A file of :func:`save_safetensors`, PyTorch or others; or one of :func:`elman.save`, from which the model's
        parameters are read.
    model : layer, readout or network, optional
        A model that loads all weights exactly, or is not changed.
    prefix : str, default ""
        Read only weights whose names start with it, such as ``"encoder.rnn."``; it is removed from the names.

    Returns
    -------
    dict of str to ndarray, or model
        The weights by name, bfloat16 as float32 (exact), with an attribute ``stated``: what a file of elman states
        about them, such as ``{"": "GRU(reset_after=False)"}``, which :func:`elman.interop.from_torch` respects. Or the
        model that was given.

    Raises
    ------
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
        A file of :func:`save_safetensors`, which also states class and options, or of :func:`elman.save`, which
        :func:`elman.load` reads as a whole; or a file from elsewhere with PyTorch's names, where names and shapes
        determine the cell and the sizes.
    prefix : str, default ""
        Which part of the file, such as ``"layer."``.
    dtype : {None, "float64", "float32"}
        None for that of the weights; a narrower one rounds.
    **options
        What the file does not state: ``batch_first``, ``dropout``, ``recurrent_dropout``; for files from elsewhere also
        ``nonlinearity`` (needed for an Elman network), ``reset_after``, ``zoneout``, ``at``.

    Returns
    -------
    RNN, LSTM, GRU, MGU, Readout, MLP or Network
        A new model.

    Raises
    ------
    OSError
        If the file cannot be read.
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
    """The weights below a prefix, and what is stated about them."""
    file = open_tensors(path)
    mark = f"{KEY}:"
    start, told = "", {name.removeprefix(mark): k for name, k in file.metadata.items() if name.startswith(mark)}
    if DESCRIPTION in file.metadata:  # a file of elman.save, whose other arrays are not weights
        start, told = NET, stated_by(file.metadata[DESCRIPTION])
    names = {name.removeprefix(start): name for name in file.entries if name.startswith(start)}
    chosen = {short: name for short, name in names.items() if short.startswith(prefix)}
    if not chosen:
        got = listed(names, 20) or "no weights"
        raise StateDictError(f"{shown(os.fspath(path))}: no name starts with {quoted(prefix)}; it holds {got}")
    weights = {short.removeprefix(prefix): file.read(name) for short, name in chosen.items()}
    return StatedWeights(weights, {p.removeprefix(prefix): k for p, k in told.items() if p.startswith(prefix)})
