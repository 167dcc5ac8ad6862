"""The register-tiled product as LLVM code: tiles over any number of rows and vectors. See :mod:`elman.kernels.tile`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from .host import HOST, Tile
from .vector import Emitter, declare

TILES, SINGLE, STREAMS = HOST.tiles, HOST.single, HOST.streams
NEAR = (1 << 15) // HOST.vector_bytes
"""Number of vectors of weights that the first-level cache holds."""


class Grid(NamedTuple):
    """Where an array lies in memory: a pointer, and strides by row and by vector."""

    start: Any
    row: Any
    vector: Any

    def at(self, e: Emitter, row: Any, vector: Any) -> Grid:
        """The same, beginning at another row and vector."""
        b = e.builder
        offset = b.add(b.mul(row, self.row), b.mul(vector, self.vector))
        return self._replace(start=b.gep(self.start, [offset]))

    def place(self, e: Emitter, row: int, vector: int) -> Any:
        """Pointer to one vector."""
        zero = ir.Constant(self.row.type, 0)
        return e.builder.gep(self.start, [e.at(e.at(zero, self.row, row), self.vector, vector)])


class Term(NamedTuple):
    """One product of a sum: rows of A, vectors of P, and the strides of their K terms."""

    K: Any
    A: Grid
    a_ks: Any
    P: Grid
    p_ks: Any

    def add(self, e: Emitter, rows: int, columns: int, sums: list[Any]) -> list[Any]:
        """``sums[r, v] + sum_k A[r, k] P[k, v]``, one fused multiply-add for each k in turn."""
        b = e.builder
        a_rows = [self.A.place(e, r, 0) for r in range(rows)]
        p_vectors = [self.P.place(e, 0, v) for v in range(columns)]
        fma = declare(b, "fma", e.vector, 3)

        def step(k: Any, acc: list[Any]) -> list[Any]:
            ka, kp = b.mul(k, self.a_ks), b.mul(k, self.p_ks)
            vectors = [e.load(p, kp) for p in p_vectors]
            out = []
            for i, row in enumerate(a_rows):
                a = _broadcast(e, b.load(b.gep(row, [ka])))
                out += [b.call(fma, [a, v, acc[i * columns + j]]) for j, v in enumerate(vectors)]
            return out

        return e.loop(self.K, sums, step)


def _broadcast(e: Emitter, scalar: Any) -> Any:
    """One number in every lane."""
    undefined = ir.Constant(e.vector, ir.Undefined)
    lane = e.builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), e.lanes), [0] * e.lanes)
    return e.builder.shuffle_vector(lane, undefined, zeros)


class Cover:
    """Emits ``C = init + sum of terms`` over N rows and V vectors.

    Parameters
    ----------
    e : Emitter
        The emitter of the code.
    down : LLVM integer
        If not 0, begin with the last vectors.
    N, V : LLVM integer
        Numbers of rows and vectors; nothing is done if either is 0.
    init, C : Grid
        Where the sums start and end.
    terms : list of Term
        The products, in the order in which they are added up.
    """

    def __init__(self, e: Emitter, down: Any, N: Any, V: Any, init: Grid, terms: list[Term], C: Grid) -> None:
        self.e, self.b, self.down, self.N, self.V = e, e.builder, down, N, V
        self.init, self.terms, self.C = init, terms, C

    def emit(self) -> None:
        """Emit all of the code."""
        b, zero = self.b, self.number(0)
        some = b.and_(b.icmp_signed(">", self.N, zero), b.icmp_signed(">", self.V, zero))
        one = b.icmp_signed("==", self.N, self.number(1))
        with b.if_then(some), b.if_else(one) as (single, several):
            with single:
                self.one_row()
            with several:
                self.many_rows()

    def number(self, n: int) -> Any:
        """An LLVM constant."""
        return ir.Constant(self.N.type, n)

    def loop(self, count: Any, body: Callable[[Any], None], turn: bool = False) -> None:
        """``for i in range(count): body(i)``; with ``turn``, in reverse order if ``down`` is not 0."""
        b = self.b
        reverse = b.icmp_signed("!=", self.down, self.number(0))

        def step(i: Any, _: list[Any]) -> list[Any]:
            body(b.select(reverse, b.sub(b.sub(count, self.number(1)), i), i) if turn else i)
            return []

        self.e.loop(count, [], step)

    def tile(self, rows: int, columns: int, n: Any, v: Any) -> None:
        """``rows`` rows from n by ``columns`` vectors from v, in registers over all terms."""
        e, zero = self.e, self.number(0)
        init, C = self.init.at(e, n, v), self.C.at(e, n, v)
        sums = [e.load(init.place(e, i, j), zero) for i in range(rows) for j in range(columns)]
        for term in self.terms:
            moved = term._replace(A=term.A.at(e, n, zero), P=term.P.at(e, zero, v))
            sums = moved.add(e, rows, columns, sums)
        for i, x in enumerate(sums):
            e.store(x, C.place(e, *divmod(i, columns)), zero)

    def many_rows(self) -> None:
        """Take as many rows as each kind of tile can, then use the next kind."""
        b, done = self.b, self.number(0)
        for kind in TILES[:-1]:
            count = b.sdiv(b.sub(self.N, done), self.number(kind.rows))
            with b.if_then(b.icmp_signed(">", count, self.number(0))):
                self.all_columns(kind, (kind.rows,), done, count)
            done = b.add(done, b.mul(count, self.number(kind.rows)))
        left = b.sub(self.N, done)
        with b.if_then(b.icmp_signed(">", left, self.number(0))):
            self.all_columns(TILES[-1], (4, 2, 1), done, b.ashr(left, self.number(2)))

    def all_columns(self, kind: Tile, heights: tuple[int, ...], n: Any, count: Any) -> None:
        """Wide tiles for ``count`` times the first height, from row n on, and narrower tiles for the rest."""
        b, V, number = self.b, self.V, self.number
        wide = b.sdiv(V, number(kind.columns))
        if kind.columns == 3:
            # 3 + 1 vectors are better taken as 2 + 2: a single one has too few sums to hide the latency of each
            one_left = b.icmp_signed("==", b.sub(V, b.mul(wide, number(3))), number(1))
            spare = b.and_(one_left, b.icmp_signed(">", wide, number(0)))
            wide = b.sub(wide, b.zext(spare, wide.type))

        def rows(columns: int, v: Any) -> None:
            self.all_rows(heights, columns, n, count, v)

        self.loop(wide, lambda q: rows(kind.columns, b.mul(q, number(kind.columns))), turn=True)
        done = b.mul(wide, number(kind.columns))
        pairs = b.ashr(b.sub(V, done), number(1))
        self.loop(pairs, lambda q: rows(2, b.add(done, b.shl(q, number(1)))))
        last = b.add(done, b.shl(pairs, number(1)))
        with b.if_then(b.icmp_signed("<", last, V)):
            rows(1, last)

    def all_rows(self, heights: tuple[int, ...], columns: int, n: Any, count: Any, v: Any) -> None:
        """``count`` tiles of the first height; if there are more heights, lower tiles for the rest of N."""
        b, number = self.b, self.number
        first, *rest = heights
        self.loop(count, lambda q: self.tile(first, columns, b.add(n, b.mul(q, number(first))), v))
        end = b.add(n, b.mul(count, number(first)))
        for height in rest:
            some = b.icmp_signed(">=", b.sub(self.N, end), number(height))
            with b.if_then(some):
                self.tile(height, columns, end, v)
            end = b.add(end, b.select(some, number(height), number(0)))

    def one_row(self) -> None:
        """As few passes over the vectors as possible, each of about the same number of vectors."""
        b, number = self.b, self.number
        K = functools.reduce(b.add, [term.K for term in self.terms])
        near = b.icmp_signed("<=", b.mul(K, self.V), number(NEAR))
        most = b.select(near, number(SINGLE), number(STREAMS))
        passes = b.sdiv(b.sub(b.add(self.V, most), number(1)), most)
        least, longer = b.sdiv(self.V, passes), b.srem(self.V, passes)

        def some(i: Any) -> None:
            more = b.icmp_signed("<", i, longer)
            v = b.add(b.mul(i, least), b.select(more, i, longer))
            end = b.append_basic_block("end")
            choice = b.switch(b.add(least, b.zext(more, self.V.type)), end)
            for columns in range(1, SINGLE + 1):
                case = b.append_basic_block("columns")
                choice.add_case(number(columns), case)
                b.position_at_end(case)
                self.tile(1, columns, number(0), v)
                b.branch(end)
            b.position_at_end(end)

        self.loop(passes, some, turn=True)
