r"""Keras 3's recurrent layers, there and back, as lists of arrays in the order of its ``get_weights``.

A sample is a row there: ``kernel`` (D, G H), ``recurrent_kernel`` (H, G H), ``bias``; ours are their transposes. Gates
of the LSTM are in our order (i, f, c, o); the GRU has z, r, h where we have r, z, n. Keras gives ``SimpleRNN``,
``LSTM`` and the GRU with ``reset_after=False`` one bias (G H,) where we have two whose sum counts: it comes in as
``bias_ih``, beside a zero ``bias_hh``, and goes out as their sum, rounded once. The GRU with ``reset_after=True`` has
both, (2, 3 H).

Keras itself is not imported: its layers are asked for their weights and configuration.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError, StateDictError
from ..layers import GRU, LSTM, RNN
from ..layers.parameters import rounded
from ..layers.recurrent import Recurrent

Array = NDArray[Any]
CELLS: dict[int, Any] = {1: RNN, 3: GRU, 4: LSTM}
NAMES = {"SimpleRNN": RNN, "LSTM": LSTM, "GRU": GRU}
NONLINEARITIES = {"tanh": "tanh", "relu": "relu", "sigmoid": "sigmoid", "linear": "identity"}
NEUTRAL = {"go_backwards": False, "stateful": False, "dropout": 0.0, "recurrent_dropout": 0.0}
"""Options of Keras's layers that change what comes out, and the value at which they do not."""


class _Layer(NamedTuple):
    """One layer of a stack: weights of each direction, and what Keras's object says about them, or None."""

    directions: list[list[Array]]
    cell: Any
    nonlinearity: str | None
    reset_after: bool | None


def from_keras(
    source: Any, *, nonlinearity: str | None = None, reset_after: bool | None = None, batch_first: bool = True,
    dtype: DTypeLike | None = None,
) -> RNN | LSTM | GRU:  # fmt: skip
    """Build a layer from layers of Keras, or from their weights.

    Parameters
    ----------
    source : Keras layer, or list of arrays, or a list of either
        ``SimpleRNN``, ``LSTM``, ``GRU``, or ``Bidirectional`` around one; or its ``get_weights()``: kernel, recurrent
        kernel and bias, twice for two directions. A list of them is a stack, which becomes one layer with
        ``num_layers``. Shapes tell the cell, sizes and bias.
    nonlinearity : {"tanh", "relu", "sigmoid", "identity"}, optional
        For the weights of a ``SimpleRNN``, which do not tell it; of a Keras layer it is read.
    reset_after : bool, optional
        For the weights of a GRU without bias, which do not tell it; True is Keras's default.
    batch_first : bool, default True
        Whether the new layer takes (B, T, D), as Keras does, instead of (T, B, D).
    dtype : {None, "float64", "float32"}
        None for that of the weights; 16-bit numbers then become float32, which is exact. A narrower type rounds.

    Returns
    -------
    RNN, LSTM or GRU
        New, with copies of the weights.

    Raises
    ------
    ArgumentError
        If Keras's layer has what ours has not: another activation, a merge mode other than concat, ``go_backwards``,
        ``stateful``, dropout (there on the input of a layer); if an option is missing, or is told by the source; if a
        weight is not finite.
    StateDictError
        If there are not two or three arrays for each direction, or the layers of a stack differ.
    ShapeError, DTypeError
        If shapes do not fit each other, or the source is another kind of layer or holds other things than numbers.

    Notes
    -----
    Initialisers, constraints and regularisers act on training only and stay behind. A masked step holds the state in
    Keras; for sequences padded at the end that is what ``lengths`` does. ``stateful`` is what handing ``hn`` on does.
    """
    layers = [_read(item) for item in (source if _is_stack(source) else [source])]
    first = layers[0]
    for k, layer in enumerate(layers):
        same = layer[1:] == first[1:] and len(layer.directions) == len(first.directions)
        if not same or len({len(arrays) for arrays in (*layer.directions, *first.directions)}) > 1:
            raise StateDictError(f"layers of one stack must have one cell, options, bias and directions; layer {k} "
                                 "differs from layer 0: convert them one by one")  # fmt: skip
    H, cell = _sizes(first)
    options = _options(first, cell, nonlinearity, reset_after)
    weights: dict[str, Array] = {}
    for k, layer in enumerate(layers):
        for suffix, arrays in zip(("", "_reverse"), layer.directions, strict=False):
            weights |= {f"{name}_l{k}{suffix}": value for name, value in _to_ours(arrays, cell, H, options).items()}
    kind: DTypeLike = np.result_type(np.float32, *weights.values()) if dtype is None else dtype
    out = cell(
        len(first.directions[0][0]), H, len(layers), bias=len(first.directions[0]) == 3, batch_first=batch_first,
        bidirectional=len(first.directions) == 2, dtype=kind, weight_ih_init="zeros", weight_hh_init="zeros", **options,
    )  # fmt: skip
    out.load_state_dict(rounded(weights, out.dtype))
    return out


