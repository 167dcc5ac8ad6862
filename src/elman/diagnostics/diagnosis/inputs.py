"""Inputs for a diagnosis without data: white noise, noise of a declared autocorrelation, or pieces of a sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError, ShapeError
from ...linearization import Array
from ...validation.arrays import finite_numbers

MOST_LAGS = 1000


def white(T: int, n: int, D: int, rng: np.random.Generator) -> Array:
    """Independent standard normal numbers (T, n, D)."""
    return rng.standard_normal((T, n, D))


def autocorrelated(T: int, n: int, correlation: Array, rng: np.random.Generator) -> Array:
    r"""Stationary Gaussian noise of unit variance with the given autocorrelation; channels are independent.

    This is the autoregressive process of order ``p`` that has it at lags 1 .. p, the process of largest entropy: the
    coefficients :math:`a` solve the Yule-Walker equations :math:`R a = r`. It starts from its stationary distribution.

    Parameters
    ----------
    T, n : int
        Steps and sequences.
    correlation : ndarray, shape (p, D)
        Of every channel, at lags 1 .. p.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (T, n, D)

    Raises
    ------
    ArgumentError
        If no stationary process has such an autocorrelation.

    Notes
    -----
    J. P. Burg, Maximum entropy spectral analysis, Ph.D. thesis, Stanford (1975).
    """
    p, D = correlation.shape
    out = np.empty((max(T, p), n, D))
    for channel in range(D):
        r = np.concatenate([[1.0], correlation[:, channel]])
        matrix = r[np.abs(np.subtract.outer(np.arange(p), np.arange(p)))]
        try:
            root = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            raise _impossible(channel) from None
        a = np.linalg.solve(matrix, r[1:])
        innovation = 1 - float(a @ r[1:])
        if innovation < 0:
            raise _impossible(channel)
        out[:p, :, channel] = root @ rng.standard_normal((p, n))
        noise = np.sqrt(innovation) * rng.standard_normal((len(out), n))
        for t in range(p, len(out)):
            out[t, :, channel] = a[::-1] @ out[t - p : t, :, channel] + noise[t]
    return out[:T]


def _impossible(channel: int) -> ArgumentError:
    """The error for an autocorrelation that no stationary process has."""
    return ArgumentError(
        f"input_autocorrelation must be that of a stationary process, but that of channel {channel} is not: its "
        "matrix has a negative eigenvalue. Estimate it with the divisor T at every lag, or give a sample of inputs as x"
    )


def checked_correlation(value: ArrayLike, D: int) -> Array:
    """A declared autocorrelation as (p, D), from that or from one for all channels (p,).

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        For numbers that are not correlations, another shape, or values that are not numbers.
    """
    array = finite_numbers(value, "input_autocorrelation")
    if array.ndim not in (1, 2) or not 1 <= len(array) <= MOST_LAGS or (array.ndim == 2 and array.shape[1] != D):
        raise ShapeError(
            f"input_autocorrelation must have shape (p,), lags 1 .. p with p from 1 to {MOST_LAGS}, or (p, {D}), one "
            f"column per channel; got shape {array.shape}"
        )
    if (np.abs(array) > 1).any():
        raise ArgumentError(
            f"input_autocorrelation must lie in -1 .. 1, got {array.flat[np.abs(array).argmax()]:.4g}; divide the "
            "autocovariance by the variance, and leave lag 0 out"
        )
    return np.broadcast_to(array[:, None] if array.ndim == 1 else array, (len(array), D))


def resampled(sample: Array, T: int, n: int, rng: np.random.Generator) -> Array:
    """Sequences (T, n, D) made of stretches of a sample (S, m, D): the stationary bootstrap.

    A stretch begins anywhere in any sequence, continues at the sequence's start where that ends, and has a
    geometrically distributed length of S / 2 steps on average. So every moment of one step is that of the sample, and
    so are the correlations within and between channels at all lags that are short compared with S; what depends on the
    position in the sequence is lost.

    Parameters
    ----------
    sample : ndarray, shape (S, m, D)
    T, n : int
        Steps and sequences.
    rng : numpy.random.Generator

    Notes
    -----
    D. N. Politis and J. P. Romano, J. Am. Stat. Assoc. 89 (1994) 1303.
    """
    S, m, _ = sample.shape
    new = rng.random((T, n)) < min(1.0, 2 / S)
    new[0] = True
    sequence, place = rng.integers(m, size=(T, n)), rng.integers(S, size=(T, n))
    for t in range(1, T):
        sequence[t] = np.where(new[t], sequence[t], sequence[t - 1])
        place[t] = np.where(new[t], place[t], (place[t - 1] + 1) % S)
    out: Array = sample[place, sequence]
    return out
