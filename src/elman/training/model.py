"""What training asks of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, NonFiniteError
from ..validation.arrays import all_finite
from ..validation.words import kind, model_cure

Array = NDArray[Any]


class Trace(Protocol):
    """A forward pass with what its backward pass needs."""

    @property
    def output(self) -> Array:
        """Output; the leading axes of the input, and the channels ``Q`` last."""
        ...

    @property
    def hn(self) -> Any:
        """Final state, to be handed to the next :meth:`Model.trace`; None for a model without state."""
        ...


class Gradients(Protocol):
    """What a backward pass returns."""

    @property
    def theta(self) -> Array:
        """Gradient aligned with the model's ``theta``, shape (P,). Training scales it in place when it clips."""
        ...


class Model(Protocol):
    """A network that :func:`elman.fit` can train: those of elman, or any object with these members."""

    @property
    def theta(self) -> Array:
        """All parameters, shape (P,), float32 or float64: updates write into it and the next trace uses it."""
        ...

    @property
    def params(self) -> Mapping[str, Array]:
        """Parameters by name: views into ``theta``."""
        ...

    @property
    def batch_axis(self) -> int:
        """Axis of the input that counts samples."""
        ...

    @property
    def time_axis(self) -> int | None:
        """Axis of the input that counts steps; None for a model without state, such as an MLP."""
        ...

    def trace(self, x: Array, state: Any = None) -> Trace:
        """Run forward from a state; None is the model's own initial state.

        It may take further keywords, as the networks of elman do: those that the model declares in ``trace_options``, a
        set of their names. With ``buffers``, it and :meth:`backward` are given
        one :class:`~elman.layers.engine.buffers.Buffers` for the whole training, and may return what the next call
        overwrites. With ``training`` and ``rng`` it is told whether to draw dropout and the like. With ``lengths`` and
        ``reset`` it can be trained on sequences of several lengths and on several recordings in a row. With
        ``checkpoint`` it can be told how few states to keep, which must not change the gradients.
        """
        ...

    def backward(self, trace: Any, d_output: Array) -> Gradients:
        """Backpropagate a derivative by the output; the result may be overwritten by the next call."""
        ...


def trace_options(model: Any) -> frozenset[str]:
    """The keywords that a model declares its trace to take, besides x and the state; none if it declares none."""
    return frozenset(getattr(model, "trace_options", ()))


def check_model(model: Any) -> None:
    """Refuse what cannot be trained.

    Parameters
    ----------
    model : object
        Must have the members of :class:`Model`.

    Raises
    ------
    DTypeError
        If one is missing, or ``theta`` is not one float32 or float64 vector.
    """
    if isinstance(model, type):
        raise DTypeError(f"net must be an elman.Network or have its members, got {kind(model)}{model_cure(model)}")
    members = ("theta", "params", "batch_axis", "time_axis", "trace", "backward")
    missing = [name for name in members if not hasattr(model, name)]
    if missing:
        raise DTypeError(
            f"net must be an elman.Network or have its members; {kind(model)} lacks {missing}{model_cure(model)}"
        )
    theta = model.theta
    if not isinstance(theta, np.ndarray) or theta.ndim != 1 or theta.dtype not in (np.float32, np.float64):
        raise DTypeError("net.theta must be one vector of float32 or float64 parameters")
    if not theta.flags.writeable:
        raise DTypeError("net.theta must be writable to be trained, and is read-only")


def check_finite(model: Model) -> None:
    """Refuse parameters that no training makes finite again.

    Raises
    ------
    NonFiniteError
        Naming the first that holds a NaN or an infinity.
    """
    if all_finite(model.theta):
        return
    bad = np.flatnonzero(~np.isfinite(model.theta))
    raise NonFiniteError(
        f"{parameter_at(model, int(bad[0]))} holds numbers that are not finite, such as {model.theta[bad[0]]} "
        f"({len(bad)} of all parameters): load weights that are",
        what="parameter",
    )


def parameter_at(model: Model, index: int) -> str:
    """Name of the parameter that ``theta[index]`` belongs to, found by its place in memory."""
    theta = model.theta
    for name, view in model.params.items():
        start = (view.__array_interface__["data"][0] - theta.__array_interface__["data"][0]) // theta.itemsize
        if start <= index < start + view.size:
            return name
    return f"theta[{index}]"
