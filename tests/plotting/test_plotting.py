"""What the pictures show, read back from matplotlib's artists: numbers of results, closed forms, labels, legends."""

import itertools
import math
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from scipy.stats import t

import elman
from elman import plotting
from elman.errors import ArgumentError, MissingExtraError, ShapeError
from elman.linearization import JacobianStack
from elman.plotting.canvas import short_factor
from elman.plotting.spectra import field_of_values

matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def rotations(rates, T, size=4, dead=(), rng=0):
    """Jacobians exp(rate) Q with Q orthogonal: any gradient of sequence i grows by exactly rates[i] nats a step.

    Sequences in ``dead`` have a zero Jacobian in the middle.
    """
    Q = np.linalg.qr(np.random.default_rng(rng).standard_normal((T, len(rates), size, size)))[0]
    J = np.exp(np.asarray(rates))[:, None, None] * Q
    J[T // 2, list(dead)] = 0
    return JacobianStack(J)


def around(rate, n=12, width=0.02):
    """Rates of n sequences with the given mean."""
    return rate + width * np.linspace(-1, 1, n)


@pytest.fixture(scope="module")
def sunspots():
    """A network trained a little on windows of the sunspot series, with everything that can be drawn of it."""
    series = elman.datasets.windows(elman.datasets.sunspots()[1] / 100, 31, 1)
    x, y = series[:-1], series[1:]
    net = elman.Network(elman.RNN(1, 12, rng=0), elman.Readout(12, 1, rng=1))
    history = elman.fit(
        net, x[:, :200], y[:, :200], epochs=3, validation=(x[:, 200:], y[:, 200:]), progress=False, rng=0
    )
    diagnosis = elman.diagnose(net, x, y, rng=0)
    lin = net.linearize(x[:, ::70])
    return {
        "history": history,
        "diagnosis": diagnosis,
        "verification": diagnosis.verify(),
        "flow": elman.gradient_flow(lin, bounds=True, rng=0),
        "lyapunov": elman.lyapunov_spectrum(net.linearize(elman.datasets.sunspots()[1][:, None, None] / 100), rng=0),
        "spectrum": elman.spectrum(net.params["layer.weight_hh_l0"]),
        "lin": lin,
    }


RESULTS = ("history", "diagnosis", "verification", "flow", "lyapunov", "spectrum")


def labelled(ax, start):
    """The one line, or the line of an error bar, whose legend entry begins so."""
    handles, labels = ax.get_legend_handles_labels()
    found = [handle for handle, label in zip(handles, labels, strict=True) if label.startswith(start)]
    assert len(found) == 1, (start, labels)
    return found[0] if hasattr(found[0], "get_ydata") else found[0].lines[0] if hasattr(found[0], "lines") else found[0]


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def bars(ax, start):
    """Ends of the error bars under a legend entry, shape (n, 2) along their direction."""
    handles, names = ax.get_legend_handles_labels()
    (container,) = [h for h, name in zip(handles, names, strict=True) if name.startswith(start)]
    segments = np.array(container.lines[2][0].get_segments())
    return segments[:, :, 0 if container.has_xerr else 1]


def band(collection, x):
    """Lower and upper edge of a fill_between at the points x."""
    vertices = np.concatenate([path.vertices for path in collection.get_paths()])
    edges = [vertices[np.isclose(vertices[:, 0], at), 1] for at in x]
    return np.array([e.min() for e in edges]), np.array([e.max() for e in edges])


def decimal(nats):
    return np.asarray(nats) / math.log(10)


class TestEveryPicture:
    @pytest.mark.parametrize("name", RESULTS)
    def test_plot_makes_one_figure_or_draws_where_told(self, sunspots, name):
        settings = dict(matplotlib.rcParams)
        alone = sunspots[name].plot()
        assert len(plt.get_fignums()) == 1
        assert alone.figure is plt.figure(plt.get_fignums()[0])
        figure, axes = plt.subplots(1, 2)
        assert sunspots[name].plot(axes[1]) is axes[1]
        assert len(plt.get_fignums()) == 2
        assert axes[1].lines
        assert not axes[0].lines
        assert settings == dict(matplotlib.rcParams)
        figure.canvas.draw()

    @pytest.mark.parametrize("name", RESULTS)
    def test_axes_and_artists_are_named_and_styles_differ(self, sunspots, name):
        ax = sunspots[name].plot()
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert len(labels(ax)) == len(set(labels(ax))) >= 3
        handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True)).values()
        lines = [h.lines[0] if hasattr(h, "lines") else h for h in handles]
        looks = [
            (line.get_linestyle(), line._unscaled_dash_pattern, line.get_marker(), line.get_mfc() == "white")
            for line in lines
            if hasattr(line, "get_marker")
        ]
        # told apart without their colours
        assert len(set(looks)) == len(looks)

    @pytest.mark.parametrize("name", [*RESULTS, "lin"])
    @pytest.mark.parametrize("size", [(6.4, 4.8), (4, 3)])
    def test_the_legend_covers_no_data(self, sunspots, name, size):
        figure, ax = plt.subplots(figsize=size, layout="constrained")
        if name == "lin":
            plotting.plot_jacobian_spectrum(sunspots["lin"], sunspots["spectrum"].plot(ax))
        else:
            sunspots[name].plot(ax)
        figure.canvas.draw()
        legend = ax.get_legend().get_window_extent()
        for axes in figure.axes:
            for line in axes.lines:
                style = line.get_linestyle() if line.get_marker() == "None" else "marked"
                if line.get_transform() != axes.transData or (style != "marked" and line.get_color() == "black"):
                    continue  # the full width, or a bound, may leave the picture
                points = axes.transData.transform(np.column_stack(line.get_data()).astype(float))
                inside = (points > legend.min + 1).all(axis=1) & (points < legend.max - 1).all(axis=1)
                assert not inside.any(), line.get_label()

    def test_importing_loads_no_matplotlib(self):
        code = "import sys, elman, elman.plotting; sys.exit(any(m.startswith('matplotlib') for m in sys.modules))"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    @pytest.mark.parametrize("name", RESULTS)
    def test_without_matplotlib_the_error_names_the_extra(self, sunspots, name, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
        with pytest.raises(MissingExtraError, match=r"plot_\w+ needs matplotlib.*elman\[plot\]"):
            sunspots[name].plot()

    def test_the_other_two_name_it_too(self, sunspots, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
        with pytest.raises(MissingExtraError, match="plot_jacobian_spectrum"):
            plotting.plot_jacobian_spectrum(sunspots["lin"])
        with pytest.raises(MissingExtraError, match="plot_forecast"):
            plotting.plot_forecast([1, 2], [1, 2], {})


@pytest.mark.parametrize(
    ("nats", "text"),
    [
        (0.0, "1"),
        (math.log(88.13), "88.1"),
        (math.log(0.0312), "0.0312"),
        (-math.inf, "0"),
        (math.inf, "inf"),
        (math.log(4.2e17), "4e+17"),
        (math.log(9.7e5), "1e+6"),
        (math.log(3e-175), "3e-175"),
        (-1000 * math.log(10) + math.log(2), "2e-1000"),
    ],
)
def test_factors_are_written_beyond_the_range_of_floats(nats, text):
    assert short_factor(nats) == text


class TestPlane:
    def test_field_of_values_of_a_jordan_block_is_a_disc(self):
        # W = a I + b N: a disc around a of radius b cos(pi / 3) for H = 2
        z = field_of_values(np.array([[0.9, 10.0], [0.0, 0.9]]))
        np.testing.assert_allclose(abs(z - 0.9), 5, rtol=1e-12)
        # all around, and closed
        assert np.ptp(np.unwrap(np.angle(z - 0.9))) == pytest.approx(2 * np.pi)
        assert z[0] == z[-1]

    def test_field_of_values_of_normal_matrices_is_the_hull_of_the_eigenvalues(
        self,
    ):
        z = field_of_values(np.diag([0.5, -0.2, 0.1]))
        np.testing.assert_allclose(z.imag, 0, atol=1e-15)
        assert (z.real.min(), z.real.max()) == (pytest.approx(-0.2), pytest.approx(0.5))
        z = field_of_values(np.array([[0.0, -2.0], [2.0, 0.0]]))
        np.testing.assert_allclose(z.real, 0, atol=1e-15)
        assert (z.imag.min(), z.imag.max()) == (pytest.approx(-2), pytest.approx(2))
        # a cyclic shift of three: the triangle of the cube roots of 1
        z = field_of_values(np.roll(np.eye(3), 1, axis=0))
        roots = np.exp(2j * np.pi * np.arange(3) / 3)
        assert all(min(abs(z - root)) < 1e-12 for root in roots)
        assert min((z * roots[:, None].conj()).real.min(axis=0)) >= -0.5 - 1e-12

    def test_field_of_values_holds_quotients_and_reaches_the_numerical_radius(self):
        rng = np.random.default_rng(0)
        W = rng.standard_normal((9, 9))
        z = field_of_values(W)
        v = rng.standard_normal((2000, 9)) + 1j * rng.standard_normal((2000, 9))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        quotients = np.concatenate([np.einsum("ki,ij,kj->k", v.conj(), W, v), np.linalg.eigvals(W)])
        directions = np.exp(-1j * np.linspace(0, np.pi, 61))
        support = (directions[:, None] * z).real.max(axis=1)
        assert ((directions[:, None] * quotients).real.max(axis=1) <= support + 1e-12).all()
        assert abs(z).max() == pytest.approx(elman.spectrum(W).numerical_radius, rel=1e-3)

    def test_spectrum_shows_eigenvalues_circle_and_boundary(self):
        s = elman.spectrum([[0.9, 10.0], [0.0, 0.9]])
        ax = s.plot()
        points = labelled(ax, "eigenvalues of $W_{hh}$")
        np.testing.assert_array_equal(points.get_xdata() + 1j * points.get_ydata(), s.eigenvalues)
        np.testing.assert_allclose(np.hypot(*labelled(ax, "unit circle").get_data()), 1)
        assert "radius 5.9" in labels(ax)[0]
        np.testing.assert_allclose(labelled(ax, "field").get_xdata().max(), 5.9)
        assert ax.get_aspect() == 1
        assert "0.9" in labels(ax)[1]
        assert ax.get_title(loc="left") == "H = 2, departure from normality 10"
        (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        assert left < -4.1 < 5.9 < right
        assert bottom < -5 < 5 < top

    def test_large_matrices_come_without_their_boundary(self):
        ax = elman.spectrum(np.diag(np.linspace(-1, 1, 501))).plot()
        assert not any("field" in label for label in labels(ax))
        assert len(labelled(ax, "eigenvalues").get_xdata()) == 501

    def test_jacobians_join_the_spectrum_on_one_axes(self):
        lin = rotations([-0.5, 0.3], 9, size=5)
        ax = elman.spectrum(lin.jacobian(0)).plot()
        assert plotting.plot_jacobian_spectrum(lin, ax, steps=[0, 4], sequence=1) is ax
        points = labelled(ax, "eigenvalues of $J_t$, $t$ = 0, 4")
        z = points.get_xdata() + 1j * points.get_ydata()
        np.testing.assert_allclose(abs(z), np.exp(0.3))
        wanted = np.concatenate([np.linalg.eigvals(lin.jacobian(step, 1)) for step in (0, 4)])
        np.testing.assert_allclose(np.sort_complex(z), np.sort_complex(wanted), atol=1e-12)
        assert sum(line.get_label() == "unit circle" for line in ax.lines) == 1
        assert points.get_marker() != labelled(ax, "eigenvalues of $W_{hh}$").get_marker()
        assert ax.get_ylim()[1] > np.exp(0.3)

    def test_default_steps_reach_from_the_first_to_the_last(self):
        assert "$t$ = 0, 20, 40, 59, 79, 99" in labels(plotting.plot_jacobian_spectrum(rotations([0.0], 100)))[0]
        assert "$t$ = 0, 1, 2" in labels(plotting.plot_jacobian_spectrum(rotations([0.0], 3)))[0]
        many = plotting.plot_jacobian_spectrum(rotations([0.0], 20), steps=range(20))
        assert "20 steps" in labels(many)[0]

    @pytest.mark.parametrize("wrong", [{"steps": []}, {"steps": [9]}, {"steps": [-1]}, {"sequence": 1}])
    def test_steps_outside_are_refused(self, wrong):
        with pytest.raises(ArgumentError, match=r"steps must name|sequence must be"):
            plotting.plot_jacobian_spectrum(rotations([0.0], 9), **wrong)


class TestFlow:
    def test_curves_and_bounds_of_rotations_are_straight_lines(self):
        rates = np.array([-0.2, -0.3, -0.4])
        flow = elman.gradient_flow(rotations(rates, 30), bounds=True, rng=0)
        ax = flow.plot()
        for start in ("backward, from", "forward"):
            line = labelled(ax, start)
            np.testing.assert_array_equal(line.get_xdata(), np.arange(31))
            np.testing.assert_allclose(line.get_ydata(), decimal(-0.3 * np.arange(31)), atol=1e-10)
        low, high = band(labelled(ax, "backward, all 3"), flow.lags)
        np.testing.assert_allclose(low, decimal(-0.4 * flow.lags), atol=1e-10)
        np.testing.assert_allclose(high, decimal(-0.2 * flow.lags), atol=1e-10)
        np.testing.assert_allclose(
            labelled(ax, r"$\sigma_\max(J_t)$").get_ydata(), decimal(-0.2 * flow.lags), atol=1e-10
        )
        np.testing.assert_allclose(
            labelled(ax, r"$\sigma_\min(J_t)$").get_ydata(), decimal(-0.4 * flow.lags), atol=1e-10
        )
        assert labelled(ax, "1e-3").get_ydata()[0] == -3
        assert "0.00248 at lag 30" in " ".join(labels(ax))  # exp(-6)
        assert ax.get_title(loc="left") == "rate backward -0.3000, forward -0.3000 nats/step"
        assert ax.get_ylim()[0] < -12 / math.log(10) < 0 < ax.get_ylim()[1]

    def test_the_bound_from_the_weights(self, sunspots):
        ax = sunspots["flow"].plot()
        drawn = labelled(ax, r"$\sigma_\max(W_{hh})$").get_ydata()
        np.testing.assert_allclose(drawn, np.arange(31) * np.log10(sunspots["spectrum"].norm), atol=1e-12)

    def test_ticks_are_powers_of_ten(self):
        ax = elman.gradient_flow(rotations([1.0], 30), rng=0).plot()
        ax.figure.canvas.draw()
        texts = {
            round(tick, 9): label.get_text() for tick, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)
        }
        assert texts[0] == "$10^{0}$"
        assert all(float(text[5:-2]) == tick for tick, text in texts.items())

    def test_no_horizon_without_decay(self):
        ax = elman.gradient_flow(rotations([0.4], 30), rng=0).plot()
        assert not any("1e-3" in label for label in labels(ax))
        assert not any("all" in label for label in labels(ax))  # one sequence has no range

    def test_far_bounds_do_not_flatten_the_curves(self):
        J = np.tile(np.diag([1.0, 1e-30]), (40, 1, 1))
        ax = elman.gradient_flow(JacobianStack(J), bounds=True, rng=0).plot()
        np.testing.assert_allclose(labelled(ax, r"$\sigma_\min").get_ydata(), -30 * np.arange(41))
        assert ax.get_ylim()[0] > -4
        assert any(label.endswith("bound, 1e-1200 at lag 40") for label in labels(ax))

    def test_exact_zeros_are_left_out_and_told(self):
        flow = elman.gradient_flow(rotations([-0.1, -0.1, -0.1, -0.1], 20, dead=[1]), bounds=True, rng=0)
        ax = flow.plot()
        np.testing.assert_allclose(labelled(ax, "backward, from").get_ydata(), decimal(-0.1 * flow.lags), atol=1e-10)
        assert "25% of the gradients exactly zero at lag 20" in ax.get_title(loc="left")
        ax = elman.gradient_flow(rotations([-0.1, -0.1], 20, dead=[0, 1]), bounds=True, rng=0).plot()
        drawn = labelled(ax, "backward, from").get_ydata()
        assert np.isnan(drawn[10:]).all()  # lag 10 is the first to pass step 10 of 20
        np.testing.assert_allclose(drawn[:10], decimal(-0.1 * np.arange(10)), atol=1e-10)
        assert "all exactly zero from lag 10" in labels(ax)
        assert np.isfinite(ax.get_ylim()).all()
        ax.figure.canvas.draw()

    def test_growth_beyond_the_range_of_floats_is_drawn(self):
        ax = elman.gradient_flow(rotations([-2.0], 600), rng=0).plot()
        assert labelled(ax, "backward").get_ydata()[-1] == pytest.approx(-1200 / math.log(10))
        ax.figure.canvas.draw()


class TestDiagnosis:
    def test_mean_bands_thresholds_and_measured_horizon(self):
        d = elman.diagnose(rotations(around(-0.3), 40), rng=0)
        ax = d.plot()
        line = labelled(ax, "random start: mean")
        np.testing.assert_allclose(line.get_ydata(), decimal(-0.3 * np.arange(41)), atol=1e-10)
        single, mean = ax.collections[:2]
        for drawn, (low, high) in (
            (single, (d.curve.single_low, d.curve.single_high)),
            (mean, (d.curve.low, d.curve.high)),
        ):
            np.testing.assert_allclose(band(drawn, d.curve.lags), decimal([low, high]), atol=1e-12)
        levels = sorted(ln.get_ydata()[0] for ln in ax.lines if str(ln.get_label()).startswith("verdict"))
        np.testing.assert_allclose(levels, [-2, 2])
        mark = labelled(ax, "horizon 23 steps")
        assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (pytest.approx(math.log(1e3) / 0.3), -3)
        np.testing.assert_allclose(bars(ax, "horizon")[0], [d.horizon.low, d.horizon.high])
        assert mark.get_markerfacecolor() == "black"
        assert ax.get_title(loc="left").startswith("vanishing, n = 12 sequences\nrate -0.3000 [")
        assert not any("extrapolated" in label for label in labels(ax))

    def test_an_extrapolated_horizon_is_an_open_mark_at_the_end_of_a_dotted_line(self):
        d = elman.diagnose(rotations(around(-0.15), 40), rng=0)
        ax = d.plot()
        mark = labelled(ax, "horizon 46.1 steps, extrapolated")
        assert mark.get_markerfacecolor() == "white"
        assert mark.get_xdata()[0] == pytest.approx(math.log(1e3) / 0.15)
        (dotted,) = [line for line in ax.lines if line.get_linestyle() == ":"]
        np.testing.assert_allclose(dotted.get_data(), [[40, mark.get_xdata()[0]], [decimal(-6.0), -3]], atol=1e-9)
        np.testing.assert_allclose(bars(ax, "horizon")[0], [d.horizon.low, d.horizon.high])
        assert d.horizon.high < ax.get_xlim()[1] < 80

    def test_of_a_far_horizon_only_the_direction_is_drawn(self):
        ax = elman.diagnose(rotations(around(-0.01, width=0.001), 40), rng=0).plot()
        dotted = labelled(ax, "horizon 691 steps, extrapolated")
        np.testing.assert_allclose(dotted.get_data(), [[40, 52], decimal([-0.4, -0.52])], atol=1e-9)
        assert ax.get_xlim()[1] < 60
        assert not any("1e-3" in label for label in labels(ax))

    def test_an_exploding_curve_has_no_horizon(self):
        d = elman.diagnose(rotations(around(0.3), 40), rng=0)
        ax = d.plot()
        assert not any("horizon" in label for label in labels(ax))
        assert ax.get_title(loc="left").startswith("exploding")
        assert ax.get_ylim()[1] > decimal(12)

    def test_an_interval_without_end_does_not_break_the_mark(self):
        # from slowly growing to falling: the upper end of the rate is positive, the horizon's infinite
        d = elman.diagnose(rotations(np.linspace(-0.5, 0.1, 4), 40), rng=0)
        assert math.isinf(d.horizon.high)
        ax = d.plot()
        assert bars(ax, "horizon")[0].max() > ax.get_xlim()[1]
        ax.figure.canvas.draw()

    def test_the_loss_is_dashed_with_bars(self, sunspots):
        d = sunspots["diagnosis"]
        ax = d.plot()
        line = labelled(ax, "loss start")
        np.testing.assert_allclose(line.get_ydata(), decimal(d.loss.mean))
        assert line.get_linestyle() == "--"
        segments = np.array(ax.containers[0].lines[2][0].get_segments())
        at = segments[:, 0, 0].astype(int)
        assert {0, 30} < set(at)
        ends = segments[:, :, 1]
        np.testing.assert_allclose(ends, decimal(np.stack([d.loss.low[at], d.loss.high[at]], axis=1)), atol=1e-12)

    def test_dead_gradients_are_hatched_and_counted(self):
        ax = elman.diagnose(rotations(around(-0.1), 20, dead=range(12)), rng=0).plot()
        assert "all exactly zero from lag 10" in labels(ax)
        assert ax.get_title(loc="left") == "vanishing, n = 12 sequences, 100% dead (gradient exactly zero)"
        assert not any("horizon" in label for label in labels(ax))
        ax.figure.canvas.draw()
        partly = elman.diagnose(rotations(around(-0.1), 20, dead=[2, 5, 7]), rng=0).plot()
        assert "25% dead" in partly.get_title(loc="left")
        assert not any("zero" in label for label in labels(partly))

    def test_two_on_one_axes_stay_in_sight(self):
        ax = elman.diagnose(rotations(around(-0.5), 40), rng=0).plot()
        bottom = ax.get_ylim()[0]
        elman.diagnose(rotations(around(0.6), 40), rng=0).plot(ax)
        assert ax.get_ylim()[0] <= bottom
        assert ax.get_ylim()[1] > decimal(24)
        elman.diagnose(rotations(around(0.6), 40), rng=0).plot(ax)
        # the strip for the legend is not added again and again
        assert ax.get_ylim()[1] < decimal(24) + 0.35 * (decimal(24) - bottom)


class TestVerification:
    def test_points_are_measured_means_with_intervals(self, sunspots):
        v = sunspots["verification"]
        ax = v.plot()
        for comparison, start in ((v.random, "random start"), (v.loss, "loss start")):
            p, m = comparison.predicted, comparison.measured
            np.testing.assert_allclose(labelled(ax, f"{start}: predicted").get_ydata(), decimal(p.mean))
            drawn = [
                n
                for n in (f"{start}: measured", f"{start}: outside")
                if any(label.startswith(n) for label in labels(ax))
            ]
            at = np.concatenate([labelled(ax, name).get_xdata() for name in drawn])
            assert {1, 30} <= set(at)
            for name in drawn:
                points = labelled(ax, name)
                at = points.get_xdata()
                np.testing.assert_allclose(points.get_ydata(), decimal(m.mean[at]))
                np.testing.assert_allclose(
                    bars(ax, name), decimal(np.stack([m.low[at], m.high[at]], axis=1)), atol=1e-12
                )
                inside = dict(zip(comparison.lags, comparison.inside, strict=True))
                assert all(inside[k] == (name.endswith("measured")) for k in at)
        assert f"n = {v.random.measured.n}" in " ".join(labels(ax))
        single, judged = ax.collections[:2]
        p, half = v.random.predicted, v.random.half_width()
        np.testing.assert_allclose(band(single, p.lags), decimal([p.single_low, p.single_high]), atol=1e-12)
        np.testing.assert_allclose(band(judged, p.lags), decimal([p.mean - half, p.mean + half]), atol=1e-12)
        word = "agrees" if v.agrees else "DISAGREES"
        assert ax.get_title(loc="left").startswith(f"measurement {word} with the prediction\nrate predicted")

    def test_means_outside_the_band_are_open(self):
        d = elman.diagnose(rotations(around(-0.3), 40), rng=0)
        ax = d.verify(rotations(around(-0.2), 40, rng=1)).plot()
        points = labelled(ax, "random start: outside")
        assert points.get_markerfacecolor() == "white"
        np.testing.assert_allclose(points.get_ydata(), decimal(-0.2 * points.get_xdata()), atol=1e-9)
        assert not any("measured, n" in label for label in labels(ax))
        assert ax.get_title(loc="left").startswith("measurement DISAGREES")
        assert ax.get_ylim()[0] < decimal(-12) < ax.get_ylim()[1]

    def test_only_the_lags_asked_for(self):
        d = elman.diagnose(rotations(around(-0.3), 40), rng=0)
        ax = d.verify(rotations(around(-0.3), 40, rng=1), lags=[7, 30]).plot()
        np.testing.assert_array_equal(labelled(ax, "random start: measured").get_xdata(), [7, 30])

    def test_dead_gradients_are_counted(self):
        d = elman.diagnose(rotations(around(-0.1), 20, dead=range(12)), rng=0)
        ax = d.verify(rotations(around(-0.1), 20, dead=range(12), rng=1)).plot()
        assert "dead (gradient exactly zero): predicted 100%, measured 100%" in ax.get_title(loc="left")
        assert labelled(ax, "random start: measured").get_xdata().max() == 9
        np.testing.assert_array_equal(np.isnan(labelled(ax, "random start: predicted").get_ydata()), np.arange(21) > 9)
        assert "all exactly zero from lag 10" in labels(ax)
        ax.figure.canvas.draw()

    def test_a_comparison_cut_short_says_so(self):
        d = elman.diagnose(rotations(around(-2.0), 600), rng=0)
        v = d.verify(rotations(around(-2.0), 600, rng=1))
        assert v.random.last_lag < 600
        title = v.plot().get_title(loc="left")
        assert f"to lag {v.random.last_lag} of 600" in title


class TestLyapunov:
    def test_exponents_intervals_and_earlier_estimates(self, sunspots):
        result = sunspots["lyapunov"]
        ax = result.plot()
        n = result.n_steps
        line = labelled(ax, f"after {n} steps")
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 13))
        np.testing.assert_array_equal(line.get_ydata(), result.exponents)
        half = t.ppf(0.975, result.n_blocks - 1) * result.stderr
        ends = np.stack([result.exponents - half, result.exponents + half], axis=1)
        np.testing.assert_allclose(bars(ax, f"after {n} steps"), ends)
        for share in (0.25, 0.5):
            earlier = round(share * n)
            np.testing.assert_array_equal(
                labelled(ax, f"after {earlier} steps").get_ydata(), result.history[earlier - 1]
            )
        assert "nats per step" in ax.get_ylabel()
        assert f"dimension {result.kaplan_yorke_dimension:.3g}" in ax.get_title(loc="left")
        assert ax.get_ylim()[0] < ends.min() < 0 < ax.get_ylim()[1]

    def test_lost_directions_are_marked_at_the_edge(self):
        J = np.tile(np.diag([0.9, 0.0, 0.5]), (40, 1, 1))
        result = elman.lyapunov_spectrum(JacobianStack(J), rng=0)
        assert np.isneginf(result.exponents[2])
        ax = result.plot()
        np.testing.assert_array_equal(labelled(ax, r"$-\infty$").get_xdata(), [3])
        drawn = labelled(ax, f"after {result.n_steps} steps").get_ydata()
        np.testing.assert_array_equal(drawn, [*result.exponents[:2], np.nan])
        ax.figure.canvas.draw()

    @pytest.mark.parametrize("factor_a_step", [0.0, 1.0, 0.5])
    def test_a_single_step_or_exponent_can_be_drawn(self, factor_a_step):
        result = elman.lyapunov_spectrum(JacobianStack([[[factor_a_step]]]), warmup=0, rng=0)
        ax = result.plot()
        ax.figure.canvas.draw()
        low, high = ax.get_ylim()
        assert low < (math.log(factor_a_step) if factor_a_step else 0) < high
        assert [tick for tick in ax.get_xticks() if 0.5 <= tick <= 1.5] == [1]


