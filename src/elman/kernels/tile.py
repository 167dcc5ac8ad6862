"""The register-tiled matrix product: every output is one chain of fused multiply-adds over k, whatever the shape.

A *panel* holds one vector's worth of columns of a weight matrix, ``[k][lane]``; panels follow each other, so one
packing (:mod:`elman.kernels.packing`) serves every tile. A *tile* is a few rows by a few vectors of the output, kept in
registers over all k. :func:`product` covers any number of rows and vectors with tiles; it also adds up weight
gradients, where the "panels" are rows of delta read in place.

Because each output starts from its own initial value and meets k in ascending order in one accumulator, no tile
shape, batch size or slab changes a bit. So k is never split; a single row is made fast by more vectors side by side.

The product is written for LLVM directly, as one function in the module of each kernel that uses it: numba would type
and optimise a dozen small functions on their own first, and take three times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided

from .compile import inline, integer, kernel
from .cover import Cover, Grid, Term
from .host import HOST
from .vector import Emitter, lanes, lanes_of, pointers

FEW = 4
"""Up to so many rows, a product takes as long as its weights take to arrive from memory: each step then reads them in
the opposite order of the one before it, so that what is still in the cache is used first."""


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


def _function(module: Any, e: Emitter, values: list[Any]) -> Any:
    """The product as a function of the module, for pointers and numbers like ``values``; made at its first use."""
    name = f"elman.product.{e.itemsize}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [v.type for v in values]), name)
    function.linkage = "internal"
    # merged into each place that calls it, it would be compiled as often
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    inner = Emitter(ir.IRBuilder(function.append_basic_block("entry")), e.element)
    down, N, V, i0, i_rs, i_vs, *factors, c0, c_rs = function.args
    terms = [
        Term(K, Grid(a, a_rs, ir.Constant(N.type, 0)), a_ks, Grid(p, ir.Constant(N.type, 0), p_vs), p_ks)
        for K, a, a_rs, a_ks, p, p_vs, p_ks in (factors[:7], factors[7:])
    ]
    Cover(inner, down, N, V, Grid(i0, i_rs, i_vs), terms, Grid(c0, c_rs, ir.Constant(N.type, e.lanes))).emit()
    inner.builder.ret_void()
    return function


def _call(context: Any, builder: Any, signature: Any, args: Any, factors: list[int]) -> Any:
    """Call the product with the factors whose K stand at the places ``factors`` of the arguments; none for zero."""
    arrays = [i for i, t in enumerate(signature.args) if isinstance(t, types.Array)]
    data = dict(zip(arrays, pointers(context, builder, signature, args, arrays), strict=True))

    def at(i: int) -> Any:
        return builder.gep(data[i], [args[i + 1]])

    values = [args[0], args[1], args[2], at(3), args[5], args[6]]
    for i in factors:
        values += [args[i], at(i + 1), args[i + 3], args[i + 4], at(i + 5), args[i + 7], args[i + 8]]
    if len(factors) == 1:
        nothing = ir.Constant(args[0].type, 0)
        values += [nothing if i in (0, 2, 3, 5, 6) else values[6 + i] for i in range(7)]
    values += [at(len(args) - 3), args[-1]]
    e = Emitter(builder, context.get_value_type(signature.args[3].dtype))
    builder.call(_function(builder.module, e, values), values)
    return context.get_dummy_value()


@intrinsic
def _product(
    typing, down, N, V, init, ioff, i_rs, i_vs, K, A, aoff, a_rs, a_ks, P, poff, p_vs, p_ks, C, coff, c_rs
):  # fmt: skip
    ip = types.intp
    signature = types.void(ip, ip, ip, init, ip, ip, ip, ip, A, ip, ip, ip, P, ip, ip, ip, C, ip, ip)
    return signature, lambda context, builder, s, args: _call(context, builder, s, args, [7])


@intrinsic
def _two_products(
    typing, down, N, V, init, ioff, i_rs, i_vs, K, A, aoff, a_rs, a_ks, P, poff, p_vs, p_ks, L, B, boff, b_rs, b_ks, Q,
    qoff, q_vs, q_ks, C, coff, c_rs,
):  # fmt: skip
    ip = types.intp
    factor = ip, A, ip, ip, ip, P, ip, ip, ip
    signature = types.void(ip, ip, ip, init, ip, ip, ip, *factor, *factor, C, ip, ip)
    return signature, lambda context, builder, s, args: _call(context, builder, s, args, [7, 16])


def _view(a: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return as_strided(a[offset:], shape, [s * a.itemsize for s in strides])


def _array_products(down, N, V, init, ioff, i_rs, i_vs, *rest):
    """NumPy twin of both, for runs without the JIT."""
    if N <= 0 or V <= 0:
        return
    *factors, C, coff, c_rs = rest
    width = lanes_of(C.itemsize)
    out = _view(init, ioff, (N, V, width), (i_rs, i_vs, 1)).copy()
    for i in range(0, len(factors), 9):
        K, A, aoff, a_rs, a_ks, P, poff, p_vs, p_ks = factors[i : i + 9]
        if K > 0:
            left = _view(A, aoff, (N, K), (a_rs, a_ks))
            out += np.einsum("nk,kvl->nvl", left, _view(P, poff, (K, V, width), (p_ks, p_vs, 1)))
    _view(C, coff, (N, V, width), (c_rs, width, 1))[...] = out


product: Any = _array_products if config.DISABLE_JIT else _product
"""From compiled code: ``C = init + A @ P`` for N rows, V vectors of columns and K terms a sum, as
``product(down, N, V, init, ioff, i_rs, i_vs, K, A, aoff, a_rs, a_ks, P, poff, p_vs, p_ks, C, coff, c_rs)``.

