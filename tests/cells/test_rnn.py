"""The layer: shapes, inputs of any kind, promises about bits and failures, parameters."""

import copy
import pickle

import naive
import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError, StateDictError


def layer_and_data(T=6, B=4, D=3, H=7, seed=0, **options):
    rng = np.random.default_rng(seed)
    layer = elman.RNN(D, H, rng=rng, **options)
    layer.theta[:] = rng.uniform(-0.5, 0.5, layer.theta.size)
    x = rng.standard_normal((T, B, D)).astype(layer.dtype)
    h0 = rng.standard_normal((1, B, H)).astype(layer.dtype)
    return layer, x, h0, rng


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "sigmoid", "identity"])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_plain_twin(nonlinearity, bias):
    layer, x, h0, rng = layer_and_data(nonlinearity=nonlinearity, bias=bias)
    d_output, d_hn = rng.standard_normal((6, 4, 7)), rng.standard_normal((1, 4, 7))
    params = layer.state_dict()
    _, h = naive.rnn_forward(params, x, h0[0], nonlinearity)
    grads, d_x, d_h0, norms = naive.rnn_backward(params, x, h0[0], nonlinearity, d_output, d_hn[0])
    trace = layer.trace(x, h0)
    got = layer.backward(trace, d_output, d_hn)
    np.testing.assert_allclose(trace.states["h_l0"], h, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(got.x, d_x, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(got.h0, d_h0[None], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(got.state_norms, norms[None], rtol=1e-12)
    for name, value in grads.items():
        np.testing.assert_allclose(got.params[name], value, rtol=1e-11, atol=1e-12, err_msg=name)


def test_batch_first_and_single_sequence():
    layer, x, h0, rng = layer_and_data()
    output, hn = layer(x, h0)
    first = elman.RNN(3, 7, batch_first=True)
    first.load_state_dict(layer.state_dict())
    turned, same_hn = first(x.swapaxes(0, 1), h0)
    assert np.array_equal(turned, output.swapaxes(0, 1))
    assert np.array_equal(same_hn, hn)
    alone, h_alone = layer(x[:, 2], h0[:, 2])
    assert alone.shape == (6, 7)
    assert h_alone.shape == (1, 7)
    assert np.array_equal(alone, output[:, 2])
    d = rng.standard_normal(output.shape)
    whole = layer.backward(layer.trace(x, h0), d)
    grads = first.backward(first.trace(x.swapaxes(0, 1), h0), d.swapaxes(0, 1))
    assert np.array_equal(grads.x, whole.x.swapaxes(0, 1))
    assert np.array_equal(grads.theta, whole.theta)
    one = layer.backward(layer.trace(x[:, 2], h0[:, 2]), d[:, 2])
    assert np.array_equal(one.x, whole.x[:, 2])
    assert np.array_equal(one.h0, whole.h0[:, 2])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("B", range(1, 34))
def test_same_bits_in_any_batch_and_chunk(B, dtype):
    layer, x, h0, _ = layer_and_data(T=9, B=33, D=5, H=21, dtype=dtype)
    whole, _hn = layer(x, h0)
    rows = slice(33 - B, 33)
    part, h_part = layer(x[:, rows], h0[:, rows])
    assert np.array_equal(part, whole[:, rows])
    state, pieces = h0[:, rows], []
    for window in (x[:1], x[1:4], x[4:4], x[4:]):
        piece, state = layer(window[:, rows], state)
        pieces.append(piece)
    assert np.array_equal(np.concatenate(pieces), part)
    assert np.array_equal(state, h_part)
    # gradients that belong to one sequence do not depend on its company either
    d = np.random.default_rng(1).standard_normal(whole.shape).astype(dtype)
    all_rows = layer.backward(layer.trace(x, h0), d)
    some = layer.backward(layer.trace(x[:, rows], h0[:, rows]), d[:, rows])
    assert np.array_equal(some.x, all_rows.x[:, rows])
    assert np.array_equal(some.state_norms, all_rows.state_norms[:, :, rows])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_same_bits_for_one_and_two_threads(dtype):
    layer, x, h0, rng = layer_and_data(T=20, B=40, D=30, H=130, dtype=dtype)
    d = rng.standard_normal((20, 40, 130)).astype(dtype)
    results = []
    before = elman.get_num_threads()
    try:
        for n in (1, 2, 3):
            elman.set_num_threads(n)
            output, hn = layer(x, h0)
            grads = layer.backward(layer.trace(x, h0), d)
            lin = layer.linearize(x, h0)
            v = np.ones((40, 3, 130), dtype)
            results.append((output, hn, grads.theta, grads.x, grads.h0, grads.state_norms, lin.jvp(v), lin.vjp(v)))
    finally:
        elman.set_num_threads(before)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_inputs_of_any_layout():
    layer, x, h0, _ = layer_and_data()
    expected, _ = layer(x, h0)
    read_only = x.copy()
    read_only.flags.writeable = False
    wide = np.zeros((6, 8, 6))
    wide[:, ::2, ::2] = x
    shifted = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(x.shape)
    shifted[...] = x
    for variant in (
        np.asfortranarray(x), x[::-1][::-1], read_only, wide[:, ::2, ::2], x.astype(">f8"), shifted,
        np.broadcast_to(x, (1, *x.shape))[0],
    ):  # fmt: skip
        before = np.array(variant)
        output, _ = layer(variant, np.asfortranarray(h0))
        assert np.array_equal(output, expected)
        assert np.array_equal(np.array(variant), before)
    half, _ = layer(x.astype(np.float16), h0)
    assert np.array_equal(half, layer(x.astype(np.float16).astype(np.float64), h0)[0])
    single = elman.RNN(3, 7, dtype="float32")
    assert single(x)[0].dtype == np.float32


@pytest.mark.parametrize(("T", "B"), [(0, 4), (3, 0), (0, 0)])
def test_empty(T, B):
    layer, x, h0, _ = layer_and_data(T=T, B=B)
    output, hn = layer(x, h0)
    assert output.shape == (T, B, 7)
    assert np.array_equal(hn, h0)
    grads = layer.backward(layer.trace(x, h0), np.zeros((T, B, 7)), np.ones((1, B, 7)))
    assert not grads.theta.any()
    assert np.array_equal(grads.h0, np.ones((1, B, 7)))
    assert grads.x.shape == x.shape
    assert grads.state_norms.shape == (1, T, B)


def test_without_inputs_it_is_autonomous():
    layer = elman.RNN(0, 8, rng=0)
    h0 = np.random.default_rng(1).standard_normal((1, 2, 8))
    output, _ = layer(np.zeros((5, 2, 0)), h0)
    _, h = naive.rnn_forward(layer.state_dict(), np.zeros((5, 2, 0)), h0[0], "tanh")
    np.testing.assert_allclose(output, h[1:], rtol=1e-13, atol=1e-15)
    grads = layer.backward(layer.trace(np.zeros((5, 2, 0)), h0), np.ones(output.shape))
    assert grads.x.shape == (5, 2, 0)


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (np.zeros((6, 4, 3), int), DTypeError, "one-hot"),
        (np.zeros((6, 4, 3), bool), DTypeError, "astype"),
        (np.zeros((6, 4, 3), complex), DTypeError, "imaginary"),
        (np.array([["a"]]), ShapeError, "input_size = 3"),
        (np.zeros(6), ShapeError, r"x\[:, None\]"),
        (np.zeros((6, 3, 4)), ShapeError, r"moveaxis\(x, 1, -1\)"),
        (np.zeros((6, 4, 5)), ShapeError, r"got shape \(6, 4, 5\)"),
        (np.zeros((1, 6, 4, 3)), ShapeError, r"\(T, B, D\)"),
        (np.full((6, 4, 3), np.nan), ArgumentError, r"x\[0, 0, 0\] is nan"),
        (np.full((6, 4, 3), np.inf), ArgumentError, "inf"),
    ],
)
def test_bad_input_is_refused(x, error, words):
    layer = elman.RNN(3, 7)
    for call in (layer, layer.trace, layer.linearize):
        with pytest.raises(error, match=words):
            call(x)


def test_too_large_for_float32_is_refused():
    with pytest.raises(ArgumentError, match="range of float32"):
        elman.RNN(1, 2, dtype="float32")(np.full((2, 1, 1), 1e300))


def test_wrong_states_are_refused():
    layer, x, h0, _ = layer_and_data()
    with pytest.raises(ShapeError, match=r"h0 must have shape .* = \(1, 4, 7\)"):
        layer(x, h0[0])
    with pytest.raises(ArgumentError, match="h0 must be finite"):
        layer(x, h0 * np.nan)
    trace = layer.trace(x, h0)
    with pytest.raises(ShapeError, match="d_output"):
        layer.backward(trace, np.zeros((6, 4, 8)))
    with pytest.raises(ShapeError, match="d_hn"):
        layer.backward(trace, None, np.zeros((4, 7)))
    with pytest.raises(ArgumentError, match="d_output must be finite"):
        layer.backward(trace, np.full((6, 4, 7), np.inf))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"hidden_size": 0}, ArgumentError, "hidden_size must be at least 1"),
        ({"hidden_size": 2.5}, DTypeError, "hidden_size must be an integer"),
        ({"nonlinearity": "Tanh"}, ArgumentError, "'tanh'"),
        ({"dtype": "float16"}, DTypeError, "float32"),
        ({"num_layers": 0}, ArgumentError, "num_layers must be at least 1"),
        ({"dropout": 0.5}, ArgumentError, "num_layers must be at least 2"),
        ({"num_layers": 2, "dropout": 1.0}, ArgumentError, "0 <= dropout < 1"),
        ({"recurrent_dropout": -0.1}, ArgumentError, "0 <= recurrent_dropout < 1"),
        ({"zoneout": (0.1, 0.2)}, ArgumentError, "one for each state"),
        ({"zoneout": "0.1"}, DTypeError, "zoneout must be a number"),
        ({"weight_hh_init": "orthagonal"}, ArgumentError, "'orthogonal'"),
    ],
)
def test_bad_options_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        elman.RNN(**({"input_size": 3, "hidden_size": 7} | options))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_state_that_overflows_names_layer_step_and_sample(dtype):
    layer = elman.RNN(1, 3, nonlinearity="identity", dtype=dtype)
    layer.theta[:] = 0
    layer.params["weight_hh_l0"][...] = np.eye(3) * 1e3
    layer.params["weight_ih_l0"][...] = 1
    top = float(np.finfo(dtype).max)
    x = np.zeros((9, 6, 1))
    x[2, 4] = top / 1e4  # step 2 holds it, step 4 multiplies it beyond the range
    for call in (layer, layer.trace):
        with pytest.raises(NonFiniteError, match="rnn_l0.*step 4 of sample 4") as caught:
            call(x)
        assert (caught.value.layer, caught.value.gate, caught.value.step, caught.value.sample) == ("rnn_l0", "h", 4, 4)


