"""Checkpoints: the bits of a pass that keeps every state, in less memory, for layers, networks and ``fit``."""

import copy
import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, NonFiniteError
from elman.layers.engine.buffers import Buffers
from elman.layers.trace import spacing
from elman.monitor import Monitor
from elman.testing import check_gradients

KINDS = {
    "tanh": (elman.RNN, {}),
    "sigmoid": (elman.RNN, {"nonlinearity": "sigmoid"}),
    "LSTM": (elman.LSTM, {}),
    "LSTM-proj": (elman.LSTM, {"proj_size": 4}),
    "GRU": (elman.GRU, {}),
    "GRU-before": (elman.GRU, {"reset_after": False}),
    "MGU": (elman.MGU, {}),
}


def parts(state):
    return state if isinstance(state, tuple) else (state,)


def like(state):
    """The same structure again: an LSTM's pair, or one array."""
    return tuple(state) if len(state) > 1 else state[0]


def make(kind, rng, layers=1, H=7, **options):
    build, fixed = KINDS[kind]
    layer = build(3, H, layers, **fixed, **options)
    layer.theta[:] = rng.uniform(-0.6, 0.6, layer.theta.size)
    return layer


def bits(layer, x, h0, d_output, d_hn, checkpoint, **options):
    """Every number of a forward and a backward pass, by name, as bytes."""
    trace = layer.trace(x, h0, checkpoint=checkpoint, **options)
    grads = layer.backward(trace, d_output, d_hn, need_x=True)
    arrays = {"output": trace.output, "theta": grads.theta, "x": grads.x}
    for name, state in (("hn", trace.hn), ("h0", grads.h0)):
        arrays |= {f"{name}[{i}]": part for i, part in enumerate(parts(state))}
    if hasattr(grads, "state_norms"):
        arrays["state_norms"] = grads.state_norms
    return {name: np.ascontiguousarray(a).tobytes() for name, a in arrays.items()}


def problem(kind, rng, dtype):
    """A layer with options drawn at random, and the arguments of a pass."""
    layers, both, batch_first = int(rng.integers(1, 3)), bool(rng.integers(2)), bool(rng.integers(2))
    zoneout = rng.choice([0.0, 0.3])
    layer = make(
        kind, rng, layers, bidirectional=both, batch_first=batch_first, zoneout=zoneout, dtype=dtype,
        dropout=0.2 * (layers - 1), recurrent_dropout=rng.choice([0.0, 0.3]), bias=bool(rng.integers(2)),
        learn_initial_state=bool(rng.integers(2)),
    )  # fmt: skip
    T, B = int(rng.integers(0, 30)), int(rng.integers(0, 7))
    options = {"training": bool(rng.integers(2))}
    if options["training"]:
        options["rng"] = int(rng.integers(2**31))
    x = rng.standard_normal((T, B, 3)).astype(dtype)
    if rng.integers(2):
        options["lengths"] = rng.integers(0, T, B, endpoint=True)
        x[np.arange(T)[:, None] >= options["lengths"]] = np.nan
    if rng.integers(2):
        reset = rng.random((T, B)) < 0.15
        options["reset"] = reset.T if batch_first else reset
    state = [rng.standard_normal((layer.states.directions, B, n)).astype(dtype) for n in layer.states.sizes]
    h0 = like(state) if rng.integers(2) else None
    d_hn = like([rng.standard_normal(part.shape).astype(dtype) for part in state])
    d_output = rng.standard_normal((T, B, layer.output_size)).astype(dtype)
    if batch_first:
        x, d_output = x.swapaxes(0, 1), d_output.swapaxes(0, 1)
    return layer, (x, h0, d_output if rng.integers(3) else None, d_hn), options, T


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_are_those_of_a_pass_that_keeps_every_state(kind, seed, dtype):
    rng = np.random.default_rng([seed, dtype.itemsize])
    layer, arguments, options, T = problem(kind, rng, dtype)
    kept = bits(layer, *arguments, False, **options)
    for checkpoint in (True, 1, int(rng.integers(1, T + 2)), T + 5):
        assert bits(layer, *arguments, checkpoint, **options) == kept, f"checkpoint={checkpoint} of T={T}"


