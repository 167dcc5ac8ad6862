"""One direction of a bidirectional layer as a separate system, in the order in which it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..states import State
from ..validation.sequences import is_list
from .engine.chain import Levers, cut_paths, levers_of, log_norms, turn
from .engine.linearize import LayerLinearization
from .loss_gradient import output_start
from .trace import final_output

if TYPE_CHECKING:
    from .network import Network
    from .recurrent import Recurrent

Array = NDArray[Any]


class OneWay:
    """One direction of one layer, along the inputs that it receives within the model.

    A direction carries its own state from one step of its reading to the next, independently of the other direction, so
    it is a chain like that of any layer. Sequences are given in the order in which it reads: for a backward direction,
    the last step in time comes first. The weights are the model's current ones. Above the first layer, its input comes
    from both directions below, which read whole sequences; its own chain does not include their part.

    Parameters
    ----------
    model : Recurrent or Network
        The whole, bidirectional.
    index : int
        Number of the direction, counted through all layers, forward before backward.

    Attributes
    ----------
    model
        As given; :meth:`change` acts on it.
    name : str
        ``"l0"``, ``"l0_reverse"``, ``"l1"``, ...
    reverse, top : bool
        Whether it reads backwards; whether its states are part of the output.
    at : str or None
        Where the network reads the output, ``"steps"`` or ``"end"``; None for a bare layer.
    """

    def __init__(self, model: Recurrent | Network, index: int) -> None:
        self.model, self._index = model, index
        stack = self._recurrent.stack
        self._own = stack.directions[index]
        self.name, self.reverse = self._own.layout.suffix.lstrip("_"), self._own.reverse
        self.top = index >= len(stack.directions) - stack.per_layer
        self.at: str | None = getattr(model, "at", None)

    @property
    def _recurrent(self) -> Recurrent:
        model: Any = self.model
        layer: Recurrent = getattr(model, "layer", model)
        return layer

    def __repr__(self) -> str:
        return f"<direction {self.name} of {self.model!r}>"

    @property
    def batch_axis(self) -> int:
        """The axis of x that counts sequences."""
        return self._recurrent.batch_axis

    @property
    def input_size(self) -> int:
        """Numbers in each step of x."""
        return self._recurrent.input_size

    def in_order(self, x: Any) -> Any:
        """Convert sequences, or labels for every step, from the order of time to that of reading, or back."""
        if not self.reverse:
            return x
        return [np.flip(item, axis=0) for item in x] if is_list(x) else np.flip(x, axis=self._recurrent.time_axis)

    def linearize(self, x: Any, h0: State | None = None) -> LayerLinearization:
        """The direction's Jacobians in the order of its reading; arguments as for the layer, x in that order."""
        trace = self._recurrent.one_length(self.in_order(x), h0)
        return LayerLinearization([self._own], self._recurrent.params, (trace.records[self._index],))

    def measure_gradient(self, x: Any, start: ArrayLike, h0: State | None = None) -> Array:
        """The true gradient by lag along this direction alone; see :meth:`RNN.measure_gradient`."""
        return log_norms(self.linearize(x, h0), start)

    def loss_start(
        self, x: Any, y: ArrayLike | None = None, *, loss: Any = "mse", h0: State | None = None, rng: Any = None,
        lin: Any = None,
    ) -> Array | None:  # fmt: skip
        """Gradient of the loss where this direction ends, with respect to its last state there.

        None for a bare layer, and below the last one. Arguments as for :meth:`elman.Network.loss_start`; x and labels
        for every step in the order of reading.
        """
        if self.at is None or not self.top:
            return None
        network: Any = self.model
        layer = network.layer
        hidden, hn = layer(self.in_order(x), h0)
        last = np.take(hidden, 0 if self.reverse else -1, axis=layer.time_axis)
        if self.at == "end":
            last = final_output(hn, layer.stack.per_layer)
        layout = self._own.layout
        out = np.zeros((len(last), layout.state_size), layout.dtype)
        first = layout.R if self.reverse else 0
        start = output_start(network, last, layer.batch(x), y, loss, rng)
        out[:, : layout.R] = start[:, first : first + layout.R]
        return out

    def final_state(self, x: Any, h0: State | None = None) -> State:
        """The state after the last step read; only for a single layer, whose directions are independent."""
        return self._recurrent.final_state(self.in_order(x), h0)

    def paths(self, x: Any, h0: State | None = None) -> dict[str, LayerLinearization]:
        """See :meth:`RNN.paths`; for this direction."""
        return cut_paths(self.linearize(x, h0), [self._own], self._recurrent.params)

    @property
    def levers(self) -> Levers:
        """See :attr:`RNN.levers`."""
        return levers_of(self._own.layout, self._recurrent.params)

    def change(self, lever: str, amount: float) -> None:
        """See :meth:`RNN.change`; for this direction alone."""
        turn([self._own.layout], self._recurrent.params, lever, amount)
