"""On the unit circle: what rounding decides is called marginal, in every basis, and in no basis by a side."""

import json
import math
import re

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

import elman
from elman.diagnostics.equilibria.search import fixed_points
from elman.diagnostics.lyapunov.exponents import lyapunov_spectrum
from elman.diagnostics.memory.capacity import memory_capacity
from elman.diagnostics.memory.fisher import fisher_memory
from elman.diagnostics.random_networks.theory import mean_field
from elman.diagnostics.spectra.dense import spectrum
from elman.diagnostics.spectra.marginal import marginal_modes, time_constants
from elman.diagnostics.spectra.partial import partial_spectrum
from elman.diagnostics.spectra.resolvent import numerical_radius
from elman.errors import ArgumentError
from elman.layers import RNN

SEEDS = range(12)


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def jordan(size, value=1.0):
    return value * np.eye(size) + np.eye(size, k=1)


def orthogonal(H, seed):
    return scipy.linalg.qr(np.random.default_rng(seed).standard_normal((H, H)))[0]


def turned(W, seed):
    Q = orthogonal(len(W), seed)
    return Q @ W @ Q.T


def sheared(W, seed):
    S = np.random.default_rng(seed).standard_normal(np.shape(W))
    return S @ W @ np.linalg.inv(S)


def block(*parts):
    return scipy.linalg.block_diag(*parts)


BASES = [turned, sheared]
BOUNDED = {
    "line attractor": (np.diag([1, 0.9, 0.5, -0.3, 0.2, 0.1]), 1),
    "plane attractor": (np.diag([1, 1, 0.5, -0.3, 0.2]), 2),
    "oscillation": (block(rotation(1.0), np.diag([0.5, 0.2])), 2),
    "two equal oscillations": (block(rotation(1.0), rotation(1.0), 0.5), 4),
    "nearly equal oscillations": (block(rotation(1.0), rotation(1.0 + 1e-10), 0.5), 4),
    "change of sign": (np.diag([1.0, -1.0, 0.4]), 2),
    "permutation": (np.eye(6)[[1, 2, 0, 4, 3, 5]], 6),
}
UNBOUNDED = {
    "block at 1": (block(jordan(2), 0.5), 2),
    "block of three": (block(jordan(3), 0.5), 3),
    "block at -1": (block(jordan(2, -1.0), 0.5), 2),
    "oscillating block": (np.block([[rotation(1.0), np.eye(2)], [np.zeros((2, 2)), rotation(1.0)]]), 4),
    "weak coupling": (block([[1.0, 1e-4], [0.0, 1.0]], 0.5), 2),
    "block beside an eigenvector": (block(jordan(2), 1.0, 0.5), 3),
}


# ------------------------------------------------------------------------------------------------ spectra of matrices


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("name", BOUNDED)
def test_modes_on_the_circle_are_marginal_in_every_basis(name, basis):
    W, count = BOUNDED[name]
    for seed in SEEDS:
        s = spectrum(basis(W, seed))
        assert s.stability == "marginal"
        assert s.marginal.sum() == count
        assert s._power_bounded
        assert np.isposinf(s.time_constants[:count]).all()
        assert np.isfinite(s.time_constants[count:]).all()
    assert math.isfinite(s.kreiss_constant)
    assert math.isfinite(s.transient_peak.value)
    assert s.kreiss_constant <= s.transient_peak.value * (1 + 1e-6)
    text = str(s)
    assert "marginal: it does not decay, to rounding" in text
    assert f"{count} marginal (modulus 1 within rounding), 0 grow" in text
    for wrong in ("nan", "unbounded", "none: it grows"):
        assert wrong not in text


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("name", UNBOUNDED)
def test_defective_modes_on_the_circle_have_unbounded_powers_in_every_basis(name, basis):
    W, count = UNBOUNDED[name]
    for seed in SEEDS:
        s = spectrum(basis(W, seed))
        assert (s.stability, s.marginal.sum()) == ("marginal", count)
        assert s.kreiss_constant == np.inf
        assert s.transient_peak == (np.inf, None)
    assert spectrum(W).kreiss_constant == np.inf


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("distance", [1e-6, 1e-9])
def test_what_is_off_the_circle_is_decided(basis, distance):
    for seed in SEEDS:
        for factor, kind in ((1 - distance, "decaying"), (1 + distance, "growing")):
            W = basis(np.diag([factor, 0.5, -0.2]), seed)
            s = spectrum(W)
            assert s.stability == kind
            assert not s.marginal.any()
            assert s._power_bounded == (kind == "decaying")
        assert "none: it grows, by e in" in str(s)
        assert "nan" not in str(s)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("H", [1, 5, 64, 128])
