"""Spectra of large, sparse and implicit matrices, and by gate."""

import json

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from elman.diagnostics.spectra.dense import Spectrum, spectrum
from elman.diagnostics.spectra.gates import SpectrumByGate
from elman.diagnostics.spectra.partial import Estimate, PartialSpectrum, partial_spectrum
from elman.errors import ArgumentError, DTypeError, ShapeError

LARGE = 2400


def random_sparse(H, per_row, seed=0):
    """Gaussian non-zeros, radius about 1."""
    rng = np.random.default_rng(seed)
    W = sp.random_array((H, H), density=per_row / H, rng=rng, data_sampler=rng.standard_normal)
    return W.tocsr() / np.sqrt(per_row)


def rotations(radii, angles):
    """Sparse block diagonal of scaled rotations: eigenvalues r e^{+-i a}, singular values r."""
    return sp.block_diag(
        [
            sp.csr_array(r * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]))
            for r, a in zip(radii, angles, strict=True)
        ],
        format="csr",
    )


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_dense_decomposition(seed):
    W = random_sparse(400, 12, seed)
    found, dense = partial_spectrum(W), spectrum(W.toarray())
    assert found.radius == pytest.approx(dense.radius, rel=1e-8)
    assert found.norm == pytest.approx(dense.norm, rel=1e-8)
    np.testing.assert_allclose(
        np.abs(found.eigenvalues), np.abs(dense.eigenvalues[: len(found.eigenvalues)]), rtol=1e-6
    )
    for estimate, value in ((found.radius_estimate, dense.radius), (found.norm_estimate, dense.norm)):
        assert estimate.low * (1 - 1e-13) <= value <= estimate.high * (1 + 1e-13)
    decaying = abs(found.eigenvalues) < 1
    expected = -1 / np.log(abs(found.eigenvalues[decaying]))
    np.testing.assert_allclose(found.time_constants[decaying], expected)
    assert np.isnan(found.time_constants[~decaying]).all()
    assert not found.exact


def test_conditions_are_those_of_the_eigenvalues():
    W = random_sparse(150, 10)
    found = partial_spectrum(W)
    values, left, right = scipy.linalg.eig(W.toarray(), left=True, right=True)
    for z, condition in zip(found.eigenvalues, found.conditions, strict=True):
        i = abs(values - z).argmin()
        expected = 1 / abs(np.vdot(left[:, i], right[:, i]))
        assert condition == pytest.approx(expected, rel=1e-5)
    vectors_residual = found.residuals
    assert (vectors_residual < 1e-8).all()


def test_the_interval_of_a_non_normal_matrix_holds_the_radius():
    # eigenvalues .5 .. .9 under large random couplings: conditions of millions
    rng = np.random.default_rng(1)
    H = 60
    W = np.diag(np.linspace(0.5, 0.9, H)) + np.triu(rng.standard_normal((H, H)), 1) / 8
    Q = scipy.linalg.qr(rng.standard_normal((H, H)))[0]
    found = partial_spectrum(Q @ W @ Q.T)
    low, high = found.radius_estimate.low, found.radius_estimate.high
    assert low <= 0.9 <= high
    assert found.conditions[0] > 10


