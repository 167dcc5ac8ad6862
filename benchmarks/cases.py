"""The shapes that are measured everywhere, and the data for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SHAPES = ((100, 1, 10, 20), (100, 32, 28, 64), (100, 64, 100, 256), (1000, 1, 3, 100))
"""Steps T, sequences B, inputs D, hidden units H."""

DTYPES = ("float32", "float64")


class Case(NamedTuple):
    """One layer's weights under PyTorch's names, its input (T, B, D), and the gradient of its output (T, B, H)."""

    weights: dict[str, Array]
    x: Array
    d_output: Array


def make_case(shape: tuple[int, int, int, int], dtype: str, seed: int = 0) -> Case:
    """Normal data, and weights uniform within 1 / sqrt(H), as PyTorch starts; the same numbers in both dtypes."""
    T, B, D, H = shape
    rng = np.random.default_rng(seed)
    sizes = {"weight_ih_l0": (H, D), "weight_hh_l0": (H, H), "bias_ih_l0": (H,), "bias_hh_l0": (H,)}
    bound = 1 / np.sqrt(H)
    weights = {name: rng.uniform(-bound, bound, size).astype(dtype) for name, size in sizes.items()}
    x, d_output = rng.standard_normal((T, B, D)), rng.standard_normal((T, B, H))
    return Case(weights, x.astype(dtype), d_output.astype(dtype))


def flops(shape: tuple[int, int, int, int], backward: bool) -> float:
    """Operations in the matrix products: each one's way back has two more, for its weights and for its input."""
    T, B, D, H = shape
    return 2.0 * T * B * H * (D + H) * (3 if backward else 1)
