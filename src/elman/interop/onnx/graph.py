"""Reading an ONNX graph: which tensors are constant, and which nodes only move numbers from place to place.

All conclusions are drawn from the graph alone, without running it on data. Only nodes of the top level are considered;
those inside an If are moved there by :mod:`elman.interop.onnx.branches`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ArgumentError
from ...files import quoted, shown
from .sizes import Axes, most_numbers, reshaped

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = NDArray[Any]

RECURRENT = ("RNN", "LSTM", "GRU")
QUANTIZED = "DynamicQuantizeLSTM"
"""An LSTM of onnxruntime (domain com.microsoft) whose weights have 8 bits."""
MOVES = {
    "Cast", "Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators whose output holds only numbers of their inputs, in some order or type."""
SOURCES = {"Constant", "ConstantOfShape"}
SELECTIONS = {"Gather", "Slice", "Split"}
"""Operators that take parts of their first input along one axis."""
DEEPEST = 100
"""Most nodes in a row that only move numbers; exporters write a handful."""
SPARE, REPEATS = 2**26, 16
"""Numbers that all constants together may have: a fixed number, and a number for each byte of the model."""


@dataclass(frozen=True)
class Origin:
    """Where the parts of a tensor along one axis come from when the model runs.

    Attributes
    ----------
    tensor : str
        The tensor.
    source : str
        The earliest tensor before it that holds all its numbers: possibly itself.
    size : int
        Number of parts of the source.
    parts : tuple of int
        For each part of the tensor, its number in the source.
    """

    tensor: str
    source: str
    size: int
    parts: tuple[int, ...]


