"""What a user waits for before the first result: import and first call, each in a process of its own."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from typing import ClassVar

from .cases import DTYPES

FIRST_CALL = """
import time
import numpy as np
import elman
layer, x = elman.RNN(3, 20, dtype="{dtype}", rng=0), np.ones((10, 4, 3), "{dtype}")
start = time.perf_counter()
layer(x)
trace = layer.trace(x)
layer.backward(trace, trace.output)
print(time.perf_counter() - start)
"""

IMPORT_AFTER_DEPENDENCIES = """
import time
import numba, scipy.linalg
start = time.perf_counter()
import elman
for name in {names}:
    getattr(elman, name)
print(time.perf_counter() - start)
"""


def seconds_in_process(code: str, cache: str | None = None) -> float:
    """Run code that prints a number of seconds; with ``cache``, compiled code is kept there and nowhere else."""
    environment = dict(os.environ)
    if cache is not None:
        environment.pop("NUMBA_CACHE_DIR", None)
        environment["XDG_CACHE_HOME"] = cache
    run = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return float(run.stdout)


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
        code = IMPORT_AFTER_DEPENDENCIES.format(names=names)
        return statistics.median(seconds_in_process(code) for _ in range(3))

    track_import_after_dependencies.unit = "seconds"  # type: ignore[attr-defined]
    track_all_names_after_dependencies.unit = "seconds"  # type: ignore[attr-defined]


class FirstCall:
    """The first forward and backward pass of a process."""

    params: ClassVar = DTYPES
    param_names = ("dtype",)
    timeout = 300

    def track_cold(self, dtype: str) -> float:
        """With everything to be compiled."""
        with tempfile.TemporaryDirectory() as cache:
            return seconds_in_process(FIRST_CALL.format(dtype=dtype), cache)

    def track_warm(self, dtype: str) -> float:
        """With compiled code on disk."""
        code = FIRST_CALL.format(dtype=dtype)
        seconds_in_process(code)
        return statistics.median(seconds_in_process(code) for _ in range(3))

    track_cold.unit = track_warm.unit = "seconds"  # type: ignore[attr-defined]