@pytest.mark.parametrize(("T", "B"), [(0, 3), (0, 0), (5, 0), (1, 1)])
@pytest.mark.parametrize("kind", ["tanh", "LSTM", "GRU"])
def test_nothing_to_do_is_done(kind, T, B):
    rng = np.random.default_rng(0)
    layer, x = make(kind, rng, 2, bidirectional=True), rng.standard_normal((T, B, 3))
    for checkpoint in (True, 1, 4):
        trace = layer.trace(x, checkpoint=checkpoint)
        assert trace.output.shape == (T, B, 14)
        same = bits(layer, x, None, trace.output, trace.hn, checkpoint)
        assert same == bits(layer, x, None, trace.output, trace.hn, False)


def test_wide_layers_whose_inputs_are_projected_together_and_two_threads(restore_threads):
    rng = np.random.default_rng(1)
    layer = elman.LSTM(90, 100, rng=0)  # W_ih above what is projected step by step
    for B in (1, 33):
        x, d_output = rng.standard_normal((150, B, 90)), rng.standard_normal((150, B, 100))
        elman.set_num_threads(1)
        kept = bits(layer, x, None, d_output, None, False)
        for threads in (1, 2):
            elman.set_num_threads(threads)
            assert bits(layer, x, None, d_output, None, True) == kept


def test_spacing():
    assert spacing(False, 100) == spacing(np.False_, 100) == 0
    assert spacing(True, 100_000) == 317  # the least n with n * n >= T
    assert [spacing(True, T) for T in (0, 1, 2, 9, 10)] == [1, 1, 2, 3, 4]
    assert spacing(np.int32(7), 3) == 7


@pytest.mark.parametrize(
    ("checkpoint", "error"),
    [(0, ArgumentError), (-3, ArgumentError), (2.0, DTypeError), ("True", DTypeError), (None, DTypeError)],
)
def test_what_is_no_spacing_is_refused(checkpoint, error):
    net, x = elman.Network(elman.GRU(3, 5, rng=0), elman.Readout(5, 1, rng=1)), np.zeros((4, 2, 3))
    before = net.theta.copy()
    for call in (
        lambda: net.layer.trace(x, checkpoint=checkpoint),
        lambda: net.trace(x, checkpoint=checkpoint),
        lambda: elman.fit(net, x, x[..., :1], checkpoint=checkpoint, epochs=1, progress=False),
    ):
        with pytest.raises(error, match="checkpoint must be"):
            call()
    assert np.array_equal(net.theta, before)


def test_what_is_not_kept_says_why():
    layer, x = elman.LSTM(3, 5, 2, rng=0), np.ones((9, 2, 3))
    trace = layer.trace(x, checkpoint=4)
    assert trace.checkpoint == 4
    for mapping, name in ((trace.states, "h_l0"), (trace.gates, "f_l1")):
        assert len(mapping) == 0
        assert name not in mapping
        assert mapping.get(name) is None
        with pytest.raises(KeyError, match=f"{name}.*states before every 4 steps.*leave checkpoint out"):
            mapping[name]
    assert repr(trace) == f"Trace(output (9, 2, 5), checkpoint=4, {trace.nbytes / 1e3:.3g} kB)"
    whole = layer.trace(x)
    assert whole.checkpoint == 0
    assert "h_l0" in repr(whole)
    with pytest.raises(KeyError, match="'h_l2' is not in this trace, which has h_l0, c_l0, h_l1, c_l1"):
        whole.states["h_l2"]
    with pytest.raises(KeyError, match="which has none"):
        elman.RNN(3, 5, rng=0).trace(x).gates["h_l0"]


@pytest.mark.parametrize("kind", KINDS)
def test_weight_norms_and_final_output_are_those_of_all_states(kind):
    rng = np.random.default_rng(2)
    layer, x = make(kind, rng, 2, bidirectional=True), rng.standard_normal((13, 4, 3))
    whole, few = layer.trace(x), layer.trace(x, checkpoint=5)
    d_output = rng.standard_normal(whole.output.shape)
    assert np.array_equal(layer.weight_norms(few, d_output), layer.weight_norms(whole, d_output))
    assert np.array_equal(few.final_output, whole.final_output)


