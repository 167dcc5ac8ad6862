import json
import time

import numpy as np
import pytest
import scipy.linalg
from scipy.special import digamma
from systems import repeated, tanh_network

from elman.diagnostics.lyapunov.exponents import lyapunov_spectrum
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from elman.layers import RNN
from elman.linearization import JacobianStack, Linearization, StepLinearization


def stream(matrices, v):
    """Mean log growth of one vector under the matrices in the order given."""
    total = 0.0
    for A in matrices:
        v = A @ v
        size = np.linalg.norm(v)
        total += np.log(size)
        v = v / size
    return total / len(matrices)


def test_linear_network_has_the_logarithms_of_its_eigenvalues():
    np.testing.assert_allclose(
        lyapunov_spectrum(repeated(np.diag([0.9, 0.8]), 2000), rng=0).exponents, np.log([0.9, 0.8]), atol=1e-9
    )
    W = np.random.default_rng(1).standard_normal((6, 6))
    moduli = np.sort(abs(np.linalg.eigvals(W)))[::-1]
    T = 4000
    found = lyapunov_spectrum(repeated(W, T), rng=1)
    np.testing.assert_allclose(found.exponents, np.log(moduli), atol=20 / T)


def test_ordered_schur_frame_is_exact():
    # real, distinct moduli: the Schur vectors in descending modulus span the invariant subspaces from the first step on
    rng = np.random.default_rng(2)
    basis = rng.standard_normal((5, 5))
    values = np.array([1.3, -0.95, 0.7, 0.4, -0.1])
    W = basis @ np.diag(values) @ np.linalg.inv(basis)
    remaining, frame = W, np.eye(5)
    for i, value in enumerate(values[:-1]):
        # deflate one eigenvector after the other: column i of the frame completes the i-th invariant subspace
        eigenvector = scipy.linalg.null_space(remaining - value * np.eye(5 - i), rcond=1e-10)[:, :1]
        Q = scipy.linalg.qr(eigenvector)[0]
        frame[:, i:] = frame[:, i:] @ Q
        remaining = (Q.T @ remaining @ Q)[1:, 1:]
    found = lyapunov_spectrum(repeated(W, 60), warmup=0, frame=frame)
    np.testing.assert_allclose(found.exponents, np.log(abs(values)), atol=1e-10)
    np.testing.assert_allclose(found.stderr, 0, atol=1e-10)


def test_rotation_has_only_zeros():
    c, s = np.cos(0.3), np.sin(0.3)
    found = lyapunov_spectrum(repeated([[c, -s], [s, c]], 500), rng=3)
    np.testing.assert_allclose(found.exponents, 0, atol=1e-13)


def test_scaled_orthogonal_matrix_grows_alike_in_all_directions():
    Q = scipy.linalg.qr(np.random.default_rng(4).standard_normal((7, 7)))[0]
    np.testing.assert_allclose(lyapunov_spectrum(repeated(0.7 * Q, 100), rng=4).exponents, np.log(0.7), rtol=1e-12)


@pytest.mark.parametrize("H", [8, 20])
def test_volume_rule(H):
    # Liouville: the exponents add up to the mean log |det J|; tanh cell: log |det W| + sum over units of log phi'
    jacobians, W, slopes = tanh_network(H, 1.6, 400, seed=H)
    found = lyapunov_spectrum(JacobianStack(jacobians), warmup=30, rng=0)
    determinant = np.linalg.slogdet(jacobians[30:])[1].mean()
    per_unit = np.linalg.slogdet(W)[1] / H + np.log(slopes[30:]).mean()
    assert found.sum == pytest.approx(determinant, abs=1e-9)
    assert found.sum / H == pytest.approx(per_unit, abs=1e-9)