def test_our_own_initial_weights(H, dtype):
    s = spectrum(elman.RNN(2, H, dtype=dtype, rng=0).params["weight_hh_l0"])
    assert s.stability == "marginal"
    assert s.marginal.all()
    assert s.kreiss_constant == 1
    assert s.transient_peak == (1.0, 0)
    text = str(s)
    for part in (
        "1 to rounding: powers never exceed 2",
        "; 0 to rounding: radius = norm",
        "marginal: it does not decay",
    ):
        assert part in text
    for wrong in ("nan", "grows,", "short-term growth", "unbounded"):
        assert wrong not in text
    plain = json.loads(json.dumps(s.to_dict()))
    assert plain["stability"] == "marginal"
    assert plain["marginal"] == [True] * H
    assert plain["rounding"] == s.rounding
    assert "marginal" in str(spectrum(elman.RNN(2, H, dtype=dtype, rng=0)))


def with_numerical_radius(W):
    """The summary of a matrix of which the numerical radius has been asked for."""
    s = spectrum(W)
    assert s.radius <= s.numerical_radius * (1 + 1e-9)
    return str(s)


def test_short_term_growth_is_said_beyond_rounding_only():
    for seed in SEEDS:
        assert "short-term" not in with_numerical_radius(orthogonal(8, seed))
        assert "short-term" not in with_numerical_radius(turned(np.diag([1.0, -1.0, 0.3]), seed))
    # the numerical range of [[.5, 2 c], [0, .5]] is a disc of radius c about .5
    assert "short-term growth is possible" in with_numerical_radius([[0.5, 1.0 + 1e-6], [0.0, 0.5]])
    assert "short-term" not in with_numerical_radius([[0.5, 1.0 - 1e-6], [0.0, 0.5]])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_peak_of_a_cycle_is_at_its_first_step(seed):
    # powers alternate between W of norm 2 and the identity, in every basis
    W = turned(np.array([[0.0, 2.0], [0.5, 0.0]]), seed)
    s = spectrum(W)
    assert s.transient_peak.step == 1
    assert s.transient_peak.value == pytest.approx(2, rel=1e-12)
    # eigenvalues +-1 of condition 1.25: the resolvent near one of them is as large as its condition over the distance
    assert s.kreiss_constant == pytest.approx(1.25, rel=1e-6)
    # a cycle of four with its largest norm at the second step: |W| = 2, |W^2| = 4
    four = np.diag([2.0, 2.0, 0.5, 0.5]) @ np.roll(np.eye(4), 1, axis=0)
    found = spectrum(turned(four, seed)).transient_peak
    assert (found.step, found.value) == (2, pytest.approx(4, rel=1e-12))


def test_kreiss_constant_of_a_projection():
    # [[1, c], [0, 1/2]]: powers tend to the spectral projection [[1, 2 c], [0, 0]]
    for seed in range(3):
        s = spectrum(turned(np.array([[1.0, 10.0], [0.0, 0.5]]), seed))
        assert s.kreiss_constant == pytest.approx(np.sqrt(401), rel=1e-5)
        assert s.transient_peak.value == pytest.approx(np.sqrt(401), rel=1e-9)


def test_tables_known_before_stay():
    for seed in SEEDS:
        s = spectrum(turned(np.array([[0.9, 10.0], [0.0, 0.9]]), seed))
        assert s.stability == "decaying"
        assert s.kreiss_constant == pytest.approx(25.0100, abs=5e-5)
        assert s.transient_peak.value == pytest.approx(38.745923, abs=5e-7)
        assert s.transient_peak.step == 9


def test_a_marginal_mode_is_one_within_rounding_of_the_circle():
    # the definition, by a full singular value decomposition, for blocks whose rounding is a root of eps
    for size, distance in ((2, 1e-9), (3, 1e-6), (3, 1e-3), (4, 1e-4)):
        W = turned(jordan(size, 1 - distance), size)
        s = spectrum(W)
        for z, marginal in zip(s.eigenvalues, s.marginal, strict=True):
            smallest = np.linalg.svd(z / abs(z) * np.eye(size) - W, compute_uv=False)[-1]
            assert marginal == (smallest <= s.rounding)
    assert marginal_modes(np.zeros((2, 2)), np.zeros(2), 1e-15).tolist() == [False, False]


def test_time_constants_of_each_kind():
    values = np.array([1.5, 1 + 1e-16, 1.0, 1 - 1e-16, np.exp(-0.1), 0.0])
    found = time_constants(values, np.array([False, True, True, True, False, False]))
    np.testing.assert_allclose(found, [np.nan, np.inf, np.inf, np.inf, 10, 0], rtol=1e-12)


