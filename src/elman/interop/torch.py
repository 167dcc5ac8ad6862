"""PyTorch's recurrent modules, there and back, and the files it saves.

Names, shapes and gate orders are PyTorch's, so no number is permuted or rounded. torch is imported only where its own
objects are made or its files read: arrays under PyTorch's names convert without it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ArgumentError, DTypeError, MissingExtraError, ShapeError, StateDictError
from ..layers import GRU, LSTM, RNN, Network, Readout
from ..layers.dense import Dense
from ..layers.parameters import rounded
from ..layers.recurrent import Recurrent

Array = NDArray[Any]
NAME = re.compile(r"(?:weight_(?:ih|hh|hr)|bias_(?:ih|hh))_l(\d+)(_reverse)?")
CELLS: dict[int, Any] = {1: RNN, 3: GRU, 4: LSTM}
"""Blocks of H rows in ``weight_ih``, and the layer that has them."""

MODULES = {
    "RNN": ("nonlinearity", "batch_first", "dropout"),
    "LSTM": ("batch_first", "dropout"),
    "GRU": ("batch_first", "dropout"),
    "Linear": (),
}
"""Modules of torch.nn, and those of their options that the weights do not tell."""

UNTOLD = ("nonlinearity", "batch_first", "dropout", "recurrent_dropout", "zoneout")
"""Options of elman's layers that the weights do not tell."""


def from_torch(
    source: Any, *, prefix: str = "", dtype: DTypeLike | None = None, **options: Any
) -> RNN | LSTM | GRU | Readout:
    """Build a layer from a module of PyTorch or from weights under its names.

    Parameters
    ----------
    source : torch.nn.Module or mapping of str to tensor or ndarray
        ``nn.RNN``, ``nn.LSTM``, ``nn.GRU``, ``nn.Linear``, or a model that holds one at ``prefix``; or a state dict,
        whose names and shapes tell cell, sizes, layers, directions, projection and bias.
    prefix : str, default ""
        Which part of a model, such as ``"encoder.rnn."``. Every weight below it is used exactly once.
    dtype : {None, "float64", "float32"}
        None for that of the weights; 16-bit numbers then become float32, which is exact. A narrower one rounds.
    **options
        What a state dict does not tell: ``nonlinearity`` (needed for a plain RNN), ``batch_first``, ``dropout``; of a
        module these are read. ``recurrent_dropout`` and ``zoneout``, which PyTorch does not have.

    Returns
    -------
    RNN, LSTM, GRU or Readout
        New, with copies of the weights.

    Raises
    ------
    StateDictError
        If weights are missing or unknown, or no recurrent layer or linear map has such weights.
    ArgumentError
        If an option is missing, or is one that the source tells; if a weight is not finite.
    DTypeError, ShapeError
        For other modules and types, tensors without plain values, and shapes that do not fit each other.

    Examples
    --------
    >>> import numpy as np
    >>> from elman.interop.torch import from_torch
    >>> weights = {"rnn.weight_ih_l0": np.ones((12, 2)), "rnn.weight_hh_l0": np.eye(12, 4)}
    >>> from_torch(weights, prefix="rnn.").hidden_size
    4
    """
    told: tuple[str, ...] = tuple(name for name in options if name not in UNTOLD)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        module = _part(torch, source, prefix)
        source, prefix, read = module.state_dict(), "", MODULES[type(module).__name__]
        told += tuple(name for name in read if name in options)
        options = {name: getattr(module, name) for name in read} | options
        if getattr(module, "num_layers", 1) == 1:
            # it acts between layers, and PyTorch takes it, with a warning, where there is nothing between
            options.pop("dropout", None)
    if told:
        raise ArgumentError(f"{', '.join(told)} must not be given: the source tells, or PyTorch has no other form")
    if not isinstance(source, Mapping):
        raise DTypeError(
            f"from_torch takes a torch.nn.Module or a state dict, a mapping of names to arrays; got "
            f"{type(source).__name__}"
        )
    names = present(source, prefix)
    weights = {name.removeprefix(prefix): _array(source[name], name) for name in names}
    layer = _make(weights, names, dtype, options)
    layer.load_state_dict(rounded(weights, layer.dtype))
    return layer


