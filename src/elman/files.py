"""Files appear whole or not at all: written under a temporary name beside the target, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; on success it takes the place of ``path``, on an error it is removed.

    Parameters
    ----------
    path : path-like
        The file to make or replace; its folder must exist.

    Yields
    ------
    pathlib.Path
        An empty file in the same folder with the same ending.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written to.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
