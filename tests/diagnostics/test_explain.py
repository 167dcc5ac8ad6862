"""Causes, paths, trials and prescriptions: closed forms, equations written out, finite differences of the growth."""

import copy
import json
import math
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from scipy.stats import ortho_group

import elman
from elman.cells import MGU, Gate
from elman.diagnostics.diagnosis.paths import PathShares, path_shares
from elman.diagnostics.diagnosis.tune import search
from elman.diagnostics.gradient.growth import backward_growth, unit_vectors
from elman.errors import ArgumentError
from elman.layers.recurrent import Recurrent
from elman.linearization import JacobianStack

matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


def network(layer, seed=5):
    return elman.Network(layer, elman.Readout(layer.output_size, 2, rng=seed))


def inputs(seed, T=50, n=32, D=3, sd=1.0):
    return sd * np.random.default_rng(seed).standard_normal((T, n, D))


def lively(layer, seed=9):
    """Random biases, and weights that make gates move."""
    rng = np.random.default_rng(seed)
    for name, view in layer.params.items():
        view += 0.4 * rng.standard_normal(view.shape) if name.startswith("bias") else 0.2 * view
    return layer


def rotation(s, H=8, D=3, nonlinearity="identity", **more):
    layer = elman.RNN(D, H, nonlinearity=nonlinearity, rng=0, **more)
    layer.params["weight_hh_l0"][...] = s * ortho_group.rvs(H, random_state=3)
    return layer


# --- paths ----------------------------------------------------------------------------------------------------------

CELLS = {
    "rnn": lambda: elman.RNN(3, 6, zoneout=0.3, rng=1),
    "lstm": lambda: elman.LSTM(3, 6, rng=1),
    "projected": lambda: elman.LSTM(3, 6, proj_size=4, rng=1),
    "gru": lambda: elman.GRU(3, 6, rng=1),
    "before": lambda: elman.GRU(3, 6, reset_after=False, rng=1),
    "mgu": lambda: elman.MGU(3, 6, rng=1),
    "stack": lambda: elman.LSTM(3, 5, 2, rng=1),
}


def split(lins, t, i):
    """The Jacobian of each path at one step, by name."""
    names, J = list(lins), [lin.jacobian(t, i) for lin in lins.values()]
    return {"carry": J[-1]} | {name: a - b for name, a, b in zip(names[1:], J[:-1], J[1:], strict=True)}


@pytest.mark.parametrize("name", CELLS)
def test_paths_of_a_step_add_up_to_its_jacobian_and_the_carry_is_the_equation_without_weights(name):
    layer, x = lively(CELLS[name]()), inputs(2, T=6, n=3)
    lins, trace = layer.paths(x), layer.trace(x, training=False)
    gates = ("h",) if name == "rnn" else type(layer).GATES
    assert list(lins) == ["all", *gates] + (["below"] if name == "stack" else [])
    parts, whole = split(lins, 4, 1), layer.linearize(x).jacobian(4, 1)
    assert sum(parts.values()) == pytest.approx(whole, abs=1e-14)
    gates = {key: value[4, 1] for key, value in trace.gates.items()}
    if name == "rnn":
        expected = 0.3 * np.eye(6)
    elif name in ("gru", "before"):
        expected = np.diag(gates["z_l0"])
    elif name == "mgu":
        expected = np.diag(1 - gates["f_l0"])
    else:
        expected = np.zeros_like(whole)
        at = 0
        for suffix in ("_l0", "_l1")[: layer.num_layers]:
            f, o, y = gates["f" + suffix], gates["o" + suffix], np.tanh(trace.states["c" + suffix][5, 1])
            top = np.diag(o * (1 - y**2) * f)
            if name == "projected":
                top = layer.params["weight_hr_l0"] @ top
            R = len(top)
            expected[at : at + R, at + R : at + R + len(f)] = top
            expected[at + R : at + R + len(f), at + R : at + R + len(f)] = np.diag(f)
            at += R + len(f)
    assert parts["carry"] == pytest.approx(expected, abs=1e-14)


