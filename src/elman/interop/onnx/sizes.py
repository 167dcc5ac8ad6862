"""Sizes and axes that follow from a node's description, before it is evaluated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import NodeProto

Axes = list[tuple[str, ...]]
"""Axes of a tensor, each a product of named axes; () is an axis of length 1."""


def most_numbers(node: NodeProto, values: list[Any]) -> int:
    """How many numbers a node outputs at most; only a few operators output more than they take."""
    sizes = [value.size for value in values]
    if node.op_type == "ConstantOfShape":
        return math.prod(int(n) for n in values[0].ravel())
    if node.op_type == "Expand":
        wanted = [int(n) for n in values[1].ravel()]
        return math.prod(map(max, zip_longest(reversed(values[0].shape), reversed(wanted), fillvalue=1)))
    if node.op_type == "Gather":
        return int(sizes[0]) * int(sizes[1])
    # each input of Concat occurs once among the values, but may be named many times
    return max(1, sum(sizes)) * (len(node.input) if node.op_type == "Concat" else 1)


def reshaped(axes: Axes, shape: Sequence[int], sizes: dict[str, int]) -> Axes | None:
    """Axes after a Reshape: 0 keeps an axis, a number takes axes of known length from the end, -1 the rest."""
    kept = next((i for i, n in enumerate(shape) if n != 0 or i == len(axes)), len(shape))
    names, ends = [n for axis in axes[kept:] for n in axis], list(shape[kept:])
    tail: Axes = []
    while ends and ends[-1] > 0:
        taken: tuple[str, ...] = ()
        length = 1
        while length < ends[-1] and names and names[-1] in sizes:
            taken, length = (names[-1], *taken), length * sizes[names.pop()]
        if length != ends.pop():
            return None
        tail.insert(0, taken)
    if ends == [-1]:
        return [*axes[:kept], tuple(names), *tail]
    return None if ends or names else [*axes[:kept], *tail]
