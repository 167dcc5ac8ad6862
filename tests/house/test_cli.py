"""The command line on real files, and files that appear whole or not at all."""

import io
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

import elman
from elman import cli, demo
from elman.errors import MissingExtraError
from elman.files import replacing
from elman.interop import weights_file


@pytest.fixture
def weights(tmp_path):
    layer = elman.RNN(2, 10, bias_init="uniform", rng=0)
    path = tmp_path / "weights.npz"
    np.savez(path, **layer.state_dict())
    return layer, path


@pytest.fixture
def inputs(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).standard_normal((30, 20, 2)))
    return path


def run(capsys, *arguments):
    code = cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_diagnose_prints_what_the_library_says(capsys, weights, inputs):
    layer, path = weights
    code, out, err = run(capsys, "diagnose", path, "--input", inputs)
    expected = elman.diagnose(layer, np.load(inputs), rng=0)
    assert (code, err) == (0, "")
    assert str(expected) in out
    assert str(expected.verify()) in out


def test_diagnose_without_input_says_what_it_assumes(capsys, weights):
    code, out, _ = run(capsys, "diagnose", weights[1], "--steps", 25)
    assert code == 0
    assert "ASSUMED input" in out
    assert "25 steps" in out


def test_json_holds_the_same_numbers(capsys, weights, inputs, tmp_path):
    layer, path = weights
    target = tmp_path / "diagnosis.json"
    code, _, _ = run(capsys, "diagnose", path, "--input", inputs, "--json", target)
    content = json.loads(target.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    expected = elman.diagnose(layer, np.load(inputs), rng=0)
    assert code == 0
    assert content["diagnosis"]["verdict"] == expected.verdict
    assert content["diagnosis"]["rate"] == expected.rate
    assert content["verification"] is not None
    assert list(tmp_path.glob(".*")) == []


def test_infinities_survive_json():
    value = {"a": [np.inf, -np.inf, 1.5], "b": (float("nan"), None, "x")}
    text = json.dumps(cli._finite(value), allow_nan=False)
    back = json.loads(text)
    assert [float(v) for v in back["a"]] == [np.inf, -np.inf, 1.5]
    assert np.isnan(float(back["b"][0]))


def test_batch_first_float32_and_networks(capsys, tmp_path):
    net = elman.Network(elman.RNN(2, 8, dtype="float32", rng=0), elman.Readout(8, 1, dtype="float32", rng=0))
    np.savez(tmp_path / "net.npz", **net.state_dict())
    x = np.random.default_rng(0).standard_normal((20, 30, 2)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    code, out, _ = run(capsys, "diagnose", tmp_path / "net.npz", "--input", tmp_path / "x.npy", "--batch-first")
    expected = elman.diagnose(net, x.swapaxes(0, 1), rng=0)
    assert code == 0
    assert f"{expected.rate:+.4f}" in out
    assert expected.loss is not None
    assert f"{expected.loss.rate:+.4f}" in out


def test_plot_is_a_picture(capsys, weights, inputs, tmp_path):
    target = tmp_path / "curve.png"
    code, _, _ = run(capsys, "diagnose", weights[1], "--input", inputs, "--plot", target)
    assert code == 0
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "No such file"),
        (lambda p: p.write_text("no archive"), "not an .npz"),
        (lambda p: p.write_bytes(b""), "not an .npz"),
        (lambda p: p.write_bytes(b"PK\x03\x04 cut short"), "not an .npz"),
        (lambda p: np.savez(p, weight=np.zeros(3)), "weight_ih_l0"),
        (lambda p: np.savez(p, weight_ih_l0=np.zeros((4, 2)), weight_hh_l0=np.zeros((4, 5))), "rows for H = 5, got 4"),
        (lambda p: np.savez(p, weight_ih_l0=np.array([{}], dtype=object)), "plain arrays"),
    ],
)
def test_errors_are_one_line_and_the_code_is_1(capsys, tmp_path, make, words):
    path = tmp_path / "w.npz"
    make(path)
    code, _out, err = run(capsys, "diagnose", path)
    assert code == 1
    assert err.startswith("elman: ")
    assert err.count("\n") == 1
    assert words in err


