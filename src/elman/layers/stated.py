"""What names and shapes of weights do not tell, such as the nonlinearity, stored together with the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ..cells import Cell
from ..errors import StateDictError
from .rebuildable import Rebuildable, options_of

OPTIONS = ("nonlinearity", "reset_after", "zoneout", "at", "cell", "variant")
"""Options that decide what weights mean, but that neither their names nor their shapes tell."""


class StatedWeights(dict[str, NDArray[Any]]):
    """Weights by name, and what is stated about the model that they belong to.

    A dict of arrays, as returned by ``state_dict()`` and :func:`elman.interop.load_safetensors`. A model whose options
    would give other results with these weights refuses them; ``dict(weights)`` has the arrays alone.

    Attributes
    ----------
    stated : dict of str to str
        For each part of a model, by its prefix (``""`` for the whole), its class and options, such as
        ``"RNN(nonlinearity='relu')"``; empty for weights from elsewhere.
    """

    def __init__(self, weights: Mapping[str, NDArray[Any]], stated: Mapping[str, str]) -> None:
        super().__init__(weights)
        self.stated = dict(stated)


def stated(model: Rebuildable, prefix: str = "") -> dict[str, str]:
    """Class and decisive options of each part of a model, by its prefix."""
    options = options_of(model)
    words = {prefix: worded(type(model).__name__, options)}
    for name, part in options.items():
        if isinstance(part, Rebuildable):
            words |= stated(part, f"{prefix}{name}.")
    return words


def worded(kind: str, options: Mapping[str, Any]) -> str:
    """A class and those of its options that decide what its weights mean; zoneout only if there is any."""
    told = {name: options[name] for name in OPTIONS if name in options}
    if not any(told.get("zoneout", ())):
        told.pop("zoneout", None)
    if isinstance(cell := told.get("cell"), Cell):
        told["cell"] = cell.name
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in told.items())})"


def check_stated(model: Rebuildable, weights: Any) -> None:
    """Refuse weights of a model that computes something else with them than this one would.

    Parameters
    ----------
    model : RNN, LSTM, GRU, MGU, Readout, MLP or Network
        The model that is to load them.
    weights : mapping
        Its attribute ``stated`` holds what is stated about them; without one, nothing is known and nothing refused.

    Raises
    ------
    StateDictError
        With both models.
    """
    written: Mapping[str, str] = getattr(weights, "stated", {})
    if not written:
        return
    for prefix, own in stated(model).items():
        if written.get(prefix, own) != own:
            part = f"{prefix.removesuffix('.')} of the model" if prefix else "the model"
            raise StateDictError(
                f"these are the weights of {written[prefix]}, which compute other things in {own}: make {part} the "
                "same, or, if that is what you want, load the arrays alone, load_state_dict(dict(weights))"
            )
