"""Files appear whole or not at all: written under a temporary name beside the target, then renamed.

Also checks of a path before anything is read from it or computed for it, and names from files in messages.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import ArgumentError, DTypeError, WriteError
from .validation.words import kind

LEFTOVER = 3600.0
"""Seconds after which a temporary file that nobody wrote to belongs to a run that was killed."""
LONGEST_SUFFIX = 20
"""Longer suffixes are left off the temporary name, which must fit in the 255 bytes that file systems allow."""
SHOWN = 80
"""Most characters of a name that a message shows."""


def shown(name: object, most: int = SHOWN) -> str:
    """A name from a file, made fit for a message: control characters escaped, the middle of a long name left out."""
    text = str(name)
    if len(text) > most:
        text = f"{text[: most // 2]}...{text[len(text) - most // 2 + 3 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quoted(name: object, most: int = SHOWN) -> str:
    """As :func:`shown`, in quotation marks."""
    text = shown(name, most)
    return f'"{text}"' if "'" in text else f"'{text}'"


def listed(names: Iterable[object], most: int = 12) -> str:
    """The first few names, separated by commas."""
    every = list(names)
    return ", ".join([shown(n) for n in every[:most]] + [f"and {len(every) - most} more"] * (len(every) > most))


def checked_name(path: str | os.PathLike[str]) -> str:
    """The path as text; refused if no file can have such a name.

    Raises
    ------
    DTypeError
        If it is no path at all.
    ArgumentError
        If it holds a NUL, or characters that the file system's encoding does not have.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise DTypeError(f"path must be a string or a pathlib.Path, got {kind(path)}")
    text = os.fsdecode(path)
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ArgumentError(f"path must be a name that a file can have, got {quoted(text)}: {error.reason}") from error
    if "\0" in text:
        raise ArgumentError(f"path must be a name that a file can have, got {quoted(text)}, with a NUL in it")
    return text


def check_source(path: str | os.PathLike[str]) -> int:
    """Return a file's size in bytes; refuse what is not a regular file, such as a device that never ends.

    Raises
    ------
    ArgumentError
        If it is a device, a pipe or a socket, or no file can have such a name.
    OSError
        If there is no such file, no permission to read it, or it is a folder. After this check, an OSError in a
        reader, such as that of a seek to before the start, means that the file is damaged.
    """
    name = checked_name(path)
    found = os.stat(name)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"cannot read {shown(name)}: it is a folder, and must be a file")
    if not stat.S_ISREG(found.st_mode):
        raise ArgumentError(
            f"{shown(name)} must be a regular file, got a device, pipe or socket, whose end is not known; copy what it "
            "gives into a file"
        )
    with open(name, "rb"):
        return found.st_size


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written to, before the work rather than after it.

    Raises
    ------
    ArgumentError
        If no file can have such a name.
    OSError
        If the folder does not exist, or there is no permission; if the path is a folder, a block device or a socket.
    """
    name = checked_name(path)
    if _descriptor(name) is not None:
        return
    target = Path(os.path.realpath(name))
    if target.is_dir() or name.endswith(os.sep):
        raise IsADirectoryError(f"cannot write {shown(name)}: it is a folder, and must be the name of a file in one")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {shown(name)}: the folder {shown(target.parent)} does not exist")
    kind = _mode(target)
    if kind is not None and (stat.S_ISBLK(kind) or stat.S_ISSOCK(kind)):
        raise PermissionError(f"cannot write {shown(name)}: it is a block device or a socket, and must be a file")
    if kind is not None and not os.access(target, os.W_OK):
        raise PermissionError(f"cannot write {shown(name)}: no permission for the file; chmod u+w, or another name")
    if (kind is None or stat.S_ISREG(kind)) and not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {shown(name)}: no permission for the folder {shown(target.parent)}")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; on success it replaces ``path``, on an error it is removed.

    A link stays a link, and its target is written; an existing file keeps its permissions. The content is on the
    disk when this ends. Pipes and character devices, such as ``/dev/stdout``, are given the whole content at the end.

    Parameters
    ----------
    path : path-like
        The file to make or replace; its folder must exist.

    Yields
    ------
    pathlib.Path
        An empty file, with the same ending unless that is long.

    Raises
    ------
    ArgumentError, OSError
        As for :func:`check_target`.
    WriteError
        If writing fails, as on a full disk. What was there before is unchanged.
    """
    check_target(path)
    target, descriptor = Path(os.path.realpath(path)), _descriptor(path)
    mode = _mode(target)
    try:
        if descriptor is not None or (mode is not None and not stat.S_ISREG(mode)):
            with _streamed(target, descriptor) as temporary:
                yield temporary
        else:
            with _renamed(target, mode) as temporary:
                yield temporary
    except WriteError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(f"could not write {shown(os.fspath(path))}: {reason}", error.errno) from error


