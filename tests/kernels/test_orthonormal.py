"""Gram and Schmidt against LAPACK's QR; the spectral radius against closed forms and LAPACK's eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

from elman.kernels.orthonormal import PANEL, orthonormal_rows, spectral_radius

EPS = np.finfo(float).eps


@pytest.mark.parametrize(
    ("m", "n"),
    [(0, 0), (0, 3), (1, 1), (1, 9), (2, 2), (5, 8), (PANEL, PANEL), (PANEL + 1, PANEL + 1), (37, 64), (70, 70)],
)
def test_rows_are_those_of_a_qr_decomposition(m, n):
    A = np.random.default_rng(m).standard_normal((m, n))
    Q = orthonormal_rows(A)
    assert Q.shape == (m, n)
    np.testing.assert_allclose(Q @ Q.T, np.eye(m), rtol=0, atol=10 * EPS)
    q, r = np.linalg.qr(A.T)
    np.testing.assert_allclose(Q, (q * np.sign(np.diagonal(r))).T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("condition", [1e3, 1e7])
def test_rows_that_nearly_depend_on_each_other_come_out_orthogonal(condition):
    """Once through would leave an error of the condition's square."""
    rng = np.random.default_rng(3)
    u, _, v = np.linalg.svd(rng.standard_normal((40, 40)))
    A = u * np.geomspace(1, 1 / condition, 40) @ v
    Q = orthonormal_rows(A)
    np.testing.assert_allclose(Q @ Q.T, np.eye(40), rtol=0, atol=10 * EPS)
    # row i of A is a combination of the first i rows of Q, with a positive share of its own
    R = A @ Q.T
    assert np.abs(np.triu(R, 1)).max() < 1e-14
    assert (np.diagonal(R) > 0).all()


@pytest.mark.parametrize(
    ("W", "radius"),
    [
        (np.zeros((0, 0)), 0.0),
        (np.zeros((3, 3)), 0.0),
        (np.array([[-0.7]]), 0.7),
        (np.array([[0.9, 10.0], [0.0, 0.9]]), 0.9),
        (np.array([[0.9, 10.0], [0.0, 0.8]]), 0.9),
        (np.array([[0.0, -1.0], [1.0, 0.0]]), 1.0),
        (np.roll(np.eye(7), 1, axis=0), 1.0),
        (np.diag(np.ones(9), 1), 0.0),
        (np.triu(np.ones((20, 20)), 1), 0.0),
        (1e-200 * np.eye(3), 1e-200),
        (1e200 * np.eye(3), 1e200),
    ],
    ids=str,
)
def test_radius_in_closed_form(W, radius):
    assert spectral_radius(W) == pytest.approx(radius, rel=4 * EPS, abs=0)


@pytest.mark.parametrize("n", [2, 5, 16, 17, 64, 130])
@pytest.mark.parametrize("seed", range(3))
def test_radius_is_that_of_the_eigenvalues(n, seed):
    W = np.random.default_rng(seed).standard_normal((n, n))
    assert spectral_radius(W) == pytest.approx(np.abs(np.linalg.eigvals(W)).max(), rel=1e-12)
