"""Two problems with everything that training needs, so that each package is given the very same."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..cases import Array

CLASSES = 10


class Problem(NamedTuple):
    """Data, initial weights, the samples of every batch, and the loss to reach.

    ``x`` (T, N, D) and ``y`` are learned from; ``held_x`` (T, M, D) and ``held_y`` are evaluated every ``every``
    updates. ``y`` holds (N, Q) numbers for the loss "mse" and (N,) classes for "cross_entropy". ``batches``
    (updates, batch size) are indices along N: one permutation after another from ``np.random.default_rng(seed)``, which
    is how ``elman.fit`` draws them from ``rng=seed``. ``weights`` have the names of ``elman.Network``.
    """

    name: str
    cell: str
    loss: str
    x: Array
    y: Array
    held_x: Array
    held_y: Array
    weights: dict[str, Array]
    batches: Array
    seed: int
    lr: float
    target: float
    every: int

    @property
    def dtype(self) -> str:
        """Of the network and its data."""
        return str(self.x.dtype)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Inputs D, hidden units H, outputs Q."""
        outputs, hidden = self.weights["readout.weight"].shape
        return self.x.shape[2], hidden, outputs


class Settings(NamedTuple):
    """How a problem is learned."""

    hidden: int
    batch_size: int
    samples: int
    lr: float
    target: float
    every: int
    updates: int


SETTINGS = {
    "adding": Settings(hidden=64, batch_size=50, samples=10000, lr=0.005, target=0.01, every=25, updates=3000),
    "digits": Settings(hidden=64, batch_size=32, samples=1408, lr=0.005, target=0.35, every=44, updates=4400),
}
"""Adding: 1/6 is what no memory gives. Digits: at .35 nats about nine of ten are recognised."""

QUICK = {
    "adding": Settings(hidden=16, batch_size=8, samples=40, lr=0.005, target=0.01, every=5, updates=10),
    "digits": Settings(hidden=16, batch_size=8, samples=40, lr=0.005, target=0.35, every=5, updates=10),
}
"""To see that everything runs: nothing is learned."""


def adding(n: int, held: int) -> tuple[Array, Array]:
    """The adding problem over 200 steps."""
    import elman

    return elman.tasks.adding(200, n + held, rng=0)


def digits(n: int, held: int) -> tuple[Array, Array]:
    """8x8 images of digits from scikit-learn, shuffled once, read row by row: one pixel in 0..1 a step, 64 steps."""
    from sklearn.datasets import load_digits

    data = load_digits()
    chosen = np.random.default_rng(0).permutation(len(data.target))[: n + held]
    pixels = data.data[chosen] / 16.0
    return pixels.T[:, :, None], data.target[chosen]


class Kind(NamedTuple):
    """Where a problem's data come from, its loss, its outputs, and the size of its held-out part."""

    data: Callable[[int, int], tuple[Array, Array]]
    loss: str
    outputs: int
    held: int


PROBLEMS = {"adding": Kind(adding, "mse", 1, 1000), "digits": Kind(digits, "cross_entropy", CLASSES, 389)}


def draw_batches(n: int, batch_size: int, updates: int, seed: int) -> Array:
    """Indices (updates, batch_size), pass after pass; the batch size must divide n."""
    if n % batch_size:
        raise ValueError(f"batch_size must divide the {n} samples, so that all batches have one size; got {batch_size}")
    rng, epochs = np.random.default_rng(seed), -(-updates * batch_size // n)
    return np.concatenate([rng.permutation(n) for _ in range(epochs)])[: updates * batch_size].reshape(-1, batch_size)


def make_problem(name: str, cell: str, dtype: str, settings: Settings, seed: int = 1) -> Problem:
    """A problem of :data:`PROBLEMS` for a network of one recurrent layer and a readout of its last state.

    The numbers are the same in both dtypes, but for their rounding.
    """
    import elman

    if settings.updates % settings.every:
        raise ValueError(f"updates must be a multiple of every = {settings.every}, got {settings.updates}")
    kind, n = PROBLEMS[name], settings.samples
    x, y = kind.data(n, kind.held)
    x, y = x.astype(dtype), y.astype(dtype) if kind.loss == "mse" else y
    layer = getattr(elman, cell)(x.shape[2], settings.hidden, rng=seed)
    network = elman.Network(layer, elman.Readout(settings.hidden, kind.outputs, rng=seed + 1), at="end")
    weights = {key: value.astype(dtype) for key, value in network.state_dict().items()}
    learned = np.ascontiguousarray(x[:, :n]), y[:n]
    held_out = np.ascontiguousarray(x[:, n:]), y[n:]
    batches = draw_batches(n, settings.batch_size, settings.updates, seed)
    return Problem(
        name, cell, kind.loss, *learned, *held_out, weights, batches, seed, settings.lr, settings.target, settings.every
    )  # fmt: skip
