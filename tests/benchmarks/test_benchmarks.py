"""The benchmarks run, and measure what they say."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import elman

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import cases, sides
from benchmarks.commands import microkernel
from benchmarks.suites import accuracy, recurrent, startup, training

pytestmark = pytest.mark.ci

ROOT = Path(__file__).resolve().parents[2]
BENCHMARK = re.compile("(time|timeraw|track|peakmem|mem)_")
needs_jit = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="measures compiled code")


@pytest.fixture(autouse=True)
def _threads():
    """Benchmarks set the number of threads for themselves."""
    before = elman.get_num_threads()
    yield
    elman.set_num_threads(before)


def discovered():
    """Every benchmark of the suite, as asv finds them."""
    found = []
    for path in sorted((ROOT / "benchmarks" / "suites").glob("*.py")):
        module = importlib.import_module(f"benchmarks.suites.{path.stem}")
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ != module.__name__:
                continue
            for name in filter(BENCHMARK.match, dir(cls)):
                found.append(pytest.param(cls, name, id=f"{path.stem}.{cls.__name__}.{name}"))
    return found


def smallest(cls):
    """The first value of each parameter, by asv's rule: one flat list, or a list of lists."""
    params = getattr(cls, "params", ())
    if params and not isinstance(params[0], (list, tuple)):
        params = (params,)
    return tuple(values[0] for values in params)


