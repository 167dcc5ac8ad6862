import json

import numpy as np
import pytest
import scipy.linalg
from sequences import NumpyTanhNetwork, tanh_network

from elman.diagnostics.gradient.flow import gradient_flow
from elman.diagnostics.gradient.growth import backward_growth, forward_growth, unit_vectors
from elman.diagnostics.gradient.singular import singular_growth
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from elman.linearization import JacobianStack


def repeated(W, T, n=1):
    return JacobianStack(np.broadcast_to(np.asarray(W, float), (T, n, *np.shape(W))))


def directly(jacobians, start, backward):
    """Cumulative log norms in extended precision, one vector, one step and one renormalisation at a time."""
    T, n = jacobians.shape[:2]
    growth = np.zeros((T + 1, *start.shape[:2]))
    for i in range(n):
        for j in range(start.shape[1]):
            v = start[i, j].astype(np.longdouble)
            v /= np.sqrt((v * v).sum())
            for k in range(T):
                J = jacobians[T - 1 - k, i].T if backward else jacobians[k, i]
                v = J.astype(np.longdouble) @ v
                size = np.sqrt((v * v).sum())
                growth[k + 1, i, j] = growth[k, i, j] + np.log(size)
                v /= size
    return growth


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [1e-30, 1e-8, 0.02, 1.0, 50.0, 1e9])
@pytest.mark.parametrize("T", [1, 5, 16, 37])
def test_growth_neither_overflows_nor_underflows(dtype, factor, T):
    rng = np.random.default_rng(1)
    jacobians = (factor * rng.standard_normal((T, 2, 4, 4))).astype(dtype)
    start = unit_vectors(rng, 2, 3, 4, dtype)
    lin = JacobianStack(jacobians)
    tolerance = {"rtol": 1e-13, "atol": 1e-12} if dtype == np.float64 else {"rtol": 1e-6, "atol": 2e-5}
    np.testing.assert_allclose(backward_growth(lin, start), directly(jacobians, start, True), **tolerance)
    np.testing.assert_allclose(forward_growth(lin, start), directly(jacobians, start, False), **tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_growth_of_mixed_scales_and_deaths(dtype):
    # neighbours in one block: one explodes, one vanishes, one dies at a known step, one is dead from the start
    T = 50
    factors = np.array([1e7, 1e-7, 1.0, 0.5])
    jacobians = np.tile(np.diag(factors), (T, 1, 1)).astype(dtype)
    jacobians[20, 2, 2] = 0.0
    start = np.eye(4)[None]
    start[0, 3] = 0
    forward = forward_growth(JacobianStack(jacobians), start)[:, 0]
    lags = np.arange(T + 1)
    np.testing.assert_allclose(forward[:, 0], lags * np.log(1e7), rtol=1e-6)
    np.testing.assert_allclose(forward[:, 1], lags * np.log(1e-7), rtol=1e-6)
    np.testing.assert_array_equal(forward[:, 2], np.where(lags <= 20, 0.0, -np.inf))
    assert (forward[:, 3] == -np.inf).all()
    backward = backward_growth(JacobianStack(jacobians), start)[:, 0]
    np.testing.assert_array_equal(backward[:, 2], np.where(lags <= 29, 0.0, -np.inf))


def test_growth_is_of_the_unit_vector():
    lin = tanh_network()
    start = unit_vectors(np.random.default_rng(2), 3, 2, 12)
    np.testing.assert_allclose(backward_growth(lin, 1e200 * start), backward_growth(lin, start), rtol=1e-10, atol=1e-12)
    assert (backward_growth(lin, start)[0] == 0).all()


def test_growth_refuses_what_it_cannot_measure():
    lin = repeated(np.eye(3), 5)
    with pytest.raises(ShapeError, match=r"\(n, K, S\)"):
        backward_growth(lin, np.ones((1, 3)))
    with pytest.raises(ArgumentError, match="finite"):
        forward_growth(lin, np.full((1, 1, 3), np.nan))
    huge = JacobianStack(np.full((5, 2, 2), 3e38, np.float32))
    with pytest.raises(NonFiniteError, match="application 0"):
        backward_growth(huge, np.ones((1, 1, 2)))


def test_unit_vectors_are_isotropic():
    v = unit_vectors(np.random.default_rng(3), 40, 500, 5, np.float32)
    assert v.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(v, axis=-1), 1, rtol=1e-6)
    covariance = np.einsum("nki,nkj->ij", v, v, dtype=np.float64) / 20_000
    # entries have a standard error of about .0015
    np.testing.assert_allclose(covariance, np.eye(5) / 5, atol=0.008)


