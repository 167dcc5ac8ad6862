"""How many threads to use: the cores that this process may use, and the settings of its environment.

A pool of processes (joblib, Dask) assigns each worker its share of the cores through the variables that limit the
threads of numerical libraries; a scheduler does so through affinity, and a container through a quota of processor time,
which leaves every core visible.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS")
"""The first one that is set to a number decides: joblib sets both for its workers, Dask the second."""


def default_threads(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Number of threads to use if the user sets none.

    Parameters
    ----------
    environment : mapping
        Environment variables of the process.
    root : Path
        Where ``/proc`` and ``/sys`` are.

    Returns
    -------
    int
        At least 1 and at most the number from :func:`cores`; fewer if one of ``VARIABLES`` says so.
    """
    available = cores(root)
    for name in VARIABLES:
        # OpenMP takes one number for each level of nesting; the first is that of the outermost
        first = environment.get(name, "").split(",")[0].strip()
        if first.isascii() and first.isdigit() and int(first):
            return min(int(first), available)
    return available


def cores(root: Path = Path("/")) -> int:
    """Cores this process may use: by its affinity, or by its quota of processor time rounded up, whichever is less."""
    count = getattr(os, "process_cpu_count", None)  # from Python 3.13; it respects PYTHON_CPU_COUNT
    if count is None and hasattr(os, "sched_getaffinity"):
        count = lambda: len(os.sched_getaffinity(0))  # noqa: E731
    visible = (count or os.cpu_count)() or 1
    return max(1, math.ceil(min(visible, quota(root))))


def quota(root: Path = Path("/")) -> float:
    """Processor time that Linux control groups grant the process, in cores; inf without a limit.

    Every group of the process counts, and every group above it. In a container the path of the group may be that of the
    host, of which only the root exists there: that root is the container's own group.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return math.inf
    limits = [math.inf]
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            trees = ("", "unified")  # version 2, alone or beside version 1
        elif "cpu" in controllers.split(","):
            trees = (controllers, "cpu")
        else:
            continue
        parts = PurePosixPath(path).parts[1:]
        for tree in trees:
            for depth in range(len(parts) + 1):
                limits.append(_limit(root.joinpath("sys/fs/cgroup", tree, *parts[:depth])))
    return min(limits)


def _limit(group: Path) -> float:
    """Quota over period of one group: ``cpu.max`` of version 2, two files of version 1; inf if there is none."""
    try:
        if (group / "cpu.max").exists():
            given, period = (group / "cpu.max").read_text().split()
        else:
            given, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        limit = float(given) / float(period)  # "max" and -1 are no limit
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
    return limit if limit > 0 else math.inf