def test_the_first_failing_slab_is_named_with_two_threads():
    layer = elman.RNN(1, 300, nonlinearity="identity")
    layer.theta[:] = 0
    np.fill_diagonal(layer.params["weight_hh_l0"], 1e3)
    layer.params["weight_ih_l0"][...] = 1
    x = np.zeros((9, 40, 1))
    x[2, 35], x[3, 2] = 1e304, 1e304
    before = elman.get_num_threads()
    try:
        for n in (1, 2):
            elman.set_num_threads(n)
            with pytest.raises(NonFiniteError) as caught:
                layer(x)
            assert (caught.value.step, caught.value.sample) == (4, 35)
    finally:
        elman.set_num_threads(before)


def test_a_gradient_that_overflows_is_named():
    layer = elman.RNN(1, 2, nonlinearity="identity", dtype="float32", bias=False)
    layer.theta[:] = 0
    layer.params["weight_hh_l0"][...] = np.eye(2) * 1e10
    trace = layer.trace(np.zeros((9, 3, 1)))
    d_hn = np.zeros((1, 3, 2))
    d_hn[0, 1] = 1
    with pytest.raises(NonFiniteError, match="gradient") as caught:
        layer.backward(trace, d_hn=d_hn)
    assert (caught.value.what, caught.value.sample, caught.value.step) == ("gradient", 1, 4)


