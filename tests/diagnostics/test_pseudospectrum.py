import json

import numpy as np
import pytest
import scipy.linalg

from elman.diagnostics.spectra.dense import spectrum
from elman.errors import ArgumentError, DTypeError


def grcar(n):
    """Grcar's matrix: 1 on the diagonal and three superdiagonals, -1 below."""
    return np.eye(n) - np.eye(n, k=-1) + sum(np.eye(n, k=k) for k in (1, 2, 3))


def sigma_min(W, z):
    return np.linalg.svd(np.asarray(z)[..., None, None] * np.eye(len(W)) - W, compute_uv=False)[..., -1]


def test_grcar_has_the_published_pseudospectral_radius():
    # Guglielmi and Overton, SIAM J. Matrix Anal. 32 (2011), the values in the tests of Pseudospectra.jl
    s = spectrum(grcar(100))
    assert s.pseudospectral_radius(1e-4) == pytest.approx(2.85216, abs=1e-5)
    assert s.eigenvalues.imag.max() == pytest.approx(2.2617668, abs=1e-5)


@pytest.mark.parametrize("eps", [1e-6, 1e-2, 0.5, 20.0])
@pytest.mark.parametrize(("a", "c"), [(0.5, 1.0), (-0.9, 10.0), (0.0, 2.0)])
def test_jordan_block_has_a_disc(a, c, eps):
    # the pseudospectrum of [[a, c], [0, a]] is the disc of radius sqrt(eps^2 + c eps) around a
    s = spectrum([[a, c], [0, a]])
    assert s.pseudospectral_radius(eps) == pytest.approx(abs(a) + np.sqrt(eps * eps + c * eps), rel=1e-9)


@pytest.mark.parametrize("eps", [1e-5, 0.1, 3.0])
def test_normal_matrices_have_discs_about_the_eigenvalues(eps):
    rng = np.random.default_rng(0)
    Q = scipy.linalg.qr(rng.standard_normal((6, 6)))[0]
    rotation = 0.9 * np.array([[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]])
    for W in (Q @ scipy.linalg.block_diag(rotation, 0.5 * rotation, -0.3, 0.1) @ Q.T, np.diag([0.2, -0.7]), np.eye(3)):
        s = spectrum(W)
        assert s.pseudospectral_radius(eps) == pytest.approx(s.radius + eps, rel=1e-10)


def test_zero_and_nilpotent_matrices():
    assert spectrum(np.zeros((3, 3))).pseudospectral_radius(0.1) == pytest.approx(0.1, rel=1e-12)
    S = np.eye(10, k=1)
    # rotating z rotates nothing else, and sigma_min grows with |z|: bisection along the real axis
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sigma_min(S, middle) < 1e-3 else (low, middle)
    assert spectrum(S).pseudospectral_radius(1e-3) == pytest.approx(low, rel=1e-8)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("eps", [0.01, 0.3])
def test_pseudospectral_radius_against_a_dense_search(seed, eps):
    rng = np.random.default_rng(seed)
    H = int(rng.integers(3, 10))
    W = rng.standard_normal((H, H)) + 2 * np.triu(rng.standard_normal((H, H)), 1)
    found = spectrum(W).pseudospectral_radius(eps)
    # outside the value nothing belongs to it, on any ray; the circle of a slightly smaller radius is reached
    angles = np.exp(1j * np.linspace(0, np.pi, 1441))
    for factor in (1 + 1e-7, 1.01, 1.3):
        assert sigma_min(W, factor * found * angles).min() > eps
    assert sigma_min(W, (1 - 1e-4) * found * angles).min() < eps * (1 + 1e-2)
    # a perturbation of that size moves an eigenvalue there: of rank one, from the singular vectors at the best angle
    z = found * angles[sigma_min(W, found * angles).argmin()]
    left, _, right = np.linalg.svd(z * np.eye(H) - W)
    moved = np.linalg.eigvals(W + eps * np.outer(left[:, -1], right[-1]))
    assert abs(moved).max() == pytest.approx(found, rel=1e-4)


def test_no_perturbation_exceeds_it():
    rng = np.random.default_rng(3)
    W = rng.standard_normal((6, 6)) / 2
    found = spectrum(W).pseudospectral_radius(0.2)
    E = rng.standard_normal((500, 6, 6)) + 1j * rng.standard_normal((500, 6, 6))
    E *= 0.2 / np.linalg.norm(E, 2, axis=(1, 2))[:, None, None]
    assert abs(np.linalg.eigvals(W + E)).max() <= found


