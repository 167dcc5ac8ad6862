"""Models in one file: made again with the same bits and options, and all that was saved beside them."""

import json
import math

import numpy as np
import pytest

import elman
from elman.cells import MGU as MGU_CELL
from elman.errors import ArgumentError, DTypeError, NonFiniteError, StateDictError, WriteError
from elman.layers.recurrent import Recurrent
from elman.saving import build, describe
from elman.saving.companions import SCALERS
from elman.tensor_file import open_tensors, write_tensors


def recurrent(kind, **options):
    return lambda **more: getattr(elman, kind)(3, 4, **options, **more)


LAYERS = {
    "RNN": recurrent("RNN"),
    "relu": recurrent("RNN", nonlinearity="relu", bias=False, batch_first=True),
    "identity": recurrent("RNN", nonlinearity="identity", learn_initial_state=True),
    "GRU": recurrent("GRU", num_layers=2, dropout=0.3),
    "GRU before": recurrent("GRU", reset_after=False, recurrent_dropout=0.25),
    "MGU": recurrent("MGU", bidirectional=True, num_layers=2, batch_first=True),
    "LSTM": recurrent("LSTM", zoneout=(0.1, 0.3), num_layers=2, bidirectional=True, learn_initial_state=True),
    "LSTM projected": recurrent("LSTM", proj_size=2, zoneout=0.5),
    "Recurrent": lambda **o: Recurrent(MGU_CELL, "mgu", 3, 4, **o),
    "autonomous": lambda **o: elman.RNN(0, 4, **o),
}
HEADS = {
    "Readout": lambda n, **o: elman.Readout(n, 2, **o),
    "no bias": lambda n, **o: elman.Readout(n, 3, bias=False, **o),
    "MLP": lambda n, **o: elman.MLP(n, 5, 2, "relu", **o),
}
DENSE = {
    "Readout": lambda **o: elman.Readout(3, 2, bias=False, **o),
    "MLP": lambda **o: elman.MLP(3, 4, 2, "sigmoid", **o),
}


class Peephole(Recurrent):
    """A user's class, with attributes of its own and another constructor."""

    settable = ("note",)

    def __init__(self, units):
        super().__init__(MGU_CELL, "mgu", 3, units, rng=0)
        self.table, self.note, self._calls = {"scale": np.arange(3.0), 2: (1, None)}, "mine", 5


class Sign(elman.training.Optimizer):
    """A user's optimizer."""

    slots = ("last",)

    def _compute(self, theta, gradient, state, new_state, new):
        np.add(state[0], gradient, out=new_state[0])
        np.subtract(theta, self.lr * np.sign(new_state[0]), out=new)


class Scale:
    """A user's scaler."""

    def __init__(self, mean):
        self.mean = mean

    def to_dict(self):
        return {"mean": self.mean}

    @classmethod
    def from_dict(cls, values):
        return cls(values["mean"])


def randomized(model, seed=0):
    model.theta[:] = np.random.default_rng(seed).uniform(-0.6, 0.6, model.theta.size)
    return model


def network(**options):
    return randomized(elman.Network(elman.GRU(3, 4, **options), elman.Readout(4, 2, **options)))