class Graph:
    """The top level of a model.

    Parameters
    ----------
    model : onnx.ModelProto
        The model; it is not changed.

    Attributes
    ----------
    recurrent : list of onnx.NodeProto
        The RNN, LSTM, GRU and DynamicQuantizeLSTM nodes, each after those that it reads.

    Raises
    ------
    ArgumentError
        If a node comes before one that it reads, which ONNX forbids: following the graph back might never end.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.producers = {name: node for node in model.graph.node for name in node.output if name}
        self._declared = {v.name: v.type.tensor_type for v in (*model.graph.value_info, *model.graph.input)}
        self._constants: dict[str, Array | None] = {}
        self._zeros: dict[str, bool] = {}
        self._left = SPARE + REPEATS * model.ByteSize()
        made: set[str] = set()
        self._depths: dict[str, int] = {}
        for node in model.graph.node:
            if early := [i for i in node.input if i in self.producers and i not in made]:
                raise ArgumentError(
                    f"model must have its nodes in order: {node.op_type} {named(node)} reads {quoted(early[0])}, which "
                    "a later node makes"
                )
            outputs = [name for name in node.output if name]
            followed = node.op_type in MOVES | SOURCES
            if followed and (made.intersection(outputs) or len(set(outputs)) < len(outputs)):
                raise ArgumentError(f"model must make each tensor once; {node.op_type} {named(node)} repeats one")
            made.update(outputs)
            depth = 1 + max((self._depths.get(i, 0) for i in node.input), default=0) if followed else 0
            self._depths.update(dict.fromkeys(outputs, depth))
        self.recurrent = [n for n in model.graph.node if is_recurrent(n)]

    def constant(self, name: str) -> Array | None:
        """The value of a tensor that is constant: an initializer, a Constant, or numbers moved from these; else None.

        Exporters that do not fold constants leave weights as Unsqueeze, Slice and Concat of initializers.
        """
        # stored, since two nodes may read the same tensor, and each of many levels may double the paths to it
        if name not in self._constants:
            self._check_depth(name)
            self._constants[name] = self._constant(name)
        return self._constants[name]

    def _constant(self, name: str) -> Array | None:
        """As :meth:`constant`, for a tensor whose value is not stored yet."""
        from onnx import numpy_helper

        if name in self.initializers:
            try:
                return numpy_helper.to_array(self.initializers[name])
            except Exception as error:  # whatever NumPy raises for numbers that do not fit the shape
                raise ArgumentError(f"initializer {quoted(name)} is damaged: {shown(error, 200)}") from error
        node = self.producers.get(name)
        if node is None or node.op_type not in MOVES | SOURCES:
            return None
        values = {i: self.constant(i) for i in node.input if i}
        if any(value is None for value in values.values()):
            return None
        return self._evaluate(node, name, values)

    def _check_depth(self, name: str) -> None:
        """Refuse a tensor behind more nodes than any exporter writes, since they are followed by recursion."""
        if self._depths.get(name, 0) > DEEPEST:
            raise ArgumentError(f"tensor {quoted(name)} is moved by more than {DEEPEST} nodes, one after the other")

    def _spend(self, n: int, what: str) -> None:
        """Refuse a model whose constants take far more memory than the model itself."""
        self._left -= n
        if n < 0 or self._left < 0:
            raise ArgumentError(f"{what} would have {shown(n)} numbers, far more than the model holds: it is damaged")

    def _evaluate(self, node: NodeProto, name: str, values: dict[str, Array | None]) -> Array:
        """The output ``name`` of a node, given all its inputs."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        self._spend(most_numbers(node, list(values.values())), f"{node.op_type} {named(node)}")

        inputs = [helper.make_tensor_value_info(i, 0, None) for i in values]
        outputs = [helper.make_tensor_value_info(name, 0, None)]
        alone = helper.make_model(
            helper.make_graph([node], "alone", inputs, outputs), opset_imports=self.model.opset_import
        )
        try:
            (value,) = ReferenceEvaluator(alone).run([name], values)
        # whatever NumPy raises for an argument that does not fit
        except Exception as error:
            raise ArgumentError(f"{node.op_type} {named(node)} cannot be evaluated: {shown(error, 300)}") from error
        return np.asarray(value)

    def zero(self, name: str) -> bool:
        """Whether a tensor is zero in every run, even if its shape, such as the batch size, is known only then."""
        if name not in self._zeros:
            self._check_depth(name)
            self._zeros[name] = self._zero(name)
        return self._zeros[name]

    def _zero(self, name: str) -> bool:
        """As :meth:`zero`, for a tensor whose answer is not stored yet."""
        node = self.producers.get(name)
        if node is not None and node.op_type == "ConstantOfShape":
            return all(not np.any(value) for value in attributes(node).values())
        if node is not None and node.op_type in MOVES:
            return all(map(self.zero, node.input if node.op_type == "Concat" else node.input[:1]))
        value = self.constant(name)
        return value is not None and not value.any()

    def integers(self, name: str) -> str:
        """The tensor that holds these integers, before any Identity or Cast between int64 and int32."""
        from onnx import TensorProto

        wide = (TensorProto.INT32, TensorProto.INT64)
        while (node := self.producers.get(name)) is not None:
            kept = node.op_type == "Cast" and attributes(node)["to"] in wide and self._type(node.input[0]) in wide
            if node.op_type != "Identity" and not kept:
                break
            name = node.input[0]
        return name

    def origin(self, name: str, axis: int, size: int) -> Origin:
        """Where the ``size`` parts of a tensor of three axes along one of them come from.

        Identity is followed, as are Split, Slice and Gather along the axis with constant arguments, as long as the
        number of parts is known.
        """
        self._check_depth(name)
        source, of, parts = self._parts(name, axis, size) or (name, size, np.arange(size))
        return Origin(name, source, of, tuple(parts.tolist()))

    def _parts(self, name: str, axis: int, size: int | None) -> tuple[str, int, Array] | None:
        """Source, its number of parts, and which of them the tensor has; None if the number of parts is not known."""
        node, size = self.producers.get(name), self._size(name, axis) or size
        self._spend(size or 0, f"tensor {quoted(name)}")
        found = None
        if node is not None and node.op_type == "Identity":
            found = self._parts(node.input[0], axis, size)
        elif node is not None and node.op_type in SELECTIONS:
            found = self._selected(node, name, axis)
        return found if found is not None or size is None else (name, size, np.arange(size))

    def _selected(self, node: NodeProto, name: str, axis: int) -> tuple[str, int, Array] | None:
        """The ``_parts`` of the output ``name`` of a Split, Slice or Gather; None if it cannot be followed."""
        options, given = attributes(node), [*node.input, "", "", ""]
        values = {i: value for i in node.input[1:] if i and (value := self.constant(i)) is not None}
        if any(i and i not in values for i in node.input[1:]):
            return None
        axes, whole = [options.get("axis", 0)], None
        if node.op_type == "Slice":
            starts = options.get("starts", values.get(given[1], ()))
            axes = list(options.get("axes", values.get(given[3], range(len(starts)))))
        elif node.op_type == "Split":
            whole = int(np.sum(options.get("split", values.get(given[1], 0)))) or None
        found = self._parts(node.input[0], axis, whole)
        if found is None or {int(a) % 3 for a in axes} != {axis}:
            return None
        source, size, parts = found
        shape = [1, 1, 1]
        shape[axis] = len(parts)
        taken = self._evaluate(node, name, {node.input[0]: parts.reshape(shape), **values})
        # a Gather by a single number removes the axis
        return (source, size, taken.ravel()) if taken.ndim == 3 else None

    def _type(self, name: str) -> int | None:
        """The declared type of a tensor's numbers."""
        declared = self._declared.get(name)
        return None if declared is None else int(declared.elem_type)

    def _size(self, name: str, axis: int) -> int | None:
        """The declared length of one of three axes."""
        declared = self._declared.get(name)
        if declared is None or len(declared.shape.dim) != 3 or declared.shape.dim[axis].dim_value <= 0:
            return None
        return int(declared.shape.dim[axis].dim_value)

    def between(self, first: NodeProto, second: NodeProto) -> str | None:
        """Why ``second`` does not continue ``first`` as the next layer of a stack does, or None if it does.

        The next layer reads (T, B, directions * H), or (B, T, directions * H) with layout 1.
        """
        path, name = [], second.input[0]
        while (node := self.producers.get(name)) is not None and node.op_type in MOVES:
            path.append(node)
            name = node.input[0]
        if name != first.output[0]:
            return f"it reads {quoted(name)}" + (f" of {node.op_type} {named(node)}" if node is not None else "")
        given, wanted, sizes = _outputs(first)
        for node in reversed(path):
            moved = self._move(node, given, sizes)
            if moved is None:
                return f"what {node.op_type} {named(node)} does to the axes is not that of a stack, or not known"
            given = moved
        return None if given == wanted else f"the axes it reads are {given}, and a stack's are {wanted}"

    def _move(self, node: NodeProto, axes: Axes, sizes: dict[str, int]) -> Axes | None:
        """The axes after a node, or None if they are not known before the model runs."""
        options, n = attributes(node), len(axes)
        if node.op_type == "Identity":
            return axes
        if node.op_type == "Transpose":
            return [axes[i] for i in options.get("perm", range(n)[::-1])]
        values = options.get("axes")
        if values is None and len(node.input) > 1:
            values = self.constant(node.input[1])
        if values is None:
            return None
        numbers = [int(i) for i in values]
        if node.op_type == "Squeeze":
            gone = {i % n for i in numbers}
            # if an axis was not of length 1, it is then missing at the end
            return [a for i, a in enumerate(axes) if i not in gone]
        if node.op_type == "Unsqueeze":
            rest, total = iter(axes), n + len(numbers)
            return [() if i in {j % total for j in numbers} else next(rest) for i in range(total)]
        if node.op_type == "Reshape" and not options.get("allowzero"):
            return reshaped(axes, numbers, sizes)
        return None


