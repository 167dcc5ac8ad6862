"""What a network has besides its recurrent layer, as nodes of an ONNX graph: the readout, and where it reads."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...errors import ArgumentError
from ...layers import MLP, Network, Readout

OPERATORS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid", "identity": "Identity"}


class Pieces(Protocol):
    """A graph under construction."""

    def node(self, operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> str:
        """Add a node; return the name of its first output."""
        ...

    def constant(self, name: str, value: Any) -> str:
        """Add a constant; return its name."""
        ...


def check_readout(net: Network) -> None:
    """Refuse a readout of a user's class, whose equation is not known.

    Raises
    ------
    ArgumentError
        With the name of the class.
    """
    if type(net.readout) not in (Readout, MLP):
        raise ArgumentError(
            f"the readout {type(net.readout).__name__} cannot be written to ONNX, for only the equations of Readout "
            "and MLP are known: give to_onnx the network's .layer, and write the readout with onnx.helper"
        )


def add_readout(pieces: Pieces, net: Network, lengths: bool) -> None:
    """Add the nodes from ``hidden``, the layer's output, or from ``hn`` to the network's ``output``.

    Parameters
    ----------
    pieces : Pieces
        Those of the graph that has these tensors.
    net : Network
        The network.
    lengths : bool
        Whether the graph has ``lengths``, beyond which the output is zero.
    """
    masked = lengths and net.at == "steps"
    read = "hidden" if net.at == "steps" else _end(pieces, net)
    read = _dense(pieces, net.readout, read, "output_everywhere" if masked else "output")
    if masked:
        zero = pieces.constant("readout_zero", np.zeros((), net.dtype))
        pieces.node("Where", [_valid(pieces, net), read, zero], ["output"])


def _dense(pieces: Pieces, readout: Any, read: str, out: str) -> str:
    """Add the maps of a readout, one after the other."""
    p = readout.params
    if isinstance(readout, Readout):
        return _affine(pieces, read, p["weight"], p.get("bias"), "readout", out)
    hidden = _affine(pieces, read, p["weight_ih"], p["bias_ih"], "readout_ih", "readout_sum")
    hidden = pieces.node(OPERATORS[readout.nonlinearity], [hidden], ["readout_hidden"])
    return _affine(pieces, hidden, p["weight_ho"], p["bias_ho"], "readout_ho", out)


def _affine(pieces: Pieces, read: str, weight: Any, bias: Any, name: str, out: str) -> str:
    """``out = read @ weight.T + bias`` over the last axis."""
    product = out if bias is None else f"{name}_product"
    made = pieces.node("MatMul", [read, pieces.constant(f"{name}_weight", weight.T)], [product])
    return made if bias is None else pieces.node("Add", [made, pieces.constant(f"{name}_bias", bias)], [out])


def _end(pieces: Pieces, net: Network) -> str:
    """The last layer's final output (B, directions * H), its directions side by side."""
    layer = net.layer
    n = 1 + layer.bidirectional
    bounds = [pieces.constant(f"end_{name}", np.array([value], np.int64))
              for name, value in (("first", (layer.num_layers - 1) * n), ("last", layer.num_layers * n))]  # fmt: skip
    top = pieces.node("Slice", ["hn", *bounds], ["end_by_direction"])
    by_sequence = pieces.node("Transpose", [top], ["end_by_sequence"], perm=[1, 0, 2])
    shape = pieces.constant("end_shape", np.array([0, layer.output_size], np.int64))
    return pieces.node("Reshape", [by_sequence, shape], ["end"])


def _valid(pieces: Pieces, net: Network) -> str:
    """Where a sequence has a step, (T, B, 1) or (B, T, 1)."""
    zero, one, last = (pieces.constant(f"valid_{name}", np.array(value, np.int64))
                       for name, value in (("zero", 0), ("one", 1), ("last", [-1])))  # fmt: skip
    axis = pieces.constant("valid_time_axis", np.array(net.time_axis, np.int64))
    shape = pieces.node("Shape", ["x"], ["valid_shape_of_x"])
    T = pieces.node("Gather", [shape, axis], ["valid_T"], axis=0)
    steps = pieces.node("Range", [zero, T, one], ["valid_steps"])
    batch = "lengths"
    if net.time_axis == 0:
        steps = pieces.node("Unsqueeze", [steps, last], ["valid_steps_column"])
    else:
        batch = pieces.node("Unsqueeze", ["lengths", last], ["valid_lengths_column"])
    valid = pieces.node("Less", [steps, batch], ["valid"])
    return pieces.node("Unsqueeze", [valid, last], ["valid_for_each_output"])
