import json
import sys

import numpy as np
import pytest
import scipy.linalg
from scipy.stats import ortho_group

from elman.diagnostics.spectra.dense import spectrum
from elman.diagnostics.spectra.summary import CHEAP_SIZE, DECOMPOSED, SEARCHED
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.layers import GRU, Network, Readout

# the package has the function under the module's name
spectrum_module = sys.modules["elman.diagnostics.spectra.dense"]

# The two-by-two textbook examples of transient growth (Trefethen and Embree, Spectra and Pseudospectra, 2005).
JORDAN = [[0.9, 10.0], [0.0, 0.9]]
SPLIT = [[0.9, 10.0], [0.0, 0.8]]


def rotated(W, rng):
    """The matrix in another orthonormal basis, which changes none of the quantities."""
    Q = scipy.linalg.qr(rng.standard_normal(np.shape(W)))[0]
    return Q @ W @ Q.T


def normal_matrix(rng, radius):
    """A real normal matrix with complex eigenvalues, of the given radius."""
    blocks = [r * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for r, a in ((radius, 0.7), (0.5, 2.0))]
    return rotated(scipy.linalg.block_diag(*blocks, -0.3), rng)


def peak_by_powers(W, steps):
    return max((np.linalg.norm(np.linalg.matrix_power(W, k), 2), -k) for k in range(steps))


def test_jordan_block_has_the_textbook_numbers():
    s = spectrum(JORDAN)
    assert s.radius == pytest.approx(0.9, abs=1e-12)
    assert s.norm == pytest.approx(10.08035, abs=5e-6)
    assert s.norm == pytest.approx(5 + np.sqrt(25 + 0.81), rel=1e-13)
    assert s.numerical_radius == pytest.approx(5.9, rel=1e-9)
    assert s.departure_from_normality == pytest.approx(10, rel=1e-13)
    assert s.kreiss_constant == pytest.approx(25.0100, abs=5e-5)
    assert s.transient_peak.value == pytest.approx(38.745923, abs=5e-7)
    assert s.transient_peak.step == 9


def test_two_eigenvalues_far_from_normal():
    s = spectrum(SPLIT)
    assert s.radius == pytest.approx(0.9, rel=1e-13)
    assert s.norm == pytest.approx(10.0720, abs=5e-5)
    assert s.transient_peak.value == pytest.approx(26.936, abs=5e-4)
    assert s.transient_peak.step == 6


def test_nilpotent_shift():
    S = np.diag(np.ones(9), 1)
    s = spectrum(S)
    assert s.radius == 0
    assert s.norm == pytest.approx(1, rel=1e-14)
    # the numerical range of the n x n shift is the disc of radius cos(pi / (n + 1)) (Haagerup and de la Harpe 1992)
    assert s.numerical_radius == pytest.approx(np.cos(np.pi / 11), rel=1e-9)
    assert s.numerical_radius == pytest.approx(0.9594929736, abs=5e-10)
    assert s.departure_from_normality == pytest.approx(3, rel=1e-14)
    assert s.transient_peak == (1.0, 0)
    assert s.kreiss_constant == 1


def test_scaled_shift_has_a_transient_of_known_size():
    # |(2 S)^k| = 2^k up to k = 9, then 0
    s = spectrum(2 * np.diag(np.ones(9), -1))
    assert s.transient_peak.value == pytest.approx(2.0**9, rel=1e-13)
    assert s.transient_peak.step == 9
    assert s.kreiss_constant <= 2.0**9 <= np.e * 10 * s.kreiss_constant


def test_zero_matrix_has_defined_answers():
    s = spectrum(np.zeros((3, 3)))
    assert (s.radius, s.norm, s.numerical_radius, s.departure_from_normality, s.kreiss_constant) == (0, 0, 0, 0, 1)
    assert s.transient_peak == (1.0, 0)
    assert "-inf nats/step" in str(s)


def test_one_by_one():
    s = spectrum([[-0.5]])
    assert s.radius == s.norm == 0.5
    assert s.numerical_radius == pytest.approx(0.5, rel=1e-12)
    assert s.kreiss_constant == 1
    assert s.transient_peak == (1.0, 0)


