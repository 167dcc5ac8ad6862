"""Layers without recurrence: the linear readout, and the perceptron with one hidden layer that the recurrence grows
out of.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..errors import ArgumentError, NonFiniteError, ShapeError
from ..initializers import Initializer, by_name
from ..kernels.activations import NONLINEARITIES, activate_rows, scale_rows
from ..validation.arrays import all_finite, finite_floats, matching, plain
from ..validation.rng import generator
from ..validation.scalars import choice, flag, real_dtype, size
from .engine.affine import Affine, Packed
from .engine.buffers import Buffers, Fresh, scratch
from .engine.kept import Kept, Version
from .engine.rows import Rows
from .parameters import Parameterised, Parameters
from .ridge import ReadoutSolution, rows_of, solve, strengths
from .trace import bytes_of, in_bytes

Array = NDArray[Any]
FRESH = Fresh()


@dataclass(frozen=True, eq=False)
class DenseTrace:
    """A forward pass of a dense layer.

    Attributes
    ----------
    output : ndarray, shape (..., output_size)
    hidden : ndarray, shape (..., hidden_size), or None
        Activations of the hidden layer, if there is one.
    hn : None
        Such a layer has no state.
    """

    output: Array
    hidden: Array | None
    rows: tuple[Rows, ...]
    layout: tuple[Any, ...]
    version: Version
    hn: None = None

    def __repr__(self) -> str:
        hidden = "" if self.hidden is None else f"hidden {self.hidden.shape}, "
        return f"DenseTrace(output {self.output.shape}, {hidden}{in_bytes(self.nbytes)})"

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays, including those of the input."""
        return bytes_of(rows.flat for rows in self.rows)


@dataclass(frozen=True, eq=False)
class DenseGradients:
    """Gradients of a dense layer.

    Attributes
    ----------
    params : mapping of str to ndarray
        By parameter name: views into ``theta``.
    theta : ndarray
        As one vector, aligned with the layer's ``theta``.
    x : ndarray
        With respect to the input, and of the same shape.
    """

    params: Mapping[str, Array]
    theta: Array
    x: Array

    def __repr__(self) -> str:
        return f"DenseGradients({', '.join(self.params)}; x {self.x.shape})"


