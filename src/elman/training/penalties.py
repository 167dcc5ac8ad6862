"""Regularisers: penalties that training adds to the loss, with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..validation.words import kind
from .model import Model, Trace
from .selection import takes_backward

Array = NDArray[Any]


class Regularizer(Protocol):
    """What :func:`elman.fit` needs of a regulariser.

    It is asked once for each batch and window, after the forward pass and before the backward pass, and adds its
    derivatives to two arrays of zeros that other regularisers of the same training add to as well. One that acts on the
    states sets the attribute ``uses_states = True``.
    """

    def penalty_and_gradient(self, model: Any, trace: Any, d_theta: Array, d_states: Array | None) -> float:
        """Return the penalty, and add its derivatives in place.

        Parameters
        ----------
        model : elman.Network
            The network, with the parameters that the trace was made with; not to be changed.
        trace : NetworkTrace
            The forward pass of this window, read-only. ``trace.layer.states`` and ``trace.layer.gates`` have the
            states, unless ``fit`` was given a ``checkpoint``.
        d_theta : ndarray, shape (P,)
            Gradient of the parameters, aligned with ``model.theta``, of what does not go through ``d_states``; for
            views by name, ``model.parameters.view(d_theta)``.
        d_states : ndarray, shape of ``trace.layer.output``, or None
            Derivative by the recurrent layer's output h_t at every step, which the backward pass then carries back to
            the parameters beside that of the loss. None unless ``uses_states`` is set.

        Returns
        -------
        float
            The penalty, with the derivatives of which ``d_theta`` and ``d_states`` have grown. It is averaged over
            batches as the loss is.
        """
        ...


def checked_regularizers(regularizers: Any, model: Any) -> tuple[Regularizer, ...]:
    """Regularisers as a tuple.

    Raises
    ------
    DTypeError, ArgumentError
        If one has no method ``penalty_and_gradient``, or acts on states that the model does not let it reach.
    """
    given = tuple(regularizers) if isinstance(regularizers, Sequence) else (regularizers,)
    for each in given:
        if isinstance(each, type) or not callable(getattr(each, "penalty_and_gradient", None)):
            raise DTypeError(
                "regularizers must be a sequence of objects with a method penalty_and_gradient(model, trace, d_theta, "
                f"d_states), such as those of elman.regularizers; got {kind(each)}"
            )
        if getattr(each, "uses_states", False) and not takes_backward(model, "d_states"):
            raise ArgumentError(
                f"{type(each).__name__} acts on states, and backward() of {type(model).__name__} takes no d_states"
            )
    return given


class Penalties:
    """The penalties of one training, and the memory for their gradients."""

    def __init__(self, regularizers: tuple[Regularizer, ...], model: Model) -> None:
        self.regularizers, self.model = regularizers, model
        self.d_theta = np.zeros_like(model.theta)
        self._uses_states = any(getattr(each, "uses_states", False) for each in regularizers)

    def of(self, trace: Trace) -> tuple[float, dict[str, Any]]:
        """The penalty of a forward pass, with options for the backward pass; ``d_theta`` is to be added to its result.

        Raises
        ------
        ShapeError
            If the states were not kept.
        """
        self.d_theta[...] = 0
        d_states, seen = None, trace
        if self._uses_states:
            output = getattr(getattr(seen, "layer", None), "output", None)
            if output is None:
                raise ShapeError("a regulariser of states needs the states of every step: leave checkpoint out")
            d_states = np.zeros_like(output)
        penalty = sum(
            float(each.penalty_and_gradient(self.model, trace, self.d_theta, d_states)) for each in self.regularizers
        )
        return penalty, {} if d_states is None else {"d_states": d_states}