@pytest.mark.parametrize("H", [8, 20])
def test_order_of_the_product_matters(H):
    # Published code pushes J_t^T forward in time. Maps with constant determinant cannot see that mistake; this can.
    T = 8000
    jacobians = tanh_network(H, 3.0, T, seed=H + 1)[0]
    v = np.random.default_rng(5).standard_normal(H)
    first = lyapunov_spectrum(JacobianStack(jacobians), k=1, warmup=0, rng=6).exponents[0]
    forward = stream(jacobians, v)
    backward = stream(jacobians[::-1].transpose(0, 2, 1), v)
    wrong = stream(jacobians.transpose(0, 2, 1), v)
    # the start vectors' alignment costs a few nats over the whole run; the gap must stand well above it
    alignment = 10 / T
    assert first == pytest.approx(forward, abs=alignment)
    assert first == pytest.approx(backward, abs=alignment)
    assert abs(wrong - first) > 5 * alignment


def test_products_of_gaussian_matrices():
    # Newman, Commun. Math. Phys. 103 (1986) 121
    N, T = 6, 40_000
    jacobians = np.random.default_rng(7).standard_normal((T, N, N))
    expected = (np.log(2) + digamma((N - np.arange(1, N + 1) + 1) / 2)) / 2
    np.testing.assert_allclose(expected, [0.80797, 0.69815, 0.55797, 0.36482, 0.05797, -0.63518], atol=5e-6)
    found = lyapunov_spectrum(JacobianStack(jacobians), rng=7)
    np.testing.assert_allclose(found.exponents, expected, atol=0.01)
    # independent steps: log |R_ii|^2 is log of a chi-square, whose variance is trigamma((N - i + 1) / 2)
    from scipy.special import polygamma

    exact = np.sqrt(polygamma(1, (N - np.arange(N)) / 2) / 4 / found.n_steps)
    # from b blocks it is known to 1 / sqrt(2 (b - 1)): 5 % here, and 4 of those
    fine = lyapunov_spectrum(JacobianStack(jacobians), blocks=200, rng=7)
    np.testing.assert_allclose(fine.stderr, exact, rtol=0.2)
    np.testing.assert_allclose(found.stderr, exact, rtol=4 / np.sqrt(2 * (found.n_blocks - 1)))


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("start", ["random", "identity", "reversed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nilpotent_shift_loses_everything(lower, start, dtype):
    S = np.diag(np.ones(9), -1 if lower else 1)
    frame = {"random": None, "identity": np.eye(10), "reversed": np.eye(10)[::-1]}[start]
    found = lyapunov_spectrum(JacobianStack(np.tile(S, (30, 1, 1)).astype(dtype)), warmup=0, frame=frame, rng=0)
    assert (found.exponents == -np.inf).all()
    assert np.isnan(found.stderr).all()
    assert found.sum == -np.inf
    assert found.kaplan_yorke_dimension == 0
    assert "-inf" in str(found)


def test_lost_directions_leave_the_others_alone():
    # The lost direction stands in front of the living one in the frame.
    found = lyapunov_spectrum(repeated(np.diag([0.0, 0.5, 2.0]), 40), warmup=0, frame=np.eye(3))
    np.testing.assert_allclose(found.exponents, [np.log(2), np.log(0.5), -np.inf], rtol=1e-13)
    assert found.kaplan_yorke_dimension == pytest.approx(2)


def test_rank_one_network_keeps_one_exponent():
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((2, 12))
    found = lyapunov_spectrum(repeated(np.outer(a, b), 200), rng=8)
    assert found.exponents[0] == pytest.approx(np.log(abs(a @ b)), rel=1e-10)
    assert (found.exponents[1:] == -np.inf).all()


def test_strong_contraction_is_not_called_lost():
    values = np.array([1.0, 1e-6, 1e-12])
    found = lyapunov_spectrum(repeated(np.diag(values), 50), warmup=0, frame=np.eye(3))
    np.testing.assert_allclose(found.exponents, np.log(values), atol=1e-12)


def test_relu_identity_network_with_positive_states():
    # Le, Jaitly and Hinton 2015: identity weights and living units leave the gradient as it is; a dead unit loses it
    assert (lyapunov_spectrum(repeated(np.eye(4), 50), frame=np.eye(4)).exponents == 0).all()
    found = lyapunov_spectrum(repeated(np.diag([1.0, 0.0, 1.0]), 50), rng=1)
    np.testing.assert_allclose(found.exponents[:2], 0, atol=1e-12)
    assert found.exponents[2] == -np.inf


def test_logistic_and_tent_map():
    # conjugate maps of exponent ln 2; the tent orbit is the logistic one transformed: its own arithmetic loses a bit a
    # step and ends at 0
    T, x = 20_000, 0.3123
    logistic, tent = np.empty((2, T, 1, 1))
    for t in range(T):
        logistic[t] = 4 - 8 * x
        tent[t] = 2.0 if np.arcsin(np.sqrt(x)) * 2 / np.pi < 0.5 else -2.0
        x = 4 * x * (1 - x)
    found = lyapunov_spectrum(JacobianStack(logistic))
    assert found.exponents[0] == pytest.approx(np.log(2), abs=0.01)
    assert abs(found.exponents[0] - np.log(2)) < 6 * found.stderr[0]
    assert lyapunov_spectrum(JacobianStack(tent[:2000])).exponents[0] == pytest.approx(np.log(2), abs=1e-12)


def test_henon_map():
    # Sprott, Chaos and Time-Series Analysis (2003): .4192 and -1.6232 at a = 1.4, b = .3
    T, x, y = 25_000, 0.1, 0.1
    jacobians = np.empty((T, 2, 2))
    for t in range(T):
        jacobians[t] = [[-2.8 * x, 1.0], [0.3, 0.0]]
        x, y = 1 - 1.4 * x * x + y, 0.3 * x
    found = lyapunov_spectrum(JacobianStack(jacobians), rng=0)
    assert found.sum == pytest.approx(np.log(0.3), abs=1e-10)
    np.testing.assert_allclose(found.exponents, [0.4192, -1.6232], rtol=0.01)
    # Kaplan-Yorke dimension from the same source
    assert found.kaplan_yorke_dimension == pytest.approx(1.2583, abs=0.005)


def test_lorenz_system():
    # Sprott (2003): .9056, 0, -14.5723; their sum is the divergence -(10 + 1 + 8/3), exact up to the step's error
    dt, T = 0.01, 30_000

    def field(s):
        x, y, z = s
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def slope(s):
        x, y, z = s
        return np.array([[-10, 10, 0], [28 - z, -1, -x], [y, x, -8 / 3]])

    s, jacobians = np.array([1.0, 1.0, 20.0]), np.empty((T, 3, 3))
    for t in range(T):
        # classical Runge-Kutta step and its exact derivative
        k1, d1 = field(s), slope(s)
        p = s + dt / 2 * k1
        k2, d2 = field(p), slope(p) @ (np.eye(3) + dt / 2 * d1)
        p = s + dt / 2 * k2
        k3, d3 = field(p), slope(p) @ (np.eye(3) + dt / 2 * d2)
        p = s + dt * k3
        k4, d4 = field(p), slope(p) @ (np.eye(3) + dt * d3)
        jacobians[t] = np.eye(3) + dt / 6 * (d1 + 2 * d2 + 2 * d3 + d4)
        s = s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    found = lyapunov_spectrum(JacobianStack(jacobians), rng=0).exponents / dt
    assert found[0] == pytest.approx(0.9056, abs=0.02)
    assert found[1] == pytest.approx(0, abs=0.02)
    assert found.sum() == pytest.approx(-13.6667, abs=1e-3)


def test_first_exponents_alone_equal_those_of_the_whole_spectrum():
    jacobians = tanh_network(10, 1.5, 300, seed=9)[0]
    frame = np.random.default_rng(10).standard_normal((10, 10))
    whole = lyapunov_spectrum(JacobianStack(jacobians), frame=frame)
    part = lyapunov_spectrum(JacobianStack(jacobians), 3, frame=frame[:, :3])
    np.testing.assert_allclose(part.exponents, whole.exponents[:3], rtol=1e-10)
    assert part.history.shape == (part.n_steps, 3)
    # no sum of the three turned negative, or the dimension is that of the whole
    expected = whole.kaplan_yorke_dimension
    assert np.isnan(part.kaplan_yorke_dimension) if expected > 3 else part.kaplan_yorke_dimension == expected


def test_sequences_are_kept_apart():
    first, second = tanh_network(6, 1.5, 200, seed=11)[0], tanh_network(6, 0.8, 200, seed=12)[0]
    both = JacobianStack(np.stack([first, second], axis=1))
    for i, jacobians in enumerate((first, second)):
        alone = lyapunov_spectrum(JacobianStack(jacobians), rng=1)
        np.testing.assert_allclose(lyapunov_spectrum(both, sequence=i, rng=1).exponents, alone.exponents, rtol=1e-12)


def test_warmup_is_propagated_and_not_counted():
    # a diagonal network whose rates change at step 50: only what follows is counted
    values = np.where(np.arange(150)[:, None] < 50, [3.0, 0.2], [0.9, 0.8])
    jacobians = values[:, :, None] * np.eye(2)
    found = lyapunov_spectrum(JacobianStack(jacobians), warmup=50, frame=np.eye(2))
    np.testing.assert_allclose(found.exponents, np.log([0.9, 0.8]), rtol=1e-12)
    assert (found.n_steps, found.warmup) == (100, 50)
    assert lyapunov_spectrum(JacobianStack(jacobians)).warmup == 50
    assert lyapunov_spectrum(JacobianStack(jacobians[:60])).warmup == 30
    assert lyapunov_spectrum(repeated(np.eye(1), 2000)).warmup == 200
    assert lyapunov_spectrum(repeated(np.eye(1), 1)).warmup == 0


def test_history_ends_at_the_exponents():
    jacobians = tanh_network(6, 1.5, 200, seed=13)[0]
    found = lyapunov_spectrum(JacobianStack(jacobians), rng=2)
    np.testing.assert_allclose(found.history[-1], found.exponents, rtol=1e-12)
    assert found.history.shape == found.local_rates.shape == (150, 6)
    assert (np.diff(found.exponents) <= 0).all()


def test_standard_error_by_blocks():
    # one state: the local rates are the log factors themselves
    factors = np.exp(np.random.default_rng(14).standard_normal(103))
    found = lyapunov_spectrum(JacobianStack(factors[:, None, None]), warmup=0, blocks=10)
    means = np.log(factors)[3:].reshape(10, 10).mean(axis=1)
    assert found.stderr[0] == pytest.approx(means.std(ddof=1) / np.sqrt(10), rel=1e-12)
    assert found.exponents[0] == pytest.approx(np.log(factors).mean(), rel=1e-12)
    assert lyapunov_spectrum(JacobianStack(factors[:, None, None]), warmup=98).n_blocks == 5
    assert np.isnan(lyapunov_spectrum(JacobianStack(factors[:, None, None]), warmup=102).stderr).all()


@pytest.mark.parametrize(
    ("exponents", "dimension"),
    [
        ([0.9, 0.0, -14.5], 2 + 0.9 / 14.5),
        ([0.5, -0.2, -0.2, -0.4], 3 + 0.1 / 0.4),
        ([-0.1, -0.2], 0.0),
        ([0.3, -0.1], 2.0),
        ([0.0], 1.0),
    ],
)
def test_kaplan_yorke_dimension(exponents, dimension):
    found = lyapunov_spectrum(repeated(np.diag(np.exp(exponents)), 20), frame=np.eye(len(exponents)))
    assert found.kaplan_yorke_dimension == pytest.approx(dimension, rel=1e-12)


def test_kaplan_yorke_needs_enough_exponents():
    W = np.diag(np.exp([0.5, 0.1, -2.0]))
    assert np.isnan(lyapunov_spectrum(repeated(W, 20), 2, frame=np.eye(3)[:, :2]).kaplan_yorke_dimension)


def test_same_seed_same_numbers():
    lin = JacobianStack(tanh_network(6, 1.5, 100, seed=15)[0])
    np.testing.assert_array_equal(
        lyapunov_spectrum(lin, rng=3).exponents, lyapunov_spectrum(lin, rng=np.random.default_rng(3)).exponents
    )
    assert (lyapunov_spectrum(lin, rng=3).exponents != lyapunov_spectrum(lin, rng=4).exponents).any()


def test_summary_and_dict():
    found = lyapunov_spectrum(repeated(np.diag(np.linspace(0.99, 0.1, 12)), 200), frame=np.eye(12))
    text = str(found)
    for part in ("12 of 12", "150 steps", "nats/step", "-0.01005", "0.99", "... last -2.3026", "dimension 0"):
        assert part in text
    assert repr(found).startswith("LyapunovSpectrum(k=12, first=-0.01005")
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["exponents"] == found.exponents.tolist()
    assert plain["n_blocks"] == 20


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"k": 0}, r"k must be in 1 \.\. 3, got 0"),
        ({"k": 4}, r"k must be in 1 \.\. 3, got 4"),
        ({"warmup": 20}, r"warmup must be in 0 \.\. 19"),
        ({"warmup": -1}, "warmup must be in"),
        ({"sequence": 1}, r"sequence must be in 0 \.\. 0"),
        ({"blocks": 1}, "blocks must be at least 2"),
        ({"interval": 0}, "interval must be at least 1"),
        ({"frame": np.ones((3, 3))}, "linearly independent"),
    ],
)
def test_arguments_outside_their_range_are_refused(keywords, message):
    with pytest.raises(ArgumentError, match=message):
        lyapunov_spectrum(repeated(np.eye(3), 20), **keywords)


