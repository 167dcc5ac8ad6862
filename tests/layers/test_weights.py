"""Weights: what was computed from them, what comes in, what a copy shares, and what is refused of them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, NonFiniteError, StateDictError
from elman.layers.engine.kept import CHUNK, Version

X = np.random.default_rng(0).standard_normal((5, 4, 3))


def layer(kind=elman.LSTM, **options):
    return kind(3, 6, **{"rng": 0, "learn_initial_state": True, **options})


def network(at="steps", rng=0, dtype="float64", **options):
    return elman.Network(layer(rng=rng, dtype=dtype, **options), elman.MLP(6, 5, 2, rng=rng, dtype=dtype), at=at)


MODELS = {
    "layer": layer,
    "stack": lambda **options: layer(elman.GRU, num_layers=2, **options),
    "both ways": lambda **options: elman.RNN(3, 6, bidirectional=True, **{"rng": 0, **options}),
    "projected": lambda **options: layer(proj_size=2, **options),
    "network": network,
    "at end": lambda **options: network("end", **options),
    "Readout": lambda **options: elman.Readout(3, 2, **{"rng": 0, **options}),
    "MLP": lambda **options: elman.MLP(3, 4, 2, **{"rng": 0, **options}),
}


@pytest.fixture(params=MODELS)
def make(request):
    return MODELS[request.param]


def gradient(model, trace):
    return model.backward(trace, np.ones(np.shape(trace.output))).theta


def options_of(model):
    """Ways to trace it."""
    return [{}, {"checkpoint": True}] if hasattr(model, "batch_first") or hasattr(model, "layer") else [{}]


class TestTracesKnowTheirWeights:
    def test_a_change_of_any_parameter_is_noticed(self, make):
        model = make()
        for options in options_of(model):
            for name, view in model.params.items():
                trace = model.trace(X, **options)
                right = gradient(model, trace).copy()
                place = view.reshape(-1)[-1:]
                before = place.copy()
                place[0] = np.nextafter(before[0], 9.0)
                with pytest.raises(ArgumentError, match=rf"{name} is not what it was .*call trace\(\) again"):
                    gradient(model, trace)
                place[:] = before  # the weights it was made with are there again
                assert np.array_equal(gradient(model, trace), right)

    def test_every_way_to_change_them(self, make):
        def load(model):
            model.load_state_dict({name: value + 0.5 for name, value in model.state_dict().items()})

        def scale(model):
            model.theta[:] *= 1.5

        def step(model):
            elman.SGD(0.1).step(model.theta, np.ones_like(model.theta))

        for change in (load, scale, step):
            model = make()
            trace = model.trace(X)
            change(model)
            with pytest.raises(ArgumentError, match="is not what it was"):
                gradient(model, trace)
            assert np.isfinite(gradient(model, model.trace(X))).all()

    def test_a_trace_of_another_layer_of_equal_sizes(self, make):
        model, other = make(), make(rng=1)
        with pytest.raises(ArgumentError, match="or the trace is of another layer"):
            gradient(model, other.trace(X))
        twin = pickle.loads(pickle.dumps(model))  # of equal weights the gradient is the same
        assert np.array_equal(gradient(model, twin.trace(X)), gradient(model, model.trace(X)))

    def test_other_parameters_of_equal_sizes(self):
        for one, two in (({"bias": False}, {}), ({"learn_initial_state": False}, {})):
            with pytest.raises(ArgumentError, match="trace must be of this layer"):
                gradient(layer(**one), layer(**two).trace(X))

    def test_what_else_goes_back(self):
        model = layer(elman.RNN)
        trace = model.trace(X)
        model.params["weight_hh_l0"][2, 1] += 1
        with pytest.raises(ArgumentError, match="weight_hh_l0 is not what it was"):
            model.weight_norms(trace, np.ones(trace.output.shape))
        net = network(kind=elman.RNN)
        trace = net.trace(X)
        net.readout.params["bias_ho"][1] += 1
        with pytest.raises(ArgumentError, match=r"readout\.bias_ho is not what it was"):
            gradient(net, trace)
        net.layer.backward(trace.layer, np.ones(trace.layer.output.shape))  # which the readout is no part of

    def test_training_with_kept_memory_goes_on(self):
        net = network()
        history = elman.fit(
            net, X, X[..., :2], epochs=3, batch_size=2, truncation=2, checkpoint=2, progress=False, rng=0
        )
        assert history.updates == 3 * 2 * 3

    def test_linearizations_and_steppers_are_snapshots(self):
        net = network(kind=elman.RNN)
        lin, stepper = net.linearize(X), net.layer.stepper(4)
        J, expected, outputs = lin.jacobian(1, 2).copy(), lin.vjp(np.ones((4, 6))), net.layer(X)[0]
        net.loss_start(X, lin=lin, rng=0)
        net.theta[:] *= 1.5
        assert np.array_equal(lin.jacobian(1, 2), J)
        assert np.array_equal(lin.vjp(np.ones((4, 6))), expected)
        assert np.array_equal([stepper(x).copy() for x in X], outputs)
        with pytest.raises(
            ArgumentError, match=r"lin must be of the weights as they are now, but \w+ has been changed"
        ):
            net.loss_start(X, lin=lin, rng=0)

    @pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
    def test_a_version_finds_the_first_change(self, size, dtype):
        theta = np.zeros(size, dtype)
        version = Version.of(theta)
        assert version.same(theta)
        assert not version.same(theta[1:])
        for place in {0, size // 2, size - 1}:
            theta[place] = -0.0
            assert not version.same(theta)
            assert version.first_change(theta) == place
            theta[place] = 0.0


class TestLoading:
    def test_numbers_come_in_exactly_or_not_at_all(self, make):
        source = make()
        weights = {name: value + 0.1 for name, value in source.state_dict().items()}
        model = make(dtype="float32")
        before = model.theta.copy()
        with pytest.raises(StateDictError, match=r'holds exactly, got .*dtype="float64".*np\.asarray\(w, "float32"\)'):
            model.load_state_dict(weights)
        assert np.array_equal(model.theta, before)
        rounded = {name: value.astype(np.float32) for name, value in weights.items()}
        model.load_state_dict(rounded)
        model.load_state_dict({name: value.astype(np.float64) for name, value in rounded.items()})
        assert all(np.array_equal(model.params[name], value) for name, value in rounded.items())

    def test_one_number_decides(self):
        readout = elman.Readout(2, 1, dtype="float32")
        for value in (0.5, -0.0, 1e-45, 2.0**100, np.finfo(np.float32).max):  # as float32 has them
            exact = float(np.float32(value))
            readout.load_state_dict({"weight": np.array([[1.0, exact]]), "bias": np.zeros(1)})
            assert readout.params["weight"][0, 1] == np.float32(value)
        for value in (0.1, 1 + 2**-30, 1e-60, 2.0**24 + 1):
            with pytest.raises(StateDictError, match=r"weight must hold .* at index \(0, 1\).*1 such"):
                readout.load_state_dict({"weight": np.array([[1.0, value]]), "bias": np.zeros(1)})
        with pytest.raises(ArgumentError, match="weight must be finite"):
            readout.load_state_dict({"weight": np.array([[1.0, 1e60]]), "bias": np.zeros(1)})
        wide = elman.Readout(2, 1)
        wide.load_state_dict({"weight": np.array([[0.1, 0.2]], np.float32), "bias": np.zeros(1, np.float16)})
        if np.finfo(np.longdouble).nmant > 52:
            third = np.longdouble(1) / 3
            with pytest.raises(StateDictError, match="float64 holds exactly"):
                wide.load_state_dict({"weight": np.array([[1, third]]), "bias": np.zeros(1)})

    def test_what_is_no_array_is_refused_with_its_name(self):
        torch = pytest.importorskip("torch")
        with pytest.raises(DTypeError, match="weight must be an array of numbers"):
            elman.Readout(2, 1).load_state_dict({"weight": torch.zeros(1, 2, requires_grad=True), "bias": np.zeros(1)})


WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda made: pickle.loads(pickle.dumps(made))}


@pytest.mark.parametrize("way", WAYS)
class TestCopies:
    def test_models(self, make, way):
        model = make()
        expected = gradient(model, model.trace(X))
        twin = WAYS[way](model)
        for one in (model, twin, model):
            one(X)
            one.load_state_dict(one.state_dict())
            assert np.array_equal(gradient(one, one.trace(X)), expected)
        before = model.theta.copy()
        twin.theta[:] *= 0.5
        assert np.array_equal(model.theta, before * 0.5 if way == "copy" else before)
        assert list(twin.params) == list(model.params)
        if hasattr(twin, "layer"):
            assert np.shares_memory(twin.theta, twin.layer.theta)
            assert np.shares_memory(twin.theta, twin.readout.theta)
        assert twin.theta[0] == next(iter(twin.params.values())).flat[0]

    def test_a_shallow_copy_can_be_trained(self, way):
        net = network()
        twin, y = WAYS[way](net), X[..., :2]
        elman.fit(twin, X, y, epochs=2, progress=False, rng=0)
        other = network()
        elman.fit(other, X, y, epochs=2, progress=False, rng=0)
        assert np.array_equal(twin.theta, other.theta)
        assert np.array_equal(net.theta, twin.theta) == (way == "copy")

    def test_traces(self, make, way):
        model = make()
        for options in options_of(model):
            trace = model.trace(X, **options)
            expected = gradient(model, trace).copy()
            twin = WAYS[way](trace)
            assert np.array_equal(gradient(model, twin), expected)
            assert np.array_equal(twin.output, trace.output)
            model.theta[0] += 1
            with pytest.raises(ArgumentError, match="is not what it was"):
                gradient(model, twin)

    def test_optimizers(self, way):
        for made in (elman.SGD(0.1, 0.9), elman.Adam(0.1)):
            theta, g = np.ones(4), np.array([1.0, -2.0, 0.5, 3.0])
            made.step(theta, g)
            twin, own = WAYS[way](made), theta.copy()
            for _ in range(3):  # in turns: neither disturbs the other
                made.step(theta, g)
                twin.step(own, g)
                assert np.array_equal(theta, own)

    def test_steppers(self, way):
        model = layer()
        stepper, expected = model.stepper(4), model(X)[0]
        stepper(X[0])
        twin = WAYS[way](stepper)
        for t in range(1, 5):
            assert np.array_equal(stepper(X[t]), expected[t])
            assert np.array_equal(twin(X[t]), expected[t])


class TestNonFinite:
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_any_parameter_is_refused_by_name_before_the_pass(self, make, value):
        model = make()
        right = np.array(model(X)[0] if isinstance(model(X), tuple) else model(X))
        for name, view in model.params.items():
            place = view.reshape(-1)[-1:]
            before = place.copy()
            place[0] = value
            for run in (model, model.trace):
                with pytest.raises(NonFiniteError, match=rf"^{name} holds numbers that are not finite") as caught:
                    run(X)
                assert caught.value.what == "parameter"
            place[:] = before
            again = model(X)
            assert np.array_equal(again[0] if isinstance(again, tuple) else again, right)

    def test_where_it_would_not_show(self):
        """An infinite weight makes tanh 1 and a gate 0 or 1: finite outputs of a network that is broken."""
        model = elman.RNN(3, 6, rng=0)
        model.params["weight_ih_l0"][:] = np.inf
        with pytest.raises(NonFiniteError, match="weight_ih_l0"):
            model(np.ones((5, 4, 3)))
        for run in (lambda: model.stepper(4), lambda: model.linearize(X), lambda: elman.diagnose(model, X)):
            with pytest.raises(NonFiniteError, match="weight_ih_l0 holds numbers"):
                run()

    def test_fit_names_the_parameter_at_once_and_later(self):
        y, seen = X[..., :2], []
        for name in network().params:
            net = network()
            net.params[name].flat[-1] = np.nan
            with pytest.raises(NonFiniteError, match=f"{name} holds numbers that are not finite"):
                elman.fit(net, X, y, epochs=1, callbacks=[seen.append], progress=False)
        assert not seen
        for name in ("readout.weight_ho", "layer.weight_hh_l0"):
            net = network()

            def spoil(update, name=name):
                update.model.params[name].flat[0] = np.nan

            with pytest.raises(NonFiniteError, match=rf"{name} holds numbers that are not finite.*\(in epoch 1"):
                elman.fit(net, X, y, epochs=3, callbacks=[spoil], progress=False)

    def test_fit_names_the_parameter_of_any_model(self):
        class Line:
            batch_axis, time_axis = 0, None

            def __init__(self):
                self.theta = np.ones(3)
                self.params = {"slope": self.theta[:2], "offset": self.theta[2:]}

            def trace(self, x, state=None):
                return type("Trace", (), {"output": x @ self.theta[:2, None] + self.theta[2], "hn": None})

            def backward(self, trace, d_output):
                return type("Gradients", (), {"theta": np.zeros(3)})

        for index, name in ((1, "slope"), (2, "offset")):
            model = Line()
            model.theta[index] = np.nan
            with pytest.raises(NonFiniteError, match=f"{name} holds numbers that are not finite"):
                elman.fit(model, np.ones((4, 2)), np.ones((4, 1)), epochs=1, progress=False)
        model, late = Line(), []

        def spoil(update):
            late.append(update.step)
            model.theta[2] = np.inf

        with pytest.raises(NonFiniteError, match="offset holds numbers that are not finite") as caught:
            elman.fit(model, np.ones((4, 2)), np.ones((4, 1)), epochs=3, callbacks=[spoil], progress=False)
        assert (late, caught.value.what) == ([0], "parameter")
