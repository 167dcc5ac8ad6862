"""NumPy's own files, ``.npy`` and ``.npz``: every size is checked against the file's before memory is allocated for it.

Formats: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html and ZIP's appnote 6.3, 4.3.12.
"""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ElmanError, StateDictError
from ..files import check_source, quoted, shown

Array = NDArray[Any]
MOST_INFLATED = 100
"""Deflate can expand 1 byte to 1000; weights, even with many zeros, do not come near this."""
ALWAYS = 64 * 2**20
"""Bytes that any file may take: a small one may be all zeros."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What np.savez and np.savez_compressed write."""
ENCRYPTED = 1
"""Bit of the flags of a ZIP entry."""


def read_npy(path: str) -> Array:
    """The array of an ``.npy`` file.

    Raises
    ------
    StateDictError
        If it is another kind of file, is damaged, or holds anything but plain numbers and text.
    ArgumentError, OSError
        If it cannot be read, see :func:`elman.files.check_source`.
    """
    size = check_source(path)
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                raise StateDictError(f"{shown(path)} holds several arrays; the input must be one, as np.save writes it")
            file.seek(0)
            return _array(file, size)
    except ElmanError:
        raise
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        raise StateDictError(
            f"{shown(path)} is not an .npy file of plain numbers, as np.save writes it: {_said(error)}"
        ) from error


def read_npz(path: str) -> dict[str, Array]:
    """The arrays of an ``.npz`` file by name.

    Raises
    ------
    StateDictError, ArgumentError, OSError
        As for :func:`read_npy`; also if entries are encrypted, or would take far more memory than the file.
    """
    size = check_source(path)
    try:
        with zipfile.ZipFile(path) as archive:
            check_inflated(archive, size)
            arrays = {}
            for entry in archive.infolist():
                with archive.open(entry) as file:
                    arrays[entry.filename.removesuffix(".npy")] = _array(file, entry.file_size)
                    file.read(1)  # at the end the checksum is compared
            return arrays
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        raise StateDictError(
            f"{shown(path)} is not an .npz of plain arrays, as np.savez writes it: {_said(error)}"
        ) from error


def check_inflated(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse an archive by its directory, before anything is unpacked; no entry yields more than the directory states.

    Raises
    ------
    StateDictError
        If an entry is encrypted or packed in another way, or all entries together are far larger than the file.
    """
    for entry in archive.infolist():
        if entry.flag_bits & ENCRYPTED or entry.compress_type not in METHODS:
            how = "encrypted" if entry.flag_bits & ENCRYPTED else f"packed by method {entry.compress_type}"
            raise StateDictError(f"its entry {quoted(entry.filename)} must be stored or deflated, and is {how}")
    total = sum(entry.file_size for entry in archive.infolist())
    if total > ALWAYS + MOST_INFLATED * size:
        raise StateDictError(
            f"its {size} bytes would take {total} unpacked, more than {MOST_INFLATED} times as many; if that is meant, "
            "write it again by np.savez, which does not pack"
        )


def _array(file: IO[bytes], size: int) -> Array:
    """One array from a stream of ``size`` bytes."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        # the headers of versions 2 and 3 differ only in their character encoding; NumPy reads no others
        if version not in ((2, 0), (3, 0)):
            raise ValueError(f"version {version} of the format is not known")
        shape, by_column, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject:
        raise ValueError("Object arrays are pickles, which could run code")
    if dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"its shape {shown(shape)} or type {shown(dtype)} is that of no array")
    n, left = math.prod(shape) * dtype.itemsize, size - file.tell()
    if n != left:
        raise ValueError(f"shape {shown(shape)} of {shown(dtype)} takes {n} bytes, and the file has {left}")
    data = bytearray(n)
    view, at = memoryview(data), 0
    while at < n:
        got = file.readinto(view[at:])  # type: ignore[attr-defined]
        if not got:
            raise ValueError(f"it ends after {at} of {n} bytes")
        at += got
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_column else "C")


def _said(error: Exception) -> str:
    """The message of an error, in one line; some have none."""
    return shown(f"{error}" or type(error).__name__, 300)
