"""The one decorator of every kernel, and where compiled code is kept.

``nogil`` lets a thread pool run kernels side by side; ``error_model="numpy"`` keeps division free of branches,
without which nothing vectorises. There is no ``fastmath``: it would let LLVM reason as if NaN and infinity never
came up, and leave to it which products and sums are rounded as one.

numba's cache looks at the file of a kernel but not at the files it calls into. So the cache folder is named by a hash
of all the kernels' sources: an edit anywhere finds an empty folder, never a stale kernel.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, njit

from .host import HOST

PACKAGE = Path(__file__).parents[1]


def source_hash() -> str:
    """Hash of every source that reaches compiled code, and of the vectors and the tile that it is compiled for."""
    # the length of vectors is numba's business only where it follows from the processor
    digest = hashlib.sha256(str(HOST).encode())
    for folder in ("kernels", "cells"):
        for source in sorted((PACKAGE / folder).glob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _roots() -> Iterator[Path]:
    """Places to try: numba's own setting, the user's cache, the temporary folder. Any of them may be missing."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    if os.environ.get("XDG_CACHE_HOME"):
        yield Path(os.environ["XDG_CACHE_HOME"], "elman")
    else:
        with suppress(RuntimeError):
            # a home that is only named must not be made
            yield from (home / ".cache" / "elman" for home in [Path.home()] if home.is_dir())
    with suppress(FileNotFoundError):
        # the folder is shared by all users: a name of one's own keeps others' machine code out
        yield Path(tempfile.gettempdir(), f"elman-{os.getuid()}" if hasattr(os, "getuid") else "elman")


def cache_folder() -> str | None:
    """First folder that can be written to, or None: then every process compiles anew."""
    for root in _roots():
        folder = root / source_hash()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return str(folder)
    return None


CACHE_FOLDER = cache_folder()


KERNEL: dict[str, Any] = {"no_cfunc_wrapper": True}
INLINE: dict[str, Any] = KERNEL | {"no_cpython_wrapper": True}
"""Ways in that nobody uses (from C; from Python for what only compiled code calls) would take a second to compile."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile at the first call for each dtype, without the GIL, and keep the machine code on disk."""
    before, config.CACHE_DIR = config.CACHE_DIR, CACHE_FOLDER or ""
    try:
        return njit(nogil=True, error_model="numpy", cache=CACHE_FOLDER is not None, **KERNEL)(function)
    finally:
        config.CACHE_DIR = before


def inline(function: Callable[..., Any]) -> Any:
    """A piece of a kernel, merged into each kernel that calls it; nothing else can, so it has no way in from Python."""
    return njit(error_model="numpy", forceinline=True, **INLINE)(function)


integer = np.intp
"""Number of type intp in compiled code: a bare literal has a type of its own, which compiles a callee anew."""
