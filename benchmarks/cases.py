"""The shapes that are measured everywhere, and the data for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, int, int, int]

SHAPES: tuple[Shape, ...] = (
    (100, 1, 10, 20),
    (1000, 1, 3, 100),
    (64, 32, 32, 64),
    (100, 32, 28, 64),
    (100, 32, 28, 128),
    (1000, 16, 3, 100),
    (50, 256, 64, 128),
    (100, 64, 100, 256),
    (50, 1, 1760, 1760),
    (100, 64, 128, 512),
    (30, 64, 512, 1024),
    (10000, 1, 1, 64),
)
"""Steps T, sequences B, inputs D, hidden units H: everything that is compared with other packages."""

TRACKED: tuple[Shape, ...] = ((100, 1, 10, 20), (1000, 1, 3, 100), (100, 32, 28, 64), (100, 64, 100, 256))
"""Those of them that are tracked over time: one of each kind."""

RAGGED: tuple[Shape, ...] = ((100, 32, 28, 64), (1000, 16, 3, 100), (100, 64, 100, 256))
"""Those of them that are also compared with sequences of several lengths."""

STREAMED: tuple[Shape, ...] = ((1, 1, 1, 20), (1, 1, 1, 100), (1, 1, 1, 256))
"""Single steps of a stream, with one input."""

CELLS = ("RNN", "LSTM", "GRU")
"""Names of the layers, which are PyTorch's and Keras's as well."""

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}

DTYPES = ("float32", "float64")


class Case(NamedTuple):
    """One layer's weights under PyTorch's names, its input (T, B, D), and the gradient of its output (T, B, H).

    ``lengths`` (B,) are the valid steps of each sequence, or None where all have T.
    """

    cell: str
    weights: dict[str, Array]
    x: Array
    d_output: Array
    lengths: Array | None = None

    @property
    def input_size(self) -> int:
        """D."""
        return int(self.weights["weight_ih_l0"].shape[1])

    @property
    def hidden_size(self) -> int:
        """H."""
        return int(self.weights["weight_hh_l0"].shape[1])


def make_case(shape: Shape, dtype: str, cell: str = "RNN", *, ragged: bool = False, seed: int = 0) -> Case:
    """Normal data, and weights uniform within 1 / sqrt(H), as PyTorch starts; the same numbers in both dtypes.

    ``ragged`` draws lengths uniformly from 1 to T; the gradient of the output is zero beyond them.
    """
    T, B, D, H = shape
    rng = np.random.default_rng(seed)
    G = GATES[cell] * H
    sizes = {"weight_ih_l0": (G, D), "weight_hh_l0": (G, H), "bias_ih_l0": (G,), "bias_hh_l0": (G,)}
    bound = 1 / np.sqrt(H)
    weights = {name: rng.uniform(-bound, bound, size).astype(dtype) for name, size in sizes.items()}
    x, d_output = rng.standard_normal((T, B, D)), rng.standard_normal((T, B, H))
    lengths = rng.integers(1, T, B, endpoint=True) if ragged else None
    if lengths is not None:
        d_output[np.arange(T)[:, None] >= lengths] = 0
    return Case(cell, weights, x.astype(dtype), d_output.astype(dtype), lengths)


def flops(shape: Shape, cell: str, backward: bool, steps: int | None = None) -> float:
    """Operations in the matrix products: each one's way back has two more, for its weights and for its input.

    ``steps`` are the valid ones of all sequences together, T * B by default.
    """
    T, B, D, H = shape
    n = T * B if steps is None else steps
    return 2.0 * n * GATES[cell] * H * (D + H) * (3 if backward else 1)
