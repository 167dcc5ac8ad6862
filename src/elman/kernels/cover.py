"""The register-tiled product as LLVM code: tiles over any number of rows and vectors. See :mod:`elman.kernels.tile`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from .host import HOST
from .vector import Emitter, declare

COLUMNS, SINGLE = HOST.columns, HOST.single


class Grid(NamedTuple):
    """Where something lies in memory: a pointer, and strides by row and by vector."""

    start: Any
    row: Any
    vector: Any

    def at(self, e: Emitter, row: Any, vector: Any) -> Grid:
        """The same from another row and vector on."""
        b = e.builder
        offset = b.add(b.mul(row, self.row), b.mul(vector, self.vector))
        return self._replace(start=b.gep(self.start, [offset]))

    def place(self, e: Emitter, row: int, vector: int) -> Any:
        """Pointer to one vector."""
        zero = ir.Constant(self.row.type, 0)
        return e.builder.gep(self.start, [e.at(e.at(zero, self.row, row), self.vector, vector)])


class Term(NamedTuple):
    """One product of a sum: rows of A, vectors of P, and how far apart their K terms are."""

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
            scalars = [_broadcast(e, b.load(b.gep(p, [ka]))) for p in a_rows]
            return [
                b.call(fma, [a, v, acc[i * columns + j]]) for i, a in enumerate(scalars) for j, v in enumerate(vectors)
            ]

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
        Where to write.
    down : LLVM integer
        Not 0 to begin with the last vectors.
    N, V : LLVM integer
        Rows and vectors; nothing is done if either is 0.
    init, C : Grid
        Where the sums start and end.
    terms : list of Term
        The products, in the order in which they are added up.
    """

    def __init__(self, e: Emitter, down: Any, N: Any, V: Any, init: Grid, terms: list[Term], C: Grid) -> None:
        self.e, self.b, self.down, self.N, self.V = e, e.builder, down, N, V
        self.init, self.terms, self.C = init, terms, C

    def emit(self) -> None:
        """Write it all."""
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
        """``for i in range(count): body(i)``; if ``turn``, in the other order where ``down`` says so."""
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

    def all_rows(self, columns: int, v: Any) -> None:
        """Four rows at a time, then two, then one."""
        b, N = self.b, self.N
        self.loop(b.ashr(N, self.number(2)), lambda q: self.tile(4, columns, b.shl(q, self.number(2)), v))
        with b.if_then(b.trunc(b.ashr(N, self.number(1)), ir.IntType(1))):
            self.tile(2, columns, b.and_(N, self.number(-4)), v)
        with b.if_then(b.trunc(N, ir.IntType(1))):
            self.tile(1, columns, b.and_(N, self.number(-2)), v)

    def many_rows(self) -> None:
        """Wide tiles, and what is left in narrower ones."""
        b, V, number = self.b, self.V, self.number
        wide = b.sdiv(V, number(COLUMNS))
        if COLUMNS == 3:
            # 3 + 1 vectors are better taken as 2 + 2: one alone has too few sums to hide the latency of each
            one_left = b.icmp_signed("==", b.sub(V, b.mul(wide, number(3))), number(1))
            spare = b.and_(one_left, b.icmp_signed(">", wide, number(0)))
            wide = b.sub(wide, b.zext(spare, wide.type))
        self.loop(wide, lambda q: self.all_rows(COLUMNS, b.mul(q, number(COLUMNS))), turn=True)
        done = b.mul(wide, number(COLUMNS))
        pairs = b.ashr(b.sub(V, done), number(1))
        self.loop(pairs, lambda q: self.all_rows(2, b.add(done, b.shl(q, number(1)))))
        last = b.add(done, b.shl(pairs, number(1)))
        with b.if_then(b.icmp_signed("<", last, V)):
            self.all_rows(1, last)

    def one_row(self) -> None:
        """As few passes over the vectors as can be, of about as many vectors each."""
        b, number = self.b, self.number
        passes = b.sdiv(b.add(self.V, number(SINGLE - 1)), number(SINGLE))
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
