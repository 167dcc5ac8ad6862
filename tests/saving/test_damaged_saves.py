"""Files of elman.save that are damaged, foreign, of another version, or lie: refused with a reason, soon, in little
memory.

The generator is seeded. In the usual run it makes 60 files of damaged bytes; at full size, ``-m campaign``, thousands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from file_damage import damaged

import elman
from elman.errors import ArgumentError, ElmanError, StateDictError
from elman.saving.file import DIGEST, _digest
from elman.tensor_file import DESCRIPTION, open_tensors, write_tensors


def example():
    """A network, and values that can be compared."""
    net = elman.Network(elman.LSTM(2, 3, 2, zoneout=(0.1, 0.2), rng=0), elman.MLP(3, 4, 2, rng=1))
    return net, {"step": 3, "nested": [(1.5, None), {"b": np.arange(4)}], "long": [0.5] * 20}


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of an undamaged file."""
    path, (net, training) = tmp_path_factory.mktemp("whole") / "whole.safetensors", example()
    optimizer, theta = elman.Adam(0.01), net.theta.copy()
    optimizer.step(theta, np.ones_like(theta))
    history = elman.History([1.0, 0.5], [2.0, 1.5], [0.1] * 20, 1.0)
    elman.save(
        path, net, optimizer=optimizer, history=history, rng=np.random.default_rng(0), notes="note", training=training
    )
    return path.read_bytes()


def hostile(content, path, count):
    """Load damaged files; how many were refused. One that is not holds the same, to the bit."""
    rng, refused, net = np.random.default_rng(21), 0, example()[0]
    for _ in range(count):
        path.write_bytes(damaged(content, rng))
        try:
            saved = elman.load(path)
        except ElmanError as error:
            refused += 1
            assert isinstance(error, StateDictError)  # noqa: PT017 either result is right
            assert str(error).isprintable()  # noqa: PT017
            assert len(str(error)) < 2000  # noqa: PT017
        else:
            assert saved.net.theta.tobytes() == net.theta.tobytes()
            assert repr(saved.net) == repr(net)
            assert repr(saved.training) == repr(example()[1])
            assert saved.notes == "note"
    return refused


def test_damaged_files_are_refused_or_hold_the_same(content, tmp_path):
    assert hostile(content, tmp_path / "m.safetensors", 60) >= 58


@pytest.mark.campaign
def test_many_damaged_files_are_refused_or_hold_the_same(content, tmp_path):
    assert hostile(content, tmp_path / "m.safetensors", 5000) >= 4800


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100])
def test_files_that_end_early(content, tmp_path, length):
    (tmp_path / "m").write_bytes(content[:length])
    with pytest.raises(StateDictError, match="not a safetensors file, or is damaged"):
        elman.load(tmp_path / "m")


def changed(path, content, change, tensors=None):
    """Write a file whose description is another, with the digest that belongs to it."""
    path.write_bytes(content)
    file = open_tensors(path)
    said = json.loads(file.metadata[DESCRIPTION])
    arrays = {name: file.read(name) for name in file.entries} | (tensors or {})
    said = change(said) or said
    text = said if isinstance(said, str) else json.dumps(said)
    write_tensors(path, arrays, {DESCRIPTION: text, DIGEST: _digest(text, arrays)})


def put(*keys, value):
    """A change of one entry of the description."""

    def change(said):
        for key in keys[:-1]:
            said = said[key]
        said[keys[-1]] = value

    return change


