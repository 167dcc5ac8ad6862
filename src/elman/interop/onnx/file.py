"""An ONNX model from a file, bytes or an object, with bounds on what it may read and how large it may become."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, DTypeError, ElmanError, MissingExtraError
from ...files import check_source, quoted, shown
from ...validation.words import kind
from .graph import is_recurrent

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_BYTES = 2**31
"""The largest message that protobuf reads: https://protobuf.dev/programming-guides/proto-limits/"""
MOST_NODES = 100_000
"""Most nodes of a model after its functions are inlined; a function that calls another twice doubles them."""


def load(model: str | os.PathLike[str] | bytes | ModelProto) -> ModelProto:
    """The model with its weights in it, and its functions inlined.

    Raises
    ------
    MissingExtraError
        If onnx is not installed.
    ArgumentError
        If it is not a model, is damaged, or has weights in other files although it does not come from a file.
    OSError
        If the file cannot be read.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "elman.interop.onnx.from_onnx") from error
    if not isinstance(model, str | os.PathLike | bytes | onnx.ModelProto):
        raise DTypeError(f"model must be an ONNX model: a path, its bytes, or a ModelProto; got {kind(model)}")
    if isinstance(model, str | os.PathLike):
        size = check_source(model)
        if size >= MOST_BYTES:
            raise ArgumentError(f"model must be an ONNX model of less than 2 GiB, got {size} bytes")
    try:
        return _without_functions(_read(onnx, model))
    except (ElmanError, FileNotFoundError, PermissionError, Warning):
        raise
    # all other errors from onnx come from its parser, and their classes are protobuf's, not onnx's
    except Exception as error:
        told = f"{len(model)} bytes" if isinstance(model, bytes) else quoted(model, 200)
        raise ArgumentError(
            f"model must be an ONNX model: a path, its bytes, or a ModelProto; {told} could not be read: "
            f"{shown(error, 300)}"
        ) from error


def _read(onnx: Any, model: Any) -> ModelProto:
    """The model as onnx reads it, with all its numbers in it."""
    if isinstance(model, onnx.ModelProto | bytes):
        loaded = model if isinstance(model, onnx.ModelProto) else onnx.load_model_from_string(model)
        for tensor in _external(onnx, loaded):
            raise ArgumentError(
                f"model must hold its weights where it is not given as a path; {quoted(tensor.name)} is in another "
                "file. Give the path, or load it with onnx.load(path), which reads them"
            )
        return loaded
    path = Path(os.fspath(model))
    loaded = onnx.load(str(path), load_external_data=False)
    sizes: dict[str, int] = {}
    total = 0
    for tensor in _external(onnx, loaded):
        told = {entry.key: entry.value for entry in tensor.external_data}
        location = told.get("location", "")
        if location not in sizes:
            sizes[location] = check_source(path.parent / location)
        total += int(told.get("length", sizes[location]))
    # tensors may share numbers, but a small model may not refer to a large file again and again
    if total > 2 * sum(sizes.values()):
        raise ArgumentError(f"model must not read more than its files hold, {sum(sizes.values())} bytes; got {total}")
    if sizes:
        onnx.load_external_data_for_model(loaded, str(path.parent))
    return loaded


def _external(onnx: Any, model: ModelProto) -> Iterator[Any]:
    """All tensors of a model, at any level, whose numbers are in other files."""
    nodes = (node for function in model.functions for node in function.node)
    for tensor in (*_tensors(model.graph), *_in_nodes(nodes)):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _tensors(graph: Any) -> Iterator[Any]:
    """All tensors of a graph and of the graphs inside it."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _in_nodes(graph.node)


def _in_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """All tensors in the attributes of these nodes."""
    for attribute in (a for node in nodes for a in node.attribute):
        yield from ([attribute.t] if attribute.HasField("t") else [])
        yield from attribute.tensors
        for sparse in (*([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []),
                       *attribute.sparse_tensors):  # fmt: skip
            yield from (sparse.values, sparse.indices)
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _tensors(graph)


def _without_functions(model: ModelProto) -> ModelProto:
    """The model with its own functions inlined where they are called, if a recurrent node is in one."""
    if not any(is_recurrent(n) for function in model.functions for n in function.node):
        return model
    _check_written_out(model)
    from onnx.inliner import inline_local_functions

    return inline_local_functions(model)


def _check_written_out(model: ModelProto) -> None:
    """Refuse functions that call themselves, or that would be far larger than the model once inlined."""
    functions = {(f.domain, f.name): f for f in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Iterable[Any], above: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in above:
                raise ArgumentError(f"model must not have functions that call themselves; {quoted(node.op_type)} does")
            if key in functions and key not in counts:
                counts[key] = count(functions[key].node, (*above, key))
            total += 1 + counts.get(key, 0)
            for a in node.attribute:
                for graph in (*([a.g] if a.HasField("g") else []), *a.graphs):
                    total += count(graph.node, above)
        return total

    if count(model.graph.node, ()) > MOST_NODES:
        raise ArgumentError(f"model must have at most {MOST_NODES} nodes once its functions are written out")