def test_the_grid_is_the_smallest_singular_value():
    rng = np.random.default_rng(1)
    W = rng.standard_normal((9, 9)) / 3
    p = spectrum(W).pseudospectrum(21)
    expected = sigma_min(W, p.real + 1j * p.imag[:, None])
    np.testing.assert_allclose(p.sigma_min, expected, rtol=1e-3)
    np.testing.assert_array_equal(p.sigma_min, p.sigma_min[::-1])
    assert max(p.sigma_min.shape) == 21
    assert np.diff(p.real).ptp() < 1e-12 if hasattr(p.real, "ptp") else np.ptp(np.diff(p.real)) < 1e-12
    np.testing.assert_allclose(np.diff(p.real)[0], np.diff(p.imag)[0], rtol=0.1)
    assert p.real[0] < p.eigenvalues.real.min()
    assert p.real[-1] > p.eigenvalues.real.max()
    assert p.imag[-1] > p.eigenvalues.imag.max()
    np.testing.assert_array_equal(p.contains(0.1), p.sigma_min <= 0.1)


def test_a_window_may_lie_anywhere():
    W = np.random.default_rng(2).standard_normal((5, 5))
    p = spectrum(W).pseudospectrum(7, (1.0, 4.0, 0.5, 2.0))
    assert p.sigma_min.shape == (4, 7)
    assert (p.real[0], p.real[-1], p.imag[0], p.imag[-1]) == (1.0, 4.0, 0.5, 2.0)
    np.testing.assert_allclose(p.sigma_min, sigma_min(W, p.real + 1j * p.imag[:, None]), rtol=1e-3)


def test_at_an_eigenvalue_it_is_zero():
    assert spectrum(np.diag([0.5, -0.5])).pseudospectrum(3, (-0.5, 0.5, -0.5, 0.5)).sigma_min[1].tolist() == [
        0.0,
        pytest.approx(0.5),
        0.0,
    ]
    # 1e-40^10 is below what float64 holds
    tiny = spectrum(np.eye(10, k=1)).pseudospectrum(2, (-1e-40, 1e-40, -1e-40, 1e-40))
    assert (tiny.sigma_min == 0).all()


@pytest.mark.parametrize("window", [(1, 0, 0, 1), (0, 1, 1, 1), (0, 1, 2), (0, np.inf, 0, 1)])
def test_windows_without_an_inside_are_refused(window):
    with pytest.raises(ArgumentError, match="left < right"):
        spectrum(np.eye(2)).pseudospectrum(5, window)


def test_other_wrong_arguments_are_refused():
    s = spectrum(np.eye(2))
    for eps in (0, -1.0, np.nan, np.inf):
        with pytest.raises(ArgumentError, match="eps must be a positive number"):
            s.pseudospectral_radius(eps)
    with pytest.raises(DTypeError, match="eps must be a number"):
        s.pseudospectral_radius("a")
    with pytest.raises(ArgumentError, match="points must be at least 2"):
        s.pseudospectrum(1)


def test_summary_and_dict():
    p = spectrum([[0.9, 10.0], [0.0, 0.9]]).pseudospectrum(11)
    assert "H = 2" in str(p)
    assert "outside the disc" in str(p)
    assert repr(p) == f"Pseudospectrum(H=2, grid={len(p.real)}x{len(p.imag)})"
    plain = json.loads(json.dumps(p.to_dict()))
    np.testing.assert_array_equal(plain["sigma_min"], p.sigma_min)


def test_eigenvector_condition_and_bauer_and_fike():
    rng = np.random.default_rng(4)
    W = rng.standard_normal((7, 7))
    s = spectrum(W)
    assert s.eigenvector_condition == pytest.approx(np.linalg.cond(np.linalg.eig(W)[1]), rel=1e-9)
    for eps in (1e-6, 1e-2):
        assert s.radius + eps <= s.pseudospectral_radius(eps) <= s.radius + s.eigenvector_condition * eps
    # eigenvectors of [[1, c], [0, 0]] are (1, 0) and (-c, 1) / sqrt(1 + c^2), whose cosine is c / sqrt(1 + c^2)
    c = 3.0
    cosine = c / np.sqrt(1 + c * c)
    assert spectrum([[1, c], [0, 0]]).eigenvector_condition == pytest.approx(np.sqrt((1 + cosine) / (1 - cosine)))
    assert spectrum(np.diag([0.1, 0.5])).eigenvector_condition == pytest.approx(1, rel=1e-14)
    assert spectrum(np.eye(3, k=1)).eigenvector_condition == np.inf


def test_time_constants_where_they_are_defined():
    s = spectrum(np.diag([0.5, 1.0, 2.0, 0.0, -np.exp(-0.1)]))
    slow = s.time_constants
    assert np.isnan(slow[0])
    assert slow[1] == np.inf
    np.testing.assert_allclose(slow[2:], [10, 1 / np.log(2), 0], rtol=1e-12)
    # a mode falls by e in its time constant
    z = spectrum([[0.3, 0.8], [-0.8, 0.3]])
    np.testing.assert_allclose(np.abs(z.eigenvalues) ** z.time_constants, np.exp(-1))
    json.dumps(s.to_dict())
    assert "slowest mode" in str(s)
