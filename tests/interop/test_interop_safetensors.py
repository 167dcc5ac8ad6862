"""Weights in safetensors files: the same bits back, into the right model or none, and readable by others."""

import json
import struct

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ShapeError, StateDictError
from elman.interop import from_torch
from elman.interop.safetensors import from_safetensors, load_safetensors, save_safetensors

pytest.importorskip("safetensors.numpy")
safetensors = pytest.importorskip("safetensors")

MODELS = {
    "RNN": lambda **o: elman.RNN(3, 4, 2, bidirectional=True, nonlinearity="relu", **o),
    "autonomous": lambda **o: elman.RNN(0, 4, nonlinearity="identity", **o),
    "LSTM": lambda **o: elman.LSTM(3, 4, proj_size=2, **o),
    "GRU": lambda **o: elman.GRU(3, 4, reset_after=False, learn_initial_state=True, **o),
    "Readout": lambda **o: elman.Readout(3, 4, bias=False, **o),
    "MLP": lambda **o: elman.MLP(3, 4, 2, **o),
    "Network": lambda **o: elman.Network(elman.GRU(3, 4, **o), elman.MLP(4, 5, 2, "sigmoid", **o)),
}


def randomized(model, seed=0):
    model.theta[:] = np.random.default_rng(seed).standard_normal(model.theta.size)
    return model


def network(nonlinearity="tanh", **options):
    return elman.Network(elman.RNN(3, 4, nonlinearity=nonlinearity, **options), elman.Readout(4, 2, **options))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.safetensors"


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_come_back(name, dtype, path):
    model = randomized(MODELS[name](dtype=dtype))
    save_safetensors(model, path)
    other = randomized(MODELS[name](dtype=dtype), 1)
    assert load_safetensors(path, other) is other
    assert np.array_equal(other.theta, model.theta)
    arrays = load_safetensors(path)
    assert {n: a.dtype for n, a in arrays.items()} == {n: np.dtype(dtype) for n in model.params}
    assert all(np.array_equal(arrays[n], model.params[n]) for n in model.params)


def test_parts_of_a_network(path):
    net = randomized(network())
    save_safetensors(net, path)
    layer = load_safetensors(path, elman.RNN(3, 4), prefix="layer.")
    assert np.array_equal(layer.theta, net.layer.theta)
    assert load_safetensors(path, prefix="readout.").keys() == net.readout.params.keys()
    with pytest.raises(StateDictError, match="tanh"):
        load_safetensors(path, elman.RNN(3, 4, nonlinearity="relu"), prefix="layer.")


def test_a_narrow_file_goes_into_a_wide_model(path):
    model = randomized(elman.GRU(3, 4, dtype="float32"))
    save_safetensors(model, path)
    assert np.array_equal(load_safetensors(path, elman.GRU(3, 4)).theta, model.theta)


def test_metadata(path):
    save_safetensors(elman.GRU(3, 4), path, {"trained on": "sunspots"})
    with safetensors.safe_open(path, framework="np") as file:
        assert file.metadata() == {"trained on": "sunspots", "elman:": "GRU(reset_after=True)"}
    for metadata, error in (({"epochs": 3}, DTypeError), ({3: "x"}, DTypeError), ({"elman:": "LSTM"}, ArgumentError)):
        with pytest.raises(error, match="metadata"):
            save_safetensors(elman.GRU(3, 4), path, metadata)


def test_a_file_appears_whole_or_not_at_all(path, monkeypatch):
    model = randomized(elman.GRU(3, 4))
    save_safetensors(model, path)

    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        save_safetensors(elman.LSTM(3, 4), path)
    assert np.array_equal(load_safetensors(path, elman.GRU(3, 4)).theta, model.theta)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        save_safetensors(model, path.parent / "missing" / "x.safetensors")


@pytest.mark.parametrize(
    ("other", "error", "words"),
    [
        (lambda: elman.GRU(3, 4, 2), StateDictError, "missing weight_ih_l1"),
        (lambda: elman.GRU(3, 4, bias=False), StateDictError, "unknown bias_ih_l0, bias_hh_l0"),
        (lambda: elman.GRU(3, 5), ShapeError, "weight_ih_l0"),
        (
            lambda: elman.GRU(3, 4, reset_after=False),
            StateDictError,
            r"GRU\(reset_after=True\).*GRU\(reset_after=False\)",
        ),
        (lambda: elman.GRU(3, 4, dtype="float32"), DTypeError, "float64"),
        (lambda: elman.LSTM(3, 4), StateDictError, "GRU"),
    ],
)
def test_another_model_is_refused_and_not_changed(other, error, words, path):
    save_safetensors(randomized(elman.GRU(3, 4)), path)
    model = randomized(other())
    before = model.theta.copy()
    with pytest.raises(error, match=words):
        load_safetensors(path, model)
    assert np.array_equal(model.theta, before)