def test_a_number_of_exponents_that_is_no_integer_is_refused():
    with pytest.raises(DTypeError, match="k must be an integer"):
        lyapunov_spectrum(repeated(np.eye(3), 20), k=2.0)


def test_wrong_frame_and_empty_trajectory_are_refused():
    with pytest.raises(ShapeError, match=r"frame must have shape \(S, k\) = \(3, 2\)"):
        lyapunov_spectrum(repeated(np.eye(3), 20), 2, frame=np.ones((2, 3)))
    with pytest.raises(ArgumentError, match="at least 1 step"):
        lyapunov_spectrum(JacobianStack(np.empty((0, 3, 3))))
    with pytest.raises(ArgumentError, match="at least one sequence, got none"):
        lyapunov_spectrum(JacobianStack(np.empty((4, 0, 3, 3))))
    with pytest.raises(ShapeError, match="a state of at least one number"):
        lyapunov_spectrum(JacobianStack(np.empty((4, 1, 0, 0))))


class Model:
    """Something that can be linearized and is not."""

    def linearize(self, x):
        raise NotImplementedError


def test_what_is_not_linearized_is_told_how():
    with pytest.raises(DTypeError, match=r"got Model; .*lyapunov_spectrum\(model\.linearize\(x\)\)"):
        lyapunov_spectrum(Model())
    with pytest.raises(DTypeError, match=r"got ndarray; .*lyapunov_spectrum\(elman\.JacobianStack\(J\)\)"):
        lyapunov_spectrum(np.ones((4, 3, 3)))


