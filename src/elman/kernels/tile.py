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

import itertools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided

from .compile import inline, kernel
from .cover import Cover, Grid, Term
from .host import HOST
from .operands import grid_at, ip, parts_of, rows_at, start_of, strides_of
from .vector import Emitter, lanes, lanes_of

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


def _call(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Call the product; of dual numbers twice, since it is linear in all but the weights."""
    parts = [parts_of(builder, t, v) for t, v in zip(signature.args, args, strict=True)]
    _call_once(context, builder, [part[0] for part in parts])
    if len(parts[-1]) == 2:
        # what has no derivative adds nothing: no start value, no terms
        nothing = types.none, None
        _, _, _, start, *factors, C = [part[1] if len(part) == 2 else nothing for part in parts]
        numbers = [part[0] for part in parts]
        given = [*numbers[:3], start]
        for i in range(0, len(factors), 3):
            if factors[i + 1] != nothing:
                given += [numbers[4 + i], factors[i + 1], numbers[6 + i]]
        if len(given) == 4:
            zero = types.intp, ir.Constant(args[0].type, 0)
            given += [zero, numbers[5], numbers[6]]
        _call_once(context, builder, [*given, C])
    return context.get_dummy_value()


def _call_once(context: Any, builder: Any, given: list[tuple[Any, Any]]) -> None:
    """Call the product of plain operands, each a type and a value; without a second factor, its terms are none."""
    e = Emitter(builder, context.get_value_type(given[-1][0][0].dtype))
    none, one, width = (ir.Constant(given[0][1].type, n) for n in (0, 1, e.lanes))

    def operand(kind: Any, value: Any, inner: Any) -> list[Any]:
        """Pointer and two strides."""
        if isinstance(kind, types.NoneType):
            zeros = cgutils.global_constant(builder, "elman.zeros", e.zero())
            return [builder.bitcast(zeros, e.element.as_pointer()), none, none]
        return [start_of(context, builder, kind, value), *[*strides_of(builder, kind, value), inner][:2]]

    values = [*(value for _, value in given[:3]), *operand(*given[3], width)]
    for i in range(4, len(given) - 1, 3):
        values += [given[i][1], *operand(*given[i + 1], one), *operand(*given[i + 2], width)]
    if len(given) == 8:
        values += [none if i in (0, 2, 3, 5, 6) else values[6 + i] for i in range(7)]
    values += operand(*given[-1], width)[:2]
    builder.call(_function(builder.module, e, values), values)


@intrinsic
def _product(typing, down, N, V, init, K, A, P, C):
    return types.void(ip, ip, ip, init, ip, A, P, C), _call


@intrinsic
def _two_products(typing, down, N, V, init, K, A, P, L, B, Q, C):
    return types.void(ip, ip, ip, init, ip, A, P, ip, B, Q, C), _call


def _view(operand: Any, shape: tuple[int, ...], *last: int) -> Any:
    """A tuple (array, offset, strides) as an array; ``last`` are strides to take where it has fewer than axes."""
    a, offset, *strides = operand
    strides = [*strides, *last][: len(shape)]
    return as_strided(a[offset:], shape, [s * a.itemsize for s in strides])


def _array_products(down, N, V, init, *rest):
    """NumPy twin of both, for runs without the JIT."""
    if N <= 0 or V <= 0:
        return
    *factors, C = rest
    if isinstance(C[0], tuple):
        _dual_products(down, N, V, init, factors, C)
        return
    width = lanes_of(C[0].itemsize)
    if init is None:
        out = np.zeros((N, V, width), C[0].dtype)
    else:
        out = _view(init, (N, V, width), *((1,) if len(init) == 4 else (width, 1))).copy()
    for K, A, P in _triples(factors):
        if K > 0:
            p = (*P, width)[:4]
            panels = _view((p[0], p[1], p[3], p[2]), (K, V, width), 1)
            out += np.einsum("nk,kvl->nvl", _view(A, (N, K), 1), panels)
    _view(C, (N, V, width), width, 1)[...] = out


def _triples(factors):
    """Terms, A and P of each product."""
    return zip(factors[::3], factors[1::3], factors[2::3], strict=True)


def _dual_products(down, N, V, init, factors, C):
    """The twin of both on dual numbers."""

    def part(operand, k):
        dual = isinstance(operand, tuple) and isinstance(operand[0], tuple)
        return operand[k] if dual else (None if k else operand)

    for k in range(2):
        given = [(K if part(A, k) else 0, part(A, k) or part(A, 0), P) for K, A, P in _triples(factors)]
        _array_products(down, N, V, part(init, k) if init else None, *itertools.chain(*given), C[k])


product: Any = _array_products if config.DISABLE_JIT else _product
"""From compiled code: ``C = init + A @ P`` for N rows, V vectors of columns and K terms a sum, as
``product(down, N, V, init, K, A, P, C)``.

Operands are those of :mod:`elman.kernels.operands`.

Parameters
----------
down : int
    Not 0 to begin with the last columns: what a step before read last of large weights is still in the caches. No bit
    depends on it.
N, V, K : int
    Rows, vectors of columns, terms. Any may be 0, or less: nothing is done then, or the sums are their start values.
init : operand or None
    Start values, read: a bias (row stride 0), or C itself (to add on); None for zeros. The inner stride is that of
    vectors, which follow each other in ``rows_at``.
A : operand
    Read: N rows of K numbers. The inner stride is that of terms, which lie side by side in ``rows_at``.
P : operand
    Read: V panels of K vectors. The inner stride is that of terms, which lie a vector apart in ``rows_at``; packed
    panels of K terms are ``K * lanes`` apart.
C : operand
    Written: N rows of V vectors. Must not overlap A or P.
"""

two_products: Any = _array_products if config.DISABLE_JIT else _two_products
"""The same with a second product of L terms in the same chains, ``C = init + A @ P + B @ Q``, as
``two_products(down, N, V, init, K, A, P, L, B, Q, C)``.
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
    product(
        0, n1 - n0, V, rows_at(bias, 0, 0), K, rows_at(A, n0 * a_rs, a_rs), rows_at(P, 0, K * VL),
        rows_at(C, n0 * c_rs, c_rs),
    )  # fmt: skip


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
    sums = rows_at(C, coff + v0 * VL, c_rs)
    for after in range(r1, r0, -BLOCK):
        n, r = (BLOCK if after - r0 > BLOCK else after - r0), after - 1
        columns, vectors = grid_at(A, r * a_rs, 1, -a_rs), grid_at(delta, r * d_rs + v0 * VL, VL, -d_rs)
        product(0, M, v1 - v0, sums, n, columns, vectors, sums)
