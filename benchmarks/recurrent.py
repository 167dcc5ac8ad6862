"""The recurrent layer: time of a forward pass and of backpropagation through time, and the memory a trace takes."""

from __future__ import annotations

import tracemalloc
from typing import ClassVar

import elman
from elman.layers.buffers import Buffers

from .cases import DTYPES, SHAPES, make_case


class RNN:
    """One layer on one core."""

    params: ClassVar = (SHAPES, DTYPES)
    param_names = ("T, B, D, H", "dtype")
    warmup_time, sample_time, repeat, rounds = 0.1, 0.05, (3, 10, 2.0), 2

    def setup(self, shape: tuple[int, int, int, int], dtype: str) -> None:
        elman.set_num_threads(1)
        weights, self.x, self.d_output = make_case(shape, dtype)
        self.layer = elman.RNN(*shape[2:], dtype=dtype)
        self.layer.load_state_dict(weights)
        self.buffers = Buffers()
        # compiles, or loads what is compiled: not what is timed here
        self.time_forward(shape, dtype)
        self.time_forward_backward(shape, dtype)

    def time_forward(self, shape: tuple[int, int, int, int], dtype: str) -> None:
        self.layer(self.x)

    def time_forward_backward(self, shape: tuple[int, int, int, int], dtype: str) -> None:
        trace = self.layer.trace(self.x, buffers=self.buffers)
        self.layer.backward(trace, self.d_output, buffers=self.buffers)

    def track_trace_memory(self, shape: tuple[int, int, int, int], dtype: str) -> int:
        """Largest memory in use during a trace into new buffers, beyond what was there before."""
        tracemalloc.start()
        try:
            self.layer.trace(self.x)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    track_trace_memory.unit = "bytes"  # type: ignore[attr-defined]
