"""The safetensors format, read and written: named arrays, text about them, and nothing that runs when it is read.

A file consists of eight bytes with the length of the header, the header in JSON, and the numbers
(https://huggingface.co/docs/safetensors). Every size in the header is compared with the file's size before memory is
allocated for it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import StateDictError
from .files import check_source, quoted, replacing, shown

Array = NDArray[Any]
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "|b1",
}  # fmt: skip
"""Types of the format that NumPy can hold; for bfloat16 its bits, which are the upper half of a float32."""
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items() if name != "BF16"}
LONGEST_HEADER = 100_000_000
"""Most bytes that the format allows for a header."""
DESCRIPTION, NET = "elman.saved", "net."
"""The metadata key of the description in a file of :func:`elman.save`, and how names of parameters begin."""
MOST_AXES = 32
"""Number of axes that every version of NumPy supports."""


class Entry(NamedTuple):
    """What a header says about one array."""

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


class TensorFile(NamedTuple):
    """A file whose header has been read and checked.

    Attributes
    ----------
    path : str
    entries : dict of str to Entry
        By name, in the order in which they are stored; positions are counted from the beginning of the file.
    metadata : dict of str to str
        The text that the header holds besides.
    """

    path: str
    entries: dict[str, Entry]
    metadata: dict[str, str]

    def read(self, name: str) -> Array:
        """One array, in the machine's byte order; bfloat16 as float32, exactly.

        Raises
        ------
        StateDictError
            If NumPy has no such type, or the file has become shorter.
        """
        entry = self.entries[name]
        if entry.kind not in DTYPES:
            raise StateDictError(
                f"{shown(name)} has the type {shown(entry.kind)}, which NumPy does not have; convert it to float32 "
                "first"
            )
        array: Array = np.empty(entry.shape, DTYPES[entry.kind])
        with open(self.path, "rb") as file:
            file.seek(entry.start)
            if _fill(file, array) != entry.stop - entry.start:
                raise damaged(self.path, f"it ends within {quoted(name)}")
        if entry.kind == "BOOL" and (array.view(np.uint8) > 1).any():
            raise damaged(self.path, f"truth values of {quoted(name)} are neither 0 nor 1")
        if entry.kind == "BF16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(array.dtype.newbyteorder("="), copy=False)


def _fill(file: BinaryIO, array: Array) -> int:
    """Read the bytes of an array; return how many there were."""
    done, room = 0, array.reshape(-1).view(np.uint8).data
    while done < len(room):
        got = file.readinto(room[done:])  # type: ignore[attr-defined]
        if not got:
            break
        done += got
    return done


def damaged(path: str | os.PathLike[str], reason: object) -> StateDictError:
    """The error for a file that does not fit its header."""
    return StateDictError(f"{shown(os.fspath(path))} is not a safetensors file, or is damaged: {shown(reason, 300)}")


def open_tensors(path: str | os.PathLike[str]) -> TensorFile:
    """Read the header of a file, and check it against the file's size.

    Raises
    ------
    StateDictError
        If it is damaged, or has another format.
    ArgumentError, OSError
        As for :func:`elman.files.check_source`.
    """
    total = check_source(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if total < 10 or length > min(total - 8, LONGEST_HEADER):
            raise damaged(path, f"a header of {length} bytes does not fit a file of {total}")
        text = file.read(length)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError, MemoryError) as error:
        raise damaged(path, f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise damaged(path, "its header is not a table of names")
    metadata = header.pop("__metadata__", {})
    if not (isinstance(metadata, dict) and all(isinstance(word, str) for word in metadata.values())):
        raise damaged(path, "its metadata are not text")
    entries = {name: _entry(path, name, said, 8 + length) for name, said in header.items()}
    entries = dict(sorted(entries.items(), key=lambda each: each[1].start))
    end = 8 + length
    for name, entry in entries.items():
        if entry.start != end:
            raise damaged(path, f"{quoted(name)} begins at byte {entry.start}, where the one before ends at {end}")
        end = entry.stop
    if end != total:
        raise damaged(path, f"its arrays end at byte {end}, and the file at {total}")
    return TensorFile(os.fspath(path), entries, metadata)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, whose names must all be different."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name occurs in it twice")
    return made


def _entry(path: str | os.PathLike[str], name: str, said: Any, start: int) -> Entry:
    """What the header says about one array, if it is consistent."""
    if not isinstance(said, dict) or set(said) != {"dtype", "shape", "data_offsets"}:
        raise damaged(path, f"{quoted(name)} is not described by dtype, shape and data_offsets")
    kind, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    numbers = [shape, offsets] if isinstance(shape, list) and isinstance(offsets, list) else [None]
    whole = all(type(n) is int and 0 <= n < 2**62 for part in numbers if part is not None for n in part)
    if None in numbers or not whole or len(offsets) != 2 or len(shape) > MOST_AXES or not isinstance(kind, str):
        raise damaged(path, f"the dtype, shape or data_offsets of {quoted(name)} are not valid")
    size = offsets[1] - offsets[0]
    if size < 0 or (kind in DTYPES and size != math.prod(shape) * np.dtype(DTYPES[kind]).itemsize):
        raise damaged(path, f"{quoted(name)} of shape {tuple(shape)} and type {kind} cannot take {size} bytes")
    return Entry(kind, tuple(shape), start + offsets[0], start + offsets[1])


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write a file, whole or not at all.

    Parameters
    ----------
    path : path-like
        The file to make or replace.
    tensors : mapping of str to ndarray
        Arrays of the types in ``NAMES``, in any byte order.
    metadata : mapping of str to str
        Text for the header.

    Raises
    ------
    OSError
        If it cannot be written; WriteError on a full disk.
    """
    # wide types first, so that each array begins at a multiple of its item size
    order = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        array = tensors[name]
        start, end = end, end + array.nbytes
        kind = NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            little = tensors[name].dtype.newbyteorder("<")
            file.write(np.ascontiguousarray(tensors[name], little).reshape(-1).view(np.uint8).data)