@pytest.mark.parametrize("s", [0.5, 0.97, 1.2])
def test_scaled_orthogonal_network(s):
    # W_hh = s Q with Q orthogonal: every gradient is s^k times what it was
    Q = scipy.linalg.qr(np.random.default_rng(4).standard_normal((9, 9)))[0]
    flow = gradient_flow(repeated(s * Q, 60, n=2), bounds=True, rng=0)
    for growth in (flow.backward, flow.forward, flow.upper_bound, flow.lower_bound):
        np.testing.assert_allclose(growth, np.outer(flow.lags, [np.log(s)] * 2), rtol=1e-12, atol=1e-13)
    assert flow.rate == pytest.approx(np.log(s), rel=1e-12)
    assert flow.forward_rate == pytest.approx(np.log(s), rel=1e-12)
    np.testing.assert_allclose(np.exp(flow.backward[:, 0]), s**flow.lags, rtol=1e-12)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("g", [0.5, 1.0, 3.0])
def test_no_gradient_leaves_the_bounds(seed, g):
    # Pascanu, Mikolov and Bengio 2013, equations 6-8: on every run and at every lag
    lin = tanh_network(H=10, g=g, T=50, input_scale=[0.0, 0.3, 1.0][seed % 3], seed=seed)
    for start in (None, np.random.default_rng(seed).standard_normal((3, 10))):
        flow = gradient_flow(lin, start=start, vectors=1, bounds=True, rng=seed)
        rounding = 1e-10
        assert (flow.lower_bound <= flow.backward + rounding).all()
        assert (flow.backward <= flow.upper_bound + rounding).all()
        assert (flow.upper_bound <= flow.a_priori_bound[:, None] + rounding).all()


def test_bounds_are_those_of_each_step():
    lin = tanh_network(T=15)
    flow = gradient_flow(lin, bounds=True, rng=0)
    singular = np.linalg.svd(lin.jacobians, compute_uv=False)
    for lag in (1, 4, 15):
        np.testing.assert_allclose(flow.upper_bound[lag], np.log(singular[15 - lag :, :, 0]).sum(0), rtol=1e-12)
        np.testing.assert_allclose(flow.lower_bound[lag], np.log(singular[15 - lag :, :, -1]).sum(0), rtol=1e-12)
    np.testing.assert_allclose(flow.a_priori_bound, flow.lags * np.log(np.linalg.norm(lin.weight, 2)), rtol=1e-12)


def test_bounds_only_where_they_are_asked_for_and_known():
    assert gradient_flow(tanh_network(T=5)).upper_bound is None
    assert gradient_flow(tanh_network(T=5)).a_priori_bound is None
    assert gradient_flow(repeated(np.eye(2), 5), bounds=True).a_priori_bound is None


def test_singular_jacobians_have_no_lower_bound():
    flow = gradient_flow(repeated(np.diag([2.0, 0.0]), 30), start=np.array([[1.0, 0.0]]), bounds=True)
    assert flow.lower_bound[0, 0] == 0
    assert (flow.lower_bound[1:] == -np.inf).all()
    np.testing.assert_allclose(flow.backward, flow.upper_bound, rtol=1e-14)


def test_zero_weights_have_a_bound_of_minus_infinity():
    rng = np.random.default_rng(5)
    flow = gradient_flow(NumpyTanhNetwork(np.zeros((4, 4)), 6, 2, 1.0, rng), bounds=True)
    np.testing.assert_array_equal(flow.a_priori_bound, [0, *[-np.inf] * 6])
    np.testing.assert_array_equal(flow.dead_fraction, [0, *[1.0] * 6])
    assert flow.rate == -np.inf


