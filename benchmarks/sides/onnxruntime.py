"""onnxruntime: one operator of ONNX, inputs and outputs bound to memory that is kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cases import GATES, Array, Case
from .side import Side

ORDER = {"RNN": [0], "LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}
"""Where ONNX's gates are in PyTorch's order: i, o, f, c of i, f, g, o, and z, r, h of r, z, n."""

OPSET, IR = 14, 8
"""The present form of the operators (2021), and the format of that time."""


class Onnxruntime(Side):
    """``RNN``, ``LSTM``, ``GRU``: inference in float32. The CPU kernels have no float64, and there is no way back."""

    def __init__(self, threads: int) -> None:
        import onnxruntime

        self.onnxruntime = onnxruntime
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads, self.options.inter_op_num_threads = threads, 1

    def version(self) -> str:
        return f"onnxruntime {self.onnxruntime.__version__}"

    @staticmethod
    def can(case: Case, name: str) -> bool:
        return name != "forward_backward" and case.x.dtype == np.float32

    def load(self, case: Case) -> None:
        if not self.can(case, "forward"):
            return
        T, B, _ = case.x.shape
        names = ("h", "c") if case.cell == "LSTM" else ("h",)
        self.session = self.onnxruntime.InferenceSession(
            model(case, names), self.options, providers=["CPUExecutionProvider"]
        )
        self.x, self.x_t, self.names = case.x, case.x[0][None].copy(), names
        self.lengths = np.full(B, T, np.int32) if case.lengths is None else case.lengths.astype(np.int32)
        self.one = np.ones(B, np.int32)
        self.zeros = [np.zeros((1, B, case.hidden_size), case.x.dtype) for _ in names]
        self.y = np.empty((T, 1, B, case.hidden_size), case.x.dtype)
        self.final = [np.empty_like(zero) for zero in self.zeros]
        self.whole = self.bind(self.x, self.lengths, self.zeros, self.y, self.final)

    def bind(self, x: Array, lengths: Array, states: list[Array], y: Array, final: list[Array]) -> Any:
        """A binding that reads and writes these arrays."""
        binding = self.session.io_binding()
        starts, ends = ([f"{name}{suffix}" for name in self.names] for suffix in ("0", "n"))
        for name, value in zip(("x", "lengths", *starts), (x, lengths, *states), strict=True):
            binding.bind_cpu_input(name, value)
        for name, value in zip(("y", *ends), (y, *final), strict=True):
            binding.bind_output(name, "cpu", 0, value.dtype, value.shape, value.ctypes.data)
        return binding

    def forward(self) -> Any:
        self.session.run_with_iobinding(self.whole)
        return self.y

    def start_stream(self) -> list[Any]:
        # two sets of states, each read while the other is written
        a, b = ([np.zeros_like(zero) for zero in self.zeros] for _ in range(2))
        self.y_t = np.empty_like(self.y[:1])
        self.here, self.there = (self.bind(self.x_t, self.one, *turn) for turn in ((a, self.y_t, b), (b, self.y_t, a)))
        self.streams = a, b
        return list(self.x)

    def step(self, x_t: Any) -> Any:
        self.x_t[0] = x_t
        self.session.run_with_iobinding(self.here)
        self.here, self.there = self.there, self.here
        return self.y_t

    def arrays(self, name: str, result: Any) -> dict[str, Array]:
        named = {f"{name}n": end.copy() for name, end in zip(self.names, self.final, strict=True)}
        return {"output": result[:, 0].copy(), **named}

    def output(self, result: Any) -> Array:
        return np.asarray(result[0, 0])


def model(case: Case, states: tuple[str, ...]) -> bytes:
    """The layer of a case as one operator, with initial states and lengths as inputs."""
    from onnx import TensorProto, helper, numpy_helper

    H, D = case.hidden_size, case.input_size
    order = np.concatenate([np.arange(H) + gate * H for gate in ORDER[case.cell]])
    assert len(order) == GATES[case.cell] * H
    W, R, b_ih, b_hh = (case.weights[name][order] for name in case.weights)
    constants = {"W": W, "R": R, "bias": np.concatenate([b_ih, b_hh])}
    starts, ends = ([f"{name}{suffix}" for name in states] for suffix in ("0", "n"))
    node = helper.make_node(
        case.cell, ["x", *constants, "lengths", *starts], ["y", *ends], hidden_size=H,
        **({"linear_before_reset": 1} if case.cell == "GRU" else {}),
    )  # fmt: skip
    real = helper.np_dtype_to_tensor_dtype(case.x.dtype)
    inputs = [
        helper.make_tensor_value_info("x", real, ["T", "B", D]),
        helper.make_tensor_value_info("lengths", TensorProto.INT32, ["B"]),
        *(helper.make_tensor_value_info(name, real, [1, "B", H]) for name in starts),
    ]
    outputs = [
        helper.make_tensor_value_info("y", real, ["T", 1, "B", H]),
        *(helper.make_tensor_value_info(name, real, [1, "B", H]) for name in ends),
    ]
    tensors = [numpy_helper.from_array(np.ascontiguousarray(w[None]), name) for name, w in constants.items()]
    graph = helper.make_graph([node], case.cell, inputs, outputs, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    return bytes(made.SerializeToString())
