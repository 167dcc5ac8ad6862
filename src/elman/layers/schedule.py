"""Which row of the caller's arrays each row of a kernel is: lengths, restarts and directions come down to this.

A kernel runs rows side by side from their first step, in descending order of their lengths. A sequence that restarts at
some steps is several such rows; one that is read backwards is a row whose steps stand in the other order. So no kernel
knows of lengths, restarts or directions, padding is never read, and the cost follows the number of valid steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import rows
from .affine import Rows
from .buffers import scratch

Array = NDArray[Any]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The rows of one direction.

    Attributes
    ----------
    T, B : int
        Steps and rows of the kernel.
    lengths : ndarray of int, shape (B,)
        Steps of each row, descending.
    active : ndarray of int64, shape (T,)
        How many rows have step t.
    outer_T, outer_B : int
        Steps and sequences of the caller.
    sequence : ndarray of int, shape (B,)
        The sequence each row belongs to.
    carried : ndarray of bool, shape (B,)
        Whether the row starts from the state that the caller hands over; the others restart.
    final : ndarray of int, shape (outer_B,)
        The row that ends with the final state of each sequence.
    initial : ndarray of int, shape (outer_B,)
        The row that begins each sequence, in the order in which it is read.
    stops_at : ndarray of int, shape (outer_B,)
        Valid steps of each sequence.
    outer : ndarray of int or None
        For each valid row ``t * B + b`` of the kernel, in order, the row ``t * outer_B + b`` of the caller; None where
        the two are the same throughout.
    inner : ndarray of int or None
        The valid rows of the kernel; None where ``outer`` is.
    plain : bool
        Whether row b is the whole of sequence b, of T steps.
    first : int
        The step of the rows at which a window begins.
    """

    T: int
    B: int
    lengths: Index
    active: NDArray[np.int64]
    outer_T: int
    outer_B: int
    sequence: Index
    carried: NDArray[np.bool_]
    final: Index
    initial: Index
    stops_at: Index
    outer: Index | None
    inner: Index | None
    plain: bool = False
    first: int = 0

    def window(self, t0: int, t1: int) -> Schedule:
        """The same rows during the steps ``t0 <= t < t1``."""
        T, outer, inner = t1 - t0, self.outer, self.inner
        if T == self.T:
            return self
        if outer is not None and inner is not None:
            a, n = int(self.active[:t0].sum()), int(self.active[t0:t1].sum())
            outer, inner = outer[a : a + n], inner[a : a + n] - t0 * self.B
        lengths = np.clip(self.lengths - t0, 0, T)
        return replace(
            self, T=T, lengths=lengths, active=self.active[t0:t1], outer=outer, inner=inner, first=self.first + t0
        )

    def part(self, rows: Rows) -> Rows:
        """The caller's rows of a window, where they stand in its order; elsewhere all, for ``outer`` to choose from."""
        n = self.T * self.B
        if self.outer is not None or n == rows.n:
            return rows
        return Rows(rows.flat[self.first * self.B * rows.stride :], rows.stride, n)

    @cached_property
    def n_valid(self) -> int:
        """Number of valid steps of all rows."""
        return self.T * self.B if self.inner is None else len(self.inner)

    @cached_property
    def full(self) -> bool:
        """Whether every row has all T steps."""
        return self.n_valid == self.T * self.B

    @cached_property
    def padding(self) -> Index:
        """The rows of the caller that no step belongs to."""
        if self.n_valid == self.outer_T * self.outer_B:
            return self.final[:0]
        every = np.ones(self.outer_T * self.outer_B, bool)
        every[slice(None) if self.outer is None else self.outer] = False
        return np.flatnonzero(every)

    def gather(self, source: Rows, to: Rows, n: int) -> None:
        """Bring n numbers of each row of the caller into kernel order; padding stays. Not for equal orders."""
        rows.move(to.flat, to.stride, self.inner, source.flat, source.stride, self.outer, n)

    def scatter(self, source: Rows, to: Rows, n: int) -> None:
        """Bring n numbers of each valid row in kernel order to the caller's. Not for equal orders."""
        rows.move(to.flat, to.stride, self.outer, source.flat, source.stride, self.inner, n)

    def compact(self, source: Rows, n: int, name: str) -> Rows:
        """The valid rows in kernel order, one after the other, in scratch memory; as they are where all are valid."""
        if self.full:
            return source
        flat = scratch().take("compact_" + name, self.n_valid * n, source.flat.dtype)
        rows.move(flat, n, np.arange(self.n_valid), source.flat, source.stride, self.inner, n)
        return Rows(flat, n, self.n_valid)

    def spread(self, made: Array, out: Array) -> None:
        """Write an array (T * B, ...) in kernel order to its places in ``out`` (outer_T * outer_B, ...)."""
        if self.outer is None:
            out[...] = made
        else:
            out[self.outer] = made[self.inner]

    def caller_place(self, t: int, b: int) -> tuple[int, int]:
        """The caller's (step, sequence) of a kernel's step t of row b."""
        if self.outer is None:
            return self.first + t, b
        at = np.searchsorted(self.inner, t * self.B + b)  # type: ignore[arg-type]
        return divmod(int(self.outer[at]), self.outer_B)


