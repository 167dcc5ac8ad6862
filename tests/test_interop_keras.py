"""Keras's layers and their weights: outputs of Keras itself, exact weights both ways, refusals for everything else."""

import itertools

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ShapeError, StateDictError
from elman.interop.keras import from_keras, to_keras

pytestmark = [
    # Keras's own conversion of its variables to NumPy 2 arrays
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

CELLS = [
    ("SimpleRNN", {"activation": "tanh"}),
    ("SimpleRNN", {"activation": "relu"}),
    ("SimpleRNN", {"activation": "sigmoid"}),
    ("SimpleRNN", {"activation": None}),
    ("LSTM", {}),
    ("GRU", {"reset_after": True}),
    ("GRU", {"reset_after": False}),
]
OURS = {"SimpleRNN": elman.RNN, "LSTM": elman.LSTM, "GRU": elman.GRU}
NONLINEARITY = {"tanh": "tanh", "relu": "relu", "sigmoid": "sigmoid", None: "identity"}
T, B, D, H = 7, 3, 4, 5


@pytest.fixture(scope="module")
def keras(tmp_path_factory):
    """Keras on the backend that is quickest to start; the environment is as before afterwards."""
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        # nothing in the user's home is read or written
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        return pytest.importorskip("keras")


def randomize(layer, shape, seed):
    """Build a layer of Keras with random weights and biases, none of them 0."""
    rng = np.random.default_rng(seed)
    layer.build(shape)
    layer.set_weights([rng.uniform(-0.8, 0.8, w.shape) for w in layer.get_weights()])
    return layer


def stack_of(keras, cell, options, depth=1, bidirectional=False, **more):
    """Layers of Keras that follow each other."""
    layers, size = [], D
    for k in range(depth):
        layer = getattr(keras.layers, cell)(H, return_sequences=True, **options, **more)
        if bidirectional:
            layer = keras.layers.Bidirectional(layer)
        layers.append(randomize(layer, (None, T, size), k))
        size = 2 * H if bidirectional else H
    return layers


def sequences(seed=9):
    return np.random.default_rng(seed).standard_normal((B, T, D))


def run(keras, layers, x, mask=None):
    """Keras's output as an array."""
    for layer in layers:
        x = layer(x, mask=mask)
    return keras.ops.convert_to_numpy(x)


def assert_close(got, expected):
    """To the rounding of float32, in which Keras multiplies matrices whatever the dtype."""
    assert got.shape == expected.shape
    assert abs(got - expected).max() < 1e-5 * abs(expected).max()


def options_of_weights(cell, options):
    """What plain weights do not tell."""
    return {"nonlinearity": NONLINEARITY[options["activation"]]} if cell == "SimpleRNN" else {}


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize(("cell", "options"), CELLS, ids=str)
def test_layers_of_keras_compute_the_same_here(keras, cell, options, depth, bidirectional):
    layers = stack_of(keras, cell, options, depth, bidirectional)
    x = sequences()
    expected = run(keras, layers, x)
    layer = from_keras(layers if depth > 1 else layers[0])
    assert type(layer) is OURS[cell]
    assert (layer.dtype, layer.batch_first) == (np.float32, True)
    assert_close(layer(x)[0], expected)
    weights = [k.get_weights() for k in layers]
    plain = from_keras(weights, batch_first=False, **options_of_weights(cell, options))
    assert np.array_equal(plain.theta, layer.theta)
    assert_close(plain(x.swapaxes(0, 1))[0].swapaxes(0, 1), expected)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("cell", "options"), CELLS, ids=str)
def test_no_bias(keras, cell, options, bidirectional):
    layers = stack_of(keras, cell, options, 1, bidirectional, use_bias=False)
    layer = from_keras(layers[0])
    assert not layer.bias
    assert_close(layer(sequences())[0], run(keras, layers, sequences()))
    told = {"reset_after": options["reset_after"]} if cell == "GRU" else options_of_weights(cell, options)
    assert np.array_equal(from_keras(layers[0].get_weights(), **told).theta, layer.theta)


