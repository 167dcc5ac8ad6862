"""One recurrent node of an ONNX graph in elman's terms, or the reason why elman has no such network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ArgumentError, DTypeError, ShapeError
from ...files import listed, quoted, shown
from ...layers import GRU, LSTM
from .graph import QUANTIZED, Graph, Origin, attributes, label, named

if TYPE_CHECKING:
    from onnx import NodeProto

Array = NDArray[Any]
State = Array | Origin | None
"""A constant; where it comes from when the model runs; or nothing, which is zero."""

GATES = {"RNN": ("h",), "LSTM": ("i", "o", "f", "g"), "GRU": ("z", "r", "n")}
"""Order of the gates in ONNX, under elman's names: ONNX calls g of the LSTM c, and n of the GRU h."""
ORDER = {"RNN": ("h",), "LSTM": LSTM.GATES, "GRU": GRU.GATES}
"""Their order in elman's weights."""
NONLINEARITIES = {"tanh": "tanh", "relu": "relu", "sigmoid": "sigmoid", "affine": "identity"}
"""Activations of an RNN that elman has; Affine only if alpha 1 and beta 0 are both given."""
DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
KNOWN = {
    "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget", "layout",
    "linear_before_reset", "output_sequence",
}  # fmt: skip
"""Attributes of all versions; output_sequence of version 1 only requests Y."""


@dataclass(frozen=True, eq=False)
class Reading:
    """The description of a node.

    Attributes
    ----------
    label : str
        Its name.
    options : dict
        What all layers of a stack share: ``kind``, ``direction``, ``layout``, ``hidden_size``, ``nonlinearity`` (RNN),
        ``reset_after`` (GRU).
    weights : list of dict
        For each direction ``weight_ih`` (G, D), ``weight_hh`` (G, H), and with biases ``bias_ih`` (G,), ``bias_hh``
        (G,), with the gates in elman's order.
    states : tuple
        Initial h (directions, B, H), and for an LSTM also c.
    lengths : Array, str or None
        Lengths (B,) of the sequences: a constant, or the name of the tensor that they come from when the model runs.
    """

    label: str
    options: dict[str, Any]
    weights: list[dict[str, Array]]
    states: tuple[State, ...]
    lengths: Array | str | None


def rows(kind: str, H: int, *, to_onnx: bool) -> NDArray[np.intp]:
    """Indices (G,) that convert the rows of a weight from ONNX's order of gates to elman's, or back."""
    given, wanted = (ORDER[kind], GATES[kind]) if to_onnx else (GATES[kind], ORDER[kind])
    return np.concatenate([np.arange(H) + given.index(gate) * H for gate in wanted])


def read(graph: Graph, node: NodeProto) -> Reading:
    """Read a node.

    Parameters
    ----------
    graph : Graph
        The graph that contains it.
    node : onnx.NodeProto
        RNN, LSTM, GRU or DynamicQuantizeLSTM, whose weights are then what their 8 bits stand for, exactly.

    Raises
    ------
    ArgumentError
        If it does what elman's layers do not, or its weights are known only when the model runs.
    ShapeError, DTypeError
        If a weight does not have the shape or type that the operator requires.
    """
    name, given, quantized = f"{node.op_type} {named(node)}", attributes(node), node.op_type == QUANTIZED
    kind = "LSTM" if quantized else node.op_type
    _refuse_attributes(name, kind, given)
    names = [*node.input, *[""] * (12 - len(node.input))]
    P = names[7] if kind == "LSTM" else ""
    if P and not graph.zero(P):
        raise ArgumentError(
            f"{name}: P={quoted(P)}, peephole weights, cannot be expressed: elman's gates do not read the cell's "
            "content; train the model without peepholes"
        )
    if quantized:
        W, R = (_dequantized(graph, name, "WR"[i - 1], names[i], *names[6 + 2 * i : 8 + 2 * i]) for i in (1, 2))
    else:
        W, R = (_weight(graph, name, "WR"[i - 1], names[i]) for i in (1, 2))
    direction, H = given.get("direction", "forward"), R.shape[-1]
    n, G = 2 if direction == "bidirectional" else 1, len(GATES[kind]) * H
    expect: dict[str, tuple[Array, tuple[int, ...]]] = {"W": (W, (n, G, W.shape[-1])), "R": (R, (n, G, H))}
    B = _weight(graph, name, "B", names[3]) if names[3] else None
    if B is not None:
        expect["B"] = (B, (n, 2 * G))
    for what, (array, shape) in expect.items():
        if array.shape != shape:
            raise ShapeError(f"{name}: {what} must have shape {shape} with direction={direction!r}, got {array.shape}")
    if given.get("hidden_size", H) != H:
        raise ShapeError(f"{name}: hidden_size={given['hidden_size']} does not fit R of shape {R.shape}")
    order = rows(kind, H, to_onnx=False)
    weights = []
    for d in range(n):
        one = {"weight_ih": W[d][order], "weight_hh": R[d][order]}
        if B is not None:
            one |= {"bias_ih": B[d, :G][order], "bias_hh": B[d, G:][order]}
        weights.append(one)
    options = {"kind": kind, "direction": direction, "layout": given.get("layout", 0), "hidden_size": H}
    if kind == "RNN":
        options["nonlinearity"] = _nonlinearity(name, given, n)
    elif kind == "GRU":
        options["reset_after"] = bool(given.get("linear_before_reset", 0))
    initial = (("initial_h", names[5]), ("initial_c", names[6]))[: 2 if kind == "LSTM" else 1]
    states = tuple(_state(graph, name, what, tensor, (n, H), options["layout"]) for what, tensor in initial)
    return Reading(label(node), options, weights, states, _lengths(graph, names[4]))


