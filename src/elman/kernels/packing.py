"""Weights brought into panels, and gradients brought back: transpositions in blocks that fit registers.

A transposition number by number touches another cache line with each of them. A block of one 16-byte vector a side is
loaded by rows, transposed by shuffles, and stored by rows; every processor has vectors of that length.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from .compile import kernel
from .elementwise import copy_row
from .vector import lanes, pointers

BLOCK_BYTES = 16
STRIP = 16
"""Columns of the source taken together: whole cache lines of it, and so many lines written side by side."""


def _array_block(a, aoff, a_rs, to, toff, t_rs):
    """NumPy twin of a block."""
    n = BLOCK_BYTES // a.itemsize
    for i in range(n):
        to[toff + i * t_rs : toff + i * t_rs + n] = a[aoff + i : aoff + i + (n - 1) * a_rs + 1 : a_rs]


@intrinsic
def _vector_block(typing, a, aoff, a_rs, to, toff, t_rs):
    """``to[i, j] = a[j, i]`` for one block; rows are ``rs`` apart."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = context.get_value_type(signature.args[0].dtype)
        size = signature.args[0].dtype.bitwidth // 8
        n = BLOCK_BYTES // size
        vector = ir.VectorType(element, n)
        source, target = pointers(context, builder, signature, args, (0, 3))
        _, aoff, a_rs, _, toff, t_rs = args

        def place(pointer: Any, offset: Any, stride: Any, i: int) -> Any:
            at = builder.add(offset, builder.mul(stride, ir.Constant(offset.type, i)))
            return builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer())

        rows = [builder.load(place(source, aoff, a_rs, i), align=size) for i in range(n)]
        mask = ir.VectorType(ir.IntType(32), n)
        low = [j for i in range(n // 2) for j in (i, n + i)]
        # interleaving rows i and i + n / 2 moves one bit of the row number into that of the column
        for _ in range(n.bit_length() - 1):
            rows = [
                builder.shuffle_vector(rows[i], rows[i + n // 2], ir.Constant(mask, [j + half for j in low]))
                for i in range(n // 2)
                for half in (0, n // 2)
            ]
        for i, row in enumerate(rows):
            builder.store(row, place(target, toff, t_rs, i), align=size)
        return context.get_dummy_value()

    ip = types.intp
    return types.void(a, ip, ip, to, ip, ip), codegen


_block: Any = _array_block if config.DISABLE_JIT else _vector_block


@kernel
def transpose(a, starts, heights, a_rs, width, to, places, t_rs, least):
    """Blocks of a, transposed: ``to[i, j] = a[j, i]``.

    Parameters
    ----------
    a : flat array
        Read: block b has ``heights[b]`` rows of ``width`` numbers from ``starts[b]``, ``a_rs`` apart.
    to : flat array
        Written: block b has ``width`` rows from ``places[b]``, ``t_rs`` apart, of ``heights[b]`` numbers, followed by
        zeros up to ``least``.
    starts, heights, places : ndarray of intp
        Equally long.
    """
    n = BLOCK_BYTES // a.itemsize
    for b in range(len(starts)):
        aoff, toff, height = starts[b], places[b], heights[b]
        whole = height // n * n
        for first in range(0, width, STRIP):
            last = first + STRIP if first + STRIP < width else width
            blocks = first + (last - first) // n * n
            for j in range(0, whole, n):
                for i in range(first, blocks, n):
                    _block(a, aoff + j * a_rs + i, a_rs, to, toff + i * t_rs + j, t_rs)
            for i in range(first, last):
                # what is left of the strip: a corner in the last rows, or all columns of the rows that fill no block
                for j in range(0 if i >= blocks else whole, least if least > height else height):
                    # two statements: as one expression it would pass through float64, which changes a signalling NaN
                    if j < height:
                        to[toff + i * t_rs + j] = a[aoff + j * a_rs + i]
                    else:
                        to[toff + i * t_rs + j] = 0


@kernel
def pack_back(W, order, H, J, P):
    """A weight matrix (gates * H, J) as panels ``[vector of columns][block, unit]``: for padded rows ``delta @ W``."""
    VL = lanes(P)
    Hp = (H + VL - 1) // VL * VL
    K = (len(order) - 1) * Hp + H
    V = (J + VL - 1) // VL
    # lanes beyond J, and units between H and Hp of all blocks but the last
    if V * VL > J or len(order) * H < K:
        P[:] = 0
    for g in range(len(order)):
        for h in range(H):
            at, to = (order[g] * H + h) * J, (g * Hp + h) * VL
            for v in range(V):
                copy_row(P, to + v * K * VL, W, at + v * VL, VL if v < V - 1 else J - v * VL)
