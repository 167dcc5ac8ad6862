"""A recurrent layer with a readout of its output at every step or at the end, trained and diagnosed as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from ..functional import sigmoid, softmax
from ..losses import Loss
from ..states import State
from ..validation.arrays import all_finite, matching
from ..validation.scalars import choice, flag
from ..validation.words import kind, model_cure
from .dense import Dense
from .engine.buffers import Buffers, Fresh
from .engine.kept import Version
from .engine.linearize import LayerLinearization
from .engine.rows import Rows
from .generation import NetworkStepper, generated
from .loss_gradient import last_state_start, measured_loss
from .one_way import OneWay
from .parameters import Parameterised, Parameters
from .recurrent import Recurrent
from .scores import evaluated
from .stated import StatedWeights
from .trace import Gradients, Trace, bytes_of, final_output, in_bytes, shape_of, spacing

Array = NDArray[Any]
FRESH = Fresh()


@dataclass(frozen=True, eq=False)
class NetworkTrace:
    """A forward pass of a network.

    Attributes
    ----------
    output : ndarray, shape (T, B, Q), (B, T, Q) with ``batch_first``, or (T, Q); or list of ndarray
        The readout after each step; 0 beyond a sequence's length. (B, Q), or (Q,), for a network that reads the end.
    hn : ndarray or tuple of ndarray
        The final state of the layer.
    layer : Trace
        The layer's own forward pass.
    """

    output: Any
    hn: Any
    layer: Trace
    rows: tuple[Rows, ...]
    readout_layout: tuple[Any, ...]
    readout_version: Version
    at: str

    def __repr__(self) -> str:
        return f"NetworkTrace(output {shape_of(self.output)}, {in_bytes(self.nbytes)}, layer={self.layer!r})"

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays, including the layer's."""
        return self.layer.nbytes + bytes_of(rows.flat for rows in self.rows[1:])