LAYER = ("net", "options", "layer", "options")
LIES = {
    "sizes": (put(*LAYER, "hidden_size", value=10**12), "hidden_size = 1000000000000 does not fit"),
    "layers": (put(*LAYER, "num_layers", value=10**6), "num_layers = 1000000 does not fit"),
    "shapes": (put(*LAYER, "hidden_size", value=2), "readout must read layer.output_size"),
    "options": (put(*LAYER, "input_size", value=1), "layer.weight_ih_l0 must have shape"),
    "projection": (put(*LAYER, "proj_size", value=-1), "proj_size must be at least 0"),
    "a truth value": (put(*LAYER, "bias", value="yes"), "bias must be True or False"),
    "an option": (put(*LAYER, "dropuot", value=0.1), "dropuot"),
    "dtype": (put(*LAYER, "dtype", value="float32"), "layer and readout must have one dtype"),
    "class": (put("net", "class", value="Transformer"), "class 'Transformer', which this version of elman"),
    "module": (put("net", "class", value="os.system"), "class 'os.system', which this version"),
    "own class": (put("net", "base", value="Network"), "your own class 'Network'"),
    "readout": (put("net", "options", "readout", value={"class": "GRU", "options": {}}), "description is of no model"),
    "itself": (put("net", "options", "layer", value={"class": "Network", "options": {}}), "description is of no model"),
    "no class": (put("net", value=[1]), "must have a class and options"),
    "no net": (put("net", value=None), "must have a class and options"),
    "options missing": (put("net", value={"class": "GRU", "options": {}}), "missing 2 required"),
    "attributes": (put("net", "own", value={"layer": 3}), "adds attributes to Network that it has"),
    "optimizer": (put("optimizer", "class", value="History"), "optimizer of the class 'History'"),
    "optimizer base": (put("optimizer", "class", value="Optimizer"), "optimizer"),
    "optimizer state": (put("optimizer", "state", value={}), "its optimizer is none that elman writes"),
    "lr": (put("optimizer", "state", "lr", value=-1.0), "lr must be a positive finite number"),
    "history": (put("history", value={"loss": [], "secret": 1}), "its history is none that elman writes"),
    "history kinds": (put("history", "loss", value="low"), "history: loss is 'low' (str)"),
    "history clip": (put("history", "clip_norm", value=True), "history: clip_norm is True (bool)"),
    "generator": (put("rng", "bit_generator", value="__loader__"), "bit generator '__loader__'"),
    "generator state": (put("rng", "state", value={"a": 1}), "its rng is none that elman writes"),
    "generator seed": (put("rng", "seed", value={"b": 1}), "its rng is none that elman writes"),
    "scaler": (put("scaler", value={"class": "system", "values": {}}), "scaler of the class 'system'"),
    "notes": (put("notes", value=3), "notes or training are of another kind"),
    "training": (put("training", value=[]), "notes or training are of another kind"),
    "array": (put("training", value={"a": {"$array": "nowhere"}}), "no elman writes"),
    "objects": (
        put("training", value={"a": {"$array": "data.0", "dtype": "|O", "shape": [1]}}),
        "dtype '|O', which no elman writes",
    ),
    "kind": (put("training", value={"a": {"$eval": "1"}}), "unknown kind '$eval'"),
    "deep": (lambda said: json.dumps(said).replace("[", "[" * 900, 1).replace("]", "]" * 900, 1), "cannot be loaded"),
    "very deep": (lambda said: "[" * 200_000, "description is no JSON"),
    "not a number": (lambda said: json.dumps(said).replace('"format": 1', '"format": NaN'), "no JSON"),
    "no format": (put("format", value="1"), "its description has no format"),
    "no table": (lambda said: "3", "its description has no format"),
}


@pytest.mark.parametrize("lie", LIES)
def test_descriptions_that_lie_are_refused_with_a_reason(lie, content, tmp_path):
    path = tmp_path / "m.safetensors"
    change, words = LIES[lie]
    changed(path, content, change)
    tracemalloc.start()
    try:
        with pytest.raises(StateDictError) as caught:
            elman.load(path)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    assert words in str(caught.value)
    assert path.name in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_sizes_that_only_together_are_too_large_take_no_memory(tmp_path):
    """Each size is that of an axis in the file; the weights of such a layer would take gigabytes."""
    elman.save(path := tmp_path / "m.safetensors", elman.RNN(3, 5, rng=0))
    wide = {"net.weight_ih_l0": np.zeros((1, 30_000)), "net.bias_ih_l0": np.zeros(30_000)}
    changed(path, path.read_bytes(), put("net", "options", "hidden_size", value=30_000), wide)
    tracemalloc.start()
    try:
        with pytest.raises(StateDictError, match="sizes must be those of the"):
            elman.load(path)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()


def test_parameters_of_other_names_shapes_and_types(tmp_path):
    elman.save(path := tmp_path / "m.safetensors", elman.RNN(3, 5, rng=0))
    content = path.read_bytes()
    for arrays, words in (
        ({"net.weight": np.zeros(3)}, "unknown weight"),
        ({"net.weight_hh_l0": np.zeros((5, 4))}, "weight_hh_l0 must have shape (5, 5)"),
        ({"net.weight_hh_l0": np.zeros((5, 5), np.float32)}, "weight_hh_l0 is float32, and the model float64"),
        ({"net.weight_hh_l0": np.full((5, 5), np.nan)}, "weight_hh_l0 must"),
    ):
        changed(path, content, lambda said: None, arrays)
        with pytest.raises(StateDictError) as caught:
            elman.load(path)
        assert words in str(caught.value)


def test_other_versions(content, tmp_path):
    path = tmp_path / "m.safetensors"
    changed(path, content, lambda said: {**said, "format": 7, "elman": "9.9\x1b[2J"})
    with pytest.raises(StateDictError, match=r"has format 7, written by elman 9.9\\x1b.* reads format 1") as caught:
        elman.load(path)
    assert str(caught.value).isprintable()


