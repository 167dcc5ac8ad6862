"""A recurrent layer: parameters, the forward and backward pass, and its linearization. Knows no cell by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..cells import Cell
from ..errors import ArgumentError, NonFiniteError
from ..validation import matching, real_dtype, sequences, size
from . import initializers
from .axes import Axes, State, refuse_unsupported
from .buffers import Buffers, Fresh, scratch
from .direction import Direction
from .initializers import Initializer
from .linearize import LayerLinearization
from .parameters import Parameterised, Parameters
from .stepper import Stepper
from .trace import Gradients, Trace

Array = NDArray[Any]
FRESH = Fresh()


class Recurrent(Parameterised):
    """Common to all recurrent layers; built by the classes that users name, such as :class:`elman.RNN`.

    Attributes
    ----------
    input_size, hidden_size : int
        Sizes D and H.
    batch_first : bool
        Whether x and output are (B, T, D) instead of (T, B, D). States are (num_layers * num_directions, B, H) in any
        case.
    params, theta, dtype
        See :class:`Parameterised`.
    """

    def __init__(
        self, cell: Cell, variant: str, input_size: int, hidden_size: int, *, bias: bool, batch_first: bool,
        dtype: DTypeLike, weight_ih: str | Initializer, weight_hh: str | Initializer, bias_init: str | Initializer,
        rng: Any,
    ) -> None:  # fmt: skip
        self.input_size = size(input_size, "input_size", least=0)
        self.hidden_size = size(hidden_size, "hidden_size")
        self.bias, self.batch_first = bool(bias), bool(batch_first)
        self.direction = Direction(cell, variant, self.input_size, self.hidden_size, real_dtype(dtype), "_l0")
        self.parameters = Parameters(self.direction.shapes(self.bias), real_dtype(dtype))
        self.axes = Axes(self.batch_first, cell.states, self.hidden_size, self.dtype)
        self._nothing = np.empty(0, self.dtype)
        self._initialize(weight_ih, weight_hh, bias_init, np.random.default_rng(rng))

    def _initialize(
        self,
        weight_ih: str | Initializer,
        weight_hh: str | Initializer,
        bias: str | Initializer,
        rng: np.random.Generator,
    ) -> None:
        """Fill the parameters, each gate's block by itself."""
        for name, view in self.parameters.items():
            given, argument = {
                "weight_ih": (weight_ih, "weight_ih_init"),
                "weight_hh": (weight_hh, "weight_hh_init"),
            }.get(name[:9], (bias, "bias_init"))
            draw = initializers.by_name(given, argument)
            for block in view.reshape(self.direction.n_gates, self.hidden_size, *view.shape[1:]):
                values = np.asarray(draw(block.shape, rng))
                if values.shape != block.shape or not np.isfinite(values).all():
                    raise ArgumentError(
                        f"{argument} must give finite numbers of shape {block.shape} for {name}, got shape "
                        f"{values.shape}"
                    )
                block[...] = values

    @property
    def batch_axis(self) -> int:
        """The axis of x that counts sequences."""
        return 0 if self.batch_first else 1

    @property
    def time_axis(self) -> int:
        """The axis of x that counts steps."""
        return 1 - self.batch_axis

    def concatenated_weights(self) -> Array:
        """The one matrix that reads input and state side by side: ``[X, H] @ W = X W_xh + H W_hh``.

        Returns
        -------
        ndarray, shape (input_size + hidden_size, gates * hidden_size)
            ``[W_xh; W_hh]`` in the textbook's layout, a sample a row; a copy.
        """
        return np.concatenate([self.params["weight_ih_l0"].T, self.params["weight_hh_l0"].T])

    def __call__(self, x: ArrayLike, h0: State | None = None, *, lengths: None = None) -> tuple[Array, Any]:
        """Run the layer, as PyTorch's.

        Parameters
        ----------
        x : array_like, shape (T, B, D), (B, T, D) with ``batch_first``, or (T, D)
            Input sequences; converted to the layer's dtype. T and B may be 0.
        h0 : array_like, shape (1, B, H), or (1, H) for one sequence
            Initial state; zero by default. For an LSTM the tuple (h0, c0).
        lengths : None
            Sequences have one length in this version.

        Returns
        -------
        output : ndarray, shape (T, B, H), (B, T, H) with ``batch_first``, or (T, H)
            The state after each step.
        hn : ndarray, shape of h0
            The state after the last step; no later call changes it.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If x or h0 does not fit; before anything is computed.
        NonFiniteError
            If a state overflows.
        """
        refuse_unsupported(lengths=lengths)
        x, state, batched = self._accept(x, h0)
        T, B, H = x.shape[0], x.shape[1], self.hidden_size
        out = np.empty(T * B * H, self.dtype)
        record = self.direction.forward(self.params, x.reshape(-1), self.input_size, T, B, state, False, out, scratch())
        hn = self.axes.state_out(self.direction.last_state(record), batched)
        return self.axes.outward(out.reshape(T, B, H), batched), hn

    def trace(self, x: ArrayLike, h0: State | None = None, *, lengths: None = None, buffers: Buffers = FRESH) -> Trace:
        """Run the layer and keep what :meth:`backward` needs.

        Parameters
        ----------
        x, h0, lengths
            As for calling the layer.
        buffers : Buffers, optional
            Memory to use again: the trace is then overwritten by the next one made with the same buffers.

        Returns
        -------
        Trace

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for calling the layer.
        """
        refuse_unsupported(lengths=lengths)
        x, state, batched = self._accept(x, h0)
        T, B = x.shape[:2]
        d = self.direction
        record = d.forward(self.params, x.reshape(-1), self.input_size, T, B, state, True, self._nothing, buffers)
        rows = d.state_view(record.states, (T + 1) * B).reshape(T + 1, B, d.n_states, self.hidden_size)
        rows.flags.writeable = False
        states = {name + d.suffix: rows[:, :, i] for i, name in enumerate(d.cell.states)}
        gates = {name + d.suffix: view for name, view in d.gate_views(record).items()}
        output = self.axes.outward(rows[1:, :, 0], batched)
        return Trace(output, self.axes.state_out(d.last_state(record), batched), states, gates, (record,), batched)

    def backward(
        self, trace: Trace, d_output: ArrayLike | None = None, d_hn: State | None = None, *, need_x: bool = True,
        buffers: Buffers = FRESH,
    ) -> Gradients:  # fmt: skip
        """Backpropagation through time.

        Parameters
        ----------
        trace : Trace
            From :meth:`trace`, with the parameters unchanged since.
        d_output : array_like, shape of ``trace.output``, optional
            ``dL/d output``; zero by default.
        d_hn : array_like, shape of ``trace.hn``, optional
            ``dL/d hn``; zero by default.
        need_x : bool, default True
            Whether to compute ``dL/dx``.
        buffers : Buffers, optional
            Memory to use again: the gradients are then overwritten by the next call with the same buffers.

        Returns
        -------
        Gradients

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If d_output or d_hn does not fit, or the trace is of a layer of other sizes.
        NonFiniteError
            If a gradient overflows.
        """
        self.check_trace(trace)
        if d_output is None:
            rows = self._nothing
        else:
            shape = trace.output.shape
            d_output = matching(d_output, "d_output", shape, "that of trace.output", self.dtype)
            rows = np.ascontiguousarray(self.axes.inward(d_output, trace.batched)).reshape(-1)
        d_state = None
        if d_hn is not None:
            d_state = self.axes.state_in(d_hn, "d_{}n", trace.records[0].B, trace.batched)
        return self._backward(trace, rows, self.hidden_size, d_state, need_x, buffers)

    def _backward(
        self,
        trace: Trace,
        rows: Array,
        y_rs: int,
        d_state: Array | None,
        need_x: bool,
        buffers: Buffers,
        theta: Array | None = None,
    ) -> Gradients:
        """:meth:`backward` for padded rows of d_output, writing the parameters' gradient to ``theta``."""
        d, (record,) = self.direction, trace.records
        delta, d_initial, norms = d.backward(self.params, record, rows, y_rs, d_state, buffers)
        if theta is None:
            theta = buffers.take("theta", self.parameters.size, self.dtype)
        views = self.parameters.view(theta)
        d.gradients(record, delta, views)
        d_x = d.input_gradient(self.params, record, delta) if need_x else None
        self._check_gradient(norms, d_initial, theta, d_x)
        if d_x is not None:
            d_x = self.axes.outward(d_x, trace.batched)
        return Gradients(views, theta, d_x, self.axes.state_out(d_initial, trace.batched), norms[None, :, :, 0])

    def check_trace(self, trace: Trace) -> None:
        """Refuse a trace of a layer of other sizes: compiled code would read beyond its arrays.

        Raises
        ------
        ArgumentError
            Naming both.
        """
        if trace.records[0].layout != self.direction.layout:
            made, wanted = (
                f"{name} ({variant}) with input_size {D}, hidden_size {H}, {np.dtype(char).name}"
                for name, variant, D, H, char in (trace.records[0].layout, self.direction.layout)
            )
            raise ArgumentError(f"trace must be of this layer, {wanted}; it was made by {made}")

    def _check_gradient(self, norms: Array, d_initial: Array, theta: Array, d_x: Array | None) -> None:
        """Refuse a gradient that overflowed; where a state's did, the last such step in time is where it began."""
        arrays = {"the initial state": d_initial, "the parameters": theta, "x": d_x}
        broken = [name for name, a in arrays.items() if a is not None and not np.isfinite(a).all()]
        if not broken:
            return
        label, bad = self.direction.label, np.argwhere(~np.isfinite(norms))
        if not len(bad):
            raise NonFiniteError(
                f"{label}: the gradient of {broken[0]} overflows in {self.dtype}; scale the loss down",
                what="gradient", layer=label,
            )  # fmt: skip
        step, sample, state = (int(i) for i in bad[-1])
        part = self.direction.cell.states[state]
        raise NonFiniteError(
            f"{label}: the gradient of the state {part} overflows at step {step} of sample {sample} on its way back; "
            "it explodes: scale weight_hh down, or shorten the window (truncation)",
            what="gradient", layer=label, gate=part, step=step, sample=sample,
        )  # fmt: skip

    def linearize(self, x: ArrayLike, h0: State | None = None) -> LayerLinearization:
        """The tangent dynamics along the trajectories that ``x`` drives, with the weights as they are now.

        Parameters
        ----------
        x, h0
            As for calling the layer; B sequences become ``n_sequences``.

        Returns
        -------
        Linearization

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for calling the layer.
        """
        return LayerLinearization(self.direction, self.params, self.trace(x, h0).records[0])

    def measure_gradient(self, x: ArrayLike, start: ArrayLike, h0: State | None = None) -> Array:
        """Measure the true gradient by lag, with the kernels that train.

        Parameters
        ----------
        x, h0
            As for calling the layer.
        start : array_like, shape (B, S)
            Gradient of a loss with respect to the last state.

        Returns
        -------
        ndarray, shape (T + 1, B)
            Natural logarithm of ``|dL/ds_{T-k}|`` for lags k = 0 .. T; -inf where it is exactly 0, inf or NaN from
            where it overflows: here an overflow is a result, not an error.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for calling the layer.
        """
        trace = self.trace(x, h0)
        B = trace.records[0].B
        start = matching(start, "start", (B, self.direction.state_size), "(B, S)", self.dtype)
        d_state = start.reshape(B, self.direction.n_states, self.hidden_size)
        _, d_initial, norms = self.direction.backward(self.params, trace.records[0], self._nothing, 0, d_state, FRESH)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            last = np.linalg.norm(d_initial.reshape(1, B, self.direction.state_size).astype(np.float64), axis=2)
            return np.log(np.concatenate([np.linalg.norm(norms[::-1], axis=2), last]))

    def loss_start(self, x: ArrayLike, y: ArrayLike | None = None, **options: Any) -> None:
        """A layer without a readout has no loss: None. See :meth:`elman.Network.loss_start`."""

    def stepper(self, batch_size: int = 1, h0: State | None = None) -> Stepper:
        """Stream one step at a time with the weights as they are now.

        Parameters
        ----------
        batch_size : int, default 1
            Number B of sequences side by side.
        h0 : array_like, shape (1, B, H), optional
            Initial state; zero by default.

        Returns
        -------
        Stepper
            ``y = stepper(x_t)``; see there.
        """
        B = size(batch_size, "batch_size")
        return Stepper(self.direction, self.params, B, None if h0 is None else self.axes.state_in(h0, "{}0", B, True))

    def _accept(self, x: ArrayLike, h0: State | None) -> tuple[Array, Array | None, bool]:
        """Checked x (T, B, D), initial state (B, n_states, H) or None for zero, and whether there was a batch axis."""
        x, batched = sequences(x, self.input_size, self.dtype, self.batch_first)
        return x, None if h0 is None else self.axes.state_in(h0, "{}0", x.shape[1], batched), batched
