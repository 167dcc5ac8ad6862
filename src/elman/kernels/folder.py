"""The folder in which machine code is kept: nobody else's, one for each version of all that made the code.

What lies there is unpickled and run, so whoever can write to it can run code as this user. numba's own cache looks at
the file of a kernel but not at the files it calls into, so the folder is named by a hash of all the kernels' sources:
an edit anywhere finds an empty folder, never a stale kernel.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import llvmlite
import numba
from numba import config

from .host import HOST

PACKAGE = Path(__file__).parents[1]

UNUSED_SECONDS = 120 * 24 * 3600.0
"""A folder that no process has used for four months is removed when a new one is made."""

VERSIONS = f"cp{sys.version_info.major}{sys.version_info.minor}-numba{numba.__version__}-llvmlite{llvmlite.__version__}"
"""Pickles and machine code of one of these are nothing to another."""


def source_hash() -> str:
    """Hash of every source that reaches compiled code, and of the vectors and the tile that it is compiled for.

    Without sources, of the byte code that there is in their place, or of the archive that holds it.
    """
    # the length of vectors is numba's business only where it follows from the processor
    digest = hashlib.sha256(str(HOST).encode())
    for folder in ("kernels", "cells"):
        sources = sorted((PACKAGE / folder).glob("*.py")) or sorted((PACKAGE / folder).glob("*.pyc"))
        for source in sources or [_archive()]:
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _archive() -> Path:
    """The file that the package is imported from."""
    return next(part for part in PACKAGE.parents if part.is_file())


def folder_name() -> str:
    """Name of the folder for this version of everything."""
    return f"{VERSIONS}-{source_hash()}"


OURS = re.compile(r"(cp\d+-numba[^-]+-llvmlite[^-]+-)?[0-9a-f]{16}")
"""Names of folders of any version, and of those of versions before this form."""


def roots() -> Iterator[Path]:
    """Places to try: numba's own setting, the user's cache, the temporary folder. Any of them may be missing."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    given = os.environ.get("XDG_CACHE_HOME", "")
    # its specification says to ignore a relative one
    if os.path.isabs(given):
        yield Path(given, "elman")
    else:
        with suppress(RuntimeError):
            # a home that is only named must not be made
            yield from (home / ".cache" / "elman" for home in [Path.home()] if home.is_dir())
    with suppress(FileNotFoundError):
        # the place is shared by all users: a name of one's own keeps them apart where nobody means harm
        yield Path(tempfile.gettempdir(), f"elman-{os.getuid()}" if hasattr(os, "getuid") else "elman")


def why_not_ours(folder: Path) -> str | None:
    """Why somebody else may have put something into a folder, or None. The folder itself is looked at, not its target.

    Where there are no owners (Windows) the user's profile keeps others out.
    """
    if not hasattr(os, "getuid"):
        return None
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder of its own"
    if found.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {found.st_uid}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):o}): chmod go-w makes it safe"
    return None


def cache_folder() -> str | None:
    """First folder that is ours and can be written to, or None: then every process compiles anew.

    A folder that somebody else could write to is passed over with one warning.
    """
    name = folder_name()
    for root in roots():
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = root / name
            new = not folder.exists()
            folder.mkdir(mode=0o700, exist_ok=True)
            unsafe = next((f"{path}: {why}" for path in (root, folder) if (why := why_not_ours(path))), None)
            if unsafe is not None:
                warnings.warn(f"compiled code is not kept in {unsafe}", RuntimeWarning, stacklevel=2)
                continue
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)
        except OSError:
            continue
        if new:
            remove(root, time.time() - UNUSED_SECONDS)
        return str(folder)
    return None


def remove(root: Path, before: float) -> list[Path]:
    """Remove the folders of machine code in ``root`` that were last used before a time in seconds; return them."""
    removed = []
    with suppress(OSError):
        for folder in sorted(root.iterdir()):
            with suppress(OSError):
                if OURS.fullmatch(folder.name) and not folder.is_symlink() and folder.stat().st_mtime < before:
                    shutil.rmtree(folder)
                    removed.append(folder)
    return removed


def clear() -> list[Path]:
    """Remove all machine code that any version has kept in the places of this user; return the folders."""
    removed = []
    for root in roots():
        with suppress(OSError):
            if why_not_ours(root) is None:
                removed += remove(root, float("inf"))
    return removed


CACHE_FOLDER = cache_folder()
