"""The monitor: closed forms of every number it reads, when it reads and warns; and training stays as it is."""

import json
import math
import pickle
import re
import time
import warnings
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from scipy.stats import ortho_group

import elman
from elman.cells import ELMAN, MGU
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.layers.recurrent import Recurrent
from elman.monitor import Monitor

matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


def network(layer, seed=5):
    return elman.Network(layer, elman.Readout(layer.output_size, 1, rng=seed))


def rotation(s, H=6):
    layer = elman.RNN(2, H, nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][...] = s * ortho_group.rvs(H, random_state=3)
    return layer


def data(T=30, n=24):
    rng = np.random.default_rng(0)
    return rng.standard_normal((T, n, 2)), rng.standard_normal((n, 1))


def fit(net, monitor, epochs=4, lr=0.0, **more):
    x, y = data()
    optimizer = elman.SGD(lr) if lr else elman.Adam(1e-300)
    return elman.fit(net, x, y, epochs=epochs, batch_size=8, optimizer=optimizer, callbacks=[monitor], progress=False,
                     rng=1, **more)  # fmt: skip


def test_readings_of_a_linear_network_are_its_closed_forms():
    net, monitor = network(rotation(0.9)), Monitor(every=1)
    seen = []
    x, y = data()
    elman.fit(net, x, y, epochs=1, batch_size=8, optimizer=elman.Adam(1e-300), progress=False, rng=1,
              callbacks=[monitor, lambda update: seen.append(np.log(update.gradients.state_norms[0]))])  # fmt: skip
    assert [reading.step for reading in monitor.readings] == [0, 1, 2]
    for reading, norms in zip(monitor.readings, seen, strict=True):
        assert reading.rate == pytest.approx(math.log(0.9), abs=1e-12)
        assert (reading.rate_low, reading.rate_high) == pytest.approx((math.log(0.9),) * 2, abs=1e-12)
        assert reading.horizon == pytest.approx(math.log(1e-3) / math.log(0.9), rel=1e-9)
        assert reading.verdict == "stable"
        assert reading.radius == pytest.approx({"l0": 0.9}, rel=1e-12)
        assert reading.saturation == 0
        assert reading.n_steps == 30
        assert np.diff(reading.log_norms) == pytest.approx(math.log(0.9), abs=1e-12)
        assert reading.log_norms == pytest.approx(norms[::-1].mean(axis=1), abs=1e-12)


def test_readings_are_the_numbers_of_the_updates():
    net, monitor, seen = network(elman.GRU(2, 5, rng=1)), Monitor(every=4, threshold=100.0), []
    x, y = data()
    history = elman.fit(net, x, y, epochs=5, batch_size=8, progress=False, rng=1,
                        callbacks=[monitor, lambda u: seen.append(u.loss)])  # fmt: skip
    assert [reading.step for reading in monitor.readings] == [0, 4, 8, 12]
    assert [reading.epoch for reading in monitor.readings] == [0, 1, 2, 4]
    assert [reading.loss for reading in monitor.readings] == seen[::4]
    assert [reading.gradient_norm for reading in monitor.readings] == history.gradient_norm[::4]
    W = net.params["layer.weight_hh_l0"]
    assert set(monitor.readings[0].radius) == {"r_l0", "z_l0", "n_l0"}
    assert monitor.readings[0].radius["n_l0"] == pytest.approx(np.abs(np.linalg.eigvals(W[10:])).max(), rel=0.05)


def test_training_is_bit_for_bit_what_it_is_without():
    x, y = data()
    nets = [network(elman.LSTM(2, 6, rng=1)) for _ in range(2)]
    for net, callbacks in zip(nets, ([], [Monitor(every=2, threshold=100.0)]), strict=True):
        elman.fit(net, x, y, epochs=3, batch_size=8, callbacks=callbacks, progress=False, rng=2)
    assert np.array_equal(nets[0].theta, nets[1].theta)


@pytest.mark.parametrize(("s", "word"), [(0.7, "vanishing"), (1.3, "exploding")])
def test_it_warns_once_with_the_reason(s, word):
    net, monitor, rate = network(rotation(s)), Monitor(every=1), re.escape(f"{math.log(s):+.4f}")
    with pytest.warns(RuntimeWarning, match=f"gradients are {word} at update 0: {rate} nats/step") as seen:
        fit(net, monitor, epochs=2)
    assert len(seen) == 1
    assert monitor.warned == str(seen[0].message)
    assert {reading.verdict for reading in monitor.readings} == {word}
    assert monitor.warned in str(monitor)


