"""The two sides of the comparison, each served in a process of its own: ``python -m benchmarks.workers NAME THREADS``.

Requests ``(method, *arguments)`` come pickled on standard input; answers ``(ok, value or message)`` go to standard
output.
"""

from __future__ import annotations

import gc
import pickle
import sys
import time
import traceback
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from .cases import Array, Case

PASSES = ("forward", "forward_backward")


class Side(ABC):
    """One package, with the layer of one case."""

    @abstractmethod
    def version(self) -> str:
        """Name and version of the package."""

    @abstractmethod
    def prepare(self, case: Case) -> dict[str, Array]:
        """Take over a case; return the answers of both passes, those that are timed afterwards."""

    @abstractmethod
    def forward(self) -> Any:
        """Inference."""

    @abstractmethod
    def forward_backward(self) -> Any:
        """Forward pass, and the gradients of all parameters and of the input."""

    def measure(self, name: str, seconds: float) -> float:
        """Seconds a call of a pass, from calls in a row that take at least ``seconds`` together."""
        call = getattr(self, name)
        gc.collect()
        gc.disable()
        try:
            calls, start = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - start) < seconds or calls == 0:
                call()
                calls += 1
        finally:
            gc.enable()
        return elapsed / calls


class Ours(Side):
    """elman.RNN by its public calls; traces and gradients go into memory kept between calls, as in training."""

    def __init__(self, threads: int) -> None:
        import elman

        elman.set_num_threads(threads)
        self.elman = elman

    def version(self) -> str:
        import numba

        return f"elman {self.elman.__version__} (numba {numba.__version__}, NumPy {np.__version__})"

    def peak(self, dtype: str, seconds: float) -> float:
        """Operations per second of one core at its best."""
        from .microkernel import peak

        return peak(dtype, seconds)

    def prepare(self, case: Case) -> dict[str, Array]:
        from elman.layers.buffers import Buffers

        self.case, self.buffers = case, Buffers()
        hidden, inputs = case.weights["weight_ih_l0"].shape
        self.layer = self.elman.RNN(inputs, hidden, dtype=case.x.dtype)
        self.layer.load_state_dict(case.weights)
        output, hn = self.forward()
        trace, gradients = self.forward_backward()
        d_params = {f"d_{name}": d.copy() for name, d in gradients.params.items()}
        return {"output": output, "hn": hn, "trained output": trace.output.copy(), **d_params, "d_x": gradients.x}

    def forward(self) -> Any:
        return self.layer(self.case.x)

    def forward_backward(self) -> Any:
        trace = self.layer.trace(self.case.x, buffers=self.buffers)
        return trace, self.layer.backward(trace, self.case.d_output, buffers=self.buffers)


class Torch(Side):
    """torch.nn.RNN: inference mode, and ``torch.autograd.grad``, which writes gradients and adds to no old ones."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch = torch

    def version(self) -> str:
        return f"torch {self.torch.__version__}"

    def prepare(self, case: Case) -> dict[str, Array]:
        torch = self.torch
        hidden, inputs = case.weights["weight_ih_l0"].shape
        self.layer = torch.nn.RNN(inputs, hidden, dtype=getattr(torch, case.x.dtype.name))
        self.layer.load_state_dict({name: torch.from_numpy(w) for name, w in case.weights.items()})
        self.x, self.d_output = torch.from_numpy(case.x), torch.from_numpy(case.d_output)
        self.leaf = self.x.clone().requires_grad_()
        output, hn = self.forward()
        trained, gradients = self.forward_backward()
        names = ["d_x", *(f"d_{name}" for name, _ in self.layer.named_parameters())]
        answers = {
            "output": output,
            "hn": hn,
            "trained output": trained.detach(),
            **dict(zip(names, gradients, strict=True)),
        }
        return {name: answer.numpy() for name, answer in answers.items()}

    def forward(self) -> Any:
        with self.torch.inference_mode():
            return self.layer(self.x)

    def forward_backward(self) -> Any:
        output, _ = self.layer(self.leaf)
        return output, self.torch.autograd.grad(output, [self.leaf, *self.layer.parameters()], self.d_output)


SIDES: dict[str, type[Ours] | type[Torch]] = {"elman": Ours, "torch": Torch}


def serve(side: Side) -> None:
    """Answer requests until standard input ends; whatever else is printed goes to standard error."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        try:
            method, *arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = True, getattr(side, method)(*arguments)
        except Exception:
            answer = False, traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    serve(SIDES[sys.argv[1]](int(sys.argv[2])))
