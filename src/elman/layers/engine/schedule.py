"""The mapping from rows of a kernel to rows of the caller's arrays: lengths, restarts and directions reduce to this.

A kernel runs rows side by side from their first step, in descending order of their lengths. A sequence that restarts at
some steps becomes several such rows; one that is read backwards is a row with its steps in reverse order. So kernels
need not handle lengths, restarts or directions, padding is never read, and the cost is proportional to the number of
valid steps.
A schedule has a few numbers for each row and for each step, but none for each step of each row: it takes little memory,
and is made anew at every call, so that it cannot be stale. Only short ones for sequences of one length are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import rows
from .buffers import scratch
from .rows import Rows

Array = NDArray[Any]
Index = NDArray[np.intp]

NEVER = np.empty(0, bool)
"""The mask for no restarts."""

NOWHERE = np.empty(0, np.intp)
"""The base of an order that needs none: see :mod:`elman.kernels.rows`."""

KEPT = 1 << 14
"""Sum of steps and sequences of the largest schedule that is stored."""


@dataclass(eq=False)
class Schedule:
    """The rows of one direction; immutable.

    Attributes
    ----------
    T, B : int
        Numbers of steps and rows of the kernel.
    lengths : ndarray of int, shape (B,)
        Number of steps of each row, in descending order.
    active : ndarray of int64, shape (T,)
        How many rows have step t.
    outer_T, outer_B : int
        Numbers of steps and sequences of the caller.
    sequence : ndarray of int, shape (B,)
        The sequence to which each row belongs.
    carried : ndarray of bool, shape (B,)
        Whether the row starts from the state that the caller passes; the others restart.
    initial, final : ndarray of int, shape (outer_B,)
        The rows that begin and end each sequence, in the order in which it is read.
    stops_at : ndarray of int, shape (outer_B,)
        Number of valid steps of each sequence.
    n_valid : int
        Number of valid steps of all rows.
    base : ndarray of int, shape (B,), or None
        Step t of row p is the caller's row ``base[p] + t * step``, where row ``t * outer_B + b`` is step t of sequence
        b; None if that is row ``t * B + p`` throughout.
    step : int
        ``outer_B``, or its negative for a direction that reads backwards.
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
    initial: Index
    final: Index
    stops_at: Index
    n_valid: int
    base: Index | None
    step: int
    plain: bool = False
    first: int = 0

    def window(self, t0: int, t1: int) -> Schedule:
        """The same rows during the steps ``t0 <= t < t1``."""
        T = t1 - t0
        if T == self.T:
            return self
        lengths, active = np.clip(self.lengths - t0, 0, T), self.active[t0:t1]
        base = None if self.base is None else self.base + t0 * self.step
        return replace(
            self, T=T, lengths=lengths, active=active, n_valid=int(active.sum()), base=base, first=self.first + t0
        )

    def part(self, rows: Rows) -> Rows:
        """The caller's rows of a window, if they are in kernel order; else all rows, from which ``base`` selects."""
        n = self.T * self.B
        if self.base is not None or n == rows.n:
            return rows
        return Rows(rows.flat[self.first * self.B * rows.stride :], rows.stride, n)

    @property
    def full(self) -> bool:
        """Whether every row has all T steps."""
        return self.n_valid == self.T * self.B

    @property
    def reverse(self) -> bool:
        """Whether sequences are read from the last step to the first."""
        return self.step < 0

    @property
    def padded(self) -> bool:
        """Whether the caller has rows to which no step belongs; not for windows."""
        return self.n_valid < self.outer_T * self.outer_B

    def clear_padding(self, rows_: Array, n: int) -> None:
        """Set the caller's rows of n numbers, flat, to 0 if no step belongs to them."""
        if self.padded:
            rows.clear(rows_, n, self.stops_at)

    def gather(self, source: Rows, to: Rows, n: int) -> None:
        """Copy n numbers of each row of the caller into kernel order; padding is not changed. Not for equal orders."""
        rows.move(
            to.flat, to.stride, NOWHERE, self.B, source.flat, source.stride, self.base, self.step, self.active, n
        )  # fmt: skip

    def scatter(self, source: Rows, to: Rows, n: int, *, compact: bool = False, add: bool = False) -> None:
        """Copy n numbers of each valid row in kernel order to the caller's, or add them. Not for equal orders.

        ``compact`` is for a source that has only the valid rows.
        """
        (rows.add if add else rows.move)(
            to.flat, to.stride, self.base, self.step, source.flat, source.stride, NOWHERE, 0 if compact else self.B,
            self.active, n,
        )  # fmt: skip

    def compact(self, source: Rows, n: int, name: str) -> Rows:
        """The valid rows in kernel order, one after the other, in scratch memory; the source if all are valid."""
        if self.full or not n:
            return source
        flat = scratch().take("compact_" + name, self.n_valid * n, source.flat.dtype)
        rows.move(flat, n, NOWHERE, 0, source.flat, source.stride, NOWHERE, self.B, self.active, n)
        return Rows(flat, n, self.n_valid)

    def pairs(self) -> tuple[Index, Index]:
        """Each valid row ``t * B + p`` of the kernel, in order, and the corresponding row of the caller."""
        step, row = np.nonzero(np.arange(self.B) < self.active[:, None])
        inner = step * self.B + row
        return inner, inner if self.base is None else self.base[row] + step * self.step

    def spread(self, made: Array, out: Array) -> None:
        """Write an array (T * B, ...) in kernel order to its places in ``out`` (outer_T * outer_B, ...)."""
        if self.base is None:
            out[...] = made
        else:
            inner, outer = self.pairs()
            out[outer] = made[inner]

    def caller_place(self, t: int, b: int) -> tuple[int, int]:
        """The caller's (step, sequence) for step t of the kernel's row b."""
        if self.base is None:
            return self.first + t, b
        return divmod(int(self.base[b]) + t * self.step, self.outer_B)


