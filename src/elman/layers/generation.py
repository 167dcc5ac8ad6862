"""A trained network in use: one step at a time, and with its own outputs as inputs."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..functional import softmax
from ..kernels.activations import activate_rows
from ..kernels.tile import affine
from ..states import State
from ..validation.arrays import plain
from ..validation.rng import generator
from ..validation.scalars import at_least_zero, size
from .dense import Dense
from .fixed import Fixed
from .stepper import Stepper

if TYPE_CHECKING:
    from .network import Network

Array = NDArray[Any]


class NetworkStepper(Fixed):
    """A network run step by step: the same bits as one call over the whole sequence.

    It uses a snapshot of the weights; make a new stepper after changing them. Do not use one from several threads.

    Attributes
    ----------
    state : ndarray or tuple of ndarray
        A copy of the layer's present state, to continue from.
    """

    def __init__(self, layer: Stepper, readout: Dense, B: int) -> None:
        self._layer, self._B = layer, B
        self._head = _Head(readout, B)

    def __copy__(self) -> NetworkStepper:
        """Make a deep copy: two steppers that wrote to the same memory would disturb each other."""
        return deepcopy(self)

    def __repr__(self) -> str:
        return f"NetworkStepper({self._layer!r}, output_size={self._head.Q})"

    def __call__(self, x_t: ArrayLike) -> Array:
        """Advance by one step.

        Parameters
        ----------
        x_t : array_like, shape (B, D), or (D,) if B is 1
            This step's input.

        Returns
        -------
        ndarray, shape (B, Q), or (Q,)
            This step's output, in memory that the next step overwrites: copy it to keep it.

        Raises
        ------
        ShapeError, DTypeError, NonFiniteError
            As for :class:`elman.layers.stepper.Stepper`; the state is then not changed.
        """
        h = self._layer(x_t)
        return self._head(h)[0] if h.ndim == 1 else self._head(h)

    @property
    def state(self) -> State:
        """A copy of the layer's present state."""
        return self._layer.state


class _Head:
    """A readout whose weights are packed, with memory for B rows of each of its maps."""

    def __init__(self, readout: Dense, B: int) -> None:
        self.B, self.Q, self._code = B, readout.output_size, getattr(readout, "_code", None)
        self._maps = []
        for (maps, *_), packed in zip(readout._maps, readout.packed(), strict=True):
            rows = np.zeros(B * maps.stride, maps.dtype)
            self._maps.append((maps.K, maps.vectors, maps.stride, np.copy(packed.P), np.copy(packed.bias), rows))

    def __call__(self, h: Array) -> Array:
        """The output (B, Q) for rows h (B, H) or (H,)."""
        a, a_rs, last = np.ascontiguousarray(h).reshape(-1), h.shape[-1], len(self._maps) - 1
        for i, (K, vectors, stride, P, bias, rows) in enumerate(self._maps):
            affine(a, a_rs, P, K, vectors, bias, rows, stride, 0, self.B)
            if i < last:
                activate_rows(self._code, rows, stride, self.B, vectors)
            a, a_rs = rows, stride
        return a.reshape(self.B, -1)[:, : self.Q]


def generated(
    network: Network, prefix: Any, steps: int, temperature: float | None, rng: Any, h0: State | None
) -> Array:
    """The continuation of a prefix: ``Network.generate``."""
    steps, D, Q = size(steps, "steps", 0), network.layer.input_size, network.readout.output_size
    if network.at != "steps":
        raise ArgumentError('generate needs a network that gives an output at every step, at="steps"')
    if D != Q:
        raise ArgumentError(
            f"generate feeds outputs back as inputs: the network must have as many outputs as inputs, got {Q} and {D}"
        )
    given = plain(prefix, "prefix")
    tokens = given.dtype.kind in "iu"
    if not tokens and temperature is not None:
        raise ArgumentError("temperature is for tokens: leave it out where prefix is a series of real numbers")
    if tokens:
        given = one_hot(given, D, network.dtype)
    single = given.ndim == 2
    if single:
        given = np.expand_dims(given, network.batch_axis)
    if given.ndim != 3 or not given.shape[network.time_axis]:
        raise ShapeError(f"prefix must have at least one step and the axes of x, got shape {np.shape(prefix)}")
    output, hn = network(given, h0)
    last = np.ascontiguousarray(np.moveaxis(output, network.time_axis, 0)[-1])
    stepper = network.stepper(len(last), hn)
    sample = _sampler(temperature, generator(rng)) if tokens else None
    made = _run(stepper, last, steps, sample, D)
    made = made[:, 0] if single else np.moveaxis(made, 0, network.time_axis)
    return np.ascontiguousarray(made)


def _run(stepper: NetworkStepper, output: Array, steps: int, sample: Any, D: int) -> Array:
    """Feed outputs back: values (steps, B, D), or tokens (steps, B)."""
    made = []
    for i in range(steps):
        token = output.copy() if sample is None else sample(output)
        made.append(token)
        if i < steps - 1:
            output = stepper(token if sample is None else one_hot(token, D, output.dtype))
    if made:
        return np.stack(made)
    return np.zeros((0, *output.shape), output.dtype) if sample is None else np.zeros((0, len(output)), np.intp)


def _sampler(temperature: float | None, rng: np.random.Generator) -> Any:
    """A function that draws tokens (B,) from logits (B, Q)."""
    t = 1.0 if temperature is None else at_least_zero(temperature, "temperature")

    def sample(logits: Array) -> Array:
        if t == 0.0:
            return logits.argmax(axis=-1)
        edges = softmax(logits.astype(np.float64) / t).cumsum(axis=-1)
        drawn = rng.random(len(logits))[:, None] * edges[:, -1:]
        return np.minimum((edges <= drawn).sum(axis=-1), logits.shape[-1] - 1)

    return sample


def one_hot(tokens: Array, size: int, dtype: Any) -> Array:
    """Tokens as rows with a single 1.

    Raises
    ------
    ArgumentError, DTypeError
        If one is not in ``0 .. size - 1``, or they are not integers.
    """
    if tokens.dtype.kind not in "iu":
        raise DTypeError(f"tokens must be integers, got {tokens.dtype}")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < size):
        raise ArgumentError(f"tokens must lie in 0 .. {size - 1}, got {tokens.min()} .. {tokens.max()}")
    out = np.zeros((*tokens.shape, size), dtype)
    np.put_along_axis(out, tokens[..., None].astype(np.intp), 1, axis=-1)
    return out
