"""Keras's ``Dense`` layers: one is a readout, two are a perceptron."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ArgumentError
from ..layers import MLP, Readout
from ..layers.dense import Dense
from ..layers.parameters import rounded

Array = NDArray[Any]
ACTIVATIONS = {"tanh": "tanh", "relu": "relu", "sigmoid": "sigmoid", "linear": "identity", None: "identity"}


def _dense(layer: Any) -> Any:
    """The ``Dense`` in a ``TimeDistributed``, or the layer itself."""
    return layer.layer if type(layer).__name__ == "TimeDistributed" else layer


def is_dense(layer: Any) -> bool:
    """Whether this is a ``Dense`` layer, possibly applied at every step."""
    return type(_dense(layer)).__name__ == "Dense"


def head_of(layers: list[Any], dtype: DTypeLike) -> Readout | MLP:
    """The readout of one ``Dense`` layer, or the perceptron of two.

    Raises
    ------
    ArgumentError
        If the last one has an activation, or the first of two has an activation that elman lacks, or no bias.
    """
    *first, last = [_dense(layer) for layer in layers]
    activation = last.get_config()["activation"]
    if activation not in ("linear", None):
        raise ArgumentError(
            f"{last.name}: activation must be 'linear', got {activation!r}: a readout has none. "
            "Give the recurrent layers alone, as a list out of model.layers"
        )
    weights = [[np.asarray(a) for a in layer.get_weights()] for layer in (*first, last)]
    if not first:
        kernel, *bias = weights[0]
        H, Q = kernel.shape
        readout = Readout(H, Q, bias=bool(bias), dtype=dtype, weight_init="zeros")
        return _loaded(readout, {"weight": kernel.T, **({"bias": bias[0]} if bias else {})})
    activation = first[0].get_config()["activation"]
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"{first[0].name}: activation must be one of {', '.join(filter(None, ACTIVATIONS))}, got {activation!r}: "
            "our perceptron has no other. Give the recurrent layers alone, as a list out of model.layers"
        )
    for layer, arrays in zip((*first, last), weights, strict=True):
        if len(arrays) < 2:
            raise ArgumentError(f"{layer.name}: use_bias must be True, for our perceptron has both biases; got False")
    (W_ih, b_ih), (W_ho, b_ho) = weights
    (D, H), (_, Q) = W_ih.shape, W_ho.shape
    mlp = MLP(D, H, Q, ACTIVATIONS[activation], dtype=dtype, rng=0)
    return _loaded(mlp, {"weight_ih": W_ih.T, "bias_ih": b_ih, "weight_ho": W_ho.T, "bias_ho": b_ho})


def _loaded(head: Any, weights: dict[str, Array]) -> Any:
    head.load_state_dict(rounded(weights, head.dtype))
    return head


def dense_arrays(head: Dense) -> list[list[Array]]:
    """Kernel and bias of each ``Dense`` layer that a readout or perceptron corresponds to."""
    p = head.params
    names = [("weight_ih", "bias_ih"), ("weight_ho", "bias_ho")] if isinstance(head, MLP) else [("weight", "bias")]
    return [[p[W].T.copy(), *([p[b].copy()] if b in p else [])] for W, b in names]