class Broken(Linearization):
    """A linearization whose step 3 is not finite, as a trajectory that overflowed would give."""

    n_steps, n_sequences, state_size, dtype = 6, 1, 2, np.dtype(np.float64)

    def _jvp(self, v, t0, t1, norms):
        out = v * (np.nan if t0 <= 3 < t1 else 1.0)
        if norms is not None:
            norms[:] = np.linalg.norm(out, axis=-1)
        return out

    _vjp = _jvp

    def jacobian(self, t, sequence=0):
        return np.eye(2) * (np.nan if t == 3 else 1.0)


def test_products_that_are_not_finite_are_named():
    with pytest.raises(NonFiniteError, match="step 3") as caught:
        lyapunov_spectrum(Broken())
    assert caught.value.step == 3


@pytest.mark.parametrize(("H", "g"), [(8, 1.6), (30, 2.0)])
def test_the_interval_is_chosen_and_changes_nothing(H, g):
    jacobians = tanh_network(H, g, 600, seed=H)[0]
    every = lyapunov_spectrum(JacobianStack(jacobians), rng=0, interval=1)
    chosen = lyapunov_spectrum(JacobianStack(jacobians), rng=0)
    assert every.interval == 1
    assert chosen.interval > 1
    assert chosen.condition > every.condition
    # sqrt(eps) strains the frame; half of the digits stay
    assert chosen.condition < 1 / np.sqrt(np.finfo(float).eps)
    np.testing.assert_allclose(chosen.exponents, every.exponents, atol=1e-7)
    np.testing.assert_allclose(chosen.stderr, every.stderr, atol=1e-7)
    limited = lyapunov_spectrum(Hidden(JacobianStack(jacobians)), rng=0, interval=2)
    assert limited.interval == 2