def test_a_network_that_passes_gradients_gets_no_warning():
    monitor = Monitor(every=1)
    fit(network(rotation(1.0)), monitor)  # a warning would be an error here
    assert monitor.warned is None
    assert {reading.horizon for reading in monitor.readings} <= {math.inf} | {r.horizon for r in monitor.readings}


def test_own_sequences_are_looked_at_each_time():
    layer = elman.RNN(2, 8, rng=1)
    probe = np.random.default_rng(7).standard_normal((12, 20, 2))
    monitor = Monitor(probe, every=1, sequences=5, threshold=100.0)
    fit(network(layer), monitor)
    assert {reading.n_steps for reading in monitor.readings} == {12}
    first = monitor.readings[0]
    assert all(reading.rate == pytest.approx(first.rate, abs=1e-9) for reading in monitor.readings)
    assert len(first.log_norms) == 30


def test_truncated_windows_are_read_from_the_state_they_start_from():
    net, monitor, seen = network(elman.LSTM(2, 5, rng=1)), Monitor(every=1, threshold=100.0), []
    x = data()[0]
    y = np.zeros((30, 24, 1))
    elman.fit(net, x, y, epochs=1, batch_size=24, truncation=10, optimizer=elman.Adam(1e-300), progress=False,
              callbacks=[monitor, lambda u: seen.append((u.x.copy(), u.state))], rng=1)  # fmt: skip
    assert [reading.n_steps for reading in monitor.readings] == [10, 10, 10]
    alone = Monitor(every=1, threshold=100.0)
    for (window, state), reading in zip(seen, monitor.readings, strict=True):
        h0 = None if state is None else tuple(h[:, :8] for h in state)
        assert reading.rate == pytest.approx(alone._curve(net.layer, window[:, :8], h0).rate, abs=1e-12)
    assert len({reading.rate for reading in monitor.readings}) == 3


@pytest.mark.parametrize(
    ("layer", "share"),
    [
        (elman.RNN(2, 8, nonlinearity="relu", rng=1), 1.0),
        (elman.RNN(2, 8, 2, rng=1), 1.0),
        (elman.RNN(2, 8, nonlinearity="sigmoid", rng=1), 1.0),
        (elman.LSTM(2, 8, rng=1), 0.25),
        (elman.GRU(2, 8, rng=1), 1 / 3),
    ],
    ids=["relu", "tanh", "sigmoid", "lstm", "gru"],
)
def test_saturation_counts_units_without_slope(layer, share):
    """A bias of -50 for all units of an Elman cell, for one gate of the others: those are saturated, no other is."""
    for name, view in layer.params.items():
        view *= 0.1
        if name.startswith("bias_ih"):
            view[: 8 if share < 1 else None] = -50
    monitor = Monitor(every=1, threshold=1e9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # gradients that are exactly zero vanish at any threshold
        fit(network(layer), monitor, epochs=1)
    assert monitor.readings[0].saturation == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("names", [("f", "n"), ("u", "k"), ("n", "f")], ids="".join)
def test_saturation_does_not_depend_on_what_gates_are_called(names):
    """The slope of a sigmoid at 6 and at -6 is 1 % of the largest, that of tanh at 0.3 is 92 %: half of all are flat.

    Taken for an output of tanh, sigmoid(-6) would have the full slope: only a quarter would be flat.
    """
    (f, n), gates = MGU.gates, dict(zip("fn", names, strict=True))
    blocks = tuple(gates.values())
    cell = replace(
        MGU, gates=(replace(f, name=gates["f"]), replace(n, name=gates["n"])), stored=("kept", *blocks),
        x_blocks=blocks, h_blocks=blocks,
    )  # fmt: skip
    layer = Recurrent(cell, cell.variants[0], 2, 8, rng=1)
    layer.theta[:] = 0
    layer.params["bias_ih_l0"][:8] = [-6, 6] * 4
    layer.params["bias_ih_l0"][8:] = 0.3
    monitor = Monitor(every=1, threshold=1e9)
    fit(network(layer), monitor, epochs=1)
    assert monitor.readings[0].saturation == 0.5


@pytest.mark.parametrize(("nonlinearity", "share"), [("tanh", 1.0), ("relu", 0.0)])
def test_saturation_of_a_bare_cell_is_that_of_its_variant(nonlinearity, share):
    layer = Recurrent(ELMAN, nonlinearity, 2, 8, rng=1)
    layer.theta[:] = 0
    layer.params["bias_ih_l0"][:] = 5
    monitor = Monitor(every=1, threshold=1e9)
    fit(network(layer), monitor, epochs=1)
    assert monitor.readings[0].saturation == share


def test_saturation_of_gates_that_are_not_known_is_no_number():
    cell = replace(MGU, gates=tuple(replace(gate, nonlinearity=None) for gate in MGU.gates))
    monitor = Monitor(every=1, threshold=1e9)
    fit(network(Recurrent(cell, cell.variants[0], 2, 8, rng=1)), monitor, epochs=1)
    assert math.isnan(monitor.readings[0].saturation)


def test_a_projected_lstm_has_the_radii_of_what_comes_back():
    layer = elman.LSTM(2, 8, proj_size=3, rng=1)
    monitor = Monitor(every=1, threshold=1e9)
    fit(network(layer), monitor, epochs=1)
    W = layer.params["weight_hh_l0"].reshape(4, 8, 3)[2] @ layer.params["weight_hr_l0"]
    assert monitor.readings[0].radius["g_l0"] == pytest.approx(np.abs(np.linalg.eigvals(W)).max(), rel=1e-9)


def test_cost_is_a_small_share_of_the_time_and_said():
    net, monitor = network(elman.RNN(2, 48, rng=1)), Monitor(every=25, threshold=1e9)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 640, 2)), rng.standard_normal((640, 1))
    elman.fit(net, x, y, epochs=6, callbacks=[monitor], progress=False, rng=1)
    assert len(monitor.readings) == 5
    assert 0 < monitor.cost < 0.25  # four times the default's readings, on a loaded machine
    assert f"{monitor.cost:.1%} of the time" in str(monitor)