class Network(Parameterised):
    """A recurrent layer whose output goes through a readout at every step.

    Parameters
    ----------
    layer : RNN, LSTM or GRU
        The recurrent layer.
    readout : Readout or MLP
        What maps its output (``layer.output_size`` numbers, both directions together) to the network's (Q numbers).
    at : {"steps", "end"}, default "steps"
        Whether the readout gives an output after each step, or one for each sequence from ``trace.final_output``: the
        forward direction's last state beside the backward direction's.

    Attributes
    ----------
    layer, readout, at
        As given. Their parameters move into one vector, ``network.theta``; earlier views no longer belong to them.
    params : mapping
        All parameters, ``"layer.weight_ih_l0"``, ..., ``"readout.weight"``: live views into ``theta``.

    Raises
    ------
    ShapeError, ArgumentError
        If the sizes or dtypes of the two do not fit.
    DTypeError
        If they are not a recurrent layer and a readout.
    """

    trace_options = frozenset({"lengths", "reset", "training", "rng", "checkpoint", "buffers"})
    """Keywords of :meth:`trace` that training uses."""
    backward_options = frozenset({"d_states", "readout_only"})
    """Keywords of :meth:`backward` that training uses."""

    def __init__(self, layer: Recurrent, readout: Dense, *, at: str = "steps") -> None:
        if not isinstance(layer, Recurrent) or not isinstance(readout, Dense):
            raise DTypeError(
                "a network is a recurrent layer and a readout, such as Network(RNN(3, 20), Readout(20, 1)); got "
                f"{kind(layer)} and {kind(readout)}{model_cure(layer)}"
            )
        if readout.input_size != layer.output_size:
            raise ShapeError(
                f"the readout must read layer.output_size = {layer.output_size} numbers, but was made for "
                f"{readout.input_size}"
            )
        if readout.dtype != layer.dtype:
            raise ArgumentError(f"layer and readout must have one dtype, got {layer.dtype} and {readout.dtype}")
        self.layer, self.readout, self.at = layer, readout, choice(at, "at", ("steps", "end"))
        self._join()

    def _join(self) -> None:
        """Move the parameters of both parts into one vector."""
        parts = (("layer.", self.layer), ("readout.", self.readout))
        shapes = {prefix + name: shape for prefix, part in parts for name, shape in part.parameters.shapes.items()}
        self.parameters = Parameters(shapes, self.layer.dtype)
        at = 0
        for prefix, part in parts:
            part.parameters.move(self.parameters.theta[at : at + part.parameters.size], self.parameters, prefix)
            at += part.parameters.size

    def state_dict(self) -> StatedWeights:
        """Copies of all parameters by name."""
        self._check_parts()
        return super().state_dict()

    def load_state_dict(self, mapping: Mapping[str, ArrayLike]) -> None:
        """Set all parameters from arrays by name; see :meth:`RNN.load_state_dict`."""
        self._check_parts()
        super().load_state_dict(mapping)

    def _check_parts(self) -> None:
        """Refuse a part that now belongs to another network: its parameters are there, and those here are stale."""
        for name, part in (("layer", self.layer), ("readout", self.readout)):
            if part.parameters.owner is not self.parameters:
                raise ArgumentError(
                    f"the {name} of this network now belongs to another network; give each its own, "
                    "for example copy.deepcopy(layer)"
                )

    @property
    def bidirectional(self) -> bool:
        """Whether the layer reads its input backwards too."""
        return self.layer.bidirectional

    @property
    def batch_axis(self) -> int:
        """The axis of x that counts sequences."""
        return self.layer.batch_axis

    @property
    def time_axis(self) -> int:
        """The axis of x that counts steps."""
        return self.layer.time_axis

    def __call__(
        self, x: Any, h0: State | None = None, *, lengths: ArrayLike | None = None, reset: Any = None
    ) -> tuple[Any, Any]:
        """Evaluate the network.

        Parameters
        ----------
        x, h0, lengths, reset
            As for the layer.

        Returns
        -------
        output : ndarray, shape (T, B, Q), (B, T, Q) with ``batch_first``, or (T, Q); or list of ndarray
            The readout after each step; 0 beyond a sequence's length. (B, Q), or (Q,), with ``at="end"``.
        hn : ndarray or tuple of ndarray
            The final state, to continue from.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for the layer.
        """
        self._check_parts()
        batch = self.layer.batch(x, lengths, reset)
        hidden, hn = self.layer.evaluate(batch, h0)
        if self.at == "end":
            return self.readout(final_output(hn, self.layer.stack.per_layer)), hn
        if isinstance(hidden, list):
            return [self.readout(h) for h in hidden], hn
        output = self.readout(hidden)
        if batch.lengths is not None:
            batch.time_major(output)[~batch.valid] = 0
        return output, hn

    def trace(
        self, x: Any, state: State | None = None, *, lengths: ArrayLike | None = None, reset: Any = None,
        training: bool | None = None, rng: Any = None, checkpoint: bool | int = False, buffers: Buffers = FRESH,
    ) -> NetworkTrace:  # fmt: skip
        """Run the network and store what :meth:`backward` needs; arguments and errors as for :meth:`RNN.trace`."""
        self._check_parts()
        version = self.readout.parameters.version()
        trace = self.layer.trace(
            x, state, lengths=lengths, reset=reset, training=training, rng=rng, checkpoint=checkpoint,
            keep_output=self.at == "steps" or not spacing(checkpoint, 1), buffers=buffers,
        )  # fmt: skip
        batch, Q = trace.batch, self.readout.output_size
        rows = self.readout.rows_forward(self._hidden(trace), buffers)
        if self.at == "end":
            output = rows[-1].view(Q)[0] if batch.single else rows[-1].view(Q)
            return NetworkTrace(output, trace.hn, trace, rows, self.readout.layout, version, self.at)
        output = rows[-1].view(Q).reshape(batch.T, batch.B, Q)
        if batch.lengths is not None:
            output[~batch.valid] = 0
        return NetworkTrace(batch.outward(output), trace.hn, trace, rows, self.readout.layout, version, self.at)

    def _hidden(self, trace: Trace) -> Rows:
        """What the readout reads."""
        if self.at == "steps":
            return trace.rows
        final = np.ascontiguousarray(trace.final_output).reshape(-1)
        return Rows(final, self.layer.output_size, trace.batch.B)

    def backward(
        self, trace: NetworkTrace, d_output: Any, d_hn: State | None = None, *, need_x: bool = False,
        d_states: Any = None, readout_only: bool = False, buffers: Buffers = FRESH,
    ) -> Gradients:  # fmt: skip
        """Backpropagation through readout and time.

        Parameters
        ----------
        trace : NetworkTrace
            From :meth:`trace`; the parameters must not have changed since then: their bits are compared.
        d_output : array_like or list of array_like, shape of ``trace.output``
            ``dL/d output``; entries beyond a sequence's length are not read.
        d_hn : array_like, shape of ``trace.hn``, optional
            ``dL/d hn``; zero by default.
        need_x : bool, default False
            Whether to compute ``dL/dx``.
        d_states : array_like or list of array_like, shape of ``trace.layer.output``, optional
            A derivative with respect to the layer's output at every step, such as that of a penalty on activity, which
            is added to the gradient from the readout.
        readout_only : bool, default False
            Whether to stop at the readout: the gradients of the layer's parameters are then 0, those of x and h0 None,
            and ``state_norms`` has no steps.
        buffers : Buffers, optional
            Memory to reuse: the gradients are then overwritten by the next call with the same buffers.

        Returns
        -------
        Gradients
            With the names of ``network.params``.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for the layer.
        """
        self._check_parts()
        layer = self.layer
        if not isinstance(trace, NetworkTrace):
            raise DTypeError(f"trace must be what this network's trace() returned, got {type(trace).__name__}")
        if trace.at != self.at:
            raise ArgumentError(f"trace must be of a network that reads at={self.at!r}, got one of at={trace.at!r}")
        need_x = flag(need_x, "need_x")
        layer.check_trace(trace.layer)
        self.readout.check_trace(trace.readout_layout, trace.readout_version)
        d = self._inward(trace, d_output)
        d_state = layer.final_gradient(trace.layer, d_hn)
        theta = buffers.take("theta", self.parameters.size, self.dtype)
        n = layer.parameters.size
        d_rows = self.readout.rows_backward(trace.rows, d, theta[n:], buffers)
        if flag(readout_only, "readout_only"):
            return self._of_readout(trace, theta, n)
        at_end = self.at == "end"
        of_states = layer.output_gradient(trace.layer, d_states)
        if at_end:
            d_state = layer.spread_final(trace.layer, d_rows, d_state)
        elif of_states is not None:
            d_rows.view(layer.output_size)[...] += of_states.view(layer.output_size)
        grads = layer.backward_rows(
            trace.layer, of_states if at_end else d_rows, d_state, flag(need_x, "need_x"), buffers, theta[:n]
        )
        self._check_readout_gradient(theta[n:])
        return Gradients(self.parameters.view(theta), theta, grads.x, grads.h0, grads.state_norms)

    def _of_readout(self, trace: NetworkTrace, theta: Array, n: int) -> Gradients:
        """The gradient of the readout alone, from the ``n``-th number of ``theta`` on."""
        theta[:n] = 0
        self._check_readout_gradient(theta[n:])
        none = np.zeros((len(self.layer.stack.layouts), 0, trace.layer.batch.B))
        return Gradients(self.parameters.view(theta), theta, None, None, none)

    def _check_readout_gradient(self, gradient: Array) -> None:
        """Refuse a gradient that overflows."""
        if not all_finite(gradient):
            raise NonFiniteError(
                f"the gradient of the readout's parameters overflows in {self.dtype}; scale the loss down",
                what="gradient", layer="readout",
            )  # fmt: skip

    def _inward(self, trace: NetworkTrace, d_output: Any) -> Array:
        """Checked ``dL/d output`` as rows (n, Q), 0 in the padding."""
        batch, Q = trace.layer.batch, self.readout.output_size
        if self.at == "end":
            shape = trace.output.shape
            return matching(d_output, "d_output", shape, "that of trace.output", self.dtype).reshape(batch.B, Q)
        inward = batch.inward(d_output, "d_output", Q, self.dtype)
        if batch.lengths is not None:
            inward = np.where(batch.valid[..., None], inward, self.dtype.type(0))
        return inward.reshape(-1, Q)

    def linearize(self, x: Any, h0: State | None = None) -> LayerLinearization:
        """The tangent dynamics of the layer along the trajectories of x; see :meth:`RNN.linearize`."""
        self._check_parts()
        return self.layer.linearize(x, h0)

    def measure_gradient(self, x: Any, start: ArrayLike, h0: State | None = None) -> Array:
        """The true gradient by lag from ``start``; see :meth:`RNN.measure_gradient`."""
        self._check_parts()
        return self.layer.measure_gradient(x, start, h0)

    def loss_start(
        self, x: Any, y: ArrayLike | None = None, *, loss: str | Loss = "mse", h0: State | None = None,
        rng: Any = None, lin: LayerLinearization | None = None,
    ) -> Array:  # fmt: skip
        """Gradient of the loss at the last step with respect to the last state.

        Parameters
        ----------
        x, h0
            As for the layer.
        y : array_like, optional
            Targets of the last step (B, ...) or of every step. Without them, a random direction of the output replaces
            the loss: ``W_ho^T e`` for a linear readout, with normal e.
        loss : {"mse", "cross_entropy"} or object with ``value_and_gradient``
            The loss; see :func:`elman.fit`.
        rng : None, int or numpy.random.Generator
            Source of the random direction.
        lin : LayerLinearization, optional
            The result of :meth:`linearize` for the same x and h0, which saves a pass through the layer.

        Returns
        -------
        ndarray, shape (B, S)

        Raises
        ------
        ArgumentError
            If there is no last step, or ``lin`` was made with other weights.
        """
        self._check_parts()
        return last_state_start(self, x, y, loss, h0, rng, lin)

    def predict(self, x: Any, h0: State | None = None, *, lengths: ArrayLike | None = None, reset: Any = None) -> Any:
        """The output alone; arguments, shapes and errors as for calling the network."""
        return self(x, h0, lengths=lengths, reset=reset)[0]

    def predict_proba(
        self, x: Any, h0: State | None = None, *, lengths: ArrayLike | None = None, reset: Any = None
    ) -> Any:
        """Probabilities: the softmax of the output over its channels, or the logistic function of a single channel.

        For networks trained with ``"cross_entropy"``, and with ``"binary_cross_entropy"`` if there is one channel.
        Arguments and errors as for calling the network.

        Returns
        -------
        ndarray or list of ndarray
            Of the shape of the output.
        """
        output = self.predict(x, h0, lengths=lengths, reset=reset)
        function = softmax if self.readout.output_size > 1 else sigmoid
        return [function(each) for each in output] if isinstance(output, list) else function(output)

    def evaluate(
        self, x: Any, y: Any, metrics: Any = ("mse",), *, h0: State | None = None, lengths: ArrayLike | None = None,
        reset: Any = None, sample_weight: ArrayLike | None = None, missing: str = "refuse",
    ) -> dict[str, float]:  # fmt: skip
        """Metrics of the network on data, by name.

        Parameters
        ----------
        x, h0, lengths, reset
            As for calling the network.
        y : array_like or list of array_like
            Targets, as for :func:`elman.fit`: for every step, or for the last step of each sequence.
        metrics : str, callable, or sequence of these, default ("mse",)
            See :mod:`elman.metrics`.
        sample_weight : array_like, shape (B,) or that of the targets' positions, optional
            How much each sequence or each target counts, at least 0.
        missing : {"refuse", "ignore"}
            With ``"ignore"``, a target that is NaN does not count.

        Returns
        -------
        dict of str to float
            Each metric over all targets together.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If something does not fit, or a metric is unknown.
        NonFiniteError
            As for calling the network.

        Examples
        --------
        >>> import numpy as np, elman
        >>> net = elman.Network(elman.RNN(2, 8, rng=0), elman.Readout(8, 2, rng=0))
        >>> x = np.random.default_rng(0).standard_normal((10, 4, 2))
        >>> sorted(net.evaluate(x, x, metrics=("rmse", "r2")))
        ['r2', 'rmse']
        """
        return evaluated(self, x, y, metrics, h0, lengths, reset, sample_weight, missing)

    def stepper(self, batch_size: int = 1, h0: State | None = None) -> NetworkStepper:
        """Stream one step at a time with the present weights; arguments and errors as for :meth:`RNN.stepper`.

        Returns
        -------
        NetworkStepper
            To be called as ``y = stepper(x_t)``.
        """
        if self.at != "steps":
            raise ArgumentError('a network that reads the end of a sequence cannot stream: build it with at="steps"')
        self._check_parts()
        return NetworkStepper(self.layer.stepper(batch_size, h0), self.readout, batch_size)

    def generate(
        self, prefix: Any, steps: int, *, temperature: float | None = None, rng: Any = None, h0: State | None = None
    ) -> Array:
        """Continue a sequence, using each output as the next input.

        Parameters
        ----------
        prefix : array_like of float, shape of x; or of int, shape of x without its last axis
            The start of the sequence, at least one step: a series, for which outputs are forecasts of the next step, or
            tokens, which are encoded one-hot and drawn from the softmax of the output.
        steps : int
            Number of steps to add.
        temperature : float, optional
            For tokens: logits are divided by it before a token is drawn; 1 by default, 0 for the most likely token.
        rng : None, int or numpy.random.Generator
            For tokens: source of the draws.
        h0 : ndarray or tuple of ndarray, optional
            State before the prefix.

        Returns
        -------
        ndarray
            The continuation, with the axes of the prefix and ``steps`` steps.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            If the numbers of outputs and inputs differ, the network has no output at every step, or an argument does
            not fit.
        NonFiniteError
            If a state overflows.
        """
        return generated(self, prefix, steps, temperature, rng, h0)

    def one_way(self) -> dict[str, OneWay]:
        """Every direction of every layer as a system of its own; see :meth:`RNN.one_way`."""
        self._check_parts()
        return {name: OneWay(self, i) for i, name in enumerate(self.layer.one_way())}

    def measure_loss_gradient(
        self, x: Any, y: ArrayLike | None = None, *, loss: str | Loss = "mse", h0: State | None = None, rng: Any = None
    ) -> Array:
        """Log norms (T + 1, B) by lag of the gradient of the loss with respect to ``h`` of all directions together.

        Arguments as for :meth:`loss_start`; measured by :meth:`backward`, which refuses a gradient that overflows. With
        ``at="steps"``, entry k belongs to the time ``T - k``; with ``at="end"``, where the loss reads the end of every
        direction, it belongs to the state k steps before that end, in the order of each direction's reading.
        """
        return measured_loss(self, x, y, loss, h0, rng)

    def __repr__(self) -> str:
        at = "" if self.at == "steps" else f", at={self.at!r}"
        return f"Network({self.layer!r}, {self.readout!r}{at})"