class Dense(Parameterised):
    """Base class of layers that treat every row of their input alike.

    Attributes
    ----------
    batch_axis : int
        0: training draws samples along the first axis.
    time_axis : None
        There is no such axis.
    """

    trace_options = frozenset({"buffers"})
    """Keywords of :meth:`trace` that training uses."""

    batch_axis = 0
    time_axis = None
    input_size: int
    output_size: int
    _maps: tuple[tuple[Affine, str, str, str], ...]
    """Each linear map with the names of its weight, its bias and its rows."""
    _kept: Kept[list[Packed]]

    @abstractmethod
    def rows_forward(self, a: Rows, buffers: Buffers, packed: list[Packed] | None = None) -> tuple[Rows, ...]:
        """All rows from the input on; the last are the output. ``packed`` is the result of :meth:`packed`, if any."""

    @abstractmethod
    def rows_backward(self, rows: tuple[Rows, ...], d: Array, theta: Array, buffers: Buffers) -> Rows:
        """Write the parameters' gradient to ``theta``; return that of the input. ``d`` is (n, Q)."""

    def packed(self) -> list[Packed]:
        """The packed weights of all maps, reused as long as the weights do not change.

        Raises
        ------
        NonFiniteError
            If a parameter is not finite.
        """
        return self._kept.get(self.theta, self._pack)

    def _pack(self) -> list[Packed]:
        self.parameters.check_finite()
        return [affine.pack(self.params[W], self.params.get(b), FRESH) for affine, W, b, _ in self._maps]

    def _map(self, i: int, a: Rows, buffers: Buffers, packed: list[Packed] | None) -> Rows:
        """Rows through the i-th map."""
        affine, W, b, name = self._maps[i]
        weights = affine.pack(self.params[W], self.params.get(b), scratch()) if packed is None else packed[i]
        return affine.apply(weights, a, name, buffers)

    def __call__(self, x: ArrayLike) -> Array:
        """Apply the layer to the last axis.

        Parameters
        ----------
        x : array_like, shape (..., input_size)

        Returns
        -------
        ndarray, shape (..., output_size)

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If x does not fit.
        NonFiniteError
            If a parameter is not finite.
        """
        a, lead = self._rows(x)
        return self._output(self.rows_forward(a, FRESH, self.packed())[-1], lead)

    def trace(self, x: ArrayLike, state: None = None, *, buffers: Buffers = FRESH) -> DenseTrace:
        """Apply the layer and store what :meth:`backward` needs; arguments and errors as for calling it."""
        a, lead = self._rows(x)
        version = self.parameters.version()
        rows = self.rows_forward(a, buffers)
        hidden = rows[1].view(self.hidden_size).reshape(*lead, self.hidden_size) if len(rows) > 2 else None
        return DenseTrace(self._output(rows[-1], lead), hidden, rows, self.layout, version)

    def _rows(self, x: ArrayLike) -> tuple[Rows, tuple[int, ...]]:
        """Checked input as rows, and its leading axes."""
        given = plain(x, "x")
        if given.ndim == 0 or given.shape[-1] != self.input_size:
            raise ShapeError(
                f"x must have input_size = {self.input_size} numbers in its last axis, got shape {given.shape}"
            )
        a = finite_floats(given, "x", self.dtype)
        lead = a.shape[:-1]
        return Rows(a.reshape(-1), self.input_size, math.prod(lead)), lead

    def _output(self, rows: Rows, lead: tuple[int, ...]) -> Array:
        return np.ascontiguousarray(rows.view(self.output_size)).reshape(*lead, self.output_size)

    hidden_size: int

    @property
    def layout(self) -> tuple[Any, ...]:
        """Kind, sizes and dtype: a trace can be read by a layer for which they are the same."""
        return type(self).__name__, self.input_size, self.hidden_size, self.output_size, self.dtype

    def check_trace(self, layout: tuple[Any, ...], version: Version) -> None:
        """Refuse rows with other weights, or of a layer of other sizes, beyond whose arrays compiled code would read.

        Raises
        ------
        ArgumentError
            With both layers, or the parameter that differs.
        """
        if layout != self.layout:
            raise ArgumentError(f"trace must be of this layer, {self.layout}; it was made by {layout}")
        self.parameters.check_version(version)

    def backward(self, trace: DenseTrace, d_output: ArrayLike, *, buffers: Buffers = FRESH) -> DenseGradients:
        """Gradients from ``d_output``, shaped as ``trace.output``; ``buffers`` as for :meth:`trace`.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If d_output does not fit, or the trace was made with other weights or by a layer of other sizes.
        NonFiniteError
            If a gradient overflows.
        """
        self.check_trace(trace.layout, trace.version)
        d = matching(d_output, "d_output", trace.output.shape, "that of trace.output", self.dtype)
        theta = buffers.take("theta", self.parameters.size, self.dtype)
        d_x = self.rows_backward(trace.rows, d.reshape(trace.rows[0].n, self.output_size), theta, buffers)
        x = np.ascontiguousarray(d_x.view(self.input_size)).reshape(*d.shape[:-1], self.input_size)
        if not (all_finite(theta) and all_finite(x)):
            raise NonFiniteError(
                f"{type(self).__name__}: the gradient overflows in {self.dtype}; scale the loss or the input down",
                what="gradient", layer=type(self).__name__,
            )  # fmt: skip
        return DenseGradients(self.parameters.view(theta), theta, x)


