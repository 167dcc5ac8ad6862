"""PyTorch's recurrent modules, in both directions, and the files it saves.

Names, shapes and gate orders are PyTorch's, so no number is permuted or rounded. torch is imported only where its own
objects are made or its files read: arrays under PyTorch's names are converted without it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ArgumentError, DTypeError, MissingExtraError, StateDictError
from ..files import listed, quoted
from ..layers import GRU, LSTM, MLP, RNN, Network, Readout
from ..layers.dense import Dense
from ..layers.recurrent import Recurrent
from ..validation.arrays import plain
from .metadata import stated_under
from .state_dict import CELLS, layer_from_weights, model_from_weights
from .torch_heads import PARTS, WEIGHTS, is_network, is_perceptron, perceptron_module, perceptron_of

Array = NDArray[Any]
MODULES = {
    "RNN": ("nonlinearity", "batch_first", "dropout"),
    "LSTM": ("batch_first", "dropout"),
    "GRU": ("batch_first", "dropout"),
    "RNNCell": ("nonlinearity",),
    "LSTMCell": (),
    "GRUCell": (),
    "Linear": (),
}
"""Modules of torch.nn, and those of their options that the weights do not reveal."""

UNTOLD = ("nonlinearity", "batch_first", "dropout", "recurrent_dropout", "zoneout")
"""Options of elman's layers that the weights do not reveal."""