class Hidden(Linearization):
    """The products of a stack without its arrays."""

    def __init__(self, stack):
        self.stack, self._jvp, self._vjp = stack, stack._jvp, stack._vjp
        self.n_steps, self.n_sequences = stack.n_steps, stack.n_sequences
        self.state_size, self.dtype = stack.state_size, stack.dtype

    def _jvp(self, v, t0, t1, norms):
        raise NotImplementedError

    _vjp = _jvp

    def jacobian(self, t, sequence=0):
        return self.stack.jacobian(t, sequence)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("T", [64, 1000, 2003])
@pytest.mark.parametrize("g", [0.5, 2.0])
def test_small_systems_at_once_equal_step_by_step(k, T, g):
    stack = JacobianStack(np.stack([tanh_network(3, g, T, seed=s)[0] for s in (1, 2)], axis=1))
    for interval in (None, 1):
        at_once = lyapunov_spectrum(stack, k, sequence=1, rng=0, interval=interval)
        one_by_one = lyapunov_spectrum(Hidden(stack), k, sequence=1, rng=0, interval=interval)
        np.testing.assert_allclose(at_once.exponents, one_by_one.exponents, atol=1e-8)
        np.testing.assert_allclose(at_once.stderr, one_by_one.stderr, atol=1e-8)
    np.testing.assert_allclose(at_once.local_rates, one_by_one.local_rates, atol=1e-7)