def test_each_gate_of_an_lstm_is_its_own_path():
    layer, x = lively(elman.LSTM(3, 6, rng=1)), inputs(2, T=6, n=3)
    parts, trace, t, i = split(layer.paths(x), 4, 1), layer.trace(x), 4, 1
    gi, gf, gg, go = (trace.gates[name + "_l0"][t, i] for name in "ifgo")
    c, y = trace.states["c_l0"][t, i], np.tanh(trace.states["c_l0"][t + 1, i])
    W = dict(zip("ifgo", layer.params["weight_hh_l0"].reshape(4, 6, 6), strict=True))
    into_c = {"i": gg * gi * (1 - gi), "f": c * gf * (1 - gf), "g": gi * (1 - gg**2)}
    for name, slope in into_c.items():
        d_c = slope[:, None] * W[name]
        assert parts[name][6:, :6] == pytest.approx(d_c, abs=1e-14)
        assert parts[name][:6, :6] == pytest.approx((go * (1 - y**2))[:, None] * d_c, abs=1e-14)
    assert parts["o"][:6, :6] == pytest.approx((y * go * (1 - go))[:, None] * W["o"], abs=1e-14)
    assert not parts["o"][6:].any()


@pytest.mark.parametrize("name", CELLS)
def test_a_share_is_the_derivative_of_the_growth_by_the_log_of_its_path(name):
    layer, x = lively(CELLS[name]()), inputs(3, T=25, n=2)
    lins = layer.paths(x)
    T, S = 25, lins["all"].state_size
    u = unit_vectors(np.random.default_rng(4), 2, 3, S)
    shares = path_shares(list(lins.values()), u)
    assert shares.sum(axis=0) == pytest.approx(1, abs=1e-10)
    steps = [[split(lins, t, i) for i in range(2)] for t in range(T)]
    for k, path in enumerate([*list(lins)[1:], "carry"]):

        def growth(by, path=path):
            J = [
                [sum(part * (math.exp(by) if p == path else 1) for p, part in s.items()) for s in row] for row in steps
            ]
            return backward_growth(JacobianStack(np.array(J)), u)[-1].mean(axis=1)

        slope = (growth(1e-6) - growth(-1e-6)) / 2e-6 / T
        assert shares[k] == pytest.approx(slope, abs=1e-8), path


def test_dead_gradients_have_no_shares():
    J = np.stack([np.eye(3), np.eye(3)])[None].repeat(8, axis=0)
    J[4, 1] = 0
    half = JacobianStack(0.25 * J)
    u = unit_vectors(np.random.default_rng(0), 2, 2, 3)
    shares = PathShares.measured([({"all": JacobianStack(J), "h": half}, u)])
    assert shares.n == 1
    assert shares.shares == pytest.approx({"carry": 0.25, "h": 0.75})
    J[4] = 0
    assert PathShares.measured([({"all": JacobianStack(J), "h": half}, u)]) is None


# --- trials ---------------------------------------------------------------------------------------------------------


def test_a_linear_network_answers_exactly():
    d = elman.diagnose(network(rotation(0.9)), inputs(1), rng=0)
    e = d.explain()
    assert e.causes.gain == pytest.approx(math.log(0.9), abs=1e-12)
    assert [trial.name for trial in e.trials] == ["W_hh x 1.15", "bias + 0.5", "input x 2", "input x 0.5"]
    for trial, change in zip(e.trials, (math.log(1.15), 0, 0, 0), strict=True):
        assert trial.predicted[0] == pytest.approx(change, abs=1e-12)
        assert trial.measured == pytest.approx(change, abs=1e-11)
        assert trial.agrees
    assert e.trials[0].frozen == pytest.approx(math.log(1.15), abs=1e-12)
    assert e.trials[0].answers["gain"] == pytest.approx(math.log(1.15), abs=1e-12)
    assert e.strongest == "W_hh x 1.15"
    assert (e.n, e.n_held_out) == (16, 16)


@pytest.mark.parametrize("name", ["tanh", "lstm", "gru", "mgu", "stack"])
def test_predicted_changes_are_measured_on_other_sequences(name):
    layer = rotation(1.0, 20, nonlinearity="tanh") if name == "tanh" else lively(CELLS[name]())
    d = elman.diagnose(network(layer), inputs(1, n=64), np.zeros((64, 2)), rng=0)
    before = copy.deepcopy(layer.params.copy())
    e = d.explain()
    assert all(np.array_equal(before[key], layer.params[key]) for key in before)
    assert (e.causes is None) == (name != "tanh")
    if e.paths is not None:
        assert sum(e.paths.shares.values()) == pytest.approx(1, abs=1e-10)
    else:
        assert sum(e.causes.terms.values()) == pytest.approx(e.causes.rate, abs=1e-10)
        changes = e.trials[0].answers
        assert changes["gain"] == pytest.approx(math.log(1.15), abs=1e-12)
        assert changes["saturation"] < 0
    for trial in e.trials:
        predicted, measured = trial.predicted[0], trial.found[0]
        assert abs(predicted - measured) < max(0.03, 0.3 * abs(measured)), trial.name
    if name in ("tanh", "gru", "mgu"):  # in the others the trajectory answers more than the frozen paths
        assert 0.3 < e.trials[0].predicted[0] / e.trials[0].frozen < 1.6


