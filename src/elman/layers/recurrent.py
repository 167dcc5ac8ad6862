"""A recurrent layer of any cell: parameters, the forward and backward pass, and its linearization."""

from __future__ import annotations

from inspect import Signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..cells import Cell
from ..errors import ArgumentError, DTypeError
from ..initializers import Initializer, fill
from ..states import State
from ..validation.scalars import flag, real_dtype, size
from .dynamics import concatenated_weights, one_length, recurrent_matrices, stepper, weight_norms
from .engine.batch import Batch
from .engine.bptt import cached_steps
from .engine.buffers import Buffers, Fresh
from .engine.chain import Levers, cut_paths, levers_of, log_norms, turn
from .engine.kept import Kept
from .engine.linearize import LayerLinearization
from .engine.noise import Noise, Regularizer, choose
from .engine.prepared import Ready
from .engine.rows import Rows
from .engine.stack import Stack
from .engine.states import States
from .one_way import OneWay
from .options import call_of, spelled_out
from .parameters import Parameterised, Parameters
from .stepper import Stepper
from .trace import Gradients, Trace, spacing

Array = NDArray[Any]
FRESH = Fresh()


class Recurrent(Parameterised):
    """Base class of all recurrent layers; users build its subclasses, such as :class:`elman.RNN`.

    Parameters
    ----------
    cell : Cell
        The record of the cell.
    variant : str
        One of ``cell.variants``.
    proj_size : int
        Size of the output of a cell that projects; 0 for others.
    weight_ih_init, weight_hh_init, bias_init
        Initialisers. W_hr of a cell that projects is drawn like W_ih.
    others
        As for :class:`elman.RNN`.

    Attributes
    ----------
    cell, variant, proj_size
        As given, or chosen by the class.
    input_size, hidden_size, num_layers : int
        Sizes D and H, and the number of layers.
    bidirectional, bias, batch_first, learn_initial_state : bool
        As given.
    dropout, recurrent_dropout : float
        As given.
    zoneout : tuple of float
        One number per state.
    params, theta, dtype
        See :class:`elman.layers.parameters.Parameterised`.
    """

    __signature__: ClassVar[Signature]

    def __init__(
        self, cell: Cell, variant: str, input_size: int, hidden_size: int, num_layers: int = 1, *, proj_size: int = 0,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        recurrent_dropout: float = 0.0, zoneout: float | tuple[float, ...] = 0.0, learn_initial_state: bool = False,
        dtype: DTypeLike = "float64", weight_ih_init: str | Initializer = "glorot",
        weight_hh_init: str | Initializer = "orthogonal", bias_init: str | Initializer = "zeros", rng: Any = None,
    ) -> None:  # fmt: skip
        self.input_size = size(input_size, "input_size", least=0)
        self.hidden_size = size(hidden_size, "hidden_size")
        self.cell, self.variant, self.proj_size = cell, variant, proj_size
        self.num_layers = size(num_layers, "num_layers")
        self.bias, self.batch_first = flag(bias, "bias"), flag(batch_first, "batch_first")
        self.bidirectional = flag(bidirectional, "bidirectional")
        self.learn_initial_state = flag(learn_initial_state, "learn_initial_state")
        if bool(proj_size) != cell.projects:
            raise ArgumentError(
                f"proj_size must be {'above 0' if cell.projects else 0} for {cell.name}, got {proj_size}"
            )
        self.regularizer = regularizer = Regularizer.checked(dropout, recurrent_dropout, zoneout, cell.states)
        self.dropout, self.recurrent_dropout = regularizer.dropout, regularizer.recurrent_dropout
        self.zoneout = regularizer.zoneout
        if dropout and self.num_layers == 1:
            raise ArgumentError(
                "dropout acts between layers: num_layers must be at least 2, got 1 (recurrent_dropout and zoneout act "
                "within one)"
            )
        sizes = self.input_size, self.hidden_size, proj_size or self.hidden_size
        self.stack = Stack.of(
            cell, variant, *sizes, real_dtype(dtype), self.num_layers, self.bidirectional, self.zoneout
        )  # fmt: skip
        self._kept = Kept[Ready]()
        first = self.stack.layouts[0]
        self.states = States(first, len(self.stack.layouts))
        shapes: dict[str, tuple[int, ...]] = {}
        for layout in self.stack.layouts:
            shapes |= layout.shapes(self.bias, self.learn_initial_state)
        self.parameters = Parameters(shapes, first.dtype)
        fill(self.parameters, first.n_gates, weight_ih_init, weight_hh_init, bias_init, rng)

    def __init_subclass__(cls, **others: Any) -> None:
        """Spell out the options of a layer, so that ``help`` and editors show each of them with its default."""
        super().__init_subclass__(**others)
        spelled = spelled_out(cls, Recurrent)
        if spelled is not None:
            cls.__signature__ = spelled

    @property
    def output_size(self) -> int:
        """Numbers in each step's output, of all directions together."""
        return self.stack.width

    def __repr__(self) -> str:
        """The call that makes such a layer, except for its weights; options at their defaults are left out."""
        return call_of(self)

    @property
    def batch_axis(self) -> int:
        """The axis of x that counts sequences."""
        return 0 if self.batch_first else 1

    @property
    def time_axis(self) -> int:
        """The axis of x that counts steps."""
        return 1 - self.batch_axis

    def batch(self, x: Any, lengths: ArrayLike | None = None, reset: Any = None) -> Batch:
        """Checked sequences in the kernels' order; arguments and errors as for calling the layer."""
        return Batch(
            x, lengths, reset, input_size=self.input_size, dtype=self.dtype, batch_first=self.batch_first
        )  # fmt: skip

    def _state(self, h0: State | None, batch: Batch) -> Array | None:
        return None if h0 is None else self.states.inward(h0, "{}0", batch.B, batch.single)

    def __call__(
        self, x: Any, h0: State | None = None, *, lengths: ArrayLike | None = None, reset: Any = None
    ) -> tuple[Any, Any]:
        """Evaluate the layer, as in PyTorch. Nothing is random: dropout and the like act only in :meth:`trace`.

        Parameters
        ----------
        x : array_like, shape (T, B, D), (B, T, D) with ``batch_first``, or (T, D); or list of array_like, each (T_i, D)
            Input sequences; converted to the layer's dtype. T, B and lengths may be 0. A list holds one sequence per
            item, of any kind: arrays, tensors, data frames, nested lists of two levels.
        h0 : array_like, shape (num_layers * num_directions, B, H), or without B for one sequence
            Initial state; by default zero or the learned one. For an LSTM, the tuple (h0, c0).
        lengths : array_like of int, shape (B,), optional
            Valid steps of each sequence, in any order. What x holds beyond them is never read.
        reset : array_like of bool, shaped as x without its last axis, optional
            True where a sequence restarts before the step, from the zero or the learned state; a backward direction
            restarts at the end of each piece.

        Returns
        -------
        output : ndarray, shape (T, B, directions * H), (B, T, .) with ``batch_first``, or (T, .); or list of ndarray
            The last layer's state after each step, forward direction first; 0 beyond a sequence's length.
        hn : ndarray, shape of h0
            The state of every layer and direction after the last valid step, which for a backward direction is the
            first step in time; later calls do not change it.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If an argument does not fit; raised before anything is computed.
        NonFiniteError
            If a parameter is not finite, or a state overflows.
        """
        return self.evaluate(self.batch(x, lengths, reset), h0)

    def evaluate(self, batch: Batch, h0: State | None) -> tuple[Any, Any]:
        """The result of calling the layer, for checked sequences."""
        ready = self._kept.get(self.theta, self._pack)
        output, final = ready.run(self.parameters, batch, self._state(h0, batch), self.states)
        return batch.outward(output), final

    def _pack(self) -> Ready:
        self.parameters.check_finite()
        return Ready(self.stack, [layout.panels(self.params, FRESH) for layout in self.stack.layouts])

    def trace(
        self, x: Any, h0: State | None = None, *, lengths: ArrayLike | None = None, reset: Any = None,
        training: bool | None = None, rng: Any = None, checkpoint: bool | int = False, keep_output: bool = True,
        buffers: Buffers = FRESH,
    ) -> Trace:  # fmt: skip
        """Run the layer and store what :meth:`backward` needs.

        Parameters
        ----------
        x, h0, lengths, reset
            As for calling the layer.
        training : bool, optional
            Whether dropout, recurrent dropout and zoneout are drawn. Required for a layer that has one of them.
        rng : None, int or numpy.random.Generator
            Source of the random draws.
        checkpoint : bool or int, default False
            Store, besides the output, only the state before every ``checkpoint``-th step; the backward pass computes
            the others again, window by window. The gradients are the same to the bit; memory for states and gates
            falls from T steps to about ``T / checkpoint + checkpoint``, at the cost of one more forward pass (Chen et
            al., arXiv:1604.06174). True stands for the square root of T, or for what the caches hold if that is more.
            The trace then has no ``states`` and ``gates``.
        keep_output : bool, default True
            False is allowed with a checkpoint, if only the final states matter: then the last layer's output is not
            stored either, ``trace.output`` is None, and so must be the ``d_output`` of :meth:`backward`.
        buffers : Buffers, optional
            Memory to reuse: the trace is then overwritten by the next one made with the same buffers.

        Returns
        -------
        Trace

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for calling the layer; ArgumentError if ``training`` is required and missing, for a checkpoint below 1,
            or for ``keep_output=False`` without a checkpoint.
        """
        training = choose(self.regularizer, training, rng)
        batch = self.batch(x, lengths, reset)
        stack = self.stack
        noise: Noise | None = None
        if training and self.regularizer.active:
            first = stack.layouts[0]
            noise = self.regularizer.draw(
                rng, self.num_layers, stack.per_layer, batch.T * batch.B, first.R, first.H, self.dtype
            )  # fmt: skip
        cached = min(cached_steps(d, batch.B) for d in stack.directions) if checkpoint is not False else 0
        every = spacing(checkpoint, batch.T, cached)
        if not (flag(keep_output, "keep_output") or every):
            raise ArgumentError(
                "keep_output must be True without a checkpoint, got False: the states that are kept are the output; "
                "give checkpoint=True as well"
            )
        version = self.parameters.version()
        done = stack.forward(
            self.params, batch, self._state(h0, batch), True, noise, buffers, buffers, every, keep_output=keep_output
        )  # fmt: skip
        output = None
        if keep_output:
            output = done.output.view(self.output_size).reshape(batch.T, batch.B, self.output_size)
            output.flags.writeable = False
            output = batch.outward(output)
        final = self.states.outward(stack.final_states(done.records), batch.single)
        return Trace(output, final, done.records, batch, done.output, noise, stack, version)

    def backward(
        self, trace: Trace, d_output: Any = None, d_hn: State | None = None, *, need_x: bool = True,
        buffers: Buffers = FRESH,
    ) -> Gradients:  # fmt: skip
        """Backpropagation through time.

        Parameters
        ----------
        trace : Trace
            From :meth:`trace`; the parameters must not have changed since then: their bits are compared.
        d_output : array_like or list of array_like, shape of ``trace.output``, optional
            ``dL/d output``; zero by default. Entries beyond a sequence's length are not read.
        d_hn : array_like, shape of ``trace.hn``, optional
            ``dL/d hn``; zero by default.
        need_x : bool, default True
            Whether to compute ``dL/dx``.
        buffers : Buffers, optional
            Memory to reuse: the gradients are then overwritten by the next call with the same buffers.

        Returns
        -------
        Gradients

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If d_output or d_hn does not fit, or the trace was made with other weights or by a layer of other sizes.
        NonFiniteError
            If a gradient overflows.
        """
        self.check_trace(trace)
        rows = self.output_gradient(trace, d_output)
        return self.backward_rows(trace, rows, self.final_gradient(trace, d_hn), flag(need_x, "need_x"), buffers)

    def output_gradient(self, trace: Trace, d_output: Any) -> Rows | None:
        """``dL/d output`` in the kernels' order, checked; None for zero."""
        if d_output is None:
            return None
        if trace.output is None:
            raise ArgumentError("d_output must be left out: the trace was made with keep_output=False")
        inward = trace.batch.inward(d_output, "d_output", self.output_size, self.dtype)
        return Rows(inward.reshape(-1), self.output_size, trace.rows.n)

    def final_gradient(self, trace: Trace, d_hn: State | None) -> Array | None:
        """``dL/d hn`` in the kernels' order, checked; None for zero."""
        return None if d_hn is None else self.states.inward(d_hn, "d_{}n", trace.batch.B, trace.batch.single)

    def spread_final(self, trace: Trace, d: Rows, d_state: Array | None) -> Array:
        """Add rows of the gradient of ``trace.final_output`` to that of the final states, in the kernels' order."""
        first, n, B = self.stack.layouts[0], self.stack.per_layer, trace.batch.B
        out = np.zeros((self.states.directions, B, first.n_states, first.H), self.dtype) if d_state is None else d_state
        parts = d.view(self.output_size).reshape(B, n, first.R)
        out[-n:, :, 0, : first.R] += parts.swapaxes(0, 1)
        return out

    def backward_rows(
        self, trace: Trace, rows: Rows | None, d_state: Array | None, need_x: bool, buffers: Buffers,
        theta: Array | None = None,
    ) -> Gradients:  # fmt: skip
        """:meth:`backward` for rows of d_output, writing the parameters' gradient to ``theta``."""
        if theta is None:
            theta = buffers.take("theta", self.parameters.size, self.dtype)
        views = self.parameters.view(theta)
        stack = self.stack
        done = stack.backward(self.params, trace.records, trace.noise, rows, d_state, need_x, views)
        stack.check_gradient(done, theta)
        batch = trace.batch
        d_x = None if done.x is None else batch.outward(done.x.reshape(batch.T, batch.B, self.input_size))
        d_h0 = self.states.outward(done.state, batch.single)
        return Gradients(views, theta, d_x, d_h0, done.norms[..., 0])

    def check_trace(self, trace: Trace) -> None:
        """Refuse a trace with other weights, or of other sizes, beyond whose arrays compiled code would read.

        Raises
        ------
        ArgumentError, DTypeError
            With both layers, or the parameter that differs; or if it is not a trace of a layer.
        """
        if not isinstance(trace, Trace):
            raise DTypeError(f"trace must be what this layer's trace() returned, got {type(trace).__name__}")
        if trace.stack.key != self.stack.key:
            raise ArgumentError(f"trace must be of this layer, {self.stack}; it was made by {trace.stack}")
        self.parameters.check_version(trace.version)

    def weight_norms(self, trace: Trace, d_output: Any = None, d_hn: State | None = None) -> Array:
        """Measure how much each step adds to the gradient of the recurrent weights, with the kernels that train.

        Their gradient is a sum over steps; the decay of its terms with the distance from the loss shows how far back
        steps still affect learning. For ``|dL/dh_t|`` see ``backward(...).state_norms``.

        Parameters
        ----------
        trace : Trace
            A trace of sequences of one length, without restarts.
        d_output, d_hn
            As for :meth:`backward`.

        Returns
        -------
        ndarray, shape (num_layers * num_directions, T), float64
            Frobenius norm of the term of step t of ``dL/dW_hh``, summed over the sequences.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            As for :meth:`backward`; also for sequences of several lengths, restarts, and drawn recurrent dropout.
        """
        return weight_norms(self, trace, d_output, d_hn)

    def concatenated_weights(self, layer: int = 0, *, reverse: bool = False) -> Array:
        """The single matrix that acts on input and state side by side: ``[X, H] @ W = X W_xh + H W_hh``.

        Parameters
        ----------
        layer : int, default 0
            Which layer.
        reverse : bool, default False
            Whether to return that of the backward direction.

        Returns
        -------
        ndarray, shape (inputs + outputs of the layer, gates * hidden_size)
            ``[W_xh; W_hh]`` in the textbook's layout, one sample per row; a copy.

        Raises
        ------
        ArgumentError
            If there is no such layer or direction.
        """
        return concatenated_weights(self, layer, reverse)

    @property
    def recurrent_matrices(self) -> dict[str, Array]:
        """Each gate's recurrent matrix (H, H) by name, such as ``"i_l0"``; W_hg W_hr for a cell that projects."""
        return recurrent_matrices(self)

    def linearize(self, x: Any, h0: State | None = None) -> LayerLinearization:
        """The tangent dynamics along the trajectories that ``x`` drives, with the present weights.

        The state is that of all layers together, the first layer's first; for an LSTM, (h, c) of each. Nothing is drawn
        at random: zoneout enters by its mean.

        Parameters
        ----------
        x, h0
            As for calling the layer; the B sequences must have one length, and B becomes ``n_sequences``.

        Returns
        -------
        Linearization

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for calling the layer; ArgumentError for a bidirectional layer, which has no single state that a step
            carries to the next.
        """
        if self.bidirectional:
            raise ArgumentError(
                "a bidirectional layer cannot be linearized: its directions run against each other, so that there is "
                "no single state that a step carries to the next. layer.one_way() has each direction as a "
                "system of its own, and elman.diagnose takes the layer as it is"
            )
        return LayerLinearization(self.stack.directions, self.params, self.one_length(x, h0).records)

    def one_length(self, x: Any, h0: State | None = None) -> Trace:
        """A trace in which nothing is drawn, of sequences that must have one length."""
        return one_length(self, x, h0)

    def one_way(self) -> dict[str, OneWay]:
        """Every direction of every layer as a system of its own, by name: ``"l0"``, ``"l0_reverse"``, ``"l1"``, ..."""
        views = (OneWay(self, i) for i in range(len(self.stack.directions)))
        return {view.name: view for view in views}

    def final_state(self, x: Any, h0: State | None = None) -> State:
        """The state after the last step, to continue from; nothing else is stored. Arguments as for a call."""
        state: State = self(x, h0)[1]
        return state

    def paths(self, x: Any, h0: State | None = None) -> dict[str, LayerLinearization]:
        """Linearizations along the same trajectories, with the paths of the gradient removed one after the other.

        Entry ``"all"`` has every path. The entry of a gate lacks that gate's part of W_hh and all that the entries
        before it lack; ``"below"``, in a stack, also lacks the connections between the layers. Two neighbours differ by
        one path; the last entry is what states carry past all of them. Arguments and errors as for :meth:`linearize`.
        """
        return cut_paths(self.linearize(x, h0), self.stack.directions, self.params)

    @property
    def levers(self) -> Levers:
        """What :meth:`change` can change: ``"recurrent"``, and the bias of each gate with a role, with that role."""
        return levers_of(self.stack.layouts[0], self.params)

    def change(self, lever: str, amount: float) -> None:
        """Multiply W_hh of every layer by ``amount`` (``"recurrent"``), or add ``amount`` to a bias of each layer.

        This changes the layer in place; try it on a copy. ArgumentError for a lever that is not among :attr:`levers`.
        """
        turn(self.stack.layouts, self.params, lever, amount)

    def measure_gradient(self, x: Any, start: ArrayLike, h0: State | None = None) -> Array:
        """Measure the true gradient by lag, with the kernels that train.

        Parameters
        ----------
        x, h0
            As for calling the layer.
        start : array_like, shape (B, S)
            Gradient of a loss with respect to the last state of all layers together.

        Returns
        -------
        ndarray, shape (T + 1, B)
            Natural logarithm of ``|dL/ds_{T-k}|`` for lags k = 0 .. T; -inf where it is exactly 0, inf or NaN from the
            lag on at which it overflows: here an overflow is a result, not an error.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for :meth:`linearize`.
        """
        return log_norms(self.linearize(x, h0), start)

    def loss_start(self, x: Any, y: ArrayLike | None = None, **options: Any) -> None:
        """A layer without a readout has no loss: None. See :meth:`elman.Network.loss_start`."""

    def stepper(self, batch_size: int = 1, h0: State | None = None) -> Stepper:
        """Stream one step at a time with the present weights.

        Parameters
        ----------
        batch_size : int, default 1
            Number B of sequences side by side.
        h0 : array_like, shape (num_layers, B, H), optional
            Initial state; by default zero or the learned one.

        Returns
        -------
        Stepper
            To be called as ``y = stepper(x_t)``.

        Raises
        ------
        ArgumentError
            For a bidirectional layer, which cannot begin without the end of a sequence.
        NonFiniteError
            If a parameter is not finite.
        """
        return stepper(self, batch_size, h0)
