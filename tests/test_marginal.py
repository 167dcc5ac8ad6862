"""On the unit circle: the same words in every basis, and only where rounding really decides."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

import elman
from elman import fixed_points, spectrum
from elman.diagnostics.marginal import eigenvalue_rounding, growth_class
from elman.diagnostics.partial_spectrum import partial_spectrum

BASES = range(6)


def rotation(n, seed):
    return scipy.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def basis(n, seed):
    """Orthogonal for even seeds, of a condition about 10 to 1000 for odd ones."""
    return rotation(n, seed) if seed % 2 == 0 else np.random.default_rng(seed).standard_normal((n, n))


def turned(W, seed):
    Q = basis(len(W), seed)
    return Q @ W @ np.linalg.inv(Q)


@pytest.mark.parametrize("n", [1, 2, 5, 30, 64, 150])
def test_orthogonal_matrices_are_marginal_and_nothing_grows(n):
    W = elman.RNN(1, n, rng=n).params["weight_hh_l0"]
    s = spectrum(W)
    assert s.stability == "marginal"
    assert not s.mode_growth.any()
    assert np.isposinf(s.time_constants).all()
    assert s.kreiss_constant == 1.0
    assert s.transient_peak == (1.0, 0)
    words = str(s)
    assert f"{n} of {n} modes neither decay nor grow, to rounding" in words
    assert "possible" not in words
    assert "nan" not in words


MARGINAL = {
    "a rotation": np.array([[0.6, -0.8], [0.8, 0.6]]),
    "a permutation": np.roll(np.eye(7), 1, axis=0),
    "one mode at 1": np.diag([1.0, 0.5, -0.3, 0.2]),
    "one mode at -1": np.diag([-1.0, 0.5, 0.3]),
    "three equal modes at 1": np.diag([1.0, 1.0, 1.0, 0.5, 0.1]),
    "a cycle of two that is not normal": np.array([[0.0, 2.0], [0.5, 0.0]]),
}


@pytest.mark.parametrize("seed", BASES)
@pytest.mark.parametrize("name", MARGINAL)
def test_marginal_in_every_basis(name, seed):
    W = MARGINAL[name]
    s = spectrum(turned(W, seed))
    assert s.stability == "marginal"
    on_circle = np.count_nonzero(np.abs(np.abs(np.linalg.eigvals(W)) - 1) < 1e-12)
    assert np.count_nonzero(s.mode_growth == 0) == on_circle
    assert np.count_nonzero(s.mode_growth < 0) == len(W) - on_circle
    # the powers are bounded: |W^k| <= condition of the eigenvectors
    assert 1 <= s.kreiss_constant <= s.eigenvector_condition * (1 + 1e-6)
    assert s.transient_peak.value <= s.eigenvector_condition * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_a_rotated_cycle_of_two_peaks_at_its_first_step(seed):
    """Powers 1, 3, 5, ... are equal: rounding makes some later one the largest."""
    Q = rotation(2, seed)
    s = spectrum(Q @ MARGINAL["a cycle of two that is not normal"] @ Q.T)
    assert s.transient_peak.step == 1
    assert s.transient_peak.value == pytest.approx(2, rel=1e-12)
    # the limit at z = 1 is the norm of the spectral projector: 1 / (cosine between left and right eigenvector) = 5/4
    assert s.kreiss_constant == pytest.approx(1.25, rel=1e-6)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", [0, 2, 4])
def test_a_jordan_block_on_the_circle_has_unbounded_powers(size, seed):
    block = np.eye(size) + np.eye(size, k=1)
    s = spectrum(turned(scipy.linalg.block_diag(block, 0.5), seed))
    assert s.stability == "marginal"
    assert s.kreiss_constant == np.inf
    assert s.transient_peak == (np.inf, None)


@pytest.mark.parametrize("seed", BASES)
@pytest.mark.parametrize("excess", [1e-6, 1e-9, -1e-6, -1e-9])
def test_what_rounding_cannot_have_moved_is_decided(excess, seed):
    s = spectrum(turned(np.diag([1 + excess, 0.5, 0.2]), seed))
    assert s.stability == ("growing" if excess > 0 else "decaying")
    if excess > 0:
        assert s.kreiss_constant == np.inf
        assert "grows" in str(s)
        assert "nan" not in str(s)
    else:
        assert s.time_constants[0] == pytest.approx(-1 / np.log1p(excess), rel=1e-2)


def test_matrices_off_the_circle_keep_their_numbers():
    s = spectrum([[0.9, 10], [0, 0.9]])
    assert s.stability == "decaying"
    assert s.kreiss_constant == pytest.approx(25.0100, abs=1e-4)
    assert s.transient_peak.step == 9
    assert s.transient_peak.value == pytest.approx(38.745923, abs=1e-6)
    for n in (10, 60):
        shift = spectrum(np.eye(n, k=1))
        assert shift.stability == "decaying"
        assert (shift.mode_growth < 0).all()


def test_the_bound_holds_for_matrices_rounded_differently():
    """Eigenvalues of W and of W with its last bits changed differ by no more than is said, and often by a good part."""
    shares = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        W = turned(np.diag(rng.uniform(-1.2, 1.2, 8)), seed)
        other = W * (1 + np.finfo(float).eps * rng.uniform(-1, 1, W.shape))
        values = np.linalg.eigvals(W)
        bound = eigenvalue_rounding(W, values)
        moved = np.abs(values[:, None] - np.linalg.eigvals(other)[None]).min(axis=1)
        assert (moved <= bound).all()
        shares.append((moved / bound).max())
    assert max(shares) > 0.01


def test_classes():
    np.testing.assert_array_equal(growth_class(np.array([0.5, 1 - 1e-9, -1.0, 1 + 1e-9, 2j]), 1e-8), [-1, 0, 0, 0, 1])


def test_large_sparse_matrices():
    cycle = scipy.sparse.csr_array(np.roll(np.eye(50), 1, axis=0))
    found = partial_spectrum(cycle)
    assert not found.mode_growth.any()
    assert np.isposinf(found.time_constants).all()
    assert (partial_spectrum(0.9 * cycle).mode_growth < 0).all()
    assert np.isnan(partial_spectrum(1.1 * cycle).time_constants).all()


# ---- fixed points


def attractor(seed, n=6, marginal=1):
    """A linear layer with a line (or plane) of fixed points, in some basis."""
    decaying = np.random.default_rng(seed).uniform(-0.7, 0.7, n - marginal)
    layer = elman.RNN(1, n, nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][...] = turned(np.diag(np.append(np.ones(marginal), decaying)), seed)
    return layer


@pytest.mark.parametrize("marginal", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_a_line_attractor_is_marginal_in_every_basis(seed, marginal):
    found = fixed_points(attractor(seed, marginal=marginal), starts=20, rng=seed)
    assert len(found) >= 1
    assert found.converged.all()
    assert found.marginal.all()
    assert not found.stable.any()
    assert (found.n_unstable == 0).all()
    assert (found.n_marginal == marginal).all()
    assert set(found.kinds) == {"marginal"}
    assert "0 of them stable and" in str(found)
    assert found.to_dict()["n_marginal"] == [marginal] * len(found)


@pytest.mark.parametrize("factor", [1 + 1e-5, 1 - 1e-5])
def test_a_leaky_line_is_decided(factor):
    layer = elman.RNN(1, 3, nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][...] = turned(np.diag([factor, 0.3, -0.2]), 2)
    found = fixed_points(layer, starts=10, rng=0)
    assert found.kinds == (("saddle",) if factor > 1 else ("stable",))


def test_pictures_show_the_class():
    pytest.importorskip("matplotlib")
    labels = [text.get_text() for text in spectrum(MARGINAL["one mode at 1"]).plot().get_legend().get_texts()]
    assert "marginal, to rounding: 1 modes" in labels
    axes = fixed_points(attractor(0), starts=5, rng=0).plot()
    assert any(text.get_text().startswith("marginal, ") for text in axes[1].get_legend().get_texts())