@pytest.mark.parametrize("radius", [0.6, 0.99, 1.0])
def test_normal_matrices_have_no_transient(radius):
    s = spectrum(normal_matrix(np.random.default_rng(0), radius))
    assert s.radius == pytest.approx(radius, rel=1e-12)
    assert s.norm == pytest.approx(radius, rel=1e-12)
    assert s.numerical_radius == pytest.approx(radius, rel=1e-9)
    assert s.departure_from_normality < 1e-13
    assert s.kreiss_constant == 1
    assert s.transient_peak == (1.0, 0)


def test_departure_does_not_cancel():
    # the textbook difference of squares loses everything below 1e-8
    W = np.diag([1.0, 2.0, 3.0])
    W[0, 2] = 1e-11
    assert spectrum(W).departure_from_normality == pytest.approx(1e-11, rel=1e-10, abs=0)
    assert spectrum(rotated(W, np.random.default_rng(1))).departure_from_normality == pytest.approx(
        1e-11, abs=1e-13 * 50
    )


@pytest.mark.parametrize("H", [2, 3, 8, 20])
def test_numerical_radius_against_a_dense_search(H):
    W = np.random.default_rng(H).standard_normal((H, H))
    # rotating the whole matrix by a phase on a fine grid: independent of real symmetry and of the refinement
    angles = np.linspace(-np.pi, np.pi, 4001)
    halves = np.exp(1j * angles)[:, None, None] * W / 2
    dense = np.linalg.eigvalsh(halves + halves.conj().transpose(0, 2, 1))[:, -1].max()
    found = spectrum(W).numerical_radius
    assert dense * (1 - 1e-12) <= found <= dense * (1 + 2e-6)
    assert spectrum(W).radius <= found <= spectrum(W).norm


def test_numerical_radius_where_the_peak_is_no_grid_point():
    # an ellipse with foci at the eigenvalues a +- ib; for [[a, b], [-b, a]] + nilpotent part the radius is closed form
    c = 0.37
    W = np.array([[0.0, 1.0 + c], [-1.0 + c, 0.0]])
    # symmetric part has eigenvalues +-c, skew part +-1: the range is an ellipse with half axes c and 1
    assert spectrum(W).numerical_radius == pytest.approx(1.0, rel=1e-9)
    shifted = W + 0.8 * np.eye(2)
    t = np.linspace(0, np.pi, 2_000_001)
    expected = np.sqrt((0.8 + c * np.cos(t)) ** 2 + np.sin(t) ** 2).max()
    assert spectrum(shifted).numerical_radius == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("c", [0.5, 3.0, 100.0])
@pytest.mark.parametrize("a", [0.3, 0.9, 0.999])
def test_kreiss_constant_of_jordan_blocks_against_a_line_search(a, c):
    # [[a, c], [0, a]]: by symmetry the supremum lies on the positive real axis, and sigma_min of [[d, -c], [0, d]],
    # d = x - a, is d^2 / sigma_max with sigma_max = (c + sqrt(c^2 + 4 d^2)) / 2
    x = 1 + np.logspace(-6, 4, 400_001)
    d = x - a
    expected = max(1.0, ((x - 1) * (c + np.sqrt(c * c + 4 * d * d)) / (2 * d * d)).max())
    assert spectrum([[a, c], [0, a]]).kreiss_constant == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("H", [3, 6, 12])
def test_kreiss_constant_against_a_grid(H):
    rng = np.random.default_rng(H)
    W = rng.standard_normal((H, H)) + np.triu(rng.standard_normal((H, H)), 1) * 2
    W *= 0.93 / abs(np.linalg.eigvals(W)).max()
    x, t = np.meshgrid(np.logspace(-3, 2, 120), np.linspace(0, np.pi, 181))
    z = (1 + x) * np.exp(1j * t)
    smallest = np.linalg.svd(z[..., None, None] * np.eye(H) - W, compute_uv=False)[..., -1]
    grid = (x / smallest).max()
    assert grid * (1 - 1e-9) <= spectrum(W).kreiss_constant <= grid * 1.01


