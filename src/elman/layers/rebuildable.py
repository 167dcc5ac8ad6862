"""Rebuilding a model from its options and parameters: for copies, pickles, files and other dtypes."""

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
"""Format number of pickles; increased when an older elman would misread a new one."""
BLANK = {"weight_ih_init": "zeros", "weight_hh_init": "zeros", "bias_init": "zeros", "weight_init": "zeros", "rng": 0}
"""How to make a model whose weights are written afterwards."""


class Rebuildable(Fixed):
    """A model that is fully described by its options and parameters, so that nothing else has to be stored.

    Its options are the arguments of its constructor that become attributes of the same name; arguments that only serve
    to draw the initial weights are not options. Attributes that a user's subclass adds are copied and pickled too.
    """

    parameters: Parameters

    def __copy__(self) -> Self:
        """Another model that shares the parameters."""
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
            If it was written by a version of elman with another format.
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
            A new one of the same class, even if the dtype is the same; this one is not changed.

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
    """The class of elman whose constructor makes such a model: itself, or the base of a user's class."""
    return next(each for each in kind.__mro__ if each.__module__.startswith(f"{__package__}."))


@cache
def _arguments(base: type) -> tuple[str, ...]:
    """Names of the arguments of a class's constructor."""
    return tuple(signature(base).parameters)


def options_of(model: Rebuildable) -> dict[str, Any]:
    """Keywords with which the constructor of :func:`base_of` makes such a model again, except for its parameters."""
    kind = type(model)
    names = [n for n in _arguments(base_of(kind)) if n in model.__dict__ or hasattr(kind, n)]
    found = {n: getattr(model, n) for n in names}
    return {n: value.name if isinstance(value, np.dtype) else value for n, value in found.items()}


def rebuild(model: Rebuildable, options: Mapping[str, Any]) -> None:
    """Run the constructor on the result of ``object.__new__``, without drawing weights that are overwritten later."""
    base: Any = base_of(type(model))
    first = {name: value for name, value in BLANK.items() if name in _arguments(base)}
    base.__init__(model, **options, **first)


def blank(model: Model, dtype: np.dtype[Any]) -> Model:
    """A model of the same class and options in a dtype; its parameters and other attributes are still to be set."""
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
    """The name of a cell of the package; anything else unchanged."""
    names = [name for name in cells.__all__ if getattr(cells, name) is value]
    return _CellOfElman(names[0]) if names else value


def _referred(value: Any) -> Any:
    return getattr(cells, value) if isinstance(value, _CellOfElman) else value


class _CellOfElman(str):
    """The name of a record in :mod:`elman.cells`."""
