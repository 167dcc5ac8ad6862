"""Moving rows from one order to another: for sequences of several lengths and for those that are read backwards.

Rows of a kernel are ordered step by step, those that have a step first. Each order says where row p of step t is:

- ``base[p] + t * step``: the caller's order, in which a row's steps lie ``step`` apart, forwards or backwards;
- ``p + t * step`` if ``base`` is empty: the kernel's own order, with room for all rows at every step;
- one after the other if ``step`` is 0 as well: without the rows that do not have the step.
"""

from __future__ import annotations

from .compile import inline, kernel
from .elementwise import add_rows, copy_rows
from .operands import rows_at


@inline
def _place(base, step, t, p, count):
    """The row in an order."""
    if len(base) > 0:
        return base[p] + t * step
    return p + t * step if step != 0 else count


@kernel
def move(to, to_rs, to_base, to_step, a, a_rs, a_base, a_step, active, n):
    """``to[row] = a[row]``, n numbers of each existing row.

    Parameters
    ----------
    to, a : flat array
        Written and read: rows ``to_rs`` and ``a_rs`` apart.
    to_base, to_step, a_base, a_step
        The order of each.
    active : ndarray of int64
        How many rows have step t.
    """
    count = 0
    for t in range(len(active)):
        for p in range(active[t]):
            at, source = _place(to_base, to_step, t, p, count), _place(a_base, a_step, t, p, count)
            copy_rows(rows_at(to, at * to_rs, 0), rows_at(a, source * a_rs, 0), 1, n)
            count += 1


@kernel
def add(to, to_rs, to_base, to_step, a, a_rs, a_base, a_step, active, n):
    """``to[row] += a[row]``, as :func:`move`."""
    count = 0
    for t in range(len(active)):
        for p in range(active[t]):
            at, source = _place(to_base, to_step, t, p, count), _place(a_base, a_step, t, p, count)
            add_rows(rows_at(to, at * to_rs, 0), rows_at(a, source * a_rs, 0), 1, n)
            count += 1


@kernel
def pick(to, a, rs, slots, B, stretch, lengths, chosen):
    """``to[i]`` is row p = ``chosen[i]`` after its last step, where steps take the ``slots`` times B rows of a in turn.

    Parameters
    ----------
    to, a : flat array
        Written and read: rows ``rs`` apart.
    stretch : int
        Number of slots that a step takes.
    lengths : ndarray of intp
        Number of steps of each row.
    chosen : ndarray of intp
        Which rows.
    """
    for i in range(len(chosen)):
        p = chosen[i]
        last = rows_at(a, (stretch * lengths[p] % slots * B + p) * rs, 0)
        copy_rows(rows_at(to, i * rs, 0), last, 1, rs)


@kernel
def clear(to, n, stops):
    """Set to 0 all rows ``t * len(stops) + b`` of n numbers with ``t >= stops[b]``."""
    B = len(stops)
    for t in range(len(to) // (n * B) if n * B > 0 else 0):
        for b in range(B):
            if t >= stops[b]:
                for i in range((t * B + b) * n, (t * B + b + 1) * n):
                    to[i] = 0


@kernel
def lay_out(stops, reset, reverse, active, rows, ends, carried):
    """Rows of sequences that stop and restart at given steps, in descending order of their lengths.

    Parameters
    ----------
    stops : ndarray of intp, shape (B,)
        Number of steps of each sequence, T at most.
    reset : flat array of bool
        Whether sequence b restarts before step t, at ``t * B + b``; empty for never.
    reverse : bool
        Whether a row reads from its last step to its first.
    active : ndarray of int64, shape (T + 1,)
        Receives how many rows have step t, at ``t + 1``.
    rows : ndarray of intp, shape (3, most)
        Receives the length of each row, its sequence, and its base. There are at most B rows and one for each reset;
        rows of the same length are in the order of their sequences, and of their starts.
    ends : ndarray of intp, shape (2, B)
        Receives the row that begins each sequence and the row that ends it, in the order in which it is read.
    carried : ndarray of bool, shape (most,)
        Receives whether the row continues from the state that the caller passes.

    Returns
    -------
    n, n_valid : int
        How many rows there are, and their number of steps together.
    """
    B, restarts, n, n_valid = len(stops), len(reset) > 0, 0, 0
    active[:] = 0
    for placing in range(2):
        for b in range(B):
            start, stop = 0, stops[b]
            # even a sequence without steps has a row, whose final state is its initial one
            for t in range(1 if restarts and stop > 0 else stop, stop + 1):
                first, last = start == 0, t == stop
                if not last and not reset[t * B + b]:
                    continue
                length = t - start
                if placing:
                    row = active[length]
                    rows[0, row], rows[1, row] = length, b
                    rows[2, row] = ((t - 1) if reverse else start) * B + b
                    begins, ends_here = (last, first) if reverse else (first, last)
                    if begins:
                        ends[0, b] = row
                    if ends_here:
                        ends[1, b] = row
                    carried[row] = last if reverse else first and not (restarts and length > 0 and reset[b])
                else:
                    n += 1
                    n_valid += length
                active[length] += 1
                start = t
        # counts by length become the place of the first row of that length, after all longer ones; once the rows are
        # placed, it is the place after all rows of at least that length, which have the step before
        if not placing:
            longer = 0
            for length in range(len(active) - 1, -1, -1):
                here, active[length] = active[length], longer
                longer += here
    return n, n_valid