class TestSeries:
    def test_losses_by_epoch_and_gradient_norms_behind(self, sunspots):
        history = sunspots["history"]
        ax = history.plot()
        np.testing.assert_array_equal(labelled(ax, "loss").get_data(), [[1, 2, 3], history.loss])
        np.testing.assert_array_equal(labelled(ax, "validation").get_ydata(), history.validation_loss)
        twin = ax.figure.axes[-1]
        assert twin is not ax
        when, norms = labelled(twin, "gradient norm").get_data()
        np.testing.assert_array_equal(norms, history.gradient_norm)
        # 200 sequences in batches of 32 are 7 updates an epoch; the last one ends where the loss stands
        np.testing.assert_allclose(when[[6, 13, 20]], [1, 2, 3])
        assert labelled(twin, "clip norm").get_ydata()[0] == history.clip_norm
        assert (ax.get_yscale(), twin.get_yscale()) == ("log", "log")
        assert labels(ax)[:3] == ["loss", "validation loss", "gradient norm"]
        assert f"{history.clipped_fraction:.0%}" in labels(ax)[3]
        assert ax.get_zorder() > twin.get_zorder()

    def test_values_without_logarithm_are_drawn_linearly(self):
        ax = elman.History(loss=[1.0, 0.0], gradient_norm=[1.0, 0.0]).plot()
        assert (ax.get_yscale(), ax.figure.axes[-1].get_yscale()) == ("linear", "linear")
        assert labels(ax) == ["loss", "gradient norm"]

    def test_a_history_interrupted_in_its_first_epoch_has_norms_only(self):
        ax = elman.History(gradient_norm=[3.0, 2.0], interrupted=True).plot()
        np.testing.assert_allclose(labelled(ax.figure.axes[-1], "gradient norm").get_data(), [[0.5, 1], [3, 2]])
        assert labels(ax) == ["gradient norm"]
        ax.figure.canvas.draw()

    def test_metrics_and_a_changing_rate_have_axes_below(self):
        history = elman.History(
            loss=[3.0, 2.0, 1.0], gradient_norm=[1.0] * 6, lr=[0.1, 0.1, 0.01],
            metrics={"r2": [0.1, 0.2, 0.3], "validation_r2": [0.2, 0.25], "validation_mae": [2.0, 1.0, 3.0]},
        )  # fmt: skip
        ax = history.plot()
        assert [other.get_ylabel() for other in ax.figure.axes] == [
            "loss (mean over targets)", "r2", "mae", "learning rate", "gradient norm before clipping"
        ]  # fmt: skip
        _, r2, mae, rate, _ = ax.figure.axes
        np.testing.assert_array_equal(labelled(r2, "validation r2").get_data(), [[2, 3], [0.2, 0.25]])
        np.testing.assert_array_equal(labelled(r2, "r2").get_ydata(), [0.1, 0.2, 0.3])
        np.testing.assert_array_equal(mae.lines[0].get_data(), [[1, 2, 3], [2, 1, 3]])
        np.testing.assert_array_equal(rate.lines[0].get_ydata(), history.lr)
        assert rate.get_yscale() == "log"
        assert (ax.get_xlabel(), rate.get_xlabel()) == ("", "epochs completed")
        boxes = [other.get_position() for other in (ax, r2, mae, rate)]
        assert all(low.y1 <= high.y0 for high, low in itertools.pairwise(boxes))
        own = plt.figure().add_subplot()
        assert history.plot(own) is own
        assert len(own.figure.axes) == 2  # the losses and their twin

    def test_an_empty_history_is_an_empty_picture(self):
        ax = elman.History().plot()
        ax.figure.canvas.draw()
        assert not any(line.get_xdata().size for each in ax.figure.axes for line in each.lines)

    def test_forecasts_with_their_errors(self):
        years, actual = np.arange(1990, 1994), np.array([1.0, 2.0, 3.0, 5.0])
        forecasts = {"network": np.add(actual, [3, -4, 0, 0]), "persistence": np.array([np.nan, 1.0, 2.0, 3.0])}
        ax = plotting.plot_forecast(years, actual, forecasts, ylabel="spots a year")
        np.testing.assert_array_equal(labelled(ax, "observed").get_data(), [years, actual])
        np.testing.assert_array_equal(labelled(ax, "network").get_ydata(), forecasts["network"])
        # sqrt((9 + 16) / 4), and sqrt((1 + 1 + 4) / 3) over the three that exist
        assert labels(ax) == ["observed", "network, RMSE 2.5", "persistence, RMSE 1.41"]
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("year", "spots a year")
        assert ax.get_ylim()[1] > 6

    def test_a_forecast_without_a_number_has_no_error(self):
        ax = plotting.plot_forecast([1, 2], [1.0, 2.0], {"none": [np.nan, np.nan]})
        assert labels(ax) == ["observed", "none"]

    @pytest.mark.parametrize(
        ("years", "actual", "forecast", "name"),
        [([1, 2], [1, 2, 3], [1, 2], "actual"), ([1, 2], [1, 2], [[1, 2]], "net"), ([[1, 2]], [1, 2], [1, 2], "years")],
    )
    def test_arrays_of_other_shapes_are_refused(self, years, actual, forecast, name):
        with pytest.raises(ShapeError, match=f"{name} has"):
            plotting.plot_forecast(years, actual, {"net": forecast})