class Readout(Dense):
    """A linear readout: ``y = W h + b``.

    Parameters
    ----------
    hidden_size, output_size : int
        Sizes of its input and output.
    bias : bool, default True
        Whether there is a ``bias``.
    dtype : {"float64", "float32"}
        Type of parameters and results.
    weight_init : str or callable, default "glorot"
        See :mod:`elman.initializers`.
    rng : None, int or numpy.random.Generator
        Source of the initial weights.

    Attributes
    ----------
    params : mapping
        ``weight`` (output_size, hidden_size), ``bias`` (output_size,): live views.
    """

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        *,
        bias: bool = True,
        dtype: DTypeLike = "float64",
        weight_init: str | Initializer = "glorot",
        rng: Any = None,
    ) -> None:
        self.input_size = self.hidden_size = size(hidden_size, "hidden_size")
        self.output_size = size(output_size, "output_size")
        self._affine = Affine(self.input_size, self.output_size, real_dtype(dtype))
        self._maps, self._kept = ((self._affine, "weight", "bias", "readout"),), Kept()
        shapes: dict[str, tuple[int, ...]] = {"weight": (self.output_size, self.input_size)}
        self.bias = flag(bias, "bias")
        if self.bias:
            shapes["bias"] = (self.output_size,)
        self.parameters = Parameters(shapes, real_dtype(dtype))
        weight = self.parameters["weight"]
        weight[...] = by_name(weight_init, "weight_init")(weight.shape, generator(rng))

    def rows_forward(self, a: Rows, buffers: Buffers, packed: list[Packed] | None = None) -> tuple[Rows, ...]:
        """Rows of input and output."""
        return a, self._map(0, a, buffers, packed)

    def rows_backward(self, rows: tuple[Rows, ...], d: Array, theta: Array, buffers: Buffers) -> Rows:
        """Gradient of the input; see :class:`Dense`."""
        views = self.parameters.view(theta)
        delta = self._affine.place(d, "d_readout", buffers)
        self._affine.gradients(rows[0], delta, views["weight"], views.get("bias"))
        return self._affine.input_gradient(self.params["weight"], delta, "d_readout_input", buffers)

    def solve(
        self, states: Any, y: Any, *, ridge: Any = None, washout: int = 0, batch_first: bool = False
    ) -> ReadoutSolution:
        """Set weight and bias by ridge regression: one least-squares solution, without training.

        With the states of an untrained layer this is an echo state network (Jaeger 2001). If anything fails, nothing is
        changed.

        Parameters
        ----------
        states : array_like, shape (T, H), (T, N, H), or (N, T, H) with ``batch_first``; or list of (T_i, H)
            What the readout reads: the output of the layer below.
        y : array_like, shape of ``states`` with Q instead of H
            What it should return.
        ridge : float or sequence of float, optional
            Strength of the penalty ``ridge |W|**2``, without the bias, added to the sum of squares over all rows; 0 is
            plain least squares, with the smallest weights if there are several solutions. From a sequence, each target
            takes the strength with the smallest leave-one-out error, in closed form; by default from 33 between 1e-14
            and 100 in units of the largest squared singular value of the states. Neighbouring steps of a series
            resemble each other, so that this error is too small for it, and the ridge may be: compare on held-out data.
        washout : int, default 0
            Number of steps at the start of each sequence that are left out, because the state still depends on its
            initial value.
        batch_first : bool, default False
            Whether sequences come before steps in arrays of three axes.

        Returns
        -------
        ReadoutSolution
            Strengths, errors and effective numbers of weights.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If the arrays do not fit each other or the readout, or hold a number that is not finite.
        NonFiniteError
            If the weights overflow the dtype of the readout.
        """
        batch_first = flag(batch_first, "batch_first")
        rows = rows_of(states, y, self.input_size, self.output_size, size(washout, "washout", 0), batch_first)
        W, b, solution = solve(*rows, strengths(ridge), "bias" in self.params)
        with np.errstate(over="ignore"):
            theta = np.concatenate([W.ravel(), b if "bias" in self.params else b[:0]]).astype(self.dtype)
        if not all_finite(theta):
            raise NonFiniteError(
                f"the weights overflow {self.dtype}: scale states and y, or give a larger ridge", what="parameter"
            )
        self.theta[...] = theta
        return solution

    def __repr__(self) -> str:
        return f"Readout({self.input_size}, {self.output_size}, bias={self.bias}, dtype={self.dtype.name!r})"


