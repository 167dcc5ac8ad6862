"""Plain values and arrays as JSON beside named arrays, and back, equal bit for bit."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, StateDictError
from ..tensor_file import NAMES
from ..validation.words import kind

Array = NDArray[Any]
MARK = "$"
"""What the name of something begins with that JSON does not have."""
DEEPEST = 64
"""Values within values: far more than anybody writes, far fewer than Python can follow."""
PACKED = 16
"""From so many numbers on, a list of floats is kept as an array."""
OTHER_KINDS = "fiucmMSU"
"""Kinds of dtypes whose bytes are kept where the format lacks them: other byte orders, complex numbers, dates, text."""


def encode(value: Any, name: str, tensors: dict[str, Array], depth: int = 0) -> Any:
    """A value for JSON; the arrays in it go into ``tensors``, under new names.

    Parameters
    ----------
    value : object
        None, truth values, numbers, strings, bytes, arrays and numbers of NumPy; lists, tuples and dicts of them.
    name : str
        What a message calls it, such as ``"training['step']"``.
    tensors : dict
        Receives the arrays.
    depth : int
        Of values within values.

    Raises
    ------
    DTypeError, ArgumentError
        If it holds anything else, or itself.
    """
    if depth > DEEPEST:
        raise ArgumentError(f"{name} must have at most {DEEPEST} values within values; does it hold itself?")
    if value is None or isinstance(value, bool) or type(value) in (str, int):
        return _checked_integer(value, name) if type(value) is int else value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": struct.pack("<d", value).hex()}
    if type(value) in (complex, bytes):
        raw = struct.pack("<dd", value.real, value.imag) if type(value) is complex else value
        return {f"${type(value).__name__}": raw.hex()}
    if type(value) in (list, tuple):
        return _sequence(value, name, tensors, depth)
    if isinstance(value, dict):
        return _table(value, name, tensors, depth)
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return _array(value, name, tensors)
    if isinstance(value, np.ndarray):
        raise DTypeError(
            f"{name} must be a plain array, got {type(value).__name__}: convert it, a masked array by .filled(0.0), "
            "others by np.array(a)"
        )
    raise DTypeError(
        f"{name} must be made of None, truth values, numbers, strings and arrays, in lists, tuples and dicts; got "
        f"{kind(value)}"
    )


def _checked_integer(value: int, name: str) -> int:
    if value.bit_length() > 8192:
        raise ArgumentError(f"{name} must be an integer of at most 8192 bits, got one of {value.bit_length()}")
    return value


def _sequence(value: Any, name: str, tensors: dict[str, Array], depth: int) -> Any:
    tag = "list" if type(value) is list else "tuple"
    if len(value) >= PACKED and all(type(item) is float for item in value):
        return {f"${tag} of floats": _put(np.array(value), tensors)}
    items = [encode(item, f"{name}[{i}]", tensors, depth + 1) for i, item in enumerate(value)]
    return items if tag == "list" else {"$tuple": items}


def _table(value: Mapping[Any, Any], name: str, tensors: dict[str, Array], depth: int) -> Any:
    """A dict; one whose names JSON would not keep as they are becomes a list of pairs."""
    plain = all(type(key) is str and not key.startswith(MARK) for key in value)
    items = {key: encode(item, f"{name}[{key!r}]", tensors, depth + 1) for key, item in value.items()}
    if plain:
        return items
    keys = [encode(key, f"a key of {name}", tensors, depth + 1) for key in value]
    return {"$dict": [list(pair) for pair in zip(keys, items.values(), strict=True)]}


def _array(value: Any, name: str, tensors: dict[str, Array]) -> Any:
    tag = "$array" if isinstance(value, np.ndarray) else "$number"
    array = np.asarray(value)
    if array.dtype.newbyteorder("<") in NAMES and array.dtype.isnative:
        return {tag: _put(array, tensors)}
    if not _portable(array.dtype):
        raise DTypeError(f"{name} must be an array of numbers, truth values, times or words, got dtype {array.dtype}")
    raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    return {tag: _put(raw, tensors), "dtype": array.dtype.str, "shape": list(array.shape)}


def _portable(dtype: np.dtype[Any]) -> bool:
    """Whether the bytes of such numbers mean the same on every machine."""
    longest = {"f": 8, "c": 16}.get(dtype.kind, dtype.itemsize)
    return dtype.kind in OTHER_KINDS and 0 < dtype.itemsize <= longest


def _put(array: Array, tensors: dict[str, Array]) -> str:
    name = f"data.{len(tensors)}"
    tensors[name] = array
    return name


def decode(value: Any, tensors: Mapping[str, Array], depth: int = 0) -> Any:
    """What :func:`encode` was given.

    Raises
    ------
    StateDictError
        If it is none of what that writes, or an array that it names is not there.
    """
    if depth > DEEPEST + 1:
        raise StateDictError("values within values, deeper than any that are written")
    if isinstance(value, list):
        return [decode(item, tensors, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith(MARK)), None)
    if tag is None:
        return {key: decode(item, tensors, depth + 1) for key, item in value.items()}
    body = value[tag]
    try:
        return _special(tag, body, value, tensors, depth)
    except (ValueError, TypeError, KeyError, struct.error) as error:
        if isinstance(error, StateDictError):
            raise
        raise StateDictError(f"a value of the kind {tag!r} that no elman writes ({error})") from error


def _special(tag: str, body: Any, value: Mapping[str, Any], tensors: Mapping[str, Array], depth: int) -> Any:
    """A value that JSON does not have."""
    match tag:
        case "$tuple":
            return tuple(decode(item, tensors, depth + 1) for item in body)
        case "$dict":
            return {decode(key, tensors, depth + 1): decode(item, tensors, depth + 1) for key, item in body}
        case "$float":
            return struct.unpack("<d", bytes.fromhex(body))[0]
        case "$complex":
            return complex(*struct.unpack("<dd", bytes.fromhex(body)))
        case "$bytes":
            return bytes.fromhex(body)
        case "$list of floats" | "$tuple of floats":
            floats = tensors[body].astype(np.float64, casting="equiv").tolist()
            return floats if tag.startswith("$list") else tuple(floats)
        case "$array" | "$number":
            array = tensors[body]
            if "dtype" in value:
                array = _of_bytes(array, value["dtype"], value["shape"])
            return array if tag == "$array" else array[()]
    raise StateDictError(f"a value of the unknown kind {tag[:40]!r}")


def _of_bytes(raw: Array, dtype: Any, shape: Any) -> Array:
    """An array of a type that the format lacks."""
    found = np.dtype(str(dtype))
    if not _portable(found):
        raise StateDictError(f"an array of the dtype {str(dtype)[:40]!r}, which no elman writes")
    made: Array = np.frombuffer(raw.tobytes(), found).reshape([int(n) for n in shape]).copy()
    return made
