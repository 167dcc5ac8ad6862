"""Rows moved from one order to another: for sequences of several lengths and for those that are read backwards."""

from __future__ import annotations

from .compile import kernel
from .elementwise import add_row, copy_row


@kernel
def move(to, to_rs, to_rows, a, a_rs, a_rows, n):
    """``to[to_rows[i]] = a[a_rows[i]]``, n numbers of each row.

    Parameters
    ----------
    to, a : flat array
        Written and read: rows ``to_rs`` and ``a_rs`` apart.
    to_rows, a_rows : ndarray of intp
        Row numbers, equally many.
    """
    for i in range(len(to_rows)):
        copy_row(to, to_rows[i] * to_rs, a, a_rows[i] * a_rs, n)


@kernel
def add(to, to_rs, to_rows, a, a_rs, n):
    """``to[to_rows[i]] += a[i]``, n numbers of each row; arrays as for :func:`move`."""
    for i in range(len(to_rows)):
        add_row(to, to_rows[i] * to_rs, a, i * a_rs, n)
