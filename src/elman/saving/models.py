"""A model as plain values that say how to make it, and the model made from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .. import cells as own_cells
from ..cells import Cell
from ..errors import ArgumentError, DTypeError, ElmanError, StateDictError
from ..files import quoted, shown
from ..layers import GRU, LSTM, MGU, MLP, RNN, Network, Readout, Recurrent
from ..layers.parameters import Array, Parameterised, at_most
from ..layers.rebuildable import base_of, options_of, own_of, rebuild
from ..validation.words import kind, model_cure
from .values import decode, encode

CLASSES: dict[str, Any] = {each.__name__: each for each in (RNN, LSTM, GRU, MGU, Recurrent, Readout, MLP, Network)}
"""Classes that a file may name."""
SMALL = 1 << 16
"""Parameters up to which a model is made before it is compared with its file: the error then names what differs."""


def describe(net: Parameterised, tensors: dict[str, Array] | None = None) -> dict[str, Any]:
    """Class and options of a model as plain values, ready for JSON; without its parameters.

    Parameters
    ----------
    net : RNN, LSTM, GRU, MGU, Readout, MLP, Network, or of a class made of one of these
        The model.
    tensors : dict, optional
        Receives the arrays among the attributes of a user's class.

    Returns
    -------
    dict
        ``"class"``, ``"options"``, which may hold other models; for a user's class also ``"base"`` and ``"own"``.

    Raises
    ------
    DTypeError
        If it is no model, or of a user's class with attributes that are no plain values.
    """
    if not isinstance(net, Parameterised):
        raise DTypeError(f"net must be a layer, readout or network of elman, got {kind(net)}{model_cure(net)}")
    made, base = type(net), base_of(type(net))
    options = {name: _option(value, tensors) for name, value in options_of(net).items()}
    described: dict[str, Any] = {"class": made.__name__, "options": options}
    if made is not base:
        described["base"] = base.__name__
    if own := own_of(net):
        arrays: dict[str, Array] = {} if tensors is None else tensors
        described["own"] = encode(own, f"the attributes of {made.__name__} that its class adds", arrays)
    return described


def _option(value: Any, tensors: dict[str, Array] | None) -> Any:
    """A value of an option for JSON."""
    if isinstance(value, Parameterised):
        return describe(value, tensors)
    if isinstance(value, Cell):
        names = [name for name in own_cells.__all__ if getattr(own_cells, name) is value]
        return {"elman cell": names[0]} if names else {"cell": value.name}
    return list(value) if isinstance(value, tuple) else value


def build(
    description: Mapping[str, Any], cells: Collection[Any] = (), *, tensors: Mapping[str, Array] | None = None,
    most: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Make the model that :func:`describe` described; its parameters are zero, or wait to be loaded.

    Parameters
    ----------
    description : mapping
        What :func:`describe` gave.
    cells : collection of Cell or class
        What the description names and elman does not have.
    tensors : mapping, optional
        The arrays that :func:`describe` put there.
    most : mapping of str to ndarray, optional
        Parameters that the model will get: one that would be larger is refused before its memory is taken.

    Returns
    -------
    RNN, LSTM, GRU, MGU, Readout, MLP or Network, or of a class of ``cells``

    Raises
    ------
    StateDictError
        If it describes no model, or one of a class that is neither elman's nor among ``cells``.
    """
    try:
        with at_most(None if most is None else max(SMALL, sum(array.size for array in most.values()))):
            return _build(description, cells, tensors or {}, _bounds(most))
    except StateDictError:
        raise
    except (ElmanError, ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as error:
        raise StateDictError(f"the description is of no model of elman: {shown(error, 300)}") from error


def _bounds(most: Mapping[str, Array] | None) -> dict[str, int] | None:
    """What sizes can be at the most: each is the length of an axis, and each layer has an array of its own."""
    if most is None:
        return None
    return {"num_layers": len(most), "": max([0, *(n for array in most.values() for n in array.shape)])}


def _build(
    description: Any, cells: Collection[Any], tensors: Mapping[str, Array], bounds: dict[str, int] | None
) -> Any:
    """:func:`build`, whose errors may be of any class."""
    if not isinstance(description, Mapping) or not isinstance(description.get("options"), Mapping):
        raise StateDictError("the description of a model must have a class and options")
    made = _class(description, cells)
    options: dict[str, Any] = {}
    for name, value in description["options"].items():
        if isinstance(value, Mapping):
            value = _cell(value, cells) if "class" not in value else _build(value, cells, tensors, bounds)
        elif bounds is not None and type(value) is int and value > bounds.get(name, bounds[""]):
            raise StateDictError(f"{shown(name)} = {value} does not fit the shapes of the parameters")
        options[name] = value
    model: Any = object.__new__(made)
    rebuild(model, options)
    own = decode(description.get("own", {}), tensors)
    if not isinstance(own, dict) or set(own) & set(model.__dict__):
        raise StateDictError(f"the description adds attributes to {made.__name__} that it has")
    model.__dict__.update(own, _built=True)
    return model


def _class(description: Mapping[str, Any], cells: Collection[Any]) -> type[Parameterised]:
    """The class that a description names: elman's, or one that was given."""
    name, base = description.get("class"), description.get("base")
    if base is None:
        if not isinstance(name, str) or name not in CLASSES:
            raise StateDictError(f"a model of the class {quoted(name)}, which this version of elman does not have")
        found: type[Parameterised] = CLASSES[name]
        return found
    for each in cells:
        if isinstance(each, type) and each.__name__ == name and issubclass(each, Parameterised):
            if base_of(each).__name__ != base:
                raise StateDictError(
                    f"{quoted(name)} was made of {quoted(base)} when it was saved; the one in cells is made of "
                    f"{base_of(each).__name__}"
                )
            return each
    raise StateDictError(
        f"a model of your own class {quoted(name)}, which elman cannot make without it: "
        f"give it, elman.load(path, cells=[{shown(name)}])"
    )


def _cell(said: Mapping[str, Any], cells: Collection[Any]) -> Cell:
    """The record of a cell: elman's, one that was given, or that of a class that was given."""
    own = said.get("elman cell")
    if own in own_cells.__all__ and isinstance(found := getattr(own_cells, own), Cell):
        return found
    name = said.get("cell")
    for each in cells:
        if isinstance(each, Cell) and each.name == name:
            return each
    raise StateDictError(
        f"a layer of the cell {quoted(own or name)}, which elman does not have: give its record beside the classes, "
        "elman.load(path, cells=[YOUR_CELL])"
    )


def check_cells(cells: Any) -> tuple[Any, ...]:
    """The argument ``cells``, or a refusal.

    Raises
    ------
    DTypeError
        If it is no collection of classes and records.
    ArgumentError
        If two of them have one name.
    """
    if not isinstance(cells, Collection) or isinstance(cells, str | Mapping):
        raise DTypeError(f"cells must be a list of classes and records of cells, such as [MyLayer], got {kind(cells)}")
    for each in cells:
        if not isinstance(each, type | Cell):
            raise DTypeError(f"cells must be classes and records of cells, got {kind(each)} among them")
    names = [each.__name__ if isinstance(each, type) else f"cell {each.name}" for each in cells]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ArgumentError(f"cells must have different names, got two of {', '.join(twice)}")
    return tuple(cells)
