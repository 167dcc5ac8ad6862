"""Sums in float64 of rows in either format, where sums in float32 would lose digits.

Written in LLVM code, since LLVM does not vectorise such a loop by itself; this takes a tenth of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from .compile import kernel
from .vector import Emitter, lanes, lanes_of, pointers

ABREAST = 4
"""Vectors added up side by side: enough to hide the latency of an addition, and to read rows in whole cache lines."""


def _array_add(total, toff, a, aoff, a_rs, rows, vectors):
    """NumPy twin."""
    n = vectors * lanes_of(a.itemsize)
    for r in range(rows):
        total[toff : toff + n] += a[aoff + r * a_rs : aoff + r * a_rs + n]


@intrinsic
def _vector_add(typing, total, toff, a, aoff, a_rs, rows, vectors):
    """``total[toff + j] += a[aoff + r * a_rs + j]``, r ascending, each addition rounded."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source = pointers(context, builder, signature, args, (0, 2))
        _, toff, _, aoff, a_rs, rows, vectors = args
        e = Emitter(builder, context.get_value_type(signature.args[2].dtype))
        wide = ir.VectorType(ir.DoubleType(), e.lanes)
        number = lambda n: ir.Constant(rows.type, n)  # noqa: E731

        def total_at(j: Any) -> Any:
            return builder.bitcast(builder.gep(to, [builder.add(toff, j)]), wide.as_pointer())

        def widened(offset: Any) -> Any:
            x = e.load(source, offset)
            return x if x.type == wide else builder.fpext(x, wide)

        def some(columns: int, first: Any) -> Any:
            def body(v: Any, _: list[Any]) -> list[Any]:
                at = builder.mul(builder.add(first, builder.mul(v, number(columns))), number(e.lanes))
                places = [builder.add(at, number(i * e.lanes)) for i in range(columns)]

                def row(r: Any, sums: list[Any]) -> list[Any]:
                    start = builder.add(aoff, builder.mul(r, a_rs))
                    return [builder.fadd(s, widened(builder.add(start, j))) for s, j in zip(sums, places, strict=True)]

                sums = [builder.load(total_at(j), align=8) for j in places]
                for s, j in zip(e.loop(rows, sums, row), places, strict=True):
                    builder.store(s, total_at(j), align=8)
                return []

            return body

        blocks = builder.sdiv(vectors, number(ABREAST))
        done = builder.mul(blocks, number(ABREAST))
        e.loop(blocks, [], some(ABREAST, number(0)))
        e.loop(builder.sub(vectors, done), [], some(1, done))
        return context.get_dummy_value()

    ip = types.intp
    return types.void(total, ip, a, ip, ip, ip, ip), codegen


_add: Any = _array_add if config.DISABLE_JIT else _vector_add


def _array_narrow(part, total, vectors):
    """NumPy twin."""
    n = vectors * lanes_of(part.itemsize)
    with np.errstate(all="ignore"):  # compiled code does not warn either
        part[:n] = total[:n] + part[:n]


@intrinsic
def _vector_narrow(typing, part, total, vectors):
    """``part[j] += total[j]``, added up in float64 and rounded once more to the format of ``part``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source = pointers(context, builder, signature, args, (0, 1))
        e = Emitter(builder, context.get_value_type(signature.args[0].dtype))
        double = ir.VectorType(ir.DoubleType(), e.lanes)

        def body(v: Any, _: list[Any]) -> list[Any]:
            at = builder.mul(v, ir.Constant(v.type, e.lanes))
            x = e.load(to, at)
            total = builder.load(builder.bitcast(builder.gep(source, [at]), double.as_pointer()), align=8)
            wide = builder.fadd(total, x if x.type == double else builder.fpext(x, double))
            e.store(wide if x.type == double else builder.fptrunc(wide, x.type), to, at)
            return []

        e.loop(args[2], [], body)
        return context.get_dummy_value()

    return types.void(part, total, types.intp), codegen


_narrow: Any = _array_narrow if config.DISABLE_JIT else _vector_narrow


@kernel
def column_sums(a, rs, r0, r1, v0, v1, total):
    """Add rows r0 <= r < r1 to ``total``, the last one first.

    Parameters
    ----------
    a : flat array
        Read: rows of vectors, ``rs`` apart; vectors v0 <= v < v1 are used.
    total : flat array of float64
        Added to, at the positions of the vectors in a row.
    """
    at = v0 * lanes(a)
    _add(total, at, a, (r1 - 1) * rs + at, -rs, r1 - r0, v1 - v0)


@kernel
def fold(part, rs, rows, v0, v1, total):
    """``total += part`` for the vectors v0 <= v < v1 of each row.

    Parameters
    ----------
    part : flat array
        Read: ``rows`` rows, ``rs`` apart.
    total : flat array of float64
        Added to; rows as in ``part``.
    """
    for r in range(rows):
        at = r * rs + v0 * lanes(part)
        _add(total, at, part, at, rs, 1, v1 - v0)


@kernel
def narrow(part, total, vectors):
    """``part += total``, added up in float64.

    Parameters
    ----------
    part : flat array
        Added to: ``vectors`` vectors from its start.
    total : flat array of float64
        Read.
    """
    _narrow(part, total, vectors)
