"""Small calls made ready: the same bits as the long way, never stale, and nothing of theirs in what is returned."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import elman
from elman.errors import NonFiniteError
from elman.kernels import parallel
from elman.layers.engine import prepared
from elman.layers.engine.prepared import MOST_CALLS, PreparedCall

MAKERS = {
    "RNN": lambda **options: elman.RNN(3, 5, **options),
    "LSTM": lambda **options: elman.LSTM(3, 5, **options),
    "GRU": lambda **options: elman.GRU(3, 5, **options),
    "projected": lambda **options: elman.LSTM(3, 5, proj_size=2, **options),
}
OPTIONS = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "learned start": {"learn_initial_state": True, "bidirectional": True},
    "no bias": {"bias": False},
}
LENGTHS = [4, 7, 0, 2]


def tupled(state):
    return state if isinstance(state, tuple) else (state,)


def same(one, other):
    return one[0].tobytes() == other[0].tobytes() and all(
        a.tobytes() == b.tobytes() for a, b in zip(tupled(one[1]), tupled(other[1]), strict=True)
    )


def drawn(layer, T=7, B=4, seed=0):
    """Weights, an input and an initial state that are all different from zero."""
    rng = np.random.default_rng(seed)
    layer.theta[:] = rng.standard_normal(layer.theta.size) / 2
    x = rng.standard_normal((T, B, 3)).astype(layer.dtype)
    state = layer(x)[1]
    start = tuple(rng.standard_normal(part.shape).astype(layer.dtype) for part in tupled(state))
    return x, start if isinstance(state, tuple) else start[0]


@pytest.fixture
def long_way(monkeypatch):
    """Evaluate without calls made ready."""

    def evaluate(layer, *args, **options):
        with monkeypatch.context() as patch:
            patch.setattr(PreparedCall, "fits", staticmethod(lambda *_: False))
            return copy.deepcopy(layer)(*args, **options)

    return evaluate


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("maker", MAKERS)
def test_the_same_bits_as_the_long_way(maker, options, lengths, given, dtype, long_way):
    layer = MAKERS[maker](**OPTIONS[options], dtype=dtype, rng=0)
    x, start = drawn(layer)
    start = start if given else None
    expected = long_way(layer, x, start, lengths=lengths)
    for _ in range(3):
        assert same(layer(x, start, lengths=lengths), expected)
    trace = layer.trace(x, start, lengths=lengths)
    assert same((trace.output, trace.hn), expected)


def test_such_calls_are_made_ready():
    """Else this file would compare the long way with itself."""
    layer = elman.RNN(3, 5, rng=0)
    assert PreparedCall.fits(layer.stack, 7, 4)
    assert not PreparedCall.fits(layer.stack, 0, 4)
    assert not PreparedCall.fits(layer.stack, prepared.MOST_NUMBERS, 1)
    assert not PreparedCall.fits(elman.RNN(3, 5, zoneout=0.1, rng=0).stack, 7, 4)


class TestNothingGoesStale:
    @pytest.fixture
    def layer(self):
        return elman.LSTM(3, 5, num_layers=2, rng=0)

    def test_weights_edited_in_place(self, layer, long_way):
        x, _ = drawn(layer)
        for name in layer.params:
            layer.params[name].reshape(-1)[-1] += 1
            assert same(layer(x), long_way(layer, x)), name

    def test_other_shapes_in_turns(self, layer, long_way):
        inputs = [drawn(layer, T, B)[0] for T, B in ((7, 4), (7, 1), (4, 7), (1, 1))]
        inputs += [inputs[0][:, 0], inputs[0].swapaxes(0, 1)]
        for x in inputs * 3:
            assert same(layer(x), long_way(layer, x))

    def test_lengths_resets_and_states_in_turns(self, layer, long_way):
        x, start = drawn(layer)
        reset = np.zeros(x.shape[:2], bool)
        reset[3, 1] = True
        ways = [{}, {"lengths": LENGTHS}, {"h0": start}, {"lengths": LENGTHS[::-1], "h0": start}, {"reset": reset}]
        for way in ways * 3:
            assert same(layer(x, **way), long_way(layer, x, **way))

    def test_a_state_that_overflowed(self, layer):
        layer = elman.RNN(1, 2, nonlinearity="identity", rng=0)
        layer.params["weight_hh_l0"][...] = 1e200
        x = np.ones((5, 1, 1))
        for _ in range(2):
            with pytest.raises(NonFiniteError, match="at step 2 of sample 0"):
                layer(x)
        layer.params["weight_hh_l0"][...] = 0
        assert same(layer(x), copy.deepcopy(layer)(x))

    def test_copies_and_pickles_have_calls_of_their_own(self, layer):
        x, _ = drawn(layer)
        before = layer(x)
        twins = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.copy(layer)]
        assert all(same(twin(x), before) for twin in twins)
        twins[0].theta[:] = 0
        twins[1].theta[:] = 0
        assert same(layer(x), before)
        assert not twins[0](x)[0].any()
        layer.theta[:] = 0
        assert not twins[2](x)[0].any()  # which shares them

    def test_a_network_that_took_the_layer_in(self, layer, long_way):
        x, _ = drawn(layer)
        layer(x)
        network = elman.Network(layer, elman.Readout(5, 2, rng=0))
        network.theta[:] = np.random.default_rng(1).standard_normal(network.theta.size)
        assert same(layer(x), long_way(layer, x))

    def test_several_threads_with_one_layer(self, layer, long_way):
        """Of one shape, and each with its own numbers."""
        several = [drawn(layer, seed=seed) for seed in range(4)]
        expected = [long_way(layer, *each) for each in several]
        wrong = []

        def work(i):
            for _ in range(200):
                if not same(layer(*several[i]), expected[i]):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(several))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_what_is_returned_is_the_callers(long_way):
    layer = elman.LSTM(3, 5, bidirectional=True, rng=0)
    x, _ = drawn(layer)
    output, hn = layer(x, lengths=LENGTHS)
    kept = output.copy(), tuple(part.copy() for part in hn)
    for _ in range(2):
        layer(2 * x, lengths=LENGTHS[::-1])
        layer(3 * x)
    assert same((output, hn), kept)
    output[...], hn[0][...], hn[1][...] = np.nan, np.nan, np.nan
    assert same(layer(x, lengths=LENGTHS), kept)
    assert output.flags.writeable
    assert output.flags.c_contiguous


def test_few_shapes_are_kept():
    layer = elman.RNN(3, 5, rng=0)
    for T in range(1, 4 * MOST_CALLS):
        layer(np.zeros((T, 1, 3)))
    ready = layer._kept.get(layer.theta, layer._pack)
    assert len(ready._calls) <= MOST_CALLS


def test_a_call_that_is_cut_is_not_made_ready(monkeypatch):
    layer = elman.RNN(3, 5, rng=0)
    monkeypatch.setattr(parallel, "SPLIT_FLOPS", 0)
    assert not PreparedCall.fits(layer.stack, 7, 4)


class TestSteps:
    """A stepper's arguments, which are laid out once."""

    @pytest.mark.parametrize("maker", MAKERS)
    def test_kinds_of_input_in_turns(self, maker, dtype):
        """Other dtypes, byte orders, strides and lists take another way to the same step."""
        layer = MAKERS[maker](num_layers=2, dtype=dtype, rng=0)
        drawn(layer)
        x = np.random.default_rng(0).integers(-8, 8, (12, 1, 3)).astype(dtype)
        expected, hn = layer(x)
        for shape in ((1, 3), (3,)):
            step = layer.stepper()
            for t, x_t in enumerate(x):
                ways = [
                    x_t, x_t.astype("f4"), x_t.astype("f8"), x_t.astype(">f8"), np.repeat(x_t, 2, axis=1)[:, ::2],
                    x_t.astype(float).tolist(),
                ]  # fmt: skip
                given = np.reshape(ways[t % 6], shape) if t % 6 < 5 else np.reshape(ways[5], shape).tolist()
                out = step(given)
                assert out.shape == (*shape[:-1], layer.output_size)
                assert np.array_equal(out.reshape(1, -1), expected[t])
            assert all(np.array_equal(a, b) for a, b in zip(tupled(step.state), tupled(hn), strict=True))

    def test_copies_go_on_by_themselves(self):
        layer = elman.GRU(3, 5, num_layers=2, rng=0)
        x, _ = drawn(layer, 6, 1)
        step = layer.stepper()
        step(x[0])
        twins = [copy.copy(step), copy.deepcopy(step), pickle.loads(pickle.dumps(step))]
        for twin in twins:
            twin(x[5])
        for t in range(1, 6):
            assert np.array_equal(step(x[t]), layer(x)[0][t])
