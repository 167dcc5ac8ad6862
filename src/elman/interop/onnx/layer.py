"""The result of reading an ONNX model: a layer, and what the graph states besides its weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import ArgumentError
from ...layers import GRU, LSTM, RNN
from ...layers.engine.batch import Batch
from ...states import mapped, parts
from ...validation.arrays import plain
from ...validation.sequences import is_list

Array = NDArray[Any]
Layer = RNN | LSTM | GRU


@dataclass(frozen=True, eq=False)
class OnnxLayer:
    """A layer, and what its nodes state besides the weights.

    An ONNX node may contain initial states, lengths and a direction, which in elman belong to the call. Called as a
    layer, this object fills them in, so that it computes what the nodes compute. If you use ``layer`` alone, for
    training or diagnosis, you must pass them yourself.

    Attributes
    ----------
    layer : RNN, LSTM or GRU
        The layer, with ``batch_first`` if the node has layout 1, or if its input was only transposed from (B, T, D) to
        (T, B, D).
    nodes : tuple of str
        Names of the nodes, from the first layer to the last.
    inputs : dict of str to str
        For ``x``, and for ``h0``, ``c0``, ``lengths`` if they are not constant: the name of the tensor in the graph
        that the numbers come from; for states possibly several, separated by commas, to be joined along the axis of
        directions. These must be given at the call, in the layer's order of axes.
    h0 : ndarray (num_layers * num_directions, B, H), tuple of two for an LSTM, or None
        Constant initial state, used if the call gives none; with B = 1 it is repeated. None: zero.
    lengths : ndarray (B,) or None
        Constant lengths, used if the call gives none.
    reverse : bool
        Whether the nodes run from the end of each sequence to its start. elman has no such layer: ``layer`` runs
        forward, and this object reverses x and the output.
    branches : dict of str to str
        For each ``If`` that contained the nodes, by its name, the branch taken; ``"either"`` if both are the same.
    """

    layer: Layer
    nodes: tuple[str, ...]
    inputs: dict[str, str] = field(repr=False)
    h0: Any = field(default=None, repr=False)
    lengths: Array | None = field(default=None, repr=False)
    reverse: bool = False
    branches: dict[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, x: ArrayLike, h0: Any = None, *, lengths: ArrayLike | None = None) -> tuple[Array, Any]:
        """Compute what the nodes compute.

        Parameters
        ----------
        x, h0, lengths
            As for calling the layer; if h0 or lengths is not given, the constant of the graph is used, if there is one.
            What ``inputs`` names must be given; a list of sequences determines its lengths.

        Returns
        -------
        output : ndarray, shape (T, B, num_directions * H), or (B, T, num_directions * H) with ``batch_first``
            Y of the last node, with its axes of directions and units merged.
        hn : ndarray, shape (num_layers * num_directions, B, H); for an LSTM the tuple (hn, cn)
            Y_h and Y_c of all nodes. For a sequence of length 0, which the operators' description does not cover, the
            initial state; onnxruntime returns zero.

        Raises
        ------
        ArgumentError
            If h0 or lengths is left out although the graph reads it from a tensor; see ``inputs``.
        ShapeError, DTypeError, ArgumentError, NonFiniteError
            As for calling the layer.
        """
        self._require(x, h0, lengths)
        lengths = self.lengths if lengths is None else lengths
        if self.reverse or (h0 is None and self.h0 is not None):
            batch = self.layer.batch(x, lengths)
            h0 = self._initial(batch) if h0 is None else h0
        if not self.reverse:
            return self.layer(x, h0, lengths=lengths)
        output, hn = self.layer(_turned(x, batch), h0, lengths=lengths)
        return _turned(output, batch), hn

    def _require(self, x: Any, h0: Any, lengths: Any) -> None:
        """Refuse a call without what the graph reads: zero states or full lengths would be another computation."""
        states = [name for name in ("h0", "c0") if name in self.inputs]
        if h0 is None and states:
            origin = " and ".join(f"{name} from tensor {self.inputs[name]!r}" for name in states)
            raise ArgumentError(
                f"h0 must be given{', as the tuple (h0, c0)' if isinstance(self.layer, LSTM) else ''}: the graph reads "
                f"{origin}; got None. Give zeros to start from zero"
            )
        if lengths is None and "lengths" in self.inputs and not is_list(x):
            raise ArgumentError(
                f"lengths must be given: the graph reads them from tensor {self.inputs['lengths']!r}; got None. Give "
                "the number of steps of x for each sequence if all have all of them"
            )

    def _initial(self, batch: Batch) -> Any:
        """The constant initial state, with one row repeated for every sequence."""
        fitted = mapped(lambda h: np.repeat(h, batch.B, axis=1) if h.shape[1] == 1 else h, self.h0)
        return mapped(lambda h: h[:, 0] if h.shape[1] == 1 else h, fitted) if batch.single else fitted

    def __str__(self) -> str:
        names = ("h0", "c0") if isinstance(self.layer, LSTM) else ("h0",)
        states = parts(self.h0) or (None,) * len(names)
        lines = [f"OnnxLayer: {self.layer!r}", f"  nodes    {', '.join(self.nodes)}"]
        lines += [f"  branch   {branch} of If {name!r}" for name, branch in self.branches.items()]
        if self.reverse:
            lines.append("  reverse  call this object, or give the layer x turned in time and turn its output")
        constants = dict(zip(names, states, strict=True)) | {"lengths": self.lengths}
        for name in ("x", *constants):
            value = constants.get(name)
            if name in self.inputs:
                told = f"tensor {self.inputs[name]!r} of the graph, to be given at the call"
            elif value is not None:
                told = f"constant, shape {value.shape}"
            else:
                told = "all steps" if name == "lengths" else "zero"
            lines.append(f"  {name:8} {told}")
        return "\n".join(lines)


def _turned(x: Any, batch: Batch) -> Any:
    """Each sequence reversed, in the caller's order of axes; padding stays where it is."""
    if batch.listed:
        return [plain(sequence, "x")[::-1] for sequence in x]
    steps, stops = np.arange(batch.T)[:, None], batch.T if batch.lengths is None else batch.lengths
    order = np.broadcast_to(np.where(steps < stops, stops - 1 - steps, steps), (batch.T, batch.B))
    return batch.outward(np.take_along_axis(batch.time_major(plain(x, "x")), order[..., None], axis=0))