def from_torch(
    source: Any, *, prefix: str = "", dtype: DTypeLike | None = None, **options: Any
) -> Recurrent | Readout | MLP | Network:
    """Build a layer or network from a module of PyTorch or from weights under its names.

    Parameters
    ----------
    source : torch.nn.Module or mapping of str to tensor or ndarray
        A module: ``nn.RNN``, ``nn.LSTM``, ``nn.GRU``, ``nn.Linear``; ``nn.RNNCell``, ``nn.LSTMCell`` or
        ``nn.GRUCell``, which becomes a layer that takes whole sequences; a ``Sequential`` of ``Linear``, a nonlinearity
        that elman has and ``Linear``, which becomes a perceptron; a ``ModuleDict`` of ``layer`` and ``readout``, which
        becomes a network; or a model that holds one of them at ``prefix``. Or a state dict, whose names and shapes
        determine cell, sizes, layers, directions, projection and bias, and if it comes from elman also learned initial
        states (``h0_l0``, ...). What a file of elman states is respected as long as it is still attached to the weights
        (:func:`elman.interop.load_safetensors`).
    prefix : str, default ""
        Which part of a model, such as ``"encoder.rnn."``. Every weight below it is used exactly once.
    dtype : {None, "float64", "float32"}
        None for that of the weights; 16-bit numbers then become float32, which is exact. A narrower dtype rounds.
    **options
        What a state dict does not tell: ``nonlinearity`` (needed for a plain RNN), ``batch_first``, ``dropout``; these
        are read from a module. Also ``recurrent_dropout`` and ``zoneout``, which PyTorch does not have, and for a
        network ``at``.

    Returns
    -------
    RNN, LSTM, GRU, Readout, MLP or Network
        A new model with copies of the weights.

    Raises
    ------
    StateDictError
        If weights are missing or unknown, or no recurrent layer or linear map has such weights.
    ArgumentError
        If an option is missing, is given although the source determines it, or contradicts what the source states; if a
        weight is not finite.
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
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        return _from_module(torch, _part(torch, source, prefix), dtype, options)
    if not isinstance(source, Mapping):
        raise DTypeError(
            f"from_torch takes a torch.nn.Module or a state dict, a mapping of names to arrays; got "
            f"{type(source).__name__}"
        )
    labels = {name.removeprefix(prefix): name for name in present(source, prefix)}
    weights = {short: values(source[name], name) for short, name in labels.items()}
    stated = stated_under(source, prefix)
    if all(any(name.startswith(f"{part}.") for name in weights) for part in PARTS):
        _refuse_told(options, (*UNTOLD, "at"))
        return model_from_weights(weights, dtype, options, stated)
    _refuse_told(options, UNTOLD)
    return layer_from_weights(weights, labels, dtype, options, stated.get(""))


def _refuse_told(options: Mapping[str, Any], untold: Collection[str]) -> None:
    """Refuse options that need not be given or cannot be respected."""
    if told := [name for name in options if name not in untold]:
        raise ArgumentError(f"{', '.join(told)} must not be given: the source tells, or PyTorch has no other form")


def _from_module(torch: Any, module: Any, dtype: DTypeLike | None, options: dict[str, Any]) -> Any:
    """The layer, perceptron or network of a module of torch.nn."""
    weights = {name: values(value, name) for name, value in module.state_dict().items()}
    if is_network(torch, module):
        at = {"at": options.pop("at")} if "at" in options else {}
        # both parts must have the type of the whole
        whole = np.result_type(np.float32, *weights.values()) if dtype is None else dtype
        layer, readout = from_torch(module["layer"], dtype=whole, **options), from_torch(module["readout"], dtype=whole)
        return Network(layer, readout, **at)  # type: ignore[arg-type]  # refused in its own words
    if is_perceptron(torch, module):
        _refuse_told(options, ())
        return perceptron_of(module, weights, dtype)
    read = MODULES[type(module).__name__]
    _refuse_told(options, [name for name in UNTOLD if name not in read])
    options = {name: getattr(module, name) for name in read} | options
    if getattr(module, "num_layers", 1) == 1:
        # dropout acts between layers; with a single layer PyTorch accepts it, with a warning
        options.pop("dropout", None)
    return layer_from_weights(weights, {name: name for name in weights}, dtype, options, None)


def to_torch(model: Recurrent | Dense | Network) -> Any:
    """Build PyTorch's module with the weights of a layer.

    Parameters
    ----------
    model : RNN, LSTM, GRU, Readout, MLP, or Network of them
        The model whose weights are copied.

    Returns
    -------
    torch.nn.RNN, LSTM, GRU, Linear, Sequential or ModuleDict
        A module with copies of the weights, in the layer's dtype and, like the layer's own calls, in evaluation mode:
        call ``.train()`` for dropout. A perceptron becomes a ``Sequential`` of a ``Linear``, the nonlinearity, and a
        ``Linear``. A network becomes a ``ModuleDict`` with the keys ``layer`` and ``readout``, whose state dict, for a
        linear readout, has the names of ``network.params``. PyTorch's random state is not changed.

    Raises
    ------
    MissingExtraError
        Without torch.
    ArgumentError
        If PyTorch cannot express an option: ``nonlinearity`` sigmoid or identity, ``reset_after=False``,
        ``learn_initial_state``, ``zoneout``, ``recurrent_dropout`` (even if only training would differ), no inputs.
    DTypeError
        For other models.
    """
    torch = import_torch("to_torch")
    if isinstance(model, Network):
        if model.at != "steps":
            raise ArgumentError(
                f"a ModuleDict does not say at={model.at!r}: convert piece by piece, to_torch(net.layer) and "
                "to_torch(net.readout), which reads the last layer's hn, directions side by side"
            )
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
    elif type(model) is MLP:
        module = perceptron_module(torch, model)
    else:
        raise DTypeError(
            f"to_torch takes RNN, LSTM, GRU, Readout, MLP or a Network of them; got {type(model).__name__}: "
            "PyTorch has no such layer"
        )
    # made without memory, so that no weights are drawn from the global random state
    module = module.to_empty(device="cpu")
    names = {ours: theirs for theirs, ours in WEIGHTS.items()} if type(model) is MLP else {}
    module.load_state_dict({names.get(n, n): torch.from_numpy(array) for n, array in model.state_dict().items()})
    return module.eval()


def import_torch(purpose: str) -> Any:
    """Import the package, or raise the error that names the extra."""
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
    if is_perceptron(torch, part) or is_network(torch, part):
        return part
    parts = [name for name, m in part.named_modules() if type(m).__name__ in MODULES]
    raise DTypeError(
        f"from_torch takes exactly torch.nn.{', torch.nn.'.join(MODULES)}, Sequential(Linear, nonlinearity, Linear) "
        f"and ModuleDict of layer and readout; {type(part).__name__} may compute other things"
        + (f". Give one of its parts as prefix: {', '.join(parts)}" if parts else "")
    )


def present(source: Mapping[str, Any], prefix: str) -> list[str]:
    """Names that start with ``prefix``, at least one."""
    names = [name for name in source if isinstance(name, str) and name.startswith(prefix)]
    if not names:
        got = listed((k if isinstance(k, str | int) else type(k).__name__ for k in source), 20) or "no weights"
        raise StateDictError(f"no name of a weight starts with {quoted(prefix)}; got {got}")
    return names


def values(value: Any, name: str) -> Array:
    """A tensor's numbers as an array; narrow floating-point numbers as float32, which holds them exactly."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_meta or value.is_quantized:
            raise DTypeError(f"{name} must be a dense tensor with its numbers in memory; got {value.layout}, "
                             f"{value.dtype} on {value.device}")  # fmt: skip
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            value = value.float()
        return np.asarray(value.numpy(force=True))
    return plain(value, name)


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