def dense(T: int, B: int, reverse: bool) -> Schedule:
    """B sequences of T steps each, read forwards or backwards.

    Short ones are stored between calls, since a training loop needs the same one again and again.
    """
    return _kept_dense(T, B, reverse) if T + B <= KEPT else _dense(T, B, reverse)


def _dense(T: int, B: int, reverse: bool) -> Schedule:
    own = np.arange(B)
    lengths, active, base = np.full(B, T), np.full(T, B, np.int64), (T - 1) * B + own if reverse else None
    carried, step = np.ones(B, bool), -B if reverse else B
    return Schedule(T, B, lengths, active, T, B, own, carried, own, own, lengths, T * B, base, step, True)


_kept_dense = lru_cache(maxsize=16)(_dense)


def segmented(T: int, B: int, lengths: Index | None, reset: NDArray[np.bool_] | None, reverse: bool) -> Schedule:
    """Sequences of several lengths that restart at given steps.

    Parameters
    ----------
    lengths : ndarray of int, shape (B,), or None
        Number of valid steps of each sequence; T by default.
    reset : ndarray of bool, shape (T, B), or None
        True where a sequence restarts before the step; entries in the padding do not count.
    reverse : bool
        Read every piece from its last step to its first.
    """
    if reset is None and lengths is None:
        return dense(T, B, reverse)
    stops_at = np.full(B, T) if lengths is None else lengths
    mask = NEVER if reset is None else np.ascontiguousarray(reset).reshape(-1)
    most = B + int(np.count_nonzero(mask))
    active, carried = np.empty(T + 1, np.int64), np.empty(most, bool)
    of_rows, ends = np.empty((3, most), np.intp), np.empty((2, B), np.intp)
    n, n_valid = rows.lay_out(stops_at, mask, reverse, active, of_rows, ends, carried)
    own, sequence, base = of_rows[:, :n]
    longest = int(own[0]) if n else 0
    if reset is None and n_valid == T * B:
        return dense(T, B, reverse)
    initial, final = ends
    return Schedule(
        longest, n, own, active[1 : longest + 1], T, B, sequence, carried[:n], initial, final, stops_at, n_valid, base,
        -B if reverse else B,
    )  # fmt: skip