def test_large_sparse_matrices_of_known_spectrum():
    rng = np.random.default_rng(0)
    radii = np.concatenate([[0.98, 0.95], rng.uniform(0, 0.8, LARGE // 2 - 2)])
    s = spectrum(rotations(radii, rng.uniform(0, np.pi, LARGE // 2)))
    assert isinstance(s, PartialSpectrum)
    assert s.radius == pytest.approx(0.98, rel=1e-9)
    assert s.norm == pytest.approx(0.98, rel=1e-9)
    np.testing.assert_allclose(np.abs(s.eigenvalues[:4]), [0.98, 0.98, 0.95, 0.95], rtol=1e-9)
    np.testing.assert_allclose(s.conditions[:4], 1, rtol=1e-6)


def test_the_same_matrix_gives_the_same_numbers():
    W = random_sparse(LARGE, 8)
    one, other = spectrum(W), spectrum(W.copy())
    np.testing.assert_array_equal(one.eigenvalues, other.eigenvalues)
    assert one.norm == other.norm


def test_a_large_dense_matrix():
    rng = np.random.default_rng(5)
    W = np.diag(np.concatenate([[0.97, 0.2, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65], rng.uniform(-0.4, 0.4, 2050)]))
    W[0, 1] = 3.0
    s = spectrum(W)
    assert isinstance(s, PartialSpectrum)
    assert s.radius == pytest.approx(0.97, rel=1e-9)
    assert s.norm == pytest.approx(np.linalg.norm(W[:2, :2], 2), rel=1e-9)
    assert s.norm_estimate.low <= s.norm <= s.norm_estimate.high


@pytest.mark.parametrize("form", [sp.csr_array, sp.coo_array, sp.csc_matrix, lambda W: aslinearoperator(W)])
def test_small_ones_are_decomposed_as_a_whole(form):
    W = np.random.default_rng(0).standard_normal((30, 30)) * (np.random.default_rng(1).random((30, 30)) < 0.3)
    s = spectrum(form(W))
    assert isinstance(s, Spectrum)
    np.testing.assert_allclose(s.W, W, atol=1e-15)
    np.testing.assert_allclose(np.abs(s.eigenvalues), np.abs(spectrum(W).eigenvalues), rtol=1e-10)


def test_zero_and_nilpotent_matrices_have_exact_answers():
    zero = spectrum(sp.csr_array((LARGE, LARGE)))
    assert (zero.radius, zero.norm) == (0, 0)
    assert zero.exact
    shift = spectrum(sp.eye_array(LARGE, k=1))
    assert shift.radius_estimate == (0, 0, 0)
    assert shift.norm == pytest.approx(1, rel=1e-9)
    # triangular in an order of the units that nobody tells
    order = np.random.default_rng(0).permutation(LARGE)
    diagonal = np.linspace(-0.3, 0.8, LARGE)
    W = (sp.diags_array(diagonal) + 2 * sp.eye_array(LARGE, k=1)).tocsr()[order][:, order]
    hidden = spectrum(W)
    assert hidden.exact
    assert hidden.radius == pytest.approx(0.8, rel=1e-14)
    np.testing.assert_array_equal(hidden.eigenvalues.real[:2], [0.8, diagonal[-2]])
    assert "exact" in str(hidden)


def test_operators_that_are_zero_or_nilpotent():
    zero = spectrum(aslinearoperator(sp.csr_array((LARGE, LARGE))))
    assert (zero.radius, zero.norm) == (0, 0)
    shift = spectrum(aslinearoperator(sp.eye_array(LARGE, k=1).tocsr()))
    # the powers of the shift tell a Krylov space nothing before step H: the truth lies in the interval
    assert shift.radius_estimate.low == 0
    assert shift.norm == pytest.approx(1, rel=1e-9)
    str(shift)
    json.dumps(shift.to_dict())


def test_the_callers_matrix_stays_as_it_is():
    W = sp.csr_array((np.array([1.0, 0.0, 2.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    s = spectrum(W)
    assert W.nnz == 3
    assert s.radius == 1
    duplicated = sp.coo_array((np.array([1.0, 1.0]), (np.array([0, 0]), np.array([0, 0]))), shape=(2, 2))
    assert spectrum(duplicated).radius == 2


def test_wrong_matrices_are_refused():
    with pytest.raises(ShapeError, match="square"):
        spectrum(sp.csr_array((2, 3)))
    with pytest.raises(ShapeError, match="square"):
        spectrum(sp.csr_array((0, 0)))
    with pytest.raises(DTypeError, match="complex"):
        spectrum(sp.csr_array(np.eye(2) * 1j))
    with pytest.raises(ArgumentError, match="finite"):
        spectrum(sp.csr_array([[np.nan, 1.0], [0.0, 1.0]]))
    blind = LinearOperator((LARGE, LARGE), matvec=lambda x: 0.5 * x, dtype=np.float64)
    with pytest.raises(DTypeError, match="rmatvec"):
        spectrum(blind)
    broken = LinearOperator((LARGE, LARGE), matvec=lambda x: x * np.nan, rmatvec=lambda x: x * np.nan, dtype=np.float64)
    with pytest.raises(ArgumentError, match="finite"):
        spectrum(broken)


def test_estimates_print_what_they_are_known_to():
    assert str(Estimate(1.25, 1.25, 1.25)) == "1.25"
    assert str(Estimate(1.25, 1.24, 1.27)) == "1.25 (-0.01, +0.02)"
    assert str(Estimate(float("nan"), 0.0, 2.0)) == "in [0, 2]"


def test_summary_and_dict():
    s = partial_spectrum(random_sparse(200, 10))
    for part in ("H = 200", "Ritz value, residual", "condition", "not computed", "kreiss_constant", "proves nothing"):
        assert part in str(s)
    assert repr(s).startswith("PartialSpectrum(H=200, radius=")
    plain = json.loads(json.dumps(s.to_dict()))
    assert plain["radius"]["value"] == s.radius
    assert plain["not_computed"] == list(s.not_computed)


def gates(H=3):
    rng = np.random.default_rng(6)
    return {name: rng.standard_normal((H, H)) / np.sqrt(H) for name in ("r", "z", "n")}


def test_gates_by_name():
    matrices = gates()
    s = spectrum(matrices)
    assert isinstance(s, SpectrumByGate)
    assert list(s) == ["r", "z", "n"]
    assert len(s) == 3
    for name, W in matrices.items():
        assert s[name].radius == spectrum(W).radius
        assert f"{name}: radius=" in repr(s)
    assert "proves nothing" in str(s)
    assert json.loads(json.dumps(s.to_dict()))["n"]["norm"] == s["n"].norm
    degenerate = str(spectrum({"zero": np.zeros((2, 2)), "shift": np.eye(2, k=1)}))
    assert "inf" in degenerate


def test_anything_with_recurrent_matrices_is_read_by_gate():
    class Layer:
        recurrent_matrices = gates()

    # as text, in which NaN equals NaN
    assert json.dumps(spectrum(Layer()).to_dict()) == json.dumps(spectrum(gates()).to_dict())


def test_errors_name_the_gate():
    with pytest.raises(ShapeError, match=r"W\['z'\] must be a square"):
        spectrum({"r": np.eye(2), "z": np.ones((2, 3))})
    with pytest.raises(ArgumentError, match=r"W\['z'\]\[0, 0\] is nan"):
        spectrum({"z": np.full((2, 2), np.nan)})
    with pytest.raises(ArgumentError, match="empty"):
        spectrum({})


def test_a_large_sparse_spectrum_is_stated():
    """pytest turns warnings, of SciPy's about formats for instance, into errors."""
    found = spectrum(random_sparse(LARGE, 3))
    assert f"radius            {found.radius_estimate}  Ritz value" in str(found)
