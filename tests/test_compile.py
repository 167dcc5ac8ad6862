"""Where compiled code is kept, that an edit never finds a stale kernel, and that elman works without any of it."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numba import config

import elman
from elman.kernels import compile as compilation

compiled = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")

EVALUATE = """
    import json, math
    import numpy as np
    from elman.kernels import activations, compile
    value = activations.evaluate("tanh", np.array([0.5, -2.0]))
    assert np.allclose(value, [math.tanh(0.5), math.tanh(-2.0)], rtol=1e-15)
    stats = activations.activate_rows.stats
    print(json.dumps([compile.CACHE_FOLDER, sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""
"""Computes with one kernel; prints the cache folder, hits and misses."""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the sources that is free to be edited, in place of the package."""
    copy = tmp_path / "elman"
    shutil.copytree(compilation.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compilation, "PACKAGE", copy)
    return copy


def test_the_hash_is_that_of_the_contents(package):
    copied = compilation.source_hash()
    assert copied == compilation.source_hash()
    assert len(copied) == 16
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        source.write_bytes(text + b"\n# edited\n")
        changed = compilation.source_hash() != copied
        assert changed == (source.parent.name in ("kernels", "cells")), source
        source.write_bytes(text)
    assert compilation.source_hash() == copied


def test_a_new_kernel_file_changes_the_hash(package):
    before = compilation.source_hash()
    (package / "cells" / "other.py").write_text("x = 1\n")
    assert compilation.source_hash() != before


def test_the_folder_is_named_by_the_hash(package, tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = Path(compilation.cache_folder())
    assert first == tmp_path / "cache" / "elman" / compilation.source_hash()
    assert first.is_dir()
    kernel = package / "kernels" / "tile.py"
    kernel.write_text(kernel.read_text() + "\n")
    second = Path(compilation.cache_folder())
    assert second.parent == first.parent
    assert second != first


def test_the_order_of_places(tmp_path, monkeypatch):
    """numba's own setting, the user's cache, the home, the temporary folder; what cannot be written is passed over."""
    occupied = tmp_path / "a file"
    occupied.write_text("")
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(compilation.tempfile, "tempdir", str(tmp_path))
    (tmp_path / "home").mkdir()
    name = compilation.source_hash()

    def found():
        return Path(compilation.cache_folder()).relative_to(tmp_path)

    assert found() == Path("numba", name)
    monkeypatch.setattr(config, "CACHE_DIR", str(occupied))
    assert found() == Path("xdg", "elman", name)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert found() == Path("home", ".cache", "elman", name)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nobody")
    assert found().parts[0].startswith("elman")
    assert found().name == name


def test_a_place_that_refuses_everything_gives_none(tmp_path, monkeypatch):
    occupied = tmp_path / "a file"
    occupied.write_text("")
    monkeypatch.setattr(config, "CACHE_DIR", str(occupied))
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    monkeypatch.setattr(compilation.tempfile, "tempdir", str(occupied))
    assert compilation.cache_folder() is None


def test_a_process_without_a_home_still_finds_a_place(tmp_path, monkeypatch):
    """In a container the user may have no entry in the password file, and HOME be unset."""

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(compilation.tempfile, "tempdir", str(tmp_path))
    assert Path(compilation.cache_folder()).is_relative_to(tmp_path)


def test_a_process_without_a_temporary_folder_has_no_cache(tmp_path, monkeypatch):
    """On a file system that is wholly read-only Python finds no temporary folder, and says so with an exception."""
    occupied = tmp_path / "a file"
    occupied.write_text("")

    def nowhere():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    monkeypatch.setattr(compilation.tempfile, "gettempdir", nowhere)
    assert compilation.cache_folder() is None


def test_a_kernel_leaves_numbas_setting_as_it_was():
    before = config.CACHE_DIR
    compilation.kernel(lambda x: x)
    assert before == config.CACHE_DIR


@compiled
def test_numbas_own_setting_is_respected_and_kernels_are_reused(run_script, tmp_path):
    places = {"NUMBA_CACHE_DIR": tmp_path / "numba", "XDG_CACHE_HOME": tmp_path / "xdg"}
    folder, hits, misses = json.loads(run_script(EVALUATE, **places))
    assert Path(folder).parent == tmp_path / "numba"
    assert (hits, misses) == (0, 1)
    assert list(Path(folder).rglob("*.nbc"))
    assert not (tmp_path / "xdg").exists()
    assert json.loads(run_script(EVALUATE, **places)) == [folder, 1, 0]


@compiled
def test_kernels_are_reused_from_the_users_cache(run_script, tmp_path):
    places = {"NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": tmp_path / "xdg"}
    folder, hits, misses = json.loads(run_script(EVALUATE, **places))
    assert Path(folder).parent == tmp_path / "xdg" / "elman"
    assert (hits, misses) == (0, 1)
    assert json.loads(run_script(EVALUATE, **places)) == [folder, 1, 0]


@compiled
def test_several_processes_may_race_for_one_cache(tmp_path, run_script):
    script = f"""
        import subprocess, sys
        text = {textwrap.dedent(EVALUATE)!r}
        ranks = [subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) for _ in range(3)]
        for rank in ranks:
            out, _ = rank.communicate(timeout=200)
            assert rank.returncode == 0, out
    """
    run_script(script, NUMBA_CACHE_DIR=None, XDG_CACHE_HOME=tmp_path / "xdg")
    _, hits, misses = json.loads(run_script(EVALUATE, NUMBA_CACHE_DIR=None, XDG_CACHE_HOME=tmp_path / "xdg"))
    assert (hits, misses) == (1, 0)


@compiled
def test_it_computes_where_nothing_can_be_written(run_script, tmp_path):
    occupied = tmp_path / "a file"
    occupied.write_text("")
    # the temporary folder has fall-backs of its own, so it is named to Python itself
    script = f"    import tempfile; tempfile.tempdir = {str(occupied)!r}\n" + EVALUATE.lstrip("\n")
    folder, hits, _ = json.loads(
        run_script(script, NUMBA_CACHE_DIR=None, XDG_CACHE_HOME=occupied, HOME=occupied, TMPDIR=occupied)
    )
    assert folder is None
    assert hits == 0


WITHOUT_JIT = """
    import numpy as np
    import elman
    from numba import config

    assert config.DISABLE_JIT == DISABLED
    found = {}
    for dtype in ("float32", "float64"):
        for nonlinearity in ("tanh", "relu", "sigmoid", "identity"):
            rng = np.random.default_rng(3)
            layer = elman.RNN(3, 9, nonlinearity=nonlinearity, dtype=dtype, bias_init="uniform", rng=rng)
            x, h0 = rng.normal(size=(7, 5, 3)), rng.normal(size=(1, 5, 9))
            d_output, d_hn = rng.normal(size=(7, 5, 9)), rng.normal(size=(1, 5, 9))
            trace = layer.trace(x, h0)
            g = layer.backward(trace, d_output, d_hn)
            v = layer.linearize(x, h0).jvp(d_hn[0])
            results = {"output": trace.output, "hn": layer(x, h0)[1], "theta": g.theta, "x": g.x, "h0": g.h0,
                       "norms": g.state_norms, "jvp": v, "jacobian": layer.linearize(x, h0).jacobian(2, 1)}
            found |= {f"{dtype} {nonlinearity} {name}": array for name, array in results.items()}
    np.savez(PLACE, **found)
"""
"""A forward and a backward pass and tangent products, kept in a file."""


@compiled
def test_it_computes_the_same_without_the_jit_to_rounding(run_script, tmp_path):
    results = {}
    for disabled in (0, 1):
        place = str(tmp_path / f"{disabled}.npz")
        text = WITHOUT_JIT.replace("PLACE", repr(place)).replace("DISABLED", str(disabled))
        run_script(text, NUMBA_DISABLE_JIT=str(disabled))
        with np.load(place) as data:
            results[disabled] = dict(data)
    assert len(results[0]) == 64
    for name, value in results[0].items():
        twin = results[1][name]
        assert value.dtype == twin.dtype
        scale = np.abs(value).max()
        assert scale > 0
        # seven steps of sums of twelve terms
        bound = 100 * np.finfo(name.split()[0]).eps * scale
        np.testing.assert_allclose(twin, value, rtol=0, atol=bound, err_msg=name)


def test_the_package_hashed_is_the_one_in_use():
    assert Path(elman.__file__).parent == compilation.PACKAGE
