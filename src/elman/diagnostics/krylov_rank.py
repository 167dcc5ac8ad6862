"""The rank of ``v, W v, W^2 v, ...``, exactly: in whole numbers modulo primes.

In floating point, rounding decides whether a direction is new: what is left of ``W^k v`` is small long before it is
zero, and normalising amplifies what rounding has left of the earlier ones. But floating-point numbers are integers
times powers of two, so the rank is that of an integer matrix, which arithmetic modulo a prime finds without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..linearization import Array

PRIMES = 3
"""How many are tried. Each gives at most the rank, and less with a probability of about ``N / prime`` below 1e-3."""


def krylov_rank(W: Array, v: Array) -> int:
    """Dimension of the span of ``v, W v, W^2 v, ...`` for the numbers as they are given.

    Parameters
    ----------
    W : ndarray, shape (N, N), float64
    v : ndarray, shape (N,), float64

    Returns
    -------
    int
        The rank; too low with a probability of about 1e-10 for N = 1000, less for smaller.
    """
    return max(_rank_modulo(_residues(W, p), _residues(v, p), p) for p in _primes(len(v)))


def _primes(n: int) -> Iterator[int]:
    """The largest primes of which n products add up to an integer that float64 holds."""
    p, found = math.isqrt(2**53 // max(1, n)), 0
    while found < PRIMES:
        if all(p % d for d in range(2, math.isqrt(p) + 1)):
            found += 1
            yield p
        p -= 1


def _residues(a: Array, p: int) -> Array:
    """The entries times a common power of two that makes them integers, modulo p, as float64."""
    mantissa, exponent = np.frexp(a)
    powers = exponent.astype(np.int64) - int(exponent.min(initial=0))
    of_two = np.array([pow(2, int(k), p) for k in range(int(powers.max(initial=0)) + 1)], np.int64)
    integers = np.ldexp(mantissa, 53).astype(np.int64)
    return (integers % p * of_two[powers] % p).astype(np.float64)


def _rank_modulo(W: Array, v: Array, p: int) -> int:
    """The rank modulo p; all sums are integers below 2**53, hence exact in any order."""
    n = len(v)
    echelon, pivots = np.zeros((n, n)), np.zeros(n, dtype=int)
    x = v
    for k in range(n):
        rest = (x - x[pivots[:k]] @ echelon[:k]) % p
        nonzero = np.flatnonzero(rest)
        if not nonzero.size:
            return k
        pivots[k] = nonzero[0]
        inverse = pow(int(rest[pivots[k]]), -1, p)
        echelon[k] = rest * inverse % p
        # earlier rows stay zero in the new pivot's column
        echelon[:k] = (echelon[:k] - np.outer(echelon[:k, pivots[k]], echelon[k])) % p
        x = W @ echelon[k] % p
    return n
