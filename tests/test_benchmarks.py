"""The benchmarks run, and measure what they say."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import elman

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import accuracy, cases, microkernel

ROOT = Path(__file__).resolve().parents[1]
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
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        module = importlib.import_module(f"benchmarks.{path.stem}")
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ != module.__name__:
                continue
            for name in filter(BENCHMARK.match, dir(cls)):
                slow = path.stem == "startup" and not name.startswith("timeraw")
                marks = [pytest.mark.slow] if slow else []
                found.append(pytest.param(cls, name, id=f"{path.stem}.{cls.__name__}.{name}", marks=marks))
    return found


def smallest(cls):
    """The first value of each parameter, by asv's rule: one flat list, or a list of lists."""
    params = getattr(cls, "params", ())
    if params and not isinstance(params[0], (list, tuple)):
        params = (params,)
    return tuple(values[0] for values in params)


@needs_jit
@pytest.mark.parametrize(("cls", "name"), discovered())
def test_every_benchmark_runs(cls, name):
    benchmark, arguments = cls(), smallest(cls)
    assert len(arguments) == len(getattr(cls, "param_names", ()))
    if hasattr(benchmark, "setup"):
        benchmark.setup(*arguments)
    result = getattr(benchmark, name)(*arguments)
    if name.startswith("track"):
        assert np.isfinite(result)
        assert result > 0
        assert getattr(benchmark, name).unit
    elif name.startswith("timeraw"):
        subprocess.run([sys.executable, "-c", result], check=True)
    else:
        assert result is None


def test_the_suite_covers_what_the_project_promises_to_track():
    found = {parameter.id for parameter in discovered()}
    assert found >= {
        "recurrent.RNN.time_forward",
        "recurrent.RNN.time_forward_backward",
        "recurrent.RNN.track_trace_memory",
        "training.Epoch.time_fit",
        "startup.Import.timeraw_import",
        "startup.FirstCall.track_cold",
        "startup.FirstCall.track_warm",
        "accuracy.SinglePrecision.track_gradient_error",
        "accuracy.Activation.track_tanh_ulp",
        "diagnostics.Diagnose.track_training_steps",
        "diagnostics.Cost.track_training_steps",
        "prediction.GradientPrediction.track_slope_error",
    }


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
def test_accuracy_tracks_stay_within_what_the_kernels_state(dtype):
    assert 0.3 < accuracy.tanh_ulp(dtype, 20_000) < 2.0


@needs_jit
def test_trace_memory_is_that_of_the_states():
    benchmark = importlib.import_module("benchmarks.recurrent").RNN()
    shape = (100, 32, 28, 64)
    benchmark.setup(shape, "float64")
    T, B, _, H = shape
    states = (T + 1) * B * H * 8
    assert states < benchmark.track_trace_memory(shape, "float64") < 1.3 * states


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