def test_state_norms_of_large_float32_gradients_do_not_overflow():
    layer = elman.RNN(1, 2, nonlinearity="identity", dtype="float32", bias=False)
    layer.theta[:] = 0
    layer.params["weight_hh_l0"][...] = np.eye(2) * 1e5
    grads = layer.backward(layer.trace(np.zeros((7, 1, 1))), d_hn=np.ones((1, 1, 2)))
    np.testing.assert_allclose(grads.state_norms[0, :, 0], np.sqrt(2) * 1e5 ** np.arange(6, -1, -1.0), rtol=1e-6)


def test_returned_arrays_survive_the_next_call():
    layer, x, h0, rng = layer_and_data()
    output, hn = layer(x, h0)
    trace = layer.trace(x, h0)
    grads = layer.backward(trace, np.ones_like(output))
    kept = [a.copy() for a in (output, hn, trace.output, trace.hn, grads.theta, grads.x, grads.h0, grads.state_norms)]
    for _ in range(3):
        layer.backward(layer.trace(rng.standard_normal(x.shape)), rng.standard_normal(output.shape))
        layer(rng.standard_normal(x.shape))
    now = (output, hn, trace.output, trace.hn, grads.theta, grads.x, grads.h0, grads.state_norms)
    assert all(np.array_equal(a, b) for a, b in zip(kept, now, strict=True))
    with pytest.raises(ValueError, match="read-only"):
        trace.output[0] = 0


