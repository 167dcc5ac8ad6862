"""The rank of what an input reaches: equal modes, against exact arithmetic over the rational numbers."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.linalg

from elman.diagnostics.memory.capacity import memory_capacity
from elman.diagnostics.memory.controllable import controllable_part, stored_rank
from elman.diagnostics.memory.measured import measured_memory


def exact_rank(W, v):
    """Rank of v, W v, W^2 v, ... by elimination over the rational numbers, which floating-point numbers are."""
    matrix = [[Fraction(x) for x in row] for row in np.asarray(W, dtype=float).tolist()]
    vector, rows = [Fraction(x) for x in np.asarray(v, dtype=float).tolist()], []
    for _ in range(len(vector)):
        rest = vector
        for pivot, row in rows:
            if rest[pivot]:
                rest = [a - rest[pivot] * b for a, b in zip(rest, row, strict=True)]
        pivot = next((i for i, x in enumerate(rest) if x), None)
        if pivot is None:
            break
        rows.append((pivot, [x / rest[pivot] for x in rest]))
        vector = [sum(a * b for a, b in zip(row, vector, strict=True) if a and b) for row in matrix]
    return len(rows)


def scaled_to(W, radius):
    return W * (radius / abs(np.linalg.eigvals(W)).max())


def gaussian_ring(N, width, shift=0):
    """Coupling by the distance around a ring, moved by some units: symmetric without the shift."""
    i = np.arange(N)
    distance = np.abs(i[:, None] - i - shift) % N
    distance = np.minimum(distance, N - distance)
    return scaled_to(np.exp(-(distance**2) / (2 * width**2)), 0.9)


def torus(n, width):
    """Gaussian coupling on a lattice of n x n units with periodic borders."""
    i = np.arange(n)
    d = np.abs(i[:, None] - i)
    square = np.minimum(d, n - d) ** 2
    return scaled_to(
        np.exp(-(square[:, None, :, None] + square[None, :, None]) / (2 * width**2)).reshape(n * n, -1), 0.9
    )


def first(N, unit=0):
    return np.eye(N)[unit]


def rotated(W, v, seed=0):
    Q = scipy.linalg.qr(np.random.default_rng(seed).standard_normal((len(v), len(v))))[0]
    return Q @ W @ Q.T, Q @ v


def sheared(W, v, seed=0):
    S = np.random.default_rng(seed).standard_normal((len(v), len(v)))
    return S @ W @ np.linalg.inv(S), S @ v


def chain(m, value):
    return value * np.eye(m) + 0.5 * np.eye(m, k=-1)


NETWORKS = {
    **{
        f"ring {N}, width {width}": (gaussian_ring(N, width), first(N), N // 2 + 1)
        for N in (5, 8, 12, 13)
        for width in (0.5, 1.5, 2, 3)
    },
    **{
        f"torus {n}, width {width}": (torus(n, width), first(n * n), rank)
        for n, rank in ((3, 3), (4, 6), (5, 6), (6, 10))
        for width in (0.7, 1.5)
    },
    "ring with a direction": (gaussian_ring(12, 1.0, 1), first(12), 12),
    "ring moved by a quarter": (gaussian_ring(12, 1.0, 3), first(12), 10),
    "permutation": (0.5 * np.eye(10)[[1, 2, 0, 4, 3, 6, 7, 8, 9, 5]], np.arange(1.0, 11.0), 8),
    "repeated entries": (np.diag([0.5, 0.5, 0.5, 0.25, 0.25, -0.5, -0.5, 0.0, 0.0]), np.arange(1.0, 10.0), 4),
    "multiple of the identity": (0.7 * np.eye(5), np.arange(1.0, 6.0), 1),
    "Jordan block": (chain(6, 0.5), first(6), 6),
    "Jordan block from its middle": (chain(6, 0.5), first(6, 3), 3),
    "two Jordan blocks of one value": (scipy.linalg.block_diag(chain(3, 0.5), chain(2, 0.5)), np.ones(5), 3),
    "nearly equal": (np.diag([0.5, 0.5 + 1e-6, 0.3]), np.ones(3), 3),
    "delay line": (0.5 * np.eye(9, k=-1), first(9), 9),
    "dense": (np.random.default_rng(0).standard_normal((12, 12)) / 5, np.random.default_rng(1).standard_normal(12), 12),
    "zero": (np.zeros((3, 3)), first(3), 1),
    "one unit": (np.array([[0.5]]), np.ones(1), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_the_rank_is_that_of_rational_arithmetic(name):
    W, v, rank = NETWORKS[name]
    assert exact_rank(W, v) == rank
    assert stored_rank(W, v) == rank
    assert len(controllable_part(W, v)) == rank
    # in another basis the numbers are rounded, and the rank of what they mean is the same
    for seed in range(3):
        for W_turned, v_turned in (rotated(W, v, seed), sheared(W, v, seed)):
            assert len(controllable_part(W_turned, v_turned)) == rank


@pytest.mark.parametrize("seed", range(8))
def test_the_rank_of_stored_numbers_is_exact_for_any_network(seed):
    rng = np.random.default_rng(seed)
    N = int(rng.integers(1, 9))
    # small integers have equal modes often; scales of the entries are mixed
    W = rng.integers(-1, 2, (N, N)) * np.exp2(rng.integers(-40, 40, (N, 1)))
    v = rng.integers(-1, 2, N) * 2.0 ** rng.integers(-1000, 1000)
    assert stored_rank(W, v) == exact_rank(W, v)
    # neighbouring numbers of the format are different modes
    apart = np.diag([0.1, np.nextafter(0.1, 1)])
    assert stored_rank(apart, np.ones(2)) == exact_rank(apart, np.ones(2)) == 2
    turned = rotated(gaussian_ring(7, 1.0), first(7), seed)
    assert stored_rank(*turned) == exact_rank(*turned) > 4


@pytest.mark.parametrize(("N", "rank"), [(100, 51), (300, 151)])
def test_large_rings(N, rank):
    found = memory_capacity(gaussian_ring(N, 0.8), first(N))
    assert (found.rank, found.rank_high, found.exact) == (rank, rank, True)


@pytest.mark.parametrize("N", [100, 300])
def test_large_dense_networks_are_reached_as_a_whole(N):
    rng = np.random.default_rng(N)
    found = memory_capacity(scaled_to(rng.standard_normal((N, N)), 0.9), rng.standard_normal(N))
    assert (found.rank, found.exact) == (N, True)


@pytest.mark.parametrize("width", [1.0, 2.0])
def test_capacity_of_a_ring_against_60_digits(width):
    # states on both sides of the driven unit are equal: 7 coordinates, in which nothing is equal
    N, half, steps = 12, 7, 700
    W = gaussian_ring(N, width)
    with mpmath.workdps(60):
        A = mpmath.matrix(half, half)
        for i in range(half):
            for j in range(half):
                A[i, j] = mpmath.mpf(W[i, j]) + (mpmath.mpf(W[i, -j]) if j % 6 else 0)
        x, columns = mpmath.matrix([1] + [0] * 6), []
        for _ in range(steps):
            columns.append(x)
            x = A * x
        assert mpmath.norm(x) < 1e-30
        gramian = sum((c * c.T for c in columns), mpmath.zeros(half))
        expected = [float((columns[k].T * mpmath.lu_solve(gramian, columns[k]))[0]) for k in range(60)]
    found = memory_capacity(W, first(N), max_lag=59)
    assert found.exact
    np.testing.assert_allclose(found.per_lag, expected, atol=1e-8)
    assert memory_capacity(W, first(N)).per_lag.sum() == pytest.approx(7, rel=2e-9)


def test_what_rounding_decides_carries_an_interval():
    W, v = gaussian_ring(12, 1.5), first(12)
    plain, turned = memory_capacity(W, v, max_lag=40), memory_capacity(*rotated(W, v), max_lag=40)
    assert (plain.rank, plain.rank_high, plain.exact) == (7, 7, True)
    np.testing.assert_array_equal(plain.per_lag, plain.per_lag_high)
    assert (turned.rank, turned.rank_high, turned.exact) == (7, 12, False)
    np.testing.assert_allclose(turned.per_lag, plain.per_lag, atol=1e-7)
    assert (turned.per_lag_high >= turned.per_lag).all()
    assert turned.per_lag_high.sum() > plain.per_lag.sum() + 4
    assert (turned.per_lag_high <= 1).all()
    assert repr(turned) == "MemoryCapacity(total=7..12, N=12, lags=41)"
    assert "7 to 12 of 12 dimensions" in str(turned)
    assert "rounding of W or v decides" in str(turned)
    assert "undecided" not in str(plain)
    assert turned.to_dict()["rank_high"] == 12
    # the upper end is the capacity of a network that has all of the modes
    spread = np.diag(np.linalg.eigvalsh(W) + 1e-9 * np.arange(12))
    np.testing.assert_allclose(turned.per_lag_high, memory_capacity(spread, np.ones(12), max_lag=40).per_lag, atol=1e-5)


def test_a_unit_that_is_hardly_reached_carries_an_interval():
    found = memory_capacity(np.diag([0.9, 0.5]), [1.0, 1e-20])
    assert (found.rank, found.rank_high) == (1, 2)
    assert memory_capacity(np.diag([0.9, 0.5]), [1.0, 1e-9]).rank == 2
    # the mode near 1 may not be reached at all
    near = memory_capacity(np.diag([1 - 1e-9, 0.5]), [1e-20, 1.0])
    assert (near.rank, near.rank_high) == (1, 2)
    assert near.per_lag_high[0] == 1


def test_measured_capacity_of_a_ring_has_its_rank():
    W, v = gaussian_ring(12, 1.0), first(12)
    u, s, states = np.random.default_rng(0).standard_normal(4000), np.zeros(12), []
    for x in u:
        s = W @ s + v * x
        states.append(s)
    found = measured_memory(states, u, max_lag=60, warmup=200)
    assert found.rank == 7
    assert found.total == pytest.approx(7, abs=0.15)
