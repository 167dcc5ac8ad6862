"""Files that are damaged, lie about sizes, or are no files: refused by errors of ours, soon and in little memory.

The generator is seeded. In the usual run it makes a few hundred files; at full size, ``-m campaign``, some 16,000.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from file_damage import damaged

import elman
from elman import cli
from elman.errors import ArgumentError, DTypeError, ElmanError, StateDictError
from elman.interop import from_onnx, load_pt, load_safetensors
from elman.interop.arrays_file import read_npy
from elman.interop.weights_file import read_weights

KINDS = ("npz", "packed.npz", "npy", "safetensors", "onnx", "pt")
NEEDS = {"safetensors": "safetensors", "onnx": "onnx", "pt": "torch"}


def saved(write):
    """What a function writes to a file."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


@cache
def whole(kind):
    """A file of a kind, undamaged."""
    weights = elman.GRU(2, 3, rng=0).state_dict()
    if kind == "npy":
        return saved(lambda out: np.save(out, np.random.default_rng(0).standard_normal((9, 5, 2))))
    if kind == "safetensors":
        return pytest.importorskip("safetensors.numpy").save(weights, {"elman:": "GRU(reset_after=True)"})
    if kind == "onnx":
        pytest.importorskip("onnx")
        return elman.interop.to_onnx(elman.GRU(2, 3, rng=0)).SerializeToString()
    if kind == "pt":
        torch = pytest.importorskip("torch")
        return saved(lambda out: torch.save({k: torch.from_numpy(w) for k, w in weights.items()}, out))
    return saved(lambda out: (np.savez if kind == "npz" else np.savez_compressed)(out, **weights))


def read(kind, path):
    """Read a file of a kind by the function that is for it."""
    readers = {"npy": read_npy, "safetensors": load_safetensors, "onnx": from_onnx, "pt": load_pt}
    return readers.get(kind, read_weights)(str(path))


def hostile(kind, path, count):
    """Read ``count`` damaged files; how many were refused."""
    content, rng, refused = whole(kind), np.random.default_rng(11), 0
    for _ in range(count):
        path.write_bytes(damaged(content, rng))
        try:
            read(kind, path)
        except ElmanError as error:
            refused += 1
            assert str(error).isprintable()  # noqa: PT017 either result is right
            assert len(str(error)) < 5000  # noqa: PT017
    return refused


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_read_or_refused(tmp_path, kind):
    assert hostile(kind, tmp_path / f"w.{kind}", 60) > 10


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files_are_read_or_refused(tmp_path, kind):
    assert hostile(kind, tmp_path / f"w.{kind}", 2700) > 500


def tell(kind, path, count, capsys):
    """Give damaged files to the command line."""
    content, rng = whole(kind), np.random.default_rng(12)
    weights = path.parent / "good.npz"
    weights.write_bytes(whole("npz"))
    for _ in range(count):
        path.write_bytes(damaged(content, rng))
        given = [str(weights), "--input", str(path)] if kind == "npy" else [str(path), "--steps", "4"]
        code, err = cli.main(["diagnose", *given]), capsys.readouterr().err
        assert code in (0, 1)
        assert (code == 1) == err.startswith("elman: ")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", KINDS)
def test_no_traceback_leaves_the_command_line(tmp_path, kind, capsys):
    tell(kind, tmp_path / f"w.{kind}", 8, capsys)


@pytest.mark.campaign
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", KINDS)
def test_no_traceback_leaves_the_command_line_many_times(tmp_path, kind, capsys):
    tell(kind, tmp_path / f"w.{kind}", 400, capsys)


# Files made to be large ----------------------------------------------------------------------------------------------


