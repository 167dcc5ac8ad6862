"""After a warm-up nothing is left to compile, in this process or in the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numba
import pytest

import elman
from elman.errors import ArgumentError, DTypeError
from elman.precompile import WarmupTimes

needs_jit = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="counts what is compiled")

pytestmark = pytest.mark.ci

FIRST_CALLS = """
import importlib, json, pkgutil, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
import elman

cell, dtype = sys.argv[1:]

def compiled():
    found = {}
    for package in ("elman.kernels", "elman.cells"):
        home = importlib.import_module(package)
        for module in pkgutil.iter_modules(home.__path__):
            for value in vars(importlib.import_module(f"{package}.{module.name}")).values():
                if isinstance(value, Dispatcher):
                    f = value.py_func
                    misses = sum(value.stats.cache_misses.values())
                    found[f"{f.__module__}.{f.__qualname__}"] = len(value.nopython_signatures), misses
    return found

if WARM:
    times = elman.warmup(cell, dtype)
before = compiled()
rng = np.random.default_rng(0)
x = rng.standard_normal((9, 12, 5)).astype(dtype)
y = rng.standard_normal((9, 12, 2)).astype(dtype)
layer = getattr(elman, cell)(5, 19, dtype=dtype, rng=1)
output, _ = layer(x)
trace = layer.trace(x)
layer.backward(trace, output)
layer.stepper()(x[0, 0])
net = elman.Network(layer, elman.Readout(19, 2, dtype=dtype, rng=2))
elman.fit(net, x, y, optimizer=elman.Adam(1e-3), clip_norm=1.0, epochs=2, batch_size=5, progress=False, rng=3)
elman.fit(net, list(x.swapaxes(0, 1)), list(y.swapaxes(0, 1)), epochs=1, progress=False, rng=3)
for level in ("full", "forward", "weights"):
    elman.diagnose(net, x, y[-1] if level == "full" else None, level=level, rng=4).verify()
elman.lyapunov_spectrum(layer.linearize(x[:, :1]), 3, rng=5)
after = compiled()
print(json.dumps({"before": before, "after": after}))
"""


def first_calls(cell, dtype, warm, **environment):
    """Kernels before and after what users do first, in a process of its own: signatures and cache misses by name."""
    code = FIRST_CALLS.replace("WARM", str(warm))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, cell, dtype],
        env=os.environ | environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (line,) = run.stdout.splitlines()  # a warm-up prints nothing
    return json.loads(line)


def compiled(counted):
    """Names of the kernels that have machine code."""
    return {name for name, (signatures, _) in counted.items() if signatures}


@needs_jit
@pytest.mark.parametrize("cell", ["RNN", "LSTM", "GRU", "MGU"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_kernel_is_compiled_after_a_warm_up(cell, dtype):
    counted = first_calls(cell, dtype, warm=True)
    assert counted["after"] == counted["before"]
    used = compiled(counted["after"])
    assert {name.rsplit(".", 1)[1] for name in used} >= {"forward", "backward", "tangent"}
    assert all(counted["after"][name][0] == 1 for name in used), "a kernel has two signatures in one dtype"


@needs_jit
def test_the_first_calls_do_compile_without_one():
    counted = first_calls("GRU", "float32", warm=False)
    assert not compiled(counted["before"])
    assert len(compiled(counted["after"])) >= 5


@needs_jit
def test_a_later_process_finds_everything_on_disk(tmp_path):
    folder = {"NUMBA_CACHE_DIR": str(tmp_path)}
    made = first_calls("LSTM", "float32", warm=True, **folder)
    assert sum(misses for _, misses in made["before"].values()) >= 5
    assert made["after"] == made["before"]
    found = first_calls("LSTM", "float32", warm=False, **folder)
    assert not any(misses for _, misses in found["after"].values())
    assert compiled(found["after"]) <= compiled(made["before"])


@needs_jit
def test_the_cache_is_emptied_when_asked(tmp_path, run_script):
    """Of the code of all versions, and of nothing else."""
    for name in ("0123456789abcdef", "cp311-numba0.61.0-llvmlite0.44.0-0123456789abcdef", "notes"):
        (tmp_path / "elman" / name).mkdir(parents=True)
    (tmp_path / "elman").chmod(0o700)
    text = """
        import os, elman
        times = elman.warmup("RNN", "float32", clear=True)
        print(times.folder, len(os.listdir(times.folder)))
    """
    folder, files = run_script(text, XDG_CACHE_HOME=tmp_path, NUMBA_CACHE_DIR=None).split()
    assert int(files) >= 5
    assert sorted(path.name for path in (tmp_path / "elman").iterdir()) == sorted([os.path.basename(folder), "notes"])


def test_it_says_what_it_took(capsys):
    times = elman.warmup(["GRU", "RNN", "GRU"], ("float64", "f4"))
    assert capsys.readouterr() == ("", "")
    assert isinstance(times, WarmupTimes)
    assert list(times.seconds) == ["GRU", "RNN"]
    assert all(list(by_dtype) == ["float64", "float32"] for by_dtype in times.seconds.values())
    assert all(0 < s < 600 for by_dtype in times.seconds.values() for s in by_dtype.values())
    assert json.loads(json.dumps(times.to_dict())) == times.to_dict()
    assert times.to_dict()["seconds"] is not times.seconds


def test_default_is_three_cells_in_both_dtypes():
    assert elman.warmup().seconds.keys() == {"RNN", "LSTM", "GRU"}
    assert elman.warmup("MGU").seconds["MGU"].keys() == {"float32", "float64"}


def test_it_prints_as_a_table():
    times = WarmupTimes({"RNN": {"float32": 7.25, "float64": 8.0}, "LSTM": {"float32": 0.125, "float64": 0.5}}, "/c")
    assert times.total == 15.875
    assert str(times).splitlines() == [
        "Warm-up: 15.9 s, machine code in /c",
        "  seconds    float32   float64",
        "  RNN           7.25         8",
        "  LSTM         0.125       0.5",
    ]
    assert repr(times) == "WarmupTimes(RNN, LSTM, total=15.9 s)"
    assert "no folder to keep" in str(WarmupTimes({}, None))


def test_a_bar_on_request(capsys):
    elman.warmup("RNN", "float32", progress=True)
    assert "warmup" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"cells": "Elman"}, ArgumentError, "cells must be one of 'RNN', 'LSTM', 'GRU', 'MGU', got 'Elman'"),
        ({"cells": ["RNN", 1]}, DTypeError, "cells must be one of .*, got 1"),
        ({"cells": 3}, DTypeError, "cells must be a name or several .* got 3"),
        ({"cells": []}, ArgumentError, "at least one"),
        ({"dtypes": "int32"}, DTypeError, '"float32" or "float64", got \'int32\''),
        ({"dtypes": [float, complex]}, DTypeError, "float64"),
        ({"dtypes": 8}, DTypeError, "dtypes must be .* got 8"),
        ({"dtypes": ()}, ArgumentError, "at least one"),
        ({"progress": "yes"}, DTypeError, "progress must be True or False"),
    ],
)
def test_refusals(arguments, error, words):
    with pytest.raises(error, match=words):
        elman.warmup(**arguments)