def to_torch(model: Recurrent | Dense | Network) -> Any:
    """Build PyTorch's module with the weights of a layer.

    Parameters
    ----------
    model : RNN, LSTM, GRU, Readout, or Network with a Readout
        Where the weights come from.

    Returns
    -------
    torch.nn.RNN, LSTM, GRU, Linear or ModuleDict
        With copies of the weights, in the layer's dtype, in evaluation mode as the layer's own calls are: call
        ``.train()`` for dropout. A network becomes ``ModuleDict`` with the keys ``layer`` and ``readout``, whose state
        dict has the names of ``network.params``. PyTorch's random state stays as it is.

    Raises
    ------
    MissingExtraError
        Without torch.
    ArgumentError
        If PyTorch cannot express an option: ``nonlinearity`` sigmoid or identity, ``reset_after=False``,
        ``learn_initial_state``, ``zoneout``, ``recurrent_dropout`` (also where only training would differ), no inputs.
    DTypeError
        For other models.
    """
    torch = import_torch("to_torch")
    if isinstance(model, Network):
        if model.at != "steps":
            raise ArgumentError(f"a ModuleDict does not say at={model.at!r}: give layer and readout one by one")
        return torch.nn.ModuleDict({"layer": to_torch(model.layer), "readout": to_torch(model.readout)})
    options: dict[str, Any] = {"device": "meta", "dtype": getattr(torch, model.dtype.name)}
    if isinstance(model, Readout):
        module = torch.nn.Linear(model.input_size, model.output_size, bias="bias" in model.params, **options)
    elif type(model) in CELLS.values():
        _refuse_foreign(model)
        own = {RNN: ("nonlinearity",), LSTM: ("proj_size",), GRU: ()}[type(model)]
        options |= {
            name: getattr(model, name)
            for name in ("num_layers", "bias", "batch_first", "dropout", "bidirectional", *own)
        }
        module = getattr(torch.nn, type(model).__name__)(model.input_size, model.hidden_size, **options)
    else:
        raise DTypeError(f"to_torch takes RNN, LSTM, GRU, Readout or a Network of them; got {type(model).__name__}")
    # made without memory, hence without drawing weights from the global random state
    module = module.to_empty(device="cpu")
    module.load_state_dict({name: torch.from_numpy(array) for name, array in model.state_dict().items()})
    return module.eval()


def import_torch(purpose: str) -> Any:
    """The package, or the error that names the extra."""
    try:
        import torch
    except ImportError as error:
        missing = MissingExtraError("torch", "peers", purpose)
        missing.add_note("without a GPU first: pip install torch --index-url https://download.pytorch.org/whl/cpu")
        raise missing from error
    return torch


def _part(torch: Any, module: Any, prefix: str) -> Any:
    """The module of torch.nn at ``prefix``."""
    try:
        part = module.get_submodule(prefix.removesuffix("."))
    except AttributeError as error:
        raise StateDictError(f"the model has no part {prefix!r}: {error}") from error
    if type(part) in (getattr(torch.nn, name) for name in MODULES):
        return part
    parts = [name for name, m in part.named_modules() if type(m).__name__ in MODULES]
    raise DTypeError(
        f"from_torch takes exactly torch.nn.{', torch.nn.'.join(MODULES)}; {type(part).__name__} may compute other "
        "things" + (f". Give one of its parts as prefix: {', '.join(parts)}" if parts else "")
    )


def present(source: Mapping[str, Any], prefix: str) -> list[str]:
    """Names that start with ``prefix``, at least one."""
    names = [name for name in source if isinstance(name, str) and name.startswith(prefix)]
    if not names:
        got = ", ".join(map(str, source)) or "no weights"
        raise StateDictError(f"no name of a weight starts with {prefix!r}; got {got}")
    return names


