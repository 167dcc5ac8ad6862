"""Packing weights into panels and unpacking gradients: transpositions in blocks that fit registers.

A transposition number by number touches a different cache line with each number. Here a block with sides of one 16-byte
vector is loaded by rows, transposed by shuffles, and stored by rows; every processor has vectors of that length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from .compile import kernel
from .elementwise import copy_rows
from .operands import rows_at
from .vector import lanes, pointers

BLOCK_BYTES = 16
STRIP = 16
"""Columns of the source taken together: whole cache lines of it, and as many lines written side by side."""


def _array_block(a, aoff, a_rs, to, toff, t_rs):
    """NumPy twin of a block."""
    n = BLOCK_BYTES // a.itemsize
    for i in range(n):
        to[toff + i * t_rs : toff + i * t_rs + n] = a[aoff + i : aoff + i + (n - 1) * a_rs + 1 : a_rs]


@intrinsic
def _vector_block(typing, a, aoff, a_rs, to, toff, t_rs):
    """``to[i, j] = a[j, i]`` for one block; the arguments with ``rs`` are row strides."""

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
        # interleaving rows i and i + n / 2 moves one bit of the row number into the column number
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
def transpose(a, to, blocks):
    """Transpose blocks of a: ``to[i, j] = a[j, i]``.

    Parameters
    ----------
    a : flat array
        Read: a block has ``height`` rows of ``width`` numbers from ``aoff``, ``a_rs`` apart.
    to : flat array
        Written: a block has ``width`` rows from ``toff``, ``t_rs`` apart, of ``height`` numbers, followed by zeros up
        to ``least``.
    blocks : ndarray of intp, shape (number of blocks, 7)
        For each block ``aoff, height, a_rs, width, toff, t_rs, least``.
    """
    n = BLOCK_BYTES // a.itemsize
    for block in blocks:
        aoff, height, a_rs, width, toff, t_rs, least = block
        whole = height // n * n
        for first in range(0, width, STRIP):
            last = first + STRIP if first + STRIP < width else width
            squares = first + (last - first) // n * n
            for j in range(0, whole, n):
                for i in range(first, squares, n):
                    _block(a, aoff + j * a_rs + i, a_rs, to, toff + i * t_rs + j, t_rs)
            for i in range(first, last):
                # the rest of the strip: a corner in the last rows, or all columns of rows that do not fill a block
                for j in range(0 if i >= squares else whole, least if least > height else height):
                    # two statements, since one expression would convert to float64, which changes a signalling NaN
                    if j < height:
                        to[toff + i * t_rs + j] = a[aoff + j * a_rs + i]
                    else:
                        to[toff + i * t_rs + j] = 0


@kernel
def add_biases(theta, ih, hh, orders, H, Hp, first, bias):
    """The bias of every block of Hp numbers, padded with zeros: that of W_ih's gates, of W_hh's, or their sum.

    Parameters
    ----------
    theta : flat array
        Holds the biases, gate by gate, from ``ih`` and from ``hh``.
    orders : ndarray of intp, shape (2, gates)
        Which gate belongs to each block of W_ih, from the first block, and of W_hh, from block ``first``.
    bias : flat array
        Written.

    Returns
    -------
    int
        1 if all numbers are finite, else 0.
    """
    bias[:] = 0
    check = bias[0]  # stays 0 while every number is finite
    gates = orders.shape[1]
    for block in range(first + gates):
        for u in range(H):
            at = block * Hp + u
            if block < gates:
                bias[at] = theta[ih + orders[0, block] * H + u]
            if block >= first:
                bias[at] += theta[hh + orders[1, block - first] * H + u]
            check += 0 * bias[at]
    return 1 if check == 0 else 0


if config.DISABLE_JIT:  # compiled code does not warn about a sum that overflows
    add_biases = np.errstate(over="ignore", invalid="ignore")(add_biases)


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
            # a vector of each panel, of which the last may have fewer columns
            whole = J // VL
            copy_rows(rows_at(P, to, K * VL), rows_at(W, at, VL), whole, VL)
            copy_rows(rows_at(P, to + whole * K * VL, 0), rows_at(W, at + whole * VL, 0), 1, J - whole * VL)