def is_recurrent(node: NodeProto) -> bool:
    """Whether elman has a layer for a node."""
    standard = node.op_type in RECURRENT and node.domain in ("", "ai.onnx")
    return standard or (node.op_type == QUANTIZED and node.domain == "com.microsoft")


def attributes(node: NodeProto) -> dict[str, Any]:
    """Attributes of a node as plain Python, strings decoded, tensors as arrays."""
    from onnx import TensorProto, helper, numpy_helper

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        if isinstance(value, TensorProto):
            return numpy_helper.to_array(value)
        return value.decode() if isinstance(value, bytes) else value

    return {a.name: plain(helper.get_attribute_value(a)) for a in node.attribute}


def named(node: NodeProto) -> str:
    """The name of a node for a message."""
    return quoted(label(node))


def label(node: NodeProto) -> str:
    """The name of a node; many exporters give none, and then that of its first output."""
    return node.name or next(iter(filter(None, node.output)), "")


def _outputs(node: NodeProto) -> tuple[Axes, Axes, dict[str, int]]:
    """Axes of Y, axes of what the next layer must read, and the lengths of the axes that the node fixes."""
    options = attributes(node)
    sizes = {"D": 2 if options.get("direction") == "bidirectional" else 1, "H": int(options.get("hidden_size", 0))}
    of = lambda *names: tuple(n for n in names if sizes.get(n) != 1)  # noqa: E731
    if options.get("layout"):
        return [("B",), ("T",), of("D"), of("H")], [("B",), ("T",), of("D", "H")], sizes
    return [("T",), of("D"), ("B",), of("H")], [("T",), ("B",), of("D", "H")], sizes
