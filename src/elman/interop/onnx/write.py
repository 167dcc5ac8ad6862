"""Layers and networks as ONNX models, for onnxruntime and other programs that read them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ArgumentError, DTypeError, MissingExtraError
from ...files import check_target, replacing
from ...layers import GRU, LSTM, RNN, Network
from ...validation.scalars import flag
from .node import NONLINEARITIES, rows
from .readout import add_readout, check_readout

if TYPE_CHECKING:
    from onnx import ModelProto

Array = NDArray[Any]
OPSET = 14
"""The version of the operators (2021): the present form of the recurrent ones, except for bfloat16 (22)."""


class _Pieces:
    """Nodes and constants of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> str:
        """Add a node; return the name of its first output, which is also that of the node."""
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, outputs, name=f"{operator}_{outputs[0]}", **attributes))
        return outputs[0]

    def constant(self, name: str, value: Any) -> str:
        """Add a constant; return its name."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name


def to_onnx(
    layer: RNN | LSTM | GRU | Network,
    path: str | os.PathLike[str] | None = None,
    *,
    lengths: bool = False,
    initial_state: bool = True,
) -> ModelProto:
    """Write a layer or a network as an ONNX model that computes the same as a call of it.

    The operators are those of version 14. onnxruntime has them in float32 only, so give it
    ``to_onnx(net.astype("float32"))``; ``onnx.reference`` also has them in float64.

    Parameters
    ----------
    layer : RNN, LSTM, GRU, or Network of one of these
        The layer or network, of float32 or float64. Dropout has no effect when a layer is called, and is not in the
        model.
    path : path-like, optional
        Where to write it. The file appears whole or not at all.
    lengths : bool, default False
        Whether the model has an input ``lengths``, int64 (B,): the number of steps of each sequence. The output beyond
        them is zero; the final state of a sequence without steps is its initial one.
    initial_state : bool, default True
        Whether the model has inputs for the initial state. Without them it starts as the layer does when called without
        h0: from zero or from the learned state.

    Returns
    -------
    onnx.ModelProto
        Inputs ``x`` (T, B, D), or (B, T, D) with ``batch_first``, and ``h0``, and for an LSTM ``c0``, of shape
        (num_layers * num_directions, B, H). Outputs ``output`` (T, B, num_directions * H), or batch first, and ``hn``,
        and for an LSTM ``cn``, of the shape of h0. T and B are free. For a network, ``output`` is the readout's,
        (T, B, Q), or batch first, or (B, Q) with ``at="end"``.

    Raises
    ------
    MissingExtraError
        If onnx is not installed.
    ArgumentError
        If ONNX has no such layer: ``proj_size`` and ``zoneout``; if a network has a readout of a user's class.
    DTypeError
        If ``layer`` is something else, or a network with another layer.
    OSError
        If the file cannot be written, raised before the work if possible. WriteError on a full disk.
    """
    net: Network | None = layer if isinstance(layer, Network) else None
    if net is not None:
        check_readout(net)
    recurrent: Any = layer if net is None else net.layer
    kind = _check(recurrent)
    lengths, initial_state = flag(lengths, "lengths"), flag(initial_state, "initial_state")
    try:
        import onnx
        from onnx import helper
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "elman.interop.onnx.to_onnx") from error
    if path is not None:
        check_target(path)
    states = ("h", "c") if kind == "LSTM" else ("h",)
    inputs, outputs = _interface(recurrent, net, states, initial_state, lengths)
    pieces = _Pieces()
    steps = pieces.node("Cast", ["lengths"], ["steps"], to=onnx.TensorProto.INT32) if lengths else ""
    starts = [_starts(pieces, recurrent, s, initial_state) for s in states]
    _layers(pieces, recurrent, kind, steps, starts, "output" if net is None else "hidden")
    for s, start in zip(states, starts, strict=True):
        ends = pieces.node("Concat", [f"{s}n_l{k}" for k in range(recurrent.num_layers)], [f"{s}n_run"], axis=0)
        _final(pieces, s, ends, start if lengths else [""])
    if net is not None:
        add_readout(pieces, net, lengths)
    opset = helper.make_opsetid("", OPSET)
    made = helper.make_model(
        helper.make_graph(pieces.nodes, f"elman.{kind}", inputs, outputs, pieces.constants),
        opset_imports=[opset], ir_version=helper.find_min_ir_version_for([opset]), producer_name="elman",
        doc_string=repr(layer),
    )  # fmt: skip
    if path is not None:
        with replacing(path) as temporary:
            temporary.write_bytes(made.SerializeToString())
    return made


def _interface(layer: Any, net: Network | None, states: tuple[str, ...], given: bool, lengths: bool) -> tuple[Any, Any]:
    """Inputs and outputs of the model, with names and shapes."""
    from onnx import TensorProto, helper

    n, H = 1 + layer.bidirectional, layer.hidden_size
    free: list[str | int | None] = ["B", "T"] if layer.batch_first else ["T", "B"]
    state: list[str | int | None] = [layer.num_layers * n, "B", H]
    initial = [(f"{s}0", state) for s in states if given]
    final = [(f"{s}n", state) for s in states]
    output: list[str | int | None] = [*free, n * H]
    if net is not None:
        output = [*(free if net.at == "steps" else ["B"]), net.readout.output_size]
    real = helper.np_dtype_to_tensor_dtype(layer.dtype)
    inputs, outputs = (
        [helper.make_tensor_value_info(name, real, shape) for name, shape in side]
        for side in ([("x", [*free, layer.input_size]), *initial], [("output", output), *final])
    )
    if lengths:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT64, ["B"]))
    return inputs, outputs


def _layers(
    pieces: _Pieces, layer: RNN | LSTM | GRU, kind: str, steps: str, starts: list[list[str]], output: str
) -> None:
    """Add the nodes from ``x`` to ``output``; the final states of layer k are named after it."""
    swap = {"perm": [1, 0, 2]}
    width = (1 + layer.bidirectional) * layer.hidden_size
    joined = pieces.constant("joined_directions", np.array([0, 0, width], np.int64))
    below = pieces.node("Transpose", ["x"], ["x_l0"], **swap) if layer.batch_first else "x"
    top = f"{output}_time_first" if layer.batch_first else output
    for k in range(layer.num_layers):
        inputs = [below, *_weights(pieces, layer, kind, k), steps, *(start[k] for start in starts)]
        outputs = [f"y_l{k}", *(f"{s}n_l{k}" for s in "hc"[: len(starts)])]
        y = pieces.node(kind, inputs, outputs, **_attributes(layer))
        by_step = pieces.node("Transpose", [y], [f"y_by_step_l{k}"], perm=[0, 2, 1, 3])
        below = pieces.node("Reshape", [by_step, joined], [top if k == layer.num_layers - 1 else f"x_l{k + 1}"])
    if layer.batch_first:
        pieces.node("Transpose", [below], [output], **swap)


def _final(pieces: _Pieces, state: str, ends: str, start: list[str]) -> None:
    """Add the final state; that of a sequence without steps is its initial one, where onnxruntime has zero."""
    if not all(start):
        pieces.node("Identity", [ends], [f"{state}n"])
        return
    zero, last = (pieces.constant(f"{state}n_{n}", np.array(v, np.int64)) for n, v in (("zero", 0), ("last", [-1])))
    empty = pieces.node("Equal", ["lengths", zero], [f"{state}n_empty"])
    column = pieces.node("Unsqueeze", [empty, last], [f"{state}n_empty_column"])
    initial = pieces.node("Concat", start, [f"{state}n_initial"], axis=0)
    pieces.node("Where", [column, initial, ends], [f"{state}n"])


def _check(layer: Any) -> str:
    """The operator for a layer."""
    kind = next((name for name, of in (("RNN", RNN), ("LSTM", LSTM), ("GRU", GRU)) if type(layer) is of), None)
    if kind is None:
        raise DTypeError(
            f"layer must be an elman.RNN, LSTM or GRU, or a Network of one, got {type(layer).__name__}: ONNX has no "
            "operator for another cell, and a readout alone is one MatMul and one Add of its params"
        )
    if getattr(layer, "proj_size", 0):
        raise ArgumentError(f"proj_size={layer.proj_size} cannot be expressed in ONNX: its LSTM has no projection")
    if any(layer.zoneout):
        raise ArgumentError(
            f"zoneout={layer.zoneout} cannot be expressed in ONNX: its operators have no mean of old and new state"
        )
    return kind


def _weights(pieces: _Pieces, layer: RNN | LSTM | GRU, kind: str, k: int) -> list[str]:
    """W, R and B of layer k; B is left out if the layer has no biases."""
    order = rows(kind, layer.hidden_size, to_onnx=True)
    suffixes = [f"_l{k}", f"_l{k}_reverse"][: 1 + layer.bidirectional]
    p = layer.params
    parts = {"W": [p[f"weight_ih{s}"][order] for s in suffixes], "R": [p[f"weight_hh{s}"][order] for s in suffixes]}
    if layer.bias:
        parts["B"] = [np.concatenate([p[f"bias_ih{s}"][order], p[f"bias_hh{s}"][order]]) for s in suffixes]
    names = [pieces.constant(f"{what}_l{k}", np.stack(both)) for what, both in parts.items()]
    return [*names, *[""] * (3 - len(names))]


def _attributes(layer: RNN | LSTM | GRU) -> dict[str, Any]:
    """The operator's attributes."""
    n = 1 + layer.bidirectional
    out: dict[str, Any] = {
        "hidden_size": layer.hidden_size,
        "direction": "bidirectional" if layer.bidirectional else "forward",
    }
    if isinstance(layer, GRU):
        out["linear_before_reset"] = int(layer.reset_after)
    if isinstance(layer, RNN):
        names = {elman: onnx.capitalize() for onnx, elman in NONLINEARITIES.items()}
        out["activations"] = [names[layer.nonlinearity]] * n
        if layer.nonlinearity == "identity":
            out |= {"activation_alpha": [1.0] * n, "activation_beta": [0.0] * n}
    return out


