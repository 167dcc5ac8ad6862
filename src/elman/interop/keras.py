r"""Keras 3's recurrent layers, in both directions, as lists of arrays in the order of its ``get_weights``.

A sample is a row there: ``kernel`` (D, G H), ``recurrent_kernel`` (H, G H), ``bias``; ours are their transposes. Gates
of the LSTM are in our order (i, f, c, o); the GRU has z, r, h where we have r, z, n. Keras gives ``SimpleRNN``,
``LSTM`` and the GRU with ``reset_after=False`` one bias (G H,) where we have two whose sum counts: it is imported as
``bias_ih``, with a zero ``bias_hh``, and exported as their sum, rounded once. The GRU with ``reset_after=True`` has
both, (2, 3 H).

Keras itself is not imported: weights and configuration are read from its layers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError, StateDictError
from ..layers import GRU, LSTM, MLP, RNN, Network, Readout
from ..layers.dense import Dense
from ..layers.parameters import rounded
from ..layers.recurrent import Recurrent
from ..validation.scalars import flag
from .keras_arrays import directions, is_cudnn, to_ours, to_theirs
from .keras_heads import dense_arrays, head_of, is_dense

Array = NDArray[Any]
CELLS: dict[int, Any] = {1: RNN, 3: GRU, 4: LSTM}
NAMES = {"SimpleRNN": RNN, "LSTM": LSTM, "GRU": GRU, "CuDNNLSTM": LSTM, "CuDNNGRU": GRU}
NONLINEARITIES = {"tanh": "tanh", "relu": "relu", "sigmoid": "sigmoid", "linear": "identity"}
NEUTRAL = {"go_backwards": False, "stateful": False}
"""Options of Keras's layers that change the output, and the value at which they do not."""
MODELS = ("Sequential", "Functional", "Model")
INERT = {
    "InputLayer", "Dropout", "SpatialDropout1D", "GaussianNoise", "GaussianDropout", "AlphaDropout",
    "ActivityRegularization",
}  # fmt: skip
"""Layers of Keras that return their input unchanged, except in training."""


class _Layer(NamedTuple):
    """One layer of a stack: weights of each direction, and what Keras's object says about them, or None."""

    directions: list[list[Array]]
    cell: Any
    nonlinearity: str | None
    reset_after: bool | None
    gated: bool
    """Whether it is known that a gated cell has tanh and sigmoid."""


