"""What ``import elman`` costs and what it leaves alone."""

from __future__ import annotations

import ast
import statistics
from importlib import import_module
from pathlib import Path

import pytest

import elman

LARGEST_COST = 0.15
"""Seconds that elman may add to what numba and scipy.linalg take."""

TIMED = """
    import time
    start = time.process_time()
    import numba
    import scipy.linalg
    {more}
    print(time.process_time() - start)
"""
"""Processor time: with warm files what a quiet machine takes, and the same on a busy one."""


def added_cost(run, runs):
    """Median seconds with elman less the median without, from fresh processes taken in turn."""
    seconds = {"pass": [], "import elman": []}
    for _ in range(runs):
        for more, taken in seconds.items():
            taken.append(float(run(TIMED.format(more=more))))
    return statistics.median(seconds["import elman"]) - statistics.median(seconds["pass"])


@pytest.fixture
def run_warm(run_script, tmp_path):
    """Processes that find bytecode where the first of them left it, as an installed package does."""

    def run(text):
        return run_script(text, timeout=60, PYTHONDONTWRITEBYTECODE=None, PYTHONPYCACHEPREFIX=tmp_path)

    run("import elman")
    return run


def test_it_costs_little_beside_numba_and_scipy(run_warm):
    found = []
    # a disturbance can only make it look slower: any quiet moment will do
    while len(found) < 4 and (not found or found[-1] > LARGEST_COST):
        found.append(added_cost(run_warm, 3))
    assert found[-1] <= LARGEST_COST, found


def test_the_measure_sees_a_slow_import(run_warm):
    slow = "end = time.process_time() + 0.2\n    while time.process_time() < end: pass"
    assert float(run_warm(TIMED.format(more=slow))) - float(run_warm(TIMED.format(more="pass"))) > LARGEST_COST


def test_heavy_packages_are_left_alone_until_they_are_used(run_script):
    """By ``import elman`` and by each of its modules, beyond what numba and SciPy's needed parts load themselves."""
    script = """
        import importlib, pkgutil, sys
        import numba, scipy.linalg, scipy.special
        heavy = {"scipy.stats", "scipy.optimize", "scipy.sparse", "matplotlib", "tqdm", "torch", "keras", "jax",
                 "onnx", "onnxruntime", "safetensors", "pandas", "mpmath"} - sys.modules.keys()
        import elman
        assert not heavy & sys.modules.keys()
        for module in pkgutil.walk_packages(elman.__path__, "elman."):
            if "__main__" not in module.name:
                importlib.import_module(module.name)
                assert not heavy & sys.modules.keys(), (module.name, heavy & sys.modules.keys())
        print(len(heavy))
    """
    assert int(run_script(script, timeout=60)) > 8


def test_the_public_names_are_the_imports_of_the_stub():
    """Read by lines at import, by the parser here."""
    stub = (Path(elman.__file__).parent / "__init__.pyi").read_text(encoding="utf-8")
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in imports for alias in node.names}
    assert sorted(homes) == elman.__all__ == dir(elman)
    for name, home in homes.items():
        whole = import_module(f"elman.{home or name}")
        assert getattr(elman, name) is (getattr(whole, name) if home else whole)


def test_it_compiles_nothing_and_starts_no_thread(run_script):
    script = """
        import threading
        import elman
        from elman.cells import ELMAN
        from elman.kernels import activations, packing, tile
        for kernel in (ELMAN.forward, ELMAN.backward, tile.affine, packing.transpose, activations.activate_rows):
            assert not getattr(kernel, "signatures", [])
        print(threading.active_count())
    """
    assert run_script(script, timeout=60).strip() == "1"


def test_it_is_quiet(run_script):
    assert run_script("import warnings; warnings.simplefilter('error'); import elman") == ""


def test_every_public_name_is_there():
    import elman

    assert sorted(set(elman.__all__)) == sorted(elman.__all__)
    for name in elman.__all__:
        assert getattr(elman, name) is not None
