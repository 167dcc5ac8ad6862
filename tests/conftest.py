"""Fixtures that several test files need."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zlib
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import elman
from elman.kernels.folder import CACHE_FOLDER

MOST_WORKERS = 4
WARM_UP = "import elman; elman.warmup(['RNN', 'LSTM', 'GRU', 'MGU'], {!r})"

# the same examples everywhere and each time: a test passes always, or never
settings.register_profile("elman", derandomize=True, deadline=None, max_examples=200, database=None)
settings.load_profile("elman")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Workers of pytest-xdist for folders, where there is more than one core; ``-n 0`` and single files have none."""
    options, files = config.option, len(config.args) == 1 and config.args[0].partition("::")[0].endswith(".py")
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if options.numprocesses is None and not options.tx and not options.usepdb and not files and cores > 1:
        options.numprocesses, options.dist = min(cores, MOST_WORKERS), "loadfile"
    if options.numprocesses and not options.collectonly:
        compile_once()


def compile_once():
    """Fill an empty folder of machine code before workers would each compile the same: one process a dtype.

    The folder is named by a hash of the kernels' sources, so one that holds anything is of these.
    """
    if CACHE_FOLDER is None or os.environ.get("NUMBA_DISABLE_JIT", "0") != "0" or any(Path(CACHE_FOLDER).glob("*.nbc")):
        return
    env = {**os.environ, "PYTHONPATH": str(Path(elman.__file__).parents[1])}
    for each in [subprocess.Popen([sys.executable, "-c", WARM_UP.format(d)], env=env) for d in ("float32", "float64")]:
        each.wait()


_approx = pytest.approx


def approx(expected, rel=None, abs=None, nan_ok=False):
    """``pytest.approx``, but for tiny numbers only with ``abs``: beside its default, 1e-12, any of them would pass."""
    if abs is None:
        numbers = np.abs(np.asarray(list(expected.values()) if isinstance(expected, dict) else expected))
        largest = np.max(numbers, initial=0.0, where=np.isfinite(numbers)) if numbers.dtype.kind in "fc" else 1.0
        assert not 0 < largest < 1e-9, f"say abs beside {largest:g}: its default, 1e-12, hides errors; abs=0 leaves rel"
    return _approx(expected, rel=rel, abs=abs, nan_ok=nan_ok)


pytest.approx = approx


@pytest.fixture(autouse=True)
def drawn_from_the_tests_name(request, monkeypatch):
    """What a test leaves to chance follows from its name: it passes always, or never."""
    seeds, default_rng = count(zlib.crc32(request.node.nodeid.encode())), np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed=None: default_rng(next(seeds) if seed is None else seed))


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    """Both dtypes that kernels are compiled for."""
    return np.dtype(request.param)


@pytest.fixture
def restore_threads():
    """Bring the number of threads back to what it was."""
    before = elman.get_num_threads()
    yield
    elman.set_num_threads(before)


@pytest.fixture
def run_script():
    """Run Python text in a new process that imports the same elman; its standard output.

    ``environment`` entries are set, or removed where they are None. A process that hangs fails the test.
    """

    def run(text: str, timeout: float = 240, **environment: str | None) -> str:
        env = {**os.environ, "PYTHONPATH": str(Path(elman.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
        for name, value in environment.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = str(value)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text)],
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
