"""A model out of its options and parameters: what copies, pickles, files and other dtypes are made of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import cells
from .._version import __version__
from ..errors import ArgumentError, StateDictError
from ..validation.scalars import real_dtype
from .fixed import Fixed

if TYPE_CHECKING:
    from .parameters import Parameters

Model = TypeVar("Model", bound="Rebuildable")
FORMAT = 1
"""Of what a pickle holds; raised when an older elman would misread it."""
BLANK = {"weight_ih_init": "zeros", "weight_hh_init": "zeros", "bias_init": "zeros", "weight_init": "zeros", "rng": 0}
"""How to make a model whose weights are written afterwards."""


class Rebuildable(Fixed):
    """A model that is what its options and its parameters say, so that nothing else has to be written down.

    Its options are the arguments of its constructor that are kept as attributes of the same name; those that only draw
    the first weights are none. Attributes that a subclass of a user adds travel with it.
    """

    parameters: Parameters

    def __copy__(self) -> Self:
        """Another one with the same parameters."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        options = {name: _reference(value) for name, value in options_of(self).items()}
        whole = any(isinstance(value, Rebuildable) for value in options.values())
        theta = None if whole else self.parameters.theta.copy()
        return {"format": FORMAT, "elman": __version__, "options": options, "theta": theta, "own": own_of(self)}

    def __setstate__(self, state: Any) -> None:
        """Build it anew.

        Raises
        ------
        StateDictError
            If it was written by a version of elman that keeps other things.
        """
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            written = state.get("elman", "an earlier version") if isinstance(state, Mapping) else "an earlier version"
            raise StateDictError(
                f"this {type(self).__name__} was pickled by elman {written}, whose pickles elman {__version__} does "
                f"not read (it reads format {FORMAT}): write it with elman.save there, and read that file with "
                "elman.load here"
            )
        rebuild(self, {name: _referred(value) for name, value in state["options"].items()})
        if state["theta"] is not None:
            self.parameters.theta[:] = state["theta"]
        self.__dict__.update(state["own"], _built=True)

    def astype(self, dtype: DTypeLike) -> Self:
        """The same model with parameters of another dtype.

        Parameters
        ----------
        dtype : {"float64", "float32"}
            float32 rounds the parameters.

        Returns
        -------
        RNN, LSTM, GRU, MGU, Readout, MLP or Network
            A new one of the same class, also where the dtype stays; this one is not changed.

        Raises
        ------
        DTypeError
            For any other dtype.
        ArgumentError
            If a parameter is finite and its rounding is not.
        """
        kind = real_dtype(dtype)
        twin = blank(self, kind)
        with np.errstate(over="ignore"):
            theta: NDArray[Any] = self.parameters.theta.astype(kind)
        if np.isfinite(theta).all() < np.isfinite(self.parameters.theta).all():
            raise ArgumentError(
                f"the parameters of this {type(self).__name__} must be within the range of {kind}, got "
                f"{np.abs(self.parameters.theta).max():.3g}: keep {self.parameters.theta.dtype}"
            )
        twin.parameters.theta[:] = theta
        twin.__dict__.update(own_of(self))
        return twin


def base_of(kind: type) -> type:
    """The class of elman whose constructor makes such a model: itself, or that of which a user's class is made."""
    return next(each for each in kind.__mro__ if each.__module__.startswith(f"{__package__}."))


@cache
def _arguments(base: type) -> tuple[str, ...]:
    """Names of the arguments of a class's constructor."""
    return tuple(signature(base).parameters)


def options_of(model: Rebuildable) -> dict[str, Any]:
    """Keywords with which the constructor of :func:`base_of` makes such a model again, but for its parameters."""
    kind = type(model)
    names = [n for n in _arguments(base_of(kind)) if n in model.__dict__ or hasattr(kind, n)]
    found = {n: getattr(model, n) for n in names}
    return {n: value.name if isinstance(value, np.dtype) else value for n, value in found.items()}


def rebuild(model: Rebuildable, options: Mapping[str, Any]) -> None:
    """Run the constructor on what ``object.__new__`` made, without drawing weights that are written afterwards."""
    base: Any = base_of(type(model))
    first = {name: value for name, value in BLANK.items() if name in _arguments(base)}
    base.__init__(model, **options, **first)


def blank(model: Model, dtype: np.dtype[Any]) -> Model:
    """A model of this class and these options in a dtype; its parameters and further attributes are to be written."""
    options = {n: blank(v, dtype) if isinstance(v, Rebuildable) else v for n, v in options_of(model).items()}
    if "dtype" in options:
        options["dtype"] = dtype
    twin = object.__new__(type(model))
    rebuild(twin, options)
    twin.__dict__["_built"] = True
    return twin


_made: dict[type, frozenset[str]] = {}
"""Names that the constructor of a class sets, by class."""


def own_of(model: Rebuildable) -> dict[str, Any]:
    """Attributes that no constructor of elman set, such as those of a user's class."""
    base = base_of(type(model))
    if base not in _made:
        _made[base] = frozenset(blank(model, model.parameters.theta.dtype).__dict__)
    return {name: value for name, value in model.__dict__.items() if name not in _made[base]}


def _reference(value: Any) -> Any:
    """A cell of the package by its name; anything else as it is."""
    names = [name for name in cells.__all__ if getattr(cells, name) is value]
    return _CellOfElman(names[0]) if names else value


def _referred(value: Any) -> Any:
    return getattr(cells, value) if isinstance(value, _CellOfElman) else value


class _CellOfElman(str):
    """The name of a record in :mod:`elman.cells`."""
