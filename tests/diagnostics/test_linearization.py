import numpy as np
import pytest

from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from elman.linearization import JacobianStack, StepLinearization
from elman.testing import check_adjoint

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
    np.testing.assert_allclose(operator.matmat(X[:, :1]), P @ X[:, :1], rtol=1e-12)
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


def driven(W, U):
    """Step, jvp and vjp of s' = tanh(W s + U x)."""

    def slope(s, x):
        return 1 - np.tanh(W @ s + U @ x) ** 2

    return (
        lambda s, x: np.tanh(W @ s + U @ x),
        lambda s, V, x: slope(s, x)[:, None] * (W @ V),
        lambda s, V, x: W.T @ (slope(s, x)[:, None] * V),
    )


@pytest.fixture(name="network")
def _network():
    """A driven network by functions, and its Jacobians (T, N, S, S) from the equation."""
    rng = np.random.default_rng(11)
    W, U, x, s = (rng.standard_normal(shape) for shape in ((S, S), (S, 2), (T, N, 2), (N, S)))
    step, jvp, vjp = driven(W, U)
    jacobians, states = np.empty((T, N, S, S)), s
    for t in range(T):
        states = np.tanh(states @ W.T + x[t] @ U.T)
        jacobians[t] = (1 - states**2)[:, :, None] * W
    return StepLinearization(step, jvp, s, T, vjp=vjp, inputs=x), jacobians, states


def test_functions_give_the_products_of_their_jacobians(network):
    lin, jacobians, last = network
    twin, rng = JacobianStack(jacobians), np.random.default_rng(12)
    np.testing.assert_allclose(lin.states[-1], last, rtol=1e-12)
    v = rng.standard_normal((N, K, S))
    for window in ((0, T), (2, 5), (3, 3)):
        norms, expected = np.empty((2, window[1] - window[0], N, K))
        for name in ("jvp", "vjp"):
            out = getattr(lin, name)(v, *window, norms=norms)
            np.testing.assert_allclose(out, getattr(twin, name)(v, *window, norms=expected), rtol=1e-11, atol=1e-13)
            np.testing.assert_allclose(norms, expected, rtol=1e-11)
    np.testing.assert_allclose(lin.jacobian(4, 1), jacobians[4, 1], rtol=1e-12)
    check_adjoint(lin)


def test_one_trajectory_of_functions_needs_no_axis_for_it():
    rng = np.random.default_rng(13)
    W, U, x = rng.standard_normal((S, S)), rng.standard_normal((S, 2)), rng.standard_normal((T, 2))
    step, jvp, vjp = driven(W, U)
    one = StepLinearization(step, jvp, np.ones(S), T, vjp=vjp, inputs=x)
    many = StepLinearization(step, jvp, np.ones((1, S)), T, vjp=vjp, inputs=x[:, None])
    np.testing.assert_array_equal(one.jvp(np.eye(S)[0]), many.jvp(np.eye(S)[:1])[0])
    still = StepLinearization(lambda s: step(s, x[0]), lambda s, V: jvp(s, V, x[0]), np.ones(S), 2)
    np.testing.assert_allclose(still.jacobian(0), one.jacobian(0), rtol=1e-14)
    assert StepLinearization(step, jvp, np.ones(S), 0).jvp(np.ones(S)).shape == (S,)


def test_functions_may_change_what_they_are_given():
    def double(s):
        s *= 2
        return s

    def push(s, V):
        s[:] = np.nan
        V *= 2
        return V

    lin = StepLinearization(double, push, [1.0, 2.0], 3)
    v = np.ones(2)
    np.testing.assert_array_equal(lin.jvp(v), 8 * np.ones(2))
    np.testing.assert_array_equal(v, np.ones(2))
    np.testing.assert_array_equal(lin.states[:, 0], [[1, 2], [2, 4], [4, 8], [8, 16]])


def test_functions_with_sparse_matrices_equal_dense_ones():
    from scipy.sparse import random_array

    rng = np.random.default_rng(14)
    W = random_array((60, 60), density=0.1, rng=rng, format="csr")
    U = rng.standard_normal((60, 2))
    x, s, v = rng.standard_normal((T, 2)), rng.standard_normal(60), rng.standard_normal((3, 60))
    sparse, dense = (
        StepLinearization(step, jvp, s, T, vjp=vjp, inputs=x)
        for step, jvp, vjp in (driven(W, U), driven(W.toarray(), U))
    )
    np.testing.assert_allclose(sparse.jvp(v), dense.jvp(v), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(sparse.vjp(v), dense.vjp(v), rtol=1e-10, atol=1e-14)


def same(s, *rest):
    return s


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None, same, np.ones(2), 3), DTypeError, "step must be a function, got NoneType"),
        ((same, 1, np.ones(2), 3), DTypeError, "jvp must be a function, got int"),
        ((same, same, np.ones(2), 3, "x"), DTypeError, "vjp must be a function or None"),
        ((same, same, np.ones((2, 2, 2)), 3), ShapeError, r"s0 must have shape \(S,\) or \(n, S\)"),
        ((same, same, np.ones(2), -1), ArgumentError, "n_steps must be at least 0, got -1"),
        ((same, same, np.ones(2), 2.0), DTypeError, r"n_steps must be .* got 2\.0"),
        ((same, same, np.ones(2), 3, None, np.ones((2, 1))), ShapeError, r"inputs must have shape \(3, \.\.\.\)"),
        ((same, same, np.ones((4, 2)), 3, None, np.ones((3, 2))), ShapeError, r"\(3, 4, \.\.\.\)"),
        ((lambda s: s[:1], same, np.ones(2), 3), ShapeError, r"step must return shape \(2,\), it returned \(1,\)"),
    ],
)
def test_functions_that_do_not_fit_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        StepLinearization(*arguments)


def test_trouble_with_functions_is_named():
    lin = StepLinearization(same, lambda s, V: V[:1], np.ones(2), 3)
    with pytest.raises(ShapeError, match=r"jvp must return shape \(2, 1\)"):
        lin.jvp(np.ones(2))
    with pytest.raises(ArgumentError, match="need vjp"):
        lin.vjp(np.ones(2))
    with pytest.raises(ArgumentError, match=r"t must be in 0 \.\. 2"):
        lin.jacobian(3)
    with pytest.raises(NonFiniteError, match="after step 1 of trajectory 0") as caught:
        StepLinearization(lambda s: s * 1e200, same, np.full(2, 1e100), 5)
    assert caught.value.step == 1


@pytest.mark.parametrize(
    ("s0", "error"),
    [("a", DTypeError), ([1j], DTypeError), (None, DTypeError), ([], ShapeError), (1.0, ShapeError),
     ([[0.0, np.nan]], ArgumentError)],
)  # fmt: skip
def test_a_wrong_start_is_named(s0, error):
    with pytest.raises(error, match="s0 must"):
        StepLinearization(lambda s: s, lambda s, V: V, s0, 3)
