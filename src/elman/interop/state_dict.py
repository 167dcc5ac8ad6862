"""Layers made from weights under PyTorch's names, which with their shapes determine most of the layer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError, StateDictError
from ..layers import GRU, LSTM, MGU, MLP, RNN, Network, Readout
from ..layers.parameters import rounded
from ..layers.recurrent import Recurrent
from .metadata import merged

Array = NDArray[Any]
NAME = re.compile(r"(?:weight_(?:ih|hh|hr)|bias_(?:ih|hh)|[hc]0)_l(\d+)(_reverse)?")
CELL_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Names in PyTorch's RNNCell, LSTMCell and GRUCell, which lack the number of a layer."""
CELLS: dict[int, Any] = {1: RNN, 3: GRU, 4: LSTM}
"""Number of blocks of H rows in ``weight_ih``, and the layer that has as many."""


def numbered(weights: Mapping[str, Array]) -> dict[str, Array]:
    """The same weights; those of one of PyTorch's cells get the names of a layer."""
    if {"weight_ih", "weight_hh"} <= set(weights) <= set(CELL_NAMES):
        return {f"{name}_l0": value for name, value in weights.items()}
    return dict(weights)


def prefixes(shapes: Mapping[str, Any]) -> list[str]:
    """Prefixes below which a recurrent layer's weights lie."""
    last = {name: name.rpartition(".")[2] for name in shapes}
    found = {name.removesuffix(end) for name, end in last.items() if end in ("weight_hh_l0", "weight_hh")}
    return sorted(found)


def layer_from_weights(
    weights: Mapping[str, Array], labels: Mapping[str, str], dtype: DTypeLike | None, options: dict[str, Any],
    stated: str | None = None,
) -> Any:  # fmt: skip
    """A layer or linear readout with these weights.

    Parameters
    ----------
    weights : mapping of str to ndarray
        By name without prefix.
    labels : mapping of str to str
        The name of each with its prefix, for errors.
    dtype : {None, "float64", "float32"}
        None for that of the weights.
    options : dict
        Options that the weights do not determine.
    stated : str, optional
        What their file states; see :mod:`elman.interop.metadata`.

    Returns
    -------
    RNN, LSTM, GRU, MGU, Readout or MLP

    Raises
    ------
    StateDictError, ShapeError, DTypeError, ArgumentError
        If no layer has such weights, or an option is missing, or given although the weights or their file determine it.
    """
    for name, array in weights.items():
        if array.dtype.kind != "f":
            raise DTypeError(f"{labels[name]} must hold real floating-point numbers, got dtype {array.dtype}; "
                             "convert it")  # fmt: skip
    kind: DTypeLike = np.result_type(np.float32, *weights.values()) if dtype is None else dtype
    cell = None
    if stated is not None:
        cell, options = merged(stated, options)
    if cell is MLP:
        layer: Any = _perceptron(weights, kind, options)
    elif cell is Readout or (cell is None and "weight" in weights and set(weights) <= {"weight", "bias"}):
        Q, K = _matrix(weights, "weight")
        _refuse_options(options, "a linear map")
        layer = Readout(K, Q, bias="bias" in weights, dtype=kind, weight_init="zeros")
    else:
        named = numbered(weights)
        # renaming preserves the order
        labels = {new: labels[old] for new, old in zip(named, weights, strict=True)}
        weights = named
        layer = _recurrent(weights, labels, kind, options, cell)
    layer.load_state_dict(rounded(weights, layer.dtype))
    return layer


def model_from_weights(
    weights: Mapping[str, Array], dtype: DTypeLike | None, options: dict[str, Any], stated: Mapping[str, str]
) -> Recurrent | Readout | MLP | Network:
    """A layer, readout or network with these weights; a network's names are ``layer. ...`` and ``readout. ...``."""
    parts = [p for p in ("layer.", "readout.") if any(name.startswith(p) for name in weights)]
    if len(parts) < 2:
        layer: Recurrent | Readout = layer_from_weights(
            weights, {name: name for name in weights}, dtype, options, stated.get("")
        )
        return layer
    at = {"at": options["at"]} if "at" in options else {}
    if "" in stated:
        kind, at = merged(stated[""], at)
        if kind is not Network:
            raise StateDictError(f"the file states {stated['']}, but holds the weights of a network")
    own = {
        "layer.": {name: value for name, value in options.items() if name != "at"},
        "readout.": {},
    }
    stray = [name for name in weights if not name.startswith(("layer.", "readout."))]
    if stray:
        raise StateDictError(f"a network's weights start with 'layer.' or 'readout.'; unknown {', '.join(stray)}")
    made = {}
    for part in parts:
        below = {name.removeprefix(part): value for name, value in weights.items() if name.startswith(part)}
        labels = {name: part + name for name in below}
        # both parts must have the type of the whole
        whole = np.result_type(np.float32, *weights.values()) if dtype is None else dtype
        made[part] = layer_from_weights(below, labels, whole, own[part], stated.get(part))
    return Network(made["layer."], made["readout."], **at)


