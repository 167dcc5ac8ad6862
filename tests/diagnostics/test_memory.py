"""Memory capacity, exact and measured, and Fisher memory."""

import json

import mpmath
import numpy as np
import pytest
import scipy.linalg

import elman
from elman.diagnostics.memory.capacity import MemoryCapacity, memory_capacity
from elman.diagnostics.memory.fisher import fisher_memory
from elman.diagnostics.memory.measured import measured_memory
from elman.errors import ArgumentError, DTypeError, ShapeError


def stable(N, seed, radius=0.8):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((N, N))
    return W * (radius / abs(np.linalg.eigvals(W)).max()), rng.standard_normal(N)


def ring(N, r):
    return r * np.roll(np.eye(N), 1, axis=0)


def first(N):
    return np.eye(N)[0]


def rotated(W, v, seed=0):
    Q = scipy.linalg.qr(np.random.default_rng(seed).standard_normal((len(v), len(v))))[0]
    return Q @ W @ Q.T, Q @ v


# ---------------------------------------------------------------------------------------------- exact capacity


@pytest.mark.parametrize("seed", range(5))
def test_capacity_is_that_of_the_gramian(seed):
    # m_k = (W^k v)^T C^{-1} W^k v, C = W C W^T + v v^T: safe for a few units
    W, v = stable(int(np.random.default_rng(seed).integers(1, 6)), seed)
    C = scipy.linalg.solve_discrete_lyapunov(W, np.outer(v, v))
    found = memory_capacity(W, v, max_lag=30).per_lag
    for k, value in enumerate(found):
        signal = np.linalg.matrix_power(W, k) @ v
        assert value == pytest.approx(signal @ np.linalg.solve(C, signal), abs=1e-7)


def test_capacity_against_60_digits():
    N, steps = 26, 300
    W, v = stable(N, 7, 0.7)
    with mpmath.workdps(60):
        A, x = mpmath.matrix(W.tolist()), mpmath.matrix(v.tolist())
        K, columns = mpmath.matrix(N, steps), []
        for j in range(steps):
            K[:, j] = x
            columns.append(x)
            x = A * x
        assert mpmath.norm(x) < 1e-40
        gramian = K * K.T
        lags = (0, 1, 10, 19, 25, 60)
        expected = [float((columns[k].T * mpmath.lu_solve(gramian, columns[k]))[0]) for k in lags]
    found = memory_capacity(W, v, max_lag=60).per_lag
    np.testing.assert_allclose(found[list(lags)], expected, atol=1e-11)
    C = scipy.linalg.solve_discrete_lyapunov(W, np.outer(v, v))
    # where the direct formula has lost most digits
    plain = [signal @ np.linalg.solve(C, signal) for k in lags for signal in [np.linalg.matrix_power(W, k) @ v]]
    assert np.abs(np.subtract(plain, expected)).max() > 1e-4