def test_partial_spectra_have_marginal_modes():
    rng = np.random.default_rng(0)
    angles = rng.uniform(0.1, 3, 100)
    radii = np.concatenate([[1.0, 1.0], rng.uniform(0, 0.8, 98)])
    s = partial_spectrum(
        sp.block_diag([sp.csr_array(r * rotation(a)) for r, a in zip(radii, angles, strict=True)], format="csr")
    )
    assert s.stability == "marginal"
    assert s.marginal[:4].all()
    assert not s.marginal[4:].any()
    assert np.isposinf(s.time_constants[:4]).all()
    assert "4 marginal (modulus 1 within rounding), 0 grow" in str(s)
    assert s.to_dict()["stability"] == "marginal"
    for radius, kind in ((1 - 1e-6, "decaying"), (1 + 1e-6, "growing")):
        radii[:2] = radius
        blocks = [sp.csr_array(r * rotation(a)) for r, a in zip(radii, angles, strict=True)]
        assert partial_spectrum(sp.block_diag(blocks, format="csr")).stability == kind
    exact = partial_spectrum(sp.diags_array(np.linspace(-0.5, 1.0, 50)).tocsr())
    assert (exact.stability, exact.marginal.sum()) == ("marginal", 1)


# ------------------------------------------------------------------------------------------------------- fixed points


def linear(W):
    layer = RNN(0, len(W), nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][:] = W
    layer.params["bias_hh_l0"][:] = 0
    return layer


@pytest.mark.parametrize("basis", BASES)
def test_points_of_a_line_attractor_are_marginal_in_every_basis(basis):
    for seed in SEEDS:
        found = fixed_points(linear(basis(np.diag([1, 0.7, 0.3, -0.2]), seed)), None, 20, rng=seed)
        assert set(found.kinds) == {"marginal"}
        assert found.marginal.all()
        assert not (found.stable | found.saddle).any()
        assert (found.n_unstable == 0).all()
        assert (found.n_marginal == 1).all()
    assert "of them stable and" in str(found)
    assert "marginal: an eigenvalue of modulus 1" in str(found)
    assert "marginal" in repr(found)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["kinds"] == found.kinds
    assert plain["n_marginal"] == found.n_marginal.tolist()


@pytest.mark.parametrize("basis", BASES)
def test_points_off_the_circle_are_decided(basis):
    for seed in SEEDS:
        for value, kind in ((1 - 1e-6, "stable"), (1 + 1e-6, "saddle"), (-1 - 1e-6, "saddle"), (-1.0, "marginal")):
            found = fixed_points(linear(basis(np.diag([value, 0.5, -0.2]), seed)), None, np.zeros((1, 3)))
            assert found.kinds == [kind]


def test_a_saddle_with_a_marginal_mode_is_a_saddle():
    found = fixed_points(linear(turned(np.diag([1.5, 1.0, 0.2]), 0)), None, np.zeros((1, 3)))
    assert (found.kinds, found.n_unstable.tolist(), found.n_marginal.tolist()) == (["saddle"], [1], [1])


def test_bifurcations_of_one_unit():
    def unit(w):
        layer = RNN(0, 1, rng=0)
        layer.params["weight_hh_l0"][:], layer.params["bias_hh_l0"][:] = w, 0.0
        return layer

    starts = np.linspace(-2, 2, 9)[:, None]
    # h = tanh h: the point is known to the cube root of tol, its slope 1 - h^2 to the square of that
    assert fixed_points(unit(1.0), None, starts).kinds == ["marginal"]
    assert fixed_points(unit(-1.0), None, starts).kinds == ["marginal"]
    apart = fixed_points(unit(1 + 5e-8), None, starts)
    order = np.argsort(apart.points[:, 0])
    assert [apart.kinds[i] for i in order] == ["stable", "saddle", "stable"]
    assert fixed_points(unit(1 - 1e-6), None, starts).kinds == ["stable"]


def test_a_slow_point_has_a_marginal_mode():
    # the ghost of a fold: a minimum of q has (J - 1)(F - h) = 0
    h = -np.sqrt(0.5)
    layer = RNN(0, 1, rng=0)
    layer.params["weight_hh_l0"][:], layer.params["bias_hh_l0"][:] = 2.0, np.arctanh(h) - 2 * h + 1e-3
    found = fixed_points(layer, None, np.linspace(-1.5, 0.2, 30)[:, None])
    slow = np.array(found.kinds) == "slow"
    assert found.n_marginal[slow].tolist() == [1]
    assert found.n_unstable[slow].tolist() == [0]
    assert [kind for kind in found.kinds if kind != "slow"] == ["stable"]


# ----------------------------------------------------------------------------------------------------- everything else


