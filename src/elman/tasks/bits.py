"""Tasks whose answer is a state to be held."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation.rng import generator
from ..validation.scalars import probability as share
from ..validation.scalars import size

Array = NDArray[Any]


def flip_flop(
    T: int, n: int, *, bits: int = 3, probability: float = 0.1, rng: int | np.random.Generator | None = None
) -> tuple[Array, Array]:
    """Hold the sign of the last pulse on each of several channels; for ``loss="mse"`` at every step.

    A network that solves it has ``2**bits`` attractors, which :func:`elman.fixed_points` finds.

    Parameters
    ----------
    T, n : int
        Steps and sequences.
    bits : int, default 3
        Channels.
    probability : float, default 0.1
        Of a pulse, at each step and channel after the first step, where every channel has one.
    rng : None, int or numpy.random.Generator
        Source of the data.

    Returns
    -------
    x : ndarray, shape (T, n, bits), float64
        Pulses of +1 or -1, 0 in between.
    y : ndarray, shape (T, n, bits), float64
        The last pulse of each channel, that of the same step included.

    Raises
    ------
    DTypeError, ArgumentError
        If a size is not an integer, or too small, or the probability outside [0, 1).

    Notes
    -----
    Saying 0 everywhere has a mean squared error of 1. Without memory the best is to repeat a pulse and say 0 where
    there is none: ``(1 - probability) (T - 1) / T``.

    References
    ----------
    Sussillo and Barak, Neural Computation 25 (2013) 626, section 4.
    """
    T, n, bits = size(T, "T"), size(n, "n", least=0), size(bits, "bits")
    share(probability, "probability")
    rng = generator(rng)
    pulsed = rng.random((T, n, bits)) < probability
    pulsed[0] = True
    x = np.where(pulsed, rng.choice([-1.0, 1.0], (T, n, bits)), 0.0)
    last = np.maximum.accumulate(np.where(pulsed, np.arange(T)[:, None, None], 0), axis=0)
    return x, np.take_along_axis(x, last, axis=0)
