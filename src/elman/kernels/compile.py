"""The one decorator of every kernel.

``nogil`` lets a thread pool run kernels side by side; ``error_model="numpy"`` keeps division free of branches,
without which nothing vectorises. There is no ``fastmath``: it would let LLVM reason as if NaN and infinity never
came up, and leave to it which products and sums are rounded as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from .cache import keep
from .subnormal import Flushing

KERNEL: dict[str, Any] = {"no_cfunc_wrapper": True}
INLINE: dict[str, Any] = KERNEL | {"no_cpython_wrapper": True}
"""Ways in that nobody uses (from C; from Python for what only compiled code calls) would take a second to compile."""


def kernel(function: Callable[..., Any], source: Callable[..., Any] | None = None) -> Any:
    """Compile at the first call for each dtype, without the GIL, and keep the machine code on disk.

    Called from Python, it counts subnormal numbers as zero: see :mod:`elman.kernels.subnormal`.

    Parameters
    ----------
    function : callable
        Plain Python that numba can compile.
    source : callable, optional
        A function whose file and name the machine code is kept under, where ``function`` is a closure around it: the
        closures of one text would be taken for each other.
    """
    return keep(njit(nogil=True, error_model="numpy", pipeline_class=Flushing, **KERNEL)(function), source)


def inline(function: Callable[..., Any]) -> Any:
    """A piece of a kernel, merged into each kernel that calls it; nothing else can, so it has no way in from Python.

    Merged before types are known: numba makes machine code of every function that it compiles on its own, also of one
    that LLVM is to inline, which takes a quarter of a second each.
    """
    return njit(error_model="numpy", inline="always", **INLINE)(function)
