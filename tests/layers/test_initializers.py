"""Initial weights: distributions and refusals."""

import numpy as np
import pytest

import elman
from elman import initializers
from elman.errors import ArgumentError


def test_defaults():
    layer = elman.RNN(5, 40, rng=0)
    W = layer.params["weight_hh_l0"]
    np.testing.assert_allclose(W @ W.T, np.eye(40), atol=1e-12)
    assert not layer.params["bias_ih_l0"].any()
    assert not layer.params["bias_hh_l0"].any()
    limit = np.sqrt(6 / 45)
    W_ih = layer.params["weight_ih_l0"]
    assert abs(W_ih).max() <= limit
    assert abs(W_ih).max() > 0.9 * limit


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (1, 1)])
def test_orthogonal_rows_or_columns(shape):
    W = initializers.orthogonal(shape, np.random.default_rng(0))
    assert W.shape == shape
    gram = W @ W.T if shape[0] <= shape[1] else W.T @ W
    np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-12)


def test_orthogonal_is_uniform_over_rotations_and_reflections():
    """For Haar measure the trace has mean 0 and variance 1, and the determinant is +1 half of the time."""
    rng = np.random.default_rng(0)
    drawn = [initializers.orthogonal((3, 3), rng) for _ in range(4000)]
    traces = np.array([W.trace() for W in drawn])
    assert abs(traces.mean()) < 4 / np.sqrt(4000)
    assert abs(traces.var() - 1) < 0.1
    assert abs(np.mean([np.linalg.det(W) > 0 for W in drawn]) - 0.5) < 4 * 0.5 / np.sqrt(4000)


def test_uniform_is_torchs():
    layer = elman.RNN(500, 25, weight_ih_init="uniform", weight_hh_init="uniform", bias_init="uniform", rng=0)
    for p in layer.params.values():
        assert abs(p).max() <= 0.2
        assert abs(p).max() > 0.18
    np.testing.assert_allclose(layer.params["weight_ih_l0"].var(), 0.2**2 / 3, rtol=0.05)


def test_identity_and_gaussian():
    assert np.array_equal(elman.RNN(2, 4, weight_hh_init="identity").params["weight_hh_l0"], np.eye(4))
    W = elman.RNN(2, 300, weight_hh_init=initializers.gaussian(1.5), rng=0).params["weight_hh_l0"]
    np.testing.assert_allclose(W.std(), 1.5 / np.sqrt(300), rtol=0.01)
    with pytest.raises(ArgumentError, match="gain"):
        initializers.gaussian(-1)


def test_circular_law():
    """V. L. Girko 1984: eigenvalues fill the disc of radius g; the largest singular value is near 2 g."""
    W = initializers.gaussian(0.7)((400, 400), np.random.default_rng(0))
    s = elman.spectrum(W)
    assert abs(s.radius / 0.7 - 1) < 0.1
    assert abs(s.norm / 1.4 - 1) < 0.05


def test_spectral_radius():
    layer = elman.RNN(1, 50, weight_hh_init=initializers.spectral_radius(0.95), rng=0)
    np.testing.assert_allclose(elman.spectrum(layer.params["weight_hh_l0"]).radius, 0.95, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 10, 40])
def test_a_nilpotent_matrix_cannot_be_scaled(n):
    rotation = initializers.orthogonal((n, n), np.random.default_rng(n))
    shift = np.eye(n, k=1)
    for W in (shift, 1e6 * shift, rotation @ shift @ rotation.T, np.zeros((n, n))):
        with pytest.raises(ArgumentError, match="nilpotent"):
            initializers.scale_to_radius(W, 0.9)


def test_a_tiny_but_honest_radius_can_be_scaled():
    W = np.array([[1e-9, 1.0], [0.0, 1e-9]])
    np.testing.assert_allclose(np.abs(np.linalg.eigvals(initializers.scale_to_radius(W, 0.5))).max(), 0.5, rtol=1e-12)


def test_refusals():
    with pytest.raises(ArgumentError, match="square"):
        initializers.scale_to_radius(np.zeros((2, 3)), 0.9)
    with pytest.raises(ArgumentError, match="radius"):
        initializers.spectral_radius(np.nan)((2, 2), np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="weight_ih_init"):
        elman.RNN(2, 3, weight_ih_init=3.0)