def test_pickles_are_not_loaded(capsys, tmp_path, weights):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("a pickle of the user's file was run",)

    np.save(tmp_path / "x.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    code, _, err = run(capsys, "diagnose", weights[1], "--input", tmp_path / "x.npy")
    assert code == 1
    assert "plain numbers" in err


def test_module_and_version():
    out = subprocess.run(
        [sys.executable, "-m", "elman", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert out == f"elman {elman.__version__}\n"


def test_demo(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "MOST_EPOCHS", 25)
    target = tmp_path / "picture.png"
    result = demo.run(target, progress=False)
    out, _ = capsys.readouterr()
    assert target.read_bytes().startswith(b"\x89PNG")
    series = demo.load()
    test = series.values[series.years >= demo.FIRST_TEST_YEAR]
    before = series.values[(series.years >= demo.FIRST_TEST_YEAR - 1) & (series.years < 2008)]
    np.testing.assert_allclose(result["errors"]["persistence"], np.sqrt(np.mean((test - before) ** 2)))
    assert result["errors"]["Elman network"] < result["errors"]["persistence"]
    assert result["after"][1].agrees
    assert min(result["errors"], key=result["errors"].get) + "  " in out
    assert "<- best" in out


def test_autoregression_of_the_demo_is_least_squares():
    """Against the normal equations, on the residuals' orthogonality to every regressor."""
    series = demo.load()
    order, split = 9, series.at(demo.FIRST_TEST_YEAR)
    forecast = demo.autoregression(series, order)
    rows = np.array([[*series.z[t - order : t], 1.0] for t in range(order, len(series.z))])
    known = rows[: split - order]
    c = np.linalg.solve(known.T @ known, known.T @ series.z[order:split])
    np.testing.assert_allclose(forecast, series.back(rows[split - order :] @ c), rtol=1e-8)


def test_the_demos_windows_end_before_the_year_they_forecast():
    series = demo.load()
    w = series.windows_before(1950, 1953)
    assert w.shape == (demo.WINDOW, 3, 1)
    for i, year in enumerate((1950, 1951, 1952)):
        assert w[-1, i, 0] == series.z[series.at(year) - 1]


def test_demo_without_matplotlib_fails_before_the_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"elman\[plot\]"):
        demo.run()


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_folder_that_is_missing_is_found_before_the_work(capsys, weights, option, monkeypatch):
    monkeypatch.setattr(cli, "diagnose", lambda *_, **__: pytest.fail("worked first"))
    code, _, err = run(capsys, "diagnose", weights[1], option, "/missing/folder/out.file")
    assert code == 1
    assert "/missing/folder/out.file" in err


@pytest.mark.parametrize("option", [("--steps", "0"), ("--seed", "-1"), ("--steps", "many")])
def test_numbers_out_of_range_are_usage_errors(capsys, weights, option):
    with pytest.raises(SystemExit) as caught:
        cli.main(["diagnose", str(weights[1]), *option])
    assert caught.value.code == 2
    assert option[0] in capsys.readouterr().err


def test_replacing_keeps_the_old_file_on_an_error(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), replacing(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    with replacing(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "missing" / "a.txt"):
        pass


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pt"])
def test_cells_stacks_and_kinds_of_file(capsys, tmp_path, ending, inputs):
    """The cell is read off the shapes; each kind of file gives the diagnosis that the library gives."""
    layer = elman.LSTM(2, 6, 2, rng=0)
    path = tmp_path / f"w.{ending}"
    if ending == "npz":
        np.savez(path, **layer.state_dict())
    elif ending == "safetensors":
        elman.interop.save_safetensors(layer, path)
    else:
        torch = pytest.importorskip("torch")
        torch.save({name: torch.from_numpy(w) for name, w in layer.state_dict().items()}, path)
    code, out, _err = run(capsys, "diagnose", path, "--input", inputs)
    assert code == 0
    assert str(elman.diagnose(layer, np.load(inputs), rng=0)) in out


# What the file states, and where in it the layer is ------------------------------------------------------------------

STATED = [
    lambda: elman.RNN(2, 6, nonlinearity="identity", bias_init="uniform", rng=0),
    lambda: elman.RNN(2, 6, nonlinearity="relu", zoneout=0.25, bias_init="uniform", rng=0),
    lambda: elman.GRU(2, 6, reset_after=False, bias_init="uniform", rng=0),
    lambda: elman.LSTM(2, 6, zoneout=(0.5, 0.125), bias_init="uniform", rng=0),
    lambda: elman.MGU(2, 6, bias_init="uniform", rng=0),
    lambda: elman.Network(elman.GRU(2, 6, reset_after=False, rng=0), elman.Readout(6, 1, rng=1), at="end"),
    lambda: elman.Network(elman.RNN(2, 6, nonlinearity="sigmoid", rng=0), elman.MLP(6, 5, 1, "relu", rng=1)),
]


@pytest.mark.parametrize("make", STATED)
def test_what_the_file_states_is_obeyed(capsys, tmp_path, inputs, make):
    model = make()
    elman.interop.save_safetensors(model, tmp_path / "w.safetensors")
    code, out, err = run(capsys, "diagnose", tmp_path / "w.safetensors", "--input", inputs)
    assert (code, err) == (0, "")
    assert str(elman.diagnose(model, np.load(inputs), rng=0)) in out
    assert "STATED by the file" in out
    assert "ASSUMED" not in out


def test_what_is_stated_is_printed_in_one_order(capsys, tmp_path, inputs):
    elman.interop.save_safetensors(STATED[5](), tmp_path / "w.safetensors")
    _, out, _ = run(capsys, "diagnose", tmp_path / "w.safetensors", "--input", inputs)
    stated = "STATED by the file: Network(at='end'), layer. GRU(reset_after=False), readout. Readout()"
    assert out.splitlines()[0] == stated


def test_an_identity_network_that_explodes_is_said_to_explode(capsys, tmp_path, inputs):
    """As a tanh network it would be saturated, and its gradient vanish."""
    layer = elman.RNN(2, 6, nonlinearity="identity", rng=0)
    layer.params["weight_hh_l0"][...] *= 1.5
    elman.interop.save_safetensors(layer, tmp_path / "w.safetensors")
    code, out, _ = run(capsys, "diagnose", tmp_path / "w.safetensors", "--input", inputs)
    assert code == 0
    assert f"{np.log(1.5):+.4f}" in out


@pytest.mark.parametrize(
    ("make", "flags", "words"),
    [
        (STATED[0], ["--nonlinearity", "tanh"], ["nonlinearity = 'tanh'", "RNN(nonlinearity='identity')"]),
        (STATED[2], ["--reset-after", "yes"], ["reset_after = True", "GRU(reset_after=False)"]),
        (STATED[2], ["--nonlinearity", "tanh"], ["nonlinearity = 'tanh'", "GRU(reset_after=False)"]),
        (STATED[2], ["--zoneout", "0.5"], ["zoneout = 0.5", "GRU(reset_after=False)"]),
        (STATED[3], ["--zoneout", "0.5"], ["zoneout = 0.5", "LSTM(zoneout=(0.5, 0.125))"]),
        (STATED[3], ["--zoneout", "1", "2", "3"], ["zoneout = (1.0, 2.0, 3.0)", "LSTM(zoneout=(0.5, 0.125))"]),
        (STATED[6], ["--nonlinearity", "tanh"], ["nonlinearity = 'tanh'", "RNN(nonlinearity='sigmoid')"]),
    ],
)
def test_what_contradicts_the_file_is_refused(capsys, tmp_path, make, flags, words):
    path = tmp_path / "w.safetensors"
    elman.interop.save_safetensors(make(), path)
    code, out, err = run(capsys, "diagnose", path, *flags)
    assert (code, out) == (1, "")
    assert all(word in err for word in words)


@pytest.mark.parametrize(
    ("make", "flags"),
    [
        (STATED[0], ["--nonlinearity", "identity"]),
        (STATED[1], ["--nonlinearity", "relu", "--zoneout", "0.25"]),
        (STATED[2], ["--reset-after", "no", "--zoneout", "0"]),
        (STATED[3], ["--zoneout", "0.5", "0.125"]),
    ],
)
def test_what_agrees_with_the_file_or_stands_in_for_it(capsys, tmp_path, inputs, make, flags):
    """The same flags beside a file that states it, and beside one that cannot."""
    layer = make()
    elman.interop.save_safetensors(layer, tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", **layer.state_dict())
    for ending in ("safetensors", "npz"):
        code, out, _ = run(capsys, "diagnose", tmp_path / f"w.{ending}", "--input", inputs, *flags)
        assert code == 0
        assert str(elman.diagnose(layer, np.load(inputs), rng=0)) in out


@pytest.mark.parametrize(
    ("make", "assumed"),
    [
        (lambda: elman.RNN(2, 6, rng=0), "nonlinearity = tanh, zoneout = 0.0. Where it is otherwise, say so by --nonl"),
        (lambda: elman.GRU(2, 6, rng=0), "reset_after = True, zoneout = 0.0. Where it is otherwise, say so by --reset"),
        (lambda: elman.LSTM(2, 6, rng=0), ": zoneout = 0.0. Where it is otherwise, say so by --zoneout"),
    ],
)
def test_what_a_file_cannot_state_is_said_to_be_assumed(capsys, tmp_path, inputs, make, assumed):
    np.savez(tmp_path / "w.npz", **make().state_dict())
    _, out, _ = run(capsys, "diagnose", tmp_path / "w.npz", "--input", inputs)
    assert "ASSUMED" in out
    assert assumed in out


@pytest.fixture
def checkpoint(tmp_path):
    """A training checkpoint of a model with a cell and a layer in it, as its owner has it."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.ModuleDict(
        {
            "encoder": torch.nn.ModuleDict({"rnn": torch.nn.LSTM(2, 5), "norm": torch.nn.LayerNorm(5)}),
            "decoder": torch.nn.GRUCell(2, 4),
            "head": torch.nn.Linear(5, 3),
        }
    )
    path = tmp_path / "model.pkl"
    torch.save({"epoch": 3, "state_dict": model.state_dict(), "optimizer": {"lr": 0.1}}, path)
    return model, path


@pytest.mark.parametrize("prefix", ["encoder.rnn.", "encoder.rnn", "decoder."])
def test_a_part_of_a_checkpoint(capsys, checkpoint, inputs, prefix):
    model, path = checkpoint
    code, out, err = run(
        capsys, "diagnose", path, "--key", "state_dict", "--prefix", prefix, "--input", inputs
    )  # fmt: skip
    assert (code, err) == (0, "")
    expected = elman.interop.from_torch(model, prefix=prefix)
    assert str(elman.diagnose(expected, np.load(inputs), rng=0)) in out


def test_a_file_of_save_is_diagnosed_as_what_it_is(capsys, tmp_path, inputs):
    net = elman.Network(elman.GRU(2, 4, reset_after=False, rng=0), elman.Readout(4, 1, rng=1))
    elman.save(tmp_path / "model.safetensors", net, training={"weight_hh_l0": np.zeros((3, 3))})
    code, out, err = run(capsys, "diagnose", tmp_path / "model.safetensors", "--input", inputs)
    assert (code, err) == (0, "")
    assert "STATED by the file: Network(at='steps'), layer. GRU(reset_after=False), readout. Readout()" in out
    assert str(elman.diagnose(net, np.load(inputs), rng=0)) in out
    assert "NOT USED" not in out


def test_what_a_file_holds_is_listed(capsys, checkpoint):
    _, path = checkpoint
    # the one entry that holds tensors by name need not be told
    for more in ([], ["--key", "state_dict"], ["--prefix", "head."], ["--key", "state_dict", "--prefix", "nothing."]):
        code, _, err = run(capsys, "diagnose", path, *more)
        assert code == 1
        assert "encoder.rnn.weight_ih_l0 (20, 2)" in err
        assert "at the prefix 'decoder.' or 'encoder.rnn.'" in err
        assert err.count("\n") == 1
    assert "no entry 'model'" in run(capsys, "diagnose", path, "--key", "model")[2]
    torch, (model, path) = pytest.importorskip("torch"), checkpoint
    torch.save({"epoch": 3, "state_dict": model.state_dict(), "average": model.state_dict()}, path)
    code, _, err = run(capsys, "diagnose", path)
    assert code == 1
    assert "'state_dict' (OrderedDict)" in err
    assert "--key" in err


def test_a_long_list_is_shortened(capsys, tmp_path):
    np.savez(tmp_path / "w.npz", **{f"conv{i}.weight": np.zeros((i, 2)) for i in range(40)})
    _, _, err = run(capsys, "diagnose", tmp_path / "w.npz")
    assert "conv3.weight (3, 2)" in err
    assert "and 28 more. There is no recurrent layer" in err


def test_other_parts_beside_the_layer_are_named(capsys, tmp_path, inputs):
    layer = elman.LSTM(2, 6, rng=0)
    np.savez(tmp_path / "w.npz", **layer.state_dict(), **{"fc.weight": np.zeros((3, 6))})
    code, out, _ = run(capsys, "diagnose", tmp_path / "w.npz", "--input", inputs)
    assert code == 0
    assert "NOT USED: fc.weight" in out
    # what lies beside the layer's own weights may change them, as in weight dropout or weight normalisation
    np.savez(tmp_path / "w.npz", **layer.state_dict(), weight_hh_l0_raw=np.zeros((24, 6)))
    code, _, err = run(capsys, "diagnose", tmp_path / "w.npz", "--input", inputs)
    assert code == 1
    assert "unknown weight_hh_l0_raw" in err


@pytest.mark.parametrize("suffix", ["pkl", "bin", "ckpt", "weights"])
@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_are_known_by_their_content(capsys, tmp_path, inputs, suffix, zipped):
    torch = pytest.importorskip("torch")
    layer, path = elman.LSTM(2, 6, rng=0), tmp_path / f"w.{suffix}"
    weights = {name: torch.from_numpy(w) for name, w in layer.state_dict().items()}
    torch.save(weights, path, _use_new_zipfile_serialization=zipped)
    code, out, _ = run(capsys, "diagnose", path, "--input", inputs)
    assert code == 0
    assert str(elman.diagnose(layer, np.load(inputs), rng=0)) in out


def test_a_pickle_of_another_kind_is_not_run(capsys, tmp_path):
    pytest.importorskip("torch")

    class Trap:
        def __reduce__(self):
            return pytest.fail, ("a pickle of the user's file was run",)

    path = tmp_path / "w.pkl"
    path.write_bytes(pickle.dumps(Trap(), protocol=2))
    code, _, err = run(capsys, "diagnose", path)
    assert code == 1
    assert "Nothing of it was run" in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89HDF\r\n\x1a\n", "from_keras"),
        (b"\x08\x08:\x00", "from_onnx"),
        (b"\x08\x00\x00\x00\x00\x00\x00\x00{broken}", "damaged"),
        (b"\x80\x02cut", "damaged"),
        (b"\x93NUMPY", "not an .npz"),
        (bytes(range(256)), "not an .npz"),
    ],
)
def test_other_files_never_give_a_traceback(capsys, tmp_path, content, words):
    pytest.importorskip("torch")
    path = tmp_path / "w"
    path.write_bytes(content)
    code, _, err = run(capsys, "diagnose", path)
    assert code == 1
    assert words in err


def test_damaged_archives_never_give_a_traceback(capsys, tmp_path, inputs):
    """Every byte of the end of an archive changed in turn, and files of all lengths."""
    whole = io.BytesIO()
    np.savez_compressed(whole, **elman.RNN(2, 3, rng=0).state_dict())
    content, path = whole.getvalue(), tmp_path / "w.npz"
    for i in range(0, len(content), 7):
        path.write_bytes(content[:i] + bytes([content[i] ^ 255]) + content[i + 1 :])
        try:
            weights_file.read_weights(str(path))
        except elman.errors.ElmanError as error:
            assert "w.npz" in str(error)  # noqa: PT017 either result is right


def test_a_key_for_a_file_without_entries_is_refused(capsys, weights):
    code, _, err = run(capsys, "diagnose", weights[1], "--key", "state_dict")
    assert code == 1
    assert "'state_dict'" in err