def test_gradients_that_are_exactly_zero_are_read_and_drawn():
    layer = elman.RNN(2, 6, nonlinearity="relu", rng=1)
    layer.params["bias_ih_l0"][...] = -50
    monitor = Monitor(every=1)
    with pytest.warns(
        RuntimeWarning, match="gradients are vanishing at update 0: all exactly zero, after 1 of 30 steps"
    ):
        fit(network(layer), monitor, epochs=1)
    reading = monitor.readings[0]
    assert reading.rate == -math.inf
    assert reading.horizon <= 1
    assert all(math.isnan(v) for v in reading.log_norms[1:])
    monitor.plot()
    plt.close("all")


@pytest.mark.parametrize("nonlinearity", ["identity", "tanh"])
def test_of_both_directions_the_one_that_reaches_farthest_is_read(nonlinearity):
    layer = elman.RNN(2, 6, nonlinearity=nonlinearity, bidirectional=True, rng=0)
    for suffix, s in (("", 0.7), ("_reverse", 0.9)):
        layer.params["weight_hh_l0" + suffix][...] = s * ortho_group.rvs(6, random_state=1)
    monitor = Monitor(every=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        fit(network(layer), monitor, epochs=1)
    reading = monitor.readings[0]
    if nonlinearity == "identity":
        assert reading.rate == pytest.approx(math.log(0.9), abs=1e-10)
    assert reading.radius == pytest.approx({"l0": 0.7, "l0_reverse": 0.9})
    assert 0 <= reading.saturation <= 1


def test_what_cannot_be_watched_is_refused():
    x, y = np.zeros((8, 2)), np.zeros((8, 1))
    with pytest.raises(ArgumentError, match="watches a recurrent layer, and Readout has none"):
        elman.fit(elman.Readout(2, 1, rng=0), x, y, epochs=1, callbacks=[Monitor()], progress=False)
    for arguments, words in (
        ({"every": 0}, "every"),
        ({"sequences": 0}, "sequences"),
        ({"threshold": -1}, "threshold"),
    ):
        with pytest.raises(ArgumentError, match=words):
            Monitor(**arguments)
    with pytest.raises(ArgumentError, match="no readings yet"):
        Monitor().plot()


def test_summary_dictionary_and_picture():
    monitor = Monitor(every=2, threshold=100.0)
    assert str(monitor) == "Monitor: no readings yet"
    fit(network(elman.GRU(2, 6, rng=0)), monitor, epochs=6)
    text = str(monitor)
    for name in ("rate", "horizon", "radius", "saturation", "verdict", "nats/step"):
        assert name in text
    back = json.loads(json.dumps(monitor.to_dict()))
    assert len(back["readings"]) == len(monitor.readings) == 9
    axes = monitor.plot()
    assert len(axes) == 4
    rate = next(line for line in axes[0].lines if line.get_label() == "rate")
    assert rate.get_ydata() == pytest.approx([reading.rate for reading in monitor.readings])
    assert rate.get_xdata() == pytest.approx([0, 2, 4, 6, 8, 10, 12, 14, 16])
    assert axes[3].lines[-1].get_ydata() == pytest.approx(np.array(monitor.readings[-1].log_norms) / math.log(10))
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in axes)
    _, own = plt.subplots(2, 2)
    assert list(monitor.plot(own)) == list(own.ravel())
    with pytest.raises(ArgumentError, match="axes must be four"):
        monitor.plot(own[0])
    plt.close("all")