def test_one_bit_of_a_weight_is_noticed(content, tmp_path):
    """A reader of the format would not: every header is right, and every number finite."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    entry, data = open_tensors(path).entries["net.layer.weight_hh_l0"], bytearray(content)
    data[entry.start] ^= 1
    path.write_bytes(data)
    with pytest.raises(StateDictError, match="the digest is of other content"):
        elman.load(path)


def test_foreign_files(tmp_path):
    path = tmp_path / "m.safetensors"
    write_tensors(path, {"weight": np.zeros((2, 2))}, {"format": "pt"})
    with pytest.raises(StateDictError, match=r"not one of elman.save.*elman.interop.from_safetensors\(path\)"):
        elman.load(path)
    for other in (b"PK\x03\x04" + bytes(100), b"\x80\x04" + bytes(100), b"hello", b"{}" * 50):
        path.write_bytes(other)
        with pytest.raises(StateDictError, match="is not a safetensors file, or is damaged"):
            elman.load(path)
    with pytest.raises(FileNotFoundError):
        elman.load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        elman.load(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ArgumentError, match="must be a regular file"):
        elman.load(path)


def header(text, data=b""):
    """A file with this header."""
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(8, "little") + raw + data


def entry(**changes):
    said = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]} | changes
    return json.dumps({"a": said})


HEADERS = {
    "huge length": ((2**63).to_bytes(8, "little") + b"{}", "a header of 9223372036854775808 bytes"),
    "no JSON": (header('{"a":'), "not JSON"),
    "no text": (header(b"\xff\xfe{}"), "not JSON"),
    "no table": (header("[1]"), "not a table of names"),
    "deep": (header("[" * 100_000), "not JSON"),
    "twice": (header('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}'), "occurs in it twice"),
    "metadata": (header('{"__metadata__":{"a":3}}'), "metadata are not text"),
    "no entry": (header('{"a":3}'), "not described by dtype"),
    "more words": (header(entry(more=1), bytes(8)), "not described by dtype"),
    "shape": (header(entry(shape=[-1]), bytes(8)), "not valid"),
    "shape true": (header(entry(shape=[True]), bytes(8)), "not valid"),
    "shape huge": (header(entry(shape=[2**61, 8]), bytes(8)), "cannot take 8 bytes"),
    "shape text": (header(entry(shape="8"), bytes(8)), "not valid"),
    "many axes": (header(entry(shape=[1] * 60), bytes(8)), "not valid"),
    "offsets": (header(entry(data_offsets=[0]), bytes(8)), "not valid"),
    "backwards": (header(entry(data_offsets=[8, 0]), bytes(8)), "cannot take -8 bytes"),
    "hole": (header(entry(data_offsets=[8, 16]), bytes(16)), "where the one before ends"),
    "more data": (header(entry(), bytes(9)), "and the file at"),
    "less data": (header(entry(), bytes(7)), "and the file at"),
    "type": (header(entry(dtype=3), bytes(8)), "not valid"),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_that_lie(kind, tmp_path):
    path, (content, words) = tmp_path / "m.safetensors", HEADERS[kind]
    path.write_bytes(content)
    with pytest.raises(StateDictError) as caught:
        open_tensors(path)
    assert words in str(caught.value)


def test_arrays_that_share_their_bytes_are_refused(tmp_path):
    """A thousand names for one array would take a thousand times its memory."""
    said = {f"a{i}": {"dtype": "F64", "shape": [1000], "data_offsets": [0, 8000]} for i in range(1000)}
    (tmp_path / "m").write_bytes(header(json.dumps(said), bytes(8000)))
    with pytest.raises(StateDictError, match="begins at byte"):
        open_tensors(tmp_path / "m")


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path):
    write_tensors(path := tmp_path / "m", {"a": np.arange(4.0), "b": np.arange(4.0)}, {})
    file = open_tensors(path)
    path.write_bytes(path.read_bytes()[:-8])
    assert np.array_equal(file.read("a"), np.arange(4.0))
    with pytest.raises(StateDictError, match="it ends within 'b'"):
        file.read("b")


def test_truth_values_are_0_or_1(tmp_path):
    """Others would be both true and not equal to True."""
    said = {"a": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}
    (tmp_path / "m").write_bytes(header(json.dumps(said), b"\x01\x02"))
    with pytest.raises(StateDictError, match="neither 0 nor 1"):
        open_tensors(tmp_path / "m").read("a")


def test_a_process_that_is_killed_leaves_the_old_file_or_the_new_one(tmp_path):
    """Killed at moments from before the first save to long after; what stands there can always be loaded."""
    path, script = tmp_path / "m.safetensors", tmp_path / "save.py"
    elman.save(path, elman.RNN(3, 4, rng=0), training={"n": -1})
    script.write_text(
        "import itertools, numpy, elman\n"
        "net = elman.RNN(100, 300, rng=0)\n"
        "print('ready', flush=True)\n"
        f"for n in itertools.count():\n    elman.save({str(path)!r}, net, training={{'n': n}})\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(elman.__file__).parents[1])}
    found = []
    for wait in (0.0, 0.013, None):
        before = path.stat().st_ino
        with subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.PIPE) as run:
            assert run.stdout.readline() == b"ready\n"
            while wait is None and path.stat().st_ino == before and run.poll() is None:
                time.sleep(0.001)
            time.sleep(wait or 0.0)
            run.kill()
        found.append(elman.load(path).training["n"])
    assert found[-1] >= 0
