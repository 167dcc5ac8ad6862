"""What is said of what was given: each message names the thing, what it must be, what it was, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

import elman
from elman.diagnostics import diagnose, gradient_flow, lyapunov_spectrum
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from elman.losses import MeanSquaredError
from elman.training import clip_by_global_norm, global_norm
from elman.validation.arrays import plain
from elman.validation.rng import generator
from elman.validation.words import kind

T, B, D, H = 5, 4, 2, 3
X = np.random.default_rng(0).standard_normal((T, B, D))
Y = np.random.default_rng(1).standard_normal((B, 1))
LISTED = [X[:, 0], X[:3, 1]]


def network():
    return elman.Network(elman.RNN(D, H, rng=0), elman.Readout(H, 1, rng=1))


def fit(net, *args, **options):
    return elman.fit(net, *args, **{"epochs": 1, "progress": False, "rng": 0} | options)


def objects(items):
    """An object array of things that NumPy would like to stack."""
    out = np.empty(len(items), object)
    for i, item in enumerate(items):
        out[i] = item
    return out


@pytest.mark.parametrize("bad", [{"w": np.ones(3)}, [np.ones(3)], (1.0, 2.0)])
def test_clipping_takes_one_array(bad):
    for clip in (lambda g: clip_by_global_norm(g, 1.0), global_norm):
        with pytest.raises(DTypeError, match=r"gradient must be one array of float32 or float64, got a .*grads.theta"):
            clip(bad)


def test_clipping_takes_real_numbers_that_it_can_change():
    with pytest.raises(DTypeError, match="got ndarray of shape .* and dtype int64"):
        clip_by_global_norm(np.array([3, 4]), 1.0)
    fixed = np.array([3.0, 4.0])
    fixed.flags.writeable = False
    assert clip_by_global_norm(fixed, 5.0) == 5.0
    with pytest.raises(DTypeError, match="gradient must be writable"):
        clip_by_global_norm(fixed, 1.0)
    with pytest.raises(DTypeError, match="masked"):
        clip_by_global_norm(np.ma.masked_array([3.0, 4.0], mask=[True, False]), 1.0)
    for max_norm in ("1", None, True):
        with pytest.raises(DTypeError, match="max_norm must be a number"):
            clip_by_global_norm(np.ones(2), max_norm)


SOURCES = {
    "a layer": lambda rng: elman.RNN(D, H, rng=rng),
    "a readout": lambda rng: elman.Readout(H, 1, rng=rng),
    "fit": lambda rng: fit(network(), X, Y, rng=rng),
    "diagnose": lambda rng: diagnose(elman.RNN(D, H, rng=0), X, rng=rng),
    "diagnose, both directions": lambda rng: diagnose(elman.RNN(D, H, bidirectional=True, rng=0), X, rng=rng),
    "gradient_flow": lambda rng: gradient_flow(elman.RNN(D, H, rng=0).linearize(X), rng=rng),
    "lyapunov_spectrum": lambda rng: lyapunov_spectrum(elman.RNN(D, H, rng=0).linearize(X), rng=rng),
    "dropout": lambda rng: elman.RNN(D, H, 2, dropout=0.5, rng=0).trace(X, training=True, rng=rng),
    "a task": lambda rng: elman.tasks.adding(5, 2, rng=rng),
}


@pytest.mark.parametrize("use", SOURCES)
def test_a_source_of_random_numbers(use):
    must = "rng must be None, an integer of at least 0 as a seed, or a numpy.random.Generator"
    for bad, error, was in (
        ("a", DTypeError, r"got 'a' \(str\)"),
        (1.5, DTypeError, r"got 1.5 \(float\)"),
        (True, DTypeError, "got True"),
        (-1, ArgumentError, "got -1"),
    ):
        with pytest.raises(error, match=f"{must}.*{was}"):
            SOURCES[use](bad)


def test_sources_that_numpy_takes_too():
    seeds = np.random.SeedSequence(3)
    assert generator(seeds).integers(1000) == np.random.default_rng(np.random.SeedSequence(3)).integers(1000)
    assert generator(np.int64(3)).integers(1000) == np.random.default_rng(3).integers(1000)
    own = np.random.default_rng(0)
    assert generator(own) is own


@pytest.mark.parametrize("cell", [elman.RNN, elman.LSTM])
def test_a_state_in_the_order_of_a_batch_first_input(cell):
    layer = cell(D, H, num_layers=2, batch_first=True, rng=0)
    h0 = np.zeros((B, 2, H))
    with pytest.raises(ShapeError, match=r"h0 must have shape .* got \(4, 2, 3\); .*h0.swapaxes\(0, 1\)"):
        layer(X.swapaxes(0, 1), h0 if cell is elman.RNN else (h0, h0))
    with pytest.raises(ShapeError, match=r"got \(4, 2, 3\); .*h0.swapaxes\(0, 1\)"):
        diagnose(layer, X.swapaxes(0, 1), h0=h0)


def test_a_state_that_lacks_an_axis_or_has_one_too_many():
    layer = elman.RNN(D, H, rng=0)
    for x, h0, cure in (
        (X, np.zeros((B, H)), r"h0\[None\]"),
        (X[:, :1], np.zeros((1, H)), r"h0\[None\]"),
        (X[:, 0], np.zeros((1, 1, H)), r"h0\[:, 0\]"),
    ):
        with pytest.raises(ShapeError, match=cure):
            layer(x, h0)
    deep = elman.RNN(D, H, 2, rng=0)
    with pytest.raises(ShapeError, match=r"h0\[:, None\]"):
        deep(X[:, :1], np.zeros((2, H)))


def test_a_wrong_number_of_states():
    h = np.zeros((1, B, H))
    for bad, was in (((h, h, h), "a tuple of 3"), ([h], "a list of 1"), (h, r"ndarray of shape \(1, 4, 3\)")):
        with pytest.raises(ShapeError, match=rf"h0 must be the tuple \(h0, c0\), one array for each.*got {was}"):
            elman.LSTM(D, H, rng=0)(X, bad)
    with pytest.raises(DTypeError, match="c0 must be an array of real numbers, got None"):
        elman.LSTM(D, H, rng=0)(X, (h, None))
    with pytest.raises(ShapeError, match="h0 must be one array, for the cell has one state; got a tuple of 2"):
        elman.RNN(D, H, rng=0)(X, (h, h))


TAKERS = {
    "a layer": lambda x: elman.RNN(D, H, rng=0)(x),
    "linearize": lambda x: elman.GRU(D, H, rng=0).linearize(x),
    "a readout": lambda x: elman.Readout(D, 1, rng=0)(x),
    "fit": lambda x: fit(network(), x, Y),
    "diagnose": lambda x: diagnose(elman.RNN(D, H, rng=0), x),
    "a stepper": lambda x: elman.RNN(D, H, rng=0).stepper()(x),
}


@pytest.mark.parametrize("use", TAKERS)
def test_what_is_no_array(use):
    for bad, was in (
        (None, "None"),
        ((a for a in LISTED), "a? ?generator.*list"),
        ({"x": X}, "a dict with the keys 'x'.*give one of its arrays"),
        ("abc", r"'abc' \(str\)"),
        ({1.0, 2.0}, "a set of 2"),
        (objects(LISTED), r"an object array of 2 sequences: give them as a list, list\(x"),
        (objects([1.0, None]), r"objects of shape \(2,\), such as None"),
    ):
        with pytest.raises((DTypeError, ArgumentError), match=rf"^x(_t)? must be .*got {was}"):
            TAKERS[use](bad)


def test_targets_that_are_no_array():
    with pytest.raises(DTypeError, match="y must be an array of real numbers, got None"):
        fit(network(), X, None)


@pytest.mark.parametrize("use", TAKERS)
def test_bfloat16_of_torch(use):
    torch = pytest.importorskip("torch")
    with pytest.raises(DTypeError, match=r"x(_t)? must be .* or float64; got bfloat16: .* x(_t)?.float\(\)"):
        TAKERS[use](torch.zeros(T, B, D, dtype=torch.bfloat16))


@pytest.mark.parametrize("use", TAKERS)
def test_bfloat16_of_numpy(use):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    with pytest.raises(DTypeError, match=r'float32 or float64; got bfloat16: x(_t)?.astype\("float32"\)'):
        TAKERS[use](X.astype(bfloat16))


def test_bfloat16_weights():
    torch = pytest.importorskip("torch")
    weights = torch.nn.RNN(D, H).to(torch.bfloat16).state_dict()
    layer = elman.RNN(D, H, rng=0)
    with pytest.raises(DTypeError, match=r"weight_ih_l0 .*got bfloat16: .*weight_ih_l0.float\(\)"):
        layer.load_state_dict(weights)
    layer.load_state_dict({name: w.float() for name, w in weights.items()})


def test_named_parameters():
    torch = pytest.importorskip("torch")
    module, layer = torch.nn.RNN(D, H), elman.RNN(D, H, rng=0)
    with pytest.raises(DTypeError, match=r"weight_ih_l0 .*detach\(\).*module.state_dict\(\) instead of"):
        layer.load_state_dict(dict(module.named_parameters()))
    with pytest.raises(DTypeError, match="the weights must be a mapping of names to arrays.*got generator"):
        layer.load_state_dict(module.named_parameters())
    layer.load_state_dict(module.state_dict())


def test_models_of_torch():
    torch = pytest.importorskip("torch")
    module = torch.nn.RNN(D, H)
    words = r"torch's RNN.*: convert its recurrent layer first, elman.interop.from_torch\(module\)"
    with pytest.raises(ArgumentError, match=f"model must be a layer or network of elman.*{words}"):
        diagnose(module, X)
    with pytest.raises(DTypeError, match=f"net must be an elman.Network.*{words}"):
        fit(module, X, Y)
    with pytest.raises(DTypeError, match=words):
        elman.Network(module, elman.Readout(H, 1))


def test_classes_in_the_place_of_their_objects():
    for use, words in (
        (lambda: diagnose(elman.RNN, X), r"model must be .*got the class RNN itself: make one first, RNN\(...\)"),
        (lambda: diagnose(elman.RNN), "the class RNN itself"),
        (lambda: diagnose(elman.JacobianStack), "the class JacobianStack itself"),
        (lambda: fit(elman.Network, X, Y), r"net must be .*the class Network itself: make one first, Network\(...\)"),
        (lambda: elman.Network(elman.RNN, elman.Readout(H, 1)), "the class RNN itself.*make one first"),
        (lambda: lyapunov_spectrum(elman.RNN), r"the class RNN itself; make one first.*RNN\(...\).linearize\(x\)"),
        (
            lambda: fit(network(), X, Y, optimizer=elman.Adam),
            r"optimizer must be .*the class Adam itself: make",
        ),
        (lambda: fit(network(), X, Y, loss=MeanSquaredError), "loss must be .*the class MeanSquaredError itself"),
    ):
        with pytest.raises((DTypeError, ArgumentError), match=words):
            use()


class Saying:
    """A loss that returns what it was made with, and ones where that is None."""

    def __init__(self, answer):
        self.answer = answer

    def value_and_gradient(self, output, target):
        return self.answer(output)


ANSWERS = [
    (lambda o: None, DTypeError, r"must return two things.*\(value, d_output\).*got None"),
    (lambda o: 1.0, DTypeError, r"must return two things.*got 1.0 \(float\)"),
    (lambda o: (None, np.ones_like(o)), DTypeError, "must return a number as the loss.*got None"),
    (lambda o: ("1", np.ones_like(o)), DTypeError, r"must return a number as the loss.*got '1' \(str\)"),
    (lambda o: (np.ones(3), np.ones_like(o)), DTypeError, r"must return a number as the loss.*shape \(3,\)"),
    (
        lambda o: (1.0, None),
        DTypeError,
        "d_output of Saying.value_and_gradient must be an array of real numbers, got None",
    ),
    (lambda o: (1.0, np.ones(7)), ShapeError, r"d_output of Saying.* must have the shape of the output.*got \(7,\)"),
    (lambda o: (1.0, 1j * o), DTypeError, "d_output of Saying.* must hold real numbers, got dtype complex128"),
    (lambda o: (np.nan, np.ones_like(o)), NonFiniteError, "returned nan as the loss for a finite output, up to .*look"),
    (lambda o: (np.inf, np.ones_like(o)), NonFiniteError, "returned inf as the loss for a finite output"),
    (lambda o: (1.0, o * np.nan), NonFiniteError, "a derivative d_output with .* numbers that are not finite"),
]


@pytest.mark.parametrize(("answer", "error", "words"), ANSWERS)
def test_a_loss_that_returns_no_loss(answer, error, words):
    net = network()
    before = net.theta.copy()
    for use in (
        lambda: fit(net, X, Y, loss=Saying(answer)),
        lambda: diagnose(net, X, Y, loss=Saying(answer)),
    ):
        with pytest.raises(error, match=words) as caught:
            use()
        assert "Saying.value_and_gradient" in str(caught.value)
        assert error is not NonFiniteError or caught.value.what == "loss"
    np.testing.assert_array_equal(net.theta, before)


def test_a_loss_may_answer_in_numbers_of_numpy_and_lists():
    for answer in (
        lambda o: (np.float32(0.5), np.ones(o.shape, np.float32)),
        lambda o: [np.array(0.5), np.ones(o.shape, int).tolist()],
    ):
        assert fit(network(), X, Y, loss=Saying(answer)).loss == [0.5]


def test_a_stepper_names_the_step_the_sample_and_the_state():
    for cell, layers in ((elman.RNN, 1), (elman.RNN, 2), (elman.LSTM, 1)):
        stepper = cell(D, H, layers, rng=0).stepper(batch_size=B)
        for x_t in X[:3]:
            stepper(x_t)
        bad, before = X[3].copy(), np.copy(stepper.state)
        bad[2, 1] = np.nan
        for _ in range(2):
            with pytest.raises(NonFiniteError, match="at step 3 of sample 2.*The state is as before") as caught:
                stepper(bad)
            assert (caught.value.step, caught.value.sample) == (3, 2)
            assert caught.value.gate in ("h", "c")
        np.testing.assert_array_equal(stepper.state, before)
        stepper(X[3])
        np.testing.assert_array_equal(np.asarray(stepper.state), np.asarray(cell(D, H, layers, rng=0)(X[:4])[1]))


@pytest.mark.parametrize("make", [elman.initializers.spectral_radius, elman.initializers.gaussian])
def test_initialisers_refuse_when_they_are_made(make):
    for bad, error, was in (
        (-1, ArgumentError, "at least 0, got -1"),
        (np.nan, ArgumentError, "got nan"),
        (np.inf, ArgumentError, "got inf"),
        ("0.9", DTypeError, "got '0.9'"),
        (None, DTypeError, "got None"),
    ):
        with pytest.raises(error, match=rf"^(radius|gain) must be .*{was}"):
            make(bad)
    with pytest.raises(ArgumentError, match="weight_hh_init must be a function .*got 0.9"):
        elman.RNN(D, H, weight_hh_init=0.9)


def test_kinds():
    for value, words in (
        (None, "None"),
        (int, "the class int itself"),
        ([1], "a list of 1"),
        ((), "an empty tuple"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "a dict with the keys 'a', 'b', 'c', ..."),
        (np.zeros(3), "ndarray of shape (3,) and dtype float64"),
        (elman.RNN(D, H, rng=0), "RNN"),
    ):
        assert kind(value) == words
    assert len(kind("a" * 10**6)) < 60
    assert kind(np.random.default_rng(0)) == "Generator"


def test_arrays_of_numbers_come_as_they_are():
    x = np.zeros((2, 3), np.float32)[:, ::-1]
    assert plain(x, "x") is x
    assert plain([[1, 2]], "x").dtype.kind == "i"
    with pytest.raises(DTypeError, match=r"x must be an array of real numbers, got .*dtype datetime64"):
        plain(np.zeros(2, "M8[s]"), "x")
