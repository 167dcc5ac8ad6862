"""Rows of bytes, 0 or 1, as rows of floating-point numbers: an eighth of the memory for what was drawn."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from .vector import Emitter, lanes_of, pointers


@intrinsic
def _on_vectors(typing, flags, off, rs, to, toff, to_rs, rows, vectors):
    def codegen(context, builder, signature, args):
        e = Emitter(builder, context.get_value_type(signature.args[3].dtype))
        source, target = pointers(context, builder, signature, args, [0, 3])
        _, offset, stride, _, to_offset, to_stride, rows, vectors = args
        some = ir.VectorType(ir.IntType(8), e.lanes)

        def row(r: Any, _: list[Any]) -> list[Any]:
            first, start = (
                builder.add(o, builder.mul(s, r)) for o, s in ((offset, stride), (to_offset, to_stride))
            )  # fmt: skip

            def vector(v: Any, _: list[Any]) -> list[Any]:
                at = builder.mul(v, ir.Constant(v.type, e.lanes))
                place = builder.bitcast(builder.gep(source, [builder.add(first, at)]), some.as_pointer())
                e.store(builder.uitofp(builder.load(place, align=1), e.vector), target, builder.add(start, at))
                return []

            return e.loop(vectors, [], vector)

        e.loop(rows, [], row)
        return context.get_dummy_value()

    ip = types.intp
    return types.void(flags, ip, ip, to, ip, ip, ip, ip), codegen


def _on_arrays(flags, off, rs, to, toff, to_rs, rows, vectors):
    width = vectors * lanes_of(to.itemsize)
    for r in range(rows):
        to[toff + r * to_rs :][:width] = flags[off + r * rs :][:width]


from_flags: Any = _on_arrays if config.DISABLE_JIT else _on_vectors
"""From compiled code: ``to[r] = flags[r]`` for rows of vectors, as
``from_flags(flags, off, rs, to, toff, to_rs, rows, vectors)``.

Parameters
----------
flags : flat array of uint8
    Read: rows ``rs`` apart from ``off``, whole vectors of ``to``.
to : flat array
    Written: rows ``to_rs`` apart from ``toff``.
"""
