"""A layer as a dynamical system: its linearization, its true gradient by lag, and streaming."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError
from ..states import State
from ..validation.scalars import flag, index, size
from .engine.affine import Rows
from .engine.chain import Levers, cut_paths, levers_of, log_norms, turn
from .engine.linearize import LayerLinearization
from .engine.stack import Stack
from .engine.states import States
from .one_way import OneWay
from .parameters import Parameterised
from .stepper import Stepper
from .trace import Trace

Array = NDArray[Any]


class Dynamics(Parameterised):
    """What analysis asks of a recurrent layer; see :class:`elman.layers.Recurrent`."""

    bidirectional: bool
    num_layers: int
    stack: Stack
    states: States

    @abstractmethod
    def trace(self, x: Any, h0: State | None = None, *, training: bool | None = None) -> Trace:
        """Run the layer and keep what a backward pass needs."""

    @abstractmethod
    def check_trace(self, trace: Trace) -> None:
        """Refuse a trace of a layer of other sizes."""

    @abstractmethod
    def output_gradient(self, trace: Trace, d_output: Any) -> Rows | None:
        """``dL/d output`` in the kernels' order, checked."""

    @abstractmethod
    def final_gradient(self, trace: Trace, d_hn: State | None) -> Array | None:
        """``dL/d hn`` in the kernels' order, checked."""

    def weight_norms(self, trace: Trace, d_output: Any = None, d_hn: State | None = None) -> Array:
        """Measure how much each step adds to the gradient of the recurrent weights, with the kernels that train.

        Their gradient is a sum over steps; how its terms fall with the distance from the loss says how far back it is
        learned from. ``|dL/dh_t|`` beside it is ``backward(...).state_norms``.

        Parameters
        ----------
        trace : Trace
            Of sequences of one length, without restarts.
        d_output, d_hn
            As for :meth:`backward`.

        Returns
        -------
        ndarray, shape (num_layers * num_directions, T), float64
            Frobenius norm of the term of step t of ``dL/dW_hh``, summed over the sequences.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            As for :meth:`backward`; for sequences of several lengths, restarts, and drawn recurrent dropout.
        """
        self.check_trace(trace)
        plain = all(record.schedule.plain for record in trace.records)
        if not plain or (trace.noise is not None and trace.noise.recurrent[0] is not None):
            raise ArgumentError(
                "trace must be of sequences of one length, without restarts and recurrent dropout, for a step's term "
                "of the gradient to be one"
            )
        rows, d_state = self.output_gradient(trace, d_output), self.final_gradient(trace, d_hn)
        views = self.parameters.view(np.empty_like(self.theta))
        out = np.empty((len(self.stack.directions), trace.batch.T))
        self.stack.backward(self.params, trace.records, trace.noise, rows, d_state, False, views, out)
        return out

    def concatenated_weights(self, layer: int = 0, *, reverse: bool = False) -> Array:
        """The one matrix that reads input and state side by side: ``[X, H] @ W = X W_xh + H W_hh``.

        Parameters
        ----------
        layer : int, default 0
            Which layer.
        reverse : bool, default False
            Whether of its backward direction.

        Returns
        -------
        ndarray, shape (inputs + outputs of the layer, gates * hidden_size)
            ``[W_xh; W_hh]`` in the textbook's layout, a sample a row; a copy.

        Raises
        ------
        ArgumentError
            If there is no such layer or direction.
        """
        layer = index(layer, "layer", self.num_layers)
        if flag(reverse, "reverse") and not self.bidirectional:
            raise ArgumentError("reverse needs a bidirectional layer: it must be False for this one, got True")
        d = self.stack.layers[layer][bool(reverse)]
        return np.concatenate([self.params[d.weight_ih].T, self.params[d.weight_hh].T])

    @property
    def recurrent_matrices(self) -> dict[str, Array]:
        """Each gate's recurrent matrix (H, H) by name, such as ``"i_l0"``; W_hg W_hr of a cell that projects."""
        matrices = {}
        for d in self.stack.directions:
            blocks = self.params[d.weight_hh].reshape(d.n_gates, d.H, d.R)
            for gate, block in zip(d.cell.gate_names, blocks, strict=True):
                matrices[gate + d.suffix] = block @ self.params[d.weight_hr] if d.cell.projects else block
        return matrices

    def linearize(self, x: Any, h0: State | None = None) -> LayerLinearization:
        """The tangent dynamics along the trajectories that ``x`` drives, with the weights as they are now.

        The state is that of all layers together, the first layer's first; for an LSTM (h, c) of each. Nothing is drawn
        at random: zoneout enters by its mean.

        Parameters
        ----------
        x, h0
            As for calling the layer; B sequences of one length become ``n_sequences``.

        Returns
        -------
        Linearization

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for calling the layer; ArgumentError for a bidirectional layer, which has no state that one step carries
            to the next.
        """
        if self.bidirectional:
            raise ArgumentError(
                "a bidirectional layer cannot be linearized: its directions run against each other, so that there is "
                "no one state which a step carries to the next. layer.one_way() has each direction as a "
                "system of its own, and elman.diagnose takes the layer as it is"
            )
        return LayerLinearization(self.stack.directions, self.params, self.one_length(x, h0).records)

    def one_length(self, x: Any, h0: State | None = None) -> Trace:
        """A trace in which nothing is drawn, of sequences that must have one length."""
        trace = self.trace(x, h0, training=False)
        if trace.batch.lengths is not None and (trace.batch.lengths != trace.batch.T).any():
            raise ArgumentError("x must be sequences of one length to be linearized, got a list of several lengths")
        return trace

    def one_way(self) -> dict[str, OneWay]:
        """Every direction of every layer as a system of its own, by name: ``"l0"``, ``"l0_reverse"``, ``"l1"``, ..."""
        views = (OneWay(self, i) for i in range(len(self.stack.directions)))  # type: ignore[arg-type]
        return {view.name: view for view in views}

    def final_state(self, x: Any, h0: State | None = None) -> State:
        """The state after the last step, to go on from; nothing else is kept. Arguments as for calling the layer."""
        state: State = self(x, h0)[1]  # type: ignore[operator]
        return state

    def paths(self, x: Any, h0: State | None = None) -> dict[str, LayerLinearization]:
        """Linearizations along the same trajectories, from which one path of the gradient after the other is cut.

        Entry ``"all"`` has every path. The entry of a gate has no longer that gate's part of W_hh, nor what the entries
        before it lack; ``"below"``, in a stack, lacks the connections between the layers too. Two neighbours differ by
        one path; the last entry is what states carry past all of them. Arguments and errors as for :meth:`linearize`.
        """
        return cut_paths(self.linearize(x, h0), self.stack.directions, self.params)

    @property
    def levers(self) -> Levers:
        """What :meth:`change` can change: ``"recurrent"``, and the bias of each gate with a role, with that role."""
        return levers_of(self.stack.directions[0], self.params)

    def change(self, lever: str, amount: float) -> None:
        """Multiply W_hh of every layer by ``amount`` (``"recurrent"``), or add ``amount`` to a bias of each.

        In place, for a trial on a copy. ArgumentError for what is not among :attr:`levers`.
        """
        turn(self.stack.directions, self.params, lever, amount)

    def measure_gradient(self, x: Any, start: ArrayLike, h0: State | None = None) -> Array:
        """Measure the true gradient by lag, with the kernels that train.

        Parameters
        ----------
        x, h0
            As for calling the layer.
        start : array_like, shape (B, S)
            Gradient of a loss with respect to the last state, that of all layers together.

        Returns
        -------
        ndarray, shape (T + 1, B)
            Natural logarithm of ``|dL/ds_{T-k}|`` for lags k = 0 .. T; -inf where it is exactly 0, inf or NaN from
            where it overflows: here an overflow is a result, not an error.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for :meth:`linearize`.
        """
        return log_norms(self.linearize(x, h0), start)

    def loss_start(self, x: Any, y: ArrayLike | None = None, **options: Any) -> None:
        """A layer without a readout has no loss: None. See :meth:`elman.Network.loss_start`."""

    def stepper(self, batch_size: int = 1, h0: State | None = None) -> Stepper:
        """Stream one step at a time with the weights as they are now.

        Parameters
        ----------
        batch_size : int, default 1
            Number B of sequences side by side.
        h0 : array_like, shape (num_layers, B, H), optional
            Initial state; zero, or the learned one, by default.

        Returns
        -------
        Stepper
            ``y = stepper(x_t)``; see there.

        Raises
        ------
        ArgumentError
            For a bidirectional layer, which needs the end of a sequence to begin.
        NonFiniteError
            If a parameter is not finite.
        """
        if self.bidirectional:
            raise ArgumentError("a bidirectional layer cannot stream: its backward direction begins at the last step")
        self.parameters.check_finite()
        B = size(batch_size, "batch_size")
        state = None if h0 is None else self.states.inward(h0, "{}0", B, False)
        return Stepper(self.stack.directions, self.states, self.params, B, state)