def npy(shape, descr="'<f8'"):
    """A header that claims a shape, and 16 bytes."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(16)


@pytest.mark.parametrize(
    "content",
    [
        npy("(1000000000000, 3)"), npy("(-1, 3)"), npy("(2**200,)"), npy("(3,)"), npy("(1,)"), npy("(9, 9)", "'|O'"),
        npy("(10000000000,)", "'|V0'"), npy("(((((", "'<f8'"), npy("(2,)", "'<x8'"), npy("(2,", "'<f8"), npy("'\\"),
        npy("(" * 300), npy("(2,)").replace(b"NUMPY\x01", b"NUMPY\x09"), b"\x93NUMPY", b"", npy("(True, 2)"),
    ],
)  # fmt: skip
def test_headers_that_lie(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(StateDictError, match="not an .npy file of plain numbers"):
        read_npy(str(path))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("weight_hh_l0.npy", content)
    with pytest.raises(StateDictError, match="not an .npz of plain arrays"):
        read_weights(str(tmp_path / "x.npz"))


def test_an_archive_that_unpacks_to_a_thousand_times_its_size_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, weight_hh_l0=np.zeros((4000, 4000)))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_, **__: pytest.fail("unpacked"))
    with pytest.raises(StateDictError, match="bytes would take 128000"):
        read_weights(str(path))


@pytest.mark.parametrize(("place", "value", "words"), [(8, 1, "encrypted"), (10, 14, "packed by method 14")])
def test_entries_of_other_kinds_are_refused(tmp_path, place, value, words):
    content = bytearray(whole("npz"))
    at = content.index(b"PK\x01\x02")
    content[at + place] |= value
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(StateDictError, match=words):
        read_weights(str(tmp_path / "x.npz"))


@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors", "onnx", "pt"])
def test_endless_devices_are_not_read(tmp_path, kind, capsys):
    pytest.importorskip(NEEDS.get(kind, "numpy"))
    path = tmp_path / f"w.{kind}"
    path.symlink_to("/dev/zero")
    with pytest.raises(ArgumentError, match="must be a regular file"):
        read(kind, path)
    assert cli.main(["diagnose", str(path)]) == 1
    assert "must be a regular file" in capsys.readouterr().err


def test_tensors_that_repeat_their_numbers_are_not_written_out(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"weight": torch.zeros(1, dtype=torch.float16).expand(10**9, 100)}, tmp_path / "w.pt")
    with pytest.raises(StateDictError, match="its tensors would take 200000000000"):
        load_pt(tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["w.npz", "--steps", "1000000000000"], "--steps must be at most"),
        (["a\0b"], "NUL"),
        (["w.npz", "--input", "a\0b"], "NUL"),
        (["w.npz", "--json", "a\0b"], "NUL"),
        (["w.npz", "--json", "."], "it is a folder"),
        (["w.npz", "--json", ""], "it is a folder"),
        (["w.npz", "--plot", "."], "it is a folder"),
        (["w.npz", "--plot", "a.xyz"], "must end as a picture does"),
        (["w.npz", "--prefix", "\x1b[31m\n"], r"'\x1b[31m\n"),
        (["\ud800"], "a name that a file can have"),
    ],
)
def test_arguments_that_cannot_be_obeyed_are_refused_before_the_work(tmp_path, monkeypatch, capsys, arguments, words):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path("w.npz").write_bytes(whole("npz"))
    monkeypatch.setattr(cli, "diagnose", lambda *_, **__: pytest.fail("worked first"))
    assert cli.main(["diagnose", *arguments]) == 1
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert err.strip().isprintable()


def test_a_demo_whose_picture_cannot_be_is_refused_before_the_work(capsys):
    pytest.importorskip("matplotlib")
    assert cli.main(["demo", "--output", "a.xyz"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "must end as a picture does" in err


# ONNX ----------------------------------------------------------------------------------------------------------------


def recurrent(nodes, initializers=(), w="W", functions=()):
    """A model with an RNN whose W is ``w``."""
    helper = pytest.importorskip("onnx").helper
    from onnx import TensorProto, numpy_helper

    arrays = {"R": np.zeros((1, 3, 3), np.float32), **dict(initializers)}
    tensors = [numpy_helper.from_array(v, k) if isinstance(v, np.ndarray) else v for k, v in arrays.items()]
    free = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", "Y")]
    rnn = helper.make_node("RNN", ["x", w, "R"], ["Y"], hidden_size=3)
    graph = helper.make_graph([*nodes, rnn], "g", free[:1], free[1:], tensors)
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions)


def op(*arguments, **attributes):
    return pytest.importorskip("onnx").helper.make_node(*arguments, **attributes)


W = {"W": np.zeros((1, 3, 2), np.float32)}


@pytest.mark.parametrize("levels", [30, 90, 400, 5000])
def test_a_tensor_read_by_two_paths_is_evaluated_once(levels):
    """Without a memory of values, 30 levels would be a thousand million evaluations."""
    chain = [op("Concat", [f"a{i}", f"a{i}"], [f"b{i}"], axis=0) for i in range(levels)]
    cut = [op("Gather", [f"b{i}", "zero"], [f"a{i + 1}"], axis=0) for i in range(levels)]
    made = recurrent(
        [n for pair in zip(chain, cut, strict=True) for n in pair],
        {"a0": W["W"], "zero": np.zeros(1, np.int64)}, w=f"a{levels}",
    )  # fmt: skip
    if levels < 50:
        assert from_onnx(made).layer.input_size == 2
    else:
        with pytest.raises(ArgumentError, match="more than 100 nodes, one after the other"):
            from_onnx(made)


@pytest.mark.parametrize("how", ["doubled", "shape", "expanded", "gathered", "summed"])
def test_constants_far_larger_than_the_model_are_refused(how):
    n = np.array([1, 3, 10**13], np.int64)
    nodes = {
        "doubled": [op("Concat", [f"a{i}", f"a{i}"], [f"a{i + 1}"], axis=2) for i in range(60)],
        "shape": [op("ConstantOfShape", ["n"], ["a60"])],
        "expanded": [op("Expand", ["a0", "n"], ["a60"])],
        "gathered": [op("Gather", [f"a{i}", "many"], [f"a{i + 1}"], axis=2) for i in range(60)],
        "summed": [op("ConstantOfShape", ["million"], [f"c{i}"]) for i in range(9000)]
        + [op("Concat", [f"c{i}" for i in range(9000)], ["a60"], axis=2)],
    }[how]
    arrays = {"a0": np.zeros((1, 3, 1), np.float32), "n": n, "many": np.zeros(1000, np.int64),
              "million": np.array([1, 3, 300_000], np.int64)}  # fmt: skip
    with pytest.raises(ArgumentError, match="far more than the model holds"):
        from_onnx(recurrent(nodes, arrays, w="a60"))


def test_a_tensor_made_again_out_of_itself_is_refused():
    nodes = [op("Identity", ["W"], ["a"]), op("Identity", ["a"], ["a"])]
    with pytest.raises(ArgumentError, match="make each tensor once"):
        from_onnx(recurrent(nodes, W, w="a"))


def test_functions_that_call_each_other_are_bounded():
    onnx = pytest.importorskip("onnx")

    def function(name, nodes):
        return onnx.helper.make_function("own", name, ["x"], ["y"], nodes, [onnx.helper.make_opsetid("own", 1)])

    doubling = [function("f0", [op("RNN", ["x", "x", "x"], ["y"])])]
    for i in range(40):
        calls = [op(f"f{i}", ["x"], ["m"], domain="own"), op(f"f{i}", ["m"], ["y"], domain="own")]
        doubling.append(function(f"f{i + 1}", calls))
    with pytest.raises(ArgumentError, match="at most 100000 nodes"):
        from_onnx(recurrent([op("f40", ["x"], ["z"], domain="own")], W, functions=doubling))
    circle = [*doubling[:1], function("g", [op("g", ["x"], ["y"], domain="own")])]
    with pytest.raises(ArgumentError, match="functions that call themselves"):
        from_onnx(recurrent([op("g", ["x"], ["z"], domain="own")], W, functions=circle))


def test_bytes_and_objects_read_no_files(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    made = recurrent([], {"W": np.arange(6, dtype=np.float32).reshape(1, 3, 2)})
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="data.bin", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    content = Path("m.onnx").read_bytes()
    for model in (content, onnx.load_model_from_string(content)):
        with pytest.raises(ArgumentError, match="is in another file"):
            from_onnx(model)
    layer = from_onnx("m.onnx").layer
    assert np.array_equal(layer.params["weight_ih_l0"], np.arange(6).reshape(3, 2))
    Path("data.bin").unlink()
    with pytest.raises((FileNotFoundError, ArgumentError)):
        from_onnx("m.onnx")
    os.symlink("/dev/zero", "data.bin")
    with pytest.raises(ArgumentError, match="regular file"):
        from_onnx("m.onnx")


def test_a_small_model_does_not_read_a_large_file_again_and_again(tmp_path):
    onnx = pytest.importorskip("onnx")
    tensors = {}
    for i in range(100):
        tensor = onnx.TensorProto(name=f"t{i}", data_type=1, dims=[25000], data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="data.bin")
        tensors[tensor.name] = tensor
    (tmp_path / "data.bin").write_bytes(bytes(100_000))
    (tmp_path / "m.onnx").write_bytes(recurrent([], {**W, **tensors}).SerializeToString())
    with pytest.raises(ArgumentError, match="not read more than its files hold, 100000 bytes; got 10000000"):
        from_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_integers_of_four_bits_are_no_weights(kind):
    onnx = pytest.importorskip("onnx")
    tensor = onnx.TensorProto(name="W", data_type=getattr(onnx.TensorProto, kind), dims=[1, 3, 2], raw_data=b"\x21" * 3)
    with pytest.raises(DTypeError, match="must hold real floating-point numbers"):
        from_onnx(recurrent([], {"W": tensor}))


def test_names_in_messages_are_short_and_harmless():
    name = "\x1b[2J\n" + "n" * 10_000
    with pytest.raises(ArgumentError, match="must be constant") as caught:
        from_onnx(recurrent([], w=name))
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()