@pytest.mark.parametrize("seed", range(6))
def test_kreiss_theorem_and_power_peak(seed):
    # Kreiss matrix theorem with Spijker's sharp constant: K <= max |W^k| <= e n K
    rng = np.random.default_rng(seed)
    H = int(rng.integers(2, 15))
    W = rng.standard_normal((H, H)) + 3 * np.triu(rng.standard_normal((H, H)), 1)
    W *= rng.uniform(0.5, 0.97) / abs(np.linalg.eigvals(W)).max()
    s = spectrum(W)
    value, minus_step = peak_by_powers(W, 400)
    assert s.transient_peak.value == pytest.approx(value, rel=1e-12)
    assert s.transient_peak.step == -minus_step
    assert s.kreiss_constant <= value * (1 + 1e-9)
    assert value <= np.e * H * s.kreiss_constant


def test_on_the_unit_circle():
    simple = spectrum([[1.0, 10.0], [0.0, 0.5]])
    # powers tend to the spectral projector [[1, 20], [0, 0]] from below
    assert simple.transient_peak.value == pytest.approx(np.sqrt(401), rel=1e-9)
    assert simple.kreiss_constant == pytest.approx(np.sqrt(401), rel=1e-5)
    for defective in ([[1.0, 1.0], [0.0, 1.0]], [[-1.0, 0.01], [0.0, -1.0]]):
        assert spectrum(defective).kreiss_constant == np.inf
        assert spectrum(defective).transient_peak == (np.inf, None)


def test_radius_above_one_is_unbounded():
    s = spectrum(np.diag([1.01, 0.2]))
    assert s.kreiss_constant == np.inf
    assert s.transient_peak == (np.inf, None)
    assert "unbounded" in str(s)


def test_circular_law_leaves_a_factor_of_two():
    # Ginibre/Girko: entries N(0, g^2 / N) have radius g and largest singular value 2 g, so the norm condition and the
    # real transition of an untrained network differ by a factor of 2 in g
    for seed, g in enumerate((0.5, 1.0, 2.0)):
        s = spectrum(g * np.random.default_rng(seed).standard_normal((400, 400)) / 20)
        assert s.radius == pytest.approx(g, rel=0.1)
        assert s.norm == pytest.approx(2 * g, rel=0.05)


def test_orders_and_sums():
    W = np.random.default_rng(3).standard_normal((9, 9))
    s = spectrum(W)
    assert (np.diff(abs(s.eigenvalues)) <= 1e-14).all()
    assert (np.diff(s.singular_values) <= 0).all()
    assert s.eigenvalues.sum() == pytest.approx(np.trace(W))
    assert (s.singular_values**2).sum() == pytest.approx((W**2).sum())
    assert s.departure_from_normality**2 == pytest.approx((W**2).sum() - (abs(s.eigenvalues) ** 2).sum())


def test_layout_does_not_matter_and_the_argument_stays():
    W = np.random.default_rng(4).standard_normal((6, 6))
    W.setflags(write=False)
    one, other = spectrum(W), spectrum(np.asfortranarray(W).astype(">f8"))
    np.testing.assert_array_equal(one.eigenvalues, other.eigenvalues)
    assert spectrum([[1, 2], [3, 4]]).norm == spectrum([[1.0, 2.0], [3.0, 4.0]]).norm
    assert not np.shares_memory(one.W, W)


def test_summary_and_dict():
    s = spectrum(JORDAN)
    assert "transient_peak" in str(s).splitlines()[-1]
    assert s.kreiss_constant < s.transient_peak.value
    text = str(s)
    for part in ("radius", "0.9 ", "-0.1054 nats/step", "proves nothing", "max|phi'| < 0.0992", "25.01", "k = 9 steps"):
        assert part in text
    assert repr(s) == "Spectrum(H=2, radius=0.9, norm=10.0804)"
    plain = json.loads(json.dumps(s.to_dict()))
    assert plain["transient_peak"]["step"] == 9
    assert plain["eigenvalues"][0] == [pytest.approx(0.9), pytest.approx(0)]


