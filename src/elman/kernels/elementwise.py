"""Loops over rows of padded vectors, generated from a formula: the elementwise part of a cell."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from .dual import Dual, DualOps
from .host import HOST
from .operands import ip, parts_of, start_of, strides_of
from .vector import ArrayOps, Emitter, Value, VectorOps, declare, lanes_of

ABREAST = 2
"""Vectors side by side: chains of dependent instructions overlap, and their values still fit the registers."""

PARTIAL_BYTES = 64
"""Width of the partial sums of squares, that of the longest vectors; several shorter vectors share the same sums."""


def elementwise(
    formula: Callable[..., Any], operands: int, stores: tuple[int | None, ...], reduce: str = "finite", reduced: int = 1
) -> Any:
    """Generate a loop that applies a formula to rows of vectors.

    The result is called as ``f(a0, a1, ..., N, K, vectors)``, with operands of :mod:`elman.kernels.operands`. For each
    of N x K rows and each of the vectors in it, it loads all operands, computes ``formula(m, v0, v1, ...)``, and stores
    its results (a tuple) to the operands at positions ``stores``. Row (n, k) of ``rows_at`` is the row ``n * K + k``;
    an operand of ``grid_at`` with an inner stride of 0 has one row for all k.

    Parameters
    ----------
    formula : callable
        Takes the operations object and one value for each operand; returns a tuple in which reduced results come first.
        An operand that it does not use is not read. A result may be a plain number.
    operands : int
        Number of operands, including those that are only written.
    stores : tuple of int or None
        Which operands receive the results, in the order of the tuple; None for a result that is only reduced.
    reduce : {"finite", "squares"}
        ``"finite"``: the call returns 1 if every reduced result is a finite number, else 0. ``"squares"``: two further
        arguments ``squares, first``; the sum of squares of each row's i-th reduced result, added up in float64, is
        written to ``squares[(first + n * K + k) * reduced + i]``, and the call returns 1. Number j of a row belongs to
        the partial sum ``j % (64 / itemsize)``, and a fixed tree adds these up: the same bits for any vector length.
    reduced : int, default 1
        How many of the results, from the first, are reduced.

    Returns
    -------
    callable
        An intrinsic for compiled code; its NumPy twin if the JIT is off.
    """
    if config.DISABLE_JIT:
        return _array_loop(formula, operands, stores, reduce, reduced)

    def apply(typing: Any, *args: Any) -> Any:
        extra = [args[-2], ip] if reduce == "squares" else []
        signature = types.int64(*args[:operands], ip, ip, ip, *extra)
        return signature, lambda *call: _emit(_Loop(formula, operands, stores, reduce, reduced), *call)

    # numba reads the arity from the signature and cannot lower *args
    count = operands + (3 if reduce == "finite" else 5)
    names = ["typing", *(f"a{i}" for i in range(count))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    apply.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])
    return intrinsic(apply)


class _Loop(NamedTuple):
    """The arguments of :func:`elementwise`."""

    formula: Callable[..., Any]
    operands: int
    stores: tuple[int | None, ...]
    reduce: str
    reduced: int


def _emit(loop: _Loop, context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Write a loop over N x K rows."""
    given = zip(signature.args[: loop.operands], values[: loop.operands], strict=True)
    operands = [parts_of(builder, t, v) for t, v in given]
    parts = [part for operand in operands for part in operand]
    e = Emitter(builder, context.get_value_type(parts[0][0][0].dtype))
    data = [start_of(context, builder, *part) for part in parts]
    N, K, vectors, *noted = values[loop.operands :]
    # rows follow each other n by n and k by k, unless an operand says otherwise
    steps = [strides_of(builder, *part) for part in parts]
    steps = [s if len(s) == 2 else [builder.mul(K, s[0]), s[0]] for s in steps]
    double = ir.VectorType(ir.DoubleType(), e.lanes)
    finite = loop.reduce == "finite"
    partial = 1 if finite else PARTIAL_BYTES // HOST.vector_bytes
    start = [e.zero() if finite else ir.Constant(double, [0.0] * e.lanes)] * (loop.reduced * partial)
    squares = None if finite else start_of(context, builder, signature.args[-2], noted[0])

    def row(n: Any, k: Any, carried: list[Any]) -> list[Any]:
        base = [builder.add(builder.mul(outer, n), builder.mul(inner, k)) for outer, inner in steps]
        along = _Row(e, loop.formula, [len(o) for o in operands], data, base, loop.stores, loop.reduce, partial)
        if finite:
            return along.emit(vectors, carried)
        at = builder.mul(builder.add(noted[1], builder.add(builder.mul(n, K), k)), ir.Constant(n.type, loop.reduced))
        sums = along.emit(vectors, start)
        for i in range(loop.reduced):
            total = _halved(sums[i * partial : (i + 1) * partial], builder.fadd)
            to = builder.gep(squares, [builder.add(at, ir.Constant(at.type, i))])
            builder.store(_horizontal_sum(builder, total), to)
        return []

    def rows(n: Any, carried: list[Any]) -> list[Any]:
        return e.loop(K, carried, lambda k, carried: row(n, k, carried))

    carried = e.loop(N, start if finite else [], rows)
    if not carried:
        return ir.Constant(ir.IntType(64), 1)
    # each is 0, or NaN if something was not finite
    total = _horizontal_sum(builder, functools.reduce(builder.fadd, carried))
    return builder.zext(builder.fcmp_ordered("ord", total, total), ir.IntType(64))