Parameters
----------
down : int
    Not 0 to begin with the last columns: what a step before read last of large weights is still in the caches. No bit
    depends on it.
N, V, K : int
    Rows, vectors of columns, terms. Any may be 0, or less: nothing is done then, or the sums are their start values.
init : flat array
    Start values at ``ioff + n * i_rs + v * i_vs``: a bias (``i_rs = 0``), C itself (to add on), or one vector of
    zeros (both strides 0).
A : flat array
    Read: ``A[n, k]`` at ``aoff + n * a_rs + k * a_ks``.
P : flat array
    Read: vector v of row k at ``poff + v * p_vs + k * p_ks``. Packed panels have ``p_vs = K * lanes, p_ks = lanes``.
C : flat array
    Written: vector v of row n at ``coff + n * c_rs + v * lanes``. Must not overlap A or P.
"""

two_products: Any = _array_products if config.DISABLE_JIT else _two_products
"""The same with a second product of L terms in the same chains, ``C = init + A @ P + B @ Q``, as
``two_products(down, N, V, init, ..., K, A, ..., p_ks, L, B, boff, b_rs, b_ks, Q, qoff, q_vs, q_ks, C, coff, c_rs)``.
"""


@kernel
def affine(A, a_rs, P, K, V, bias, C, c_rs, n0, n1):
    """``C[n] = bias + A[n] @ P`` for rows n0 <= n < n1.

    Parameters
    ----------
    A : flat array
        Read: N rows of K numbers, ``a_rs`` apart.
    P : flat array
        Read: V panels of K vectors.
    bias : flat array, V vectors
        Read.
    C : flat array
        Written: N rows of V vectors, ``c_rs`` apart.
    """
    VL = lanes(C)
    o, i = integer(0), integer(1)
    product(o, n1 - n0, V, bias, o, o, VL, K, A, n0 * a_rs, a_rs, i, P, o, K * VL, VL, C, n0 * c_rs, c_rs)


BLOCK = HOST.block
"""Rows of delta added up before the next columns. No bit depends on it: the sums are taken up where they were left."""


@inline
def accumulate(A, a_rs, M, delta, d_rs, r0, r1, v0, v1, C, coff, c_rs):
    """``C[m] += sum_r A[r, m] * delta[r]``: a weight gradient, r descending in one chain.

    The order in which backpropagation makes the rows, so that a window of earlier steps carries the same chain on.

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
    o, i = integer(0), integer(1)
    to = coff + v0 * VL
    for after in range(r1, r0, -BLOCK):
        n, r = (BLOCK if after - r0 > BLOCK else after - r0), after - 1
        product(
            o, M, v1 - v0, C, to, c_rs, VL, n, A, r * a_rs, i, -a_rs, delta, r * d_rs + v0 * VL, VL, -d_rs, C, to, c_rs
        )  # fmt: skip