@pytest.mark.parametrize(("cell", "options"), CELLS, ids=str)
def test_initial_and_final_states(keras, cell, options):
    keras_layer = stack_of(keras, cell, options, return_state=True)[0]
    rng = np.random.default_rng(3)
    state = [rng.standard_normal((B, H)) for _ in range(2 if cell == "LSTM" else 1)]
    _, *expected = keras_layer(sequences(), initial_state=state)
    h0 = tuple(s[None] for s in state)
    _, hn = from_keras(keras_layer)(sequences(), h0 if cell == "LSTM" else h0[0])
    for got, wanted in zip(hn if cell == "LSTM" else (hn,), expected, strict=True):
        assert_close(got[0], keras.ops.convert_to_numpy(wanted))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("cell", "options"), CELLS, ids=str)
def test_padding_at_the_end_is_a_mask(keras, cell, options, bidirectional):
    lengths = np.array([4, 7, 1])
    mask = np.arange(T) < lengths[:, None]
    layers = stack_of(keras, cell, options, 2, bidirectional, zero_output_for_mask=True)
    expected = run(keras, layers, sequences(), mask)
    assert_close(from_keras(layers)(sequences(), lengths=lengths)[0], expected)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("cell", "options"), CELLS, ids=str)
def test_layers_compute_the_same_in_keras(keras, cell, options, bias, bidirectional):
    own = {"nonlinearity": NONLINEARITY[options["activation"]]} if cell == "SimpleRNN" else options
    layer = OURS[cell](D, H, 2, bias=bias, bidirectional=bidirectional, batch_first=True, dtype="float32", **own)
    layer.theta[:] = np.random.default_rng(1).uniform(-0.8, 0.8, layer.theta.size)
    weights = to_keras(layer)
    layers = stack_of(keras, cell, options, 2, bidirectional, use_bias=bias)
    for keras_layer, arrays in zip(layers, weights, strict=True):
        assert all(a.flags.c_contiguous and a.dtype == layer.dtype for a in arrays)
        keras_layer.set_weights(arrays)
    assert_close(run(keras, layers, sequences()), layer(sequences())[0])
    again = to_keras(from_keras(layers))
    assert all(
        np.array_equal(a, b) for one, two in zip(weights, again, strict=True) for a, b in zip(one, two, strict=True)
    )


def random_layer(cls=elman.GRU, **options):
    layer = cls(D, H, rng=0, **options)
    layer.theta[:] = np.random.default_rng(1).uniform(-0.8, 0.8, layer.theta.size)
    return layer


@pytest.mark.parametrize("cls", [elman.RNN, elman.LSTM])
def test_two_biases_go_out_as_their_sum_and_come_in_as_the_first(cls):
    layer = random_layer(cls)
    p = layer.params
    ((*_, bias),) = to_keras(layer)
    np.testing.assert_array_equal(bias, p["bias_ih_l0"] + p["bias_hh_l0"])
    back = from_keras(to_keras(layer), **({"nonlinearity": "tanh"} if cls is elman.RNN else {})).params
    np.testing.assert_array_equal(back["bias_ih_l0"], bias)
    assert not back["bias_hh_l0"].any()


def test_both_biases_of_the_gru_stay():
    layer = random_layer()
    assert np.array_equal(from_keras(to_keras(layer)).theta, layer.theta)
    assert [a.shape for a in to_keras(layer)[0]] == [(D, 3 * H), (H, 3 * H), (2, 3 * H)]


def test_what_goes_out_is_a_copy():
    layer = random_layer(elman.LSTM)
    before = layer.theta.copy()
    for array in to_keras(layer)[0]:
        array[...] = 0
    assert np.array_equal(layer.theta, before)