@pytest.mark.parametrize("W", [np.eye(3), np.diag([1.0, 0.99, 0.98]), [[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]]])
def test_small_systems_whose_frames_forget_nothing(W):
    stack = repeated(W, 1500)
    at_once = lyapunov_spectrum(stack, rng=0, warmup=0)
    one_by_one = lyapunov_spectrum(Hidden(stack), rng=0, warmup=0)
    np.testing.assert_allclose(at_once.exponents, one_by_one.exponents, atol=1e-9)


def test_the_henon_map_takes_about_a_millisecond():
    T, x, y = 10_000, 0.1, 0.1
    jacobians = np.empty((T, 2, 2))
    for t in range(T):
        jacobians[t] = [[-2.8 * x, 1.0], [0.3, 0.0]]
        x, y = 1 - 1.4 * x * x + y, 0.3 * x
    stack = JacobianStack(jacobians)
    times = []
    for _ in range(5):
        start = time.process_time()
        found = lyapunov_spectrum(stack, rng=0)
        times.append(time.process_time() - start)
    np.testing.assert_allclose(found.exponents, [0.4192, -1.6232], rtol=0.01)
    assert found.interval > 1
    # one or two; step by step it takes some hundred
    assert min(times) < 0.02


def test_the_interval_follows_the_gap():
    # 1 nat a step between the exponents, and vectors that turn: sqrt(eps) is 18 nats
    W = np.array([[1.0, 1.0], [0.0, np.exp(-1.0)]])
    found = lyapunov_spectrum(Hidden(repeated(W, 2000)), rng=0, blocks=2)
    assert 9 <= found.interval <= 18
    np.testing.assert_allclose(found.exponents, [0, -1], atol=1e-3)
    # without a gap, sizes limit it
    same = lyapunov_spectrum(Hidden(repeated(np.exp(-5) * np.eye(2), 2000)), rng=0, blocks=2)
    assert 10 <= same.interval <= np.log(1 / np.finfo(float).tiny) / 4 / 5
    np.testing.assert_allclose(same.exponents, -5, rtol=1e-12)


def test_a_window_that_strains_the_frame_is_done_again():
    # calm for 100 steps, so that windows become long; then directions that part by 12 nats a step
    calm, wild = np.tile(np.eye(2), (100, 1, 1)), np.tile([[np.exp(12.0), 1.0], [0.0, 1.0]], (60, 1, 1))
    lin = JacobianStack(np.concatenate([calm, wild, calm]))
    found = lyapunov_spectrum(Hidden(lin), warmup=0, rng=0, blocks=2)
    assert found.interval > 10
    np.testing.assert_allclose(found.exponents, [12 * 60 / 260, 0], atol=0.02)
    assert found.sum == pytest.approx(12 * 60 / 260, abs=1e-9)


