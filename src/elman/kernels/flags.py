"""Rows of bytes, 0 or 1, as rows of floating-point numbers: random draws then take an eighth of the memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from .operands import ip, start_of, strides_of
from .vector import Emitter, lanes_of


@intrinsic
def _on_vectors(typing, flags, to, rows, vectors):
    def codegen(context, builder, signature, args):
        kinds, (*given, rows, vectors) = signature.args, args
        e = Emitter(builder, context.get_value_type(kinds[1][0].dtype))
        starts = [start_of(context, builder, t, v) for t, v in zip(kinds[:2], given, strict=True)]
        strides = [strides_of(builder, t, v)[0] for t, v in zip(kinds[:2], given, strict=True)]
        some = ir.VectorType(ir.IntType(8), e.lanes)

        def row(r: Any, _: list[Any]) -> list[Any]:
            source, target = (builder.gep(p, [builder.mul(r, s)]) for p, s in zip(starts, strides, strict=True))

            def vector(v: Any, _: list[Any]) -> list[Any]:
                at = builder.mul(v, ir.Constant(v.type, e.lanes))
                place = builder.bitcast(builder.gep(source, [at]), some.as_pointer())
                e.store(builder.uitofp(builder.load(place, align=1), e.vector), target, at)
                return []

            return e.loop(vectors, [], vector)

        e.loop(rows, [], row)
        return context.get_dummy_value()

    return types.void(flags, to, ip, ip), codegen


def _on_arrays(flags, to, rows, vectors):
    (f, at, stride), (a, to_at, to_stride) = flags, to
    width = vectors * lanes_of(a.itemsize)
    for r in range(rows):
        a[to_at + r * to_stride :][:width] = f[at + r * stride :][:width]


from_flags: Any = _on_arrays if config.DISABLE_JIT else _on_vectors
"""``from_flags(flags, to, rows, vectors)``, from compiled code: ``to[r] = flags[r]`` for rows of vectors.

Parameters
----------
flags : operand, of uint8
    Read: rows of whole vectors of ``to``.
to : operand
    Written.
"""
