"""Accuracy beside speed: a faster kernel that loses digits shows here."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import elman
from elman.kernels.activations import evaluate

from .cases import DTYPES, SHAPES, Array, make_case


def results(shape: tuple[int, int, int, int], dtype: str) -> tuple[Array, dict[str, Array]]:
    """Output, and all gradients by name, of the layer of a case."""
    # float32's numbers in both, so that the inputs' own rounding does not count
    weights, x, d_output = make_case(shape, "float32")
    layer = elman.RNN(*shape[2:], dtype=dtype)
    layer.load_state_dict(weights)
    trace = layer.trace(x)
    gradients = layer.backward(trace, d_output)
    return trace.output, {**gradients.params, "x": np.asarray(gradients.x), "h0": gradients.h0}


def relative_error(value: Array, reference: Array) -> float:
    """Largest deviation over the reference's largest entry."""
    return float(np.max(np.abs(value - reference)) / np.max(np.abs(reference)))


def tanh_ulp(dtype: str, n: int = 200_000) -> float:
    """Largest error of tanh in units in the last place, against extended precision where the machine has it.

    The points are dense on a linear and on a logarithmic scale, of both signs, down to the smallest normal number.
    """
    positive = np.concatenate([np.linspace(0, 25, n), np.geomspace(np.finfo(dtype).tiny, 25, n)]).astype(dtype)
    x = np.concatenate([positive, -positive])
    exact = np.tanh(x.astype(np.longdouble))
    spacing = np.spacing(np.abs(exact).astype(dtype)).astype(np.longdouble)
    return float(np.max(np.abs(evaluate("tanh", x) - exact) / spacing))


class SinglePrecision:
    """Deviation of float32 from float64, relative to the largest entry of each array."""

    params: ClassVar = (SHAPES,)
    param_names = ("T, B, D, H",)

    def setup(self, shape: tuple[int, int, int, int]) -> None:
        self.single, self.double = (results(shape, dtype) for dtype in DTYPES)

    def track_output_error(self, shape: tuple[int, int, int, int]) -> float:
        return relative_error(self.single[0], self.double[0])

    def track_gradient_error(self, shape: tuple[int, int, int, int]) -> float:
        """Of the worst of all parameters, the input and the initial state."""
        return max(relative_error(self.single[1][name], reference) for name, reference in self.double[1].items())

    track_output_error.unit = track_gradient_error.unit = "relative"  # type: ignore[attr-defined]


class Activation:
    """Error of the compiled tanh."""

    params: ClassVar = DTYPES
    param_names = ("dtype",)

    def track_tanh_ulp(self, dtype: str) -> float:
        return tanh_ulp(dtype)

    track_tanh_ulp.unit = "ULP"  # type: ignore[attr-defined]