def test_gradients_are_derivatives():
    rng = np.random.default_rng(3)
    layer, x = make("LSTM", rng, 2, bidirectional=True, dropout=0.3, zoneout=0.2), rng.standard_normal((11, 3, 3))
    check_gradients(layer, x, checkpoint=4, training=True, lengths=[11, 0, 6])
    check_gradients(elman.Network(layer, elman.MLP(14, 6, 2, rng=0), at="end"), x, checkpoint=True, training=False)


def test_traces_stay_valid_beside_each_other_and_can_be_used_again_and_pickled():
    rng = np.random.default_rng(4)
    layer = make("GRU", rng, 2)
    xs = [rng.standard_normal((T, 3, 3)) for T in (20, 31)]
    wanted = [layer.backward(layer.trace(x), np.ones((len(x), 3, 7))).theta for x in xs]
    traces = [layer.trace(x, checkpoint=6) for x in xs]
    again = pickle.loads(pickle.dumps(traces[0]))
    for i in (0, 1, 0):
        assert np.array_equal(layer.backward(traces[i], np.ones((len(xs[i]), 3, 7))).theta, wanted[i])
    assert np.array_equal(layer.backward(again, np.ones((20, 3, 7))).theta, wanted[0])


def test_reused_memory_and_threads_of_the_caller():
    rng = np.random.default_rng(5)
    layer = make("LSTM", rng, 2)
    xs = [rng.standard_normal((int(T), 2, 3)) for T in rng.integers(1, 60, 24)]

    def theta(x, checkpoint, **memory):
        trace = layer.trace(x, checkpoint=checkpoint, **memory)
        return layer.backward(trace, np.ones(trace.output.shape), **memory).theta.copy()

    wanted = [theta(x, False) for x in xs]
    buffers = Buffers()
    for x, right in zip(xs, wanted, strict=True):
        assert np.array_equal(theta(x, True, buffers=buffers), right)
    with ThreadPoolExecutor(3) as pool:
        for got, right in zip(pool.map(lambda x: theta(x, True), xs), wanted, strict=True):
            assert np.array_equal(got, right)


def failure(call):
    with pytest.raises(NonFiniteError) as caught:
        call()
    error = caught.value
    return str(error), error.what, error.layer, error.gate, error.step, error.sample


def test_an_overflow_is_placed_at_the_same_step_and_sample():
    places = set()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        layer = elman.RNN(
            3, 6, 2, nonlinearity=rng.choice(["identity", "relu"]), bidirectional=bool(seed % 2), dtype="float32",
            zoneout=0.1 * (seed % 3 == 0), rng=seed,
        )  # fmt: skip
        layer.theta[:] = rng.uniform(0, 4, layer.theta.size)
        x = rng.uniform(0, 1, (60, 5, 3)).astype("float32")
        options = {"training": False}
        if seed % 4 > 1:
            options |= {"lengths": rng.integers(40, 61, 5), "reset": rng.random((60, 5)) < 0.01}
        whole = failure(lambda layer=layer, x=x, o=options: layer.trace(x, **o))
        places.add(whole[-2:])
        for checkpoint in (True, 1, 7, 100):
            assert failure(lambda layer=layer, x=x, o=options, n=checkpoint: layer.trace(x, checkpoint=n, **o)) == whole
    assert len(places) > 5


def test_an_overflow_of_the_gradient_is_placed_at_the_same_step_and_sample():
    layer = elman.RNN(2, 6, nonlinearity="identity", weight_hh_init="orthogonal", dtype="float32", rng=0)
    layer.params["weight_hh_l0"][...] *= 4  # from the zero state with no input all states are 0
    x, d_hn = np.zeros((100, 3, 2), "float32"), np.zeros((1, 3, 6), "float32")
    d_hn[0, 2] = 1
    whole = failure(lambda: layer.backward(layer.trace(x), None, d_hn))
    assert whole[1:4] == ("gradient", "rnn_l0", "h")
    assert whole[5] == 2
    for checkpoint in (True, 7):
        assert failure(lambda n=checkpoint: layer.backward(layer.trace(x, checkpoint=n), None, d_hn)) == whole


