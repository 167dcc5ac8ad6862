"""The gradient of a network's loss: where it enters the last output, and how it fades through all directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ShapeError
from .affine import Rows
from .buffers import Fresh
from .losses import Loss, get_loss
from .states import State

if TYPE_CHECKING:
    from .network import Network

Array = NDArray[Any]
FRESH = Fresh()


def output_start(
    network: Network, last: Array, T: int, y: ArrayLike | None, loss: str | Loss, rng: Any, single: bool = False
) -> Array:
    """Gradient (B, R) of each sequence's loss with respect to its last output ``last`` (B, R) of the layer."""
    (B, R), readout = last.shape, network.readout
    rows = readout.rows_forward(Rows(np.ascontiguousarray(last).reshape(-1), R, B), FRESH)
    d = _of_loss(network, rows[-1].view(readout.output_size), T, y, loss, rng, single)
    start: Array = readout.rows_backward(rows, d, np.empty(readout.parameters.size, network.dtype), FRESH).view(R)
    return start


def _of_loss(
    network: Network, output: Array, T: int, y: ArrayLike | None, loss: str | Loss, rng: Any, single: bool
) -> Array:
    """Gradient of each sequence's loss with respect to its last output (B, Q); without labels a random one."""
    B, Q = output.shape
    if y is None:
        return np.random.default_rng(rng).standard_normal((B, Q)).astype(network.dtype)
    loss, labels = get_loss(loss), np.asarray(y)
    axes = 1 + getattr(loss, "target_axes", 1)
    target = _last_targets(labels, axes, (T, B), single, network.layer.batch_first)
    # a loss averages over the batch: B sequences see the gradient of their own loss
    return B * np.asarray(loss.value_and_gradient(output.copy(), target)[1], network.dtype)


def _last_targets(y: Array, last_axes: int, every: tuple[int, int], single: bool, batch_first: bool) -> Array:
    """Targets (B, ...) of the last step, from targets of that step, with ``last_axes`` axes, or of every step."""
    T, B = every
    if single:
        y = y[None] if y.ndim < last_axes else y[:, None]
    elif y.ndim > last_axes and batch_first:
        y = y.swapaxes(0, 1)
    wanted = every if y.ndim > last_axes else (B,)
    if y.ndim not in (last_axes, last_axes + 1) or y.shape[: len(wanted)] != wanted:
        raise ShapeError(
            f"y must have the leading axes {(T, B)} (every step, as x has them) or {(B,)} (the last step), "
            f"got {y.shape}"
        )
    return y[-1] if y.ndim > last_axes else y


def measured_loss(network: Network, x: Any, y: ArrayLike | None, loss: str | Loss, h0: State | None, rng: Any) -> Array:
    """Log norms (T + 1, B) of the gradient of the loss; see :meth:`elman.Network.measure_loss_gradient`."""
    trace, layer = network.trace(x, h0, training=False), network.layer
    batch, at_end = trace.layer.batch, network.at == "end"
    output = np.atleast_2d(trace.output) if at_end else batch.inside_out(trace.output)[-1]
    d = _of_loss(network, np.ascontiguousarray(output), batch.T, y, loss, rng, batch.single)
    if not at_end:
        every = np.zeros((batch.T, *d.shape), network.dtype)
        every[-1] = d
        d = batch.outward(every)
    grads = network.backward(trace, d[0] if at_end and batch.single else d)
    of_h0 = grads.h0[0] if isinstance(grads.h0, tuple) else grads.h0
    squares = np.zeros((batch.T + 1, batch.B))
    for direction, own, first in zip(layer.stack.directions, grads.state_norms, of_h0, strict=True):
        backwards = bool(direction.reverse)
        squares[:-1] += np.square(own if backwards and at_end else own[::-1])
        if at_end or not backwards:  # else the initial state stands beyond the loss
            squares[-1] += np.square(first.reshape(batch.B, -1).astype(np.float64)).sum(axis=1)
    with np.errstate(divide="ignore"):
        out: Array = 0.5 * np.log(squares)
    return out
