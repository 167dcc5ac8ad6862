"""The command line on real files, and files that appear whole or not at all."""

import json
import subprocess
import sys

import numpy as np
import pytest

import elman
from elman import cli, demo
from elman.errors import MissingExtraError
from elman.files import replacing


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
        pytest.importorskip("safetensors")
        elman.interop.save_safetensors(layer, path)
    else:
        torch = pytest.importorskip("torch")
        torch.save({name: torch.from_numpy(w) for name, w in layer.state_dict().items()}, path)
    code, out, _err = run(capsys, "diagnose", path, "--input", inputs)
    assert code == 0
    assert str(elman.diagnose(layer, np.load(inputs), rng=0)) in out