def to_keras(layer: Recurrent) -> list[list[Array]]:
    """Weights for Keras's ``set_weights``.

    Parameters
    ----------
    layer : RNN, LSTM or GRU
        Where they come from. What the arrays do not say has to be said to Keras: ``activation`` for the nonlinearity
        ("linear" for identity), ``reset_after``, ``use_bias``.

    Returns
    -------
    list of list of ndarray
        For each layer of the stack kernel (D, G H), recurrent kernel (H, G H), and bias if there is one; for two
        directions six or four arrays, as ``Bidirectional`` has them. Copies, in the layer's dtype.

    Raises
    ------
    ArgumentError
        If Keras cannot express what the layer computes: ``proj_size``, ``learn_initial_state``, ``zoneout``.
    DTypeError
        For other models.

    Notes
    -----
    Dropout is not in the arrays. Where Keras has one bias it is the rounded sum of the two: outputs agree to the
    rounding of that sum, and ``from_keras(to_keras(layer))`` has it as its ``bias_ih``.
    """
    if type(layer) not in NAMES.values():
        raise DTypeError(f"to_keras takes RNN, LSTM or GRU, got {type(layer).__name__}")
    foreign = {"proj_size": isinstance(layer, LSTM) and layer.proj_size, "zoneout": any(layer.zoneout)}
    for name, is_foreign in (foreign | {"learn_initial_state": layer.learn_initial_state}).items():
        if is_foreign:
            raise ArgumentError(f"Keras has no layer with {name} = {getattr(layer, name)!r}")
    suffixes = ("", "_reverse") if layer.bidirectional else ("",)
    return [
        [array for suffix in suffixes for array in _to_theirs(layer, f"_l{k}{suffix}")] for k in range(layer.num_layers)
    ]


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
        return _Layer(_directions(item), None, None, None)
    if type(item).__name__ != "Bidirectional":
        said = _configuration(item)
        return _Layer(_directions(item.get_weights()), *said)
    mode = item.get_config()["merge_mode"]
    if mode != "concat":
        raise ArgumentError(
            f"{item.name}: merge_mode must be 'concat', got {mode!r}: ours sets directions side by side"
        )
    forward, backward = _configuration(item.forward_layer), _configuration(item.backward_layer, backward=True)
    if forward != backward:
        raise ArgumentError(f"{item.name}: both directions must be of one kind, got {forward} and {backward}")
    return _Layer(_directions(item.forward_layer.get_weights() + item.backward_layer.get_weights()), *forward)


def _directions(given: Any) -> list[list[Array]]:
    """The arrays of one layer, two or three for each direction."""
    if not isinstance(given, list | tuple):
        raise DTypeError(f"from_keras takes a layer of Keras or lists of arrays, got {type(given).__name__}")
    if len(given) not in (2, 3, 4, 6):
        raise StateDictError(
            "a recurrent layer of Keras has kernel, recurrent kernel and perhaps bias, twice if it is bidirectional; "
            f"got {len(given)} arrays{'' if given else ': build it first by calling it'}"
        )
    arrays = [np.asarray(value) for value in given]
    # a type of the package ml_dtypes, whose kind NumPy does not know
    arrays = [a.astype(np.float32) if a.dtype.name == "bfloat16" else a for a in arrays]
    n = len(arrays) if len(arrays) < 4 else len(arrays) // 2
    for i, a in enumerate(arrays):
        if a.dtype.kind != "f":
            raise DTypeError(f"weights must be arrays of real floating-point numbers, got dtype {a.dtype}")
        if a.ndim != 2 and i % n < 2:
            raise ShapeError(f"a kernel must have two axes, got shape {a.shape}")
    return [arrays[i : i + n] for i in range(0, len(arrays), n)]


def _configuration(layer: Any, backward: bool = False) -> tuple[Any, str | None, bool | None]:
    """Cell, nonlinearity and reset_after of a layer of Keras; refuses what ours cannot do."""
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
        if config[option] not in allowed:
            raise ArgumentError(f"{layer.name}: {option} must be {' or '.join(map(repr, allowed))}, got "
                                f"{config[option]!r}: {NAMES[name].__name__} has no other")  # fmt: skip
    nonlinearity = NONLINEARITIES[config["activation"]] if name == "SimpleRNN" else None
    return NAMES[name], nonlinearity, bool(config["reset_after"]) if name == "GRU" else None


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


def _options(layer: _Layer, cell: Any, nonlinearity: str | None, reset_after: bool | None) -> dict[str, Any]:
    """The layer's option that shapes do not tell, from the one place that tells it."""
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


def _swapped(blocks: Array) -> Array:
    """The first two of three blocks of rows exchanged: z, r, h to r, z, n, and back."""
    first, second, third = np.split(blocks, 3)
    return np.concatenate([second, first, third])


def _to_ours(arrays: list[Array], cell: Any, H: int, options: dict[str, Any]) -> dict[str, Array]:
    """Our arrays of one direction, by name without the suffix."""
    kernel, recurrent, *bias = arrays
    out = {"weight_ih": kernel.T, "weight_hh": recurrent.T}
    if bias:
        wanted = recurrent.shape[1:] if not options.get("reset_after") else (2, *recurrent.shape[1:])
        if bias[0].shape != wanted:
            raise ShapeError(f"the bias must have shape {wanted}, got {bias[0].shape}")
        rows = np.atleast_2d(bias[0])
        out |= {"bias_ih": rows[0], "bias_hh": rows[1] if len(rows) == 2 else np.zeros_like(rows[0])}
    if cell is GRU:
        for name, a in out.items():
            if len(a) != 3 * H:
                raise ShapeError(f"the {name} of a GRU must have 3 H = {3 * H} columns in Keras, got {len(a)}")
        out = {name: _swapped(a) for name, a in out.items()}
    return out


def _to_theirs(layer: Any, suffix: str) -> list[Array]:
    """Keras's arrays of one direction."""
    swap = _swapped if isinstance(layer, GRU) else np.copy
    ours = {name: swap(layer.params[name + suffix]) for name in ("weight_ih", "weight_hh")}
    out = [np.ascontiguousarray(w.T) for w in ours.values()]
    if layer.bias:
        b_ih, b_hh = (swap(layer.params[name + suffix]) for name in ("bias_ih", "bias_hh"))
        two = isinstance(layer, GRU) and layer.reset_after
        out.append(np.stack([b_ih, b_hh]) if two else b_ih + b_hh)
    return out
