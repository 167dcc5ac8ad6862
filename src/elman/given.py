"""What a caller gave, in words, and the two things that every part of the package takes: arrays and random sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from reprlib import repr as shortened
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError, DTypeError, ShapeError

NUMBERS = "fiubc"
"""Kinds of dtypes that hold numbers; which of them an argument takes is for others to say."""

FRAMEWORKS = ("torch", "keras", "tensorflow", "tf_keras", "flax", "onnx")
"""Packages whose classes are called like ours."""


def kind(value: Any) -> str:
    """What something is, for the end of "..., got"."""
    name = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    if isinstance(value, np.ndarray):
        return f"ndarray of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, list | tuple | Set | Mapping) and not value:
        return f"an empty {name}"
    if isinstance(value, Mapping):
        return f"a {name} with the keys {', '.join(map(shortened, list(value)[:3]))}{', ...' * (len(value) > 3)}"
    if isinstance(value, list | tuple | Set):
        return f"a {name} of {len(value)}"
    if isinstance(value, str | bytes | bool | int | float | complex):
        return f"{shortened(value)} ({name})"
    root = _package(value)
    return f"{root}'s {name}" if root in FRAMEWORKS else name


def model_cure(value: Any) -> str:
    """What to do with something that is no model of ours, for the end of a message; empty if nothing is known."""
    if isinstance(value, type):
        return f": make one first, {value.__name__}(...)"
    root = _package(value)
    if root == "torch":
        return ": convert its recurrent layer first, elman.interop.from_torch(module)"
    if root in ("keras", "tensorflow", "tf_keras"):
        return ": convert its recurrent layer first, elman.interop.from_keras(layer)"
    return ""


def array(value: Any, name: str) -> NDArray[Any]:
    """What was given as an array of numbers, without a copy where it is one.

    Raises
    ------
    DTypeError
        For what holds no numbers, or numbers that NumPy does not know.
    ShapeError
        For a list of rows of unequal length.
    """
    must = f"{name} must be an array of real numbers"
    if value is None or isinstance(value, type):
        cure = "give one, or leave out an argument that may be" if value is None else f"make one, {value.__name__}(...)"
        raise DTypeError(f"{must}, got {kind(value)}: {cure}")
    if isinstance(value, Iterator | Set):
        raise DTypeError(
            f"{must}, got {kind(value)}, which NumPy does not read: collect its items first, list({name}) for a list "
            f"of sequences, np.array(list({name})) for one array"
        )
    if isinstance(value, Mapping):
        raise DTypeError(f"{must}, got {kind(value)}: give one of its arrays")
    if "bfloat16" in str(getattr(value, "dtype", "")):
        way = f'{name}.astype("float32")'
        if _package(value) == "torch":
            way = f"NumPy cannot read it, but {name}.float()"
        raise DTypeError(f"{must}, float16, float32 or float64; got bfloat16: {way} holds the same numbers")
    if getattr(value, "requires_grad", False) is True:
        raise DTypeError(
            f"{name} must be an array of numbers, and NumPy cannot read it as one: it is a tensor whose gradients its "
            "framework follows. Give "
            f"{name}.detach(); for weights, module.state_dict() in the place of dict(module.named_parameters())"
        )
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{must}, all rows of one length: {error}") from error
    except (TypeError, RuntimeError) as error:
        raise DTypeError(f"{must}, and NumPy cannot read it as one: {error}") from error
    # words in rows have a shape to speak of first
    if given.dtype.kind in NUMBERS or not given.size or (given.dtype.kind in "SU" and given.ndim):
        return given
    raise DTypeError(f"{must}, got {_objects(value, given, name)}")


def _objects(value: Any, given: NDArray[Any], name: str) -> str:
    """What an array without numbers is, and what to do."""
    if given.dtype.kind != "O":
        return f"{kind(value)}: convert it, {name}.astype(float)" if given.ndim else kind(value)
    if not given.ndim:
        return kind(value)
    items = given.reshape(-1)
    if any(np.ndim(item) for item in items if hasattr(item, "__len__") and not isinstance(item, str | bytes | Mapping)):
        return f"an object array of {items.size} sequences: give them as a list, list({name})"
    odd = next((item for item in items if not isinstance(item, int | float | np.number)), items[0])
    return f"objects of shape {given.shape}, such as {kind(odd)}: convert them to numbers, {name}.astype(float)"


def generator(rng: Any, name: str = "rng") -> np.random.Generator:
    """A source of random numbers.

    Parameters
    ----------
    rng : None, int or numpy.random.Generator
        None draws a seed from the system; an integer is one. What else :func:`numpy.random.default_rng` takes will do:
        a sequence of integers, a seed sequence, a bit generator.

    Raises
    ------
    DTypeError, ArgumentError
        For anything else, or a negative seed.
    """
    must = f"{name} must be None, an integer of at least 0 as a seed, or a numpy.random.Generator"
    if isinstance(rng, bool | np.bool_):
        raise DTypeError(f"{must}, got {rng!r}")
    try:
        return np.random.default_rng(rng)
    except TypeError as error:
        raise DTypeError(f"{must}, such as numpy.random.default_rng(0); got {kind(rng)}") from error
    except ValueError as error:
        raise ArgumentError(f"{must}, got {shortened(rng)}") from error


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]