def values(value: Any, name: str) -> Array:
    """An array of a tensor's numbers; narrow floating-point numbers as float32, which holds them exactly."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_meta or value.is_quantized:
            raise DTypeError(f"{name} must be a dense tensor with its numbers in memory; got {value.layout}, "
                             f"{value.dtype} on {value.device}")  # fmt: skip
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            value = value.float()
        return np.asarray(value.numpy(force=True))
    return np.asarray(value)


def _array(value: Any, name: str) -> Array:
    """:func:`values` of a weight, which must be a floating-point number."""
    array = values(value, name)
    if array.dtype.kind != "f":
        raise DTypeError(f"{name} must hold real floating-point numbers, got dtype {array.dtype}; convert it")
    return array


def _make(weights: dict[str, Array], names: list[str], dtype: DTypeLike | None, options: dict[str, Any]) -> Any:
    """A layer for weights of these names and shapes, its own weights not drawn."""
    kind: DTypeLike = np.result_type(np.float32, *weights.values()) if dtype is None else dtype
    if "weight" in weights and set(weights) <= {"weight", "bias"}:
        Q, K = _matrix(weights, "weight")
        _refuse_options(options, "a linear map")
        return Readout(K, Q, bias="bias" in weights, dtype=kind, weight_init="zeros")
    parts = _recurrent(weights, names)
    projected = "weight_hr_l0" in weights
    (rows, D), (_, P) = _matrix(weights, "weight_ih_l0"), _matrix(weights, "weight_hh_l0")
    H = _matrix(weights, "weight_hr_l0")[1] if projected else P
    cell = CELLS.get(rows // H) if H and rows % H == 0 else None
    if cell is None or (projected and cell is not LSTM):
        raise ShapeError(
            f"weight_ih_l0 must have H (RNN), 3 H (GRU) or 4 H (LSTM, the only one with weight_hr) rows for H = {H}, "
            f"got {rows}"
        )
    if cell is RNN and "nonlinearity" not in options:
        raise ArgumentError('nonlinearity must be given, since weights do not tell it: "tanh" is PyTorch\'s default')
    if cell is not RNN:
        _refuse_options({k: v for k, v in options.items() if k == "nonlinearity"}, f"one {cell.__name__}")
    if projected:
        options = options | {"proj_size": P}
    return cell(
        D, H, 1 + max(int(part[1]) for part in parts), bias=any(name.startswith("bias") for name in weights),
        bidirectional=any(part[2] for part in parts), dtype=kind, weight_ih_init="zeros", weight_hh_init="zeros",
        **options,
    )  # fmt: skip


def _refuse_options(options: dict[str, Any], kind: str) -> None:
    """Refuse options that this kind of layer does not have."""
    if options:
        raise ArgumentError(f"{', '.join(options)} must not be given: by their shapes these are the weights of {kind}")


def _recurrent(weights: dict[str, Array], names: list[str]) -> list[re.Match[str]]:
    """The names taken apart, if they are a recurrent layer's, with every layer there."""
    parts = {name: NAME.fullmatch(name) for name in weights}
    known = [part for part in parts.values() if part]
    unknown = [name for name, part in zip(names, parts.values(), strict=True) if part is None]
    layers = {0, *(int(part[1]) for part in known)}
    first = [f"weight_{kind}_l{k}" for k in range(len(layers)) for kind in ("ih", "hh")]
    missing = [name for name in first if name not in weights]
    if missing or unknown:
        starts = sorted({re.sub(r"[^.]*$", "", name) for name in unknown if NAME.search(name)})
        raise StateDictError(
            "a recurrent layer's weights are weight_ih_l0, weight_hh_l0, ..., a linear map's weight and bias"
            + (f"; missing {', '.join(missing)}" if missing else "")
            + (f"; unknown {', '.join(unknown)}" if unknown else "")
            + (f". Of a model choose a part by its prefix: {', '.join(map(repr, starts))}" if starts else "")
        )
    return known


def _matrix(weights: dict[str, Array], name: str) -> tuple[int, int]:
    """Shape of a weight of two axes."""
    if weights[name].ndim != 2:
        raise ShapeError(f"{name} must have two axes, got shape {weights[name].shape}")
    rows, columns = weights[name].shape
    return rows, columns


def _refuse_foreign(layer: Any) -> None:
    """Refuse a layer with an option that PyTorch does not have."""
    foreign = ["zoneout"] if any(layer.zoneout) else []
    foreign += [name for name in ("recurrent_dropout", "learn_initial_state") if getattr(layer, name)]
    if isinstance(layer, RNN) and layer.nonlinearity not in ("tanh", "relu"):
        foreign.append("nonlinearity")
    if isinstance(layer, GRU) and not layer.reset_after:
        foreign.append("reset_after")
    if foreign:
        raise ArgumentError(
            "PyTorch has no layer with "
            + ", ".join(f"{name} = {getattr(layer, name)!r}" for name in foreign)
            + "; to leave out what acts in training only, load the weights into a layer without it first"
        )
    if layer.input_size == 0:
        raise ArgumentError("PyTorch has no layer with input_size = 0")