def test_ring():
    # lag 0 misses what the echoes of N, 2 N, ... steps ago cover: N - 1 + r^{2N} from lag 1
    found = memory_capacity(ring(12, 0.9), first(12))
    assert found.total == 12
    assert found.total_past == pytest.approx(11.0797664431, abs=5e-11)
    assert found.total_past == pytest.approx(11 + 0.9**24, rel=1e-13)
    for k, value in enumerate(found.per_lag[:60]):
        assert value == pytest.approx((1 - 0.9**24) * 0.9 ** (24 * (k // 12)), abs=1e-12)


def test_delay_line_holds_exactly_its_length():
    found = memory_capacity(np.eye(9, k=-1), first(9))
    np.testing.assert_allclose(found.per_lag, np.ones(9), rtol=1e-12)
    turned = memory_capacity(*rotated(0.5 * np.eye(9, k=-1), first(9)), max_lag=12)
    np.testing.assert_allclose(turned.per_lag[:9], 1, atol=1e-9)
    np.testing.assert_allclose(turned.per_lag[9:], 0, atol=1e-9)


@pytest.mark.parametrize(("N", "radius"), [(1, 0.9), (31, 0.95), (200, 0.9), (60, 0.999)])
def test_all_lags_add_up_to_the_number_of_units(N, radius):
    found = memory_capacity(*stable(N, N, radius))
    assert found.rank == N
    assert found.per_lag.sum() == pytest.approx(N, rel=2e-9)
    assert (np.diff(found.per_lag) <= 1e-13).all()
    assert found.per_lag[0] <= 1


def test_what_the_input_does_not_reach_does_not_count():
    W, v = stable(4, 0)
    alone = memory_capacity(W, v, max_lag=20)
    other = scipy.linalg.block_diag(W, stable(3, 1)[0])
    both = memory_capacity(*rotated(other, np.append(v, np.zeros(3))), max_lag=20)
    assert both.rank == 4
    assert both.state_size == 7
    np.testing.assert_allclose(both.per_lag, alone.per_lag, atol=1e-10)
    assert "does not reach" in str(both)
    # equal eigenvalues without coupling act as one unit: (1 - r^2) r^{2k}
    equal = memory_capacity(0.7 * np.eye(5), np.arange(1.0, 6.0), max_lag=9)
    assert equal.rank == 1
    np.testing.assert_allclose(equal.per_lag, 0.51 * 0.49 ** np.arange(10), atol=1e-13)


def test_degenerate_networks():
    none = memory_capacity(stable(3, 0)[0], np.zeros(3))
    assert none.rank == 0
    assert none.per_lag.tolist() == [0.0]
    present = memory_capacity(np.zeros((3, 3)), first(3))
    assert present.total == 1
    assert present.total_past == pytest.approx(0, abs=1e-14)


def test_the_size_of_the_input_vector_does_not_matter():
    W, v = stable(10, 3)
    np.testing.assert_allclose(memory_capacity(W, v).per_lag, memory_capacity(W, 1e-9 * v).per_lag, atol=1e-12)
    assert len(memory_capacity(W, v, max_lag=500).per_lag) == 501


@pytest.mark.parametrize("function", [memory_capacity, fisher_memory])
def test_wrong_networks_are_refused(function):
    W, v = stable(3, 0)
    with pytest.raises(ArgumentError, match="radius below 1, got 1"):
        function(np.eye(3), v)
    with pytest.raises(ArgumentError, match="radius below 1, got 2"):
        function(np.diag([2.0, 0.1]), v[:2])
    with pytest.raises(ShapeError, match="v must have shape"):
        function(W, v[:2])
    with pytest.raises(ShapeError, match="W must be a square"):
        function(W[:2], v)
    with pytest.raises(ArgumentError, match=r"v\[1\] is nan"):
        function(W, [1.0, np.nan, 0.0])
    with pytest.raises(DTypeError, match="complex"):
        function(W, v * 1j)
    with pytest.raises(ArgumentError, match="max_lag"):
        function(W, v, max_lag=-1)


def test_a_memory_without_end_is_refused():
    with pytest.raises(ArgumentError, match="so near 1"):
        memory_capacity([[1 - 1e-9]], [1.0])


# ---------------------------------------------------------------------------------------------- Fisher memory


def fisher_by_sums(W, v, noise, lags, terms=3000):
    C, power = np.zeros_like(W), np.eye(len(W))
    for _ in range(terms):
        C += power @ power.T
        power = W @ power
    signals = [np.linalg.matrix_power(W, k) @ v for k in range(lags)]
    return np.array([s @ np.linalg.solve(noise * C, s) for s in signals])


@pytest.mark.parametrize("seed", range(4))
def test_fisher_memory_is_the_sum_of_its_definition(seed):
    W, v = stable(7, seed, 0.9)
    found = fisher_memory(W, v, noise_variance=0.3, max_lag=40)
    np.testing.assert_allclose(found.per_lag, fisher_by_sums(W, v, 0.3, 41), rtol=1e-9)
    assert found.total == pytest.approx(fisher_by_sums(W, v, 0.3, 400).sum(), rel=1e-9)
    complete = fisher_memory(W, v, noise_variance=0.3)
    assert complete.per_lag.sum() == pytest.approx(found.total, rel=2e-9)


@pytest.mark.parametrize("radius", [0.5, 0.99, 0.99999])
def test_normal_networks_hold_exactly_1(radius):
    # Ganguli, Huh and Sompolinsky 2008, for every unit input vector
    blocks = [r * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for r, a in ((radius, 0.7), (0.5, 2.0))]
    v = np.random.default_rng(0).standard_normal(5)
    W, v = rotated(scipy.linalg.block_diag(*blocks, -0.3), v / np.linalg.norm(v))
    assert fisher_memory(W, v, max_lag=5).total == pytest.approx(1, rel=1e-9)


def test_delay_line_has_the_harmonic_number():
    found = fisher_memory(np.eye(12, k=-1), first(12))
    assert found.total == pytest.approx(3.1032106782, abs=5e-11)
    np.testing.assert_allclose(found.per_lag, 1 / np.arange(1, 13), rtol=1e-12)


def test_no_network_holds_more_than_its_size():
    rng = np.random.default_rng(2)
    for gain in (1.0, 1.5, 4.0):
        assert 1 < fisher_memory(gain * np.eye(12, k=-1), first(12)).total < 12
    for seed in range(20):
        W, v = stable(6, seed, rng.uniform(0.1, 0.99))
        W = W + 3 * np.triu(np.ones((6, 6)), 1) if seed % 2 else W
        if abs(np.linalg.eigvals(W)).max() < 1:
            assert 0 < fisher_memory(W, v / np.linalg.norm(v)).total < 6 * (1 + 1e-9)
    # a delay line that amplifies approaches the bound
    assert fisher_memory(1e3 * np.eye(12, k=-1), first(12)).total == pytest.approx(12, rel=1e-5)


def test_noise_and_input_scale_the_information():
    W, v = stable(5, 1)
    one = fisher_memory(W, v).per_lag
    np.testing.assert_allclose(fisher_memory(W, 3 * v, noise_variance=0.5).per_lag, 18 * one, rtol=1e-10)
    assert fisher_memory(W, np.zeros(5)).total == 0
    for noise in (0, -1, np.nan):
        with pytest.raises(ArgumentError, match="noise_variance"):
            fisher_memory(W, v, noise_variance=noise)


# ---------------------------------------------------------------------------------------------- measured capacity


def linear_states(W, v, u):
    s, states = np.zeros(len(v)), np.empty((len(u), len(v)))
    for t, x in enumerate(u):
        s = W @ s + v * x
        states[t] = s
    return states


def test_r_squared_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    states, u = rng.standard_normal((120, 4)), rng.standard_normal(120)
    found = measured_memory(states + 5, u, max_lag=6, warmup=10)
    assert found.n_samples == 110
    design = np.column_stack([np.ones(110), states[10:]])
    for k in range(7):
        target = u[10 - k : 120 - k]
        rest = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
        r2 = 1 - rest @ rest / ((target - target.mean()) ** 2).sum()
        assert found.biased[k] == pytest.approx(r2, abs=1e-12)
        assert found.per_lag[k] == pytest.approx(1 - (1 - r2) * 109 / 105, abs=1e-12)


def test_where_there_is_no_memory_the_bias_is_what_theory_says():
    # states that know nothing: R^2 averages p / (n - 1), the adjusted one 0, and 1e-4 exceed the threshold
    n, p, biased, adjusted, above, lags = 400, 40, [], [], 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = measured_memory(rng.standard_normal((n + 100, p)), rng.standard_normal(n + 100), max_lag=100)
        biased.append(found.biased.mean())
        adjusted.append(found.per_lag.mean())
        above += np.count_nonzero(found.per_lag > found.threshold)
        lags += len(found.per_lag)
    standard_error = np.std(adjusted, ddof=1) / np.sqrt(40)
    assert np.mean(biased) == pytest.approx(p / (n - 1), abs=4 * standard_error)
    assert np.mean(adjusted) == pytest.approx(0, abs=4 * standard_error)
    assert standard_error < 0.002
    # expected .4 of 4040
    assert lags == 4040
    assert above <= 4


def test_a_linear_network_is_measured_as_computed():
    W, v = stable(12, 5, 0.7)
    exact = memory_capacity(W, v, max_lag=40)
    u = np.random.default_rng(1).standard_normal(20_000)
    found = measured_memory(linear_states(W, v, u), u, max_lag=40, warmup=200)
    np.testing.assert_allclose(found.per_lag, exact.per_lag, atol=0.02)
    assert found.total == pytest.approx(12, abs=0.05)
    assert found.total_significant == pytest.approx(12, abs=0.05)


@pytest.mark.parametrize(("n", "excess", "left"), [(100, 0.45, -0.05), (200, 0.22, -0.03), (400, 0.12, -0.01)])
def test_what_is_left_of_the_bias(n, excess, left):
    # the figures of the docstring: the plain sum exceeds what 12 units can hold, the corrected one nearly meets it
    W, v = stable(12, 5, 0.7)
    plain, corrected = [], []
    for seed in range(40):
        u = np.random.default_rng(seed).standard_normal(n + 100)
        few = measured_memory(linear_states(W, v, u), u, max_lag=60, warmup=100)
        plain.append(few.biased.sum())
        corrected.append(few.total)
        assert few.bias == pytest.approx(few.biased.sum() - few.total)
    for sums, expected in ((plain, excess), (corrected, left)):
        error = 3 * np.std(sums, ddof=1) / np.sqrt(40) / 12
        assert np.mean(sums) / 12 - 1 == pytest.approx(expected, abs=error)
        assert error < 0.04


def test_a_network_of_the_library():
    layer = elman.RNN(1, 20, rng=0)
    layer.params["weight_hh_l0"][...] *= 0.9
    layer.params["weight_ih_l0"][...] *= 0.1
    u = np.random.default_rng(2).standard_normal((5000, 1))
    weak = measured_memory(layer(u)[0], u, warmup=300)
    layer.params["weight_ih_l0"][...] *= 30
    strong = measured_memory(layer(u)[0], u, warmup=300)
    # saturation costs linear memory (Dambre et al. 2012), and no network holds more than its size
    assert strong.total < weak.total - 3
    assert weak.total_significant <= 20


def test_dependent_and_constant_states_are_not_counted():
    rng = np.random.default_rng(3)
    u = rng.standard_normal(500)
    base = linear_states(*stable(4, 2), u)
    doubled = np.column_stack([base, base @ rng.standard_normal((4, 4)), np.full(500, 3.7)])
    one, other = measured_memory(base, u, max_lag=20), measured_memory(doubled, u, max_lag=20)
    assert other.rank == 4
    np.testing.assert_allclose(other.per_lag, one.per_lag, atol=1e-9)
    dead = measured_memory(np.full((500, 3), 0.1), u, max_lag=5)
    assert dead.rank == 0
    assert not dead.biased.any()
    assert dead.total_significant == 0


def test_a_correlated_input_is_told():
    rng = np.random.default_rng(4)
    u = rng.standard_normal(2000)
    assert measured_memory(rng.standard_normal((2000, 3)), u).input_is_white
    smooth = measured_memory(rng.standard_normal((2000, 3)), np.convolve(u, np.ones(5), "same"))
    assert not smooth.input_is_white
    assert "correlated in time" in str(smooth)


def test_wrong_records_are_refused():
    rng = np.random.default_rng(0)
    states, u = rng.standard_normal((50, 4)), rng.standard_normal(50)
    with pytest.raises(ShapeError, match="states must have shape"):
        measured_memory(states[:, None], u)
    with pytest.raises(ShapeError, match="inputs must have shape"):
        measured_memory(states, u[:-1])
    with pytest.raises(ArgumentError, match="at least N \\+ 3 = 7 samples"):
        measured_memory(states, u, max_lag=44)
    measured_memory(states, u, max_lag=43)
    with pytest.raises(ArgumentError, match="inputs must vary"):
        measured_memory(states, np.ones(50))
    with pytest.raises(ArgumentError, match=r"states\[0, 0\]"):
        measured_memory(np.full((50, 4), np.inf), u)


@pytest.mark.parametrize("kind", ["capacity", "fisher", "measured"])
def test_summary_and_dict(kind):
    W, v = stable(6, 0)
    u = np.random.default_rng(0).standard_normal(300)
    result = {
        "capacity": lambda: memory_capacity(W, v),
        "fisher": lambda: fisher_memory(W, v),
        "measured": lambda: measured_memory(linear_states(W, v, u), u),
    }[kind]()
    assert "total" in str(result)
    assert "lag" in str(result)
    assert "total=" in repr(result)
    plain = json.loads(json.dumps(result.to_dict()))
    np.testing.assert_array_equal(plain["per_lag"], result.per_lag)
    assert plain["total"] == result.total


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_a_huge_or_tiny_input_vector_changes_nothing(factor):
    W, v = stable(8, 0)
    plain, other = memory_capacity(W, v), memory_capacity(W, v * factor)
    assert other.total == plain.total == 8
    np.testing.assert_allclose(other.per_lag, plain.per_lag, atol=1e-9)


def test_fisher_memory_over_many_lags():
    # independent units: J_k = sum_i (1 - r_i^2) r_i^(2 k)
    r = np.array([0.9999, 0.5])
    memory = fisher_memory(np.diag(r), np.ones(2))
    lags = np.arange(len(memory.per_lag))
    expected = ((1 - r**2) * r ** (2 * lags[:, None])).sum(axis=1)
    np.testing.assert_allclose(memory.per_lag, expected, rtol=1e-8)
    assert memory.total == pytest.approx(2, rel=1e-10)
    assert 0.9999 ** (2 * len(lags)) == pytest.approx(2e-9, rel=1e-3)


def test_a_fisher_memory_without_end_is_refused():
    W = np.diag([0.9999999, 0.5])
    with pytest.raises(ArgumentError, match="1000000 lags"):
        fisher_memory(W, np.ones(2))
    assert len(fisher_memory(W, np.ones(2), max_lag=9).per_lag) == 10


# ---- the rank, where rounding would decide


def gaussian_ring(n, width=1.5, shift=0):
    """Circulant matrix with a Gaussian profile; with a shift it is not symmetric, and no eigenvalue is repeated."""
    away = np.minimum(np.arange(n), n - np.arange(n))
    W = scipy.linalg.circulant(np.roll(np.exp(-((away / width) ** 2)), shift))
    return W * (0.9 / np.abs(scipy.linalg.eigvals(W)).max())


def torus(n):
    """Square lattice with periodic boundaries, and its distinct eigenvalues: sums a + b of those of a ring."""
    W = 0.5 * (np.kron(gaussian_ring(n), np.eye(n)) + np.kron(np.eye(n), gaussian_ring(n)))
    values = np.linalg.eigvalsh(gaussian_ring(n))
    sums = np.sort(0.5 * np.add.outer(values, values).reshape(-1))
    return W, 1 + int(np.count_nonzero(np.diff(sums) > 1e-9))


JORDAN = np.diag([0.5] * 4 + [0.2] * 2) + np.diag([1.0, 1, 1, 0, 1], 1)


def unit(n, *places):
    return np.eye(n)[list(places)].sum(axis=0)


RANKS = {
    **{f"symmetric ring of {n}": (gaussian_ring(n), unit(n, 0), n // 2 + 1) for n in (3, 5, 12, 13, 40, 100)},
    **{f"ring of {n} with a direction": (gaussian_ring(n, shift=1), unit(n, 0), n) for n in (5, 12, 40, 100)},
    **{f"torus of {n} x {n}": (torus(n)[0], unit(n * n, 0), torus(n)[1]) for n in (3, 4, 5, 8)},
    "one cycle": (0.9 * np.roll(np.eye(12), 1, axis=0), unit(12, 0), 12),
    "two equal cycles": (0.9 * np.kron(np.eye(2), np.roll(np.eye(6), 1, axis=0)), unit(12, 0, 7), 6),
    "two cycles, one of which is not driven": (0.9 * np.kron(np.eye(2), np.roll(np.eye(6), 1, axis=0)), unit(12, 0), 6),
    "repeated entries of a diagonal": (np.diag([0.5, 0.5, 0.2, 0.2, 0.2, -0.1]), np.ones(6), 3),
    "Jordan blocks, driven at their ends": (JORDAN / 2, unit(6, 3, 5), 6),
    "a Jordan block, driven in its middle": (JORDAN / 2, unit(6, 1, 5), 4),
    "a Jordan block, driven at its beginning": (JORDAN / 2, unit(6, 0), 1),
    "a delay line": (np.diag(0.9 * np.ones(11), -1), unit(12, 0), 12),
    "zero": (np.zeros((4, 4)), np.ones(4), 1),
    "no input": (0.5 * np.eye(4), np.zeros(4), 0),
    **{f"eigenvalues {d} apart": (np.diag([0.5, 0.5 + d, 0.2]), np.ones(3), 3) for d in (1e-3, 1e-6, 1e-9, 1e-12)},
    **{f"random {n}": (stable(n, n)[0], stable(n, n)[1], n) for n in (7, 30, 100)},
}  # fmt: skip
"""Network, input and the dimension of what the input reaches, from its structure."""


@pytest.mark.parametrize("name", RANKS)
def test_rank_is_that_of_the_structure(name):
    W, v, rank = RANKS[name]
    found = memory_capacity(W, v)
    assert found.rank == rank
    assert found.rank_high == rank
    assert found.per_lag.sum() == pytest.approx(rank, abs=1e-6)


@pytest.mark.parametrize("name", RANKS)
def test_rank_does_not_depend_on_the_basis(name):
    """In a rotated basis rounding breaks every symmetry: the numbers as given may have a larger rank."""
    W, v, rank = RANKS[name]
    found = memory_capacity(*rotated(W, v))
    assert found.rank == rank
    assert found.rank_high >= rank
    assert found.exact == (found.rank_high == rank)


def test_states_of_a_float32_network_are_counted_at_its_rounding():
    rng = np.random.default_rng(0)
    u = rng.standard_normal(600)
    base = np.column_stack([np.roll(u, k) for k in range(4)])
    doubled = np.column_stack([base, base @ rng.standard_normal((4, 4))])
    assert measured_memory(doubled, u).rank == 4
    assert measured_memory(doubled.astype(np.float32), u).rank == 4
    # the same numbers said to be float64 are independent
    assert measured_memory(doubled.astype(np.float32).astype(np.float64), u).rank == 8


def test_a_capacity_of_one_half_is_not_less_than_half():
    def found(*per_lag):
        return MemoryCapacity(np.array(per_lag), 2, 2, 2, np.array(per_lag)).half_lag

    assert found(1.0, 0.5, 0.25) == 2
    assert found(1.0, 0.5, np.nextafter(0.5, 0.0)) == 2
    assert found(1.0, 0.5, 0.5) is None