def test_editing_parameters_in_place_takes_effect():
    layer, x, _, _ = layer_and_data()
    before, _ = layer(x)
    layer.params["weight_hh_l0"][2, 3] += 0.5
    edited, _ = layer(x)
    assert not np.array_equal(before, edited)
    layer.theta[:] = 0
    assert not layer(x)[0].any()
    assert all(np.shares_memory(p, layer.theta) for p in layer.params.values())


def test_state_dict_is_a_copy_and_loading_is_exact():
    layer, _, _, _ = layer_and_data()
    saved = layer.state_dict()
    assert list(saved) == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    layer.theta[:] = 0
    layer.load_state_dict(saved)
    assert all(np.array_equal(layer.params[k], v) for k, v in saved.items())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"weight_hh_l0": None}, StateDictError, "missing weight_hh_l0"),
        ({"weight_hh_l1": np.zeros((7, 7))}, StateDictError, "unknown weight_hh_l1"),
        ({"weight_ih_l0": np.zeros((3, 7))}, ShapeError, "transposed"),
        ({"weight_ih_l0": np.zeros((7, 4))}, ShapeError, r"\(7, 3\), got \(7, 4\)"),
        ({"bias_hh_l0": np.zeros(7, int)}, DTypeError, "bias_hh_l0"),
        ({"bias_hh_l0": np.full(7, np.nan)}, ArgumentError, "bias_hh_l0 must be finite"),
    ],
)
def test_loading_refuses_and_changes_nothing(change, error, words):
    layer, _, _, _ = layer_and_data()
    before = layer.theta.copy()
    mapping = {
        k: v for k, v in (layer.state_dict() | {"weight_ih_l0": np.ones((7, 3))} | change).items() if v is not None
    }
    with pytest.raises(error, match=words):
        layer.load_state_dict(mapping)
    assert np.array_equal(layer.theta, before)


