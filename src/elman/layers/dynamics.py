"""A recurrent layer as a dynamical system: the work of its methods of that kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..states import State
from ..validation.scalars import flag, index, size
from .stepper import Stepper
from .trace import Trace

if TYPE_CHECKING:
    from .recurrent import Recurrent

Array = NDArray[Any]


def weight_norms(layer: Recurrent, trace: Trace, d_output: Any, d_hn: State | None) -> Array:
    """Norms (layers * directions, T) of each step's term of dL/dW_hh: ``Recurrent.weight_norms``."""
    layer.check_trace(trace)
    plain = all(record.schedule.plain for record in trace.records)
    if not plain or (trace.noise is not None and trace.noise.recurrent[0] is not None):
        raise ArgumentError(
            "trace must be of sequences of one length, without restarts and recurrent dropout, for a step's term "
            "of the gradient to be one"
        )
    rows, d_state = layer.output_gradient(trace, d_output), layer.final_gradient(trace, d_hn)
    views = layer.parameters.view(np.empty_like(layer.theta))
    out = np.empty((len(layer.stack.directions), trace.batch.T))
    layer.stack.backward(layer.params, trace.records, trace.noise, rows, d_state, False, views, out)
    return out


def concatenated_weights(layer: Recurrent, which: int, reverse: bool) -> Array:
    """``[W_xh; W_hh]`` of one layer and direction: ``Recurrent.concatenated_weights``."""
    which = index(which, "layer", layer.num_layers)
    if flag(reverse, "reverse") and not layer.bidirectional:
        raise ArgumentError("reverse needs a bidirectional layer: it must be False for this one, got True")
    layout = layer.stack.layers[which][bool(reverse)].layout
    return np.concatenate([layer.params[layout.weight_ih].T, layer.params[layout.weight_hh].T])


def recurrent_matrices(layer: Recurrent) -> dict[str, Array]:
    """Each gate's recurrent matrix by name: ``Recurrent.recurrent_matrices``."""
    matrices = {}
    for layout in layer.stack.layouts:
        blocks = layer.params[layout.weight_hh].reshape(layout.n_gates, layout.H, layout.R)
        for gate, block in zip(layout.cell.gate_names, blocks, strict=True):
            matrices[gate + layout.suffix] = block @ layer.params[layout.weight_hr] if layout.cell.projects else block
    return matrices


def one_length(layer: Recurrent, x: Any, h0: State | None) -> Trace:
    """A trace of sequences of one length: ``Recurrent.one_length``."""
    trace = layer.trace(x, h0, training=False)
    if trace.batch.lengths is not None and (trace.batch.lengths != trace.batch.T).any():
        raise ArgumentError("x must be sequences of one length to be linearized, got a list of several lengths")
    return trace


def stepper(layer: Recurrent, batch_size: int, h0: State | None) -> Stepper:
    """Stream with the present weights: ``Recurrent.stepper``."""
    if layer.bidirectional:
        raise ArgumentError("a bidirectional layer cannot stream: its backward direction begins at the last step")
    layer.parameters.check_finite()
    B = size(batch_size, "batch_size")
    state = None if h0 is None else layer.states.inward(h0, "{}0", B, False)
    return Stepper(layer.stack.directions, layer.states, layer.params, B, state)