def test_sizes_beyond_the_range_of_numbers_are_no_trouble():
    jacobians = np.tile(np.eye(3), (300, 1, 1))
    jacobians[100:200] = 1e250 * np.eye(3)
    found = lyapunov_spectrum(JacobianStack(jacobians), warmup=0, rng=0)
    np.testing.assert_allclose(found.exponents, np.log(1e250) / 3, rtol=1e-12)


def test_finite_time_exponents():
    factors = np.exp(np.random.default_rng(14).standard_normal(105))
    found = lyapunov_spectrum(JacobianStack(factors[:, None, None]), warmup=0, interval=1)
    np.testing.assert_allclose(
        found.finite_time(10)[:, 0], np.log(factors)[5:].reshape(10, 10).mean(axis=1), rtol=1e-11
    )
    np.testing.assert_allclose(found.finite_time(105)[0], found.exponents, rtol=1e-12)
    # independent steps of unit variance: the spread over windows of 10 is 1 / sqrt(10)
    assert found.finite_time(10).std(ddof=1) == pytest.approx(np.sqrt(0.1), rel=0.5)
    long = lyapunov_spectrum(repeated(np.diag([1.0, 0.5]), 1000), rng=0)
    with pytest.raises(ArgumentError, match=r"length must be at least the \d+ steps between .* interval=1"):
        long.finite_time(1)
    with pytest.raises(ArgumentError, match=r"length must be in 1 \.\. 105"):
        found.finite_time(106)


@pytest.mark.parametrize(
    ("exponents", "k", "entropy"),
    [([0.9, 0.2, -0.5], 3, 1.1), ([0.9, -0.2, -0.5], 2, 0.9), ([-0.1, -0.2], 2, 0.0), ([0.9, 0.2, -0.5], 1, np.nan)],
)
def test_entropy_is_the_sum_of_the_positive_exponents(exponents, k, entropy):
    found = lyapunov_spectrum(repeated(np.diag(np.exp(exponents)), 20), k, frame=np.eye(len(exponents))[:, :k])
    assert found.entropy == pytest.approx(entropy, rel=1e-12, nan_ok=True)
    assert found.to_dict()["entropy"] == pytest.approx(entropy, rel=1e-12, nan_ok=True)


def test_maps_and_flows_by_their_functions():
    def henon(s):
        return np.array([1 - 1.4 * s[0] ** 2 + s[1], 0.3 * s[0]])

    def push(s, V):
        return np.array([-2.8 * s[0] * V[0] + V[1], 0.3 * V[0]])

    found = lyapunov_spectrum(StepLinearization(henon, push, [0.1, 0.1], 10_000), rng=0)
    assert found.sum == pytest.approx(np.log(0.3), abs=1e-9)
    np.testing.assert_allclose(found.exponents, [0.4192, -1.6232], rtol=0.03)

    # a damped oscillator x'' = -x - 2 c x', exactly integrated: both exponents are -c
    c, dt = 0.1, 0.2
    flow = scipy.linalg.expm(dt * np.array([[0.0, 1.0], [-1.0, -2 * c]]))
    found = lyapunov_spectrum(StepLinearization(lambda s: flow @ s, lambda s, V: flow @ V, [1.0, 0.0], 5000), rng=0)
    np.testing.assert_allclose(found.exponents / dt, -c, atol=2e-3)
    assert found.sum / dt == pytest.approx(-2 * c, rel=1e-9)


def network_by_functions(W, s, T):
    """h' = tanh(W h), the Jacobians not formed."""
    return StepLinearization(lambda h: np.tanh(W @ h), lambda h, V: (1 - np.tanh(W @ h) ** 2)[:, None] * (W @ V), s, T)


