"""Operands of the loops and products: rows of an array, as a pointer and a stride that inlining removes.

Kernels read and write rows in flat arrays. Each operand would take three arguments (array, offset, stride), and a call
with six of them would be unreadable. Here a tuple stands for all three. It holds a pointer and not the array: numba
would count the references to an array in a tuple at every step, and the caller of the kernel holds the array anyway.

Without the JIT, the tuple is (array, offset, strides).

A tuple of two operands is an operand of dual numbers (:mod:`elman.kernels.dual`): values, and their derivatives along a
direction. Products and elementwise loops take it instead of a plain one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

ip = types.intp


def start_of(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Pointer to the first number of an operand, or of an array."""
    if isinstance(kind, types.BaseTuple):
        return builder.extract_value(value, 0)
    return context.make_array(kind)(context, builder, value).data


def _pointer(source: Any) -> Any:
    """Type of a pointer to the numbers of an array, or of an operand."""
    return types.CPointer(source.dtype) if isinstance(source, types.Array) else source[0]


def _make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    start = builder.gep(start_of(context, builder, signature.args[0], args[0]), [args[1]])
    return context.make_tuple(builder, signature.return_type, [start, *args[2:]])


@intrinsic
def _rows_at(typing, source, offset, stride):
    return types.Tuple((_pointer(source), ip))(source, ip, ip), _make


@intrinsic
def _grid_at(typing, source, offset, stride, inner):
    return types.Tuple((_pointer(source), ip, ip))(source, ip, ip, ip), _make


def strides_of(builder: Any, kind: Any, operand: Any) -> list[Any]:
    """The strides of an operand."""
    return [builder.extract_value(operand, k) for k in range(1, len(kind))]


def _moved(context: Any, builder: Any, kind: Any, operand: Any, places: Any) -> Any:
    """An operand that begins some places later."""
    if is_dual(kind):
        parts = [_moved(context, builder, part, value, places) for part, value in parts_of(builder, kind, operand)]
        return context.make_tuple(builder, kind, parts)
    start = builder.gep(start_of(context, builder, kind, operand), [places])
    return context.make_tuple(builder, kind, [start, *strides_of(builder, kind, operand)])


def parts_of(builder: Any, kind: Any, operand: Any) -> list[tuple[Any, Any]]:
    """Type and value of a plain operand, or of the two parts of a dual one."""
    if not is_dual(kind):
        return [(kind, operand)]
    return [(part, builder.extract_value(operand, k)) for k, part in enumerate(kind)]


def is_dual(kind: Any) -> bool:
    """Whether an operand is a tuple of two."""
    return isinstance(kind, types.BaseTuple) and any(isinstance(part, types.BaseTuple) for part in kind)


@intrinsic
def _within(typing, operand, places):
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _moved(context, builder, signature.args[0], *args)

    return operand(operand, ip), codegen


@intrinsic(prefer_literal=True)
def _blocks(typing, operand, width, count):
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind, (value, places, _) = signature.args[0], args
        each = [
            _moved(context, builder, kind, value, builder.mul(places, ir.Constant(places.type, k)))
            for k in range(count.literal_value)
        ]
        return context.make_tuple(builder, signature.return_type, each)

    return types.UniTuple(operand, count.literal_value)(operand, ip, count), codegen


def _make_tuple(source, offset, *strides):
    array, first = source[:2] if isinstance(source, tuple) else (source, 0)
    return (array, first + offset, *strides)


def _within_tuple(operand, places):
    if isinstance(operand[0], tuple):
        return tuple(_within_tuple(part, places) for part in operand)
    return (operand[0], operand[1] + places, *operand[2:])


def _block_tuples(operand, width, count):
    return tuple(_within_tuple(operand, k * width) for k in range(count))


rows_at: Any = _make_tuple if config.DISABLE_JIT else _rows_at
"""``rows_at(source, offset, stride)``: the rows that begin ``offset`` places into a flat array or another operand."""

grid_at: Any = _make_tuple if config.DISABLE_JIT else _grid_at
"""``grid_at(source, offset, stride, inner)``: the same, with a separate stride within each row of the outer stride.

In a loop over N x K rows, row (n, k) begins at place ``n * stride + k * inner``; in a product, number k of row n does.
"""

within: Any = _within_tuple if config.DISABLE_JIT else _within
"""``within(operand, places)``: the operand that begins ``places`` further on in each row."""

blocks: Any = _block_tuples if config.DISABLE_JIT else _blocks
"""``blocks(operand, width, count)``: the first ``count`` blocks of each row, each ``width`` places long."""
