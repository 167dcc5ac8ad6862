"""Layers from ONNX models: one RNN, LSTM or GRU node, or a stack of them, with its weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...errors import ArgumentError, DTypeError, ElmanError, ShapeError
from ...files import listed, quoted, shown
from ...layers import GRU, LSTM, RNN
from ...layers.parameters import rounded
from ...states import parts
from .branches import Branch, decided, nodes
from .file import load
from .graph import Graph, Origin, attributes, is_recurrent, named
from .layer import Layer, OnnxLayer
from .node import Reading, constant_states, input_tensors, read
from .write import to_onnx

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

__all__ = ["OnnxLayer", "from_onnx", "to_onnx"]

Array = NDArray[Any]
LAYERS: dict[str, type[Layer]] = {"RNN": RNN, "LSTM": LSTM, "GRU": GRU}


def from_onnx(
    model: str | os.PathLike[str] | bytes | ModelProto,
    node: str | int | Sequence[str | int] | None = None,
    *,
    branch: Branch = None,
    dtype: DTypeLike | None = None,
) -> OnnxLayer:
    """Build a layer from recurrent nodes of an ONNX model, exactly; what cannot be expressed is refused by name.

    Exporters write a stack of layers as one node per layer, with nodes in between that only move axes. If the graph
    proves that nothing else lies between them, the nodes become one layer with ``num_layers``.

    Parameters
    ----------
    model : path-like, bytes or onnx.ModelProto
        The model.
    node : str, int, or sequence of these, optional
        Name of a node or of its first output, or its number among the recurrent nodes; or those of a stack, the first
        layer first. All recurrent nodes by default.
    branch : {"then", "else"}, or mapping of str to these, optional
        Which branch to read, of every ``If`` with a recurrent node in it, or by the name of the ``If``. Not needed if
        both branches have the same layer, or only one of them has the nodes that ``node`` names.
    dtype : {"float64", "float32"}, optional
        Type of the layer. By default float64 if the model has float64 weights, or weights of 8 bits, which stand for
        numbers that only float64 holds; float32 otherwise. Both then hold the weights exactly. A narrower type rounds.

    Returns
    -------
    OnnxLayer
        ``.layer`` is the layer; the object itself can be called like it, and adds the initial states, lengths and
        direction that the nodes prescribe.

    Raises
    ------
    MissingExtraError
        If onnx is not installed.
    ArgumentError
        If there is no such node, several do not form a stack, or one does what elman's layers do not: peepholes,
        input_forget, clip, other activations, weights that are not constant. If initial states are partly inputs and
        partly constant or zero, or are the parts of one tensor in another order than that of layers and directions. If
        the nodes are in an ``If`` whose branches differ, or in the body of a Loop or Scan. If the model is damaged, its
        constants would be far larger than the model, or its weights are in other files and it is not given as a path.
    ShapeError, DTypeError
        If a weight does not have the shape or type that the operator requires, or ``node`` is of another type.
    OSError
        If the file, or one that holds its weights, cannot be read.

    Notes
    -----
    onnxruntime's DynamicQuantizeLSTM becomes an LSTM with the weights that its 8 bits stand for. That node also rounds
    its inputs and states to 8 bits at every step, which is not reproduced: outputs agree to that rounding only.

    References
    ----------
    ONNX operators RNN, LSTM and GRU, versions 1 to 22: https://onnx.ai/onnx/operators/
    """
    loaded = load(model)
    try:
        return _found(loaded, node, branch, dtype)
    except (ElmanError, Warning):
        raise
    except Exception as error:  # what onnx, NumPy and Python raise depends on where a model is damaged
        raise ArgumentError(
            f"model must be a valid ONNX model; reading its nodes failed: {type(error).__name__}: {shown(error, 300)}"
        ) from error


def _found(loaded: ModelProto, node: Any, branch: Branch, dtype: DTypeLike | None) -> OnnxLayer:
    """The layer from a model in memory."""
    if branch is None and node is not None and _at_top(loaded, node):
        return _layer(Graph(loaded), node, dtype)
    found: list[tuple[dict[str, str], OnnxLayer]] = []
    by_name = node is not None and all(isinstance(key, str) for key in _keys(node))
    elsewhere = loaded
    for way, one in decided(loaded, branch):
        if by_name and way and not _at_top(one, node):
            elsewhere = one
            continue
        try:
            found.append((way, _layer(Graph(one), node, dtype)))
        except (ArgumentError, ShapeError) as error:
            if not way:
                raise
            cure = "" if branch is not None else "; choose another by branch="
            raise type(error)(f"in {_told(way)}: {error}{cure}") from error
        if different := _different(found[0][1], found[-1][1]):
            raise ArgumentError(
                f"{', '.join(found[0][1].nodes)} in {_told(found[0][0])}, and {', '.join(found[-1][1].nodes)} in "
                f'{_told(way)}, differ in {different}: choose one by branch="then" or "else", or for each If by '
                f"its name, such as branch={found[0][0]}"
            )
    return _joined(found) if found else _layer(Graph(elsewhere), node, dtype)


def _at_top(model: ModelProto, wanted: Any) -> bool:
    """Whether all requested nodes are given by name and are at the top level."""
    names = {name for n in model.graph.node if is_recurrent(n) for name in (n.name, n.output[0]) if name}
    return all(isinstance(key, str) and key in names for key in _keys(wanted))


def _keys(wanted: Any) -> list[Any]:
    """The requested nodes, each by its name or number."""
    return list(wanted) if isinstance(wanted, Sequence) and not isinstance(wanted, str | bytes) else [wanted]


def _told(way: dict[str, str]) -> str:
    """Branches in words."""
    return " and ".join(f"the {branch} branch of If {quoted(name)}" for name, branch in way.items())


def _different(one: OnnxLayer, other: OnnxLayer) -> str:
    """In what two layers differ, apart from the names of their nodes and tensors."""
    states = [parts(m.h0) for m in (one, other)]
    same = {
        "kind, sizes or options": repr(one.layer) == repr(other.layer) and one.reverse == other.reverse,
        "the weights": np.array_equal(one.layer.theta, other.layer.theta),
        "initial states": len(states[0]) == len(states[1]) and all(map(np.array_equal, *states)),
        "lengths": _same(one.lengths, other.lengths),
        "what is given at the call": _start_alike(one, other),
    }
    return ", ".join(name for name, is_same in same.items() if not is_same)


def _start_alike(one: OnnxLayer, other: OnnxLayer) -> bool:
    """Whether both are given the same at the call, or one is given states and the other starts from zero.

    Exporters write a model with optional states as an If: the branch that starts from zero is the other given zeros.
    """
    fewer, more = sorted((one, other), key=lambda m: len(m.inputs))
    return fewer.inputs.keys() <= more.inputs.keys() and (
        fewer.inputs.keys() == more.inputs.keys()
        or (more.inputs.keys() - fewer.inputs.keys() <= {"h0", "c0"} and "h0" not in fewer.inputs and fewer.h0 is None)
    )


def _joined(found: list[tuple[dict[str, str], OnnxLayer]]) -> OnnxLayer:
    """One of several equal layers, with the names of all the tensors that it may read."""
    first = max((m for _, m in found), key=lambda m: len(m.inputs))
    inputs = {
        name: " or ".join(dict.fromkeys(m.inputs[name] for _, m in found if name in m.inputs)) for name in first.inputs
    }
    branches: dict[str, str] = {}
    for way, _ in found:
        for name, branch in way.items():
            branches[name] = branch if branches.get(name, branch) == branch else "either"
    return replace(first, inputs=inputs, branches=branches)


def _layer(graph: Graph, node: Any, dtype: DTypeLike | None) -> OnnxLayer:
    """The layer made of nodes at the top level of a graph."""
    chosen = _select(graph, node)
    for first, second in pairwise(chosen):
        if reason := graph.between(first, second):
            raise ArgumentError(
                f"{_listed(chosen)} are not one stack: {named(second)} does not continue {named(first)}, {reason}; "
                "load them one by one, by node="
            )
    readings = [read(graph, n) for n in chosen]
    options = _shared(readings)
    source, batch_first = _source(graph, chosen[0], options["layout"])
    layer = _build(readings, options, batch_first, dtype)
    states = constant_states(readings, layer.dtype)
    inputs = {"x": source}
    for name, values in zip(("h0", "c0"), zip(*(r.states for r in readings), strict=True), strict=False):
        if origins := [v for v in values if isinstance(v, Origin)]:
            inputs[name] = ", ".join(input_tensors(origins))
    lengths = readings[0].lengths
    if isinstance(lengths, str):
        inputs["lengths"], lengths = lengths, None
    return OnnxLayer(
        layer, tuple(r.label for r in readings), inputs, states, lengths, options["direction"] == "reverse"
    )  # fmt: skip


def _select(graph: Graph, wanted: str | int | Sequence[str | int] | None) -> list[NodeProto]:
    """The requested nodes."""
    there = graph.recurrent
    if not there:
        raise ArgumentError(
            "the model has no RNN, LSTM or GRU node at its top level or in an If, which is where elman looks; it has "
            f"{listed(sorted({n.op_type for n in nodes(graph.model.graph)}), 40) or 'no nodes'}"
        )
    if wanted is None:
        return there
    found = []
    for key in _keys(wanted):
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise DTypeError(
                f"node must be a name, a number from 0, or a sequence of these; got {key!r} ({type(key).__name__})"
            )
        hits = [n for i, n in enumerate(there) if key in ((i,) if isinstance(key, int) else (n.name, n.output[0]))]
        if len(hits) != 1:
            raise ArgumentError(f"node must be one of {_listed(there)}, or its number from 0; got {key!r}")
        found += hits
    if not found:
        raise ArgumentError(f"node must name at least one of {_listed(there)}; got {wanted!r}")
    return found


def _listed(nodes: Sequence[NodeProto]) -> str:
    """Names of nodes, with their operators."""
    return listed((f"{named(n)} ({n.op_type})" for n in nodes), 20)


def _shared(readings: list[Reading]) -> dict[str, Any]:
    """The options that all layers of a stack must have in common; differences are refused."""
    first = readings[0]
    for other in readings[1:]:
        differing = [k for k in {**first.options, **other.options} if first.options.get(k) != other.options.get(k)]
        if not _same(first.lengths, other.lengths):
            differing.append("sequence_lens")
        if differing:
            raise ArgumentError(
                f"{quoted(first.label)} and {quoted(other.label)} cannot be one layer of elman, since they differ in "
                f"{', '.join(differing)}; load them one by one, by node="
            )
    return first.options


def _same(a: Array | str | None, b: Array | str | None) -> bool:
    """Whether two tensors are the same constant, or come from the same tensor."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b)
    return a == b


