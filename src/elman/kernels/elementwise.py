"""Loops over rows of padded vectors, made from a formula: the elementwise part of a cell."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from .host import HOST
from .operands import ip, start_of, strides_of
from .vector import ArrayOps, Emitter, Value, VectorOps, declare, lanes_of

ABREAST = 2
"""Vectors side by side: chains of dependent instructions overlap, and their values still fit the registers."""

PARTIAL_BYTES = 64
"""Width of the partial sums of squares, that of the longest vectors: of shorter ones, several share the same sums."""


def elementwise(
    formula: Callable[..., Any], operands: int, stores: tuple[int | None, ...], reduce: str = "finite", reduced: int = 1
) -> Any:
    """Make a loop that applies a formula to rows of vectors.

    The result is called as ``f(a0, a1, ..., N, K, vectors)``, with operands of :mod:`elman.kernels.operands`. For each
    of N x K rows and each of the vectors in it, it loads all operands, computes ``formula(m, v0, v1, ...)``, and stores
    its results (a tuple) to the operands at positions ``stores``. Row (n, k) of ``rows_at`` is the row ``n * K + k``;
    an operand of ``grid_at`` with an inner stride of 0 has one row for all k.

    Parameters
    ----------
    formula : callable
        Takes the operations object and one value for each operand; returns a tuple, first what is reduced. An operand
        that it does not use is not read. A result may be a plain number.
    operands : int
        Number of operands, including those that are only written.
    stores : tuple of int or None
        Which operands receive the results, in the order of the tuple; None for a result that is only reduced.
    reduce : {"finite", "squares"}
        ``"finite"``: the call returns 1 if every reduced result is a finite number, else 0. ``"squares"``: two further
        arguments ``squares, first``; the sum of squares of each row's i-th reduced result, added up in float64, is
        written to ``squares[(first + n * K + k) * reduced + i]``, and the call returns 1. Number j of a row belongs to
        the partial sum ``j % (64 / itemsize)``, and a fixed tree adds these up: the same bits for any vectors.
    reduced : int, default 1
        How many of the results, from the first, are reduced.

    Returns
    -------
    callable
        An intrinsic for compiled code; its NumPy twin where the JIT is off.
    """
    if config.DISABLE_JIT:
        return _array_loop(formula, operands, stores, reduce, reduced)

    def apply(typing: Any, *args: Any) -> Any:
        extra = [args[-2], ip] if reduce == "squares" else []
        signature = types.int64(*args[:operands], ip, ip, ip, *extra)
        return signature, lambda *call: _emit(_Loop(formula, operands, stores, reduce, reduced), *call)

    # numba reads the arity off the signature and cannot lower *args
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
    kinds, given = signature.args[: loop.operands], values[: loop.operands]
    e = Emitter(builder, context.get_value_type(kinds[0][0].dtype))
    data = [start_of(context, builder, t, v) for t, v in zip(kinds, given, strict=True)]
    N, K, vectors, *noted = values[loop.operands :]
    # rows that follow each other n by n and k by k, unless an operand says otherwise
    steps = [strides_of(builder, t, v) for t, v in zip(kinds, given, strict=True)]
    steps = [s if len(s) == 2 else [builder.mul(K, s[0]), s[0]] for s in steps]
    double = ir.VectorType(ir.DoubleType(), e.lanes)
    finite = loop.reduce == "finite"
    partial = 1 if finite else PARTIAL_BYTES // HOST.vector_bytes
    start = [e.zero() if finite else ir.Constant(double, [0.0] * e.lanes)] * (loop.reduced * partial)
    squares = None if finite else start_of(context, builder, signature.args[-2], noted[0])

    def row(n: Any, k: Any, carried: list[Any]) -> list[Any]:
        base = [builder.add(builder.mul(outer, n), builder.mul(inner, k)) for outer, inner in steps]
        along = _Row(e, loop.formula, data, base, loop.stores, loop.reduce, partial)
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
    data, base : list
        Pointer to each array, and where the row begins in it.
    stores, reduce
        As for :func:`elementwise`.
    partial : int
        Accumulators of each reduced result: vector v of the row goes to the one at ``v % partial``.
    """

    e: Emitter
    formula: Callable[..., Any]
    data: list[Any]
    base: list[Any]
    stores: tuple[int | None, ...]
    reduce: str
    partial: int

    def emit(self, vectors: Any, acc: list[Any]) -> list[Any]:
        """Apply it to all vectors, several at a time and then those that are left; return what is reduced."""
        b, together = self.e.builder, max(ABREAST, self.partial)
        blocks = b.sdiv(vectors, ir.Constant(vectors.type, together))
        done = b.mul(blocks, ir.Constant(vectors.type, together))
        acc = self.e.loop(blocks, acc, self.body(together, ir.Constant(vectors.type, 0)))
        left = b.sub(vectors, done)
        if together == ABREAST:
            return self.e.loop(left, acc, self.body(1, done))
        for i in range(together - 1):  # each meets an accumulator of its own
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
        """Apply the formula to ``n`` vectors, ``at`` numbers into the row; return what is reduced."""
        e, b, lanes = self.e, self.e.builder, ir.Constant(at.type, self.e.lanes)
        places = [[e.at(b.add(start, at), lanes, i) for i in range(n)] for start in self.base]
        loads = [[e.load(p, o) for o in row] for p, row in zip(self.data, places, strict=True)]
        out = self.formula(VectorOps(e.element), *(Value(b, parts) for parts in loads))
        for i, x in zip(self.stores, out, strict=True):
            if i is not None:
                for part, to in zip(_parts(e, x, n), places[i], strict=True):
                    e.store(part, self.data[i], to)
        acc = list(acc)
        for result in range(len(acc) // self.partial):
            for i, x in enumerate(out[result].parts):
                to = result * self.partial + (place + i) % self.partial
                acc[to] = _accumulate(e, self.reduce, x, acc[to])
        return acc


def rowwise(formula: Callable[[Any, Any], Any]) -> Any:
    """Make a loop over rows of any length: whole vectors first, then the rest number by number.

    The result is called as ``f(to, a, N, n)`` and sets ``to[j] = formula(to[j], a[j])`` for ``j < n`` in each of N
    rows. For rows that the user sees, which are not padded; LLVM's own vectoriser is three times slower at these
    lengths.

    Parameters
    ----------
    formula : callable
        Takes and returns one value; uses ``+ - *`` only.
    """
    if config.DISABLE_JIT:

        def on_arrays(to: Any, a: Any, N: int, n: int) -> None:
            for r in range(N):
                x, y = (b[at + r * stride :][:n] for b, at, stride in (to, a))
                x[...] = formula(x, y)

        return on_arrays

    @intrinsic
    def on_vectors(typing: Any, to: Any, a: Any, N: Any, n: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            e = Emitter(builder, context.get_value_type(signature.args[0][0].dtype))
            kinds, (*given, N, n) = signature.args, values
            starts = [start_of(context, builder, t, v) for t, v in zip(kinds[:2], given, strict=True)]
            strides = [strides_of(builder, t, v)[0] for t, v in zip(kinds[:2], given, strict=True)]
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
            return context.get_dummy_value()

        return types.void(to, a, ip, ip), codegen

    return on_vectors


copy_rows = rowwise(lambda to, a: a)
"""``copy_rows(to, a, N, n)``: ``to = a`` in N rows of n numbers."""

add_rows = rowwise(lambda to, a: to + a)
"""``add_rows(to, a, N, n)``: ``to += a``."""


def _parts(e: Emitter, x: Any, n: int) -> list[Any]:
    """The vectors of a result, which may be a plain number."""
    parts: list[Any] = x.parts if isinstance(x, Value) else [ir.Constant(e.vector, [float(x)] * e.lanes)] * n
    return parts


def _accumulate(e: Emitter, reduce: str, x: Any, acc: Any) -> Any:
    """Add 0 * x, which stays 0 while every x is finite; or x * x in float64, beyond the range of float32."""
    if reduce == "finite":
        return e.builder.call(declare(e.builder, "fma", e.vector, 3), [x, e.zero(), acc])
    y = x if x.type == acc.type else e.builder.fpext(x, acc.type)
    return e.builder.call(declare(e.builder, "fma", acc.type, 3), [y, y, acc])


def _halved(parts: list[Any], add: Callable[[Any, Any], Any]) -> Any:
    """Sum of a power of two of parts in a fixed tree: the second half is added to the first until one is left."""
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
    """NumPy twin of what :func:`elementwise` makes, row by row."""

    def apply(*args: Any) -> int:
        given = args[:operands]
        N, K, vectors, *noted = args[operands:]
        m = ArrayOps(given[0][0].dtype)
        width = vectors * lanes_of(given[0][0].itemsize)
        finite = True
        for n, k in np.ndindex(N, K):
            starts = (at + (n * s[0] + k * s[1] if len(s) == 2 else (n * K + k) * s[0]) for _, at, *s in given)
            views = [a[at : at + width] for (a, *_), at in zip(given, starts, strict=True)]
            with np.errstate(all="ignore"):  # compiled code does not warn either
                out = formula(m, *(v.copy() for v in views))
                sums = [np.sum(np.square(x, dtype=np.float64)) for x in out[:reduced]]
            for i, x in zip(stores, out, strict=True):
                if i is not None:
                    views[i][...] = x
            finite = finite and all(np.isfinite(x).all() for x in out[:reduced])
            if noted:
                squares, offset = noted[0][:2] if isinstance(noted[0], tuple) else (noted[0], 0)
                at = offset + (noted[1] + n * K + k) * reduced
                squares[at : at + reduced] = sums
        return int(finite or reduce == "squares")

    return apply