def peak(call):
    """Most bytes allocated during a call, in a thread whose scratch memory is empty."""
    found = []

    def run():
        tracemalloc.start()
        try:
            call()
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize(("kind", "layers", "share"), [("LSTM", 1, 0.3), ("GRU", 2, 0.5), ("MGU", 1, 0.6)])
def test_memory_of_a_long_sequence(kind, layers, share):
    T, H = 20_000, 32
    rng = np.random.default_rng(0)
    layer, x = make(kind, rng, layers, H=H, dtype="float32"), rng.standard_normal((T, 1, 3)).astype("float32")

    def run(checkpoint):
        trace = layer.trace(x, checkpoint=checkpoint)
        layer.backward(trace, None, trace.hn, need_x=False)

    run(141)  # compile
    whole, few = peak(lambda: run(False)), peak(lambda: run(141))
    assert few < share * whole
    layout = layer.stack.layouts[0]
    kept = layers * T * (layout.s_rs + layout.g_rs) * 4
    assert whole - few > 0.6 * (kept - layers * T * H * 4)  # all states and gates but each layer's output
    assert peak(lambda: run(T)) > 0.9 * whole / layers  # one window holds all of a direction at once


def test_without_the_output_memory_does_not_grow_with_the_sequence():
    rng = np.random.default_rng(0)
    layer, x = make("LSTM", rng, H=32, dtype="float32"), rng.standard_normal((40_000, 1, 3)).astype("float32")

    def run(T, **options):
        trace = layer.trace(x[:T], checkpoint=True, **options)
        return trace, layer.backward(trace, None, trace.hn, need_x=False)

    run(100)
    long, short = (peak(lambda T=T: run(T, keep_output=False)) for T in (40_000, 20_000))
    # what is left: a number for the norm of each state and its square, and one of the states before each window
    assert long - short < 20_000 * 100
    with_output, without = run(5000), run(5000, keep_output=False)
    assert without[0].output is None
    assert np.array_equal(with_output[1].theta, without[1].theta)
    with pytest.raises(ArgumentError, match="keep_output=False"):
        layer.backward(without[0], np.ones((5000, 1, 32)))
    with pytest.raises(ArgumentError, match="keep_output must be True without a checkpoint"):
        layer.trace(x[:9], keep_output=False)


def test_true_is_the_square_root_or_what_the_caches_hold():
    assert spacing(True, 100_000, 50) == 317
    assert spacing(True, 100_000, 2000) == 2000
    assert spacing(True, 300, 2000) == 300
    assert spacing(True, 0, 2000) == 1
    assert spacing(7, 100, 2000) == 7
    assert spacing(False, 100, 2000) == 0