def input_tensors(origins: list[Origin]) -> list[str]:
    """Names of the tensors that, joined along the axis of directions, are the initial states of a stack."""
    sizes = {origin.source: origin.size for origin in origins}
    parts = [(origin.source, part) for origin in origins for part in origin.parts]
    if parts == [(source, part) for source, size in sizes.items() for part in range(size)]:
        return list(sizes)
    # a state given for the whole tensor would fit, but be taken for other layers or directions
    if len(sizes) == 1 and len(parts) == sizes[origins[0].source]:
        raise ArgumentError(
            f"the initial states must be the parts of {quoted(origins[0].source)} in the order of layers and "
            f"directions, got {[part for _, part in parts]}; "
            f"{'load the nodes one by one, by node=, or ' if len(origins) > 1 else ''}"
            "reorder the tensor before the model reads it"
        )
    return [origin.tensor for origin in origins]


def constant_states(readings: list[Reading], dtype: np.dtype[Any]) -> Any:
    """Constant initial states of the graph: (num_layers * directions, B, H), a tuple for several; None for zero."""
    states = [s for reading in readings for s in reading.states]
    given = [s for s in states if isinstance(s, np.ndarray)]
    computed = sum(isinstance(s, Origin) for s in states)
    if 0 < computed < len(states):
        raise ArgumentError(
            f"the initial states of {', '.join(quoted(r.label) for r in readings)} are partly "
            f"{'constant' if given else 'zero'} and partly computed when the model runs; make all of them inputs of "
            f"the model, or all constant{'; or load the nodes one by one, by node=' if len(readings) > 1 else ''}"
        )
    if not given:
        return None
    B = max(s.shape[1] for s in given)
    n, H = given[0].shape[0], given[0].shape[2]
    # no state is computed here, so whatever is not an array is zero
    full = [
        [np.broadcast_to(s, (n, B, H)) if isinstance(s, np.ndarray) else np.zeros((n, B, H)) for s in r.states]
        for r in readings
    ]
    parts = tuple(np.concatenate(part).astype(dtype) for part in zip(*full, strict=True))
    return parts if len(parts) > 1 else parts[0]


