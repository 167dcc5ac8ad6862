"""elman by its public calls; traces and gradients go into memory kept between calls, as in training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cases import Array, Case
from .side import Side


class Package:
    """elman with so many threads."""

    def __init__(self, threads: int) -> None:
        import elman

        elman.set_num_threads(threads)
        self.elman = elman

    def version(self) -> str:
        import numba

        return f"elman {self.elman.__version__} (numba {numba.__version__}, NumPy {np.__version__})"


class Elman(Package, Side):
    """A layer, its ``trace`` and ``backward``, its ``stepper``."""

    def peak(self, dtype: str, seconds: float) -> float:
        """Operations per second of one core at its best."""
        from ..commands.microkernel import peak

        return peak(dtype, seconds)

    def load(self, case: Case) -> None:
        from elman.layers.engine.buffers import Buffers

        self.x, self.d_output, self.lengths, self.buffers = case.x, case.d_output, case.lengths, Buffers()
        self.layer = getattr(self.elman, case.cell)(case.input_size, case.hidden_size, dtype=case.x.dtype)
        self.layer.load_state_dict(case.weights)

    def forward(self) -> Any:
        return self.layer(self.x, lengths=self.lengths)

    def forward_backward(self) -> Any:
        trace = self.layer.trace(self.x, lengths=self.lengths, buffers=self.buffers)
        return trace, self.layer.backward(trace, self.d_output, buffers=self.buffers)

    def start_stream(self) -> list[Any]:
        self.stepper = self.layer.stepper(self.x.shape[1])
        return list(self.x)

    def step(self, x_t: Any) -> Any:
        return self.stepper(x_t)

    def arrays(self, name: str, result: Any) -> dict[str, Array]:
        if name == "forward":
            output, final = result
            states = final if isinstance(final, tuple) else (final,)
            return {"output": output, **dict(zip(("hn", "cn"), states, strict=False))}
        trace, gradients = result
        d_weights = {f"d_{name}": d.copy() for name, d in gradients.params.items()}
        return {"output": trace.output.copy(), **d_weights, "d_x": gradients.x.copy()}

    def output(self, result: Any) -> Array:
        return np.asarray(result)
