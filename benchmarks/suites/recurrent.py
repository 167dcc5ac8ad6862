"""The recurrent layer on one core: whole passes and single steps of elman and of the packages that are installed beside
it; what lengths, memory and a call cost."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any, ClassVar

import numpy as np

import elman
from elman.layers.engine.buffers import Buffers

from ..cases import CELLS, DTYPES, TRACKED, Shape, make_case
from ..sides import SIDES, Side, available

COMPARED = TRACKED[2]
"""The shape at which the other packages are tracked, in float32; ``peers.py`` compares all shapes in both dtypes."""

RAGGED = TRACKED[2:]
"""Shapes with several sequences."""

STREAMED = (20, 100, 256)
"""Hidden units of a single step."""

OPTIONS: dict[str, dict[str, Any]] = {
    "zoneout": {"zoneout": 0.1},
    "dropout": {"dropout": 0.2},
    "recurrent_dropout": {"recurrent_dropout": 0.2},
    "learn_initial_state": {"learn_initial_state": True},
}
"""What may be on in a layer and should cost little."""

OPTIONAL: tuple[Shape, ...] = ((100, 1, 10, 20), (100, 16, 10, 20), (100, 1, 10, 64), (100, 16, 10, 64))
"""Shapes at which that is looked at: where a cliff would show."""

TURNS = 40
"""Calls of each, of which the fastest counts."""


def prepared(name: str, package: str, cell: str, dtype: str, shape: Shape, *, ragged: bool = False) -> Side:
    """One package with a case, of which a pass has run once: nothing is left to import or to compile.

    Raises
    ------
    NotImplementedError
        If the package has no such pass; asv then counts the combination as skipped.
    """
    case = make_case(shape, dtype, cell, ragged=ragged)
    side = SIDES[package](1)
    if not side.can(case, name):
        raise NotImplementedError(f"{package}: no {name} of {cell} in {dtype}")
    side.prepare(case, (name,))
    return side


def fastest(call: Callable[[], object], rounds: int = 5) -> float:
    """Wall-clock seconds of the fastest of a few calls."""

    def clock() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(clock() for _ in range(rounds))


class Compared:
    """What the two classes below share: a pass of one package."""

    params: ClassVar = (available(), CELLS, DTYPES, TRACKED)
    param_names = ("package", "cell", "dtype", "T, B, D, H")
    skip_params: ClassVar = [p for p in product(*params) if p[0] != "elman" and p[2:] != ("float32", COMPARED)]
    warmup_time, sample_time, repeat, rounds = 0.1, 0.05, (3, 10, 2.0), 2
    timed: ClassVar[str]

    def setup(self, package: str, cell: str, dtype: str, shape: Shape) -> None:
        self.side = prepared(self.timed, package, cell, dtype, shape)


class Forward(Compared):
    """Inference over whole sequences."""

    timed = "forward"

    def time_layer(self, package: str, cell: str, dtype: str, shape: Shape) -> None:
        self.side.forward()


class ForwardBackward(Compared):
    """A forward pass, and the gradients of all weights and of the input."""

    timed = "forward_backward"

    def time_layer(self, package: str, cell: str, dtype: str, shape: Shape) -> None:
        self.side.forward_backward()


class Step:
    """One step of a stream of one sequence with one input, in float32."""

    params: ClassVar = (available(), CELLS, STREAMED)
    param_names = ("package", "cell", "H")
    skip_params: ClassVar = [p for p in product(*params) if p[0] != "elman" and p[2] != STREAMED[1]]
    warmup_time, sample_time, repeat, rounds = 0.05, 0.02, (3, 10, 2.0), 2

    def setup(self, package: str, cell: str, hidden: int) -> None:
        self.side = prepared("step", package, cell, "float32", (2, 1, 1, hidden))
        self.x_t = self.side.start_stream()[0]

    def time_step(self, package: str, cell: str, hidden: int) -> None:
        self.side.step(self.x_t)


class Ragged:
    """Time with lengths drawn uniformly from 1 to T over that of all T steps, and over the share of the valid steps.

    1 means that the cost follows the number of valid steps.
    """

    params: ClassVar = (CELLS, RAGGED)
    param_names = ("cell", "T, B, D, H")

    def _cost(self, name: str, cell: str, shape: Shape) -> float:
        dense, ragged = (prepared(name, "elman", cell, "float32", shape, ragged=some) for some in (False, True))
        lengths = ragged.case.lengths
        assert lengths is not None
        times = [fastest(getattr(side, name)) for side in (dense, ragged)]
        return times[1] / times[0] / (lengths.sum() / (shape[0] * shape[1]))

    def track_forward(self, cell: str, shape: Shape) -> float:
        return self._cost("forward", cell, shape)

    def track_forward_backward(self, cell: str, shape: Shape) -> float:
        return self._cost("forward_backward", cell, shape)

    track_forward.unit = track_forward_backward.unit = "of proportional"  # type: ignore[attr-defined]


class Options:
    """Time with an option over that without, of evaluations and of training passes with their backward pass.

    Two layers, since dropout acts between them; memory is used again, as ``fit`` does.
    """

    params: ClassVar = (tuple(OPTIONS), CELLS, OPTIONAL)
    param_names = ("option", "cell", "T, B, D, H")

    def setup(self, option: str, cell: str, shape: Shape) -> None:
        elman.set_num_threads(1)
        T, B, D, H = shape
        rng = np.random.default_rng(0)
        self.x, self.d_output = rng.standard_normal((T, B, D), "f4"), rng.standard_normal((T, B, H), "f4")
        made = [getattr(elman, cell)(D, H, 2, dtype="float32", rng=0, **some) for some in ({}, OPTIONS[option])]
        self.layers = [(layer, Buffers(), Buffers(), rng) for layer in made]

    def _ratio(self, call: Callable[..., Any]) -> float:
        """Of the fastest of calls in turns: the machine is the same for both."""
        times = [[fastest(lambda one=one: call(*one), 1) for one in self.layers] for _ in range(TURNS)]
        plain, other = np.min(times, axis=0)
        return float(other / plain)

    def track_evaluation(self, option: str, cell: str, shape: Shape) -> float:
        return self._ratio(lambda layer, *_: layer(self.x))

    def track_training(self, option: str, cell: str, shape: Shape) -> float:
        def call(layer: Any, kept: Buffers, made: Buffers, rng: np.random.Generator) -> None:
            trace = layer.trace(self.x, training=True, rng=rng, buffers=kept)
            layer.backward(trace, self.d_output, buffers=made)

        return self._ratio(call)

    track_evaluation.unit = track_training.unit = "of that without"  # type: ignore[attr-defined]


class SmallRagged:
    """Time of a small call with lengths, which are others at every call, over that of the dense call.

    The rows of a batch of this size are one tile, so fewer of them save little: what is left is the bookkeeping.
    """

    params: ClassVar = (CELLS, ("forward", "forward_backward"))
    param_names = ("cell", "pass")
    shape: ClassVar[Shape] = (100, 4, 10, 20)
    calls, rounds = 20, 40

    def setup(self, cell: str, name: str) -> None:
        elman.set_num_threads(1)
        self.case = make_case(self.shape, "float32", cell)
        self.layer = getattr(elman, cell)(*self.shape[2:], dtype="float32")
        self.layer.load_state_dict(self.case.weights)
        rng = np.random.default_rng(0)
        self.lengths = rng.integers(self.shape[0] // 2, self.shape[0], (self.calls, self.shape[1]))
        self.run(name, None)
        self.run(name, self.lengths[0])

    def run(self, name: str, lengths: Any) -> None:
        """One call."""
        if name == "forward":
            self.layer(self.case.x, lengths=lengths)
        else:
            self.layer.backward(self.layer.trace(self.case.x, lengths=lengths), self.case.d_output)

    def track_ratio(self, cell: str, name: str) -> float:
        dense = fastest(lambda: [self.run(name, None) for _ in self.lengths], self.rounds)
        return fastest(lambda: [self.run(name, lengths) for lengths in self.lengths], self.rounds) / dense

    track_ratio.unit = "of dense"  # type: ignore[attr-defined]


class Memory:
    """The most memory in use during a call, beyond what was there before: all that elman allocates anew."""

    params: ClassVar = (CELLS, DTYPES, TRACKED[1:])
    param_names = ("cell", "dtype", "T, B, D, H")

    def setup(self, cell: str, dtype: str, shape: Shape) -> None:
        elman.set_num_threads(1)
        self.case = make_case(shape, dtype, cell)
        self.layer = getattr(elman, cell)(*shape[2:], dtype=dtype)
        self.layer.load_state_dict(self.case.weights)
        # what is compiled, imported and kept at the first call is not of the call
        few = self.layer.trace(self.case.x[:1])
        self.layer.backward(few, self.case.d_output[:1])

    def _peak(self, call: Callable[[], Any]) -> int:
        tracemalloc.start()
        try:
            call()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def track_trace(self, cell: str, dtype: str, shape: Shape) -> int:
        return self._peak(lambda: self.layer.trace(self.case.x))

    def track_forward_backward(self, cell: str, dtype: str, shape: Shape) -> int:
        return self._peak(lambda: self.layer.backward(self.layer.trace(self.case.x), self.case.d_output))

    track_trace.unit = track_forward_backward.unit = "bytes"  # type: ignore[attr-defined]


class Call:
    """What a call costs besides arithmetic: one step of one sequence with one input."""

    params: ClassVar = (CELLS, (4, 256))
    param_names = ("cell", "H")
    warmup_time, sample_time, repeat, rounds = 0.05, 0.02, (3, 10, 2.0), 2

    def setup(self, cell: str, hidden: int) -> None:
        elman.set_num_threads(1)
        self.layer = getattr(elman, cell)(1, hidden, dtype="float32", rng=0)
        self.x = np.ones((1, 1, 1), "float32")
        self.time_forward(cell, hidden)
        self.time_forward_backward(cell, hidden)
        self.time_stepper(cell, hidden)
        self.step = self.layer.stepper()
        self.time_step(cell, hidden)

    def time_forward(self, cell: str, hidden: int) -> None:
        self.layer(self.x)

    def time_forward_after_a_change(self, cell: str, hidden: int) -> None:
        """With weights that are new to the layer, so that they have to be packed."""
        self.layer.theta[0] += 1e-6
        self.layer(self.x)

    def time_forward_backward(self, cell: str, hidden: int) -> None:
        trace = self.layer.trace(self.x)
        self.layer.backward(trace, trace.output)

    def time_stepper(self, cell: str, hidden: int) -> None:
        """A new stepper, which packs the weights."""
        self.layer.stepper()

    def time_step(self, cell: str, hidden: int) -> None:
        """A step of a stream."""
        self.step(self.x[0])