def from_keras(
    source: Any, *, nonlinearity: str | None = None, reset_after: bool | None = None, activation: str | None = None,
    recurrent_activation: str | None = None, batch_first: bool = True, dtype: DTypeLike | None = None,
) -> RNN | LSTM | GRU | Readout | MLP | Network:  # fmt: skip
    """Build a layer or network from layers of Keras, or from their weights.

    Parameters
    ----------
    source : Keras layer or model, or list of arrays, or a list of layers or such lists
        ``SimpleRNN``, ``LSTM``, ``GRU``, or ``Bidirectional`` around one; or its ``get_weights()``: kernel, recurrent
        kernel and bias, twice for two directions. A list of them is a stack, which becomes one layer with
        ``num_layers``. Shapes determine the cell, sizes and bias. A bias of twice the length, (6 H,) or (8 H,), means
        that the arrays are those of ``CuDNNGRU`` or ``CuDNNLSTM``, whose kernels also have another layout. A model must
        be a chain of such layers, which may end with one ``Dense`` without activation, or with two, the first having
        an activation that elman has: it then becomes a network with a readout or a perceptron. One or two ``Dense``
        alone become a readout or a perceptron.
    activation, recurrent_activation : str, optional
        Required for the weights of an LSTM or GRU, which do not reveal them although the result depends on them. They
        must be ``"tanh"`` and ``"sigmoid"``. In Keras before 2.3, and TensorFlow's before 2.0, the default was
        ``recurrent_activation="hard_sigmoid"``: see the model's configuration.
    nonlinearity : {"tanh", "relu", "sigmoid", "identity"}, optional
        Required for the weights of a ``SimpleRNN``, which do not reveal it; it is read from a Keras layer.
    reset_after : bool, optional
        Required for the weights of a GRU without bias, which do not reveal it; True is Keras's default.
    batch_first : bool, default True
        Whether the new layer takes (B, T, D), as Keras does, instead of (T, B, D).
    dtype : {None, "float64", "float32"}
        None for that of the weights; 16-bit numbers then become float32, which is exact. A narrower type rounds.

    Returns
    -------
    RNN, LSTM, GRU, Readout, MLP or Network
        A new model with copies of the weights.

    Raises
    ------
    ArgumentError
        If Keras's layer has what ours lacks: another activation, a merge mode other than concat, ``go_backwards``,
        ``stateful``; if an option is missing, or is given although the source determines it; if a weight is not finite.
    StateDictError
        If there are not two or three arrays for each direction, or the layers of a stack differ.
    ShapeError, DTypeError
        If shapes do not fit each other, or the source is another kind of layer or holds anything but numbers.

    Notes
    -----
    Initialisers, constraints, regularisers, dropout (of a layer, or as a layer of its own) and noise act in training
    only and are not converted: the result computes what Keras does at inference. In Keras a masked step leaves the
    state unchanged; for sequences padded at the end, ``lengths`` does the same. Passing ``hn`` on replaces
    ``stateful``.
    """
    batch_first = flag(batch_first, "batch_first")
    if reset_after is not None:
        flag(reset_after, "reset_after")
    if type(source).__name__ in MODELS and _is_keras(source):
        options = {"nonlinearity": nonlinearity, "reset_after": reset_after, "activation": activation,
                   "recurrent_activation": recurrent_activation, "batch_first": batch_first}  # fmt: skip
        return _from_model(source, dtype, options)
    items = _recurrent_items(source) if _is_stack(source) else [source]
    layers = [_read(item) for item in items]
    first = layers[0]
    for k, layer in enumerate(layers):
        same = layer[1:] == first[1:] and len(layer.directions) == len(first.directions)
        if not same or len({len(arrays) for arrays in (*layer.directions, *first.directions)}) > 1:
            raise StateDictError(f"layers of one stack must have one cell, options, bias and directions; layer {k} "
                                 "differs from layer 0: convert them one by one")  # fmt: skip
    H, cell = _sizes(first)
    options = _options(first, cell, nonlinearity, reset_after)
    _check_activations(first, cell, activation, recurrent_activation)
    weights: dict[str, Array] = {}
    for k, layer in enumerate(layers):
        for suffix, arrays in zip(("", "_reverse"), layer.directions, strict=False):
            weights |= {f"{name}_l{k}{suffix}": value for name, value in to_ours(arrays, cell, H, options).items()}
    kind: DTypeLike = np.result_type(np.float32, *weights.values()) if dtype is None else dtype
    out = cell(
        len(first.directions[0][0]), H, len(layers), bias=len(first.directions[0]) == 3, batch_first=batch_first,
        bidirectional=len(first.directions) == 2, dtype=kind, weight_ih_init="zeros", weight_hh_init="zeros", **options,
    )  # fmt: skip
    out.load_state_dict(rounded(weights, out.dtype))
    return out


def to_keras(layer: Recurrent | Dense | Network) -> list[list[Array]]:
    """Weights for Keras's ``set_weights``.

    Parameters
    ----------
    layer : RNN, LSTM, GRU, Readout, MLP, or Network of them
        The model whose weights are copied. Keras must be told what the arrays do not say: ``activation`` for the
        nonlinearity ("linear" for identity), ``reset_after``, ``use_bias``; for a network, ``return_sequences`` of the
        last recurrent layer: True with ``at="steps"``, False with ``at="end"``.

    Returns
    -------
    list of list of ndarray
        For each layer of the stack, kernel (D, G H), recurrent kernel (H, G H), and bias if there is one; for two
        directions, six or four arrays, as ``Bidirectional`` has them. For a readout, kernel (H, Q), and bias if there
        is one, of a ``Dense``; for a perceptron, those of two ``Dense``. For a network, all of these, one list for each
        layer of Keras, in order. All arrays are copies in the layer's dtype.

    Raises
    ------
    ArgumentError
        If Keras cannot express what the layer computes: ``proj_size``, ``learn_initial_state``, ``zoneout``.
    DTypeError
        For other models.

    Notes
    -----
    The arrays do not contain dropout. Where Keras has one bias, it is the rounded sum of the two: outputs agree to the
    rounding of that sum, and ``from_keras(to_keras(layer))`` has it as its ``bias_ih``.
    """
    if type(layer) is Network:
        return [*to_keras(layer.layer), *to_keras(layer.readout)]
    if isinstance(layer, Dense) and type(layer) in (Readout, MLP):
        return dense_arrays(layer)
    if type(layer) not in NAMES.values() or not isinstance(layer, Recurrent):
        raise DTypeError(
            f"to_keras takes RNN, LSTM, GRU, Readout, MLP or a Network of them, got {type(layer).__name__}: Keras has "
            "no such layer"
        )
    foreign = {"proj_size": isinstance(layer, LSTM) and layer.proj_size, "zoneout": any(layer.zoneout)}
    for name, is_foreign in (foreign | {"learn_initial_state": layer.learn_initial_state}).items():
        if is_foreign:
            raise ArgumentError(f"Keras has no layer with {name} = {getattr(layer, name)!r}")
    suffixes = ("", "_reverse") if layer.bidirectional else ("",)
    return [
        [array for suffix in suffixes for array in to_theirs(layer, f"_l{k}{suffix}")] for k in range(layer.num_layers)
    ]