def test_of_several_lengths_the_longest_are_read_as_far_as_all_of_them_go():
    layer = elman.RNN(2, 6, rng=1)
    rng = np.random.default_rng(3)
    lengths = [3, 20, 12, 17, 9, 14]
    x = [rng.standard_normal((n, 2)) for n in lengths]
    monitor = Monitor(every=1, sequences=3, threshold=1e9)
    elman.fit(network(layer), x, np.zeros((6, 1)), epochs=1, batch_size=6, optimizer=elman.Adam(1e-300),
              callbacks=[monitor], progress=False, rng=0)  # fmt: skip
    (reading,) = monitor.readings
    assert reading.n_steps == 14
    whole = np.stack([x[i][:14] for i in (1, 3, 5)], axis=1)
    alone = Monitor(whole, every=1, sequences=3, threshold=1e9)
    elman.fit(network(layer), x, np.zeros((6, 1)), epochs=1, batch_size=6, optimizer=elman.Adam(1e-300),
              callbacks=[alone], progress=False, rng=0)  # fmt: skip
    assert reading.rate == pytest.approx(alone.readings[0].rate, abs=0.1)


def test_sequences_that_restart_need_sequences_to_look_at():
    x, y = data()
    reset = np.zeros((30, 24), bool)
    reset[10] = True
    y = np.zeros((30, 24, 1))
    with pytest.raises(ArgumentError, match=r"give it sequences of one length to look at, Monitor\(x\)"):
        elman.fit(network(rotation(1.0)), x, y, reset=reset, epochs=1, callbacks=[Monitor()], progress=False)


def test_beyond_the_length_the_warning_says_what_is_left_at_its_end():
    layer, monitor = rotation(0.83), Monitor(every=1)  # 1e-3 is left after 37 steps
    with pytest.warns(RuntimeWarning) as seen:
        fit(network(layer), monitor, epochs=1)
    message = str(seen[0].message)
    assert f"a factor {0.83**30:.2g} of them is left over the 30 steps" in message
    assert "of 30 steps" not in message


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        ("abc", DTypeError, "array of real numbers"),
        (np.zeros((3, 2, 2), complex), DTypeError, "real numbers"),
        ([[[1.0]], [[1.0], [2.0]]], ShapeError, "one length"),
        (np.zeros((0, 4, 2)), ShapeError, "at least one sequence, one step"),
        (np.zeros((4, 0, 2)), ShapeError, "at least one sequence, one step"),
        (np.zeros((4, 2)), ShapeError, r"got shape \(4, 2\)"),
        (np.full((4, 2, 2), np.nan), ArgumentError, r"x\[0, 0, 0\] is nan"),
    ],
)
def test_sequences_to_look_at_are_checked_at_once(x, error, words):
    with pytest.raises(error, match=words):
        Monitor(x)


def test_a_warning_made_an_exception_leaves_the_count_right():
    net, monitor = network(rotation(0.7)), Monitor(every=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="vanishing"):
            fit(net, monitor, epochs=1)
    fit(net, monitor, epochs=1)
    assert [reading.step for reading in monitor.readings] == [0, 2]


@pytest.mark.parametrize("copied", [False, True], ids=["same", "pickled"])
def test_time_between_two_trainings_is_no_cost_and_no_training(copied):
    net, monitor = network(rotation(1.0)), Monitor(every=1)
    fit(net, Monitor(every=1), epochs=1)  # loads the kernels
    began = time.perf_counter()
    fit(net, monitor, epochs=2)
    busy = time.perf_counter() - began
    if copied:
        monitor = pickle.loads(pickle.dumps(monitor))
    time.sleep(0.5)
    began = time.perf_counter()
    fit(net, monitor, epochs=2)
    busy += time.perf_counter() - began
    assert monitor.cost > monitor._seconds / busy > 0