@lru_cache(maxsize=16)
def dense(T: int, B: int, reverse: bool) -> Schedule:
    """B sequences of T steps each, read forwards or backwards.

    Kept between calls, since a training loop asks for the same one again and again.
    """
    outer = inner = None
    if reverse:
        outer = (np.arange(T)[::-1, None] * B + np.arange(B)).reshape(-1)
        inner = np.arange(T * B)
    own = np.arange(B)
    lengths, active = np.full(B, T), np.full(T, B, np.int64)
    return Schedule(T, B, lengths, active, T, B, own, np.ones(B, bool), own, own, lengths, outer, inner, True)


def segmented(T: int, B: int, lengths: Index | None, reset: NDArray[np.bool_] | None, reverse: bool) -> Schedule:
    """Sequences of several lengths that restart at given steps.

    Parameters
    ----------
    lengths : ndarray of int, shape (B,), or None
        Valid steps of each sequence; T by default.
    reset : ndarray of bool, shape (T, B), or None
        True where a sequence starts anew before the step; what stands in the padding does not count.
    reverse : bool
        Read every piece from its last step to its first.
    """
    if reset is None and (lengths is None or (lengths == T).all()):
        return dense(T, B, reverse)
    stops_at = np.full(B, T) if lengths is None else lengths
    if reset is None:
        starts, sequence = np.zeros(B, np.intp), np.arange(B)
    else:
        begins = reset & (np.arange(T)[:, None] < stops_at)
        if T:
            begins[0] = False
        # one piece begins at step 0 of every sequence, even of an empty one, whose final state is its initial one
        sequence, starts = np.nonzero(np.concatenate([np.ones((B, 1), bool), begins[1:].T], axis=1))
    first = np.append(True, sequence[1:] != sequence[:-1])[: len(sequence)]
    last = np.append(first[1:], True)[: len(sequence)]
    stops = np.where(last, stops_at[sequence], np.append(starts[1:], 0)[: len(sequence)])
    carried = last.copy() if reverse else first.copy()
    if reset is not None and T and not reverse:
        carried &= ~reset[0, sequence] | (stops == starts)
    order = np.argsort(starts - stops, kind="stable")
    begins, ends = (last, first) if reverse else (first, last)
    initial, final = (_rows_of(sequence[order], which[order]) for which in (begins, ends))
    pieces = starts[order], stops[order], sequence[order], carried[order]
    return _rows(T, B, *pieces, initial, final, stops_at, reverse)


def _rows_of(sequence: Index, chosen: NDArray[np.bool_]) -> Index:
    """The chosen row of each sequence, of which there is one."""
    rows_of = np.empty(int(chosen.sum()), np.intp)
    rows_of[sequence[chosen]] = np.flatnonzero(chosen)
    return rows_of


def _rows(
    T: int, B: int, starts: Index, stops: Index, sequence: Index, carried: NDArray[np.bool_], initial: Index,
    final: Index, stops_at: Index, reverse: bool,
) -> Schedule:  # fmt: skip
    """The schedule of pieces that are in order of their lengths."""
    lengths = stops - starts
    longest = int(lengths.max(initial=0))
    valid = np.arange(longest)[:, None] < lengths
    step, row = np.nonzero(valid)
    at = stops[row] - 1 - step if reverse else starts[row] + step
    inner = step * len(lengths) + row
    active = valid.sum(axis=1, dtype=np.int64)
    outer = at * B + sequence[row]
    return Schedule(
        longest, len(lengths), lengths, active, T, B, sequence, carried, final, initial, stops_at, outer, inner
    )