def test_identity_relu_network():
    # Le, Jaitly and Hinton 2015: W = I and positive states leave every gradient exactly as it is; a dead unit takes all
    flow = gradient_flow(repeated(np.eye(5), 40, n=2), start=np.ones((2, 5)))
    np.testing.assert_allclose(flow.backward, 0, atol=1e-14)
    np.testing.assert_array_equal(flow.dead_fraction, 0)
    slopes = np.ones((40, 2, 5))
    slopes[:, :, 3] = 0
    start = np.zeros((2, 5))
    start[0, 3] = start[1, 2] = 1
    flow = gradient_flow(JacobianStack(slopes[..., None] * np.eye(5)), start=start, bounds=True)
    assert (flow.backward[:, 1] == 0).all()
    np.testing.assert_array_equal(flow.backward[:, 0], [0, *[-np.inf] * 40])
    np.testing.assert_array_equal(flow.dead_fraction, [0, *[0.5] * 40])
    np.testing.assert_array_equal(flow.rates, [-np.inf, 0])
    assert flow.rate == 0


def test_nilpotent_network_kills_every_vector():
    # the nilpotent shift kills every vector at step 10
    flow = gradient_flow(repeated(np.diag(np.ones(9), 1), 15), vectors=3, rng=0)
    np.testing.assert_array_equal(flow.dead_fraction, np.arange(16) >= 10)
    np.testing.assert_array_equal(flow.forward_dead_fraction, np.arange(16) >= 10)
    assert np.isfinite(flow.backward[:10]).all()
    assert flow.rate == flow.forward_rate == -np.inf
    assert "-inf" in str(flow)


