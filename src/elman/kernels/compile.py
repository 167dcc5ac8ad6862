"""The one decorator of every kernel.

``nogil`` lets a thread pool run kernels side by side; ``error_model="numpy"`` keeps division free of branches,
without which nothing vectorises. There is no ``fastmath``: it would let LLVM reason as if NaN and infinity never
came up, and leave to it which products and sums are rounded as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from .cache import keep
from .subnormal import Flushing

KERNEL: dict[str, Any] = {"no_cfunc_wrapper": True}
INLINE: dict[str, Any] = KERNEL | {"no_cpython_wrapper": True}
"""Ways in that nobody uses (from C; from Python for what only compiled code calls) would take a second to compile."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile at the first call for each dtype, without the GIL, and keep the machine code on disk.

    Called from Python, it counts subnormal numbers as zero: see :mod:`elman.kernels.subnormal`.
    """
    return keep(njit(nogil=True, error_model="numpy", pipeline_class=Flushing, **KERNEL)(function))


def inline(function: Callable[..., Any]) -> Any:
    """A piece of a kernel, merged into each kernel that calls it; nothing else can, so it has no way in from Python."""
    return njit(error_model="numpy", forceinline=True, **INLINE)(function)


integer = np.intp
"""Number of type intp in compiled code: a bare literal has a type of its own, which compiles a callee anew."""