def _starts(pieces: _Pieces, layer: RNN | LSTM | GRU, state: str, given: bool) -> list[str]:
    """For each layer, the tensor of its initial state (directions, B, H); "" for zero."""
    L, n, H = layer.num_layers, 1 + layer.bidirectional, layer.hidden_size
    names = [f"{state}0_l{k}" for k in range(L)]
    if given:
        pieces.node("Split", [f"{state}0", pieces.constant(f"{state}_split", np.full(L, n, np.int64))], names, axis=0)
        return names
    if not layer.learn_initial_state:
        return [""] * L
    batch_axis = pieces.constant(f"{state}_batch_axis", np.array([layer.batch_axis], np.int64))
    sizes = [pieces.constant(f"{state}_size_{i}", np.array([size], np.int64)) for i, size in enumerate((n, H))]
    shape = pieces.node("Shape", ["x"], [f"{state}_shape_of_x"])
    batch = pieces.node("Gather", [shape, batch_axis], [f"{state}_batch_size"], axis=0)
    wanted = pieces.node("Concat", [sizes[0], batch, sizes[1]], [f"{state}0_shape"], axis=0)
    for k, name in enumerate(names):
        learned = [layer.params[f"{state}0_l{k}{suffix}"] for suffix in ("", "_reverse")[:n]]
        constant = pieces.constant(f"{state}0_learned_l{k}", np.reshape(learned, (n, 1, H)))
        pieces.node("Expand", [constant, wanted], [name])
    return names
