"""Covariant Lyapunov vectors: eigenvectors where the Jacobian is constant, covariance where it is not."""

import json

import numpy as np
import pytest
from systems import repeated, tanh_network

from elman.diagnostics.lyapunov.covariant import covariant_vectors
from elman.diagnostics.lyapunov.exponents import lyapunov_spectrum
from elman.errors import ArgumentError
from elman.linearization import JacobianStack


@pytest.mark.parametrize("interval", [None, 1])
def test_constant_jacobian_has_its_eigenvectors(interval):
    rng = np.random.default_rng(1)
    basis = rng.standard_normal((5, 5))
    basis /= np.linalg.norm(basis, axis=0)
    values = np.array([1.3, -0.95, 0.7, 0.4, -0.2])
    W = basis @ np.diag(values) @ np.linalg.inv(basis)
    found = covariant_vectors(repeated(W, 400), interval=interval, rng=0)
    np.testing.assert_allclose(abs(np.einsum("tij,ij->tj", found.vectors, basis)), 1, atol=1e-10)
    np.testing.assert_allclose(found.exponents, np.log(abs(values)), atol=1e-10)
    cosine = np.linalg.svd(np.linalg.qr(basis[:, :2])[0].T @ np.linalg.qr(basis[:, 2:])[0])[1][0]
    np.testing.assert_allclose(found.angles(2), np.arccos(cosine), atol=1e-7)


@pytest.mark.parametrize("k", [3, 8])
def test_vectors_go_into_each_other(k):
    jacobians = tanh_network(8, 2.5, 1500, seed=3)[0]
    found = covariant_vectors(JacobianStack(jacobians), k, rng=0)
    assert found.vectors.shape == (len(found.steps), 8, k)
    assert found.steps[0] >= 300
    assert found.steps[-1] == 1200
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, rtol=1e-12)
    lin = JacobianStack(jacobians)
    total = np.zeros(k)
    for i, (a, b) in enumerate(zip(found.steps[:-1], found.steps[1:], strict=True)):
        pushed = lin.jvp(found.vectors[i].T, a, b).T
        size = np.linalg.norm(pushed, axis=0)
        total += np.log(size)
        np.testing.assert_allclose(abs((pushed / size * found.vectors[i + 1]).sum(axis=0)), 1, atol=1e-7)
    np.testing.assert_allclose(found.exponents, total / (found.steps[-1] - found.steps[0]), atol=1e-7)
    # over a long run their growth is that of the exponents
    spectrum = lyapunov_spectrum(JacobianStack(jacobians), k, rng=0)
    np.testing.assert_allclose(found.exponents, spectrum.exponents, atol=0.03)


def test_two_random_starts_find_the_same_vectors():
    lin = JacobianStack(tanh_network(6, 2.5, 1500, seed=4)[0])
    a, b = covariant_vectors(lin, rng=1, interval=1), covariant_vectors(lin, rng=2, interval=1)
    middle = slice(100, -100)
    aligned = abs((a.vectors * b.vectors).sum(axis=1))[middle]
    assert np.median(1 - aligned, axis=0).max() < 1e-6


def test_participation_counts_units():
    # a diagonal network: each direction is one unit; a rotated one by 45 degrees: two
    assert covariant_vectors(repeated(np.diag([2.0, 1.0, 0.5]), 200), rng=0).participation() == pytest.approx([1, 1, 1])
    c = np.sqrt(0.5)
    Q = np.array([[c, -c], [c, c]])
    assert covariant_vectors(repeated(Q @ np.diag([2.0, 0.5]) @ Q.T, 200), rng=0).participation() == pytest.approx(
        [2, 2]
    )


def test_what_is_printed_and_refused():
    found = covariant_vectors(repeated(np.diag(np.linspace(2, 1, 10)), 100), rng=0)
    assert "10 covariant Lyapunov vectors" in str(found)
    assert "and 2 more" in str(found)
    assert repr(found) == f"CovariantVectors(k=10, times={len(found.steps)})"
    assert json.loads(json.dumps(found.to_dict()))["exponents"] == found.exponents.tolist()
    with pytest.raises(ArgumentError, match=r"split must be in 1 \.\. 9"):
        found.angles(10)
    with pytest.raises(ArgumentError, match="a direction is lost by step 1.* at most 1"):
        covariant_vectors(repeated(np.diag([1.0, 0.0]), 50), rng=0)
    with pytest.raises(ArgumentError, match="settle must be in"):
        covariant_vectors(repeated(np.eye(2), 50), settle=50)
    with pytest.raises(ArgumentError, match="at least 1 step"):
        covariant_vectors(JacobianStack(np.empty((0, 2, 2))))
