"""Zoneout in compiled loops: the same bits however it is run, in one call of a loop; its equation is in test_layers."""

import itertools

import numpy as np
import pytest
from layer_kinds import KINDS, LENGTHS, initial, make, same

import elman
from elman.cells import zoneout
from elman.kernels import parallel
from elman.layers.engine import direction
from elman.layers.engine.noise import Regularizer
from elman.testing import check_adjoint

RATES = {"LSTM": (0.3, 0.6), "LSTM-proj": (0.3, 0.6)}


def zoned(kind, layers=1, both=False, **options):
    return make(kind, layers, both, zoneout=RATES.get(kind, (0.4,)), **options)


@pytest.mark.parametrize(("kind", "both"), list(itertools.product(KINDS, (False, True))))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_evaluation_gives_the_bits_of_a_trace(kind, both, dtype):
    """It keeps two states where the trace keeps all; with restarts and lengths of both parities."""
    rng = np.random.default_rng(0)
    layer, x = zoned(kind, 2, both, dtype=dtype), rng.standard_normal((6, 5, 3)).astype(dtype)
    reset = rng.random((6, 5)) < 0.3
    h0 = initial(layer, rng)
    for options in ({}, {"lengths": LENGTHS}, {"lengths": LENGTHS, "reset": reset}):
        output, hn = layer(x, h0, **options)
        trace = layer.trace(x, h0, training=False, **options)
        assert np.array_equal(output, trace.output)
        assert same(hn, trace.hn)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [False, True])
def test_threads_and_projected_inputs_give_the_same_bits(kind, training, monkeypatch):
    rng = np.random.default_rng(1)
    layer, x = zoned(kind), rng.standard_normal((9, 13, 3))

    def passes():
        results = []
        for given in (x, x[:, :2]):  # with two rows, inputs may be projected ahead
            d_output = np.ones((*given.shape[:2], layer.output_size))
            trace = layer.trace(given, training=training, rng=7 if training else None)
            grads = layer.backward(trace, d_output)
            results += [trace.output, grads.x, grads.state_norms, *grads.params.values(), layer(given)[0]]
        lin = layer.linearize(x)
        results.append(lin.jvp(np.ones((13, lin.state_size)), 0, 9))
        return results

    expected = passes()
    monkeypatch.setattr(direction, "PROJECT_BYTES", 0)
    monkeypatch.setattr(parallel, "SPLIT_FLOPS", 0)
    before = elman.get_num_threads()
    elman.set_num_threads(3)
    try:
        assert all(np.array_equal(a, b) for a, b in zip(passes(), expected, strict=True))
    finally:
        elman.set_num_threads(before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_is_one_call_of_a_loop(kind, monkeypatch):
    """Whatever the number of steps: no step goes through Python."""
    calls = []
    for name in ("forward", "backward", "tangent"):
        loop = getattr(zoneout, name)
        monkeypatch.setattr(zoneout, name, lambda *args, loop=loop, name=name: (calls.append(name), loop(*args))[1])
    layer, x = zoned(kind), np.random.default_rng(0).standard_normal((40, 2, 3))
    layer(x)
    trace = layer.trace(x, training=True, rng=0)
    layer.backward(trace, trace.output)
    lin = layer.linearize(x)
    lin.jvp(np.ones((2, lin.state_size)), 0, 40)
    assert calls == ["forward", "forward", "backward", "forward", "tangent"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_backward_loop_is_the_transpose_of_the_tangent_loop(kind):
    check_adjoint(zoned(kind).linearize(np.random.default_rng(3).standard_normal((6, 4, 3))), rng=0)


def test_a_state_that_stops_being_finite_is_reported_at_its_step():
    layer = make("relu", zoneout=0.1)
    layer.params["weight_hh_l0"][...] = 1e160
    x = np.ones((9, 2, 3))
    places = []
    for run in (layer, lambda x: layer.trace(x, training=False)):
        with pytest.raises(elman.errors.NonFiniteError) as caught:
            run(x)
        places.append((caught.value.step, caught.value.sample, caught.value.gate))
    assert places[0] == places[1]
    layer(x[: places[0][0]])  # the steps before are fine


def test_what_is_drawn_is_the_generators_stream_and_bytes():
    """As if all numbers came from one call, whatever the number drawn at a time."""
    for rates in ((0.25,), (0.2, 0.7), (0.5, 0.5)):
        made = Regularizer(0.0, 0.0, rates).draw(np.random.default_rng(4), 1, 2, 1000, 9, 9, np.dtype("f8"))
        rng = np.random.default_rng(4)
        for drawn in made.zoneout:
            assert drawn.dtype == np.uint8
            assert np.array_equal(drawn, rng.random((1000, len(rates), 9)) < np.array(rates)[:, None])