def test_a_trial_is_the_difference_of_two_diagnoses():
    """The change on held-out sequences, from two networks made by hand and the kernels of training."""
    layer = elman.LSTM(3, 10, rng=2)
    x = inputs(4, n=64)
    e = elman.diagnose(layer, x, rng=0).explain()
    by_hand = copy.deepcopy(layer)
    by_hand.params["bias_ih_l0"][10:20] += 1
    (trial,) = [t for t in e.trials if t.name == "forget_bias + 1"]
    before, after = (elman.diagnose(m, x, rng=1, max_sequences=32, threshold=1e-9) for m in (layer, by_hand))
    assert trial.found[0] == pytest.approx(after.rate - before.rate, abs=0.01)


@pytest.mark.parametrize("level", ["forward", "weights"])
def test_other_levels_explain_too(level):
    layer = elman.RNN(3, 12, rng=2)
    x = inputs(4)
    d = elman.diagnose(layer, x, level=level, rng=0)
    assert d.causes is None
    e = d.explain()
    assert sum(e.causes.terms.values()) == pytest.approx(e.causes.rate, abs=1e-10)
    assert e.causes.rate == pytest.approx(d.rate, abs=0.05)
    assert e.n_held_out > 0


def test_without_held_out_sequences_nothing_is_measured():
    e = elman.diagnose(elman.RNN(3, 12, rng=2), level="weights", input_sd=1.0, length=30, rng=0).explain()
    assert e.n_held_out == 0
    assert all(trial.measured is None and trial.agrees is None for trial in e.trials)
    assert "no others to measure on" in str(e)


def test_what_cannot_be_run_again_cannot_be_explained():
    d = elman.diagnose(JacobianStack(np.ones((9, 3, 1, 1))), rng=0)
    for call in (d.explain, d.prescribe):
        with pytest.raises(ArgumentError, match="made from a Linearization; give diagnose a layer"):
            call()


# --- prescriptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("s", "target"), [(0.8, 0.0), (1.2, 0.0), (0.8, -0.1), (1.0, math.log(0.75))])
def test_a_linear_network_is_there_after_one_step(s, target):
    net = network(rotation(s))
    p = elman.diagnose(net, inputs(1), rng=0).prescribe(target)
    assert p.amount == pytest.approx(math.exp(target) / s, rel=1e-10)
    assert len(p.runs) == 2
    assert p.measured_before.rate == pytest.approx(math.log(s), abs=1e-10)
    assert p.measured.rate == pytest.approx(target, abs=1e-10)
    assert p.reached
    assert np.array_equal(p.model.params["layer.weight_hh_l0"], p.amount * net.params["layer.weight_hh_l0"])
    assert p.model is not net


def test_clipping_and_truncation_of_a_linear_network():
    """s^k reaches 1e-3 at k = log(1e-3) / log s = 30.96; what only decays is largest at its start."""
    x, y = inputs(1), np.random.default_rng(2).standard_normal((32, 2))
    net = network(rotation(0.9))
    d = elman.diagnose(net, x, y, rng=0)
    p = d.prescribe(math.log(0.8))
    assert p.truncation == 31
    assert p.clip_factor == pytest.approx(1, abs=1e-9)
    starts = np.linalg.norm(p.model.loss_start(x, y), axis=1)
    assert 0.5 * starts.mean() < p.clip_norm < 2 * starts.mean()
    growing = d.prescribe(0.05)
    assert growing.truncation is None
    # 0.95^k would be 1e-3 at lag 134.7, 84 steps beyond the sequence: there is nothing to cut
    assert d.prescribe(math.log(0.95)).truncation is None
    assert math.log(growing.clip_factor) == pytest.approx(0.05 * 50, abs=1e-9)
    assert elman.diagnose(net, x, rng=0).prescribe(0.05).clip_norm is None