@pytest.mark.parametrize(("size", "slow"), [(CHEAP_SIZE, SEARCHED), (CHEAP_SIZE + 1, (*DECOMPOSED, *SEARCHED))])
def test_printing_computes_nothing_that_takes_long(size, slow, monkeypatch):
    """It says how to get the rest, and shows what has been asked for."""
    asked = spectrum(np.diag(np.linspace(-0.5, 0.5, size)))

    def refuse(*args, **options):
        raise AssertionError("computed for printing")

    numbers = {name: getattr(asked, name) for name in slow}
    for name in ("numerical_radius", "kreiss_constant", "transient_peak"):
        monkeypatch.setattr(spectrum_module, name, refuse)
    if size > CHEAP_SIZE:
        monkeypatch.setattr(spectrum_module.scipy.linalg, "schur", refuse)
        monkeypatch.setattr(spectrum_module.scipy.linalg, "eig", refuse)
    text = str(spectrum(asked.W))
    assert text.splitlines()[-1] == "  computed when asked for, and shown from then on: " + ", ".join(slow)
    assert ("departure" in text.rsplit("\n", 1)[0]) == (size <= CHEAP_SIZE)
    text = str(asked)
    assert "computed when" not in text
    for words in ("numerical radius", "departure", "eigenvectors", "Kreiss constant", "transient peak"):
        assert f"\n  {words} " in text
    assert f"{numbers['numerical_radius']:.6g}" in text


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 0), (2, 2, 2), ()])
def test_wrong_shapes_are_refused(shape):
    with pytest.raises(ShapeError, match="square matrix"):
        spectrum(np.ones(shape))


def test_wrong_entries_are_refused():
    with pytest.raises(ArgumentError, match=r"W\[1, 0\] is nan"):
        spectrum([[1.0, 2.0], [np.nan, 1.0]])
    with pytest.raises(DTypeError, match="complex"):
        spectrum(np.eye(2) * 1j)


def test_masked_arrays_are_refused_with_a_cure():
    with pytest.raises(DTypeError, match=r"W\.filled"):
        spectrum(np.ma.masked_equal(np.eye(2), 0))


def test_rates_print_without_rounding_dust():
    rotation = [[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]]
    text = str(spectrum(np.multiply(rotation, 1 - 1e-16)))
    assert "radius            1            +0.0000 nats/step" in text
    assert text.count("+0.0000 nats/step") == 3
    assert "-inf nats/step" in str(spectrum(np.zeros((2, 2))))


@pytest.mark.parametrize("exponent", [-1000, -600, -470, 470, 600, 1000])
def test_huge_and_tiny_matrices_have_scaled_numbers(exponent):
    W = np.random.default_rng(0).standard_normal((40, 40)) / np.sqrt(40)
    factor = 2.0**exponent
    plain, other = spectrum(W), spectrum(W * factor)
    np.testing.assert_allclose(np.abs(other.eigenvalues) / factor, np.abs(plain.eigenvalues), rtol=1e-12)
    np.testing.assert_allclose(other.singular_values / factor, plain.singular_values, rtol=1e-12)
    for name in ("radius", "norm", "numerical_radius", "departure_from_normality"):
        assert getattr(other, name) / factor == pytest.approx(getattr(plain, name), rel=1e-9)
    assert other.eigenvector_condition == pytest.approx(plain.eigenvector_condition, rel=1e-9)
    assert "radius" in str(other)


def test_a_huge_nilpotent_matrix():
    huge = spectrum([[0.0, 1e200], [0.0, 0.0]])
    assert huge.departure_from_normality == pytest.approx(1e200)
    assert huge.numerical_radius == pytest.approx(5e199)


def test_a_network_is_its_layer():
    net = Network(GRU(2, 5, rng=0), Readout(5, 1, rng=0))
    assert str(spectrum(net)) == str(spectrum(net.layer))
    assert set(spectrum(net)) == set(net.layer.recurrent_matrices)


@pytest.mark.parametrize("wrong", [None, "abc", object()])
def test_what_is_no_matrix_is_named(wrong):
    with pytest.raises(
        DTypeError, match=f"W must be an array of real numbers, got .*{type(wrong).__name__}|W must be .* got None"
    ):
        spectrum(wrong)


@pytest.mark.parametrize("seed", range(8))
def test_rounding_does_not_move_the_peak_of_a_rotated_plateau(seed):
    """A shift of weights 2, 1, 1, ...: |W^k| = 2 from the first power to the last that is not 0."""
    W = np.diag([2.0] + [1.0] * 10, -1)
    Q = ortho_group.rvs(12, random_state=seed)
    peak = spectrum(Q @ W @ Q.T * (1 - 1e-15 * (seed % 2))).transient_peak
    assert peak.step == 1
    assert peak.value == pytest.approx(2.0, rel=1e-13)
