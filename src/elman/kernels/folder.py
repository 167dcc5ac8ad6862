"""The folder in which machine code is stored: private, and one for each version of everything that made the code.

Its files are unpickled and run, so whoever can write to it can run code as this user. numba's own cache checks the file
of a kernel but not the files whose functions it calls, so the folder is named by a hash of all the kernels' sources:
after any edit the folder is a new one, and no kernel is stale.
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
"""Pickles and machine code made with one version of these cannot be used with another."""


def source_hash() -> str:
    """Hash of every source of compiled code, and of the vectors and the tile for which it is compiled.

    Without sources, the hash of the byte code in their place, or of the archive that holds it.
    """
    # numba accounts for the length of vectors only if it follows from the processor
    digest = hashlib.sha256(str(HOST).encode())
    for folder in ("kernels", "cells"):
        sources = sorted((PACKAGE / folder).glob("*.py")) or sorted((PACKAGE / folder).glob("*.pyc"))
        for source in sources or [_archive()]:
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _archive() -> Path:
    """The file from which the package is imported."""
    return next(part for part in PACKAGE.parents if part.is_file())


def folder_name() -> str:
    """Name of the folder for this version of everything."""
    return f"{VERSIONS}-{source_hash()}"


OURS = re.compile(r"(cp\d+-numba[^-]+-llvmlite[^-]+-)?[0-9a-f]{16}")
"""Patterns for names of folders of any version, including versions before the present form."""


def roots() -> Iterator[Path]:
    """Places to try: numba's own setting, the user's cache, the temporary folder. Any of them may be missing."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    given = os.environ.get("XDG_CACHE_HOME", "")
    # the specification of this variable says to ignore a relative path
    if os.path.isabs(given):
        yield Path(given, "elman")
    else:
        with suppress(RuntimeError):
            # a home that does not exist must not be made
            yield from (home / ".cache" / "elman" for home in [Path.home()] if home.is_dir())
    with suppress(FileNotFoundError):
        # the place is shared by all users: separate names avoid accidental clashes
        yield Path(tempfile.gettempdir(), f"elman-{os.getuid()}" if hasattr(os, "getuid") else "elman")


def why_not_ours(folder: Path) -> str | None:
    """Why somebody else may have written to a folder, or None. The folder itself is examined, not the target of a link.

    On systems without owners (Windows), the user's profile keeps others out.
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
    """The first folder that is ours and writable; if None, every process compiles anew.

    A folder to which somebody else could write is skipped, with one warning.
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
    """Remove all machine code that any version has stored in the places of this user; return the folders."""
    removed = []
    for root in roots():
        with suppress(OSError):
            if why_not_ours(root) is None:
                removed += remove(root, float("inf"))
    return removed


CACHE_FOLDER = cache_folder()
