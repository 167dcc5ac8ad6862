"""Recurrent nodes inside an ``If`` of an ONNX graph: the ``If`` is replaced by one of its branches.

A model for several sampling rates, say, has one network in each branch. Once a branch is chosen, or both are tried,
the result is a graph whose recurrent nodes are at the top level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, DTypeError
from .graph import is_recurrent, label, named

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

BRANCHES = ("then", "else")
MOST_WAYS = 256
"""Most combinations of branches that are tried: each If doubles them."""
Branch = str | Mapping[str, str] | None


def decided(model: ModelProto, branch: Branch) -> Iterator[tuple[dict[str, str], ModelProto]]:
    """The model once for each combination of branches, or once if they are chosen.

    Parameters
    ----------
    model : onnx.ModelProto
        The model; it is not changed.
    branch : {"then", "else"}, mapping of str to these, or None
        The branch of every ``If`` with a recurrent node in it, or by the name of the ``If``; both where none is given.

    Yields
    ------
    way : dict of str to str
        The branch of each ``If``, by its name.
    model : onnx.ModelProto
        A copy in which the ``If`` nodes are replaced by the nodes of these branches.

    Raises
    ------
    ArgumentError
        If a recurrent node is in the body of a Loop or Scan, there are too many combinations, or ``branch`` has a name
        that does not exist.
    """
    _check(model, branch)
    for number, found in enumerate(_ways(model, branch, {})):
        if number == MOST_WAYS:
            raise ArgumentError(f"model has more than {MOST_WAYS} ways through its Ifs; choose some by branch=")
        yield found


def _ways(model: ModelProto, branch: Branch, way: dict[str, str]) -> Iterator[tuple[dict[str, str], ModelProto]]:
    """As :func:`decided`, after some branches have been chosen."""
    place = next((i for i, node in enumerate(model.graph.node) if any(_inside(node))), None)
    if place is None:
        yield way, model
        return
    node = model.graph.node[place]
    if node.op_type != "If":
        inner = next(_inside(node))
        raise ArgumentError(
            f"{inner.op_type} {named(inner)} is in the body of {node.op_type} {named(node)}, which runs it as "
            "often as the data say: elman has no such layer. Load other nodes by node=, or export the model with the "
            "recurrent operator over the whole sequence"
        )
    name = label(node)
    chosen = branch if isinstance(branch, str) or branch is None else branch.get(name)
    for one in BRANCHES if chosen is None else (chosen,):
        yield from _ways(_inlined(model, place, one), branch, {**way, name: one})


def _check(model: ModelProto, branch: Branch) -> None:
    """Refuse a choice that has no meaning for this model."""
    if branch is None:
        return
    if not isinstance(branch, str | Mapping):
        raise DTypeError(f"branch must be 'then', 'else', or a mapping of names of If nodes to these; got {branch!r}")
    there = [label(node) for node in nodes(model.graph) if node.op_type == "If" and any(_inside(node))]
    if not there:
        raise ArgumentError(f"branch must not be given, for no If has a recurrent node in it; got {branch!r}")
    values, names = ([branch], []) if isinstance(branch, str) else (list(branch.values()), list(branch))
    if any(value not in BRANCHES for value in values):
        raise ArgumentError(f"branch must be 'then' or 'else', got {branch!r}")
    if unknown := [name for name in names if name not in there]:
        raise ArgumentError(f"branch must have names of If nodes, {', '.join(map(repr, there))}; got {unknown}")


def _bodies(node: NodeProto) -> list[GraphProto]:
    """The graphs inside a node."""
    return [graph for a in node.attribute for graph in ([a.g] if a.HasField("g") else a.graphs)]


def nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for body in _bodies(node):
            yield from nodes(body)


def _inside(node: NodeProto) -> Iterator[NodeProto]:
    """The recurrent nodes inside a node."""
    return (inner for body in _bodies(node) for inner in nodes(body) if is_recurrent(inner))


def _inlined(model: ModelProto, place: int, branch: str) -> ModelProto:
    """A copy of the model with an ``If`` replaced by a branch, whose names are changed if they are already in use."""
    from onnx import GraphProto, ModelProto, helper

    out = ModelProto()
    out.CopyFrom(model)
    node, body = model.graph.node[place], GraphProto()
    body.CopyFrom(next(a.g for a in node.attribute if a.name == f"{branch}_branch"))
    start = f"{label(node)}.{branch}."
    new = _free(_defined(body), {*_defined(model.graph), *(i.name for i in model.graph.input)}, start)
    _rename(body, new)
    names = _free({n.name for n in body.node}, {n.name for n in model.graph.node if n.name}, start)
    for n in body.node:
        n.name = names.get(n.name, n.name)
    ends = [helper.make_node("Identity", [o.name], [name]) for o, name in zip(body.output, node.output, strict=True)]
    del out.graph.node[:]
    out.graph.node.extend([*model.graph.node[:place], *body.node, *ends, *model.graph.node[place + 1 :]])
    out.graph.initializer.extend(body.initializer)
    out.graph.value_info.extend(body.value_info)
    return out


def _defined(graph: GraphProto) -> set[str]:
    """Names of the tensors that a graph defines, without those of graphs inside it."""
    return {t.name for t in graph.initializer} | {name for n in graph.node for name in n.output if name}


def _free(names: Iterable[str], taken: set[str], start: str) -> dict[str, str]:
    """New names for those that are already in use."""
    new: dict[str, str] = {}
    for name in sorted(taken.intersection(names)):
        fresh = start + name
        while fresh in taken or fresh in names or fresh in new.values():
            fresh += "_"
        new[name] = fresh
    return new


def _rename(graph: GraphProto, new: Mapping[str, str]) -> None:
    """Change names of tensors everywhere in a graph, except where an inner graph has its own tensor of that name."""
    named: list[Any] = [*graph.initializer, *graph.output, *graph.value_info]
    for item in named:
        item.name = new.get(item.name, item.name)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new.get(name, name) for name in names]
        for body in _bodies(node):
            own = _defined(body) | {i.name for i in body.input}
            _rename(body, {old: name for old, name in new.items() if old not in own})
