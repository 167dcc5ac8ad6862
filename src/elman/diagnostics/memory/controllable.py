r"""Which part of a linear network its input reaches, and how far rounding leaves this open.

The rank of ``v, W v, W^2 v, ...`` is discontinuous: the smallest change of W can make it N. So two ranks are computed.
That of the numbers as they are stored is exact, by arithmetic modulo primes. That of a network within rounding is found
by removing what the input does not reach: left vectors ``y`` with :math:`y^* [W - \lambda I,\ v]` of the size of
rounding (Popov, Belevitch, Hautus). Arnoldi's process alone overlooks them: it divides by subdiagonals, and where these
are small, as with smooth rings and lattices, the rounding of its first steps grows until it looks like a new direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from ...linearization import Array
from ..matrices import SEVERAL, rounding_of

# Unreached modes, and equal ones, have overlap times gap near rounding; others are not examined further.
_SUSPICIOUS = 1e-8
# Singular value of a set of unit vectors below which they count as dependent.
_INDEPENDENT = 1e-4
# Primes below 2^21: sums of 2000 products of two residues are integers below 2^53, exact in float64 in any order.
_PRIMES = (2097143, 2097133, 2097131)


def controllable_part(W: Array, v: Array) -> Array:
    """W restricted to the controllable subspace, the span of ``v, W v, W^2 v, ...``, in an orthonormal basis.

    Parameters
    ----------
    W : ndarray, shape (N, N)
    v : ndarray, shape (N,)

    Returns
    -------
    ndarray, shape (r, r)
        Upper Hessenberg; r = 0 if v is 0. The smallest r found for a network within rounding of this one, as defined by
        :func:`~elman.diagnostics.matrices.rounding_of`.
    """
    largest, tolerance = float(np.abs(v).max()), rounding_of(W)
    if largest == 0:
        return np.zeros((0, 0))
    # squares of huge or tiny entries would leave the range of float64
    direction = v / largest
    direction /= np.linalg.norm(direction)
    while len(W) > 1:
        unreached = _unreached(W, direction, tolerance)
        count = unreached.shape[1]
        if count == 0:
            break
        rest = scipy.linalg.qr(unreached)[0][:, count:]
        W, direction = rest.T @ W @ rest, rest.T @ direction
        direction /= np.linalg.norm(direction)
    return _arnoldi(W, direction, tolerance)


def _unreached(W: Array, direction: Array, tolerance: float) -> Array:
    """Orthonormal left vectors (N, d) whose span is invariant under W and orthogonal to ``direction``, to rounding."""
    size, scale = len(W), float(np.linalg.norm(W))
    if scale <= tolerance:
        return np.zeros((size, 0))
    decomposition: Any = scipy.linalg.eig(W, left=True, right=False)
    values, left = decomposition
    found = _equal_modes(values, left, direction, tolerance)
    if found.shape[1] and _invariant(found, W, scale * direction, tolerance):
        return found
    apart = np.abs(values - values[:, None])
    np.fill_diagonal(apart, np.inf)
    overlap = np.abs(left.conj().T @ direction)
    suspicious = overlap * np.minimum(apart.min(axis=1) / scale, 1.0) <= _SUSPICIOUS
    for z in values[suspicious & (values.imag >= 0)]:
        shift = z if z.imag else z.real
        # v on the scale of W, so that one tolerance serves both
        vectors, sizes, _ = scipy.linalg.svd(np.column_stack([W - shift * np.eye(size), scale * direction]))
        found = _real_span(vectors[:, sizes <= tolerance])
        if found.shape[1] and _invariant(found, W, scale * direction, tolerance):
            return found
    return np.zeros((size, 0))


def _equal_modes(values: Array, left: Array, direction: Array, tolerance: float) -> Array:
    """Span of left eigenvectors (N, N) of equal eigenvalues, orthogonal to ``direction``, for all eigenvalues at once.

    Only a proposal: vectors of a defective eigenvalue are left out, those of a sensitive one are inaccurate.
    """
    found, rest = [np.zeros((len(values), 0))], np.flatnonzero(values.imag >= -SEVERAL * tolerance)
    while len(rest):
        near = np.abs(values[rest] - values[rest[0]]) <= SEVERAL * tolerance
        vectors, sizes, _ = scipy.linalg.svd(left[:, rest[near]], full_matrices=False)
        vectors = vectors[:, sizes > _INDEPENDENT]
        overlap = vectors.conj().T @ direction
        if np.linalg.norm(overlap) > _SUSPICIOUS:
            vectors = vectors @ scipy.linalg.qr(overlap[:, None])[0][:, 1:]
        found.append(vectors)
        rest = rest[~near]
    return _real_span(np.column_stack(found))


def _real_span(vectors: Array) -> Array:
    """Orthonormal basis of the real and imaginary parts of the columns, nearly dependent ones left out."""
    parts = np.column_stack([vectors.real, vectors.imag]) if np.iscomplexobj(vectors) else vectors
    if not parts.shape[1]:
        return parts
    left, sizes, _ = scipy.linalg.svd(parts, full_matrices=False)
    basis: Array = left[:, sizes > _INDEPENDENT * sizes[0]]
    return basis


def _invariant(basis: Array, W: Array, v: Array, tolerance: float) -> bool:
    """Whether ``basis^T W`` lies in the span of ``basis^T`` and ``basis^T v`` is 0, both within several tolerances."""
    rows = basis.T @ W
    outside = np.linalg.norm(rows - (rows @ basis) @ basis.T)
    return len(W) > basis.shape[1] and bool(max(outside, np.linalg.norm(basis.T @ v)) <= SEVERAL * tolerance)


def _arnoldi(W: Array, direction: Array, tolerance: float) -> Array:
    """Hessenberg form (r, r) on the Krylov space of a unit vector, by Arnoldi's process, orthogonalised twice.

    A direction is new unless the remainder of ``W q`` is within the tolerance.
    """
    size = len(W)
    basis, hessenberg = np.zeros((size, size)), np.zeros((size + 1, size))
    basis[0] = direction
    for k in range(size):
        w = W @ basis[k]
        for _ in range(2):
            part = basis[: k + 1] @ w
            w -= part @ basis[: k + 1]
            hessenberg[: k + 1, k] += part
        rest = float(np.linalg.norm(w))
        if rest <= tolerance or k + 1 == size:
            return hessenberg[: k + 1, : k + 1]
        hessenberg[k + 1, k] = rest
        basis[k + 1] = w / rest
    raise AssertionError("the last round returns")


def stored_rank(W: Array, v: Array) -> int:
    """Rank of ``v, W v, W^2 v, ...`` for exactly the numbers in the arrays.

    Floating-point numbers are integers times powers of two, so the arithmetic can be done modulo a prime. The sequence
    ``u^T W^j v`` with random ``u`` obeys a linear recurrence whose order is at most the rank, and less than it with a
    probability of about ``2 N / p`` (Wiedemann 1986); the largest order for three primes is taken, which is too small
    with a probability of about 1e-9 at N = 1000.

    Parameters
    ----------
    W : ndarray, shape (N, N), float64
        Finite, N up to 2000.
    v : ndarray, shape (N,), float64

    Returns
    -------
    int
    """
    rng = np.random.default_rng(0)
    return max(_rank_modulo(W, v, prime, rng.integers(0, prime, len(v))) for prime in _PRIMES)


def _rank_modulo(W: Array, v: Array, prime: int, probe: Array) -> int:
    """Order of the recurrence of ``probe^T W^j v`` modulo a prime."""
    power, columns = _residues(W, prime), _residues(v, prime)[:, None]
    rows = probe.astype(np.float64)[None]
    while columns.shape[1] < len(v):
        columns = np.concatenate([columns, np.fmod(power @ columns, prime)], axis=1)
        power = np.fmod(power @ power, prime)
    # power is now W^K for the K columns, so that two rows of the probe give 2 K terms
    rows = np.concatenate([rows, np.fmod(rows @ power, prime)])
    return _recurrence_order(np.fmod(rows @ columns, prime).ravel().astype(np.int64), prime)


def _residues(values: Array, prime: int) -> Array:
    """The numbers modulo a prime, as whole numbers from 0 to p - 1 in float64."""
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64) % prime
    exponents, inverse = np.unique(exponent, return_inverse=True)
    powers = np.array([pow(2, int(e) - 53, prime) for e in exponents], dtype=np.int64)
    out: Array = (whole * powers[inverse.reshape(values.shape)] % prime).astype(np.float64)
    return out


def _recurrence_order(terms: Array, prime: int) -> int:
    """Order of the shortest linear recurrence of a sequence of residues (Berlekamp 1968, Massey 1969)."""
    current, previous = np.zeros((2, len(terms) + 1), dtype=np.int64)
    current[0] = previous[0] = 1
    order, since, last = 0, 1, 1
    for n in range(len(terms)):
        # products of residues are below 2^42, so sums of thousands of them fit
        discrepancy = int(current[: order + 1] @ terms[n - order : n + 1][::-1]) % prime
        if discrepancy == 0:
            since += 1
            continue
        factor = discrepancy * pow(last, -1, prime) % prime
        updated = current.copy()
        updated[since:] = (updated[since:] - factor * previous[: len(previous) - since]) % prime
        if 2 * order <= n:
            order, previous, last, since = n + 1 - order, current, discrepancy, 1
        else:
            since += 1
        current = updated
    return order
