"""Accuracy beside speed: a faster kernel that loses digits shows here."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

import elman
from elman.kernels.activations import evaluate

from ..cases import CELLS, DTYPES, TRACKED, Array, Shape, make_case


def results(shape: Shape, dtype: str, cell: str) -> tuple[Array, dict[str, Array]]:
    """Output, and all gradients by name, of the layer of a case."""
    # float32's numbers in both, so that the inputs' own rounding does not count
    case = make_case(shape, "float32", cell)
    layer = getattr(elman, cell)(*shape[2:], dtype=dtype)
    layer.load_state_dict(case.weights)
    trace = layer.trace(case.x)
    gradients = layer.backward(trace, case.d_output)
    initial = gradients.h0 if isinstance(gradients.h0, tuple) else (gradients.h0,)
    states = dict(zip(("h0", "c0"), initial, strict=False))
    return trace.output, {**gradients.params, "x": np.asarray(gradients.x), **states}


def relative_error(value: Array, reference: Array) -> float:
    """Largest deviation over the reference's largest entry."""
    return float(np.max(np.abs(value - reference)) / np.max(np.abs(reference)))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


EXACT: dict[str, Callable[[Array], Array]] = {"tanh": np.tanh, "sigmoid": _sigmoid}
"""In extended precision, where the machine has it."""

REACH = {"tanh": 25.0, "sigmoid": 80.0}
"""Largest argument: beyond it the function is 1, and sigmoid's other end close to what float32 cannot hold."""


def ulp(function: str, dtype: str, n: int = 200_000) -> float:
    """Largest error of a nonlinearity in units in the last place.

    The points are dense on a linear and on a logarithmic scale, of both signs, down to the smallest normal number.
    """
    end = REACH[function]
    positive = np.concatenate([np.linspace(0, end, n), np.geomspace(np.finfo(dtype).tiny, end, n)]).astype(dtype)
    x = np.concatenate([positive, -positive])
    exact = EXACT[function](x.astype(np.longdouble))
    spacing = np.spacing(np.abs(exact).astype(dtype)).astype(np.longdouble)
    return float(np.max(np.abs(evaluate(function, x) - exact) / spacing))


class SinglePrecision:
    """Deviation of float32 from float64, relative to the largest entry of each array."""

    params: ClassVar = (CELLS, TRACKED)
    param_names = ("cell", "T, B, D, H")

    def setup(self, cell: str, shape: Shape) -> None:
        elman.set_num_threads(1)
        self.single, self.double = (results(shape, dtype, cell) for dtype in DTYPES)

    def track_output_error(self, cell: str, shape: Shape) -> float:
        return relative_error(self.single[0], self.double[0])

    def track_gradient_error(self, cell: str, shape: Shape) -> float:
        """Of the worst of all parameters, the input and the initial states."""
        return max(relative_error(self.single[1][name], reference) for name, reference in self.double[1].items())

    track_output_error.unit = track_gradient_error.unit = "relative"  # type: ignore[attr-defined]


class Activation:
    """Error of the compiled nonlinearities that are not exact."""

    params: ClassVar = (tuple(EXACT), DTYPES)
    param_names = ("function", "dtype")

    def track_ulp(self, function: str, dtype: str) -> float:
        return ulp(function, dtype)

    track_ulp.unit = "ULP"  # type: ignore[attr-defined]
