"""The parameters of a layer: one flat vector, and named views into it under PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import (
    ArgumentError,
    DTypeError,
    MissingAttributeError,
    MissingNameError,
    NonFiniteError,
    ReadOnlyError,
    ShapeError,
    StateDictError,
)
from ..files import listed
from ..validation.arrays import all_finite, finite, plain
from ..validation.words import kind
from .engine.kept import Version
from .rebuildable import Rebuildable
from .stated import StatedWeights, check_stated, stated

Array = NDArray[Any]
ELSEWHERE = {
    "forward": "call the model, output, hn = net(x)",
    **dict.fromkeys(("train", "eval"), "calling it evaluates, and trace(x, training=True, rng=rng) draws dropout"),
    **dict.fromkeys(("fit", "compile"), "elman.fit(net, x, y, loss=..., optimizer=...) trains it"),
    **dict.fromkeys(("named_parameters", "get_weights", "weights"), "params has the arrays by name, theta all numbers"),
    **dict.fromkeys(("set_weights", "load_weights"), "load_state_dict(mapping of names to arrays) sets them"),
    **dict.fromkeys(("to", "float", "double"), 'astype("float32") makes it anew in another dtype'),
    **dict.fromkeys(("cuda", "cpu"), "elman runs on the processor"),
    "zero_grad": "backward(trace, d_output) returns gradients, and none are kept",
    "save": "elman.save(path, net) writes it into one file",
    "load": "elman.load(path).net makes it from a file",
    "summary": "print(net) shows its options, params the shapes",
    **dict.fromkeys(("children", "modules"), "a network has layer and readout"),
}
"""Attributes of models in other frameworks that ours do not have, and what to do instead."""
_most: ContextVar[int | None] = ContextVar("most", default=None)


@contextmanager
def at_most(n: int | None) -> Iterator[None]:
    """Within the context, refuse to make more than n parameters at a time, for sizes that come from a file.

    They are refused before memory is allocated. None removes the bound.
    """
    token = _most.set(n)
    try:
        yield
    finally:
        _most.reset(token)


def missing_name(name: Any, names: Iterable[str]) -> MissingNameError:
    """The error for a name that no parameter has; it lists the existing names and the nearest of them."""
    there = list(names)
    near = get_close_matches(str(name), there, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return MissingNameError(f"no parameter is called {name!r}: there are {listed(there, 20)}{meant}")


class Slices(Mapping[str, Array]):
    """Named views into one vector, each made when it is read.

    Parameters
    ----------
    theta : ndarray
        The vector.
    slices : mapping of str to (slice, tuple of int)
        Where each array lies in the vector, and its shape.

    Attributes
    ----------
    theta, slices
        As given.
    """

    def __init__(self, theta: Array, slices: Mapping[str, tuple[slice, tuple[int, ...]]]) -> None:
        self.theta, self.slices = theta, slices

    def __getitem__(self, name: str) -> Array:
        try:
            place, shape = self.slices[name]
        except KeyError:
            raise missing_name(name, self.slices) from None
        return self.theta[place].reshape(shape)

    def __contains__(self, name: object) -> bool:
        return name in self.slices

    def __iter__(self) -> Iterator[str]:
        return iter(self.slices)

    def __len__(self) -> int:
        return len(self.slices)

    def __repr__(self) -> str:
        return repr(dict(self))


class Parameters(Mapping[str, Array]):
    """Mapping from names to arrays that are views into one vector ``theta``.

    Parameters
    ----------
    shapes : mapping of str to tuple of int
        Names and shapes, in the order in which they lie in ``theta``.
    dtype : numpy.dtype
        float32 or float64.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype[Any]) -> None:
        self.shapes = dict(shapes)
        self._lay_out()
        most = _most.get()
        if most is not None and self.size > most:
            raise ShapeError(f"the sizes must be those of the {most} parameters that there are, got {self.size}")
        self.owner: object = self
        self.prefix = ""
        self._bind(np.zeros(self.size, dtype))

    def _lay_out(self) -> None:
        """Place the parameters one after the other."""
        ends = np.cumsum([math.prod(s) for s in self.shapes.values()]).tolist()
        self.size: int = ends[-1] if ends else 0
        places = zip(map(slice, [0, *ends], ends), self.shapes.values(), strict=False)
        self.slices = dict(zip(self.shapes, places, strict=True))

    def _bind(self, theta: Array) -> None:
        self.theta = theta
        self._views = dict(self.view(theta))
        self._version: Version | None = None

    def view(self, vector: Array) -> Slices:
        """Named views into another vector of the same layout, such as a gradient."""
        return Slices(vector, self.slices)

    def move(self, theta: Array, owner: object, prefix: str) -> None:
        """Continue in another vector, into which the present values are copied: how a network joins its parts.

        ``prefix`` is what precedes the names there.
        """
        theta[:] = self.theta
        self._bind(theta)
        self.owner, self.prefix = owner, prefix

    def load(self, mapping: Mapping[str, ArrayLike]) -> None:
        """Copy values in: every name exactly once, every shape and number exact; on any error nothing is changed.

        Raises
        ------
        StateDictError, ShapeError, DTypeError, ArgumentError
            For missing or unknown names, numbers that the dtype cannot hold exactly, wrong shapes, values that are not
            real numbers or not finite.
        """
        if not isinstance(mapping, Mapping):
            raise DTypeError(
                f"the weights must be a mapping of names to arrays, as state_dict() is; got {kind(mapping)}"
            )
        missing = [n for n in self.shapes if n not in mapping]
        unknown = [n for n in mapping if n not in self.shapes]
        if missing or unknown:
            parts = [f"missing {', '.join(missing)}"] * bool(missing) + [
                f"unknown {', '.join(map(str, unknown))}"
            ] * bool(unknown)
            raise StateDictError(
                f"the weights must have exactly the names {', '.join(self.shapes)}; {'; '.join(parts)}. "
                "Was the layer made with the same num_layers, bidirectional and bias?"
            )
        new = np.empty_like(self.theta)
        for name, view in self.view(new).items():
            value = plain(mapping[name], name)
            if value.dtype.kind != "f":
                raise DTypeError(f"{name} must hold real floating-point numbers, got dtype {value.dtype}")
            if value.shape != view.shape:
                cure = (
                    "; it seems transposed: PyTorch's layout is (output, input)" if value.T.shape == view.shape else ""
                )
                raise ShapeError(f"{name} must have shape {view.shape}, got {value.shape}{cure}")
            with np.errstate(over="ignore"):
                view[...] = value
            finite(view, name)
            self._exact(name, value, view)
        self.theta[:] = new

    @staticmethod
    def _exact(name: str, value: Array, view: Array) -> None:
        """Refuse numbers that were rounded when they were copied in."""
        if np.can_cast(value.dtype, view.dtype):
            return
        rounded = np.argwhere(value != view)
        if len(rounded):
            at = tuple(int(i) for i in rounded[0])
            raise StateDictError(
                f"{name} must hold numbers that {view.dtype} holds exactly, got {value[at]!r} at index {at}, which "
                f"would become {view[at]!r} ({len(rounded)} such numbers in all). Weights are loaded exactly or not at "
                f'all: make the layer with dtype="{value.dtype}", or round them yourself first, '
                f'{{name: np.asarray(w, "{view.dtype}") for name, w in weights.items()}}'
            )

    def version(self) -> Version:
        """The present bits; the same object as long as they do not change.

        Raises
        ------
        NonFiniteError
            With the first parameter that holds a NaN or an infinity.
        """
        version = self._version
        if version is None or not version.same(self.theta):
            self.check_finite()
            self._version = version = Version.of(self.theta)
        return version

    def check_finite(self) -> None:
        """Refuse NaN and infinity, which need not show in an output: tanh of an infinite sum is 1.

        Raises
        ------
        NonFiniteError
            With the first parameter that holds one.
        """
        if all_finite(self.theta):
            return
        for name, view in self._views.items():
            bad = np.argwhere(~np.isfinite(view))
            if len(bad):
                at = tuple(int(i) for i in bad[0])
                raise NonFiniteError(
                    f"{self.prefix}{name} holds numbers that are not finite, such as {view[at]} at index {at} "
                    f"({len(bad)} in all): load finite weights",
                    what="parameter",
                )

    def check_version(self, version: Version) -> None:
        """Refuse to continue with what was computed from other weights.

        Raises
        ------
        ArgumentError
            With the first parameter that differs.
        """
        if version.same(self.theta):
            return
        if version.size != self.size:
            raise ArgumentError(
                f"trace must be of this layer, which has {self.size} parameters; it was made with {version.size}"
            )
        index = version.first_change(self.theta)
        name = self.prefix + next(name for name, (place, _) in self.slices.items() if index < place.stop)
        raise ArgumentError(
            f"trace must be of this layer with its weights as they are now, but {name} is not what it was when the "
            "trace was made: either it has been changed since, or the trace is of another layer. Its states belong to "
            "the old weights; call trace() again before backward()"
        )

    def copy(self) -> dict[str, Array]:
        """A dict of names and arrays, independent of this object."""
        return {name: view.copy() for name, view in self._views.items()}

    def __getitem__(self, name: str) -> Array:
        """The view called ``name``.

        Raises
        ------
        MissingNameError
            If there is no such parameter.
        """
        try:
            return self._views[name]
        except KeyError:
            raise missing_name(name, self._views) from None

    def __setitem__(self, name: str, value: Any) -> None:
        """Refuse: the parameters lie in one vector, which has no place for another array.

        Raises
        ------
        ReadOnlyError, MissingNameError
            The message says how to write into the vector.
        """
        view = self[name]
        raise ReadOnlyError(
            f"params[{name!r}] is a view into the one vector of all parameters and cannot be replaced: write into it, "
            f"params[{name!r}][...] = values of shape {view.shape}; or load_state_dict for all of them"
        )

    def __delitem__(self, name: str) -> None:
        """Refuse: which parameters there are follows from the options."""
        raise ReadOnlyError(f"params[{name!r}] cannot be deleted: build a model without it, such as with bias=False")

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse: ``parameters``, a method in PyTorch, is a mapping here.

        Raises
        ------
        DTypeError
            The message says what to write instead.
        """
        raise DTypeError(
            "parameters is a mapping of names to arrays, and not a method: for the arrays net.params.values(), for "
            "names and arrays net.params.items(), for all numbers as one vector net.theta; elman.fit trains all of "
            "them, and an optimizer is not told of them"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._views

    def get(self, name: str, default: Any = None) -> Any:
        """The view called ``name``, or the default."""
        return self._views.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{n} {s}' for n, s in self.shapes.items())})"

    def __getstate__(self) -> dict[str, Any]:
        return {"shapes": self.shapes, "theta": self.theta.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.shapes = state["shapes"]
        self._lay_out()
        self.owner, self.prefix = self, ""
        self._bind(state["theta"])


def rounded(weights: Mapping[str, Array], dtype: np.dtype[Any]) -> dict[str, Array]:
    """Weights in another dtype, for conversions to a narrower one that the user requested: loading never rounds."""
    with np.errstate(over="ignore"):  # numbers that become infinite are refused when they are loaded
        return {name: value.astype(dtype) if value.dtype.kind == "f" else value for name, value in weights.items()}


class Parameterised(Rebuildable):
    """Base of everything with parameters: ``params``, ``theta``, ``state_dict``, ``load_state_dict``.

    Its options are fixed: see :class:`elman.layers.fixed.Fixed`. :func:`copy.copy` makes another object that shares the
    parameters; :func:`copy.deepcopy` and pickle make one with parameters of its own.
    """

    parameters: Parameters

    if not TYPE_CHECKING:  # a type checker would take any attribute for one of these

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse an unknown name; if a parameter or another framework has it, say what to do."""
            kind = type(self).__name__
            start = f"{kind!r} object has no attribute {name!r}"
            if name[:2] != "__" and name in self.__dict__.get("parameters", ()):
                raise MissingAttributeError(f"{start}: the parameters are in params, params[{name!r}]")
            if name in ELSEWHERE:
                raise MissingAttributeError(f"{start}: {ELSEWHERE[name]}")
            raise AttributeError(start, name=name, obj=self)

    @property
    def params(self) -> Mapping[str, Array]:
        """Names and live views: editing one in place changes the next call. Joining a network moves them."""
        return self.parameters

    @property
    def theta(self) -> Array:
        """All parameters as one flat vector, live."""
        return self.parameters.theta

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.theta.dtype

    def state_dict(self) -> StatedWeights:
        """Copies of the parameters under PyTorch's names: a dict whose attribute ``stated`` tells of which model."""
        return StatedWeights(self.parameters.copy(), stated(self))

    def load_state_dict(self, mapping: Mapping[str, ArrayLike]) -> None:
        """Set all parameters from arrays under PyTorch's names, exactly or not at all.

        Parameters
        ----------
        mapping : mapping of str to array_like
            The names of ``params``, each once. ``dtype`` must hold all numbers exactly: to load float64 weights into
            float32, round them first, ``{name: w.astype("float32") for name, w in weights.items()}``. The result of
            ``state_dict()`` states its model, and is refused by a model that would compute other things with the same
            weights, such as relu instead of tanh, or ``reset_after=False`` instead of True. ``dict(weights)`` is not.

        Raises
        ------
        StateDictError, ShapeError, DTypeError, ArgumentError
            For missing or unknown names, numbers that would be rounded, wrong shapes, values that are not real numbers
            or not finite; for weights of a model that computes other things. Nothing has then been changed.
        """
        check_stated(self, mapping)
        self.parameters.load(mapping)
