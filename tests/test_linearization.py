import numpy as np
import pytest

from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.linearization import JacobianStack

T, N, K, S = 7, 3, 2, 5


@pytest.fixture(name="jacobians")
def _jacobians():
    return np.random.default_rng(1).standard_normal((T, N, S, S))


def dense(jacobians, sequence, t0, t1):
    """J[t1-1] ... J[t0] by repeated matrix products."""
    product = np.eye(jacobians.shape[-1])
    for t in range(t0, t1):
        product = jacobians[t, sequence] @ product
    return product


@pytest.mark.parametrize("window", [(0, T), (2, 5), (3, 3), (T, T), (6, 7)])
def test_products_equal_the_dense_product(jacobians, window):
    lin, rng = JacobianStack(jacobians), np.random.default_rng(2)
    v, u = rng.standard_normal((2, N, K, S))
    pushed, pulled = lin.jvp(v, *window), lin.vjp(u, *window)
    for i in range(N):
        P = dense(jacobians, i, *window)
        np.testing.assert_allclose(pushed[i], v[i] @ P.T, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(pulled[i], u[i] @ P, rtol=1e-12, atol=1e-12)


def test_transposed_products_are_adjoint(jacobians):
    lin, rng = JacobianStack(jacobians), np.random.default_rng(3)
    v, u = rng.standard_normal((2, N, K, S))
    left, right = (u * lin.jvp(v, 1, 6)).sum(-1), (lin.vjp(u, 1, 6) * v).sum(-1)
    np.testing.assert_allclose(left, right, rtol=1e-12)


def test_norms_come_in_the_order_of_application(jacobians):
    lin = JacobianStack(jacobians)
    v = np.random.default_rng(4).standard_normal((N, K, S))
    forward, backward = np.empty((2, 4, N, K))
    lin.jvp(v, 2, 6, norms=forward)
    lin.vjp(v, 2, 6, norms=backward)
    for j in range(4):
        np.testing.assert_allclose(forward[j], np.linalg.norm(lin.jvp(v, 2, 3 + j), axis=-1), rtol=1e-13)
        np.testing.assert_allclose(backward[j], np.linalg.norm(lin.vjp(v, 5 - j, 6), axis=-1), rtol=1e-13)


def test_all_shapes_of_vectors_mean_the_same(jacobians):
    many, one = JacobianStack(jacobians), JacobianStack(jacobians[:, 0])
    v = np.random.default_rng(5).standard_normal((N, K, S))
    full = many.jvp(v)
    np.testing.assert_array_equal(many.jvp(v[:, 1]), many.jvp(v[:, 1:])[:, 0])
    np.testing.assert_allclose(one.jvp(v[0]), full[0], rtol=1e-13)
    np.testing.assert_allclose(one.jvp(v[0, 0]), full[0, 0], rtol=1e-12)
    np.testing.assert_allclose(one.vjp(v[:1])[0], many.vjp(v)[0], rtol=1e-13)
    assert one.jvp(v[0, 0]).shape == (S,)


def test_arguments_are_not_changed_and_not_shared(jacobians):
    lin = JacobianStack(jacobians)
    v = np.random.default_rng(6).standard_normal((N, K, S))
    before = v.copy()
    for window in ((0, T), (3, 3)):
        for out in (lin.jvp(v, *window), lin.vjp(v, *window)):
            assert not np.shares_memory(out, v)
            out += 1
    np.testing.assert_array_equal(v, before)


@pytest.mark.parametrize("layout", ["fortran", "strided", "big-endian", "integer"])
def test_layout_and_type_of_the_arrays_do_not_matter(jacobians, layout):
    whole = np.rint(3 * jacobians)
    given = {
        "fortran": np.asfortranarray(whole),
        "strided": np.repeat(whole, 2, axis=0)[::2],
        "big-endian": whole.astype(">f8"),
        "integer": whole.astype(int),
    }[layout]
    v = np.random.default_rng(7).standard_normal((N, K, S))
    np.testing.assert_array_equal(JacobianStack(given).jvp(v), JacobianStack(whole).jvp(v))


def test_float32_stays_float32(jacobians):
    lin = JacobianStack(jacobians.astype(np.float32))
    norms = np.empty((T, N, K))
    out = lin.vjp(np.ones((N, K, S)), norms=norms)
    assert out.dtype == lin.dtype == np.float32
    np.testing.assert_allclose(out, JacobianStack(jacobians).vjp(np.ones((N, K, S))), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(norms[-1], np.linalg.norm(out, axis=-1), rtol=1e-6)


def test_linear_operator_is_the_product_of_one_sequence(jacobians):
    lin, P = JacobianStack(jacobians), dense(jacobians, 2, 1, 6)
    operator = lin.as_linear_operator(1, 6, sequence=2)
    X = np.random.default_rng(8).standard_normal((S, 4))
    assert operator.shape == (S, S)
    assert operator.dtype == np.float64
    np.testing.assert_allclose(operator.matvec(X[:, 0]), P @ X[:, 0], rtol=1e-12)
    np.testing.assert_allclose(operator.matvec(X[:, :1]), P @ X[:, :1], rtol=1e-12)
    np.testing.assert_allclose(operator.rmatvec(X[:, 0]), P.T @ X[:, 0], rtol=1e-12)
    np.testing.assert_allclose(operator.matmat(X), P @ X, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(operator.rmatmat(X), P.T @ X, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(operator @ X, P @ X, rtol=1e-12, atol=1e-12)


def test_linear_operator_serves_iterative_solvers(jacobians):
    from scipy.sparse.linalg import svds

    operator = JacobianStack(jacobians).as_linear_operator(sequence=1)
    largest = svds(operator, k=1, v0=np.ones(S), return_singular_vectors=False)[0]
    assert largest == pytest.approx(np.linalg.norm(dense(jacobians, 1, 0, T), 2), rel=1e-10)


def test_jacobian_of_a_step(jacobians):
    lin = JacobianStack(jacobians)
    np.testing.assert_array_equal(lin.jacobian(4, 2), jacobians[4, 2])
    v = np.random.default_rng(9).standard_normal(S)
    np.testing.assert_allclose(lin.jvp(np.tile(v, (N, 1)), 4, 5)[2], lin.jacobian(4, 2) @ v, rtol=1e-13)
    assert lin.factors is None
    for t, sequence in ((-1, 0), (T, 0), (0, N), (0, -1)):
        with pytest.raises(ArgumentError, match="t must be in"):
            lin.jacobian(t, sequence)


def test_no_steps_is_the_identity():
    lin = JacobianStack(np.empty((0, N, S, S)))
    v = np.random.default_rng(10).standard_normal((N, S))
    np.testing.assert_array_equal(lin.jvp(v), v)
    np.testing.assert_array_equal(lin.vjp(v), v)


def test_no_sequences_gives_no_vectors():
    lin = JacobianStack(np.empty((T, 0, S, S)))
    assert lin.jvp(np.empty((0, K, S))).shape == (0, K, S)


@pytest.mark.parametrize("window", [(-1, 3), (3, 2), (0, T + 1)])
def test_window_outside_the_trajectory_is_refused(jacobians, window):
    with pytest.raises(ArgumentError, match=r"window must satisfy.*n_steps = 7"):
        JacobianStack(jacobians).jvp(np.ones((N, S)), *window)


@pytest.mark.parametrize("shape", [(S,), (S, N), (N, S + 1), (N + 1, K, S), (1, N, K, S), ()])
def test_vectors_of_a_wrong_shape_are_refused(jacobians, shape):
    with pytest.raises(ShapeError, match="vectors must have shape"):
        JacobianStack(jacobians).vjp(np.ones(shape))


def test_norms_of_a_wrong_shape_or_type_are_refused(jacobians):
    lin = JacobianStack(jacobians)
    with pytest.raises(ShapeError, match="norms must have shape"):
        lin.jvp(np.ones((N, S)), norms=np.empty((T, N, 2)))
    with pytest.raises(DTypeError, match="float64"):
        lin.jvp(np.ones((N, S)), norms=np.empty((T, N, 1), np.float32))


@pytest.mark.parametrize("shape", [(S, S), (T, S, S + 1), (1, T, N, S, S)])
def test_jacobians_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ShapeError, match="jacobians must have shape"):
        JacobianStack(np.ones(shape))


def test_jacobians_that_are_not_finite_or_not_real_are_refused(jacobians):
    jacobians[3, 1, 0, 0] = np.nan
    with pytest.raises(ArgumentError, match="step 3"):
        JacobianStack(jacobians)
    with pytest.raises(DTypeError, match="complex"):
        JacobianStack(np.ones((T, S, S), complex))


def test_unknown_sequence_of_an_operator_is_refused(jacobians):
    with pytest.raises(ArgumentError, match=r"sequence must be in 0 \.\. 2"):
        JacobianStack(jacobians).as_linear_operator(sequence=3)