def _refuse_attributes(name: str, kind: str, given: dict[str, Any]) -> None:
    """Refuse what elman's layers do not have, by the attribute's name."""

    def refuse(what: str, why: str) -> None:
        raise ArgumentError(f"{name}: {what} cannot be expressed: {why}")

    if unknown := sorted(set(given) - KNOWN):
        refuse(listed(unknown), "the attribute is not one of the operator's")
    if given.get("direction", "forward") not in ("forward", "reverse", "bidirectional"):
        refuse(f"direction={quoted(given['direction'])}", "it must be forward, reverse or bidirectional")
    # values of at most 0 do not mean "none": onnxruntime refuses them for LSTM and GRU, and for an RNN 0 clips all to 0
    if "clip" in given:
        refuse(f"clip={given['clip']:g}", "elman does not clip inside a cell; export the model without this attribute")
    if given.get("input_forget"):
        refuse("input_forget=1", "elman's forget gate has weights of its own and is not 1 - i")
    wanted, activations = DEFAULTS.get(kind), [a.lower() for a in given.get("activations", ())]
    if wanted and activations and activations != list(wanted) * (len(activations) // len(wanted)):
        refuse(
            f"activations={shown(given['activations'])}",
            f"elman's {kind} has {', '.join(a.capitalize() for a in wanted)} in each direction",
        )


def _nonlinearity(name: str, given: dict[str, Any], directions: int) -> str:
    """The single nonlinearity of an RNN."""
    used = [a.lower() for a in given.get("activations", ())][:directions] or ["tanh"]
    parameters = {"alpha": given.get("activation_alpha", ()), "beta": given.get("activation_beta", ())}
    # if left out, they are 1 and 0 in the old operator Affine, but 0 and 0 in onnxruntime
    plain = list(parameters["alpha"]) == [1.0] * directions and list(parameters["beta"]) == [0.0] * directions
    if len(set(used)) > 1 or used[0] not in NONLINEARITIES or (used[0] == "affine" and not plain):
        parameters_told = "".join(f", activation_{k}={list(v)}" for k, v in parameters.items() if v)
        raise ArgumentError(
            f"{name}: activations={shown(given['activations'])}{parameters_told} cannot be expressed: elman's RNN has "
            "Tanh, Relu, Sigmoid, or Affine with activation_alpha 1 and activation_beta 0, the same in both directions"
        )
    return NONLINEARITIES[used[0]]


def _weight(graph: Graph, name: str, what: str, tensor: str) -> Array:
    """A constant weight as float32 or float64, whichever holds it exactly."""
    value = graph.constant(tensor)
    if value is None:
        raise ArgumentError(
            f"{name}: {what}={quoted(tensor)} must be constant: an initializer, a Constant node, or moved from such; "
            "it is computed when the model runs. Fold constants first, as exporters and onnxruntime do when asked"
        )
    # small types of ONNX such as bfloat16 are not of NumPy's kind "f", but widen to float32, and so does its int4
    if value.dtype.kind != "f" and not value.dtype.name.startswith(("float", "bfloat")):
        raise DTypeError(f"{name}: {what}={quoted(tensor)} must hold real floating-point numbers, got {value.dtype}")
    if value.ndim < 2:
        raise ShapeError(
            f"{name}: {what}={quoted(tensor)} must have the axis of directions first, got shape {value.shape}"
        )
    return value if value.dtype == np.float64 else value.astype(np.float32)


def _dequantized(graph: Graph, name: str, what: str, tensor: str, scale: str, zero: str) -> Array:
    """A weight (directions, G, .) from one of 8 bits (directions, ., G): ``(w - zero) * scale``, exact in float64.

    Scale and zero point have one number per direction, or one for each of its G columns.
    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DynamicQuantizeLSTM
    """
    parts = {what: tensor, f"{what}_scale": scale, f"{what}_zero_point": zero}
    values = {part: graph.constant(source) if source else None for part, source in parts.items()}
    for part, value in values.items():
        if value is None:
            raise ArgumentError(
                f"{name}: {part}={quoted(parts[part])} must be constant: an initializer or a Constant node"
            )
        if (value.dtype.kind == "f") != part.endswith("scale") or (
            value.dtype.kind != "f" and value.dtype.name not in ("int8", "uint8")
        ):
            wanted = "floating-point numbers" if part.endswith("scale") else "int8 or uint8"
            raise DTypeError(f"{name}: {part}={quoted(parts[part])} must hold {wanted}, got {value.dtype}")
    w, factor, offset = (np.asarray(value, np.float64) for value in values.values())
    if w.ndim != 3:
        raise ShapeError(f"{name}: {what}={quoted(tensor)} must have shape (directions, inputs, 4 H), got {w.shape}")
    for part, array in ((f"{what}_scale", factor), (f"{what}_zero_point", offset)):
        if array.shape not in (w.shape[:1], w[:, 0].shape):
            raise ShapeError(
                f"{name}: {part}={quoted(parts[part])} must have shape {w.shape[:1]} or {w[:, 0].shape}, "
                f"got {array.shape}"
            )
    columns = [a.reshape(len(w), 1, -1) for a in (offset, factor)]
    return np.ascontiguousarray(((w - columns[0]) * columns[1]).swapaxes(1, 2))


def _lengths(graph: Graph, tensor: str) -> Array | str | None:
    """Lengths of the sequences, or the name of the tensor that they come from."""
    if not tensor:
        return None
    value = graph.constant(tensor)
    return graph.integers(tensor) if value is None else value


def _state(graph: Graph, name: str, what: str, tensor: str, sizes: tuple[int, int], layout: int) -> State:
    """Initial states (directions, B, H), with B = 1 for one that the graph repeats for every sequence."""
    if not tensor or graph.zero(tensor):
        return None
    value, (n, H) = graph.constant(tensor), sizes
    if value is None:
        node = graph.producers.get(tensor)
        row = graph.constant(node.input[0]) if node is not None and node.op_type == "Expand" else None
        if row is None or row.shape != ((1, n, H) if layout else (n, 1, H)):
            return _origin(graph, f"{name}: {what}", tensor, n, layout)
        value = row
    if value.ndim != 3 or value.shape[2] != H or value.shape[1 if layout else 0] != n:
        axes = f"(B, {n}, {H})" if layout else f"({n}, B, {H})"
        raise ShapeError(f"{name}: {what}={quoted(tensor)} must have shape {axes}, got {value.shape}")
    return value.swapaxes(0, 1) if layout else value


def _origin(graph: Graph, name: str, tensor: str, n: int, layout: int) -> Origin:
    """Where initial states come from, with one part per direction."""
    origin = graph.origin(tensor, 1 if layout else 0, n)
    if len(origin.parts) != n:
        raise ShapeError(f"{name}={quoted(tensor)} must have {n} along its axis of directions, got {len(origin.parts)}")
    return origin