def test_concatenated_weights_are_the_shared_matrix():
    layer, x, h0, rng = layer_and_data()
    W = layer.concatenated_weights()
    X, Hidden = rng.standard_normal((5, 3)), rng.standard_normal((5, 7))
    W_xh, W_hh = layer.params["weight_ih_l0"].T, layer.params["weight_hh_l0"].T
    np.testing.assert_allclose(np.concatenate([X, Hidden], axis=1) @ W, X @ W_xh + Hidden @ W_hh, rtol=1e-12)
    bias = layer.params["bias_ih_l0"] + layer.params["bias_hh_l0"]
    step = np.tanh(np.concatenate([x[0], h0[0]], axis=1) @ W + bias)
    np.testing.assert_allclose(layer(x, h0)[0][0], step, rtol=1e-13)
    # longer sequences need no more parameters
    assert layer.theta.size == W.size + 2 * 7


def test_without_recurrent_weights_it_is_the_perceptron():
    layer, x, _, rng = layer_and_data()
    mlp = elman.MLP(3, 7, 2, rng=0)
    mlp.theta[:] = rng.standard_normal(mlp.theta.size)
    readout = elman.Readout(7, 2)
    layer.load_state_dict(
        {
            "weight_ih_l0": mlp.params["weight_ih"],
            "weight_hh_l0": np.zeros((7, 7)),
            "bias_ih_l0": mlp.params["bias_ih"],
            "bias_hh_l0": np.zeros(7),
        }
    )
    readout.load_state_dict({"weight": mlp.params["weight_ho"], "bias": mlp.params["bias_ho"]})
    output, _ = elman.Network(layer, readout)(x)
    for t in range(len(x)):
        np.testing.assert_array_equal(output[t], mlp(x[t]))


def test_stepper_gives_the_bits_of_the_whole_sequence():
    layer, x, h0, _ = layer_and_data()
    output, hn = layer(x, h0)
    stepper = layer.stepper(4, h0)
    held = stepper(x[0])
    assert np.array_equal(held, output[0])
    second = stepper(x[1])
    assert np.array_equal(held, output[0])  # untouched by the next step
    assert np.array_equal(second, output[1])
    for t in range(2, 6):
        assert np.array_equal(stepper(x[t]), output[t])
    assert np.array_equal(stepper.state, hn)
    one = layer.stepper()
    assert one(x[0, 0]).shape == (7,)
    with pytest.raises(ShapeError, match="x_t"):
        stepper(x[0, :2])


def test_stepper_survives_a_bad_step():
    layer, x, _, _ = layer_and_data()
    stepper = layer.stepper(4)
    stepper(x[0])
    state = stepper.state
    with pytest.raises(NonFiniteError):
        stepper(x[1] * np.nan)
    assert np.array_equal(stepper.state, state)
    assert np.array_equal(stepper(x[1]), layer(x[:2])[0][1])


def test_kept_buffers_give_the_same_numbers():
    from elman.layers.engine.buffers import Buffers

    layer, x, h0, rng = layer_and_data()
    buffers = Buffers()
    for scale in (1.0, 0.3):
        trace = layer.trace(x * scale, h0, buffers=buffers)
        assert np.array_equal(trace.output, layer(x * scale, h0)[0])
    # a smaller problem in the same memory
    trace = layer.trace(x[:2, :1], h0[:, :1], buffers=buffers)
    d = rng.standard_normal((2, 1, 7))
    fresh = layer.backward(layer.trace(x[:2, :1], h0[:, :1]), d)
    assert np.array_equal(layer.backward(trace, d).theta, fresh.theta)


def test_pickle_and_deepcopy():
    layer, x, h0, _ = layer_and_data()
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert np.array_equal(other(x, h0)[0], layer(x, h0)[0])
        other.theta[:] = 0
        assert layer.theta.any()
        assert not other(x)[0].any()