@pytest.mark.parametrize(("cls", "pairs"), [(elman.LSTM, range(4)), (elman.GRU, range(3))])
def test_a_swapped_gate_would_show(cls, pairs):
    """The problem of the parity tests tells any two gates apart."""
    layer, x = random_layer(cls), sequences().swapaxes(0, 1)
    expected = layer(x)[0]
    for one, other in itertools.combinations(pairs, 2):
        order = list(pairs)
        order[one], order[other] = other, one
        swapped = [np.concatenate([np.split(a, len(order), -1)[i] for i in order], -1) for a in to_keras(layer)[0]]
        assert abs(from_keras(swapped, batch_first=False)(x)[0] - expected).max() > 1e-2


def test_types():
    arrays = [a.astype("float16") for a in to_keras(random_layer())[0]]
    assert from_keras(arrays).dtype == np.float32
    assert from_keras(arrays, dtype="float64").dtype == np.float64
    ml_dtypes = pytest.importorskip("ml_dtypes")
    halves = [a.astype(ml_dtypes.bfloat16) for a in arrays]
    np.testing.assert_array_equal(
        from_keras(halves).params["weight_hh_l0"][:H], halves[1].astype(float)[:, H : 2 * H].T
    )


def weights(cls=elman.LSTM, **options):
    return to_keras(random_layer(cls, **options))[0]


def changed(arrays, i, value):
    return [value if k == i else a for k, a in enumerate(arrays)]


@pytest.mark.parametrize(
    ("source", "options", "error", "words"),
    [
        (list, {}, StateDictError, "got 0 arrays: build it"),
        (lambda: weights()[:1], {}, StateDictError, "got 1 arrays"),
        (lambda: weights() + weights()[:2], {}, StateDictError, "got 5 arrays"),
        (lambda: [weights(), weights()[:2]], {}, StateDictError, "layer 1 differs"),
        (lambda: [weights(), weights() + weights()], {}, StateDictError, "layer 1 differs"),
        (lambda: "weights.h5", {}, DTypeError, "str"),
        (lambda: np.zeros((3, 4)), {}, DTypeError, "ndarray"),
        (lambda: changed(weights(), 2, np.zeros(20, int)), {}, DTypeError, "int64"),
        (lambda: changed(weights(), 0, np.zeros(20)), {}, ShapeError, r"two axes.*\(20,\)"),
        (lambda: changed(weights(), 1, np.zeros((5, 10))), {}, ShapeError, r"\(5, 10\)"),
        (lambda: changed(weights(), 1, np.zeros((0, 20))), {}, ShapeError, r"\(0, 20\)"),
        (lambda: changed(weights(), 0, np.zeros((4, 15))), {}, ShapeError, "weight_ih_l0"),
        (lambda: changed(weights(), 2, np.zeros(19)), {}, ShapeError, r"\(20,\), got \(19,\)"),
        (lambda: changed(weights(), 2, np.zeros((2, 20))), {}, ShapeError, r"\(20,\), got \(2, 20\)"),
        (lambda: changed(weights(), 2, np.full(20, np.inf)), {}, ArgumentError, "bias_ih_l0"),
        (lambda: changed(weights(elman.GRU), 2, np.zeros((3, 15))), {}, ShapeError, r"\(2, 15\), got \(3, 15\)"),
        (lambda: changed(weights(elman.GRU), 0, np.zeros((4, 14))), {}, ShapeError, "3 H = 15"),
        (lambda: weights(elman.GRU, bias=False), {}, ArgumentError, "reset_after must be given"),
        (lambda: weights(elman.GRU), {"reset_after": True}, ArgumentError, "reset_after must not"),
        (lambda: weights(elman.GRU), {"nonlinearity": "tanh"}, ArgumentError, "nonlinearity must not"),
        (lambda: weights(elman.RNN), {}, ArgumentError, "nonlinearity must be given"),
        (lambda: weights(elman.RNN), {"nonlinearity": "softplus"}, ArgumentError, "softplus"),
        (lambda: weights(), {"dtype": "int32"}, DTypeError, "int32"),
    ],
)
def test_weights_that_are_refused(source, options, error, words):
    with pytest.raises(error, match=words):
        from_keras(source(), **options)