def test_what_shapes_do_not_tell_is_compared_in_networks(path):
    save_safetensors(network("relu"), path)
    with pytest.raises(StateDictError, match="relu"):
        load_safetensors(path, network("tanh"))


def test_prefixes(path):
    save_safetensors(network(), path)
    with pytest.raises(StateDictError, match=r"'decoder\.'.*readout\.weight"):
        load_safetensors(path, prefix="decoder.")


def written(path, kind, shape, data):
    """A file of one array ``a`` as the format's description has it."""
    header = json.dumps({"a": {"dtype": kind, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def test_halves_become_float32_exactly(path):
    bits = np.arange(2**16, dtype="<u2")
    written(path, "BF16", [256, 256], bits.tobytes())
    values = load_safetensors(path)["a"]
    assert values.dtype == np.float32
    assert values.shape == (256, 256)
    assert np.array_equal(values.ravel().view(np.uint32), bits.astype(np.uint32) << 16)
    # 1, -2, and the largest finite one
    assert values.ravel()[[0x3F80, 0xC000, 0x7F7F]].tolist() == [1.0, -2.0, 3.3895313892515355e38]
    written(path, "F16", [2], np.array([1.5, 65504.0], "<f2").tobytes())
    halves = load_safetensors(path)["a"]
    assert (halves.dtype, halves.tolist()) == (np.float16, [1.5, 65504.0])


def test_types_that_numpy_does_not_have(path):
    written(path, "F8_E4M3", [4], b"1234")
    with pytest.raises(StateDictError, match="F8_E4M3"):
        load_safetensors(path)


@pytest.mark.parametrize("content", [b"", b"hello", struct.pack("<Q", 2**40), struct.pack("<Q", 2) + b"{}"])
def test_damaged_files(content, path):
    path.write_bytes(content)
    with pytest.raises(StateDictError, match=r"weights\.safetensors"):
        load_safetensors(path)
    with pytest.raises(FileNotFoundError):
        load_safetensors(path.with_name("none.safetensors"))


def test_numbers_that_are_not_finite_stay_outside(path):
    safetensors.numpy.save_file(elman.Readout(2, 1).state_dict() | {"weight": np.array([[1.0, np.nan]])}, path)
    with pytest.raises(ArgumentError, match="weight must be finite"):
        load_safetensors(path, elman.Readout(2, 1))


def test_files_of_torch_and_for_torch(path):
    torch = pytest.importorskip("torch")
    from safetensors import torch as other

    module = torch.nn.LSTM(3, 4, 2, bidirectional=True)
    other.save_file({f"rnn.{n}": p.detach() for n, p in module.named_parameters()}, path)
    layer = load_safetensors(path, elman.LSTM(3, 4, 2, bidirectional=True, dtype="float32"), prefix="rnn.")
    assert all(np.array_equal(layer.params[n], p.detach().numpy()) for n, p in module.named_parameters())
    save_safetensors(layer, path)
    back = other.load_file(path)
    assert back.keys() == dict(module.named_parameters()).keys()
    assert all(torch.equal(back[n], p) for n, p in module.named_parameters())


def test_without_the_package(run_script, tmp_path):
    """The format is read and written by elman itself."""
    out = run_script(f"""
        import os, sys
        os.chdir({str(tmp_path)!r})
        sys.modules["safetensors"] = None
        import elman
        from elman.interop.safetensors import load_safetensors, save_safetensors
        save_safetensors(elman.GRU(3, 4), "x.safetensors")
        print(len(load_safetensors("x.safetensors")))
    """)
    assert out.split() == ["4"]


def test_an_independent_reader_finds_the_same(path):
    for kind in MODELS:
        model = randomized(MODELS[kind]())
        save_safetensors(model, path)
        found = safetensors.numpy.load_file(path)
        assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in model.state_dict().items()}


def test_files_of_elman_save_are_read_too(path):
    for kind in STATED:
        model = randomized(STATED[kind]())
        elman.save(path, model, training={"a": np.arange(3)})
        other = from_safetensors(path)
        assert repr(other) == repr(model)
        assert np.array_equal(other.theta, model.theta)
        assert np.array_equal(load_safetensors(path, randomized(STATED[kind](), 1)).theta, model.theta)
    elman.save(path, network("relu"))
    assert load_safetensors(path, prefix="layer.").stated == {"": "RNN(nonlinearity='relu')"}
    with pytest.raises(StateDictError, match="relu"):
        load_safetensors(path, network("tanh"))


STATED = MODELS | {
    "MGU": lambda **o: elman.MGU(3, 4, 2, bias=False, **o),
    "zoneout": lambda **o: elman.LSTM(3, 4, zoneout=(0.25, 0.5), **o),
    "end": lambda **o: elman.Network(
        elman.RNN(3, 4, nonlinearity="identity", zoneout=0.1, **o), elman.Readout(4, 2, **o), at="end"
    ),
    "one bias": lambda **o: elman.Network(elman.LSTM(3, 4, bias=False, **o), elman.Readout(4, 2, **o)),
}


@pytest.mark.parametrize("name", STATED)
def test_the_model_is_made_from_the_file_alone(name, dtype, path):
    """The same model, shown by repr, and the same results to the bit."""
    model = randomized(STATED[name](dtype=dtype))
    save_safetensors(model, path)
    other = from_safetensors(path)
    assert repr(other) == repr(model)
    assert np.array_equal(other.theta, model.theta)
    x = np.random.default_rng(1).standard_normal((5, 2, 0 if name == "autonomous" else 3)).astype(dtype)
    one, two = (m(x) if isinstance(m(x), np.ndarray) else m(x)[0] for m in (model, other))
    assert np.array_equal(one, two)


@pytest.mark.parametrize("name", ["RNN", "GRU", "zoneout", "Readout"])
def test_arrays_keep_what_is_stated_on_their_way_through_from_torch(name, path):
    model = randomized(STATED[name]())
    save_safetensors(model, path)
    weights = load_safetensors(path)
    assert repr(from_torch(weights)) == repr(model)
    net = randomized(elman.Network(elman.GRU(3, 4, reset_after=False), elman.Readout(4, 2)))
    save_safetensors(net, path)
    for prefix, source in (("layer.", load_safetensors(path)), ("", load_safetensors(path, prefix="layer."))):
        layer = from_torch(source, prefix=prefix)
        assert not layer.reset_after
        assert np.array_equal(layer.theta, net.layer.theta)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nonlinearity": "relu"}, "nonlinearity = 'relu' contradicts .*RNN.nonlinearity='tanh'"),
        ({"reset_after": True}, "reset_after = True must not be given"),
        ({"zoneout": 0.5}, "zoneout = 0.5 contradicts"),
        ({"hidden_size": 3}, "hidden_size"),
        ({"at": "end"}, "at = 'end' contradicts"),
    ],
)
def test_options_that_contradict_the_file_are_refused(options, words, path):
    save_safetensors(network(), path)
    with pytest.raises(ArgumentError, match=words):
        from_safetensors(path, **options)
    layer = from_safetensors(path, nonlinearity="tanh", zoneout=0, batch_first=True).layer
    assert layer.batch_first