@pytest.mark.parametrize(("g", "mean_field"), [(2.0, 0.154724), (3.0, 0.310249)])
def test_large_random_network_has_the_exponent_of_mean_field(g, mean_field):
    # lambda = log(g^2 <sech^4>) / 2 with q = g^2 <tanh^2>; the tolerance is that of one network of this size
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    q = g * g
    for _ in range(500):
        q = g * g * (weights @ np.tanh(np.sqrt(q) * nodes) ** 2)
    assert np.log(g * g * (weights @ np.cosh(np.sqrt(q) * nodes) ** -4)) / 2 == pytest.approx(mean_field, abs=1e-4)
    N, rng = 1024, np.random.default_rng(5)
    lin = network_by_functions(g * rng.standard_normal((N, N)) / np.sqrt(N), rng.standard_normal(N), 500)
    assert lyapunov_spectrum(lin, 1, warmup=100, rng=0).exponents[0] == pytest.approx(mean_field, abs=0.03)


def test_dying_network_has_the_circular_law():
    # the state decays to 0, where J = W: a share min(1, e^(2 s) / g^2) of the exponents lies below s
    g, N, T = 0.8, 1000, 80
    W = g * np.random.default_rng(1).standard_normal((N, N)) / np.sqrt(N)
    values, vectors = np.linalg.eig(W)
    order = np.argsort(-abs(values), kind="stable")[:401]
    values, vectors = values[order], vectors[:, order]
    k = 401 if values[399].imag > 0 else 400
    # real vectors that span the invariant subspaces, so that alignment costs no steps
    frame = np.where(values.imag < 0, vectors.imag, vectors.real)[:, :k]
    found = lyapunov_spectrum(network_by_functions(W, 1e-9 * np.ones(N), T), k, warmup=0, frame=frame, blocks=2)
    np.testing.assert_allclose(found.exponents, np.log(abs(values[:k])), atol=0.01)
    share_below = 1 - (np.arange(k) + 0.5) / N
    assert abs(np.minimum(1, np.exp(2 * found.exponents) / g**2) - share_below).max() <= 0.02


def test_sparse_network_by_functions_equals_the_dense_one():
    from scipy.sparse import random_array

    rng = np.random.default_rng(6)
    W = random_array((300, 300), density=0.05, rng=rng, format="csr", data_sampler=rng.standard_normal)
    W = 2 * W / np.sqrt(0.05 * 300)
    s = rng.standard_normal(300)
    sparse = lyapunov_spectrum(network_by_functions(W, s, 60), 4, rng=0)
    dense = lyapunov_spectrum(network_by_functions(W.toarray(), s, 60), 4, rng=0)
    np.testing.assert_allclose(sparse.exponents, dense.exponents, rtol=1e-9)


def test_autonomous_and_driven_layers():
    # a layer without inputs, and the same one under noise, which quiets chaos
    free = RNN(0, 60, rng=0)
    driven = RNN(1, 60, rng=0)
    rng = np.random.default_rng(7)
    W = 2.5 * rng.standard_normal((60, 60)) / np.sqrt(60)
    for layer in (free, driven):
        layer.params["weight_hh_l0"][:] = W
    driven.params["weight_ih_l0"][:] = 3 * rng.standard_normal((60, 1))
    h0 = rng.standard_normal((1, 1, 60))
    alone = lyapunov_spectrum(free.linearize(np.zeros((1500, 1, 0)), h0), 2, rng=0)
    twin = lyapunov_spectrum(network_by_functions(W, h0[0, 0], 1500), 2, rng=0)
    np.testing.assert_allclose(alone.exponents, twin.exponents, atol=4 * twin.stderr[0])
    pushed = lyapunov_spectrum(driven.linearize(rng.standard_normal((1500, 1, 1)), h0), 2, rng=0)
    assert alone.exponents[0] > 0 > pushed.exponents[0]


def test_a_wrong_frame_is_named():
    lin = JacobianStack(np.random.default_rng(0).standard_normal((30, 3, 3)))
    frame = np.eye(3)
    frame[1, 2] = np.nan
    with pytest.raises(ArgumentError, match=r"frame must be finite, frame\[1, 2\]"):
        lyapunov_spectrum(lin, frame=frame)
    with pytest.raises(DTypeError, match="frame must be made of real numbers"):
        lyapunov_spectrum(lin, frame=np.eye(3) * 1j)
