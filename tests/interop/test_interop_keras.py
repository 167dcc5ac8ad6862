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
GATED = {"activation": "tanh", "recurrent_activation": "sigmoid"}
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
    return {"nonlinearity": NONLINEARITY[options["activation"]]} if cell == "SimpleRNN" else GATED


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
    told = options_of_weights(cell, options) | ({"reset_after": options["reset_after"]} if cell == "GRU" else {})
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
    back = from_keras(to_keras(layer), **({"nonlinearity": "tanh"} if cls is elman.RNN else GATED)).params
    np.testing.assert_array_equal(back["bias_ih_l0"], bias)
    assert not back["bias_hh_l0"].any()


def test_both_biases_of_the_gru_stay():
    layer = random_layer()
    assert np.array_equal(from_keras(to_keras(layer), **GATED).theta, layer.theta)
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
        assert abs(from_keras(swapped, batch_first=False, **GATED)(x)[0] - expected).max() > 1e-2


def test_types():
    arrays = [a.astype("float16") for a in to_keras(random_layer())[0]]
    assert from_keras(arrays, **GATED).dtype == np.float32
    assert from_keras(arrays, dtype="float64", **GATED).dtype == np.float64
    ml_dtypes = pytest.importorskip("ml_dtypes")
    halves = [a.astype(ml_dtypes.bfloat16) for a in arrays]
    np.testing.assert_array_equal(
        from_keras(halves, **GATED).params["weight_hh_l0"][:H], halves[1].astype(float)[:, H : 2 * H].T
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
    gated = {} if "nonlinearity" in {*options, words.split()[0]} else GATED
    with pytest.raises(error, match=words):
        from_keras(source(), **{**gated, **options})


@pytest.mark.parametrize(
    ("cell", "options", "error", "words"),
    [
        ("LSTM", {"activation": "relu"}, ArgumentError, "activation must be 'tanh', got 'relu'"),
        ("LSTM", {"recurrent_activation": "hard_sigmoid"}, ArgumentError, "recurrent_activation .*'hard_sigmoid'"),
        ("GRU", {"activation": None}, ArgumentError, "activation .*'linear'"),
        ("GRU", {"recurrent_activation": "relu"}, ArgumentError, "recurrent_activation"),
        ("SimpleRNN", {"activation": "gelu"}, ArgumentError, "activation .*'gelu'"),
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


@pytest.mark.parametrize(("cell", "options"), CELLS, ids=str)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_dropout_of_a_layer_stays_behind(keras, cell, options, bidirectional):
    layers = stack_of(keras, cell, options, 2, bidirectional, dropout=0.3, recurrent_dropout=0.2)
    x = sequences()
    assert_close(from_keras(layers)(x)[0], run(keras, layers, x))


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
        (lambda: elman.MGU(D, H), DTypeError, "MGU: Keras has no such layer"),
        (lambda: elman.Network(elman.MGU(D, H), elman.Readout(H, 1)), DTypeError, "MGU: Keras has no such layer"),
    ],
)
def test_layers_that_keras_does_not_have(model, error, words):
    with pytest.raises(error, match=words):
        to_keras(model())


def noise_of(keras):
    """Layers of Keras that act in training alone."""
    k = keras.layers
    return [
        k.Dropout(0.5), k.SpatialDropout1D(0.5), k.GaussianNoise(0.5), k.GaussianDropout(0.5), k.AlphaDropout(0.5),
        k.ActivityRegularization(0.1),
    ]  # fmt: skip


def randomize_model(model):
    rng = np.random.default_rng(2)
    model.set_weights([rng.uniform(-0.8, 0.8, w.shape) for w in model.get_weights()])
    return model


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("at", ["steps", "end"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_model_with_what_acts_in_training(keras, functional, at, bidirectional, bias):
    k = keras.layers
    wrap = k.Bidirectional if bidirectional else lambda layer: layer
    layers = [
        wrap(k.LSTM(H, return_sequences=True, dropout=0.2)),
        *noise_of(keras),
        wrap(k.LSTM(H, return_sequences=at == "steps", recurrent_dropout=0.2)),
        k.Dropout(0.5),
        k.Dense(3, use_bias=bias),
    ]
    if functional:
        x = out = keras.Input((T, D))
        for layer in layers:
            out = layer(out)
        model = keras.Model(x, out)
    else:
        model = keras.Sequential([keras.Input((T, D)), *layers])
    randomize_model(model)
    net = from_keras(model)
    assert isinstance(net, elman.Network)
    assert (net.at, net.layer.num_layers, net.layer.dropout) == (at, 2, 0)
    assert_close(net(sequences())[0], keras.ops.convert_to_numpy(model(sequences())))


def test_a_model_of_recurrent_layers_alone(keras):
    k = keras.layers
    model = keras.Sequential([keras.Input((T, D)), k.GRU(H, return_sequences=True), k.Dropout(0.1)])
    randomize_model(model)
    layer = from_keras(model, batch_first=False)
    assert type(layer) is elman.GRU
    expected = keras.ops.convert_to_numpy(model(sequences()))
    assert_close(layer(sequences().swapaxes(0, 1))[0].swapaxes(0, 1), expected)
    steps = keras.Sequential([*model.layers, k.TimeDistributed(k.Dense(2))])
    steps.build((None, T, D))
    assert_close(from_keras(steps)(sequences())[0], keras.ops.convert_to_numpy(steps(sequences())))


@pytest.mark.parametrize("at", ["steps", "end"])
@pytest.mark.parametrize("head", ["Readout", "no bias", "tanh", "relu", "sigmoid", "identity"])
def test_networks_there_and_back(keras, head, at):
    k, name = keras.layers, {"identity": "linear"}.get(head, head)
    ours = {"Readout": lambda: elman.Readout(2 * H, 3), "no bias": lambda: elman.Readout(2 * H, 3, bias=False)}.get(
        head, lambda: elman.MLP(2 * H, 5, 3, head)
    )()
    layer = elman.GRU(D, H, 2, bidirectional=True, batch_first=True)
    net = elman.Network(layer, ours, at=at)
    net.theta[:] = np.random.default_rng(0).uniform(-0.7, 0.7, net.theta.size)
    net = net.astype("float32")
    dense = [k.Dense(3, use_bias=head != "no bias")] if isinstance(ours, elman.Readout) else [
        k.Dense(5, activation=name), k.Dropout(0.3), k.Dense(3)
    ]  # fmt: skip
    recurrent = [k.Bidirectional(k.GRU(H, return_sequences=True)),
                 k.Bidirectional(k.GRU(H, return_sequences=at == "steps"))]  # fmt: skip
    model = keras.Sequential([keras.Input((T, D)), *recurrent, *dense])
    lists = to_keras(net)
    having = [layer for layer in model.layers if layer.get_weights()]
    assert len(lists) == len(having)
    for theirs, arrays in zip(having, lists, strict=True):
        theirs.set_weights(arrays)
    assert_close(net(sequences())[0], keras.ops.convert_to_numpy(model(sequences())))
    back = from_keras(model)
    assert repr(back) == repr(net)
    assert back.theta.tobytes() == net.theta.tobytes()
    assert from_keras(model, dtype="float64").readout.dtype == np.float64


def test_dense_layers_alone(keras):
    k, x = keras.layers, np.random.default_rng(0).standard_normal((4, D)).astype("float32")
    for layers, kind in (([k.Dense(5, "relu"), k.Dense(2)], elman.MLP), ([k.Dense(2)], elman.Readout)):
        model = randomize_model(keras.Sequential([keras.Input((D,)), *layers]))
        made = from_keras(model)
        assert type(made) is kind
        assert_close(made(x), keras.ops.convert_to_numpy(model(x)))
        assert all(
            np.array_equal(a, b)
            for a, b in zip([a for each in to_keras(made) for a in each], model.get_weights(), strict=True)
        )


def test_layers_of_noise_in_a_list(keras):
    layers = stack_of(keras, "GRU", {}, 2)
    mixed = [layers[0], *noise_of(keras), layers[1]]
    assert np.array_equal(from_keras(mixed).theta, from_keras(layers).theta)
    with pytest.raises(StateDictError, match="act in training only"):
        from_keras(noise_of(keras))


def test_models_that_are_refused(keras):
    k = keras.layers
    sequential = lambda *layers: keras.Sequential([keras.Input((T, D)), *layers])  # noqa: E731
    x = keras.Input((T, D))
    once = k.GRU(D, return_sequences=True)(x)
    shared = k.GRU(D, return_sequences=True)
    for model, error, words in (
        (
            sequential(k.GRU(H), k.Dense(2, activation="softmax")),
            ArgumentError,
            "'linear', got 'softmax'.*layers alone",
        ),
        (sequential(k.GRU(H), k.Dense(2, "tanh"), k.Dense(2, "tanh")), ArgumentError, "'linear', got 'tanh'"),
        (sequential(k.GRU(H), k.Dense(2, "gelu"), k.Dense(2)), ArgumentError, "one of tanh, .*got 'gelu'"),
        (sequential(k.GRU(H), k.Dense(2, use_bias=False), k.Dense(2)), ArgumentError, "use_bias must be True"),
        (sequential(k.Masking(), k.GRU(H)), DTypeError, "got Masking;"),
        (sequential(k.GRU(H), k.Dense(2), k.Dense(2), k.Dense(2)), DTypeError, "got Dense;"),
        (sequential(k.Dense(2), k.GRU(H)), DTypeError, "got Dense;"),
        (sequential(k.Dropout(0.5)), StateDictError, "training only"),
        (keras.Model(x, k.Add()([once, x])), ArgumentError, "chain of layers"),
        (keras.Model(x, [once, k.GRU(H)(once)]), ArgumentError, "chain of layers"),
        (keras.Model(x, shared(shared(x))), ArgumentError, "chain of layers"),
    ):
        with pytest.raises(error, match=words):
            from_keras(model)


@pytest.mark.parametrize("cls", [elman.LSTM, elman.GRU])
def test_what_arrays_do_not_tell_is_asked(cls):
    arrays = weights(cls)
    for options, words in (
        ({}, "activation must be given.*hard_sigmoid"),
        ({"activation": "tanh"}, "recurrent_activation must be given.*hard_sigmoid"),
        ({"recurrent_activation": "sigmoid"}, "activation must be given"),
        (GATED | {"recurrent_activation": "hard_sigmoid"}, f"must be 'sigmoid', got 'hard_sigmoid': {cls.__name__}"),
        (GATED | {"activation": "relu"}, "must be 'tanh', got 'relu'"),
    ):
        with pytest.raises(ArgumentError, match=words):
            from_keras(arrays, **options)
    with pytest.raises(ArgumentError, match="give nonlinearity for a SimpleRNN"):
        from_keras(weights(elman.RNN), nonlinearity="tanh", activation="tanh")


def test_hard_sigmoid_would_be_another_network(keras):
    """Why it is asked: the same arrays, and outputs that are far apart."""
    one, other = (
        randomize(keras.layers.LSTM(H, return_sequences=True, recurrent_activation=a), (None, T, D), 0)
        for a in ("sigmoid", "hard_sigmoid")
    )
    far = abs(run(keras, [one], sequences()) - run(keras, [other], sequences())).max()
    assert far > 0.01
    with pytest.raises(ArgumentError, match="must not be given here: the source tells it"):
        from_keras(one, recurrent_activation="sigmoid")


def for_cudnn(arrays, gates):
    """Arrays of a layer of Keras as its layer for cuDNN has them, by the rule of TensorFlow's documentation.

    Its example: a kernel [[0, 1, 2], [3, 4, 5]] of Keras is [[0, 2, 4], [1, 3, 5]] there upside down, that is, the
    transposed kernel written row by row into the old shape.
    """
    kernel, recurrent, bias = arrays
    kernels = [np.array([k[d, h] for h in range(k.shape[1]) for d in range(k.shape[0])]).reshape(k.shape)
               for k in np.split(kernel, gates, axis=1)]  # fmt: skip
    recurrents = [k.T for k in np.split(recurrent, gates, axis=1)]
    return [np.concatenate(kernels, axis=1), np.concatenate(recurrents, axis=1), bias.ravel()]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["GRU", "LSTM"])
def test_arrays_of_layers_for_cudnn(keras, cell, bidirectional):
    """Both halves of the bias count by themselves in a GRU, as their sum in an LSTM."""
    (layer,) = stack_of(keras, cell, {}, 1, bidirectional)
    arrays, n = layer.get_weights(), 3
    halves = []
    for i in range(0, len(arrays), n):
        one = arrays[i : i + n]
        if cell == "LSTM":
            first = np.random.default_rng(i).uniform(-1, 1, one[2].shape).astype("float32")
            one = [*one[:2], np.stack([first, one[2] - first])]
        halves += for_cudnn(one, {"GRU": 3, "LSTM": 4}[cell])
    assert halves[2].shape == ((6 if cell == "GRU" else 8) * H,)
    loaded = from_keras(halves)
    assert_close(loaded(sequences())[0], run(keras, [layer], sequences()))
    if cell == "GRU":
        assert loaded.reset_after
        assert np.array_equal(loaded.theta, from_keras(layer).theta)


class OldLayer:
    """What from_keras asks of a layer, as Keras 2's CuDNNGRU answers."""

    name = "cu_dnngru"

    def __init__(self, arrays):
        self.arrays = arrays

    def get_weights(self):
        return self.arrays

    def get_config(self):
        return {"units": H, "go_backwards": False, "stateful": False}


def test_a_layer_for_cudnn():
    layer = random_layer()
    arrays = for_cudnn(to_keras(layer)[0], 3)
    old = type("CuDNNGRU", (OldLayer,), {})(arrays)
    assert np.array_equal(from_keras(old).theta, layer.theta)
    with pytest.raises(ArgumentError, match="activation must not be given here"):
        from_keras(arrays, **GATED)
    with pytest.raises(ShapeError, match="must have 15 columns"):
        from_keras([arrays[0][:, :-1], *arrays[1:]])
