"""Sequences for the benchmark of predictions: noise, memory tasks, and forecasts of chaotic series."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.tasks import adding, copy_memory, temporal_order

from ..cases import Array

CHANNELS = 3  # of a synthetic input
AR = 0.95  # of the correlated one
LEAD = 5  # steps ahead that a forecast looks


@dataclass(frozen=True)
class Data:
    """Sequences of one length; ``data[a:b]`` are some of them.

    Attributes
    ----------
    x : ndarray, shape (T, n, D)
    y : ndarray
        Labels of the last step, (n, ...), or of every one, (T, n, ...).
    h0 : ndarray, tuple of ndarray or None
        Initial states (1, n, H).
    every : bool
        Whether there are labels for every step.
    """

    x: Array
    y: Array
    h0: Any
    every: bool

    def __getitem__(self, some: slice) -> Data:
        states = self.h0
        if states is not None:
            states = tuple(h[:, some] for h in states) if isinstance(states, tuple) else states[:, some]
        return Data(self.x[:, some], self.y[:, some] if self.every else self.y[some], states, self.every)


@dataclass(frozen=True)
class Source:
    """Where sequences come from.

    Attributes
    ----------
    draw : callable
        ``(T, n, rng) -> x, y``.
    loss : str
        What a network is trained with.
    outputs : int
        Numbers that the readout gives.
    every : bool
        Whether labels are given for every step.
    states : float
        Standard deviation of the initial ``h``; 0 starts every sequence from rest.
    """

    draw: Callable[[int, int, np.random.Generator], tuple[Array, Array]]
    loss: str = "mse"
    outputs: int = 1
    every: bool = False
    states: float = 0.0


def noise(sd: float, memory: float = 0.0) -> Callable[[int, int, np.random.Generator], tuple[Array, Array]]:
    """Gaussian input of a standard deviation, first-order autoregressive; labels are noise as well."""

    def draw(T: int, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        x = sd * rng.standard_normal((T, n, CHANNELS))
        for t in range(1, T if memory else 0):
            x[t] = memory * x[t - 1] + math.sqrt(1 - memory**2) * x[t]
        return x, rng.standard_normal((n, 1))

    return draw


def lorenz(T: int, n: int, rng: np.random.Generator, dt: float = 0.05) -> Array:
    """First coordinate (T, n) of Lorenz's system (10, 28, 8/3) from n starts on the attractor, standardised.

    E. N. Lorenz, J. Atmos. Sci. 20 (1963) 130; Runge and Kutta's method of order 4, five steps for each ``dt``.
    """

    def rate(s: Array) -> Array:
        x, y, z = s
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    step, skip = dt / 5, int(20 / dt)
    centre = np.array([[0.0], [0.0], [25.0]])
    s, out = centre + rng.standard_normal((3, n)), np.empty((T, n))
    for t in range(-skip, T):
        for _ in range(5):
            a = rate(s)
            b = rate(s + step / 2 * a)
            c = rate(s + step / 2 * b)
            s = s + step / 6 * (a + 2 * b + 2 * c + rate(s + step * c))
        if t >= 0:
            out[t] = s[0]
    return out / 7.9  # standard deviation of x over the attractor


def mackey_glass(T: int, n: int, rng: np.random.Generator) -> Array:
    """Mackey and Glass's series (T, n) with delay 17, a value every 3 units of time, centred, over its deviation.

    M. C. Mackey, L. Glass, Science 197 (1977) 287: x' = .2 x(t - 17) / (1 + x(t - 17)^10) - .1 x; Euler steps of .25.
    """
    lag, each = 68, 12
    history = list(0.9 + 0.3 * rng.standard_normal((lag, n)).clip(-2, 2))
    skip, out = 100, np.empty((T, n))
    for t in range(-skip, T):
        for _ in range(each):
            past, now = history[-lag], history[-1]
            history.append(now + 0.25 * (0.2 * past / (1 + past**10) - 0.1 * now))
        del history[:-lag]
        if t >= 0:
            out[t] = history[-1]
    return (out - 0.92) / 0.23  # mean and standard deviation of the series


def forecast(
    series: Callable[[int, int, np.random.Generator], Array],
) -> Callable[[int, int, np.random.Generator], tuple[Array, Array]]:
    """Say at every step what the series will be ``LEAD`` steps later."""

    def draw(T: int, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        values = series(T + LEAD, n, rng)[..., None]
        return values[:T], values[LEAD:]

    return draw


SOURCES = {
    "none": Source(noise(0.0), states=0.5),
    "iid .1": Source(noise(0.1)),
    "iid .3": Source(noise(0.3)),
    "iid 1": Source(noise(1.0)),
    "AR(1)": Source(noise(1.0, AR)),
    "adding": Source(lambda T, n, rng: adding(T, n, rng=rng)),
    "order": Source(lambda T, n, rng: temporal_order(T, n, rng=rng), "cross_entropy", 4),
    "copy": Source(lambda T, n, rng: copy_memory(T - 20, n, rng=rng), "cross_entropy", 9, True),
    "Lorenz": Source(forecast(lorenz), every=True),
    "Mackey-Glass": Source(forecast(mackey_glass), every=True),
}
SYNTHETIC = ("none", "iid .1", "iid .3", "iid 1", "AR(1)")
SYMBOLIC = ("adding", "order", "copy")
FORECASTS = ("Lorenz", "Mackey-Glass")
