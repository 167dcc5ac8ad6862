"""PyTorch: inference mode, and ``torch.autograd.grad``, which writes gradients and adds to no old ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cases import Array, Case
from .side import Side


class Package:
    """torch with so many threads."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch = torch

    def version(self) -> str:
        return f"torch {self.torch.__version__}"


class Torch(Package, Side):
    """``nn.RNN``, ``nn.LSTM``, ``nn.GRU``, and their cells for streams; lengths by packing, which belongs to a call."""

    def load(self, case: Case) -> None:
        torch = self.torch
        dtype = getattr(torch, case.x.dtype.name)
        weights = {name: torch.from_numpy(w) for name, w in case.weights.items()}
        self.layer = getattr(torch.nn, case.cell)(case.input_size, case.hidden_size, dtype=dtype)
        self.layer.load_state_dict(weights)
        self.cell = getattr(torch.nn, f"{case.cell}Cell")(case.input_size, case.hidden_size, dtype=dtype)
        self.cell.load_state_dict({name.removesuffix("_l0"): w for name, w in weights.items()})
        self.x, self.d_output = torch.from_numpy(case.x), torch.from_numpy(case.d_output)
        self.lengths = None if case.lengths is None else torch.from_numpy(case.lengths)
        self.leaf = self.x.clone().requires_grad_()

    def run(self, x: Any) -> Any:
        """Output (T, B, H) and final states."""
        if self.lengths is None:
            return self.layer(x)
        rnn = self.torch.nn.utils.rnn
        packed, final = self.layer(rnn.pack_padded_sequence(x, self.lengths, enforce_sorted=False))
        return rnn.pad_packed_sequence(packed, total_length=len(x))[0], final

    def forward(self) -> Any:
        with self.torch.inference_mode():
            return self.run(self.x)

    def forward_backward(self) -> Any:
        output, _ = self.run(self.leaf)
        return output, self.torch.autograd.grad(output, [self.leaf, *self.layer.parameters()], self.d_output)

    def start_stream(self) -> list[Any]:
        self.state = None
        return list(self.x)

    def step(self, x_t: Any) -> Any:
        with self.torch.inference_mode():
            self.state = self.cell(x_t, self.state)
        return self.state

    def arrays(self, name: str, result: Any) -> dict[str, Array]:
        output, others = result
        if name == "forward":
            states = others if isinstance(others, tuple) else (others,)
            named = dict(zip(("hn", "cn"), states, strict=False))
        else:
            names = ["d_x", *(f"d_{name}" for name, _ in self.layer.named_parameters())]
            named = dict(zip(names, others, strict=True))
        return {key: value.detach().numpy() for key, value in ({"output": output} | named).items()}

    def output(self, result: Any) -> Array:
        return np.asarray(result[0] if isinstance(result, tuple) else result)