def _from_model(model: Any, dtype: DTypeLike | None, options: dict[str, Any]) -> Any:
    """The layer of a model, or the network if it has a readout."""
    layers = _recurrent_items(_chain(model))
    end = len(layers)
    while end and len(layers) - end < 2 and is_dense(layers[end - 1]):
        end -= 1
    if end == len(layers):
        layer: Any = from_keras(layers, dtype=dtype, **options)
        return layer
    if dtype is None:
        dtype = np.result_type(
            np.float32, *(a.dtype for a in map(np.asarray, model.get_weights()) if a.dtype.kind == "f")
        )
    head = head_of(layers[end:], dtype)
    if not end:
        return head
    layer = from_keras(layers[:end], dtype=dtype, **options)
    return Network(layer, head, at="steps" if layers[end - 1].return_sequences else "end")


def _chain(model: Any) -> list[Any]:
    """The layers of a model, each of which must read the one before and nothing else."""
    layers = list(model.layers)
    if type(model).__name__ == "Sequential":
        return layers
    try:
        chained = all(second.input is first.output for first, second in pairwise(layers))
        chained &= len(model.inputs) == len(model.outputs) == 1 and model.outputs[0] is layers[-1].output
    # raised by Keras for a layer that is called more than once
    except (AttributeError, ValueError):
        chained = False
    if not chained:
        raise ArgumentError(
            f"{model.name}: a model must be a chain of layers, each of which reads the one before; of another give "
            f"those that are one, as a list out of model.layers, which are {', '.join(layer.name for layer in layers)}"
        )
    return layers


def _recurrent_items(items: Any) -> list[Any]:
    """The layers that do not act in training only; there must be at least one."""
    kept = [item for item in items if not _is_inert(item)]
    if not kept:
        raise StateDictError("from_keras takes at least one recurrent layer; all that were given act in training only")
    return kept


def _is_inert(item: Any) -> bool:
    """Whether this is a layer of Keras that acts in training only."""
    return type(item).__name__ in INERT and _is_keras(item)


def _is_keras(item: Any) -> bool:
    """Whether this is an object of Keras rather than arrays."""
    return hasattr(item, "get_weights") and hasattr(item, "get_config")


def _is_stack(source: Any) -> bool:
    """Whether these are layers rather than one."""
    several = isinstance(source, list | tuple) and len(source) > 0
    return several and all(_is_keras(item) or isinstance(item, list | tuple) for item in source)


def _read(item: Any) -> _Layer:
    """The arrays of one layer by direction, and what its configuration says."""
    if not _is_keras(item):
        arrays = directions(item)
        return _Layer(arrays, None, None, None, all(map(is_cudnn, arrays)))
    if type(item).__name__ != "Bidirectional":
        said = _configuration(item)
        return _Layer(directions(item.get_weights()), *said, True)
    mode = item.get_config()["merge_mode"]
    if mode != "concat":
        raise ArgumentError(
            f"{item.name}: merge_mode must be 'concat', got {mode!r}: ours sets directions side by side"
        )
    forward, backward = _configuration(item.forward_layer), _configuration(item.backward_layer, backward=True)
    if forward != backward:
        raise ArgumentError(f"{item.name}: both directions must be of one kind, got {forward} and {backward}")
    return _Layer(directions(item.forward_layer.get_weights() + item.backward_layer.get_weights()), *forward, True)


