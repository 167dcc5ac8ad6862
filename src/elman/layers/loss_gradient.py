"""The gradient of a network's loss: with respect to the last output, and its decay through all directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, NonFiniteError
from ..losses import Loss, broken, checked, get_loss
from ..norms import safe_norm
from ..states import State, parts
from ..targets import positions, target_axes
from ..validation.arrays import finite, plain, real_numbers
from ..validation.rng import generator
from ..validation.sequences import beside, holds
from .engine.batch import Batch
from .engine.buffers import Fresh
from .engine.linearize import LayerLinearization
from .engine.rows import Rows

if TYPE_CHECKING:
    from .network import Network

Array = NDArray[Any]
FRESH = Fresh()


def last_state_start(
    network: Network, x: Any, y: ArrayLike | None, loss: str | Loss, h0: State | None, rng: Any,
    lin: LayerLinearization | None,
) -> Array:  # fmt: skip
    """Gradient (B, S) of the loss at the last step with respect to the last state: ``Network.loss_start``."""
    layer, batch = network.layer, network.layer.batch(x)
    if layer.bidirectional:
        raise ArgumentError(
            "a bidirectional layer has no last state that a loss at the last step starts from; each direction of "
            "network.one_way() has its own"
        )
    uneven = batch.lengths is not None and (batch.lengths != batch.T).any()
    if uneven or batch.T == 0:
        raise ArgumentError(
            "sequences must have one length, of at least one step, to have a loss at the last one, got "
            + (f"lengths {batch.lengths}" if uneven else "T = 0")
        )
    if lin is not None:
        lin.check_weights(layer.params)
    last = np.atleast_2d(parts(layer.evaluate(batch, h0)[1])[0][-1]) if lin is None else lin.last_output()
    start = output_start(network, last, batch, y, loss, rng)
    sizes = [layout.state_size for layout in layer.stack.layouts]
    out, first = np.zeros((batch.B, sum(sizes)), network.dtype), sum(sizes[:-1])
    out[:, first : first + layer.output_size] = start
    return out


def output_start(network: Network, last: Array, batch: Batch, y: ArrayLike | None, loss: str | Loss, rng: Any) -> Array:
    """Gradient (B, R) of each sequence's loss with respect to its last output ``last`` (B, R) of the layer."""
    (B, R), readout = last.shape, network.readout
    rows = readout.rows_forward(Rows(np.ascontiguousarray(last).reshape(-1), R, B), FRESH, readout.packed())
    d = _of_loss(network, rows[-1].view(readout.output_size), batch, y, loss, rng)
    start: Array = readout.rows_backward(rows, d, np.empty(readout.parameters.size, network.dtype), FRESH).view(R)
    return start


def _of_loss(network: Network, output: Array, batch: Batch, y: ArrayLike | None, loss: str | Loss, rng: Any) -> Array:
    """Gradient of each sequence's loss with respect to its last output (B, Q); without labels, a random direction."""
    B, Q = output.shape
    if y is None:
        return generator(rng).standard_normal((B, Q)).astype(network.dtype)
    loss = get_loss(loss)
    target = real_numbers(_last_targets(y, target_axes(loss), batch), "y")
    if target.dtype.kind == "f":
        finite(target, "y")
    value, d_output = checked(loss, output.copy(), target)
    if np.isfinite(output).all() and (words := broken(loss, value, d_output, output)):
        raise NonFiniteError(words, what="loss")
    # a loss averages over the batch: times B, each sequence has the gradient of its own loss
    return B * d_output


def _last_targets(y: Any, axes: int, batch: Batch) -> Array:
    """Targets (B, ...) of the last step, from targets of the last or of every step; sequences of one length."""
    time = 1 if batch.batch_first and not batch.single else 0
    if holds(y, 1 + axes):
        y = beside([plain(item, f"y[{i}]") for i, item in enumerate(y)], 1 - time, "y")
    y = plain(y, "y")
    leading = positions(y.shape, "y", batch.leading, () if batch.single else (batch.B,), axes)
    last: Array = y.take(-1, axis=time) if leading == batch.leading else y
    return last[None] if batch.single else last


def measured_loss(network: Network, x: Any, y: ArrayLike | None, loss: str | Loss, h0: State | None, rng: Any) -> Array:
    """Log norms (T + 1, B) of the gradient of the loss; see :meth:`elman.Network.measure_loss_gradient`."""
    trace, layer = network.trace(x, h0, training=False), network.layer
    batch, at_end = trace.layer.batch, network.at == "end"
    output = np.atleast_2d(trace.output) if at_end else batch.time_major(trace.output)[-1]
    d = _of_loss(network, np.ascontiguousarray(output), batch, y, loss, rng)
    if not at_end:
        every = np.zeros((batch.T, *d.shape), network.dtype)
        every[-1] = d
        d = batch.outward(every)
    grads = network.backward(trace, d[0] if at_end and batch.single else d)
    of_h0 = parts(grads.h0)[0]
    norms = np.zeros((batch.T + 1, batch.B))
    for direction, own, first in zip(layer.stack.directions, grads.state_norms, of_h0, strict=True):
        backwards = bool(direction.reverse)
        # hypot, because its squares neither underflow nor overflow
        norms[:-1] = np.hypot(norms[:-1], own if backwards and at_end else own[::-1])
        if at_end or not backwards:  # else the initial state lies beyond the loss
            norms[-1] = np.hypot(norms[-1], safe_norm(first.reshape(batch.B, -1)))
    with np.errstate(divide="ignore"):
        out: Array = np.log(norms)
    return out