def _source(graph: Graph, node: NodeProto, layout: int) -> tuple[str, bool]:
    """The tensor that a layer should be given, and whether its axes are (B, T, D).

    A model that takes (B, T, D) often starts by swapping these axes for its first node. The layer then takes what the
    model takes: since both sizes are unknown, no check could detect swapped axes.
    """
    name = node.input[0]
    before = graph.producers.get(name)
    swapped = before is not None and before.op_type == "Transpose" and attributes(before).get("perm") == [1, 0, 2]
    return (before.input[0] if before is not None and swapped else name), bool(layout) != swapped


def _build(readings: list[Reading], options: dict[str, Any], batch_first: bool, dtype: DTypeLike | None) -> Layer:
    """The layer with its weights."""
    weights = {
        f"{name}_l{k}{suffix}": value
        for k, reading in enumerate(readings)
        for suffix, one in zip(("", "_reverse"), reading.weights, strict=False)
        for name, value in one.items()
    }
    if dtype is None:
        dtype = np.result_type(*weights.values())
    bias = any("bias_ih" in one for reading in readings for one in reading.weights)
    own = {name: options[name] for name in ("nonlinearity", "reset_after") if name in options}
    bidirectional = options["direction"] == "bidirectional"
    layer = LAYERS[options["kind"]](
        weights["weight_ih_l0"].shape[1], options["hidden_size"], len(readings), bias=bias, batch_first=batch_first,
        bidirectional=bidirectional, dtype=dtype, **own,
    )  # fmt: skip
    # a layer of the stack without biases gets zero biases
    absent = {name: np.zeros_like(view) for name, view in layer.params.items() if name.startswith("bias")}
    layer.load_state_dict(rounded({**absent, **weights}, layer.dtype))
    return layer