def trained(checkpoint, layer=elman.LSTM, dtype="float64", readout="steps", every=1, **options):
    """Parameters and history of a training."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((24, 20, 2)).astype(dtype)
    y = np.cumsum(x, axis=0)[:, :, :1] / 5 if readout == "steps" else x.sum(axis=0)[:, :1]
    made = layer(2, 6, 2, dropout=0.2, zoneout=0.1, dtype=dtype, rng=1)
    net = elman.Network(made, elman.Readout(6, 1, dtype=dtype, rng=2), at=readout)
    history = elman.fit(
        net, x, y, epochs=2, batch_size=8, validation=(x[:, :5], y[:, :5] if readout == "steps" else y[:5]),
        checkpoint=checkpoint, progress=False, rng=3, **options,
    )  # fmt: skip
    return net.theta.tobytes(), history.loss, history.validation_loss, history.gradient_norm


@pytest.mark.parametrize("cell", [elman.RNN, elman.LSTM, elman.GRU])
@pytest.mark.parametrize(
    "options",
    [{}, {"truncation": 7}, {"lengths": np.arange(20) + 3}, {"reset": np.random.default_rng(0).random((24, 20)) < 0.1}],
    ids=lambda options: "".join(options) or "plain",
)
def test_fit_ends_with_the_same_parameters(cell, options, dtype):
    whole = trained(False, cell, dtype, **options)
    for checkpoint in (True, 1, 5, 99):
        assert trained(checkpoint, cell, dtype, **options) == whole


def test_fit_of_a_network_that_reads_the_end():
    assert trained(True, readout="end") == trained(False, readout="end")


def test_fit_takes_less_memory_validation_included():
    T = 20_000
    x = np.random.default_rng(0).standard_normal((T, 1, 1)).astype("float32")
    y = np.ones((1, 1), "float32")

    def run(checkpoint, steps=T):
        net = elman.Network(elman.LSTM(1, 32, dtype="float32", rng=0), elman.Readout(32, 1, dtype="float32", rng=1))
        elman.fit(net, x[:steps], y, validation=(x[:steps], y), epochs=1, checkpoint=checkpoint, progress=False)

    run(141, 10)
    assert peak(lambda: run(141)) < 0.5 * peak(lambda: run(False))


class Mean:
    """y = w times the mean of x over time; says which keywords its trace was given."""

    batch_axis, time_axis = 1, 0

    def __init__(self):
        self.theta, self.given = np.ones(1), []
        self.params = {"w": self.theta}

    def trace(self, x, state=None):
        return SimpleNamespace(output=x * self.theta, hn=None, x=x)

    def backward(self, trace, d_output):
        return SimpleNamespace(theta=np.array([(trace.x * d_output).sum()]))


class Told(Mean):
    trace_options = ("checkpoint",)

    def trace(self, x, state=None, checkpoint="not said"):
        self.given.append(checkpoint)
        return Mean.trace(self, x, state)


def test_models_of_others():
    x = np.random.default_rng(0).standard_normal((6, 4, 1))
    plain = Mean()
    elman.fit(plain, x, 2 * x, epochs=1, progress=False)  # as before
    before = plain.theta.copy()
    with pytest.raises(ArgumentError, match="checkpoint must be left out: the trace of Mean takes none"):
        elman.fit(plain, x, 2 * x, epochs=1, checkpoint=True, progress=False)
    assert np.array_equal(plain.theta, before)
    with pytest.raises(ArgumentError, match="the trace of MLP takes none"):
        elman.fit(elman.MLP(1, 3, 1, rng=0), x[0], x[0], epochs=1, checkpoint=2, progress=False)
    for checkpoint, given in ((False, {"not said"}), (True, {"not said", True}), (3, {"not said", 3})):
        told = Told()
        elman.fit(told, x, 2 * x, epochs=1, validation=(x, x), checkpoint=checkpoint, progress=False)
        assert set(told.given) == given  # "not said" when asked for the shape of its output
        assert told.given[-2:] == [checkpoint or "not said"] * 2


def test_a_monitor_and_other_callbacks_see_what_they_see_without():
    def readings(checkpoint):
        seen, monitor = [], Monitor(every=2, threshold=1e3)  # no warning
        x = np.random.default_rng(0).standard_normal((30, 16, 2))
        net = elman.Network(elman.GRU(2, 8, rng=0), elman.Readout(8, 1, rng=1))
        elman.fit(net, x, x.sum(axis=0)[:, :1], epochs=2, batch_size=8, checkpoint=checkpoint, progress=False, rng=0,
                  callbacks=[monitor, lambda u: seen.append(u.gradients.state_norms.tobytes())])  # fmt: skip
        return monitor.to_dict()["readings"], seen

    assert readings(True) == readings(False)


def test_an_overflow_in_fit_names_the_same_place():
    def run(checkpoint):
        layer = elman.RNN(2, 6, nonlinearity="identity", dtype="float32", rng=0)
        layer.params["weight_hh_l0"][...] *= 30
        net = elman.Network(layer, elman.Readout(6, 1, dtype="float32", rng=1))
        x = np.random.default_rng(0).standard_normal((80, 9, 2)).astype("float32")
        elman.fit(net, x, x[..., :1], epochs=1, batch_size=4, checkpoint=checkpoint, progress=False, rng=0)

    whole = failure(lambda: run(False))
    assert "in epoch 0, update 0" in whole[0]
    assert failure(lambda: run(True)) == failure(lambda: run(11)) == whole


def test_a_network_reads_the_same_after_a_copy():
    rng = np.random.default_rng(6)
    net = elman.Network(make("LSTM", rng, 2), elman.Readout(7, 2, rng=0))
    x, d = rng.standard_normal((21, 3, 3)), rng.standard_normal((21, 3, 2))
    for other in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert bits(other, x, None, d, None, True) == bits(net, x, None, d, None, False)
