"""Layers from ONNX models, one RNN, LSTM or GRU node or a stack of them with its weights, and back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..errors import ArgumentError, DTypeError, MissingExtraError
from ..layers import GRU, LSTM, RNN
from ..layers.batch import Batch
from ..layers.parameters import rounded
from ..validation import is_list
from .onnx_export import to_onnx
from .onnx_graph import Graph, Origin, attributes, label
from .onnx_node import Reading, constant_states, input_tensors, read

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

__all__ = ["OnnxLayer", "from_onnx", "to_onnx"]

Array = NDArray[Any]
Layer = RNN | LSTM | GRU
LAYERS: dict[str, type[Layer]] = {"RNN": RNN, "LSTM": LSTM, "GRU": GRU}


@dataclass(frozen=True, eq=False)
class OnnxLayer:
    """A layer, and what its nodes say besides the weights.

    ONNX lets a node carry initial states, lengths and a direction, which in elman belong to the call. Called as a
    layer, this object fills them in, so that it gives what the nodes give. ``layer`` alone, for training or diagnosis,
    is given them by you.

    Attributes
    ----------
    layer : RNN, LSTM or GRU
        The layer. ``batch_first`` if the node has layout 1, or if what it reads was just brought from (B, T, D) to
        (T, B, D).
    nodes : tuple of str
        Names of the nodes, from the first layer to the last.
    inputs : dict of str to str
        For ``x``, and where they are not constant for ``h0``, ``c0``, ``lengths``: the name of the tensor of the graph
        that the numbers come from, of states possibly several, separated by commas, to be joined along the axis of
        directions. These must be given at the call, in the order of axes that the layer asks for.
    h0 : ndarray (num_layers * num_directions, B, H), tuple of two for an LSTM, or None
        Constant initial state, used where the call gives none; with B = 1 it is repeated. None: zero.
    lengths : ndarray (B,) or None
        Constant lengths, used where the call gives none.
    reverse : bool
        Whether the nodes run from the end of each sequence to its start. elman has no such layer: ``layer`` runs
        forward, and this object turns x and the output around.
    """

    layer: Layer
    nodes: tuple[str, ...]
    inputs: dict[str, str] = field(repr=False)
    h0: Any = field(default=None, repr=False)
    lengths: Array | None = field(default=None, repr=False)
    reverse: bool = False

    def __call__(self, x: ArrayLike, h0: Any = None, *, lengths: ArrayLike | None = None) -> tuple[Array, Any]:
        """Compute what the nodes compute.

        Parameters
        ----------
        x, h0, lengths
            As for calling the layer; where h0 or lengths is not given, it is the constant of the graph, if there is
            one. What ``inputs`` names must be given; a list of sequences has its lengths with it.

        Returns
        -------
        output : ndarray, shape (T, B, num_directions * H), or (B, T, num_directions * H) with ``batch_first``
            Y of the last node, its axis of directions joined with that of units.
        hn : ndarray, shape (num_layers * num_directions, B, H); for an LSTM the tuple (hn, cn)
            Y_h and Y_c of all nodes. For a sequence of length 0, on which the operators' description is silent, the
            initial state; onnxruntime gives zero.

        Raises
        ------
        ArgumentError
            If h0 or lengths is left out though the graph reads it from a tensor, see ``inputs``.
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for calling the layer.
        """
        self._require(x, h0, lengths)
        lengths = self.lengths if lengths is None else lengths
        if self.reverse or (h0 is None and self.h0 is not None):
            batch = self.layer.batch(x, lengths)
            h0 = self._initial(batch) if h0 is None else h0
        if not self.reverse:
            return self.layer(x, h0, lengths=lengths)
        output, hn = self.layer(_turned(x, batch), h0, lengths=lengths)
        return _turned(output, batch), hn

    def _require(self, x: Any, h0: Any, lengths: Any) -> None:
        """Refuse a call without what the graph reads: zero states and all steps would be another computation."""
        states = [name for name in ("h0", "c0") if name in self.inputs]
        if h0 is None and states:
            origin = " and ".join(f"{name} from tensor {self.inputs[name]!r}" for name in states)
            raise ArgumentError(
                f"h0 must be given{', as the tuple (h0, c0)' if isinstance(self.layer, LSTM) else ''}: the graph reads "
                f"{origin}; got None. Give zeros to start from zero"
            )
        if lengths is None and "lengths" in self.inputs and not is_list(x):
            raise ArgumentError(
                f"lengths must be given: the graph reads them from tensor {self.inputs['lengths']!r}; got None. Give "
                "the number of steps of x for each sequence if all have all of them"
            )

    def _initial(self, batch: Batch) -> Any:
        """The constant initial state, with one row repeated for every sequence."""
        if self.h0 is None:
            return None
        parts = self.h0 if isinstance(self.h0, tuple) else (self.h0,)
        fitted = [np.repeat(p, batch.B, axis=1) if p.shape[1] == 1 else p for p in parts]
        if batch.single:
            fitted = [p[:, 0] if p.shape[1] == 1 else p for p in fitted]
        return tuple(fitted) if isinstance(self.h0, tuple) else fitted[0]

    def __str__(self) -> str:
        parts = ("h0", "c0") if isinstance(self.layer, LSTM) else ("h0",)
        states = self.h0 if isinstance(self.h0, tuple) else (self.h0,) * len(parts)
        lines = [f"OnnxLayer: {self.layer!r}", f"  nodes    {', '.join(self.nodes)}"]
        if self.reverse:
            lines.append("  reverse  call this object, or give the layer x turned in time and turn its output")
        constants = dict(zip(parts, states, strict=True)) | {"lengths": self.lengths}
        for name in ("x", *constants):
            value = constants.get(name)
            if name in self.inputs:
                told = f"tensor {self.inputs[name]!r} of the graph, to be given at the call"
            elif value is not None:
                told = f"constant, shape {value.shape}"
            else:
                told = "all steps" if name == "lengths" else "zero"
            lines.append(f"  {name:8} {told}")
        return "\n".join(lines)


def _turned(x: Any, batch: Batch) -> Any:
    """Each sequence from its end to its start, in the caller's order of axes; padding stays where it is."""
    if batch.listed:
        return [np.asarray(sequence)[::-1] for sequence in x]
    steps, stops = np.arange(batch.T)[:, None], batch.T if batch.lengths is None else batch.lengths
    order = np.broadcast_to(np.where(steps < stops, stops - 1 - steps, steps), (batch.T, batch.B))
    return batch.outward(np.take_along_axis(batch.inside_out(np.asarray(x)), order[..., None], axis=0))


