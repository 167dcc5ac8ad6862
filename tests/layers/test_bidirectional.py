"""Diagnoses of bidirectional layers and networks: unidirectional twins with the same weights, and training itself."""

import json

import matplotlib
import numpy as np
import pytest

import elman
from elman.diagnostics.diagnosis.bidirectional import BidirectionalDiagnosis
from elman.errors import ArgumentError, ShapeError

matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

CELLS = (elman.RNN, elman.LSTM, elman.GRU, elman.MGU)
LEVELS = ("full", "forward", "weights")


def inputs(seed=0, T=30, n=24, D=3):
    return np.random.default_rng(seed).standard_normal((T, n, D))


def twin(layer, suffix, build=None, **options):
    """The unidirectional layer of one direction's weights."""
    own = (build or type(layer))(layer.input_size, layer.hidden_size, rng=99, **options)
    for name, view in own.params.items():
        view[...] = layer.params[name.replace("_l0", suffix)]
    return own


def network(layer, at="steps", Q=2):
    return elman.Network(layer, elman.Readout(layer.output_size, Q, rng=7), at=at)


def same(a, b):
    assert np.array_equal(a.curve.logs, b.curve.logs)
    assert (a.verdict, a.rate, a.rate_ci) == (b.verdict, b.rate, b.rate_ci)
    assert a.bound == b.bound
    assert (a.causes is None) == (b.causes is None)
    if a.causes is not None:
        assert a.causes.to_dict() == b.causes.to_dict()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("build", CELLS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_each_direction_has_the_numbers_of_the_unidirectional_layer(build, level, batch_first):
    layer = build(3, 6, bidirectional=True, batch_first=batch_first, rng=1)
    for view in layer.theta[::3], layer.theta[1::5]:
        view *= 1.3
    x = inputs().swapaxes(0, 1) if batch_first else inputs()
    time = 1 if batch_first else 0
    d = elman.diagnose(layer, x, level=level, rng=3)
    v = d.verify() if level != "weights" else None
    for name, ordered in (("l0", x), ("l0_reverse", np.flip(x, time))):
        alone = elman.diagnose(twin(layer, f"_{name}", batch_first=batch_first), ordered, level=level, rng=3)
        same(d.directions[name], alone)
        if v is not None:
            measured = alone.verify()
            assert np.array_equal(v.directions[name].random.measured.logs, measured.random.measured.logs)
    assert list(d.directions) == ["l0", "l0_reverse"]


@pytest.mark.parametrize("build", CELLS[:3])
def test_initial_states_belong_to_their_directions(build):
    layer = build(3, 5, bidirectional=True, rng=2)
    x, rng = inputs(1), np.random.default_rng(5)
    h0 = tuple(rng.standard_normal((2, 24, 5)) for _ in range(2 if build is elman.LSTM else 1))

    def part(i):
        own = tuple(h[i : i + 1] for h in h0)
        return own if len(own) > 1 else own[0]

    d = elman.diagnose(layer, x, h0=h0 if len(h0) > 1 else h0[0], rng=3)
    same(d.directions["l0"], elman.diagnose(twin(layer, "_l0"), x, h0=part(0), rng=3))
    same(d.directions["l0_reverse"], elman.diagnose(twin(layer, "_l0_reverse"), x[::-1], h0=part(1), rng=3))


def test_the_headline_is_of_the_direction_that_reaches_farthest():
    layer = elman.RNN(3, 20, nonlinearity="identity", bidirectional=True, rng=0)
    layer.params["weight_hh_l0"][...] *= 0.7
    layer.params["weight_hh_l0_reverse"][...] *= 1.2
    d = elman.diagnose(layer, inputs(), rng=0)
    assert isinstance(d, BidirectionalDiagnosis)
    assert isinstance(d, elman.Diagnosis)
    assert [each.verdict for each in d.directions.values()] == ["vanishing", "exploding"]
    assert [each.rate for each in d.directions.values()] == pytest.approx([np.log(0.7), np.log(1.2)], abs=1e-10)
    assert d.strongest == "l0_reverse"
    assert (d.verdict, d.rate) == ("exploding", d.directions["l0_reverse"].rate)
    assert d.whole is None
    assert d.verify().agrees


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("build", CELLS[:3])
def test_a_direction_of_a_stack_is_a_layer_along_what_it_reads(build, layers):
    """The upper layer reads the outputs of both directions below: given these, its chains are those of layers."""
    layer = build(3, 5, 2, bidirectional=True, rng=4)
    x = inputs(2)
    below = elman.diagnose(layer, x, rng=1).directions
    lower = build(3, 5, bidirectional=True, rng=0)
    for name, view in lower.params.items():
        view[...] = layer.params[name]
    upper = build(10, 5, rng=0)
    for name, view in upper.params.items():
        view[...] = layer.params[name.replace("_l0", "_l1_reverse")]
    same(below["l1_reverse"], elman.diagnose(upper, lower(x)[0][::-1], rng=1))
    same(below["l0"], elman.diagnose(twin(layer, "_l0"), x, rng=1))


def test_a_measured_direction_is_what_the_backward_pass_of_the_layer_says():
    layer = elman.RNN(3, 6, bidirectional=True, rng=1)
    x, start = inputs(3, n=4), np.random.default_rng(0).standard_normal((4, 6))
    for i, view in enumerate(layer.one_way().values()):
        d_hn = np.zeros((2, 4, 6))
        d_hn[i] = start
        norms = layer.backward(layer.trace(x), d_hn=d_hn).state_norms[i]
        found = view.measure_gradient(view.in_order(x), start)
        assert np.exp(found[:-1]) == pytest.approx(norms if view.reverse else norms[::-1], rel=1e-12)


@pytest.mark.parametrize("at", ["steps", "end"])
def test_labels_start_each_direction_where_it_ends(at):
    """Central differences of the loss with respect to the state that a direction ends in."""
    layer = elman.GRU(3, 4, bidirectional=True, rng=1)
    net, x = network(layer, at), inputs(4, T=7, n=5)
    rng = np.random.default_rng(1)
    y = rng.standard_normal((5, 2)) if at == "end" else rng.standard_normal((7, 5, 2))
    for view in net.one_way().values():
        labels = y if at == "end" else view.in_order(y)
        start = view.loss_start(view.in_order(x), labels)
        out, hn = layer(x)
        last = np.concatenate(list(hn), axis=1) if at == "end" else out[0 if view.reverse else -1]
        target = y if at == "end" else y[0 if view.reverse else -1]
        expected = np.empty((5, 4))
        for j in range(4):
            shift = np.zeros(8)
            shift[j + (4 if view.reverse else 0)] = 1e-6
            above, under = (((net.readout(last + s) - target) ** 2).mean(axis=1) for s in (shift, -shift))
            expected[:, j] = (above - under) / 2e-6
        assert start == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("at", ["steps", "end"])
@pytest.mark.parametrize("build", CELLS[:3])
def test_the_whole_is_the_gradient_of_training(build, at, layers):
    """The gradient with respect to every state, by what a sum of all of them adds to the loss; norms of h."""
    layer = build(3, 4, layers, bidirectional=True, rng=1)
    net, x = network(layer, at), inputs(5, T=6, n=3)
    y = np.random.default_rng(1).standard_normal((3, 2))
    logs = net.measure_loss_gradient(x, y)
    for i in range(3):
        trace = net.trace(x[:, i : i + 1])
        d = np.zeros_like(trace.output)
        last = trace.output if at == "end" else trace.output[-1]
        (d if at == "end" else d[-1])[...] = 2 * (last - y[i]) / 2
        grads = net.backward(trace, d)
        h0 = (grads.h0[0] if isinstance(grads.h0, tuple) else grads.h0)[:, 0]
        norms = grads.state_norms[:, :, 0]
        for k in range(7):
            total = 0.0
            for j in range(2 * layers):
                backwards = j % 2 == 1
                if at == "end":
                    own = np.linalg.norm(h0[j]) if k == 6 else norms[j, k if backwards else 5 - k]
                elif k == 6:
                    own = 0.0 if backwards else np.linalg.norm(h0[j])
                else:
                    own = norms[j, 5 - k]
                total += own**2
            assert logs[k, i] == pytest.approx(0.5 * np.log(total), abs=1e-10)


def test_the_whole_of_one_layer_is_the_sum_of_its_two_chains():
    """Read at the end, a layer's directions share nothing but the loss: squares of two chains add up."""
    layer = elman.RNN(3, 5, bidirectional=True, rng=1)
    net, x, y = network(layer, "end"), inputs(6, n=9), np.random.default_rng(2).standard_normal((9, 2))
    squares = np.zeros((31, 9))
    for view in net.one_way().values():
        ordered = view.in_order(x)
        squares += np.exp(2 * view.measure_gradient(ordered, view.loss_start(ordered, y)))
    assert net.measure_loss_gradient(x, y) == pytest.approx(0.5 * np.log(squares), abs=1e-11)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("at", ["steps", "end"])
def test_predictions_of_a_network_agree_with_what_is_measured(at, layers):
    failed = 0
    for seed in range(4):
        net = network(elman.LSTM(3, 12, layers, bidirectional=True, rng=seed), at)
        x, y = inputs(seed, n=64), np.random.default_rng(seed).standard_normal((64, 2))
        d = elman.diagnose(net, x, y, rng=0)
        v = d.verify()
        made = [c for each in v.directions.values() for c in (each.random, each.loss)] + [v.whole]
        failed += sum(not c.agrees for c in made if c is not None)
        assert v.agrees == all(c.agrees for c in made if c is not None)
    # of 20 or 28, each of which fails in 1 or 2 % of cases
    assert failed <= 2
    assert d.whole.start == v.whole.predicted.start == "loss"
    assert v.whole.measured.n == 32
    top = f"l{layers - 1}"
    assert d.directions[top].loss.start == "loss"
    # a label of the last step in time says nothing of a direction that has read a single step there
    assert d.directions[f"{top}_reverse"].loss.start == ("loss" if at == "end" else "readout")
    assert layers == 1 or d.directions["l0"].loss is None
    again = d.verify(inputs(8, n=20), np.zeros((20, 2)))
    assert set(again.directions) == set(d.directions)
    assert again.whole.measured.n == 20


def test_changed_weights_of_one_direction_are_found_in_it_alone():
    layer = elman.RNN(3, 16, bidirectional=True, rng=1)
    d = elman.diagnose(layer, inputs(9, n=64), rng=0)
    layer.params["weight_hh_l0_reverse"][...] *= 0.5
    v = d.verify()
    assert v.directions["l0"].agrees
    assert not v.directions["l0_reverse"].agrees
    assert not v.agrees


def test_a_direction_is_explained_and_changed_alone_and_the_whole_refuses():
    net = network(elman.RNN(3, 8, bidirectional=True, rng=1))
    before = net.theta.copy()
    d = elman.diagnose(net, inputs(10, n=40), rng=0)
    causes = d.explain()
    assert causes.causes is not None
    assert causes.to_dict() == d.directions[d.strongest].explain().to_dict()
    tuned = d.directions["l0_reverse"].prescribe(target=-0.2)
    assert tuned.reached
    changed = tuned.model.model
    assert np.array_equal(changed.params["layer.weight_hh_l0"], net.params["layer.weight_hh_l0"])
    assert changed.params["layer.weight_hh_l0_reverse"] == pytest.approx(
        tuned.amount * net.params["layer.weight_hh_l0_reverse"]
    )
    assert np.array_equal(net.theta, before)
    with pytest.raises(ArgumentError, match=r"this model has l0, l0_reverse: call diagnosis\.directions\["):
        d.prescribe()


@pytest.mark.parametrize("build", [elman.LSTM, elman.GRU])
def test_paths_of_a_gated_direction_add_up(build):
    d = elman.diagnose(build(3, 8, bidirectional=True, rng=1), inputs(11), rng=0)
    paths = d.directions["l0_reverse"].explain().paths
    assert sum(paths.shares.values()) == pytest.approx(1, abs=1e-9)


def test_reports_pictures_and_dictionaries_have_every_direction():
    net = network(elman.GRU(3, 6, 2, bidirectional=True, rng=1))
    d = elman.diagnose(net, inputs(12), rng=0)
    text = str(d)
    for name in ("l0", "l0_reverse", "l1", "l1_reverse"):
        assert f"--- direction {name} ---" in text
    assert "whole: readout gradient" in text
    assert "l1_reverse" in repr(d)
    back = json.loads(json.dumps(d.to_dict()))
    assert set(back["directions"]) == set(d.directions)
    assert back["whole"]["rate"] == d.whole.rate
    v = d.verify()
    assert json.loads(json.dumps(v.to_dict()))["directions"].keys() == d.directions.keys()
    assert str(v).count("--- direction") == 4
    ax = d.plot()
    labels = [line.get_label() for line in ax.lines]
    assert [label.split(":")[0] for label in labels[:5]] == [*d.directions, "whole, readout"]
    assert ax.lines[1].get_ydata() == pytest.approx(d.directions["l0_reverse"].curve.mean / np.log(10))
    assert v.plot() is not None
    plt.close("all")


def test_what_cannot_be_done_is_refused_by_name():
    x = inputs(13)
    stack = elman.GRU(3, 4, 2, bidirectional=True, rng=0)
    for level in ("forward", "weights"):
        with pytest.raises(ArgumentError, match=f'level "{level}" runs a model piece by piece.*use level="full"'):
            elman.diagnose(stack, x, level=level)
    with pytest.raises(ArgumentError, match="which GRU does not have: put the layer into a network"):
        elman.diagnose(stack, x, np.zeros((24, 2)))
    with pytest.raises(ShapeError, match=r"or \(24, Q\) \(at the last"):
        elman.diagnose(network(stack), x, np.zeros((5, 2)))
    with pytest.raises(ArgumentError, match="start belongs to a Linearization"):
        elman.diagnose(stack, x, start=np.zeros((24, 4)))
    with pytest.raises(ArgumentError, match=r"one_way\(\) has each direction"):
        stack.linearize(x)
    with pytest.raises(ArgumentError, match=r"diagnosis was made with y|prediction was made with y"):
        elman.diagnose(network(stack), x, np.zeros((24, 2)), rng=0).verify(x)


def test_one_seed_gives_one_result_whatever_kind_it_is():
    layer = elman.RNN(3, 5, bidirectional=True, rng=1)
    for make in (lambda: 4, lambda: np.random.default_rng(4)):
        a, b = (elman.diagnose(layer, inputs(14), rng=make()) for _ in range(2))
        assert all(np.array_equal(a.directions[k].curve.logs, b.directions[k].curve.logs) for k in a.directions)


def test_a_whole_that_overflows_is_said_and_the_directions_are_still_predicted():
    layer = elman.RNN(3, 6, nonlinearity="identity", bidirectional=True, dtype="float32", rng=0)
    net = network_of(layer)
    for name in ("weight_hh_l0", "weight_hh_l0_reverse"):
        layer.params[name][...] *= 20
    x = np.zeros((60, 24, 3))
    d = elman.diagnose(net, x, rng=0)
    assert d.verdict == "exploding"
    assert d.whole is None
    assert "whole: not measured, training itself overflows" in str(d)
    assert d.verify().whole is None


def network_of(layer):
    return elman.Network(layer, elman.Readout(layer.output_size, 2, dtype=layer.dtype, rng=7))