def test_rng_decides_the_weights():
    a, b, c = elman.RNN(3, 7, rng=1), elman.RNN(3, 7, rng=1), elman.RNN(3, 7, rng=2)
    assert np.array_equal(a.theta, b.theta)
    assert not np.array_equal(a.theta, c.theta)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_linearization(dtype):
    from elman.testing import check_adjoint

    layer, x, h0, _ = layer_and_data(dtype=dtype)
    lin = layer.linearize(x, h0)
    check_adjoint(lin, rtol=1e-12 if dtype == "float64" else 1e-5)
    _, h = naive.rnn_forward({k: v.astype(float) for k, v in layer.params.items()}, x, h0[0], "tanh")
    expected = (1 - h[3, 2] ** 2)[:, None] * layer.params["weight_hh_l0"]
    np.testing.assert_allclose(lin.jacobian(2, 2), expected, rtol=1e-12 if dtype == "float64" else 1e-5)
    np.testing.assert_allclose(
        lin.factors.slopes[2, 2][:, None] * lin.factors.weight, expected, rtol=1e-12 if dtype == "float64" else 1e-5
    )
    norms = np.empty((4, 4, 1))
    u = np.ones((4, 7), dtype)
    pulled = lin.vjp(u, 1, 5, norms=norms)
    for i in range(4):
        np.testing.assert_allclose(norms[i, :, 0], np.linalg.norm(lin.vjp(u, 4 - i, 5), axis=1), rtol=1e-6)
    np.testing.assert_allclose(norms[3, :, 0], np.linalg.norm(pulled, axis=1), rtol=1e-6)
    # a snapshot: later edits of the layer do not reach it
    before = lin.jvp(u)
    layer.theta[:] = 0
    assert np.array_equal(lin.jvp(u), before)
    with pytest.raises(ArgumentError, match="t must be in 0 .. 5"):
        lin.jacobian(6)


def test_measured_gradient_is_that_of_backward():
    layer, x, h0, rng = layer_and_data()
    start = rng.standard_normal((4, 7))
    logs = layer.measure_gradient(x, start, h0)
    grads = layer.backward(layer.trace(x, h0), d_hn=start[None])
    np.testing.assert_allclose(np.exp(logs[:-1]), grads.state_norms[0, ::-1], rtol=1e-12)
    np.testing.assert_allclose(np.exp(logs[-1]), np.linalg.norm(grads.h0[0], axis=1), rtol=1e-12)
    np.testing.assert_allclose(np.exp(logs[0]), np.linalg.norm(start, axis=1), rtol=1e-12)


class TestTracesOfOthers:
    """Compiled code checks nothing: a trace of other sizes would be read beyond its end."""

    @pytest.mark.parametrize(
        "other",
        [
            elman.RNN(3, 400),
            elman.RNN(4, 7),
            elman.RNN(3, 7, dtype="float32"),
            elman.RNN(3, 7, nonlinearity="relu"),
            elman.LSTM(3, 7),
        ],
        ids=repr,
    )
    def test_layers(self, other):
        layer, x, _, _ = layer_and_data()
        with pytest.raises(ArgumentError, match="trace must be of this layer"):
            other.backward(layer.trace(x), np.ones((6, 4, 7)))

    def test_dense_and_networks(self):
        _, x, _, _ = layer_and_data()
        with pytest.raises(ArgumentError, match="trace must be of this layer"):
            elman.MLP(3, 4000, 2).backward(elman.MLP(3, 4, 2).trace(x), np.ones((6, 4, 2)))
        net = elman.Network(elman.RNN(3, 7), elman.MLP(7, 5, 2))
        other = elman.Network(elman.RNN(3, 7), elman.MLP(7, 500, 2))
        with pytest.raises(ArgumentError, match="trace must be of this layer"):
            other.backward(net.trace(x), np.ones((6, 4, 2)))

    def test_a_copy_of_the_layer_may_read_it(self):
        layer, x, _, _ = layer_and_data()
        d = np.ones((6, 4, 7))
        trace = layer.trace(x)
        assert np.array_equal(copy.deepcopy(layer).backward(trace, d).theta, layer.backward(trace, d).theta)