class _Row(NamedTuple):
    """A formula along one row.

    Attributes
    ----------
    parts : list of int
        Number of parts of each operand: 2 if its numbers are dual.
    data, base : list
        Pointer to each part, and where the row begins in it.
    stores, reduce
        As for :func:`elementwise`.
    partial : int
        Number of accumulators of each reduced result: vector v of the row is added to that at ``v % partial``.
    """

    e: Emitter
    formula: Callable[..., Any]
    parts: list[int]
    data: list[Any]
    base: list[Any]
    stores: tuple[int | None, ...]
    reduce: str
    partial: int

    def emit(self, vectors: Any, acc: list[Any]) -> list[Any]:
        """Apply it to all vectors, several at a time and then the rest; return the reduced values."""
        b, together = self.e.builder, max(ABREAST, self.partial)
        blocks = b.sdiv(vectors, ir.Constant(vectors.type, together))
        done = b.mul(blocks, ir.Constant(vectors.type, together))
        acc = self.e.loop(blocks, acc, self.body(together, ir.Constant(vectors.type, 0)))
        left = b.sub(vectors, done)
        if together == ABREAST:
            return self.e.loop(left, acc, self.body(1, done))
        for i in range(together - 1):  # each has an accumulator of its own
            some = b.zext(b.icmp_signed(">", left, ir.Constant(left.type, i)), left.type)
            acc = self.e.loop(some, acc, self.body(1, self.e.at(done, some, i), i))
        return acc

    def body(self, n: int, first: Any, place: int = 0) -> Callable[[Any, list[Any]], list[Any]]:
        """Body of a loop that takes ``n`` vectors at a time, from the vector ``first``, :data:`ABREAST` side by side.

        ``place`` is the first vector's accumulator.
        """
        b, lanes = self.e.builder, ir.Constant(first.type, self.e.lanes)

        def some(v: Any, acc: list[Any]) -> list[Any]:
            at = b.mul(b.add(first, b.mul(v, ir.Constant(first.type, n))), lanes)
            for i in range(0, n, ABREAST):
                acc = self.side_by_side(min(ABREAST, n - i), self.e.at(at, lanes, i), place + i, acc)
            return acc

        return some

    def side_by_side(self, n: int, at: Any, place: int, acc: list[Any]) -> list[Any]:
        """Apply the formula to ``n`` vectors, ``at`` numbers into the row; return the reduced values."""
        e, b, lanes = self.e, self.e.builder, ir.Constant(at.type, self.e.lanes)
        places = [[e.at(b.add(start, at), lanes, i) for i in range(n)] for start in self.base]
        loads = [Value(b, [e.load(p, o) for o in row]) for p, row in zip(self.data, places, strict=True)]
        out = self.formula(*_operands(VectorOps(e.element), self.parts, loads))
        for i, x in zip(self.stores, out, strict=True):
            first = 0 if i is None else sum(self.parts[:i])
            for k, result in enumerate(_results(x)[: 0 if i is None else self.parts[i]]):
                for part, where in zip(_vectors(e, result, n), places[first + k], strict=True):
                    e.store(part, self.data[first + k], where)
        acc = list(acc)
        for result in range(len(acc) // self.partial):
            for i, x in enumerate(_results(out[result])[0].parts):
                to = result * self.partial + (place + i) % self.partial
                acc[to] = _accumulate(e, self.reduce, x, acc[to])
        return acc


def rowwise(formula: Callable[[Any, Any], Any]) -> Any:
    """Generate a loop over rows of any length: whole vectors first, then the rest number by number.

    The result is called as ``f(to, a, N, n)`` and sets ``to[j] = formula(to[j], a[j])`` for ``j < n`` in each of N
    rows. It is for the user's rows, which are not padded; code from LLVM's own vectoriser is three times slower at
    these lengths.

    Parameters
    ----------
    formula : callable
        Takes and returns one value; uses ``+ - *`` only.
    """
    if config.DISABLE_JIT:

        def on_arrays(to: Any, a: Any, N: int, n: int) -> None:
            if isinstance(to[0], tuple):
                for parts in zip(to, a, strict=True):
                    on_arrays(*parts, N, n)
                return
            for r in range(N):
                x, y = (b[at + r * stride :][:n] for b, at, stride in (to, a))
                x[...] = formula(x, y)

        return on_arrays

    @intrinsic
    def on_vectors(typing: Any, to: Any, a: Any, N: Any, n: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pairs = zip(*(parts_of(builder, signature.args[k], values[k]) for k in range(2)), strict=True)
            for pair in pairs:
                _emit_rowwise(formula, context, builder, pair, *values[2:])
            return context.get_dummy_value()

        return types.void(to, a, ip, ip), codegen

    return on_vectors


def _emit_rowwise(formula: Callable[..., Any], context: Any, builder: Any, pair: Any, N: Any, n: Any) -> None:
    """Write a loop over N rows of n numbers of two operands, each given by type and value."""
    e = Emitter(builder, context.get_value_type(pair[0][0][0].dtype))
    starts = [start_of(context, builder, *operand) for operand in pair]
    strides = [strides_of(builder, *operand)[0] for operand in pair]
    lanes = ir.Constant(n.type, e.lanes)
    vectors = builder.sdiv(n, lanes)

    def row(r: Any, _: list[Any]) -> list[Any]:
        to, a = (builder.gep(p, [builder.mul(r, s)]) for p, s in zip(starts, strides, strict=True))

        def whole(i: Any, _: list[Any]) -> list[Any]:
            at = builder.mul(i, lanes)
            x = formula(Value(builder, [e.load(to, at)]), Value(builder, [e.load(a, at)]))
            e.store(x.parts[0], to, at)
            return []

        def single(i: Any, _: list[Any]) -> list[Any]:
            step = builder.add(i, builder.mul(vectors, lanes))
            at = builder.gep(to, [step])
            x, y = builder.load(at), builder.load(builder.gep(a, [step]))
            builder.store(formula(Value(builder, [x]), Value(builder, [y])).parts[0], at)
            return []

        e.loop(vectors, [], whole)
        return e.loop(builder.sub(n, builder.mul(vectors, lanes)), [], single)

    e.loop(N, [], row)


copy_rows = rowwise(lambda to, a: a)
"""``copy_rows(to, a, N, n)``: ``to = a`` in N rows of n numbers."""

add_rows = rowwise(lambda to, a: to + a)
"""``add_rows(to, a, N, n)``: ``to += a``."""


def _operands(m: Any, parts: list[int], values: list[Any]) -> list[Any]:
    """The arguments of a formula: the operations, and the values, some of which may be parts of dual numbers."""
    if max(parts) == 1:
        return [m, *values]
    given = iter(values)
    return [DualOps(m), *(Dual(*itertools.islice(given, size)) for size in parts)]


def _results(x: Any) -> tuple[Any, Any]:
    """The value of a result and its derivative, which is None for zero."""
    return (x.value, x.tangent) if isinstance(x, Dual) else (x, None)


def _vectors(e: Emitter, x: Any, n: int) -> list[Any]:
    """The vectors of a result, which may be a plain number or None."""
    parts: list[Any] = x.parts if isinstance(x, Value) else [ir.Constant(e.vector, [float(x or 0.0)] * e.lanes)] * n
    return parts


def _accumulate(e: Emitter, reduce: str, x: Any, acc: Any) -> Any:
    """Add 0 * x, which stays 0 while every x is finite; or x * x in float64, which may exceed the range of float32."""
    if reduce == "finite":
        return e.builder.call(declare(e.builder, "fma", e.vector, 3), [x, e.zero(), acc])
    y = x if x.type == acc.type else e.builder.fpext(x, acc.type)
    return e.builder.call(declare(e.builder, "fma", acc.type, 3), [y, y, acc])


def _halved(parts: list[Any], add: Callable[[Any, Any], Any]) -> Any:
    """Sum of a list of parts in a fixed tree: the second half is added to the first until one is left."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [add(low, high) for low, high in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _horizontal_sum(builder: Any, vector: Any) -> Any:
    """Sum of the lanes in a fixed tree: halves are added until one is left."""
    n = vector.type.count
    while n > 1:
        n //= 2
        mask = ir.VectorType(ir.IntType(32), n)
        low = builder.shuffle_vector(vector, vector, ir.Constant(mask, list(range(n))))
        high = builder.shuffle_vector(vector, vector, ir.Constant(mask, list(range(n, 2 * n))))
        vector = builder.fadd(low, high)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _array_loop(
    formula: Callable[..., Any], operands: int, stores: tuple[int | None, ...], reduce: str, reduced: int
) -> Any:
    """NumPy twin of the loop from :func:`elementwise`, row by row."""

    def apply(*args: Any) -> int:
        operands_of = [a if isinstance(a[0], tuple) else (a,) for a in args[:operands]]
        N, K, vectors, *noted = args[operands:]
        first = operands_of[0][0][0]
        m, width, finite = ArrayOps(first.dtype), vectors * lanes_of(first.itemsize), True
        for n, k in np.ndindex(N, K):
            views = [[_row_view(part, n, k, K, width) for part in operand] for operand in operands_of]
            values = [view.copy() for row in views for view in row]
            with np.errstate(all="ignore"):  # compiled code does not warn either
                out = [_results(x) for x in formula(*_operands(m, [len(row) for row in views], values))]
                sums = [np.sum(np.square(x, dtype=np.float64)) for x, _ in out[:reduced]]
            for i, results in zip(stores, out, strict=True):
                for view, result in zip(() if i is None else views[i], results, strict=False):
                    view[...] = 0.0 if result is None else result
            finite = finite and all(np.isfinite(x).all() for x, _ in out[:reduced])
            if noted:
                squares, offset = noted[0][:2] if isinstance(noted[0], tuple) else (noted[0], 0)
                at = offset + (noted[1] + n * K + k) * reduced
                squares[at : at + reduced] = sums
        return int(finite or reduce == "squares")

    return apply


def _row_view(operand: Any, n: int, k: int, K: int, width: int) -> Any:
    """Row (n, k) of a plain operand without the JIT."""
    a, at, *s = operand
    start = at + (n * s[0] + k * s[1] if len(s) == 2 else (n * K + k) * s[0])
    return a[start : start + width]
