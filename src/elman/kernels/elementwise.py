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
from .vector import ArrayOps, Emitter, Value, VectorOps, declare, lanes_of, pointers

ABREAST = 2
"""Vectors side by side: chains of dependent instructions overlap, and their values still fit the registers."""

PARTIAL_BYTES = 64
"""Width of the partial sums of squares, that of the longest vectors: of shorter ones, several share the same sums."""


def elementwise(
    formula: Callable[..., Any], arrays: int, stores: tuple[int | None, ...], reduce: str = "finite", reduced: int = 1
) -> Any:
    """Make a loop that applies a formula to rows of vectors.

    The result is called as ``f(a0, off0, rs0, a1, off1, rs1, ..., rows, vectors)`` and, for each of ``rows`` rows
    (array i's start at ``off_i + row * rs_i``) and each of ``vectors`` vectors in it, loads all arrays, computes
    ``formula(m, v0, v1, ...)``, and stores its results (a tuple) to the arrays at positions ``stores``.

    Parameters
    ----------
    formula : callable
        Takes the operations object and one value an array; returns a tuple, first what is reduced. An array that it
        does not use is not read.
    arrays : int
        Number of arrays it is given, those that it only writes among them.
    stores : tuple of int or None
        Which arrays receive the results, in the order of the tuple; None for a result that is only reduced.
    reduce : {"finite", "squares"}
        ``"finite"``: the call returns 1 if every reduced result is a finite number, else 0. ``"squares"``: two further
        arguments ``squares, offset``; the sum of squares of each row's i-th reduced result, added up in float64, is
        written to ``squares[offset + row * reduced + i]``, and the call returns 1. Number j of a row belongs to the
        partial sum ``j % (64 / itemsize)``, and a fixed tree adds these up: the same bits for vectors of any length.
    reduced : int, default 1
        How many of the results, from the first, are reduced.

    Returns
    -------
    callable
        An intrinsic for compiled code; its NumPy twin where the JIT is off.
    """
    if config.DISABLE_JIT:
        return _array_loop(formula, arrays, stores, reduce, reduced)

    def apply(typing: Any, *args: Any) -> Any:
        ip = types.intp
        operands = [t for a in args[: 3 * arrays : 3] for t in (a, ip, ip)]
        extra = [args[-2], ip] if reduce == "squares" else []

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            e = Emitter(builder, context.get_value_type(signature.args[0].dtype))
            data = pointers(context, builder, signature, values, range(0, 3 * arrays, 3))
            offsets, strides = values[1 : 3 * arrays : 3], values[2 : 3 * arrays : 3]
            rows, vectors = values[3 * arrays : 3 * arrays + 2]
            double = ir.VectorType(ir.DoubleType(), e.lanes)
            partial = 1 if reduce == "finite" else PARTIAL_BYTES // HOST.vector_bytes
            start = [e.zero() if reduce == "finite" else ir.Constant(double, [0.0] * e.lanes)] * (reduced * partial)

            def row(r: Any, carried: list[Any]) -> list[Any]:
                base = [builder.add(o, builder.mul(s, r)) for o, s in zip(offsets, strides, strict=True)]
                along = _Row(e, formula, data, base, stores, reduce, partial)
                if reduce == "finite":
                    return along.emit(vectors, carried)
                squares = pointers(context, builder, signature, values, [3 * arrays + 2])[0]
                first = builder.add(values[-1], builder.mul(r, ir.Constant(r.type, reduced)))
                sums = along.emit(vectors, start)
                for i in range(reduced):
                    total = _halved(sums[i * partial : (i + 1) * partial], builder.fadd)
                    to = builder.gep(squares, [builder.add(first, ir.Constant(r.type, i))])
                    builder.store(_horizontal_sum(builder, total), to)
                return []

            carried = e.loop(rows, start if reduce == "finite" else [], row)
            if reduce == "squares":
                return ir.Constant(ir.IntType(64), 1)
            # each is 0, or NaN if something was not finite
            total = _horizontal_sum(builder, functools.reduce(builder.fadd, carried))
            return builder.zext(builder.fcmp_ordered("ord", total, total), ir.IntType(64))

        return types.int64(*operands, ip, ip, *extra), codegen

    # numba reads the arity off the signature and cannot lower *args
    count = 3 * arrays + (2 if reduce == "finite" else 4)
    names = ["typing", *(f"a{i}" for i in range(count))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    apply.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])
    return intrinsic(apply)


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
                for part, to in zip(x.parts, places[i], strict=True):
                    e.store(part, self.data[i], to)
        acc = list(acc)
        for result in range(len(acc) // self.partial):
            for i, x in enumerate(out[result].parts):
                to = result * self.partial + (place + i) % self.partial
                acc[to] = _accumulate(e, self.reduce, x, acc[to])
        return acc


def rowwise(formula: Callable[[Any, Any], Any]) -> Any:
    """Make a loop over one row of any length: whole vectors first, then the rest number by number.

    The result is called as ``f(to, toff, a, off, n)`` and sets ``to[toff + j] = formula(to[toff + j], a[off + j])`` for
    ``j < n``. For rows that the user sees, which are not padded; LLVM's own vectoriser is three times slower at these
    lengths.

    Parameters
    ----------
    formula : callable
        Takes and returns one value; uses ``+ - *`` only.
    """
    if config.DISABLE_JIT:

        def on_arrays(to: Any, toff: int, a: Any, off: int, n: int) -> None:
            to[toff : toff + n] = formula(to[toff : toff + n], a[off : off + n])

        return on_arrays

    @intrinsic
    def on_vectors(typing: Any, to: Any, toff: Any, a: Any, off: Any, n: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            e = Emitter(builder, context.get_value_type(signature.args[0].dtype))
            to, a = pointers(context, builder, signature, values, (0, 2))
            _, toff, _, off, n = values
            lanes = ir.Constant(n.type, e.lanes)
            vectors = builder.sdiv(n, lanes)

            def whole(i: Any, _: list[Any]) -> list[Any]:
                step = builder.mul(i, lanes)
                at, source = builder.add(toff, step), builder.add(off, step)
                x = formula(Value(builder, [e.load(to, at)]), Value(builder, [e.load(a, source)]))
                e.store(x.parts[0], to, at)
                return []

            def single(i: Any, _: list[Any]) -> list[Any]:
                step = builder.add(i, builder.mul(vectors, lanes))
                at = builder.gep(to, [builder.add(toff, step)])
                source = builder.load(builder.gep(a, [builder.add(off, step)]))
                x = formula(Value(builder, [builder.load(at)]), Value(builder, [source]))
                builder.store(x.parts[0], at)
                return []

            e.loop(vectors, [], whole)
            e.loop(builder.sub(n, builder.mul(vectors, lanes)), [], single)
            return context.get_dummy_value()

        ip = types.intp
        return types.void(to, ip, a, ip, ip), codegen

    return on_vectors


copy_row = rowwise(lambda to, a: a)
"""``copy_row(to, toff, a, off, n)``: ``to = a``."""

add_row = rowwise(lambda to, a: to + a)
"""``add_row(to, toff, a, off, n)``: ``to += a``."""


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
    formula: Callable[..., Any], arrays: int, stores: tuple[int | None, ...], reduce: str, reduced: int = 1
) -> Any:
    """NumPy twin of what :func:`elementwise` makes, row by row."""

    def apply(*args: Any) -> int:
        operands = [args[3 * i : 3 * i + 3] for i in range(arrays)]
        rows, vectors = args[3 * arrays : 3 * arrays + 2]
        m = ArrayOps(operands[0][0].dtype)
        width = vectors * lanes_of(operands[0][0].itemsize)
        finite = True
        for r in range(rows):
            views = [a[o + r * s : o + r * s + width] for a, o, s in operands]
            with np.errstate(all="ignore"):  # compiled code does not warn either
                out = formula(m, *(v.copy() for v in views))
                sums = [np.sum(np.square(x, dtype=np.float64)) for x in out[:reduced]]
            for i, x in zip(stores, out, strict=True):
                if i is not None:
                    views[i][...] = x
            finite = finite and all(np.isfinite(x).all() for x in out[:reduced])
            if reduce == "squares":
                at = args[-1] + r * reduced
                args[-2][at : at + reduced] = sums
        return int(finite or reduce == "squares")

    return apply