def test_dead_vectors_leave_the_mean_to_the_living():
    flow = gradient_flow(repeated(np.diag([0.5, 0.0]), 12, n=2), start=np.array([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_allclose(flow.rates, [np.log(0.5), -np.inf], rtol=1e-12)
    assert flow.rate == pytest.approx(np.log(0.5), rel=1e-12)
    np.testing.assert_array_equal(flow.dead_fraction, [0, *[0.5] * 12])


def test_lags_count_from_the_end_backward_and_from_the_beginning_forward():
    # one unit: both curves are sums of known factors over known windows
    factors = np.exp(np.random.default_rng(6).standard_normal((30, 2)))
    flow = gradient_flow(JacobianStack(factors[:, :, None, None]), vectors=1)
    logs = np.log(factors)
    np.testing.assert_allclose(flow.backward[1:], np.cumsum(logs[::-1], axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(flow.forward[1:], np.cumsum(logs, axis=0), rtol=1e-12, atol=1e-12)
    for i in range(2):
        slope = np.polyfit(flow.lags[10:], flow.backward[10:, i], 1)[0]
        assert flow.rates[i] == pytest.approx(slope, rel=1e-10)
    assert flow.rate == pytest.approx(flow.rates.mean(), rel=1e-14)


def test_short_trajectories_are_fitted_from_lag_one():
    factors = np.exp(np.random.default_rng(7).standard_normal(19))
    flow = gradient_flow(JacobianStack(factors[:, None, None]))
    assert flow.rate == pytest.approx(np.polyfit(flow.lags[1:], flow.backward[1:, 0], 1)[0], rel=1e-10)
    # one step is its own slope, as in a diagnosis of one step
    assert gradient_flow(JacobianStack(factors[:1, None, None])).rate == pytest.approx(np.log(factors[0]), rel=1e-12)
    nothing = gradient_flow(JacobianStack(np.empty((0, 2, 3, 3))))
    assert nothing.backward.tolist() == [[0, 0]]
    assert "T = 0" in str(nothing)
    assert "none: there is no step" in str(nothing)
    assert "nan" not in str(nothing)


def test_curve_is_the_mean_of_logs_over_the_vectors():
    lin = tanh_network()
    flow = gradient_flow(lin, vectors=5, rng=8)
    rng = np.random.default_rng(8)
    back = directly(lin.jacobians, unit_vectors(rng, 3, 5, 12), True)
    forth = directly(lin.jacobians, unit_vectors(rng, 3, 5, 12), False)
    np.testing.assert_allclose(flow.backward, back.mean(axis=2), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(flow.forward, forth.mean(axis=2), rtol=1e-11, atol=1e-12)


def test_given_start_is_pulled_back():
    lin = tanh_network()
    start = np.random.default_rng(9).standard_normal((3, 12))
    flow = gradient_flow(lin, start=start)
    expected = np.log(np.linalg.norm(lin.vjp(start), axis=1) / np.linalg.norm(start, axis=1))
    np.testing.assert_allclose(flow.backward[-1], expected, rtol=1e-10)
    assert flow.n_vectors == 1


def test_summary_and_dict():
    flow = gradient_flow(tanh_network(), bounds=True, rng=1)
    text = str(flow)
    for part in ("T = 40 steps, 3 sequences, 4 backward", "nats/step", "lags 10 .. 40", "dead", "weights alone"):
        assert part in text
    assert repr(flow).startswith("GradientFlow(T=40, n=3, rate=")
    plain = json.loads(json.dumps(flow.to_dict()))
    assert plain["backward"] == flow.backward.tolist()
    assert plain["rate"] == flow.rate
    assert gradient_flow(tanh_network()).to_dict()["upper_bound"] is None


def test_wrong_arguments_are_refused():
    lin = tanh_network()
    with pytest.raises(ShapeError, match=r"start must have shape \(n, S\) = \(3, 12\)"):
        gradient_flow(lin, start=np.ones((12, 3)))
    with pytest.raises(ArgumentError, match="finite"):
        gradient_flow(lin, start=np.full((3, 12), np.inf))
    for vectors, error in ((0, ArgumentError), (1.5, DTypeError), (True, DTypeError)):
        with pytest.raises(error, match="vectors must be"):
            gradient_flow(lin, vectors=vectors)
    with pytest.raises(ArgumentError, match="at least one sequence"):
        gradient_flow(JacobianStack(np.empty((4, 0, 3, 3))))
    with pytest.raises(ShapeError, match="a state of at least one number"):
        gradient_flow(JacobianStack(np.empty((4, 2, 0, 0))))
    with pytest.raises(DTypeError, match=r"got ndarray; .*gradient_flow\(elman\.JacobianStack\(J\)\)"):
        gradient_flow(np.ones((4, 3, 3)))


def test_prints_have_units_and_no_rounding_dust():
    rotation = [[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]]
    text = str(gradient_flow(repeated(rotation, 200), bounds=True))
    assert "e-1" not in text
    assert "bounds at lag T: +0.000 .. +0.000 nats" in text
    assert "from the weights alone: +" in (weights := str(gradient_flow(tanh_network(), bounds=True)))
    assert weights.splitlines()[-1].endswith(" nats")
    dead = str(gradient_flow(repeated(np.zeros((2, 2)), 3)))
    assert "none: every vector ends as exactly zero" in dead
    assert "nan" not in dead


def exact_extremes(jacobians, lag):
    """Log of the largest and smallest singular value of the product of the last ``lag`` Jacobians, with many digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(400):
        product = mpmath.eye(jacobians.shape[-1])
        for J in jacobians[len(jacobians) - lag :]:
            product = mpmath.matrix(J.tolist()) * product
        squares = sorted(mpmath.eigsy(product.T * product, eigvals_only=True))
        return float(mpmath.log(squares[-1]) / 2), float(mpmath.log(squares[0]) / 2)


@pytest.mark.parametrize("grading", [0.0, 1.5])
def test_singular_values_of_long_products(grading):
    # the smallest is e^-160 of the largest at the end, and worse with scales of the units that differ
    jacobians = np.random.default_rng(20).standard_normal((50, 2, 4, 4)) * np.exp(-grading * np.arange(4))[:, None]
    lags = np.array([0, 1, 2, 7, 25, 50])
    largest, smallest = singular_growth(JacobianStack(jacobians), lags)
    for row, lag in enumerate(lags):
        for i in range(2):
            top, bottom = exact_extremes(jacobians[:, i], lag)
            assert largest[row, i] == pytest.approx(top, abs=1e-11)
            assert smallest[row, i] == pytest.approx(bottom, abs=1e-7)


def test_singular_values_beyond_the_range_of_numbers():
    T = 3000
    largest, smallest = singular_growth(repeated(np.diag([2.0, 1.0, 0.25]), T), np.array([T]))
    assert largest[0, 0] == pytest.approx(T * np.log(2), rel=1e-12)
    assert smallest[0, 0] == pytest.approx(T * np.log(0.25), rel=1e-12)


def test_singular_values_of_lost_directions():
    shift = np.diag(np.ones(9), 1)
    largest, smallest = singular_growth(repeated(shift, 12), np.arange(13))
    np.testing.assert_array_equal(largest[:, 0], np.where(np.arange(13) < 10, 0.0, -np.inf))
    np.testing.assert_array_equal(smallest[:, 0], np.where(np.arange(13) < 1, 0.0, -np.inf))


def test_singular_values_of_a_matrix_far_from_normal():
    # [[.9, 10], [0, .9]]: the largest |W^k| is 38.745923 at k = 9
    largest, _ = singular_growth(repeated([[0.9, 10], [0, 0.9]], 20), np.arange(21))
    assert np.argmax(largest) == 9
    assert np.exp(largest[9, 0]) == pytest.approx(38.745923, rel=1e-8)


@pytest.mark.parametrize("T", [0, 1, 2, 40])
def test_gradients_lie_between_singular_values_and_these_within_pascanus_bounds(T):
    flow = gradient_flow(tanh_network(T=T), bounds=True, singular_values=True, vectors=8, rng=0)
    lags = flow.singular_lags
    assert lags[0] == 0
    assert lags[-1] == T
    assert (np.diff(lags) > 0).all()
    slack = 1e-9
    assert (flow.upper_bound[lags] + slack >= flow.largest).all()
    assert (flow.a_priori_bound[lags, None] + slack >= flow.largest).all()
    assert (flow.largest + slack >= flow.backward[lags]).all()
    assert (flow.backward[lags] + slack >= flow.smallest).all()
    assert (flow.smallest + slack >= flow.lower_bound[lags]).all()
    assert ("singular values at lag T" in str(flow)) == bool(T) or T == 0
    assert json.loads(json.dumps(flow.to_dict()))["largest"] == flow.largest.tolist()


def test_singular_values_are_computed_on_demand():
    flow = gradient_flow(tanh_network(), rng=0)
    assert flow.singular_lags is flow.largest is flow.smallest is None
    assert "singular values" not in str(flow)


def test_identity_relu_network_keeps_its_gradient_exactly():
    # Le, Jaitly and Hinton 2015: positive states and identity weights; a dead unit loses its part at once
    living = gradient_flow(repeated(np.eye(5), 60, n=2), singular_values=True, bounds=True, rng=0)
    for curve in (living.backward, living.forward, living.upper_bound, living.lower_bound, living.largest):
        np.testing.assert_allclose(curve, 0, atol=1e-12)
    dead = gradient_flow(repeated(np.zeros((1, 1)), 30), singular_values=True, rng=0)
    assert (dead.backward[1:] == -np.inf).all()
    assert (dead.largest[1:] == -np.inf).all()


def test_float32_singular_values():
    jacobians = np.random.default_rng(21).standard_normal((30, 1, 5, 5))
    lags = np.array([1, 10, 30])
    exact = singular_growth(JacobianStack(jacobians), lags)
    single = singular_growth(JacobianStack(jacobians.astype(np.float32)), lags)
    np.testing.assert_allclose(single[0], exact[0], atol=1e-4)


def test_singular_values_of_what_is_not_finite_are_refused():
    jacobians = np.full((3, 2, 2), 1e200)
    lin = JacobianStack(jacobians)
    lin.jacobians = np.where(np.arange(3)[:, None, None, None] == 1, np.inf, lin.jacobians)
    with pytest.raises(NonFiniteError, match="step 1"):
        singular_growth(lin, np.array([3]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decades", [-2.5, 2.5])
def test_growth_of_two_and_a_half_decades_a_step(dtype, decades):
    """Squares leave the range within a window of steps, single steps do not: 10^-1000 at the end."""
    factor, T = dtype(10.0**decades), 400
    J = np.broadcast_to(factor * np.eye(3, dtype=dtype)[[1, 2, 0]], (T, 2, 3, 3)).copy()
    start = np.random.default_rng(0).standard_normal((2, 4, 3))
    expected = np.arange(T + 1)[:, None, None] * np.log(float(factor)) * np.ones((2, 4))
    rtol = 1e-12 if dtype is np.float64 else 1e-6
    for growth in (backward_growth, forward_growth):
        np.testing.assert_allclose(growth(JacobianStack(J), start), expected, rtol=rtol, atol=1e-5 * rtol)