@pytest.mark.parametrize(
    ("cell", "options", "error", "words"),
    [
        ("LSTM", {"activation": "relu"}, ArgumentError, "activation must be 'tanh', got 'relu'"),
        ("LSTM", {"recurrent_activation": "hard_sigmoid"}, ArgumentError, "recurrent_activation .*'hard_sigmoid'"),
        ("GRU", {"activation": None}, ArgumentError, "activation .*'linear'"),
        ("GRU", {"recurrent_activation": "relu"}, ArgumentError, "recurrent_activation"),
        ("SimpleRNN", {"activation": "gelu"}, ArgumentError, "activation .*'gelu'"),
        ("GRU", {"dropout": 0.1}, ArgumentError, r"dropout must be 0\.0, got 0\.1"),
        ("GRU", {"recurrent_dropout": 0.1}, ArgumentError, "recurrent_dropout"),
        ("GRU", {"stateful": True}, ArgumentError, "stateful"),
    ],
)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_options_that_are_refused(keras, cell, options, error, words, bidirectional):
    layer = getattr(keras.layers, cell)(H, **options)
    if bidirectional:
        layer = keras.layers.Bidirectional(layer)
    randomize(layer, (B, T, D), 0)
    with pytest.raises(error, match=words):
        from_keras(layer)


def test_dropout_is_left_out_by_taking_the_weights(keras):
    layer = randomize(keras.layers.GRU(H, dropout=0.3), (B, T, D), 0)
    assert np.array_equal(
        from_keras(layer.get_weights()).params["weight_ih_l0"][:H], layer.get_weights()[0][:, H : 2 * H].T
    )


def test_layers_that_are_refused(keras):
    layers = keras.layers
    built = randomize(layers.Bidirectional(layers.GRU(H), merge_mode="sum"), (B, T, D), 0)
    with pytest.raises(ArgumentError, match="merge_mode must be 'concat', got 'sum'"):
        from_keras(built)
    with pytest.raises(ArgumentError, match="go_backwards must be False"):
        from_keras(randomize(layers.GRU(H, go_backwards=True), (B, T, D), 0))
    turned = layers.Bidirectional(layers.GRU(H, go_backwards=True), backward_layer=layers.GRU(H))
    with pytest.raises(ArgumentError, match="go_backwards must be False"):
        from_keras(randomize(turned, (B, T, D), 0))
    mixed = layers.Bidirectional(layers.GRU(H), backward_layer=layers.LSTM(H, go_backwards=True))
    with pytest.raises(ArgumentError, match="one kind"):
        from_keras(randomize(mixed, (B, T, D), 0))
    with pytest.raises(StateDictError, match="build it first"):
        from_keras(layers.GRU(H))
    for layer, name in (
        (layers.Dense(3), "Dense"),
        (layers.RNN(layers.StackedRNNCells([layers.GRUCell(3), layers.GRUCell(3)])), "RNN"),
        (keras.Sequential([layers.Input((T, D)), layers.GRU(3)]), "Sequential"),
    ):
        if not layer.built:
            layer.build((B, T, D))
        with pytest.raises(DTypeError, match=f"got {name};"):
            from_keras(layer)


def test_a_subclass_may_compute_anything(keras):
    class Mine(keras.layers.GRU):
        pass

    with pytest.raises(DTypeError, match="Mine"):
        from_keras(randomize(Mine(H), (B, T, D), 0))


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (lambda: elman.LSTM(D, H, proj_size=2), ArgumentError, "proj_size = 2"),
        (lambda: elman.GRU(D, H, learn_initial_state=True), ArgumentError, "learn_initial_state"),
        (lambda: elman.RNN(D, H, zoneout=0.2), ArgumentError, r"zoneout = \(0\.2"),
        (lambda: elman.Readout(D, H), DTypeError, "Readout"),
        (lambda: elman.Network(elman.GRU(D, H), elman.Readout(H, 1)), DTypeError, "Network"),
    ],
)
def test_layers_that_keras_does_not_have(model, error, words):
    with pytest.raises(error, match=words):
        to_keras(model())
