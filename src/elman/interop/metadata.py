"""What names and shapes of weights do not tell, such as the nonlinearity: written with them, and read back."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, StateDictError
from ..files import quoted, shown
from ..layers import GRU, LSTM, MGU, MLP, RNN, Network, Readout
from ..layers.parameters import Parameterised
from ..layers.stated import OPTIONS, StatedWeights, stated, worded

__all__ = ["CLASSES", "KEY", "OPTIONS", "StatedWeights", "kinds", "merged", "parsed", "stated_by", "stated_under"]

KEY = "elman"
CLASSES: dict[str, Any] = {kind.__name__: kind for kind in (RNN, LSTM, GRU, MGU, Readout, MLP, Network)}


def kinds(model: Parameterised) -> dict[str, str]:
    """Class and decisive options of each part of a model, by its prefix."""
    if not isinstance(model, Parameterised):
        raise DTypeError(f"model must be a layer, a readout or a network of elman, got {type(model).__name__}")
    return stated(model)


def stated_by(text: str) -> dict[str, str]:
    """What the description in a file of :func:`elman.save` states, in the form of :func:`kinds`.

    Raises
    ------
    StateDictError
        If it is damaged.
    """
    try:
        return dict(_kinds_of(json.loads(text)["net"], ""))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as error:
        raise StateDictError(f"the description of elman.save in it is damaged ({shown(error, 200)})") from error


def _kinds_of(said: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Each part of a described model, by its prefix."""
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in said["options"].items()}
    yield prefix, worded(str(said["class"]), options)
    for name, value in options.items():
        if isinstance(value, dict) and "options" in value:
            yield from _kinds_of(value, f"{prefix}{name}.")


def stated_under(source: Any, prefix: str) -> dict[str, str]:
    """What a source states about the parts below a prefix; empty if it states nothing."""
    stated: dict[str, str] = getattr(source, "stated", {})
    return {name.removeprefix(prefix): kind for name, kind in stated.items() if name.startswith(prefix)}


def parsed(text: str) -> tuple[Any, dict[str, Any]]:
    """Class and options from the text that :func:`kinds` makes.

    Raises
    ------
    StateDictError
        If this version of elman has no such class or option, or the text is damaged.
    """
    try:
        call = ast.parse(text, mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.args:
            raise ValueError("not a class with options")
        options = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        kind = CLASSES[call.func.id]
        if unknown := set(options) - set(OPTIONS):
            raise ValueError(f"unknown {', '.join(sorted(unknown))}")
    except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise StateDictError(
            f"the file's metadata state {quoted(text)}, which must be one of {', '.join(CLASSES)} with options among "
            f"{', '.join(OPTIONS)}: they are damaged, or of a later version of elman ({shown(error, 200)})"
        ) from error
    return kind, options


def merged(text: str, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Class and options that a file states, with those given by the caller, which must not contradict it.

    Raises
    ------
    ArgumentError
        If a given option differs from what is stated, or the class does not have it.
    """
    kind, options = parsed(text)
    # an option that is not written has its neutral value: elman, which wrote the file, leaves out no others
    told = ({"zoneout": 0.0} if kind in (RNN, LSTM, GRU, MGU) else {}) | options
    for name in OPTIONS:
        if name not in given:
            continue
        if name not in told:
            raise ArgumentError(f"{name} = {given[name]!r} must not be given: the file states {text}, without it")
        if not _same(given[name], told[name]):
            raise ArgumentError(
                f"{name} = {given[name]!r} contradicts the file, which states {text}; leave it out, or load the "
                "arrays alone as dict(load_safetensors(path)) if the file is wrong"
            )
    return kind, {**given, **options}


def _same(one: Any, other: Any) -> bool:
    """Whether two values of an option mean the same; a single number for zoneout holds for every state."""
    if isinstance(one, str | bool) or isinstance(other, str | bool):
        return bool(type(one) is type(other) and one == other)
    try:
        one, other = np.broadcast_arrays(np.asarray(one, float), np.asarray(other, float))
    except (TypeError, ValueError):
        return False
    return bool((one == other).all())