@pytest.mark.parametrize(
    ("layer", "lever"),
    [
        (elman.RNN(3, 24, rng=1), "recurrent"),
        (elman.RNN(3, 24, nonlinearity="relu", rng=1), "recurrent"),
        (elman.LSTM(3, 24, rng=1), "recurrent"),
        (elman.LSTM(3, 24, forget_bias=0.0, rng=1), "forget_bias"),
        (elman.GRU(3, 24, rng=1), "recurrent"),
        (elman.GRU(3, 24, 2, rng=1), "update_bias"),
        (elman.GRU(3, 24, reset_after=False, rng=1), "update_bias"),
        (elman.MGU(3, 24, rng=1), "forget_bias"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_search_brings_the_measured_rate_near_zero(layer, lever):
    net = network(layer)
    before = net.theta.copy()
    d = elman.diagnose(net, inputs(1, n=64), rng=0)
    assert d.rate < -0.04
    p = d.prescribe(lever=lever)
    assert p.reached
    assert abs(p.measured.rate) <= 0.03
    assert p.measured_before.rate == pytest.approx(d.rate, abs=0.05)
    assert np.array_equal(net.theta, before)
    again = elman.diagnose(p.model, inputs(8, n=64), rng=0)
    assert abs(again.rate) <= 0.04


def test_bias_levers_move_the_gate_that_keeps_and_no_other():
    net = network(elman.GRU(3, 4, 2, rng=1))
    p = elman.diagnose(net, inputs(1), rng=0).prescribe(lever="update_bias")
    for name, value in p.model.params.items():
        moved = value - net.params[name]
        expected = np.zeros_like(moved)
        if "bias_ih" in name:
            expected[4:8] = p.amount
        assert moved == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize(
    ("layer", "lever", "sign"),
    [
        (lambda: elman.LSTM(3, 16, forget_bias=0.0, rng=1), "forget_bias", 1),
        (lambda: elman.GRU(3, 16, rng=1), "update_bias", 1),
        (lambda: elman.MGU(3, 16, rng=1), "forget_bias", -1),
        (lambda: renamed(3, 16, rng=1), "u_bias", -1),
    ],
    ids=["lstm", "gru", "mgu", "renamed"],
)
def test_the_first_step_of_a_bias_goes_the_way_in_which_more_is_kept(layer, lever, sign):
    """Gradients vanish; f of the minimal gated unit renews the state, so its bias has to fall."""
    layer = layer()
    assert list(layer.levers.items()) == [("recurrent", None), (lever, "keep" if sign > 0 else "renew")]
    d = elman.diagnose(network(layer), inputs(1), rng=0)
    p = d.prescribe(lever=lever)
    (_, before), (amount, after) = p.runs[:2]
    assert amount == 0.5 * sign
    assert before < after
    assert p.reached
    assert f"add to the {lever.removesuffix('_bias')} bias" in str(p)
    down = d.prescribe(d.rate - 0.2, lever=lever).runs[1]
    assert down[0] == -amount
    assert down[1] < before
    (trial,) = [t for t in d.explain().trials if t.name == f"{lever} {'+' if sign > 0 else '-'} 1"]
    assert trial.predicted[1] > 0


def renamed(*sizes, **options):
    """A minimal gated unit whose gates have other names."""
    cell = replace(
        MGU, gates=(Gate("u", "sigmoid", "renew"), Gate("k", "tanh")), stored=("uh", "u", "k"), x_blocks=("u", "k"),
        h_blocks=("u", "k"),
    )  # fmt: skip
    return Recurrent(cell, cell.variants[0], *sizes, **options)


def test_a_lever_that_is_too_weak_says_so():
    p = elman.diagnose(network(elman.RNN(3, 24, rng=1)), inputs(1, sd=2.0), rng=0).prescribe(lever="bias")
    assert not p.reached
    assert "NOT within 0.03 of the target: this lever alone does not get there" in str(p)
    assert abs(p.after.rate) <= abs(p.before.rate)


def test_a_network_that_overflows_is_brought_back():
    """Relu states grow without bound: some trials are not finite, and the search goes on inside the bracket."""
    layer = elman.RNN(3, 16, nonlinearity="relu", rng=1)
    d = elman.diagnose(layer, inputs(1, T=400), rng=0)
    p = d.prescribe(2.0, max_runs=12)
    assert any(math.isinf(rate) for _, rate in p.runs)
    assert math.isfinite(p.after.rate)


def test_dead_networks_are_explained_and_prescribed_in_words():
    layer = elman.RNN(3, 6, nonlinearity="relu", rng=1)
    layer.params["bias_ih_l0"][...] = -50
    d = elman.diagnose(layer, inputs(1), rng=0)
    e, p = d.explain(), d.prescribe(max_runs=4)
    assert e.causes is None
    assert e.strongest is None
    assert str(e).count("no rate: gradients are exactly zero") == 4
    assert [amount for amount, _ in p.runs] == pytest.approx([1, *(math.exp(0.7 * k) for k in (1, 2, 3))])
    assert not p.reached
    assert p.clip_factor is None
    assert "none (gradients exactly zero)" in str(p)
    assert "nan" not in str(e) + str(p)
    assert "inf" not in str(p)
    e.plot()
    p.plot()
    plt.close("all")


def test_wrong_prescriptions_are_refused():
    d = elman.diagnose(elman.RNN(3, 4, bias=False, rng=0), inputs(1), rng=0)
    for arguments, words in (
        ({"lever": "bias"}, r"lever must be one of 'recurrent', got 'bias'"),
        ({"lever": "forget_bias"}, "got 'forget_bias'"),
        ({"target": math.nan}, r"target \(a rate in nats per step\) must be a finite number"),
        ({"tolerance": 0}, "tolerance must be a positive number"),
        ({"max_runs": 1}, "max_runs must be at least 2"),
    ):
        with pytest.raises(ArgumentError, match=words):
            d.prescribe(**arguments)


@pytest.mark.parametrize(
    ("function", "root"),
    [
        (lambda x: x - 3, 3),
        (lambda x: 2 - x, 2),
        (lambda x: math.tanh(4 * x - 6), 1.5),
        (lambda x: math.inf if x > 1 else x - 0.9, 0.9),
        (lambda x: -math.inf if x < 0.5 else x - 0.9, 0.9),
        (lambda x: x**3 - 0.001, 0.1),
        (lambda x: math.exp(x) - 1e-2, math.log(1e-2)),
    ],
)
def test_the_search_finds_zeros(function, root):
    tried = search(function, function(0.0), 0.4, 0.7, 1e-6, 60)
    best = min(tried, key=lambda x: abs(tried[x]))
    assert best == pytest.approx(root, abs=2e-2 if function(0.1) == pytest.approx(0) else 1e-4)
    assert list(tried)[:2] == [0.0, 0.4]


def test_the_search_ends_where_nothing_changes_and_when_it_is_there():
    assert list(search(lambda x: 1.0, 1.0, 0.4, 0.7, 1e-6, 5))[:2] == [0.0, 0.4]
    assert search(lambda x: x, 0.0, 0.4, 0.7, 1e-6, 5) == {0.0: 0.0}
    assert len(search(lambda x: math.sin(50 * x) + 2, 2.0, 0.4, 0.7, 1e-6, 6)) <= 6


# --- reports --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results():
    x, y = inputs(1), np.zeros((32, 2))
    out = []
    for layer in (elman.RNN(3, 12, rng=1), elman.LSTM(3, 12, rng=1)):
        d = elman.diagnose(network(layer), x, y, rng=0)
        out.append((d.explain(), d.prescribe()))
    return out


def test_reports_promise_no_better_training_and_are_json(results):
    for e, p in results:
        assert "does not promise better training" in str(p)
        assert "moves the rate from" in str(p)
        assert "trains better" not in str(p) + str(e)
        assert "nan" not in str(p) + str(e)
        assert p.lever == json.loads(json.dumps(p.to_dict()))["lever"]
        back = json.loads(json.dumps(e.to_dict()))
        assert [t["name"] for t in back["trials"]] == [t.name for t in e.trials]
        assert back["strongest"] == e.strongest
        assert f"{e.strongest}" in next(line for line in str(e).splitlines() if "<- strongest" in line)
        assert repr(p).startswith("<TunedPrescription: scale W_hh by")
    assert "carry" in str(results[1][0])
    assert "saturation" in str(results[0][0])


def test_pictures_show_the_numbers(results):
    for e, p in results:
        ax = e.plot()
        assert [t.get_text() for t in ax.get_xticklabels()] == [trial.name for trial in e.trials]
        handles, labels = ax.get_legend_handles_labels()
        at = {label.split(":")[0]: handle for handle, label in zip(handles, labels, strict=True)}
        assert at["predicted"].lines[0].get_ydata() == pytest.approx([t.predicted[0] for t in e.trials])
        assert at["measured"].lines[0].get_ydata() == pytest.approx([t.found[0] for t in e.trials])
        assert "nats/step" in ax.get_ylabel()
        _, own = plt.subplots()
        assert p.plot(own) is own
        runs = np.array(sorted(p.runs))
        assert np.column_stack(own.lines[0].get_data()) == pytest.approx(runs)
        assert "factor of W_hh" in own.get_xlabel()
        plt.close("all")
