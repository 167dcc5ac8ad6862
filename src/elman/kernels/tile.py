"""The register-tiled matrix product: every output is one chain of fused multiply-adds over k, whatever the shape.

A *panel* holds one vector's worth of columns of a weight matrix, ``[k][lane]``; panels follow each other, so one
packing serves every tile. A *tile* is a few rows by a few vectors of the output, kept in registers over all k.
:func:`product` covers any number of rows and vectors with tiles; it also adds up weight gradients, where the "panels"
are rows of delta read in place.

Because each output starts from its own initial value and meets k in ascending order in one accumulator, no tile
shape, batch size or slab changes a bit. So k is never split; a single row is made fast by more vectors side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided

from .compile import inline, integer, kernel
from .host import HOST
from .vector import Emitter, declare, lanes, lanes_of, pointers

COLUMNS, SINGLE = HOST.columns, HOST.single


def padded(n: int, itemsize: int) -> int:
    """``n`` rounded up to whole vectors."""
    width = lanes_of(itemsize)
    return -(-n // width) * width


def row_stride(n: int, itemsize: int) -> int:
    """Places from one kept row of ``n`` numbers to the next.

    Whole vectors; one more where the rows would lie a multiple of 1 KiB apart: reading down a column would then meet
    the same few sets of the first-level cache again and again.
    """
    places = padded(n, itemsize)
    return places + lanes_of(itemsize) if places * itemsize % 1024 == 0 and places else places


def make_tile(rows: int, columns: int) -> Any:
    """Make ``C[r, v] = init[r, v] + sum_k a[r, k] * b[k, v]`` for ``rows`` rows and ``columns`` vectors.

    The result is called as ``tile(init, ioff, i_rs, i_vs, a, aoff, a_rs, a_ks, b, boff, b_vs, b_ks, K, c, coff,
    c_rs)``: flat arrays, offsets, and strides by row (``rs``), by vector (``vs``) and by k (``ks``) in elements.
    Vectors of ``c`` are adjacent. ``init`` may be ``c`` itself.
    """
    if config.DISABLE_JIT:
        return _array_tile(rows, columns)

    @intrinsic
    def tile(typing, init, ioff, i_rs, i_vs, a, aoff, a_rs, a_ks, b, boff, b_vs, b_ks, K, c, coff, c_rs):
        ip = types.intp
        signature = types.void(init, ip, ip, ip, a, ip, ip, ip, b, ip, ip, ip, ip, c, ip, ip)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            e = Emitter(builder, context.get_value_type(signature.args[0].dtype))
            ip_, ap, bp, cp = pointers(context, builder, signature, args, (0, 4, 8, 13))
            _, ioff, i_rs, i_vs, _, aoff, a_rs, a_ks, _, boff, b_vs, b_ks, K, _, coff, c_rs = args
            grid = [(r, v) for r in range(rows) for v in range(columns)]
            start = [e.load(ip_, e.at(e.at(ioff, i_rs, r), i_vs, v)) for r, v in grid]
            a_rows = [builder.gep(ap, [e.at(aoff, a_rs, r)]) for r in range(rows)]
            b_columns = [builder.gep(bp, [e.at(boff, b_vs, v)]) for v in range(columns)]
            fma = declare(builder, "fma", e.vector, 3)

            def step(k: Any, acc: list[Any]) -> list[Any]:
                ka, kb = builder.mul(k, a_ks), builder.mul(k, b_ks)
                vectors = [e.load(p, kb) for p in b_columns]
                scalars = [_broadcast(e, builder.load(builder.gep(p, [ka]))) for p in a_rows]
                return [builder.call(fma, [scalars[r], vectors[v], x]) for (r, v), x in zip(grid, acc, strict=True)]

            width = ir.Constant(coff.type, e.lanes)
            for (r, v), x in zip(grid, e.loop(K, start, step), strict=True):
                e.store(x, cp, e.at(e.at(coff, c_rs, r), width, v))
            return context.get_dummy_value()

        return signature, codegen

    return tile


def _broadcast(e: Emitter, scalar: Any) -> Any:
    """One number in every lane."""
    undefined = ir.Constant(e.vector, ir.Undefined)
    lane = e.builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), e.lanes), [0] * e.lanes)
    return e.builder.shuffle_vector(lane, undefined, zeros)


def _array_tile(rows: int, columns: int) -> Any:
    """NumPy twin of a tile, for runs without the JIT."""

    def view(a: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        return as_strided(a[offset:], shape, [s * a.itemsize for s in strides])

    def tile(init, ioff, i_rs, i_vs, a, aoff, a_rs, a_ks, b, boff, b_vs, b_ks, K, c, coff, c_rs):
        width = lanes_of(c.itemsize)
        out = view(init, ioff, (rows, columns, width), (i_rs, i_vs, 1)).copy()
        if K > 0:
            left = view(a, aoff, (rows, K), (a_rs, a_ks))
            out += np.einsum("rk,kvl->rvl", left, view(b, boff, (K, columns, width), (b_ks, b_vs, 1)))
        view(c, coff, (rows, columns, width), (c_rs, width, 1))[...] = out

    return tile


def make_columns(columns: int) -> Any:
    """Make the loop over all rows for ``columns`` vectors: four rows at a time, then two, then one."""
    four, two, one = (make_tile(rows, columns) for rows in (4, 2, 1))

    @inline
    def cover(N, init, ioff, i_rs, i_vs, A, aoff, a_rs, a_ks, P, poff, p_vs, p_ks, K, C, coff, c_rs):
        n = 0
        while n + 4 <= N:
            four(init, ioff + n * i_rs, i_rs, i_vs, A, aoff + n * a_rs, a_rs, a_ks, P, poff, p_vs, p_ks, K,
                 C, coff + n * c_rs, c_rs)  # fmt: skip
            n += 4
        if n + 2 <= N:
            two(init, ioff + n * i_rs, i_rs, i_vs, A, aoff + n * a_rs, a_rs, a_ks, P, poff, p_vs, p_ks, K,
                C, coff + n * c_rs, c_rs)  # fmt: skip
            n += 2
        if n < N:
            one(init, ioff + n * i_rs, i_rs, i_vs, A, aoff + n * a_rs, a_rs, a_ks, P, poff, p_vs, p_ks, K,
                C, coff + n * c_rs, c_rs)  # fmt: skip

    return cover


_wide, _pair, _narrow = (make_columns(columns) for columns in (COLUMNS, 2, 1))
_single = make_tile(1, SINGLE)


@inline
def product(N, V, K, init, ioff, i_rs, i_vs, A, aoff, a_rs, a_ks, P, poff, p_vs, p_ks, C, coff, c_rs):
    """``C = init + A @ P`` for N rows, V vectors of columns and K terms a sum.

    Parameters
    ----------
    N, V, K : int
        Rows, vectors of columns, terms. Any may be 0.
    init : flat array
        Start values at ``ioff + n * i_rs + v * i_vs``: a bias (``i_rs = 0``), C itself (to add on), or one vector of
        zeros (both strides 0).
    A : flat array
        Read: ``A[n, k]`` at ``aoff + n * a_rs + k * a_ks``.
    P : flat array
        Read: vector v of row k at ``poff + v * p_vs + k * p_ks``. Packed panels have ``p_vs = K * lanes, p_ks =
        lanes``.
    C : flat array
        Written: vector v of row n at ``coff + n * c_rs + v * lanes``. Must not overlap A or P.
    """
    VL = lanes(C)
    v = 0
    if N == 1:
        while v + SINGLE <= V:
            _single(init, ioff + v * i_vs, i_rs, i_vs, A, aoff, a_rs, a_ks, P, poff + v * p_vs, p_vs, p_ks, K,
                    C, coff + v * VL, c_rs)  # fmt: skip
            v += SINGLE
    while v + COLUMNS <= V:
        _wide(N, init, ioff + v * i_vs, i_rs, i_vs, A, aoff, a_rs, a_ks, P, poff + v * p_vs, p_vs, p_ks, K,
              C, coff + v * VL, c_rs)  # fmt: skip
        v += COLUMNS
    if v + 2 <= V:
        _pair(N, init, ioff + v * i_vs, i_rs, i_vs, A, aoff, a_rs, a_ks, P, poff + v * p_vs, p_vs, p_ks, K,
              C, coff + v * VL, c_rs)  # fmt: skip
        v += 2
    if v < V:
        _narrow(N, init, ioff + v * i_vs, i_rs, i_vs, A, aoff, a_rs, a_ks, P, poff + v * p_vs, p_vs, p_ks, K,
                C, coff + v * VL, c_rs)  # fmt: skip


ROWS = 256
"""Rows of delta added up before the next columns: what one pass over them reads stays in the second-level cache."""


@inline
def panels(W, woff, j_stride, k_stride, J, K, P, poff, p_vs):
    """Bring a matrix into panels.

    Parameters
    ----------
    W : flat array
        Read: entry (j, k) at ``woff + j * j_stride + k * k_stride``.
    J, K : int
        Columns of the product (along the lanes) and terms of its sums.
    P : flat array
        Written: ``P[poff + j // lanes * p_vs + k * lanes + j % lanes] = W[j, k]``; 0 beyond J.
    """
    VL = lanes(P)
    for v in range((J + VL - 1) // VL):
        n = min(VL, J - v * VL)
        for k in range(K):
            to = poff + v * p_vs + k * VL
            at = woff + v * VL * j_stride + k * k_stride
            for j in range(n):
                P[to + j] = W[at + j * j_stride]
            for j in range(n, VL):
                P[to + j] = 0


@kernel
def pack(W, gates, H, J, P):
    """A weight matrix (gates * H, J) as panels ``[gate][vector of units][column]``: for ``x @ W^T``."""
    VL = lanes(P)
    Hp = (H + VL - 1) // VL * VL
    for g in range(gates):
        panels(W, g * H * J, J, integer(1), H, J, P, g * Hp * J, J * VL)


@kernel
def pack_back(W, gates, H, J, P):
    """A weight matrix (gates * H, J) as panels ``[vector of columns][gate, unit]``: for padded rows ``delta @ W``."""
    VL = lanes(P)
    Hp = (H + VL - 1) // VL * VL
    K = (gates - 1) * Hp + H
    if gates > 1:
        P[:] = 0
    for g in range(gates):
        panels(W, g * H * J, integer(1), J, J, H, P, g * Hp * VL, K * VL)


@kernel
def pack_bias(b_ih, b_hh, gates, H, bias):
    """The sum of two biases (gates * H), each gate padded with zeros."""
    VL = lanes(bias)
    Hp = (H + VL - 1) // VL * VL
    for g in range(gates):
        for j in range(H):
            bias[g * Hp + j] = b_ih[g * H + j] + b_hh[g * H + j]
        for j in range(H, Hp):
            bias[g * Hp + j] = 0


@kernel
def affine(A, a_rs, P, K, V, bias, C, c_rs, n0, n1):
    """``C[n] = bias + A[n] @ P`` for rows n0 <= n < n1.

    Parameters
    ----------
    A : flat array
        Read: N rows of K numbers, ``a_rs`` apart.
    P : flat array
        Read: V panels of K vectors, from :func:`pack`.
    bias : flat array, V vectors
        Read.
    C : flat array
        Written: N rows of V vectors, ``c_rs`` apart.
    """
    VL = lanes(C)
    o, i = integer(0), integer(1)
    product(n1 - n0, V, K, bias, o, o, VL, A, n0 * a_rs, a_rs, i, P, o, K * VL, VL, C, n0 * c_rs, c_rs)


@kernel
def accumulate(A, a_rs, M, delta, d_rs, r0, r1, v0, v1, C, coff, c_rs):
    """``C[m] += sum_r A[r, m] * delta[r]``: a weight gradient, r ascending in one chain.

    Parameters
    ----------
    A : flat array
        Read: rows of M numbers, ``a_rs`` apart (0 for a constant row: the gradient of a bias).
    delta : flat array
        Read: rows of vectors, ``d_rs`` apart; vectors v0 <= v < v1 of rows r0 <= r < r1 are used.
    C : flat array
        Added to: M rows, ``c_rs`` apart, from ``coff``. Threads share the work by vectors, never by rows.
    """
    VL = lanes(C)
    i = integer(1)
    for r in range(r0, r1, ROWS):
        n = min(ROWS, r1 - r)
        to = coff + v0 * VL
        product(M, v1 - v0, n, C, to, c_rs, VL, A, r * a_rs, i, a_rs, delta, r * d_rs + v0 * VL, VL, d_rs, C, to, c_rs)