class MLP(Dense):
    r"""A perceptron with one hidden layer: :math:`h = \phi(W_{ih} x + b_{ih})`, :math:`y = W_{ho} h + b_{ho}`.

    An Elman network with ``W_hh = 0`` computes the same at each step. It may be used alone or as the nonlinear readout
    of a network.

    Parameters
    ----------
    input_size, hidden_size, output_size : int
        Sizes.
    nonlinearity : {"tanh", "relu", "sigmoid", "identity"}
        The function :math:`\phi`.
    dtype : {"float64", "float32"}
        Type of parameters and results.
    rng : None, int or numpy.random.Generator
        Source of the initial weights (Glorot uniform; biases zero).

    Attributes
    ----------
    params : mapping
        ``weight_ih`` (hidden, input), ``bias_ih`` (hidden,), ``weight_ho`` (output, hidden), ``bias_ho`` (output,):
        live.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int,
        nonlinearity: str = "tanh",
        *,
        dtype: DTypeLike = "float64",
        rng: Any = None,
    ) -> None:
        self.input_size = size(input_size, "input_size", least=0)
        self.hidden_size = size(hidden_size, "hidden_size")
        self.output_size = size(output_size, "output_size")
        self.nonlinearity = choice(nonlinearity, "nonlinearity", NONLINEARITIES)
        self._code = NONLINEARITIES.index(nonlinearity)
        kind = real_dtype(dtype)
        self._hidden = Affine(self.input_size, self.hidden_size, kind)
        self._readout = Affine(self.hidden_size, self.output_size, kind)
        self._maps = (
            (self._hidden, "weight_ih", "bias_ih", "mlp_hidden"),
            (self._readout, "weight_ho", "bias_ho", "mlp_output"),
        )
        self._kept = Kept()
        self.parameters = Parameters(
            {
                "weight_ih": (self.hidden_size, self.input_size),
                "bias_ih": (self.hidden_size,),
                "weight_ho": (self.output_size, self.hidden_size),
                "bias_ho": (self.output_size,),
            },
            kind,
        )
        rng = generator(rng)
        for name in ("weight_ih", "weight_ho"):
            self.parameters[name][...] = by_name("glorot", name)(self.parameters[name].shape, rng)

    def rows_forward(self, a: Rows, buffers: Buffers, packed: list[Packed] | None = None) -> tuple[Rows, ...]:
        """Rows of input, hidden layer and output."""
        h = self._map(0, a, buffers, packed)
        if h.n:
            activate_rows(self._code, h.flat, h.stride, h.n, self._hidden.vectors)
        return a, h, self._map(1, h, buffers, packed)

    def rows_backward(self, rows: tuple[Rows, ...], d: Array, theta: Array, buffers: Buffers) -> Rows:
        """Gradient of the input; see :class:`Dense`."""
        a, h, _ = rows
        p, views = self.params, self.parameters.view(theta)
        delta = self._readout.place(d, "d_mlp_output", buffers)
        self._readout.gradients(h, delta, views["weight_ho"], views["bias_ho"])
        d_h = self._readout.input_gradient(p["weight_ho"], delta, "d_mlp_hidden", buffers)
        if h.n:
            squares = scratch().take("mlp_squares", h.n, np.dtype(np.float64))
            scale_rows(self._code, h.flat, d_h.flat, h.stride, h.n, self._hidden.vectors, squares)
        self._hidden.gradients(a, d_h, views["weight_ih"], views["bias_ih"])
        return self._hidden.input_gradient(p["weight_ih"], d_h, "d_mlp_input", buffers)

    def __repr__(self) -> str:
        sizes = f"{self.input_size}, {self.hidden_size}, {self.output_size}"
        return f"MLP({sizes}, {self.nonlinearity!r}, dtype={self.dtype.name!r})"