def _configuration(layer: Any, backward: bool = False) -> tuple[Any, str | None, bool | None]:
    """Cell, nonlinearity and reset_after of a layer of Keras; what ours cannot do is refused."""
    name, config = type(layer).__name__, layer.get_config()
    if name not in NAMES:
        raise DTypeError(f"from_keras takes {', '.join(NAMES)} and Bidirectional of them, got {name}; of a model give "
                         "those of its layers that follow each other")  # fmt: skip
    for option, neutral in (NEUTRAL | {"go_backwards": backward}).items():
        if config.get(option, neutral) != neutral:
            raise ArgumentError(f"{layer.name}: {option} must be {neutral}, got {config[option]!r}: ours have no such "
                                "thing; give layer.get_weights() to take the weights without it")  # fmt: skip
    wanted = {"activation": tuple(NONLINEARITIES) if name == "SimpleRNN" else ("tanh",)}
    if name != "SimpleRNN":
        wanted["recurrent_activation"] = ("sigmoid",)
    for option, allowed in wanted.items():
        if config.get(option, allowed[0]) not in allowed:
            raise ArgumentError(f"{layer.name}: {option} must be {' or '.join(map(repr, allowed))}, got "
                                f"{config[option]!r}: {NAMES[name].__name__} has no other")  # fmt: skip
    nonlinearity = NONLINEARITIES[config["activation"]] if name == "SimpleRNN" else None
    return NAMES[name], nonlinearity, bool(config.get("reset_after", True)) if NAMES[name] is GRU else None


def _sizes(layer: _Layer) -> tuple[int, Any]:
    """Hidden size and cell, from the shape of the recurrent kernel."""
    H, columns = layer.directions[0][1].shape
    cell = CELLS.get(columns // H) if H and columns % H == 0 else None
    if cell is None:
        raise ShapeError(
            "the recurrent kernel must have shape (H, H), (H, 3 H) or (H, 4 H) for SimpleRNN, GRU or LSTM; got "
            f"{(H, columns)}"
        )
    return H, cell


def _check_activations(layer: _Layer, cell: Any, activation: str | None, recurrent_activation: str | None) -> None:
    """Refuse arrays of a gated cell whose activations are missing or not ours."""
    for name, value, ours in (
        ("activation", activation, "tanh"), ("recurrent_activation", recurrent_activation, "sigmoid"),
    ):  # fmt: skip
        if value is not None and (cell is RNN or layer.gated):
            cure = "give nonlinearity for a SimpleRNN" if cell is RNN else "the source tells it"
            raise ArgumentError(f"{name} must not be given here: {cure}")
        if cell is RNN or layer.gated:
            continue
        if value is None:
            raise ArgumentError(
                f'{name} must be given, since arrays do not tell it and {cell.__name__} has no other: activation="tanh"'
                ', recurrent_activation="sigmoid" are Keras\'s defaults since 2.3 and TensorFlow 2.0; before, '
                'recurrent_activation was "hard_sigmoid", which gives other numbers. See the configuration of the model'
            )
        if value != ours:
            raise ArgumentError(
                f"{name} must be {ours!r}, got {value!r}: {cell.__name__} has no other, and computes other numbers "
                "with these weights; train the model with it"
            )


def _options(layer: _Layer, cell: Any, nonlinearity: str | None, reset_after: bool | None) -> dict[str, Any]:
    """The layer's option that shapes do not reveal, from the argument or the layer."""
    told = {"nonlinearity": layer.nonlinearity, "reset_after": layer.reset_after}
    if cell is GRU and told["reset_after"] is None and len(layer.directions[0]) == 3:
        told["reset_after"] = layer.directions[0][2].ndim == 2
    given = {"nonlinearity": nonlinearity, "reset_after": reset_after}
    needed = {RNN: "nonlinearity", GRU: "reset_after"}.get(cell)
    for name, value in given.items():
        if value is not None and (name != needed or told[name] is not None):
            raise ArgumentError(
                f"{name} must not be given here: the source tells it, or {cell.__name__} has no such option"
            )
    if needed is None:
        return {}
    value = told[needed] if given[needed] is None else given[needed]
    if value is None:
        default = '"tanh"' if needed == "nonlinearity" else "True"
        raise ArgumentError(f"{needed} must be given, since these weights do not tell it; Keras's default is {default}")
    return {needed: value}