@contextmanager
def _renamed(target: Path, mode: int | None) -> Iterator[Path]:
    """A temporary file beside a regular one, which it replaces."""
    start = f".elman-{hashlib.blake2b(os.fsencode(target.name), digest_size=8).hexdigest()}-"
    _remove_leftovers(target.parent, start)
    suffix = target.suffix if len(os.fsencode(target.suffix)) <= LONGEST_SUFFIX else ""
    temporary = target.parent / f"{start}{secrets.token_hex(6)}{suffix}"
    # created under the umask, which cannot be read without setting it for all threads
    rights = 0o666 if mode is None else 0o600
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, rights))
    try:
        yield temporary
        if mode is not None:
            _take_over(temporary, target)
        _sync(temporary)
        os.replace(temporary, target)
        with suppress(OSError):  # some file systems cannot sync a folder
            _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _streamed(target: Path, descriptor: int | None) -> Iterator[Path]:
    """A temporary file elsewhere, which is copied into a pipe, a device or an open file."""
    with tempfile.TemporaryDirectory(prefix="elman-") as folder:
        temporary = Path(folder) / "content"
        temporary.touch()
        yield temporary
        with temporary.open("rb") as source, _sink(target, descriptor) as sink:
            shutil.copyfileobj(source, sink)


def _sink(target: Path, descriptor: int | None) -> BinaryIO:
    """The stream to copy to; an open file is written from its current position."""
    if descriptor is None:
        return target.open("wb")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return os.fdopen(os.dup(descriptor), "wb")


def _descriptor(path: str | os.PathLike[str]) -> int | None:
    """The number of the open file that a path such as ``/dev/stdout`` stands for, or None.

    Opening such a path again would truncate the file that output is redirected to, and renaming over it would lose
    that file.
    """
    place = os.path.abspath(os.fsdecode(path))
    for _ in range(40):  # as many links as Linux follows
        folder, name = os.path.split(place)
        if name.isdecimal() and re.fullmatch(rf"/dev/fd|/proc/{os.getpid()}(/task/\d+)?/fd", os.path.realpath(folder)):
            return int(name)
        if not os.path.islink(place):
            return None
        place = os.path.normpath(os.path.join(os.path.realpath(folder), os.readlink(place)))
    return None


def _mode(path: Path) -> int | None:
    """Kind and permissions; None if there is no such file."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _take_over(temporary: Path, target: Path) -> None:
    """Give a file the permissions and, as far as allowed, the owner of the one that it replaces."""
    old, new = target.stat(), temporary.stat()
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with suppress(OSError):
            os.chown(temporary, old.st_uid, old.st_gid)
    temporary.chmod(stat.S_IMODE(old.st_mode))


def _sync(path: Path) -> None:
    """Force what was written onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_leftovers(folder: Path, start: str) -> None:
    """Remove temporary files for the same target that a killed run left behind."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(start) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFTOVER:
                        os.unlink(entry.path)
