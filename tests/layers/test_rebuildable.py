"""Models are what their options and parameters say: small pickles of a stated version, copies, other dtypes."""

import copy
import pickle
import pickletools

import numpy as np
import pytest
from layer_kinds import KINDS, make, tupled

import elman
from elman.cells import LSTM_PROJECTED
from elman.cells import MGU as MGU_CELL
from elman.errors import ArgumentError, DTypeError, ReadOnlyError, StateDictError
from elman.layers.rebuildable import own_of
from elman.layers.recurrent import Recurrent

WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda made: pickle.loads(pickle.dumps(made)), "copy": copy.copy}


class Scaled(elman.RNN):
    """A user's class: another constructor, and a call that does more."""

    settable = ("note",)

    def __init__(self, factor):
        self.factor = factor
        super().__init__(3, 7, nonlinearity="relu", rng=0)
        self.note = ["a"]

    def __call__(self, x, *args, **options):
        return super().__call__(np.multiply(x, self.factor), *args, **options)


MODELS = {
    **{f"{kind}{both}": (lambda kind=kind, both=both: make(kind, 2, both)) for kind in KINDS for both in (False, True)},
    "all options": lambda: make(
        "LSTM", 2, True, batch_first=True, dropout=0.1, recurrent_dropout=0.2, zoneout=(0.1, 0.3),
        learn_initial_state=True, dtype="float32",
    ),
    "no bias": lambda: make("GRU", bias=False),
    "Recurrent": lambda: Recurrent(MGU_CELL, "mgu", 3, 7, rng=0),
    "projected": lambda: Recurrent(LSTM_PROJECTED, LSTM_PROJECTED.variants[0], 3, 7, proj_size=2, rng=0),
    "Readout": lambda: elman.Readout(3, 2, bias=False, rng=0),
    "MLP": lambda: elman.MLP(3, 5, 2, "sigmoid", dtype="float32", rng=0),
    "Network": lambda: elman.Network(make("GRU"), elman.MLP(7, 4, 2, "relu", rng=0), at="end"),
    "Scaled": lambda: Scaled(0.5),
    "Network of Scaled": lambda: elman.Network(Scaled(0.5), elman.Readout(7, 2, rng=0)),
}  # fmt: skip


def outputs(model):
    x = np.random.default_rng(0).standard_normal((5, 4, 3))
    result = model(x)
    return [result] if isinstance(result, np.ndarray) else [result[0], *tupled(result[1])]


def check_same(model, twin):
    assert type(twin) is type(model)
    assert repr(twin) == repr(model)
    assert twin.theta.tobytes() == model.theta.tobytes()
    for one, other in zip(outputs(model), outputs(twin), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_copies_compute_the_same_bits(name, way):
    model = MODELS[name]()
    twin = WAYS[way](model)
    check_same(model, twin)
    assert np.shares_memory(twin.theta, model.theta) == (way == "copy")
    with pytest.raises(ReadOnlyError):
        twin.dropout = 0.5


@pytest.mark.parametrize("name", MODELS)
def test_pickles_hold_parameters_and_little_else(name):
    model = MODELS[name]()
    model(np.zeros((5, 4, 3)))  # what a call keeps for the next is not in it
    written = pickle.dumps(model)
    assert len(written) < 3000 + model.theta.nbytes
    texts = {text for _, text, _ in pickletools.genops(written) if isinstance(text, str)}
    assert elman.__version__ in texts
    modules = {text for text in texts if text.startswith(("elman.", "numba", "numpy"))}
    allowed = ("elman.layers.", "numpy")  # the classes of models, and arrays: no kernel, no engine
    assert all(text.startswith(allowed) and "engine" not in text for text in modules), modules


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_pickle(protocol):
    for name in ("all options", "Network of Scaled"):
        model = MODELS[name]()
        twin = pickle.loads(pickle.dumps(model, protocol))
        assert repr(twin) == repr(model)
        assert twin.theta.tobytes() == model.theta.tobytes()


def test_a_large_layer_costs_no_more():
    model = elman.LSTM(30, 100, 3, bidirectional=True, rng=0)
    assert len(pickle.dumps(model)) < 1000 + model.theta.nbytes


def test_constructors_leave_nothing_of_their_own_behind():
    """A name that a constructor sets and a pickle does not know would be written twice."""
    for name, build in MODELS.items():
        if "Scaled" not in name:
            assert own_of(build()) == {}, name
    assert own_of(Scaled(2.0)) == {"factor": 2.0, "note": ["a"]}


def test_what_a_user_adds_travels_along():
    model = Scaled(0.5)
    model.note.append("b")
    model._calls = 3
    for way in ("deepcopy", "pickle"):
        twin = WAYS[way](model)
        assert (twin.factor, twin.note, twin._calls) == (0.5, ["a", "b"], 3)
        assert twin.note is not model.note


def test_a_layer_of_no_named_class_shows_its_cell():
    assert repr(MODELS["projected"]()) == "Recurrent(lstm, 'projected', 3, 7, proj_size=2)"


def test_parts_of_a_network_stay_parts():
    net = MODELS["Network"]()
    one, layer = pickle.loads(pickle.dumps((net, net.layer)))
    assert one.layer is layer
    assert np.shares_memory(one.theta, layer.theta)
    pair = copy.deepcopy([net, net])
    assert pair[0] is pair[1]


@pytest.mark.parametrize("change", [{"format": 2, "elman": "7.0"}, {"format": None}, None])
def test_pickles_of_other_versions_are_refused(change):
    model = elman.GRU(3, 4, rng=0)
    state = model.__getstate__()
    assert state["elman"] == elman.__version__
    other = object.__new__(elman.GRU)
    with pytest.raises(StateDictError, match=r"this GRU was pickled by elman .*elman.save there.*elman.load here"):
        other.__setstate__({"weights": 3} if change is None else state | change)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_another_dtype(name, kind):
    model = MODELS[name]()
    before = model.theta.copy()
    twin = model.astype(kind)
    assert type(twin) is type(model)
    assert twin.dtype == kind
    assert np.array_equal(twin.theta, model.theta.astype(kind))
    assert not np.shares_memory(twin.theta, model.theta)
    assert model.theta.tobytes() == before.tobytes()
    assert list(twin.params) == list(model.params)
    for one, other in zip(outputs(model), outputs(twin), strict=True):
        assert other.dtype == kind
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)
    for part in ("layer", "readout"):
        if hasattr(model, part):
            assert getattr(twin, part).dtype == kind
            assert np.shares_memory(twin.theta, getattr(twin, part).theta)
    if hasattr(model, "factor"):
        assert twin.factor == model.factor
    with pytest.raises(ReadOnlyError):
        twin.hidden_size = 3


def test_a_dtype_is_checked_and_so_is_what_it_holds():
    layer = elman.RNN(3, 4, rng=0)
    for bad in ("float16", int, "no"):
        with pytest.raises(DTypeError, match='dtype must be "float32" or "float64"'):
            layer.astype(bad)
    layer.params["bias_ih_l0"][0] = 1e200
    with pytest.raises(ArgumentError, match=r"within the range of float32, got 1e\+200: keep float64"):
        layer.astype("float32")


def test_the_other_dtype_trains_on_its_own():
    net = elman.Network(elman.GRU(3, 4, rng=0), elman.Readout(4, 1, rng=1))
    twin, before = net.astype("float32"), net.theta.copy()
    x = np.random.default_rng(0).standard_normal((6, 8, 3))
    elman.fit(twin, x, x[..., :1], epochs=1, progress=False, rng=0)
    assert np.array_equal(net.theta, before)
    assert not np.array_equal(twin.theta, before.astype("float32"))