def test_memory_of_a_marginal_network_is_refused_in_every_basis():
    for seed in SEEDS:
        W = turned(np.diag([1.0, 0.5, -0.3]), seed)
        for function in (memory_capacity, fisher_memory):
            with pytest.raises(ArgumentError, match="spectral radius below 1, got 1 to rounding"):
                function(W, np.ones(3))


def test_dimension_and_entropy_of_a_rotation_do_not_hang_on_rounding():
    # no exponent: volumes of any dimension stay as they are
    for seed in SEEDS:
        lin = elman.RNN(1, 6, nonlinearity="identity", rng=seed).linearize(np.zeros((300, 1, 1)))
        found = lyapunov_spectrum(lin, rng=seed)
        np.testing.assert_allclose(found.exponents, 0, atol=found.rounding)
        assert found.kaplan_yorke_dimension == 6
        assert found.entropy == 0
        assert found.to_dict()["rounding"] == found.rounding < 1e-12


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_bound_of_orthogonal_weights_proves_nothing(dtype):
    for seed in range(6):
        layer = elman.RNN(2, 16, rng=seed, dtype=dtype)
        x = np.random.default_rng(seed).standard_normal((20, 8, 2)).astype(dtype)
        diagnosis = elman.diagnose(layer, x, rng=0)
        assert diagnosis.bound == 0
        assert "not below 0, so proves nothing" in str(diagnosis)
        layer.params["weight_hh_l0"][:] *= 0.999
        assert elman.diagnose(layer, x, rng=0).bound == pytest.approx(math.log(0.999), rel=1e-3)


@pytest.mark.parametrize("nonlinearity", ["relu", "identity"])
def test_the_critical_gain_itself_is_critical(nonlinearity):
    critical = mean_field(1.0, nonlinearity=nonlinearity).critical_gain
    for gain in (critical, np.nextafter(critical, 0), np.nextafter(critical, 9)):
        at = mean_field(gain, nonlinearity=nonlinearity)
        assert at.phase == "critical"
        assert math.isnan(at.q)
        assert mean_field(gain, 0.1, nonlinearity=nonlinearity).q == math.inf
    assert mean_field(critical * (1 - 1e-6), nonlinearity=nonlinearity).phase == "ordered"
    assert mean_field(critical * (1 + 1e-6), nonlinearity=nonlinearity).phase == "unbounded"


def test_marginal_modes_and_points_have_their_own_mark():
    import matplotlib.pyplot as plt

    def labels(ax):
        return ax.get_legend_handles_labels()[1]

    name = "marginal: modulus 1 within rounding"
    s = spectrum(turned(np.diag([1.0, -1.0, 0.3]), 0))
    ax = s.plot()
    assert f"2 {name}" in labels(ax)
    marked = next(line for line in ax.lines if str(line.get_label()).endswith(name))
    np.testing.assert_allclose(np.sort(marked.get_xdata()), [-1, 1], atol=1e-12)
    assert not any(name in label for label in labels(spectrum(np.diag([0.5, 0.3])).plot()))
    partial = partial_spectrum(sp.diags_array(np.linspace(-0.5, 1.0, 50)).tocsr())
    assert f"1 {name}" in labels(partial.plot())
    points = fixed_points(linear(np.diag([1.0, 0.3])), None, 5, rng=0)
    for ax in points.plot():
        assert "marginal, 5 points" in labels(ax)
        assert not any(label.startswith(("stable", "saddle")) for label in labels(ax))
    plt.close("all")


def test_awkward_spectra_are_stated_without_a_warning():
    """pytest turns warnings, of a division by zero for instance, into errors."""
    for W in (*(W for W, _ in BOUNDED.values()), *(W for W, _ in UNBOUNDED.values()), np.zeros((2, 2)), [[1.0]]):
        found = spectrum(W)
        assert f"radius            {found.radius:.6g} " in str(found)
        counted = re.search(r"(\d+) modes decay, (\d+) marginal .*, (\d+) grow", str(found)).groups()
        assert sum(map(int, counted)) == len(W)


@pytest.mark.parametrize("n", [2, 5, 10])
@pytest.mark.parametrize("scale", [1.0, 0.7])
def test_multiples_of_the_identity_to_rounding_have_a_field_of_values(n, scale):
    """LAPACK's drivers for a single eigenvalue give up on some of them."""
    plane = pytest.importorskip("elman.plotting.spectra")
    for seed in range(60):
        Q = scipy.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]
        W = scale * Q @ Q.T
        assert numerical_radius(W) == pytest.approx(scale, rel=1e-12)
        if seed < 10:
            np.testing.assert_allclose(plane.field_of_values(W), scale, rtol=1e-12)
