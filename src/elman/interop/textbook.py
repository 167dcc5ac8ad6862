r"""The textbook's layout: a sample is a row, so weights stand on the right.

.. math:: H_t = \phi(X_t W_{xh} + H_{t-1} W_{hh} + b_h), \qquad O_t = H_t W_{hq} + b_q

Zhang, Lipton, Li, Smola, Dive into Deep Learning (2023), section 9.4. Its matrices are the
transposes of PyTorch's, and it has one bias where PyTorch has two, of which only the sum matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..errors import StateDictError
from ..layers import RNN, Network, Readout
from ..layers.parameters import rounded
from ..validation.arrays import plain

Array = NDArray[Any]
LAYER = ("W_xh", "W_hh", "b_h")
READOUT = ("W_hq", "b_q")


def to_textbook(model: RNN | Network) -> dict[str, Array]:
    """Weights in the textbook's layout.

    Parameters
    ----------
    model : RNN or Network with a linear readout
        The model whose weights are copied.

    Returns
    -------
    dict
        Copies of ``W_xh`` (d, h), ``W_hh`` (h, h), ``b_h`` (h,); for a network also ``W_hq`` (h, q), ``b_q`` (q,). A
        missing bias becomes zero.

    Raises
    ------
    StateDictError
        If the readout is not linear, or the layer is beyond the textbook's notation: another cell, a stack, both
        directions, a learned initial state, zoneout.
    """
    layer = model.layer if isinstance(model, Network) else model
    if not isinstance(layer, RNN) or len(layer.stack.directions) > 1 or layer.learn_initial_state or any(layer.zoneout):
        raise StateDictError(f"the textbook writes one layer of Elman cells in one direction, and not {layer!r}")
    p = layer.params
    zero = np.zeros(layer.hidden_size, layer.dtype)
    out = {
        "W_xh": p["weight_ih_l0"].T.copy(),
        "W_hh": p["weight_hh_l0"].T.copy(),
        "b_h": p.get("bias_ih_l0", zero) + p.get("bias_hh_l0", zero),
    }
    if isinstance(model, Network):
        if not isinstance(model.readout, Readout):
            raise StateDictError(f"the textbook's readout is linear, and {type(model.readout).__name__} is not")
        q = model.readout.params
        out["W_hq"] = q["weight"].T.copy()
        out["b_q"] = q["bias"].copy() if "bias" in q else np.zeros(model.readout.output_size, layer.dtype)
    return out


def from_textbook(
    weights: Mapping[str, ArrayLike], *, nonlinearity: str = "tanh", dtype: DTypeLike = "float64"
) -> RNN | Network:
    r"""Build a layer, or a network if there are ``W_hq`` and ``b_q``, from weights in the textbook's layout.

    Parameters
    ----------
    weights : mapping
        ``W_xh`` (d, h), ``W_hh`` (h, h), ``b_h`` (h,), and both or neither of ``W_hq`` (h, q), ``b_q`` (q,).
    nonlinearity : {"tanh", "relu", "sigmoid", "identity"}
        The function :math:`\phi`.
    dtype : {"float64", "float32"}
        Type of the layer. If it is narrower than that of the weights, they are rounded.

    Returns
    -------
    RNN or Network
        ``bias_ih_l0`` is b_h, and ``bias_hh_l0`` is zero.

    Raises
    ------
    StateDictError
        If a key is missing or unknown.
    ShapeError, DTypeError, ArgumentError
        If the shapes do not fit each other, or a weight is not a finite real number.
    """
    wanted = LAYER + READOUT if any(k in weights for k in READOUT) else LAYER
    if set(wanted) != set(weights):
        raise StateDictError(
            f"the textbook's weights are {', '.join(LAYER)}, and for a readout also {', '.join(READOUT)}; "
            f"got {', '.join(sorted(weights)) or 'none'}"
        )
    w = {k: plain(v, k) for k, v in weights.items()}
    for name in ("W_xh", "W_hh", *(k for k in ("W_hq",) if k in w)):
        if w[name].ndim != 2:
            raise StateDictError(f"{name} must have two axes, got shape {w[name].shape}")
    d, h = w["W_xh"].shape
    layer = RNN(d, h, nonlinearity=nonlinearity, dtype=dtype)
    own = {"weight_ih_l0": w["W_xh"].T, "weight_hh_l0": w["W_hh"].T, "bias_ih_l0": w["b_h"], "bias_hh_l0": np.zeros(h)}
    layer.load_state_dict(rounded(own, layer.dtype))
    if wanted is LAYER:
        return layer
    readout = Readout(h, w["W_hq"].shape[1], dtype=dtype)
    readout.load_state_dict(rounded({"weight": w["W_hq"].T, "bias": w["b_q"]}, layer.dtype))
    return Network(layer, readout)