def run(model, seed=1):
    """What a model computes from inputs and initial states that are not zero, and its gradient."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((6, 5, getattr(model, "layer", model).input_size))
    if isinstance(model, elman.layers.dense.Dense):
        return [model(x)]
    layer = getattr(model, "layer", model)
    state = layer.states
    h0 = tuple(rng.standard_normal((state.directions, x.shape[layer.batch_axis], n)) for n in state.sizes)
    output, hn = model(x, h0 if len(h0) > 1 else h0[0])
    trace = model.trace(x, training=True, rng=7)
    gradient = model.backward(trace, np.ones_like(trace.output)).theta
    return [output, *(hn if isinstance(hn, tuple) else (hn,)), model(x)[0], trace.output, gradient]


def check_same(one, other):
    assert type(other) is type(one)
    assert repr(other) == repr(one)
    assert other.theta.dtype == one.theta.dtype
    assert other.theta.tobytes() == one.theta.tobytes()
    assert list(other.params) == list(one.params)
    for a, b in zip(run(one), run(other), strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", LAYERS)
def test_layers_come_back_with_the_same_bits(name, dtype, path):
    model = randomized(LAYERS[name](dtype=dtype))
    elman.save(path, model)
    check_same(model, elman.load(path).net)


@pytest.mark.parametrize("name", DENSE)
def test_layers_without_recurrence(name, dtype, path):
    model = randomized(DENSE[name](dtype=dtype))
    elman.save(path, model)
    check_same(model, elman.load(path).net)


@pytest.mark.parametrize("at", ["steps", "end"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", LAYERS)
def test_networks_come_back_with_the_same_bits(name, head, at, dtype, path):
    layer = LAYERS[name](dtype=dtype)
    net = randomized(elman.Network(layer, HEADS[head](layer.output_size, dtype=dtype), at=at))
    elman.save(path, net)
    again = elman.load(path).net
    check_same(net, again)
    assert np.shares_memory(again.theta, again.layer.theta)
    with pytest.raises(elman.errors.ReadOnlyError):
        again.layer.hidden_size = 5


def test_options_of_the_start_alone_are_not_kept(path):
    """Initialisers and the forget bias have done what they do; the parameters say the rest."""
    model = elman.LSTM(3, 4, forget_bias=3.0, weight_hh_init=lambda shape, rng: np.full(shape, 0.25), rng=0)
    elman.save(path, model)
    check_same(model, elman.load(path).net)
    assert not {"forget_bias", "weight_hh_init", "rng"} & set(describe(model)["options"])


def test_a_description_is_json_and_makes_the_model():
    net = network(dtype="float32")
    said = json.loads(json.dumps(describe(net)))
    assert said["class"] == "Network"
    assert said["options"]["layer"]["options"]["reset_after"] is True
    again = build(said)
    assert repr(again) == repr(net)
    again.load_state_dict(net.state_dict())
    check_same(net, again)


class TestBeside:
    def trained(self, optimizer, epochs, net=None, rng=0):
        net = network() if net is None else net
        x = np.random.default_rng(2).standard_normal((7, 12, 3))
        history = elman.fit(
            net, x, x[..., :2], optimizer=optimizer, epochs=epochs, batch_size=4, progress=False, rng=rng
        )
        return net, history

    @pytest.mark.parametrize("optimizer", [elman.SGD(0.1, 0.9, nesterov=True), elman.Adam(0.01, betas=(0.8, 0.9))])
    def test_training_goes_on_with_the_same_bits(self, optimizer, path):
        rng = np.random.default_rng(5)
        net, history = self.trained(optimizer, 2, rng=rng)
        elman.save(path, net, optimizer=optimizer, history=history, rng=rng, notes="two epochs é\u2028\ud800")
        saved = elman.load(path)
        assert saved.history == history
        assert saved.history.seconds == history.seconds
        assert repr(saved.optimizer) == repr(optimizer)
        assert saved.notes == "two epochs é\u2028\ud800"
        one = self.trained(optimizer, 2, net, rng)
        other = self.trained(saved.optimizer, 2, saved.net, saved.rng)
        assert one[0].theta.tobytes() == other[0].theta.tobytes()
        assert one[1] == other[1]

    @pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
    def test_sources_of_random_numbers(self, kind, path):
        rng = np.random.Generator(getattr(np.random, kind)(12))
        rng.standard_normal(7)
        rng.integers(0, 9, dtype=np.uint32)  # half of a draw is kept for the next
        rng.spawn(2)
        elman.save(path, network(), rng=rng)
        again = elman.load(path).rng
        for one, other in ((rng, again), (rng.spawn(1)[0], again.spawn(1)[0])):
            assert type(other.bit_generator) is type(one.bit_generator)
            assert np.array_equal(one.integers(0, 9, 5, np.uint32), other.integers(0, 9, 5, np.uint32))
            assert np.array_equal(one.standard_normal(50), other.standard_normal(50))

    def test_scaler_and_optimizer_of_a_user(self, path):
        optimizer, net = Sign(0.5), network()
        optimizer.step(net.theta, np.arange(net.theta.size) - 7.0)
        elman.save(path, net, optimizer=optimizer, scaler=Scale(np.array([0.1, np.nan])))
        with pytest.raises(StateDictError, match=r"optimizer: an optimizer of the class 'Sign'.*cells=\[Sign\]"):
            elman.load(path)
        with pytest.raises(StateDictError, match=r"scaler: a scaler of the class 'Scale'.*cells=\[Scale\]"):
            elman.load(path, cells=[Sign])
        saved = elman.load(path, cells=[Sign, Scale])
        assert saved.scaler.mean.tobytes() == np.array([0.1, np.nan]).tobytes()
        one, other = net.theta.copy(), net.theta.copy()
        optimizer.step(one, np.ones(one.size))
        saved.optimizer.step(other, np.ones(one.size))
        assert np.array_equal(one, other)

    def test_a_scaler_of_elman_need_not_be_given(self, path, monkeypatch):
        """Its module is found by a table, and not by what the file says."""
        monkeypatch.setitem(SCALERS, "Scale", __name__)
        elman.save(path, network(), scaler=Scale(2.5))
        assert elman.load(path).scaler.mean == 2.5
        monkeypatch.setitem(SCALERS, "Scale", "elman.no_such_module")
        with pytest.raises(StateDictError, match=r"scaler: a scaler of the class 'Scale'.*cells=\[Scale\]"):
            elman.load(path)

    def test_what_is_not_given_is_not_there(self, path):
        elman.save(path, network())
        saved = elman.load(path)
        assert (saved.optimizer, saved.history, saved.rng, saved.scaler) == (None,) * 4
        assert (saved.notes, saved.training) == ("", {})
        assert saved.versions["elman"] == elman.__version__
        assert saved.versions["numpy"] == np.__version__
        assert repr(saved) == f"Saved({saved.net!r})"


def bits(value):
    """A value as something that is equal only for the same types and bits."""
    if isinstance(value, np.ndarray | np.generic):
        return type(value).__name__, np.asarray(value).dtype.str, np.shape(value), np.asarray(value).tobytes()
    if isinstance(value, float | complex):
        return type(value).__name__, np.array(value).tobytes()
    if isinstance(value, list | tuple):
        return type(value).__name__, [bits(item) for item in value]
    if isinstance(value, dict):
        return "dict", [(bits(key), bits(item)) for key, item in value.items()]
    return type(value).__name__, value


VALUES = {
    "plain": {"a": None, "b": True, "c": -3, "d": "text", "e": [], "f": (), "g": {}, "h": [[1], (2, (3,))]},
    "floats": [0.1, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, float(np.float64(1) / 3)],
    "nan": np.frombuffer(bytes.fromhex("010000000000f8ff"))[0].item(),
    "many floats": [float(n) / 7 for n in range(40)] + [math.nan, math.inf, -0.0],
    "tuple of floats": tuple(float(n) for n in range(20)),
    "numbers mixed": [1.0, 2] * 20,
    "large integers": [2**128 - 1, -(2**200), 0],
    "complex": [1j, complex(-0.0, math.nan)],
    "bytes": b"\x00\xff",
    "keys": {3: 1, None: 2, (1, "a"): 3, "$array": 4, "": 5, "é\ud800": 6, 1.5: 7},
    "arrays": {str(kind): np.arange(6).reshape(2, 3).astype(kind) for kind in "bBhHiIlLefd?"},
    "complex arrays": np.array([1 + 2j, np.nan]),
    "no axes": np.array(2.5),
    "no numbers": np.zeros((3, 0, 2), np.float32),
    "strided": np.arange(12.0).reshape(3, 4).T[::2],
    "other byte order": np.arange(3, dtype=">f8"),
    "words": np.array(["a", "ünd"]),
    "times": np.array(["2020-01-01", "NaT"], "datetime64[D]"),
    "numbers": [np.float32(0.1), np.int64(3), np.True_, np.float64(np.nan), np.str_("x"), np.datetime64("2020-01-01")],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_bit_for_bit(name, path):
    given = {"step": 3, "values": VALUES[name], "again": [VALUES[name]]}
    elman.save(path, network(), training=given)
    assert bits(elman.load(path).training) == bits(given)


def test_values_that_cannot_be_written_are_refused_by_their_place(path):
    itself = []
    itself.append(itself)
    for value, error, match in (
        (object(), DTypeError, r"training\['a'\]\[1\] must be made of None, .*; got object"),
        (lambda: 0, DTypeError, "got function"),
        ({1, 2}, DTypeError, "got a set of 2"),
        (np.array([object()]), DTypeError, "must be an array of numbers"),
        (np.longdouble(1), DTypeError, "longdouble|float128|must be an array of numbers"),
        (np.ma.masked_array([1.0, 2.0]), DTypeError, "plain array, got MaskedArray"),
        (itself, ArgumentError, "does it hold itself"),
        (1 << 9000, ArgumentError, "at most 8192 bits"),
    ):
        if isinstance(value, np.longdouble) and np.dtype(np.longdouble) == np.float64:
            continue
        with pytest.raises(error, match=match):
            elman.save(path, network(), training={"a": [0, value]})
    assert not path.exists()


class TestOwnClasses:
    def test_a_class_of_a_user_must_be_given(self, path):
        model = randomized(Peephole(4))
        elman.save(path, elman.Network(model, elman.Readout(4, 2)))
        net = model_net = elman.Network(model, elman.Readout(4, 2, rng=3))
        elman.save(path, net)
        with pytest.raises(StateDictError, match=r"own class 'Peephole'.*elman.load\(path, cells=\[Peephole\]\)"):
            elman.load(path)
        again = elman.load(path, cells=[Peephole]).net
        check_same(model_net, again)
        assert bits(again.layer.table) == bits(model.table)
        assert (again.layer.note, again.layer._calls) == ("mine", 5)

    def test_a_record_of_a_cell_must_be_given(self, path):
        from dataclasses import replace

        cell = replace(MGU_CELL, name="mine")
        model = randomized(Recurrent(cell, "mgu", 3, 4))
        elman.save(path, model)
        with pytest.raises(StateDictError, match=r"the cell 'mine'.*cells=\[YOUR_CELL\]"):
            elman.load(path)
        again = elman.load(path, cells=[cell]).net
        check_same(model, again)
        assert again.cell is cell

    def test_a_class_of_another_kind_does_not_do(self, path):
        class Other(elman.GRU):
            pass

        Other.__name__ = "Peephole"
        elman.save(path, Peephole(4))
        with pytest.raises(StateDictError, match="was made of 'Recurrent' when it was saved; .* made of GRU"):
            elman.load(path, cells=[Other])

    @pytest.mark.parametrize(
        ("cells", "error"), [("GRU", DTypeError), ([3], DTypeError), (3, DTypeError), ([Scale, Scale], ArgumentError)]
    )
    def test_cells_are_checked(self, cells, error, path):
        elman.save(path, network())
        with pytest.raises(error, match="cells must"):
            elman.load(path, cells=cells)

    def test_attributes_that_cannot_be_written(self, path):
        model = Peephole(4)
        model._hook = print
        with pytest.raises(DTypeError, match=r"attributes of Peephole that its class adds\['_hook'\] must be"):
            elman.save(path, model)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"optimizer": "adam"}, DTypeError, "optimizer must be one of elman"),
        ({"history": {}}, DTypeError, "history must be what elman.fit returned"),
        ({"rng": 0}, DTypeError, "rng must be a numpy.random.Generator"),
        ({"rng": np.random.RandomState(0)}, DTypeError, "rng must be a numpy.random.Generator"),
        ({"scaler": 3}, DTypeError, "scaler must have to_dict"),
        ({"notes": 3}, DTypeError, "notes must be a string"),
        ({"training": [1]}, DTypeError, "training must be a dict"),
    ],
)
def test_what_is_saved_is_checked(options, error, match, path):
    with pytest.raises(error, match=match):
        elman.save(path, network(), **options)
    assert not path.exists()


def test_no_other_models_and_none_that_could_not_be_loaded(path):
    with pytest.raises(DTypeError, match="net must be a layer, readout or network of elman, got"):
        elman.save(path, {"weight": np.zeros(3)})
    net = network()
    net.params["layer.bias_hh_l0"][2] = np.nan
    with pytest.raises(NonFiniteError, match="layer.bias_hh_l0"):
        elman.save(path, net)
    net = network()
    other = elman.Network(net.layer, elman.Readout(4, 1))
    with pytest.raises(ArgumentError, match="now belongs to another network"):
        elman.save(path, net)
    assert other.layer is net.layer
    assert not path.exists()


def test_a_file_appears_whole_or_not_at_all(path, monkeypatch):
    """A disk that is full in the middle leaves the old file as it was, and nothing beside it."""
    elman.save(path, network())
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteError, match="No space left"):
        elman.save(path, network(), notes="new")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_other_readers_find_the_parameters(path):
    """The package safetensors is an independent reader, and an independent writer."""
    numpy = pytest.importorskip("safetensors.numpy")
    net = network(dtype="float32")
    elman.save(path, net, training={"b": np.array([True]), "h": np.zeros(3, np.float16), "i": np.arange(3)})
    found = numpy.load_file(path)
    for name, view in net.params.items():
        assert found[f"net.{name}"].tobytes() == view.tobytes()
    with numpy.safe_open(path, framework="np") as file:
        metadata = file.metadata()
    numpy.save_file(found, path, metadata=metadata)
    check_same(net, elman.load(path).net)


def test_arrays_are_aligned_to_their_numbers(path):
    write_tensors(path, {"a": np.zeros(3, bool), "b": np.zeros(3), "c": np.zeros((), np.float16)}, {})
    for entry in open_tensors(path).entries.values():
        assert entry.start % {"BOOL": 1, "F64": 8, "F16": 2}[entry.kind] == 0
