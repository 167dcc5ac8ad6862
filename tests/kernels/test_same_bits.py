"""One seed, one result: starts, outputs, gradients and trained weights have the recorded bits under any setting.

The settings stand for other machines: vectors of another length, LLVM without the processor's own instructions, NumPy
without its kernels for newer processors, OpenBLAS with those for another, another number of threads. That any of them
gives the recorded hashes, which other machines compare with too, is what the README promises.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import numpy as np
import pytest
from numba import config

try:
    from numpy._core import _multiarray_umath as umath
except ImportError:  # NumPy 1
    from numpy.core import _multiarray_umath as umath

DATA = Path(__file__).parents[1] / "data"
RECORDED = json.loads((DATA / "same_bits.json").read_text())

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="the bits are those of compiled code: NumPy cannot fuse")

X86 = platform.machine().lower() in ("x86_64", "amd64")
EXTRA = [f for f in umath.__cpu_dispatch__ if umath.__cpu_features__.get(f)]
"""What NumPy has kernels of its own for, beyond its baseline, and this processor has."""

SETTINGS: dict[str, dict[str, str]] = {
    "the machine itself": {},
    "vectors of 16 bytes": {"ELMAN_VECTOR_BYTES": "16"},
    "vectors of 32 bytes": {"ELMAN_VECTOR_BYTES": "32"},
    "vectors of 64 bytes": {"ELMAN_VECTOR_BYTES": "64"},
    "NumPy without AVX-512": {"NPY_DISABLE_CPU_FEATURES": " ".join(f for f in EXTRA if "512" in f or f == "X86_V4")},
    "NumPy's baseline": {"NPY_DISABLE_CPU_FEATURES": " ".join(EXTRA)},
    **{
        f"OpenBLAS for {core}": {"OPENBLAS_CORETYPE": core}
        for core in ("Prescott", "Haswell", "Zen", "SkylakeX")
        if X86
    },
    **{f"OpenBLAS for {core}": {"OPENBLAS_CORETYPE": core} for core in ("ARMV8", "NEOVERSEN1") if not X86},
    "one thread": {"NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    "three threads": {"ELMAN_TEST_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"},
}


@pytest.mark.ci
@pytest.mark.parametrize("setting", SETTINGS)
def test_recorded_bits(setting, run_script):
    script = DATA / "make_same_bits.py"
    text = f"import runpy\nrunpy.run_path({str(script)!r}, run_name='__main__')"
    if threads := SETTINGS[setting].get("ELMAN_TEST_THREADS"):
        # as small as the work is, it is split
        text = f"import elman.kernels.parallel as p\np.SPLIT_FLOPS = 0.0\np.set_num_threads({threads})\n{text}"
    printed = json.loads(run_script(text, **SETTINGS[setting]))
    differ = {name: (value, RECORDED.get(name)) for name, value in printed.items() if value != RECORDED.get(name)}
    assert not differ
    assert set(printed) == set(RECORDED)


def test_the_settings_have_an_effect(run_script):
    """A name that NumPy does not know, or a length that does not reach the kernels, would prove nothing."""
    for setting in ("16", "32", "64"):
        said = run_script("from elman.kernels.vector import lanes_of; print(lanes_of(4))", ELMAN_VECTOR_BYTES=setting)
        assert int(said) == int(setting) // 4
    module = umath.__name__
    said = run_script(
        f"from {module} import __cpu_features__ as f\nprint(sum(f[name] for name in {EXTRA!r}))",
        **SETTINGS["NumPy's baseline"],
    )
    assert int(said) == 0


def test_a_length_that_no_vector_has_is_refused(run_script):
    text = "try: import elman.kernels.host\nexcept ValueError as error: print(error)"
    said = run_script(text, ELMAN_VECTOR_BYTES="24")
    assert "must be 16, 32 or 64, got '24'" in said


def test_hashes_tell_weights_apart():
    starts = [name for name in RECORDED if name.startswith("start ")]
    assert len(starts) > 10
    trained = {name: value for name, value in RECORDED.items() if not name.startswith("start ")}
    assert len(set(trained.values())) == len(trained)
    assert np.unique([RECORDED[name] for name in starts if "zeros" not in name and "glorot" not in name]).size > 10
