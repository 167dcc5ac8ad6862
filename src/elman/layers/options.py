"""Options of recurrent layers: the keywords common to all, their display in signatures and in ``repr``."""

from __future__ import annotations

from inspect import Parameter, Signature, signature
from typing import Any, TypedDict

from numpy.typing import DTypeLike

from ..initializers import Initializer


class LayerOptions(TypedDict, total=False):
    """The keywords that all recurrent layers take; their defaults are those of :class:`elman.layers.Recurrent`."""

    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    recurrent_dropout: float
    zoneout: float | tuple[float, ...]
    learn_initial_state: bool
    dtype: DTypeLike
    weight_ih_init: str | Initializer
    weight_hh_init: str | Initializer
    bias_init: str | Initializer
    rng: Any


def spelled_out(kind: type, base: type) -> Signature | None:
    """A layer's signature with ``**options`` replaced by the keywords of its base class; None if it has no options."""
    own, shared = (list(signature(each.__init__).parameters.values())[1:] for each in (kind, base))  # type: ignore[misc]
    if own[-1].kind is not Parameter.VAR_KEYWORD:
        return None
    return Signature([*own[:-1], *(each for each in shared if each.name in LayerOptions.__annotations__)])


def call_of(layer: Any) -> str:
    """The call that makes such a layer, except for its weights; options at their defaults are left out."""
    parameters = signature(type(layer)).parameters
    shown = [str(layer.input_size), str(layer.hidden_size)]
    if "cell" in parameters:  # the class is not named after its cell
        shown[:0] = [layer.cell.name, repr(layer.variant)]
    for name, parameter in parameters.items():
        if name in ("cell", "variant", "input_size", "hidden_size"):
            continue
        value, default = getattr(layer, name, parameter.default), parameter.default
        default = (0.0,) * len(layer.zoneout) if name == "zoneout" else default
        if value != default:
            shown.append(f"{name}={value.name if name == 'dtype' else value!r}")
    return f"{type(layer).__name__}({', '.join(shown)})"
