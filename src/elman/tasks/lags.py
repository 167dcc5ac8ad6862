"""Tasks whose answer depends on what was shown long before."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation.rng import generator
from ..validation.scalars import size

Array = NDArray[Any]

_SHORTEST_ORDER = 10  # below, the windows of the two symbols, tenths of T, hold no step


def adding(T: int, n: int, *, rng: int | np.random.Generator | None = None) -> tuple[Array, Array]:
    """Add the two numbers that are marked, one in each half of the sequence; for ``loss="mse"`` at the last step.

    Parameters
    ----------
    T : int
        Steps, at least 2.
    n : int
        Sequences.
    rng : None, int or numpy.random.Generator
        Source of the data.

    Returns
    -------
    x : ndarray, shape (T, n, 2), float64
        Numbers uniform in [0, 1), and marks that are 1 at two steps and 0 elsewhere.
    y : ndarray, shape (n, 1), float64
        The sum of the marked numbers.

    Raises
    ------
    DTypeError, ArgumentError
        If a size is not an integer, or too small.

    Notes
    -----
    The best answer that looks at nothing is 1, with the error of the variance of the sum, ``2 / 12 = 1/6``. Seeing the
    second number alone halves it: 1/12.

    References
    ----------
    Hochreiter and Schmidhuber, Neural Computation 9 (1997) 1735, experiment 4; numbers and places of the marks as in
    Le, Jaitly and Hinton, arXiv:1504.00941 (2015).
    """
    T, n = size(T, "T", least=2), size(n, "n", least=0)
    rng = generator(rng)
    x = np.zeros((T, n, 2))
    x[:, :, 0] = rng.random((T, n))
    row = np.arange(n)
    first, second = rng.integers(0, T // 2, n), rng.integers(T // 2, T, n)
    x[first, row, 1] = x[second, row, 1] = 1.0
    return x, (x[first, row, 0] + x[second, row, 0])[:, None]


def copy_memory(
    delay: int, n: int, *, symbols: int = 8, length: int = 10, rng: int | np.random.Generator | None = None
) -> tuple[Array, Array]:
    """Repeat a string of symbols after a delay; for ``loss="cross_entropy"`` at every step.

    Parameters
    ----------
    delay : int
        Steps from the end of the string to the signal to repeat it, at least 1; the sequence has
        ``T = delay + 2 length`` steps.
    n : int
        Sequences.
    symbols : int, default 8
        Different symbols, at least 2.
    length : int, default 10
        Symbols in the string.
    rng : None, int or numpy.random.Generator
        Source of the data.

    Returns
    -------
    x : ndarray, shape (T, n, symbols + 2), float64
        One-hot: 0 stands for the blank, 1 .. symbols for the symbols, the last for the signal. It is the last step of
        the delay; what follows is blank.
    y : ndarray of int, shape (T, n)
        0 until the signal, then the string; ``symbols + 1`` classes.

    Raises
    ------
    DTypeError, ArgumentError
        If a size is not an integer, or too small.

    Notes
    -----
    Without memory the best is to say "blank" until the signal and to guess afterwards: a cross-entropy of
    ``length log(symbols) / T`` nats per step.

    References
    ----------
    Hochreiter and Schmidhuber, Neural Computation 9 (1997) 1735, for the problem; in this form Arjovsky, Shah and
    Bengio, ICML (2016) 1120.
    """
    delay, n = size(delay, "delay"), size(n, "n", least=0)
    symbols, length = size(symbols, "symbols", least=2), size(length, "length")
    string = generator(rng).integers(1, symbols + 1, (length, n))
    shown, y = np.zeros((2, delay + 2 * length, n), dtype=np.int64)
    shown[:length], y[-length:] = string, string
    shown[length + delay - 1] = symbols + 1
    return np.eye(symbols + 2)[shown], y


def temporal_order(T: int, n: int, *, rng: int | np.random.Generator | None = None) -> tuple[Array, Array]:
    """Tell in which order two symbols came among distractors; for ``loss="cross_entropy"`` at the last step.

    Parameters
    ----------
    T : int
        Steps, at least 10.
    n : int
        Sequences.
    rng : None, int or numpy.random.Generator
        Source of the data.

    Returns
    -------
    x : ndarray, shape (T, n, 6), float64
        One-hot: features 0 and 1 stand for the relevant symbols A and B, the others for distractors. One relevant
        symbol comes in the second tenth of the sequence, one in the sixth.
    y : ndarray of int, shape (n,)
        Class: 0 for AA, 1 for AB, 2 for BA, 3 for BB.

    Raises
    ------
    DTypeError, ArgumentError
        If a size is not an integer, or too small.

    Notes
    -----
    Guessing gives a cross-entropy of ``log 4 = 1.386`` nats and a quarter right; the second symbol alone ``log 2`` and
    half.

    References
    ----------
    Hochreiter and Schmidhuber, Neural Computation 9 (1997) 1735, experiment 6a; places in proportion to T as in
    Pascanu, Mikolov and Bengio, ICML (2013) 1310.
    """
    T, n = size(T, "T", least=_SHORTEST_ORDER), size(n, "n", least=0)
    rng = generator(rng)
    shown = rng.integers(2, 6, (T, n))
    pair = rng.integers(0, 2, (2, n))
    row = np.arange(n)
    shown[rng.integers(T // 10, 2 * T // 10, n), row] = pair[0]
    shown[rng.integers(5 * T // 10, 6 * T // 10, n), row] = pair[1]
    return np.eye(6)[shown], 2 * pair[0] + pair[1]
