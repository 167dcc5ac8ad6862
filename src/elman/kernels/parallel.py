"""Slabs of work for a few threads.

A thread has the same rows of the batch for the whole sequence, so that threads synchronise once per call and not once
per step. Kernels are serial and release the GIL, so an ordinary thread pool runs them side by side; it is safe under
concurrent calls, and a forked child makes its own. Passing work to the pool costs about 50 microseconds, so small work
stays on the calling thread, and medium work uses only as many threads as are worthwhile.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from .cores import default_threads
from .host import HOST

Result = TypeVar("Result")

SPLIT_FLOPS = 6_000_000 * max(1, HOST.vector_bytes // 32)
"""Floating-point operations below which a second thread does not pay: 0.1 to 0.2 ms on one core, so twice as many if
vectors are twice as long. Each thread gets at least half of them."""

COLUMNS = 2
"""Vectors of columns of which a slab of a sum over rows has a multiple: a layer with few units then has two slabs of
about equal size, and narrower tiles at one place of each cost less than a thread without work."""

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


_threads = default_threads()


def get_num_threads() -> int:
    """Largest number of threads that one call may use.

    Returns
    -------
    int
        By default the number of cores that this process may run on, by its affinity and by the quota of processor time
        of its container; or fewer, if the environment says so when elman is imported: ``NUMBA_NUM_THREADS``, or if that
        is not set, ``OMP_NUM_THREADS``. A number given to :func:`set_num_threads` overrides all of these.
    """
    return _threads


def set_num_threads(n: int) -> None:
    """Set the largest number of threads that one call may use. No result depends on it, not even in the last bit.

    Parameters
    ----------
    n : int
        At least 1; 1 means that everything runs on the calling thread.

    Raises
    ------
    ValueError
        If n is not an integer of at least 1.
    """
    if isinstance(n, bool) or not hasattr(n, "__index__") or operator.index(n) < 1:
        raise ValueError(f"the number of threads must be an integer of at least 1, got {n!r}")
    n = operator.index(n)
    global _threads, _pool
    with _lock:
        _threads, old, _pool = n, _pool, None
    if old is not None:
        old.shutdown(wait=False)


def _executor() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, _threads - 1), thread_name_prefix="elman")
        return _pool


def _forget_pool() -> None:
    """Start anew in a forked child, which does not inherit the parent's threads and lock."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def slabs(n: int, unit: int, flops: float, costs: Any = None) -> list[tuple[int, int]]:
    """Cut ``range(n)`` into one slab for each thread, each but the last a multiple of ``unit``.

    Parameters
    ----------
    n : int
        Number of rows (or vectors of columns).
    unit : int
        Rows that a tile takes together: a slab of fewer would waste it.
    flops : float
        Floating-point operations of the whole work, if every row cost as much as the most expensive one.
    costs : array_like of int, shape (n,), optional
        The cost of each row, in any unit, if they differ: the slabs then cost about the same.

    Returns
    -------
    list of (int, int)
        Half-open ranges; empty if n is 0.
    """
    if flops < SPLIT_FLOPS:  # one piece, the most frequent case
        return [(0, n)] if n else []
    units = -(-n // unit)
    total = None
    if costs is not None and n:
        total = np.append(0, np.cumsum(costs))
        flops *= total[-1] / (n * max(1, np.max(costs)))  # flops assumes that all rows cost as much as the dearest
    count = min(_threads, units, int(2 * flops / SPLIT_FLOPS) if SPLIT_FLOPS else units)
    if count <= 1:
        return [(0, n)] if n else []
    shares = [units * i // count for i in range(count + 1)]
    if total is not None:
        at = np.searchsorted(total, total[-1] * np.arange(1, count) / count)
        shares = [0, *(int(a + unit // 2) // unit for a in at), units]
    edges = [min(n, unit * share) for share in shares]
    cut = [(a, b) for a, b in pairwise(edges) if a < b]
    if total is not None:
        dearest = max(total[b] - total[a] for a, b in cut)
        if 2 * flops * (1 - dearest / max(1, total[-1])) < SPLIT_FLOPS:  # the work that other threads could take over
            return [(0, n)]
    return cut


def run(work: Callable[[int, int], Result], ranges: list[tuple[int, int]]) -> list[Result]:
    """Call ``work(start, stop)`` for every range, the first one on the calling thread; results in order.

    An exception in any of them is raised after all have ended, so that no thread still writes to an array that the
    caller may already use for something else.
    """
    if len(ranges) == 1:
        return [work(*ranges[0])]
    if not ranges:
        return []
    futures = []
    try:
        for r in ranges[1:]:
            futures.append(_executor().submit(work, *r))
    except RuntimeError:
        # the pool was shut down meanwhile (set_num_threads, the interpreter's exit): the remaining work is done here
        pass
    taken = 1 + len(futures)
    try:
        here = [work(*r) for r in (ranges[0], *ranges[taken:])]
    finally:
        for f in futures:
            f.exception()
    return [here[0], *(f.result() for f in futures), *here[1:]]
