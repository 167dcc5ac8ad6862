"""A recurrent layer: parameters, the forward and backward pass, and its linearization. Knows no cell by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..cells import Cell
from ..errors import ArgumentError, NonFiniteError, ShapeError
from ..validation import matching, real_dtype, sequences, size
from . import initializers
from .buffers import Buffers, Fresh, scratch
from .direction import Direction
from .initializers import Initializer
from .linearize import LayerLinearization
from .parameters import Parameterised, Parameters
from .stepper import Stepper
from .trace import Gradients, Trace

Array = NDArray[Any]
State = ArrayLike | tuple[ArrayLike, ...]
"""One array, or for a cell of several states a tuple of one for each, such as ``(h0, c0)``."""
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
                block[...] = draw(block.shape, rng)

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

    def __call__(self, x: ArrayLike, h0: State | None = None) -> tuple[Array, Array]:
        """Run the layer, as PyTorch's.

        Parameters
        ----------
        x : array_like, shape (T, B, D), (B, T, D) with ``batch_first``, or (T, D)
            Input sequences; converted to the layer's dtype. T and B may be 0.
        h0 : array_like, shape (1, B, H), or (1, H) for one sequence
            Initial state; zero by default.

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
        x, state, batched = self._accept(x, h0)
        T, B, H = x.shape[0], x.shape[1], self.hidden_size
        out = np.empty(T * B * H, self.dtype)
        record = self.direction.forward(self.params, x.reshape(-1), self.input_size, T, B, state, False, out, scratch())
        return self._outward(out.reshape(T, B, H), batched), self._state_out(self.direction.last_state(record), batched)

    def trace(self, x: ArrayLike, h0: State | None = None, *, buffers: Buffers = FRESH) -> Trace:
        """Run the layer and keep what :meth:`backward` needs.

        Parameters
        ----------
        x, h0
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
        x, state, batched = self._accept(x, h0)
        return self._trace(x, state, batched, buffers)

    def _trace(self, x: Array, state: Array | None, batched: bool, buffers: Buffers) -> Trace:
        """:meth:`trace` of checked arguments."""
        T, B = x.shape[:2]
        d = self.direction
        record = d.forward(self.params, x.reshape(-1), self.input_size, T, B, state, True, self._nothing, buffers)
        rows = d.state_view(record.states, (T + 1) * B).reshape(T + 1, B, len(d.cell.states), self.hidden_size)
        rows.flags.writeable = False
        states = {name + d.suffix: rows[:, :, i] for i, name in enumerate(d.cell.states)}
        gates = {name + d.suffix: view for name, view in d.gate_views(record).items()}
        output = self._outward(rows[1:, :, 0], batched)
        return Trace(output, self._state_out(d.last_state(record), batched), states, gates, (record,), batched)

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
            If d_output or d_hn does not fit.
        NonFiniteError
            If the gradient overflows on its way back.
        """
        if d_output is None:
            rows = self._nothing
        else:
            shape = trace.output.shape
            d_output = matching(d_output, "d_output", shape, "that of trace.output", self.dtype)
            rows = np.ascontiguousarray(self._inward(d_output, trace.batched)).reshape(-1)
        d_state = None
        if d_hn is not None:
            d_state = self.state_gradient(d_hn, trace)
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
        self._check_gradient(norms, d_initial)
        if theta is None:
            theta = buffers.take("theta", self.parameters.size, self.dtype)
        views = self.parameters.view(theta)
        d.gradients(record, delta, views)
        d_x = self._outward(d.input_gradient(self.params, record, delta), trace.batched) if need_x else None
        return Gradients(views, theta, d_x, self._state_out(d_initial, trace.batched), norms[None, :, :, 0])

    def state_gradient(self, d_hn: State, trace: Trace) -> Array:
        """A checked gradient of the final state, as (B, n_states, H)."""
        B, H = trace.records[0].B, self.hidden_size
        return self._state_in(d_hn, "d_{}n", (1, B, H) if trace.batched else (1, H), trace.batched)

    def _check_gradient(self, norms: Array, d_initial: Array) -> None:
        """Refuse a gradient that overflowed: the last step in time where it did is where it began."""
        if np.isfinite(d_initial).all():
            return
        bad = np.argwhere(~np.isfinite(norms))
        step, sample, state = (int(i) for i in bad[-1]) if len(bad) else (0, 0, 0)
        part = self.direction.cell.states[state]
        raise NonFiniteError(
            f"{self.direction.label}: the gradient of the state {part} overflows at step {step} of sample {sample} on "
            "its way back; it explodes: scale weight_hh down, or shorten the window (truncation)",
            what="gradient", layer=self.direction.label, gate=part, step=step, sample=sample,
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
        d_state = start.reshape(B, -1, self.hidden_size)
        _, d_initial, norms = self.direction.backward(self.params, trace.records[0], self._nothing, 0, d_state, FRESH)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            last = np.linalg.norm(d_initial.reshape(1, B, -1).astype(np.float64), axis=2)
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
        return Stepper(self.direction, self.params, B, self._initial(h0, B, True))

    def _accept(self, x: ArrayLike, h0: State | None) -> tuple[Array, Array | None, bool]:
        """Checked x (T, B, D), initial state (B, n_states, H) or None for zero, and whether there was a batch axis."""
        x, batched = sequences(x, self.input_size, self.dtype, self.batch_first)
        return x, self._initial(h0, x.shape[1], batched), batched

    def _initial(self, h0: State | None, B: int, batched: bool) -> Array | None:
        shape = (1, B, self.hidden_size) if batched else (1, self.hidden_size)
        return None if h0 is None else self._state_in(h0, "{}0", shape, batched)

    def _state_in(self, state: State, name: str, shape: tuple[int, ...], batched: bool) -> Array:
        """Checked state, one array or a tuple of one for each of the cell's states, as (B, n_states, H)."""
        names = [name.format(part) for part in self.direction.cell.states]
        if len(names) > 1 and not (isinstance(state, tuple | list) and len(state) == len(names)):
            raise ShapeError(f"{names[0]} must be the tuple ({', '.join(names)}), got {type(state).__name__}")
        axes = "(num_layers * num_directions, B, H)" if batched else "(num_layers * num_directions, H)"
        parts: Any = state if len(names) > 1 else (state,)
        checked = [matching(p, n, shape, axes, self.dtype) for p, n in zip(parts, names, strict=True)]
        return np.stack([p[0] if batched else p for p in checked], axis=1)

    def _state_out(self, state: Array, batched: bool) -> Any:
        """(B, n_states, H) to (1, B, H), or (1, H); a tuple of such where the cell has several states."""
        parts = tuple(state[None, :, i] if batched else state[:, i] for i in range(state.shape[1]))
        return parts if len(parts) > 1 else parts[0]

    def _outward(self, y: Array, batched: bool) -> Array:
        """(T, B, ...) to the caller's order of axes."""
        if not batched:
            return y[:, 0]
        return y.swapaxes(0, 1) if self.batch_first else y

    def _inward(self, y: Array, batched: bool) -> Array:
        """The caller's order of axes to (T, B, ...)."""
        if not batched:
            return y[:, None]
        return y.swapaxes(0, 1) if self.batch_first else y


def refuse_unsupported(**options: Any) -> None:
    """Options of PyTorch's layer that this version does not have: their neutral value is accepted, others are refused.

    Raises
    ------
    ArgumentError
        Naming the option.
    """
    neutral: Mapping[str, Any] = {
        "num_layers": 1, "dropout": 0.0, "bidirectional": False, "proj_size": 0, "reset_after": True
    }  # fmt: skip
    for name, value in options.items():
        if value != neutral[name]:
            raise ArgumentError(
                f"{name} must be {neutral[name]} in this version, whose layers are one cell in one direction; "
                f"got {value!r}"
            )