def test_bounds_added_to_a_picture_end_below_the_legend():
    """One bound ends within the picture and is seen up to its end; another would pass behind the legend."""
    growing = np.exp(np.full(8, -0.1))[None, :, None, None] * np.eye(3) + np.zeros((40, 8, 3, 3))
    figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
    elman.diagnose(JacobianStack(growing), rng=0).plot(ax)
    before = ax.get_ylim()
    far = np.diag([1.0, 1.05, 1e-30]) + np.zeros((40, 1, 1, 1))
    plotting.plot_bounds(elman.gradient_flow(JacobianStack(far), bounds=True, rng=0), ax)
    figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    near, fallen = labelled(ax, r"$\sigma_\max(J_t)$"), labelled(ax, r"$\sigma_\min(J_t)$")
    assert near.get_ydata()[-1] == pytest.approx(40 * np.log10(1.05))
    end = ax.transData.transform((40, near.get_ydata()[-1]))[1]
    assert end < legend.y0
    for line in (near, fallen):
        box = line.get_clip_box()
        assert box.y1 <= legend.y0 + 1
        assert end < box.y1
        assert (box.x0, box.x1) == pytest.approx((ax.bbox.x0, ax.bbox.x1))
    assert ax.get_ylim()[0] == before[0]
    steep = 3.0 * np.eye(3) + np.zeros((40, 1, 1, 1))
    plotting.plot_bounds(elman.gradient_flow(JacobianStack(steep), bounds=True, rng=0), ax)
    assert ax.get_ylim()[1] < 40 * np.log10(3.0)


