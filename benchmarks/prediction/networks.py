"""The networks whose gradients are predicted: cells, initialisations, sizes, and training."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import elman
from elman.initializers import Initializer, gaussian, identity, orthogonal, scale_to_radius, uniform

from ..cases import Array
from .data import SOURCES, SYNTHETIC, Data

CELLS = ("linear", "tanh", "relu", "sigmoid", "GRU", "LSTM")
ELMAN = {"linear": "identity", "tanh": "tanh", "relu": "relu", "sigmoid": "sigmoid"}
"""Nonlinearities of the Elman cells."""
TRAINING, BATCH = 256, 16


def scaled(factor: float) -> Initializer:
    """An orthogonal matrix times a factor."""
    return lambda shape, rng: factor * orthogonal(shape, rng)


def sparse(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """15 entries that are not zero in each row, spectral radius .95."""
    W = np.zeros(shape)
    for row in W:
        row[rng.choice(len(row), min(15, len(row)), replace=False)] = rng.standard_normal(min(15, len(row)))
    return scale_to_radius(W, 0.95)


def low_rank(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A product of Gaussian factors of rank an eighth of the units, entries as large as for gain 1.2."""
    rank = max(1, shape[0] // 8)
    left, right = rng.standard_normal((shape[0], rank)), rng.standard_normal((rank, shape[1]))
    return 1.2 / np.sqrt(rank * shape[1]) * left @ right


def non_normal(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """``Q (D + U) Q^T``: eigenvalues uniform within +-.9, U strictly upper triangular of entries N(0, 1/N)."""
    n = shape[0]
    triangle = np.diag(rng.uniform(-0.9, 0.9, n)) + np.triu(rng.standard_normal(shape), 1) / np.sqrt(n)
    Q = orthogonal(shape, rng)
    return Q @ triangle @ Q.T


GAINS = (0.5, 3**-0.5, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
INITS: dict[str, Initializer] = {
    **{f"gaussian {gain:.3g}": gaussian(gain) for gain in GAINS},
    **{f"orthogonal {factor:.3g}": scaled(factor) for factor in (0.9, 1.0, 1.1)},
    "identity": identity,
    "uniform": uniform,
    "sparse": sparse,
    "low rank": low_rank,
    "non-normal": non_normal,
}


@dataclass(frozen=True)
class Spec:
    """One network and what it runs on.

    Attributes
    ----------
    cell, init, source : str
        Keys of ``CELLS``, :data:`INITS` and :data:`SOURCES`.
    N, T : int
        Units and steps.
    updates : int
        Of training, 0 for none. A trained network is also looked at before training and after a third of it.
    forget_bias : float
        Of an LSTM.
    """

    cell: str
    init: str
    source: str
    N: int
    T: int
    updates: int = 0
    forget_bias: float = 1.0

    @property
    def name(self) -> str:
        """Readable and unique."""
        bias = f", forget bias {self.forget_bias:g}" if self.cell == "LSTM" else ""
        return f"{self.cell}, {self.init}{bias}, N = {self.N}, T = {self.T}, {self.source}"

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of its snapshots."""
        return ("start", "middle", "end") if self.updates else ("start",)

    def generator(self, purpose: str) -> np.random.Generator:
        """Random numbers that depend on the network and the purpose alone, not on what ran before."""
        return np.random.default_rng(zlib.crc32(f"{self.name}; {purpose}".encode()))

    def build(self) -> elman.Network:
        """The network before training."""
        rng, source = self.generator("weights"), SOURCES[self.source]
        inputs = source.draw(self.T, 1, rng)[0].shape[2]
        options: dict[str, Any] = {"weight_hh_init": INITS[self.init], "rng": rng}
        if self.init == "uniform":
            options |= {"weight_ih_init": "uniform", "bias_init": "uniform"}
        layer: elman.LSTM | elman.GRU | elman.RNN
        if self.cell == "LSTM":
            layer = elman.LSTM(inputs, self.N, forget_bias=self.forget_bias, **options)
        elif self.cell == "GRU":
            layer = elman.GRU(inputs, self.N, **options)
        else:
            layer = elman.RNN(inputs, self.N, nonlinearity=ELMAN[self.cell], **options)
        return elman.Network(layer, elman.Readout(self.N, source.outputs, rng=rng))

    def draw(self, n: int, rng: np.random.Generator) -> Data:
        """Sequences that no other call returns."""
        source = SOURCES[self.source]
        x, y = source.draw(self.T, n, rng)
        h0 = None
        if source.states:
            h = source.states * rng.standard_normal((1, n, self.N))
            h0 = (h, np.zeros_like(h)) if self.cell == "LSTM" else h
        return Data(x, y, h0, source.every)


@dataclass(frozen=True)
class Snapshot:
    """A network at one moment of its training.

    Attributes
    ----------
    spec : Spec
    phase : str
        One of ``spec.phases``.
    net : elman.Network
    loss_ratio, change : float
        Loss over that before training, and how far the recurrent weights have moved, relative to their norm.
    """

    spec: Spec
    phase: str
    net: elman.Network
    loss_ratio: float = 1.0
    change: float = 0.0


def snapshots(spec: Spec) -> Iterator[Snapshot]:
    """The network as it is made, and after a third and all of its training."""
    net = spec.build()
    yield Snapshot(spec, "start", deepcopy(net))
    if not spec.updates:
        return
    data, W = spec.draw(TRAINING, spec.generator("training")), net.params["layer.weight_hh_l0"]
    before, optimizer, first = W.copy(), elman.Adam(4e-3), 0.0
    epochs = max(3, spec.updates * BATCH // TRAINING)
    for phase, count in (("middle", epochs // 3), ("end", epochs - epochs // 3)):
        history = elman.fit(
            net, data.x, data.y, loss=SOURCES[spec.source].loss, optimizer=optimizer, epochs=count, batch_size=BATCH,
            progress=False, rng=spec.generator(phase),
        )  # fmt: skip
        first = first or history.loss[0]
        change = float(np.linalg.norm(W - before) / np.linalg.norm(before))
        yield Snapshot(spec, phase, deepcopy(net), history.loss[-1] / first, change)


TASKS = (("adding", 50), ("adding", 100), ("order", 50), ("copy", 40), ("Lorenz", 100), ("Mackey-Glass", 100))
TRAINED_INITS = ("gaussian 0.9", "gaussian 2", "orthogonal 1", "identity", "uniform")


def untrained_specs() -> list[Spec]:
    """Every cell with every initialisation, twice, under inputs, sizes and lengths in turns; few long and large."""
    specs = []
    for i, (cell, init) in enumerate(product(CELLS, INITS)):
        for j in (2 * i, 2 * i + 1):
            size, length, bias = (32, 128, 32, 32)[(j + i) % 4], (50, 100, 200)[j % 3], (0.0, 1.0, 3.0)[i % 3]
            specs.append(Spec(cell, init, SYNTHETIC[(j + i // 5) % 5], size, length, forget_bias=bias))
    large = ("tanh", "gaussian 1"), ("tanh", "gaussian 1.25"), ("GRU", "uniform"), ("relu", "gaussian 1.25")
    for cell, init in large:
        specs.append(Spec(cell, init, "iid .3", 512, 50))
    for cell, init in product(("tanh", "GRU", "LSTM"), ("gaussian 1", "orthogonal 1")):
        specs.append(Spec(cell, init, "iid .3", 32, 1000))
    return specs


def trained_specs() -> list[Spec]:
    """Every cell but the linear one with five initialisations on six tasks; the linear one with one."""
    specs = []
    for i, (cell, init, (task, T)) in enumerate(product(CELLS[1:], TRAINED_INITS, TASKS)):
        size, bias = (32, 32, 32, 64)[i % 4], (0.0, 1.0, 3.0)[i % 3]
        specs.append(Spec(cell, init, task, size, T, 400 if size == 32 else 240, bias))
    specs += [Spec("linear", "orthogonal 1", task, 32, T, 400) for task, T in TASKS]
    return specs


def full_population() -> list[Spec]:
    """All of them in an order in which every part of it is a fair sample."""
    specs = untrained_specs() + trained_specs()
    order = np.random.default_rng(0).permutation(len(specs))
    return [specs[i] for i in order]


def quick_population() -> list[Spec]:
    """A few dozen snapshots of small networks."""
    inits = ("gaussian 0.9", "gaussian 1.5", "uniform", "non-normal")
    sources = ("iid .3", "iid 1", "AR(1)", "none")
    specs = [
        Spec(cell, init, sources[(i + k) % 4], 32, 50) for i, cell in enumerate(CELLS) for k, init in enumerate(inits)
    ]
    tasks = (("adding", 50), ("order", 50), ("copy", 40))
    specs += [
        Spec(cell, TRAINED_INITS[(i + k) % 5], task, 32, T, 240)
        for i, cell in enumerate(CELLS[1:])
        for k, (task, T) in enumerate(tasks)
        if cell in ("tanh", "GRU") or k == i % 3
    ]
    return specs
