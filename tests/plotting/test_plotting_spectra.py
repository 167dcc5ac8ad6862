"""What the pictures of spectra, phases and memory show, read back from matplotlib's artists."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import scipy.sparse as sp

from elman.diagnostics.memory.capacity import memory_capacity
from elman.diagnostics.memory.fisher import fisher_memory
from elman.diagnostics.memory.measured import measured_memory
from elman.diagnostics.random_networks.phase_diagram import phase_diagram
from elman.diagnostics.random_networks.theory import mean_field
from elman.diagnostics.spectra.dense import spectrum
from elman.diagnostics.spectra.partial import partial_spectrum
from elman.errors import ArgumentError

matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line(ax, start):
    found = [each for each in ax.lines if str(each.get_label()).startswith(start)]
    assert len(found) == 1, start
    return found[0]


def contours(ax):
    return [c for c in ax.collections if hasattr(c, "levels") and hasattr(c, "labelTexts")]


def inside(ax):
    """Whether every drawn point of lines lies within the axes, and below the legend."""
    ax.figure.canvas.draw()
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    legend = ax.get_legend().get_window_extent().transformed(ax.transData.inverted())
    for each in ax.lines:
        if each.get_transform() == ax.transData and len(each.get_xdata()):
            x, y = np.asarray(each.get_xdata(), float), np.asarray(each.get_ydata(), float)
            good = np.isfinite(y)
            if not ((x[good] >= left) & (x[good] <= right)).all() or not (y[good] >= bottom).all():
                return False
            if (y[good] > min(top, legend.y0) + 1e-9 * abs(top)).any():
                return False
    return True


def small():
    return np.random.default_rng(0).standard_normal((6, 6)) / 2


def test_contours_lie_where_sigma_min_has_their_value():
    W = small()
    p = spectrum(W).pseudospectrum(50)
    ax = p.plot(levels=[0.05, 0.2])
    (drawn,) = contours(ax)
    np.testing.assert_allclose(drawn.levels, np.log10([0.05, 0.2]))
    for level, path in zip((0.05, 0.2), drawn.get_paths(), strict=True):
        for x, y in path.vertices[::9]:
            smallest = np.linalg.svd((x + 1j * y) * np.eye(6) - W, compute_uv=False)[-1]
            assert smallest == pytest.approx(level, rel=0.25)
    assert labels(ax) == [r"$\varepsilon$-pseudospectra", "eigenvalues, H = 6", "unit circle"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("real part", "imaginary part")
    assert inside(ax)


@pytest.mark.parametrize("W", [np.eye(20, k=1) + np.eye(20), np.diag([0.5, 0.7, -0.2]), small(), 1e3 * small()])
def test_default_contours_close_within_the_grid(W):
    p = spectrum(W).pseudospectrum(25)
    (drawn,) = contours(p.plot())
    assert 1 <= len(drawn.levels) <= 8
    assert drawn.levels.min() >= -12
    edge = np.concatenate([p.sigma_min[0], p.sigma_min[-1], p.sigma_min[:, 0], p.sigma_min[:, -1]])
    assert 10 ** drawn.levels.max() <= edge.min() * (1 + 1e-9)


def test_pseudospectra_share_the_axes_of_the_spectrum():
    s = spectrum(small())
    ax = s.pseudospectrum(20).plot(s.plot())
    assert sum(label.startswith("eigenvalues") for label in labels(ax)) == 1
    assert any(label.startswith("field of values") for label in labels(ax))
    assert labels(ax).count("unit circle") == 1
    assert inside(ax)


@pytest.mark.parametrize("levels", [[], [0.0, 1.0], [1.0, 0.1], [[0.1]]])
def test_wrong_levels_are_refused(levels):
    with pytest.raises(ArgumentError, match="levels"):
        spectrum(small()).pseudospectrum(5).plot(levels=levels)


def test_partial_spectra():
    rng = np.random.default_rng(0)
    W = sp.random_array((200, 200), density=0.05, rng=rng, data_sampler=rng.standard_normal).tocsr() / 3
    s = partial_spectrum(W)
    ax = s.plot()
    points = line(ax, f"{len(s.eigenvalues)} of 200 eigenvalues")
    np.testing.assert_array_equal(points.get_xdata(), s.eigenvalues.real)
    circle = line(ax, "norm")
    np.testing.assert_allclose(np.hypot(circle.get_xdata(), circle.get_ydata()), s.norm)
    assert "H = 200, radius" in ax.get_title(loc="left")
    assert inside(ax)


@pytest.mark.parametrize("n", [1, 3, 4, 6])
def test_gates_are_drawn_side_by_side_to_one_scale(n):
    rng = np.random.default_rng(1)
    spectra = spectrum({f"gate {i}": (i + 1) * rng.standard_normal((5, 5)) for i in range(n)})
    figure = spectra.plot()
    drawn = [ax for ax in figure.axes if ax.axison]
    assert len(drawn) == n
    for ax, (gate, s) in zip(drawn, spectra.items(), strict=True):
        assert ax.get_title(loc="left").startswith(f"{gate}: radius {s.radius:.4g}")
        np.testing.assert_array_equal(line(ax, "eigenvalues").get_xdata(), s.eigenvalues.real)
        assert ax.get_xlim() == drawn[0].get_xlim()
        assert ax.get_ylim() == drawn[0].get_ylim()
        assert inside(ax)


@pytest.mark.parametrize(
    ("g", "s2", "name"), [(2.0, 0.5, "tanh"), (0.0, 0.1, "tanh"), (9.0, 0, "relu"), (1, 0, "sigmoid")]
)
def test_mean_field_curve(g, s2, name):
    field = mean_field(g, s2, nonlinearity=name)
    ax = field.plot()
    curve = line(ax, "input variance")
    for x, y in zip(curve.get_xdata()[::20], curve.get_ydata()[::20], strict=True):
        assert y == pytest.approx(mean_field(float(x), s2, nonlinearity=name).rate)
    assert line(ax, "critical gain").get_xdata()[0] == field.critical_gain
    marks = [each for each in ax.lines if str(each.get_label()).startswith("this network")]
    assert [m.get_ydata()[0] for m in marks] == ([field.rate] if g else [])
    assert "nats per step" in ax.get_ylabel()
    assert inside(ax)


@pytest.mark.parametrize(("name", "gains", "words"), [
    ("tanh", np.linspace(0.2, 4, 12), {"order", "chaos"}),
    ("relu", np.linspace(0.2, 3, 12), {"order", "unbounded"}),
    ("tanh", np.linspace(0.1, 0.8, 12), set()),
    ("tanh", np.linspace(0, 2, 5), {"order", "chaos"}),
])  # fmt: skip
def test_phase_diagram(name, gains, words):
    diagram = phase_diagram(gains, np.linspace(0, 1, 9), nonlinearity=name)
    ax = diagram.plot()
    assert {text.get_text() for text in ax.texts if text.get_text().isalpha()} == words
    boundary = ax.lines[-1]
    for gain, s2 in zip(boundary.get_xdata()[::20], boundary.get_ydata()[::20], strict=True):
        assert mean_field(float(gain), float(s2), nonlinearity=name).rate == pytest.approx(0, abs=1e-7)
    mesh = ax.collections[0]
    np.testing.assert_allclose(np.ma.filled(mesh.get_array(), np.nan).ravel()[-1], diagram.rate[-1, -1])
    low, high = mesh.get_clim()
    assert low == -high
    assert ax.get_xlabel().startswith("gain")
    assert "variance" in ax.get_ylabel()
    assert "nats per step" in mesh.colorbar.ax.get_ylabel()
    ax.figure.canvas.draw()


def test_memory_exact_and_measured_on_the_same_axes():
    rng = np.random.default_rng(2)
    W = rng.standard_normal((8, 8))
    W *= 0.8 / abs(np.linalg.eigvals(W)).max()
    v, u, s, states = rng.standard_normal(8), rng.standard_normal(600), np.zeros(8), []
    for x in u:
        s = W @ s + v * x
        states.append(s)
    exact, measured = memory_capacity(W, v), measured_memory(states, u)
    ax = measured.plot(exact.plot())
    np.testing.assert_array_equal(line(ax, "capacity, exact, total 8").get_ydata(), exact.per_lag)
    np.testing.assert_array_equal(line(ax, "measured, total").get_ydata(), measured.per_lag)
    np.testing.assert_array_equal(line(ax, "with bias").get_ydata(), measured.biased)
    assert line(ax, "chance").get_ydata()[0] == measured.threshold
    assert "lag" in ax.get_xlabel()
    assert inside(ax)
    fisher = fisher_memory(W, v)
    ax = fisher.plot()
    np.testing.assert_array_equal(line(ax, "Fisher information").get_ydata(), fisher.per_lag)
    assert ax.get_ylabel() == "Fisher information"
    assert inside(ax)


def test_no_memory_at_all_can_be_drawn():
    ax = memory_capacity(np.zeros((2, 2)), np.zeros(2)).plot()
    ax.figure.canvas.draw()
    assert not any(np.any(line.get_ydata() > 0) for line in ax.lines)


def test_without_matplotlib_the_extra_is_named():
    code = """
import sys
sys.modules["matplotlib"] = None
import numpy as np
from elman.diagnostics.random_networks.theory import mean_field
from elman import memory_capacity
from elman.diagnostics.spectra.dense import spectrum
from elman.errors import MissingExtraError
s = spectrum(np.eye(2) / 2)
for draw in (
    s.pseudospectrum(3).plot, spectrum({"i": np.eye(2)}).plot, mean_field(1.0).plot,
    memory_capacity(np.eye(2) / 2, [1.0, 0.0]).plot,
):
    try:
        draw()
    except MissingExtraError as error:
        assert "elman[plot]" in str(error), error
    else:
        raise AssertionError(draw)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