class TestGradientsThatOverflow:
    """Wherever it happens, an exception and not an infinity comes back."""

    def test_behind_a_dead_step(self):
        layer = elman.RNN(1, 1, nonlinearity="relu", bias=False)
        layer.load_state_dict({"weight_ih_l0": np.array([[1.0]]), "weight_hh_l0": np.array([[1e200]])})
        trace = layer.trace(np.array([-1.0, 1e-250, 1e-250]).reshape(3, 1, 1))
        with pytest.raises(NonFiniteError, match="gradient"):
            layer.backward(trace, d_hn=np.full((1, 1, 1), 1e200))

    def test_in_the_parameters_alone(self):
        layer = elman.RNN(1, 1, nonlinearity="identity", bias=False)
        layer.load_state_dict({"weight_ih_l0": np.array([[1.0]]), "weight_hh_l0": np.array([[0.0]])})
        with pytest.raises(NonFiniteError, match="overflows"):
            layer.backward(layer.trace(np.full((2, 1, 1), 1e5)), np.full((2, 1, 1), 1e304))

    def test_in_a_readout(self):
        readout = elman.Readout(2, 1)
        with pytest.raises(NonFiniteError, match="Readout"):
            readout.backward(readout.trace(np.full((1, 2), 1e200)), np.full((1, 1), 1e200))


def test_copies_of_a_stepper_go_on_from_where_it_is():
    layer, x, h0, _ = layer_and_data()
    output, _ = layer(x, h0)
    stepper = layer.stepper(4, h0)
    stepper(x[0])
    for other in (pickle.loads(pickle.dumps(stepper)), copy.deepcopy(stepper)):
        assert np.array_equal(other(x[1]), output[1])
        assert np.array_equal(other(x[2]), output[2])


def test_stepper_refuses_what_is_not_real():
    stepper = elman.RNN(2, 3).stepper()
    for x_t in (np.zeros((1, 2), int), np.zeros((1, 2), complex), [["1", "2"]]):
        with pytest.raises(DTypeError, match="x_t must be an array of real"):
            stepper(x_t)


@pytest.mark.parametrize("cell", [elman.RNN, elman.LSTM, elman.GRU])
def test_no_sequences_can_be_linearized_too(cell):
    layer = cell(3, 5)
    lin = layer.linearize(np.zeros((4, 0, 3)))
    v = np.zeros((0, 2, lin.state_size))
    assert lin.jvp(v).shape == v.shape
    assert lin.vjp(v).shape == v.shape
    assert layer.measure_gradient(np.zeros((4, 0, 3)), np.zeros((0, lin.state_size))).shape == (5, 0)


def test_masks_and_ragged_lists_are_not_lost_silently():
    layer, x, _, _ = layer_and_data()
    with pytest.raises(DTypeError, match=r"x.filled\(0.0\)"):
        layer(np.ma.masked_array(x, x > 1))
    with pytest.raises(ShapeError, match="one length"):
        layer([[[1.0, 2.0, 3.0]], [[1.0, 2.0]]])


def test_broken_weights_are_named():
    layer, x, _, _ = layer_and_data()
    layer.params["bias_hh_l0"][2] = np.nan
    with pytest.raises(NonFiniteError, match="bias_hh_l0 holds numbers that are not finite"):
        layer(x)


def test_initialisers_are_checked():
    for draw in (lambda shape, rng: np.zeros(3), lambda shape, rng: np.full(shape, np.nan)):
        with pytest.raises(ArgumentError, match=r"weight_hh_init must give finite numbers of shape \(7, 7\)"):
            elman.RNN(3, 7, weight_hh_init=draw)
    with pytest.raises(ArgumentError, match="matrices"):
        elman.RNN(3, 7, bias_init="orthogonal")
    radius = elman.spectrum(elman.RNN(3, 7, weight_hh_init="spectral_radius", rng=0).params["weight_hh_l0"]).radius
    np.testing.assert_allclose(radius, 1.0, rtol=1e-12)
    with pytest.raises(DTypeError, match="floaty"):
        elman.RNN(3, 7, dtype="floaty")
