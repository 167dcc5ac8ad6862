"""Files appear whole or not at all: written under a temporary name beside the target, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a path that nothing can be written to, before the work rather than after it.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written to.
    """
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write {os.fspath(path)}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"cannot write {os.fspath(path)}: no permission for the folder {folder}")


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
    check_folder(target)
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