@pytest.mark.parametrize(
    "text",
    ["RNN(nonlinearity='tanh'", "Transformer()", "RNN('tanh')", "RNN(size=3)", "RNN(nonlinearity=open('x'))", "1", ""],
)
def test_metadata_that_are_not_understood_are_refused(text, path):
    weights = randomized(elman.RNN(3, 4)).state_dict()
    safetensors.numpy.save_file(weights, path, metadata={"elman:": text})
    with pytest.raises(StateDictError, match="damaged, or of a later version"):
        from_safetensors(path)
    with pytest.raises(StateDictError, match="damaged, or of a later version"):
        from_torch(load_safetensors(path))


def test_stated_classes_must_fit_the_shapes(path):
    weights = randomized(elman.GRU(3, 4)).state_dict()
    for text, words in (
        ("LSTM()", "states LSTM, but .* GRU"),
        ("Network(at='steps')", "Network"),
        ("MLP()", "missing"),
    ):
        safetensors.numpy.save_file(weights, path, metadata={"elman:": text})
        with pytest.raises(StateDictError, match=words):
            from_safetensors(path)


def test_files_of_others_need_what_they_do_not_state(path):
    model = randomized(elman.GRU(3, 4, reset_after=False))
    safetensors.numpy.save_file(model.state_dict(), path)
    assert from_safetensors(path).reset_after
    assert repr(from_safetensors(path, reset_after=False)) == repr(model)
    net = randomized(network("relu"))
    safetensors.numpy.save_file(net.state_dict(), path)
    with pytest.raises(ArgumentError, match="nonlinearity must be given"):
        from_safetensors(path)
    assert repr(from_safetensors(path, nonlinearity="relu")) == repr(net)