def test_one_living_sequence_draws_no_nan():
    J = np.zeros((12, 2, 3, 3))
    J[:, 0] = 0.9 * np.eye(3)
    title = elman.diagnose(JacobianStack(J), rng=0).plot().get_title(loc="left")
    assert "nan" not in title
    nothing = elman.gradient_flow(JacobianStack(np.empty((0, 2, 3, 3)))).plot()
    assert nothing.get_title(loc="left") == "no rate: there is no step"


def test_the_forward_curve_of_a_flow_is_the_forward_one():
    """Shrinks first and grows then: forwards and backwards are other curves."""
    J = np.where(np.arange(20) < 10, 0.5, 1.25)[:, None, None, None] * np.eye(3)
    flow = elman.gradient_flow(JacobianStack(J), rng=0)
    lines = {line.get_label().split(",")[0]: line.get_ydata() for line in flow.plot().get_lines()}
    down, up = math.log10(0.5), math.log10(1.25)
    lags = np.arange(21)
    forward = np.where(lags <= 10, down * lags, 10 * down + up * (lags - 10))
    backward = np.where(lags <= 10, up * lags, 10 * up + down * (lags - 10))
    np.testing.assert_allclose(lines["forward"], forward, atol=1e-12)
    np.testing.assert_allclose(lines["backward"], backward, atol=1e-12)
