"""Descriptions of what a caller gave, for the end of a message."""

from __future__ import annotations

from collections.abc import Mapping, Set
from reprlib import repr as shortened
from typing import Any

import numpy as np

FRAMEWORKS = ("torch", "keras", "tensorflow", "tf_keras", "flax", "onnx")
"""Packages whose classes have the same names as ours."""


def kind(value: Any) -> str:
    """A description of a value, to follow "..., got"."""
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
    root = package(value)
    return f"{root}'s {name}" if root in FRAMEWORKS else name


def model_cure(value: Any) -> str:
    """What to do with something that is not a model of ours, for the end of a message; empty if nothing is known."""
    if isinstance(value, type):
        return f": make one first, {value.__name__}(...)"
    root = package(value)
    if root == "torch":
        return ": convert its recurrent layer first, elman.interop.from_torch(module)"
    if root in ("keras", "tensorflow", "tf_keras"):
        return ": convert its recurrent layer first, elman.interop.from_keras(layer)"
    return ""


def package(value: Any) -> str:
    """The top-level package that defines the class of a value."""
    return type(value).__module__.partition(".")[0]
