"""What a user waits for before the first result: import, and the first ``fit`` of a process with and without compiled
code on disk. Everything is measured in processes of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import ClassVar

from ..cases import CELLS, DTYPES

FIRST_FIT = """
import json, sys, time
import numpy as np
import elman
cell, dtype, began, rest = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]
layer = getattr(elman, cell)(3, 20, dtype=dtype, rng=0)
net = elman.Network(layer, elman.Readout(20, 1, dtype=dtype, rng=1))
rng, fit, optimizer = np.random.default_rng(2), elman.fit, elman.Adam(1e-3)
x, y = rng.standard_normal((10, 32, 3)).astype(dtype), rng.standard_normal((32, 1)).astype(dtype)
warmup = elman.warmup if rest else None
start = time.perf_counter()
fit(net, x, y, optimizer=optimizer, epochs=1, batch_size=16, clip_norm=1.0, progress=False, rng=3)
times = {"fit": time.perf_counter() - start, "process": time.time() - began}
if rest:
    warmup(cell, dtype)
    times["all"] = time.perf_counter() - start
print(json.dumps(times))
"""

IMPORT_AFTER_DEPENDENCIES = """
import json, time
import numba, scipy.linalg
start = time.perf_counter()
import elman
for name in {names}:
    getattr(elman, name)
print(json.dumps(time.perf_counter() - start))
"""


def in_process(code: str, *arguments: str, cache: str | None = None) -> dict[str, float] | float:
    """Run code that prints JSON; with ``cache``, compiled code is kept there and nowhere else."""
    environment = dict(os.environ)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    command = [sys.executable, "-c", code, *arguments]
    run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def first_fit(cell: str, dtype: str, cache: str, *rest: str) -> dict[str, float]:
    """Seconds of the first ``fit`` of a process: of the call, and since the process was asked for.

    With "rest" also until a warm-up of the same cell and dtype has compiled what ``fit`` does not need.
    """
    times = in_process(FIRST_FIT, cell, dtype, repr(time.time()), *rest, cache=cache)
    assert isinstance(times, dict)
    return times


def measure(cell: str, dtype: str, rounds: int = 2) -> dict[str, float]:
    """All the times of :class:`FirstFit`, by name; of the warm ones the smallest."""
    with tempfile.TemporaryDirectory() as cache:
        cold = first_fit(cell, dtype, cache, "rest")
        warm = [first_fit(cell, dtype, cache) for _ in range(rounds)]
    return {f"cold_{name}": value for name, value in cold.items()} | {
        f"warm_{name}": min(times[name] for times in warm) for name in warm[0]
    }


class Import:
    """Importing the package."""

    number, repeat, rounds = 1, (3, 5, 20.0), 1

    def timeraw_import(self) -> str:
        return "import elman"

    def timeraw_import_dependencies(self) -> str:
        return "import numba, scipy.linalg"

    def track_import_after_dependencies(self) -> float:
        """What ``import elman`` costs more than numba and scipy.linalg."""
        return self._median("()")

    def track_all_names_after_dependencies(self) -> float:
        """The same with every public name, which elman imports at its first use."""
        return self._median("elman.__all__")

    def _median(self, names: str) -> float:
        times = [in_process(IMPORT_AFTER_DEPENDENCIES.format(names=names)) for _ in range(3)]
        return statistics.median(t for t in times if isinstance(t, float))

    track_import_after_dependencies.unit = "seconds"  # type: ignore[attr-defined]
    track_all_names_after_dependencies.unit = "seconds"  # type: ignore[attr-defined]


class FirstFit:
    """The first ``fit`` of a process: a layer of 20 units, readout, Adam, clipping.

    ``fit`` figures are of the call alone, once the names have been imported: what compiled code costs when it is made
    (cold) or loaded (warm). ``process`` figures are what a user waits who starts Python: interpreter, imports and call.
    """

    params: ClassVar = (CELLS, DTYPES)
    param_names = ("cell", "dtype")
    timeout = 300

    def setup_cache(self) -> dict[str, dict[str, float]]:
        """Measure everything once: a cold start takes long, and each figure below is in a process of its own."""
        return {f"{cell} {dtype}": measure(cell, dtype) for cell in CELLS for dtype in DTYPES}

    setup_cache.timeout = 1200  # type: ignore[attr-defined]

    def track_cold_fit(self, times: dict[str, dict[str, float]], cell: str, dtype: str) -> float:
        """The call, with everything to be compiled. The project's target is less than 12 s."""
        return times[f"{cell} {dtype}"]["cold_fit"]

    def track_cold_process(self, times: dict[str, dict[str, float]], cell: str, dtype: str) -> float:
        return times[f"{cell} {dtype}"]["cold_process"]

    def track_compilation(self, times: dict[str, dict[str, float]], cell: str, dtype: str) -> float:
        """Everything that :func:`elman.warmup` compiles for the cell and dtype."""
        return times[f"{cell} {dtype}"]["cold_all"]

    def track_warm_fit(self, times: dict[str, dict[str, float]], cell: str, dtype: str) -> float:
        """The call, with compiled code on disk. The project's target is less than 1 s."""
        return times[f"{cell} {dtype}"]["warm_fit"]

    def track_warm_process(self, times: dict[str, dict[str, float]], cell: str, dtype: str) -> float:
        return times[f"{cell} {dtype}"]["warm_process"]

    track_cold_fit.unit = track_cold_process.unit = track_compilation.unit = "seconds"  # type: ignore[attr-defined]
    track_warm_fit.unit = track_warm_process.unit = "seconds"  # type: ignore[attr-defined]
