"""The benchmarks run, measure what they say, and refuse to time a wrong answer."""

from __future__ import annotations

import importlib
import importlib.util
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

from benchmarks import accuracy, cases, microkernel, peers, report, workers

ROOT = Path(__file__).resolve().parents[1]
BENCHMARK = re.compile("(time|timeraw|track|peakmem|mem)_")
needs_jit = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="measures compiled code")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

TINY = (7, 3, 2, 5)


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


ANSWERS = {"output": np.array([[1.0, -2.0], [0.5, 1e-12]]), "d_x": np.array([3.0, -4.0])}


def test_agreement_lets_rounding_pass():
    ours = {"output": ANSWERS["output"] + 1e-11, "d_x": ANSWERS["d_x"]}
    peers.check_agreement(ours, ANSWERS, "float64")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"output": ANSWERS["output"] + 3e-10}, "output differs by 3.0e-10, with 2.0e[+]00"),
        ({"d_x": ANSWERS["d_x"] * [1, 1 + 1e-9]}, "d_x differs"),
        ({"d_x": np.array([3.0, np.nan])}, "d_x differs by nan"),
        ({"d_x": np.array([3.0, -4.0, 0.0])}, r"\(3,\) against"),
        ({"d_x": ANSWERS["d_x"].astype(np.float32)}, "float32"),
        ({"hn": ANSWERS["d_x"]}, "'hn'"),
    ],
)
def test_agreement_refuses(change, words):
    with pytest.raises(peers.Disagreement, match=words):
        peers.check_agreement(ANSWERS | change, ANSWERS, "float64")


class Recorder:
    """A side whose answers are given and that keeps what it was asked."""

    def __init__(self, answers, log):
        self.answers, self.log = answers, log

    def ask(self, method, *arguments):
        self.log.append((self, method))
        return self.answers if method == "prepare" else 1e-3 * len(self.log)


def test_no_time_without_a_right_answer():
    log = []
    sides = Recorder(ANSWERS, log), Recorder(ANSWERS | {"d_x": np.zeros(2)}, log)
    with pytest.raises(peers.Disagreement):
        peers.compare(*sides, TINY, "float64", 2, 0.1)
    assert [method for _, method in log] == ["prepare", "prepare"]


def test_sides_take_turns_and_the_first_turn_does_not_count():
    log = []
    ours, theirs = Recorder(ANSWERS, log), Recorder(ANSWERS, log)
    forward, backward = peers.compare(ours, theirs, TINY, "float64", 2, 0.1)
    assert [side for side, _ in log] == [ours, theirs] * (1 + 2 * 3)
    np.testing.assert_allclose(forward.ours, [5e-3, 7e-3])
    np.testing.assert_allclose(forward.theirs, [6e-3, 8e-3])
    assert (forward.name, backward.name) == workers.PASSES


def test_row_of_the_comparison():
    timing = peers.Timing((10, 4, 2, 3), "float64", "forward_backward", [1e-6, 2e-6, 4e-6], [2e-5, 3e-5, 4e-5])
    # 2 * 40 rows * 3 units * 5 terms, three times, in 2 microseconds: 1.8 GF/s
    assert peers.cells(timing, 18e9) == [
        "10, 4, 2, 3",
        "float64",
        "forward + backward",
        "0.00200 (0.00100-0.00400)",
        "0.0300 (0.0200-0.0400)",
        "15.0 (10.0-20.0)",
        "1.8 (10%)",
    ]


def test_report_is_one_markdown_table_below_the_facts():
    timing = peers.Timing(TINY, "float32", "forward", [1e-3], [2e-3])
    lines = peers.report([timing], {"float32": 1e9}, ["a processor"]).splitlines()
    assert lines[:2] == ["- a processor", ""]
    assert len({len(line) for line in lines[2:]}) == 1
    assert [line.count("|") for line in lines[2:]] == [len(peers.HEADER) + 1] * 3


def test_markdown_table():
    assert report.markdown_table(["a", "speed"], [["first", "1"], ["x", "22"]]) == (
        "| a     | speed |\n"
        "| ----- | ----: |\n"
        "| first |     1 |\n"
        "| x     |    22 |"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (1.0, "1.00"), (12.34, "12.3"), (123.4, "123"), (12345.0, "12300"), (0.0999951, "0.100")],
)
def test_three_significant_digits(value, text):
    assert report.significant(value) == text


def test_environment_lists_what_changes_a_library(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OPENBLAS_CORETYPE=Haswell" in peers.environment()
    assert "OMP_NUM_THREADS" not in peers.environment()


def test_a_failure_over_there_comes_back_with_its_traceback():
    with peers.Peer("elman", 1) as peer:
        with pytest.raises(RuntimeError, match="no_such_method"):
            peer.ask("no_such_method")
        assert elman.__version__ in peer.ask("version")
    assert peer.process.returncode == 0


def test_a_dead_process_is_named():
    with peers.Peer("elman", 1) as peer:
        peer.process.kill()
        peer.process.wait()
        with pytest.raises(RuntimeError, match="process of elman ended"):
            peer.ask("version")


@needs_torch
def test_comparison_with_torch():
    with peers.Peer("elman", 1) as ours, peers.Peer("torch", 1) as theirs:
        timings = [t for dtype in cases.DTYPES for t in peers.compare(ours, theirs, TINY, dtype, 2, 1e-4)]
    assert [(t.dtype, t.name) for t in timings] == [(d, p) for d in cases.DTYPES for p in workers.PASSES]
    assert all(len(side) == 2 and min(side) > 0 for t in timings for side in (t.ours, t.theirs))