def cell_of(weights: Mapping[str, Array], stated: Any = None) -> tuple[Any, int, int, int]:
    """The layer's class by the shapes, and the numbers of inputs D, units H and outputs P.

    Parameters
    ----------
    weights : mapping of str to ndarray
        Under the names of a layer.
    stated : class, optional
        What the file states; PyTorch has no MGU, so that the shapes of one alone are taken for a mistake.
    """
    if missing := [name for name in ("weight_ih_l0", "weight_hh_l0") if name not in weights]:
        raise StateDictError(f"a recurrent layer's weights are weight_ih_l0, weight_hh_l0, ...; missing {missing[0]}")
    projected = "weight_hr_l0" in weights
    (rows, D), (_, P) = _matrix(weights, "weight_ih_l0"), _matrix(weights, "weight_hh_l0")
    H = _matrix(weights, "weight_hr_l0")[1] if projected else P
    blocks = rows // H if H and rows % H == 0 else 0
    cell = MGU if stated is MGU and blocks == 2 else CELLS.get(blocks)
    if cell is None or (projected and cell is not LSTM):
        raise ShapeError(
            f"weight_ih_l0 must have H (RNN), 3 H (GRU) or 4 H (LSTM, the only one with weight_hr) rows for H = {H}, "
            f"got {rows}"
        )
    return cell, D, H, P


def _perceptron(weights: Mapping[str, Array], dtype: DTypeLike, options: dict[str, Any]) -> MLP:
    """A perceptron with these shapes; only a file of elman says that it is one."""
    missing = [name for name in ("weight_ih", "weight_ho") if name not in weights]
    if missing:
        raise StateDictError(f"a perceptron's weights are weight_ih, bias_ih, weight_ho, bias_ho; missing {missing}")
    (H, D), (Q, _) = _matrix(weights, "weight_ih"), _matrix(weights, "weight_ho")
    return MLP(D, H, Q, dtype=dtype, **options)


def _recurrent(
    weights: Mapping[str, Array], labels: Mapping[str, str], dtype: DTypeLike, options: dict[str, Any], stated: Any
) -> Any:
    """A recurrent layer with these shapes, its weights not yet loaded."""
    parts = _parts(weights, labels)
    cell, D, H, P = cell_of(weights, stated)
    if stated is not None and stated is not cell:
        raise StateDictError(f"the file states {stated.__name__}, but its weights have the shapes of {cell.__name__}")
    if cell is RNN and "nonlinearity" not in options:
        raise ArgumentError('nonlinearity must be given, since weights do not tell it: "tanh" is PyTorch\'s default')
    foreign = {"nonlinearity": RNN, "reset_after": GRU}
    _refuse_options({k: v for k, v in options.items() if foreign.get(k, cell) is not cell}, f"one {cell.__name__}")
    if "weight_hr_l0" in weights:
        options = options | {"proj_size": P}
    return cell(
        D, H, 1 + max(int(part[1]) for part in parts), bias=any(name.startswith("bias") for name in weights),
        bidirectional=any(part[2] for part in parts), dtype=dtype, weight_ih_init="zeros", weight_hh_init="zeros",
        learn_initial_state=any(name.startswith(("h0", "c0")) for name in weights), **options,
    )  # fmt: skip


def _parts(weights: Mapping[str, Array], labels: Mapping[str, str]) -> list[re.Match[str]]:
    """The names split into their parts, if they are those of a recurrent layer and no layer is missing."""
    parts = {name: NAME.fullmatch(name) for name in weights}
    known = [part for part in parts.values() if part]
    unknown = [labels[name] for name, part in parts.items() if part is None]
    layers = {0, *(int(part[1]) for part in known)}
    first = [f"weight_{kind}_l{k}" for k in range(len(layers)) for kind in ("ih", "hh")]
    missing = [name for name in first if name not in weights]
    if missing or unknown:
        starts = prefixes(dict.fromkeys(unknown))
        raise StateDictError(
            "a recurrent layer's weights are weight_ih_l0, weight_hh_l0, ..., a linear map's weight and bias"
            + (f"; missing {', '.join(missing)}" if missing else "")
            + (f"; unknown {', '.join(unknown)}" if unknown else "")
            + (f". Of a model choose a part by its prefix: {', '.join(map(repr, starts))}" if starts else "")
        )
    return known


def _matrix(weights: Mapping[str, Array], name: str) -> tuple[int, int]:
    """The shape of a weight with two axes."""
    if weights[name].ndim != 2:
        raise ShapeError(f"{name} must have two axes, got shape {weights[name].shape}")
    rows, columns = weights[name].shape
    return rows, columns


def _refuse_options(options: dict[str, Any], kind: str) -> None:
    """Refuse options that this kind of layer does not have."""
    if options:
        raise ArgumentError(f"{', '.join(options)} must not be given: by their shapes these are the weights of {kind}")
