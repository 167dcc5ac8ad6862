"""Pictures of exponents, singular values and fixed points, read back from matplotlib's artists."""

import matplotlib
import numpy as np
import pytest
from sequences import tanh_network as sequences
from systems import repeated, tanh_network

from elman.diagnostics.equilibria.search import fixed_points
from elman.diagnostics.gradient.flow import gradient_flow
from elman.diagnostics.lyapunov.exponents import lyapunov_spectrum
from elman.errors import ArgumentError, ShapeError
from elman.layers import GRU, RNN
from elman.linearization import JacobianStack
from elman.plotting.equilibria import plot_fixed_points, plot_point_eigenvalues, plot_points
from elman.plotting.lyapunov import plot_finite_time

matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line(ax, start):
    """The one line whose label starts so."""
    (found,) = (each for each in ax.get_lines() if each.get_label().startswith(start))
    return found


@pytest.fixture(name="points", scope="module")
def _points():
    """Two attractors and a saddle."""
    layer = RNN(0, 2, rng=0)
    layer.params["weight_hh_l0"][:] = [[2.0, 0.0], [0.0, 0.5]]
    return fixed_points(layer, None, np.random.default_rng(0).uniform(-2, 2, (60, 2)))


def test_eigenvalues_of_points(points):
    ax = plot_point_eigenvalues(points)
    assert legend(ax) == ["unit circle", "stable, 2 points", "saddle, 1 points"]
    saddle = line(ax, "saddle")
    np.testing.assert_allclose(np.sort(saddle.get_xdata()), [0.5, 2.0], atol=1e-9)
    np.testing.assert_allclose(saddle.get_ydata(), 0, atol=1e-9)
    left, right = ax.get_xlim()
    assert left < -1
    assert right > 2
    assert "factor per step" in ax.get_xlabel()
    assert ax.get_aspect() == 1.0


def test_points_on_principal_components(points):
    ax = plot_points(points)
    # all lie on the first axis of the state; the two attractors at +-.9575 and the saddle between
    assert "100% of the variance" in ax.get_xlabel()
    np.testing.assert_allclose(np.sort(line(ax, "stable").get_xdata()), [-0.9575040241, 0.9575040241], atol=1e-8)
    np.testing.assert_allclose(line(ax, "saddle").get_xdata(), [0], atol=1e-8)
    assert "from 60 starts" in ax.get_title(loc="left")


def test_trajectories_set_the_components(points):
    rng = np.random.default_rng(1)
    paths = np.stack([0.01 * rng.standard_normal((30, 4)), rng.standard_normal((30, 4))], axis=2)
    ax = plot_points(points, trajectories=paths)
    # the second unit varies most, so the attractors stand above each other
    assert abs(line(ax, "stable").get_xdata() - paths.mean(axis=(0, 1)) @ [0, 0]).max() < 0.2
    drawn = [each for each in ax.get_lines() if len(each.get_xdata()) == 30]
    assert len(drawn) == 4
    assert legend(ax).count("trajectories") == 1
    with pytest.raises(ShapeError, match=r"trajectories must have shape \(T, n, S\) with S = 2"):
        plot_points(points, trajectories=paths[:, 0])


def test_both_panels_side_by_side(points):
    axes = points.plot()
    assert axes.shape == (2,)
    assert axes[0].get_xlabel() != axes[1].get_xlabel()
    assert axes[0].figure is axes[1].figure
    assert len(axes[0].figure.axes) == 2
    given = plt.subplots(1, 2)[1]
    assert plot_fixed_points(points, given)[0] is given[0]
    with pytest.raises(ShapeError, match="two matplotlib axes"):
        plot_fixed_points(points, plt.subplots()[1])


def test_slow_points_have_their_own_marker():
    layer = RNN(0, 1, rng=0)
    h = -np.sqrt(0.5)
    layer.params["weight_hh_l0"][:], layer.params["bias_hh_l0"][:] = 2.0, np.arctanh(h) - 2 * h + 1e-3
    ax = fixed_points(layer, None, np.linspace(-1.5, 0.2, 20)[:, None]).plot()[0]
    assert "slow, 1 points" in legend(ax)


def test_no_points_are_a_picture_too():
    layer = RNN(0, 1, nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][:], layer.params["bias_hh_l0"][:] = 1.0, 1.0
    axes = fixed_points(layer, None, 5, rng=0).plot()
    assert "0 points" in axes[1].get_title(loc="left")
    axes[0].figure.canvas.draw()


def test_points_of_gated_cells_draw():
    layer = GRU(2, 12, rng=0)
    found = fixed_points(layer, None, 20, rng=0)
    states = layer(np.random.default_rng(1).standard_normal((20, 60, 2)))[0]
    eigenvalues, plane = found.plot(trajectories=states)
    plane.figure.canvas.draw()
    assert f"{len(found)} point" in plane.get_title(loc="left")
    shown = sum(each.get_xdata().size for each in eigenvalues.lines if each.get_linestyle() == "None")
    assert shown == found.eigenvalues.size


def test_finite_time_exponents_show_their_spread():
    result = lyapunov_spectrum(JacobianStack(tanh_network(6, 1.8, 1200, seed=2)[0]), rng=0, interval=5)
    ax = plot_finite_time(result, 40)
    windows = result.finite_time(40)
    np.testing.assert_allclose(line(ax, "whole run").get_ydata(), result.exponents)
    (bars,) = ax.containers
    np.testing.assert_allclose(bars.lines[0].get_ydata(), np.median(windows, axis=0))
    ends = np.array(bars.lines[2][0].get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, np.percentile(windows, [5, 95], axis=0).T)
    assert f"{len(windows)} windows: median, 5-95 %" in legend(ax)
    assert "nats per step" in ax.get_ylabel()
    with pytest.raises(ArgumentError, match="length must be at least"):
        plot_finite_time(result, 1)


def test_finite_time_exponents_without_some_directions():
    ax = plot_finite_time(lyapunov_spectrum(repeated(np.diag([0.5, 0.0]), 60), rng=0, interval=4), 10)
    values = ax.containers[0].lines[0].get_ydata()
    assert values[0] == pytest.approx(np.log(0.5))
    assert np.isnan(values[1])
    ax.figure.canvas.draw()


def test_singular_values_in_the_picture_of_the_flow():
    flow = gradient_flow(sequences(T=60), bounds=True, singular_values=True, rng=0)
    ax = flow.plot()
    top = line(ax, "largest")
    np.testing.assert_array_equal(top.get_xdata(), flow.singular_lags)
    np.testing.assert_allclose(top.get_ydata(), flow.largest.max(axis=1) / np.log(10))
    np.testing.assert_allclose(line(ax, "smallest").get_ydata(), flow.smallest.min(axis=1) / np.log(10))
    assert any(text.startswith("smallest") and text.endswith("at lag 60") for text in legend(ax))
    bottom, height = ax.get_ylim()
    assert bottom < (flow.backward.min() / np.log(10))
    assert height > top.get_ydata().max()
    assert not any("largest" in text for text in legend(gradient_flow(sequences(T=60), rng=0).plot()))
