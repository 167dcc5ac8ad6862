"""Where compiled code is kept, that an edit never finds a stale kernel, and that elman works without any of it."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import llvmlite
import numba
import numpy as np
import pytest
from numba import config

import elman
from elman.kernels import folder as compilation

compiled = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")

needs_owners = pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners here")

EVALUATE = """
    import json, math
    import numpy as np
    from elman.kernels import activations, folder
    value = activations.evaluate("tanh", np.array([0.5, -2.0]))
    assert np.allclose(value, [math.tanh(0.5), math.tanh(-2.0)], rtol=1e-15)
    stats = activations.activate_rows.stats
    print(json.dumps([folder.CACHE_FOLDER, sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
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
    assert first == tmp_path / "cache" / "elman" / compilation.folder_name()
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
    name = compilation.folder_name()

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


# ---- files that are damaged, places that are others'


def damage(path, kind):
    """Spoil a file in one of several ways."""
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "empty": b"",
            "cut": content[:middle],
            "a bit": content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :],
            "zeros": bytes(len(content)),
            "text": b"not machine code\n" * 40,
            "seal only": content[:32],
        }[kind]
    )


@compiled
@pytest.mark.parametrize("kind", ["empty", "cut", "a bit", "zeros", "text", "seal only"])
def test_a_damaged_file_is_compiled_again_and_mended(kind, run_script, tmp_path):
    places = {"NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": tmp_path}
    folder, _, _ = json.loads(run_script(EVALUATE, **places))
    files = list(Path(folder).glob("*.nbc"))
    assert files
    for path in files:
        damage(path, kind)
    assert json.loads(run_script(EVALUATE, **places)) == [folder, 0, 1]
    assert json.loads(run_script(EVALUATE, **places)) == [folder, 1, 0]


@compiled
def test_a_sealed_file_that_numba_cannot_read_is_compiled_again(run_script, tmp_path):
    """Written whole, but by something else: the digest is right and the content is not."""
    places = {"NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": tmp_path}
    folder, _, _ = json.loads(run_script(EVALUATE, **places))
    for body in (b"no pickle", pickle.dumps(("no", "machine code"))):
        for path in Path(folder).glob("*.nbc"):
            path.write_bytes(hashlib.sha256(body).digest() + body)
        assert json.loads(run_script(EVALUATE, **places))[0] == folder


@compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs resource limits")
def test_a_full_disk_costs_the_cache_and_not_the_result(run_script, tmp_path):
    text = (
        """
        import resource, warnings
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
    """
        + textwrap.indent(textwrap.dedent(EVALUATE), " " * 12)
        + """
        assert sum("compiled code cannot be kept in" in str(w.message) for w in said) == 1, said
    """
    )
    said = run_script(text, NUMBA_CACHE_DIR=None, XDG_CACHE_HOME=tmp_path)
    folder, hits, _ = json.loads(said)
    assert hits == 0
    # nothing half-written is left
    assert not list(Path(folder).iterdir())


@needs_owners
@pytest.mark.parametrize("kind", ["link", "others", "group", "file"])
def test_a_folder_that_others_can_write_to_is_not_used(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(compilation.tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "xdg").mkdir()
    (tmp_path / "tmp").mkdir()
    root = tmp_path / "xdg" / "elman"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        root.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        root.write_text("")
    else:
        root.mkdir()
        root.chmod(0o777 if kind == "others" else 0o775)
    if kind == "file":
        found = compilation.cache_folder()
    else:
        with pytest.warns(RuntimeWarning, match=r"compiled code is not kept in .*elman: "):
            found = compilation.cache_folder()
    assert Path(found).is_relative_to(tmp_path / "tmp")
    assert Path(found).stat().st_mode & 0o777 == 0o700
    assert Path(found).parent.stat().st_mode & 0o777 == 0o700


@needs_owners
def test_somebody_elses_folder_in_the_common_place_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nobody")
    monkeypatch.setattr(compilation.tempfile, "tempdir", str(tmp_path))
    owner = os.geteuid()
    (tmp_path / f"elman-{owner}").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(os, "getuid", lambda: owner)
    if owner == 0:
        pytest.skip("what belongs to root is root's to spoil anyway")
    with pytest.warns(RuntimeWarning, match=f"it belongs to user {owner}"):
        assert compilation.cache_folder() is None


def test_a_relative_cache_home_is_ignored(tmp_path, monkeypatch):
    """As the XDG base directory specification says."""
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    assert Path(compilation.cache_folder()).is_relative_to(tmp_path / ".cache" / "elman")
    assert not (tmp_path / "relative").exists()


def test_the_folders_name_holds_the_versions():
    """Pickles of one numba are nothing to another: two environments must not take turns."""
    name = compilation.folder_name()
    assert f"numba{numba.__version__}-" in name
    assert f"llvmlite{llvmlite.__version__}-" in name
    assert f"cp{sys.version_info.major}{sys.version_info.minor}-" in name
    assert compilation.OURS.fullmatch(name)


def test_folders_unused_for_months_go_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = tmp_path / "elman"
    used, unused, foreign = (
        root / ("a" * 16),
        root / "cp311-numba0.61.0-llvmlite0.44.0-0123456789abcdef",
        root / "notes",
    )
    for folder in (used, unused, foreign):
        folder.mkdir(parents=True)
        (folder / "content").write_text("")
    root.chmod(0o755)
    long_ago = time.time() - compilation.UNUSED_SECONDS - 60
    for folder in (unused, foreign):
        os.utime(folder, (long_ago, long_ago))
    present = Path(compilation.cache_folder())
    assert sorted(root.iterdir()) == sorted([used, foreign, present])
    # use renews
    os.utime(present, (long_ago, long_ago))
    assert Path(compilation.cache_folder()) == present
    assert present.stat().st_mtime > long_ago + 60
    assert compilation.clear() == sorted([used, present])
    assert list(root.iterdir()) == [foreign]


@compiled
@pytest.mark.parametrize("form", ["pyc", "zip"])
def test_it_runs_and_keeps_code_without_sources(form, tmp_path):
    """Byte code alone, or an archive: the hash is that of what there is, and changes with it."""
    copy = tmp_path / "site" / "elman"
    shutil.copytree(compilation.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy.parent
    if form == "zip":
        path = Path(shutil.make_archive(str(tmp_path / "archive"), "zip", copy.parent))
    else:
        compileall.compile_dir(copy, quiet=1, legacy=True)
        for source in copy.rglob("*.py"):
            source.unlink()
    env = {**os.environ, "PYTHONPATH": str(path), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    env.pop("NUMBA_CACHE_DIR", None)

    def run():
        text = textwrap.dedent(EVALUATE)
        done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    folder, hits, misses = run()
    assert (hits, misses) == (0, 1)
    assert folder.startswith(str(tmp_path / "xdg"))
    assert run() == [folder, 1, 0]