@functools.cache
def made_once(cls):
    """What ``setup_cache`` gives for the smallest parameters; asv hands it to a benchmark as its first argument."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "CELLS", cases.CELLS[:1])
        patch.setattr(startup, "DTYPES", cases.DTYPES[:1])
        return cls().setup_cache()


@needs_jit
@pytest.mark.parametrize(("cls", "name"), discovered())
def test_every_benchmark_runs(cls, name):
    benchmark, arguments = cls(), smallest(cls)
    assert len(arguments) == len(getattr(cls, "param_names", ()))
    if hasattr(benchmark, "setup"):
        benchmark.setup(*arguments)
    method = getattr(benchmark, name)
    cached = [made_once(cls)] if len(inspect.signature(method).parameters) > len(arguments) else []
    result = method(*cached, *arguments)
    if name.startswith("track"):
        assert np.isfinite(result)
        assert result > 0
        assert getattr(benchmark, name).unit
    elif name.startswith("timeraw"):
        subprocess.run([sys.executable, "-c", result], check=True)
    else:
        assert result is None


def names():
    """Names of all benchmarks, ``module.Class.method``."""
    return {parameter.id for parameter in discovered()}


@pytest.mark.parametrize(
    ("promise", "tracked"),
    [
        ("speed", {"recurrent.Forward.time_layer", "recurrent.ForwardBackward.time_layer", "recurrent.Step.time_step"}),
        ("lengths", {"recurrent.Ragged.track_forward", "recurrent.Ragged.track_forward_backward"}),
        ("lengths in small networks", {"recurrent.SmallRagged.track_ratio"}),
        ("small steps", {"recurrent.Call.time_step"}),
        ("memory", {"recurrent.Memory.track_trace", "recurrent.Memory.track_forward_backward"}),
        ("long sequences", {"long_sequences.Checkpoint.track_memory", "long_sequences.CheckpointCost.track_ratio"}),
        ("small networks", {"recurrent.Call.time_forward", "recurrent.Call.time_forward_backward"}),
        ("packing", {"recurrent.Call.time_forward_after_a_change", "recurrent.Call.time_stepper"}),
        ("training", {"training.Epoch.time_fit"}),
        ("import", {"startup.Import.timeraw_import", "startup.Import.track_import_after_dependencies"}),
        ("cold start", {"startup.FirstFit.track_cold_fit", "startup.FirstFit.track_cold_process"}),
        ("warm start", {"startup.FirstFit.track_warm_fit", "startup.FirstFit.track_warm_process"}),
        ("compile time", {"startup.FirstFit.track_compilation"}),
        ("accuracy", {"accuracy.SinglePrecision.track_output_error", "accuracy.SinglePrecision.track_gradient_error"}),
        ("units in the last place", {"accuracy.Activation.track_ulp"}),
        ("diagnosis", {"diagnostics.Diagnose.track_training_steps", "diagnostics.Cost.track_training_steps"}),
        ("prediction", {"prediction.GradientPrediction.track_slope_error"}),
    ],
)
def test_the_suite_covers_what_the_project_promises_to_track(promise, tracked):
    assert tracked <= names(), promise


def test_layers_are_tracked_by_package_cell_dtype_and_shape():
    for cls in (recurrent.Forward, recurrent.ForwardBackward):
        packages, cells, dtypes, shapes = cls.params
        assert packages == sides.available()
        assert packages[0] == "elman"
        assert (cells, dtypes) == (cases.CELLS, cases.DTYPES)
        assert set(shapes) <= set(cases.SHAPES)
        assert recurrent.COMPARED in shapes
    assert recurrent.Step.params == (sides.available(), cases.CELLS, (20, 100, 256))
    for cls in (training.Epoch, startup.FirstFit, recurrent.Memory):
        assert cls.params[:2] == (cases.CELLS, cases.DTYPES)


def test_other_packages_are_compared_at_one_shape_and_skipped_elsewhere():
    for cls in (recurrent.Forward, recurrent.ForwardBackward):
        run = set(itertools.product(*cls.params)) - set(cls.skip_params)
        assert {case for case in run if case[0] != "elman"} == {
            (package, cell, "float32", recurrent.COMPARED) for package in sides.available()[1:] for cell in cases.CELLS
        }
        assert len([case for case in run if case[0] == "elman"]) == 3 * 2 * len(cases.TRACKED)
    step = recurrent.Step
    assert set(step.skip_params) == {
        (package, cell, hidden) for package in step.params[0][1:] for cell in cases.CELLS for hidden in (20, 256)
    }


@needs_jit
@pytest.mark.skipif("torch" not in sides.available(), reason="torch is not installed")
def test_another_package_is_timed_on_the_same_case():
    arguments = "torch", "GRU", "float32", recurrent.COMPARED
    for cls, name in ((recurrent.Forward, "forward"), (recurrent.ForwardBackward, "forward_backward")):
        benchmark = cls()
        benchmark.setup(*arguments)
        benchmark.time_layer(*arguments)
        theirs = benchmark.side.answer(name)["output"]
        np.testing.assert_allclose(
            theirs, recurrent.prepared(name, "elman", *arguments[1:]).answer(name)["output"], atol=1e-5
        )
    step = recurrent.Step()
    step.setup("torch", "GRU", 100)
    step.time_step("torch", "GRU", 100)


@needs_jit
@pytest.mark.skipif("onnxruntime" not in sides.available(), reason="onnxruntime is not installed")
def test_a_pass_that_a_package_does_not_have_is_skipped():
    with pytest.raises(NotImplementedError, match="onnxruntime: no forward_backward"):
        recurrent.ForwardBackward().setup("onnxruntime", "GRU", "float32", recurrent.COMPARED)


def test_asv_configuration_names_what_exists():
    folder = ROOT / "benchmarks"
    settings = json.loads((folder / "asv.conf.json").read_text())
    assert (folder / settings["repo"] / "pyproject.toml").is_file()
    assert (folder / settings["benchmark_dir"] / "__init__.py").is_file()
    assert any("--no-deps" in command for command in settings["build_command"])
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert "/benchmarks/.asv/" in ignored
    assert all(settings[key].startswith(".asv/") for key in ("env_dir", "results_dir", "html_dir"))


@needs_jit
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("function", ["tanh", "sigmoid"])
def test_accuracy_tracks_stay_within_what_the_kernels_state(function, dtype):
    assert 0.3 < accuracy.ulp(function, dtype, 20_000) < 2.0


@needs_jit
@pytest.mark.parametrize("cell", cases.CELLS)
def test_single_precision_is_off_by_its_rounding(cell):
    benchmark = accuracy.SinglePrecision()
    benchmark.setup(cell, cases.TRACKED[0])
    eps = np.finfo("float32").eps
    assert eps / 100 < benchmark.track_output_error(cell, cases.TRACKED[0]) < 50 * eps
    assert eps / 100 < benchmark.track_gradient_error(cell, cases.TRACKED[0]) < 50 * eps
    assert accuracy.relative_error(np.array([1.0, 2.5]), np.array([1.0, 2.0])) == 0.25


@needs_jit
@pytest.mark.parametrize("cell", cases.CELLS)
def test_trace_memory_is_that_of_states_and_gates(cell):
    shape = T, B, D, H = (100, 32, 28, 64)
    benchmark = recurrent.Memory()
    benchmark.setup(cell, "float64", shape)
    # what backpropagation reads: the states (an LSTM has two), and the gates where there are any
    kept = (T + 1) * B * H * 8 * (2 if cell == "LSTM" else 1) + (0 if cell == "RNN" else T * B * H * 8 * 4)
    trace = benchmark.track_trace(cell, "float64", shape)
    assert kept < trace < 1.3 * kept
    delta = cases.GATES[cell] * T * B * H * 8
    # the gradient of x, and its rows in whole vectors, of 64 bytes at the most
    of_x = T * B * 8 * (D + -(-D // 8) * 8)
    # of the gradients of pre-activations, gated cells need one window at a time
    most = 1.15 * (delta + of_x) if cell == "RNN" else delta
    assert trace < benchmark.track_forward_backward(cell, "float64", shape) < trace + most


@needs_jit
def test_cost_of_lengths_is_over_the_share_of_valid_steps(monkeypatch):
    asked = iter([2.0, 1.5])
    monkeypatch.setattr(recurrent, "fastest", lambda call: next(asked))
    shape = (7, 3, 2, 5)
    lengths = cases.make_case(shape, "float32", "GRU", ragged=True).lengths
    assert recurrent.Ragged().track_forward("GRU", shape) == pytest.approx(0.75 / (lengths.sum() / 21))


@needs_jit
@pytest.mark.parametrize("name", recurrent.SmallRagged.params[1])
def test_cost_of_lengths_in_a_small_network_is_over_the_dense_call(name, monkeypatch):
    benchmark, ran = recurrent.SmallRagged(), []
    benchmark.setup("GRU", name)
    assert 0.1 < benchmark.track_ratio("GRU", name) < 10
    monkeypatch.setattr(recurrent, "fastest", lambda call, _: (call(), 2.0 + len(ran) // benchmark.calls)[1])
    monkeypatch.setattr(benchmark, "run", lambda _, lengths: ran.append(lengths))
    assert benchmark.track_ratio("GRU", name) == 4 / 3
    assert ran[: benchmark.calls] == [None] * benchmark.calls
    assert len({tuple(lengths) for lengths in ran[benchmark.calls :]}) == benchmark.calls


@needs_jit
def test_first_fit_is_cold_once_and_warm_afterwards():
    (times,) = made_once(startup.FirstFit).values()
    assert times["warm_fit"] < times["cold_fit"] / 2
    assert times["warm_process"] < times["cold_process"]
    assert all(times[f"{start}_fit"] < times[f"{start}_process"] for start in ("cold", "warm"))
    assert times["cold_fit"] < times["cold_all"]


@needs_jit
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_the_peak_is_measured_on_as_many_multiply_adds_as_it_counts(dtype):
    a = microkernel.chains(dtype)
    width = a.size // (2 + microkernel.CHAINS)
    start = a[2 * width :].astype(float)
    microkernel.run_chains(5, a)
    np.testing.assert_array_equal(a[2 * width :], 2 + (start - 2) / 2**5)
    assert microkernel.peak(dtype, 1e-4) > 1e8


@needs_jit
@pytest.mark.parametrize("shape", [(1, 3, 5), (5, 20, 33)])
def test_microkernel_row(shape):
    cells = microkernel.row(shape, {"float32": 1e9, "float64": 2e9}, 1e-5, steps=2)
    assert cells[0] == " x ".join(map(str, shape))
    assert len(cells) == 5
    for cell, peak in zip(cells[1:], [1, 2, 1, 2], strict=True):
        rate, share = re.fullmatch(r"([\d.]+) \((\d+)%\)", cell).groups()
        assert float(share) == pytest.approx(100 * float(rate) / peak, abs=5.1 / peak + 0.5)


@needs_jit
def test_microkernel_with_another_tile(run_script, tmp_path):
    """What ``--sweep`` runs: two shapes, right before they are timed, by a tile and a block that nothing else uses."""
    text = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from benchmarks.commands import microkernel
        print(microkernel.child("[[[5, 2], [4, 4]], 37]", 1e-5, microkernel.SWEEP_SHAPES[:2]))
    """
    peak, *cells = ast.literal_eval(run_script(text, NUMBA_CACHE_DIR=tmp_path))
    assert len(cells) == 2
    for cell in (peak, *cells):
        assert all(float(rate) >= 0 for rate in cell.replace("/", " ").split())


def test_microkernel_refuses_a_wrong_product():
    reference = np.arange(12.0).reshape(3, 4)
    microkernel.expect(reference.copy(), reference, "float64")
    wrong = reference.copy()
    wrong[1, 2] *= 1 + 1e-9
    with pytest.raises(AssertionError):
        microkernel.expect(wrong, reference, "float64")


def test_fastest_counts_repetitions():
    done = []
    assert 0 < microkernel.fastest(lambda n: done.append(n), 1e-9, rounds=3) < 1e-3
    assert len(done) >= 5
