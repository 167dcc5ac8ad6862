"""What names and shapes of weights do not tell, such as the nonlinearity: written beside them, and read back."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, StateDictError
from ..files import quoted, shown
from ..layers import GRU, LSTM, MGU, MLP, RNN, Network, Readout
from ..layers.parameters import Parameterised

Array = NDArray[Any]
KEY = "elman"
CLASSES: dict[str, Any] = {kind.__name__: kind for kind in (RNN, LSTM, GRU, MGU, Readout, MLP, Network)}
OPTIONS = ("nonlinearity", "reset_after", "zoneout", "at")
"""Options that decide what weights mean, and that neither their names nor their shapes tell."""


class StatedWeights(dict[str, Array]):
    """Weights by name, and what their file states about them.

    Attributes
    ----------
    stated : dict of str to str
        For each part of a model, by its prefix (``""`` for the whole), its class and options, such as
        ``"RNN(nonlinearity='relu')"``; empty for files of others.
    """

    def __init__(self, weights: Mapping[str, Array], stated: Mapping[str, str]) -> None:
        super().__init__(weights)
        self.stated = dict(stated)


def kinds(model: Parameterised) -> dict[str, str]:
    """Class and telling options of each part of a model, by its prefix."""
    if isinstance(model, Network):
        return {"": f"Network(at={model.at!r})", "layer.": _kind(model.layer), "readout.": _kind(model.readout)}
    if not isinstance(model, Parameterised):
        raise DTypeError(f"model must be a layer, a readout or a network of elman, got {type(model).__name__}")
    return {"": _kind(model)}


def _kind(model: Parameterised) -> str:
    """Class and the options that decide what the weights mean."""
    names = ["nonlinearity", "reset_after"] + ["zoneout"] * any(getattr(model, "zoneout", ()))
    options = [f"{name}={getattr(model, name)!r}" for name in names if hasattr(model, name)]
    return f"{type(model).__name__}({', '.join(options)})"


def stated_under(source: Any, prefix: str) -> dict[str, str]:
    """What a source states about the parts below a prefix; empty where it states nothing."""
    stated: dict[str, str] = getattr(source, "stated", {})
    return {name.removeprefix(prefix): kind for name, kind in stated.items() if name.startswith(prefix)}


def parsed(text: str) -> tuple[Any, dict[str, Any]]:
    """Class and options out of the text that :func:`kinds` makes.

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
    """Class and options that a file states, with those given by the caller, which must not contradict.

    Raises
    ------
    ArgumentError
        If a given option differs from what is stated, or is one that the class does not have.
    """
    kind, options = parsed(text)
    # what is not written is at its neutral value: the file was written by elman, which leaves nothing else out
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
    """Whether two values of an option mean the same; one number of zoneout holds for every state."""
    if isinstance(one, str | bool) or isinstance(other, str | bool):
        return bool(type(one) is type(other) and one == other)
    try:
        one, other = np.broadcast_arrays(np.asarray(one, float), np.asarray(other, float))
    except (TypeError, ValueError):
        return False
    return bool((one == other).all())