def from_onnx(
    model: str | os.PathLike[str] | bytes | ModelProto,
    node: str | int | Sequence[str | int] | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> OnnxLayer:
    """Build a layer from recurrent nodes of an ONNX model; exact, or refused by name.

    Exporters write a stack of layers as one node a layer, with nodes between that only move axes. Where the graph
    proves that this is all that stands between them, the nodes become one layer with ``num_layers``.

    Parameters
    ----------
    model : path-like, bytes or onnx.ModelProto
        The model.
    node : str, int, or sequence of these, optional
        Name of a node or of its first output, or its number among the recurrent nodes; or those of a stack, the first
        layer first. All recurrent nodes by default.
    dtype : {"float64", "float32"}, optional
        Type of the layer. By default float64 if the model has such weights, float32 otherwise; both hold them exactly.
        A narrower one rounds.

    Returns
    -------
    OnnxLayer
        ``.layer`` is the layer; the object itself can be called like it and knows initial states, lengths and the
        direction that the nodes prescribe.

    Raises
    ------
    MissingExtraError
        If onnx is not installed.
    ArgumentError
        If there is no such node, several do not form a stack, or one does what elman's layers do not: peepholes,
        input_forget, clip, other activations, weights that are not constant. If initial states are partly inputs and
        partly constant or zero, or are the parts of one tensor in another order than that of layers and directions.
    ShapeError, DTypeError
        If a weight does not have the shape or type that the operator asks for, or ``node`` is of another type.

    References
    ----------
    ONNX operators RNN, LSTM and GRU, versions 1 to 22: https://onnx.ai/onnx/operators/
    """
    graph = Graph(_load(model))
    nodes = _select(graph, node)
    for first, second in pairwise(nodes):
        if reason := graph.between(first, second):
            raise ArgumentError(
                f"{_listed(nodes)} are not one stack: {label(second)!r} does not continue {label(first)!r}, {reason}; "
                "load them one by one, by node="
            )
    readings = [read(graph, n) for n in nodes]
    options = _shared(readings)
    source, batch_first = _source(graph, nodes[0], options["layout"])
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


def _load(model: str | os.PathLike[str] | bytes | ModelProto) -> ModelProto:
    """The model as onnx has it."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "elman.interop.onnx.from_onnx") from error
    if isinstance(model, onnx.ModelProto):
        return model
    try:
        return onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(os.fspath(model))
    except OSError:
        raise
    # what else comes from onnx are errors of its parser, whose classes are protobuf's and not onnx's
    except Exception as error:
        shown = f"{len(model)} bytes" if isinstance(model, bytes) else repr(model)
        raise ArgumentError(
            f"model must be an ONNX model: a path, its bytes, or a ModelProto; {shown} could not be read: {error}"
        ) from error


def _select(graph: Graph, wanted: str | int | Sequence[str | int] | None) -> list[NodeProto]:
    """The nodes that are asked for."""
    there = graph.recurrent
    if not there:
        raise ArgumentError(
            "the model has no RNN, LSTM or GRU node at its top level, which is where elman looks; it has "
            f"{', '.join(sorted({n.op_type for n in graph.model.graph.node})) or 'no nodes'}"
        )
    if wanted is None:
        return there
    found = []
    for key in list(wanted) if isinstance(wanted, Sequence) and not isinstance(wanted, str | bytes) else [wanted]:
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
    return ", ".join(f"{label(n)!r} ({n.op_type})" for n in nodes)


def _shared(readings: list[Reading]) -> dict[str, Any]:
    """What all layers of a stack have in common; refused where they differ."""
    first = readings[0]
    for other in readings[1:]:
        differing = [k for k in {**first.options, **other.options} if first.options.get(k) != other.options.get(k)]
        if not _same(first.lengths, other.lengths):
            differing.append("sequence_lens")
        if differing:
            raise ArgumentError(
                f"{first.label!r} and {other.label!r} cannot be one layer of elman, since they differ in "
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
    model takes: with both sizes unknown, no check could tell a caller that they were confused.
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
    # a layer of the stack without biases has zero ones
    absent = {name: np.zeros_like(view) for name, view in layer.params.items() if name.startswith("bias")}
    layer.load_state_dict(rounded({**absent, **weights}, layer.dtype))
    return layer
