"""Which parameters are trained, by patterns of their names."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError
from ..validation.words import kind
from .model import Model

Array = NDArray[Any]


def frozen_names(model: Model, train: Any) -> frozenset[str]:
    """The parameters that no pattern matches.

    Parameters
    ----------
    train : str, sequence of str, or None
        Patterns of :mod:`fnmatch`, such as ``"readout.*"``; None trains all.

    Raises
    ------
    DTypeError, ArgumentError
        If they are not strings, or one matches nothing.
    """
    if train is None:
        return frozenset()
    patterns: list[Any] = [train] if isinstance(train, str) else [*train] if isinstance(train, Iterable) else [None]
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise DTypeError(f'train must be patterns of parameter names, such as ("readout.*",), got {kind(train)}')
    names = list(model.params)
    for pattern in patterns or [""]:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ArgumentError(
                f"train must match names of parameters, and {pattern!r} matches none: they are {', '.join(names)}"
            )
    return frozenset(name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns))


def places(model: Model, names: frozenset[str]) -> tuple[slice, ...]:
    """Where parameters lie in ``theta``, neighbours joined; found by their place in memory."""
    theta, spans = model.theta, []
    for name in names:
        view = model.params[name]
        start = (view.__array_interface__["data"][0] - theta.__array_interface__["data"][0]) // theta.itemsize
        spans.append((start, start + view.size))
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(span for span in spans if span[1] > span[0]):
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(slice(*span) for span in joined)


def backward_options(model: Any, frozen: frozenset[str]) -> dict[str, Any]:
    """What a model's ``backward`` need not compute, where the model declares that it can leave it out."""
    trained = set(model.params) - frozen
    if frozen and takes_backward(model, "readout_only") and all(name.startswith("readout.") for name in trained):
        return {"readout_only": True}
    return {}


def takes_backward(model: Any, option: str) -> bool:
    """Whether a model declares that its ``backward`` takes a keyword."""
    return option in getattr(model, "backward_options", ())
