"""Cores that a process may use, and what pools of processes and containers say: imitated files, and real workers."""

from __future__ import annotations

import json
import math
import os

import pytest

from elman.kernels import cores
from elman.kernels.cores import default_threads, quota


def files(root, **content):
    """Files below a folder."""
    for path, text in content.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


GROUP = "proc/self/cgroup"
FS = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ({}, math.inf),
        ({GROUP: "0::/\n", f"{FS}/cpu.max": "200000 100000\n"}, 2.0),
        ({GROUP: "0::/\n", f"{FS}/cpu.max": "max 100000\n"}, math.inf),
        ({GROUP: "0::/\n"}, math.inf),
        # the host's path, below a mount of which only the container's own part is there
        ({GROUP: "0::/system.slice/docker-1.scope\n", f"{FS}/cpu.max": "50000 100000\n"}, 0.5),
        # a group within a group: the least counts
        ({GROUP: "0::/a/b\n", f"{FS}/a/cpu.max": "150000 100000\n", f"{FS}/a/b/cpu.max": "400000 100000\n"}, 1.5),
        ({GROUP: "0::/a/b\n", f"{FS}/a/c/cpu.max": "150000 100000\n"}, math.inf),
        (
            {
                GROUP: "5:memory:/x\n4:cpu,cpuacct:/docker/1\n0::/\n",
                f"{FS}/cpu,cpuacct/cpu.cfs_quota_us": "300000\n",
                f"{FS}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            3.0,
        ),
        (
            {
                GROUP: "4:cpuacct,cpu:/user\n",
                f"{FS}/cpu/user/cpu.cfs_quota_us": "25000\n",
                f"{FS}/cpu/user/cpu.cfs_period_us": "50000\n",
                f"{FS}/cpu/cpu.cfs_quota_us": "-1\n",
                f"{FS}/cpu/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        ({GROUP: "4:cpuset:/\n", f"{FS}/cpu.max": "100000 100000\n"}, math.inf),
        ({GROUP: "nonsense\n\n", f"{FS}/cpu.max": "what 100000\n"}, math.inf),
        ({GROUP: "0::/\n", f"{FS}/cpu.max": "100000 0\n"}, math.inf),
    ],
)
def test_quota(tmp_path, content, limit):
    assert quota(files(tmp_path, **content)) == limit


@pytest.mark.parametrize(("given", "threads"), [("50000 100000", 1), ("150000 100000", 2), ("max 100000", 4)])
def test_threads_by_quota_are_rounded_up_and_at_most_the_affinity(tmp_path, monkeypatch, given, threads):
    monkeypatch.setattr(os, "process_cpu_count", lambda: 4, raising=False)
    files(tmp_path, **{GROUP: "0::/\n", f"{FS}/cpu.max": given})
    assert default_threads({}, tmp_path) == threads


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({}, 4),
        ({"NUMBA_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "3,1"}, 3),
        ({"NUMBA_NUM_THREADS": "3", "OMP_NUM_THREADS": "1"}, 3),  # what numba is told is meant for compiled code
        ({"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "3"}, 1),
        ({"NUMBA_NUM_THREADS": "", "OMP_NUM_THREADS": "2"}, 2),
        ({"NUMBA_NUM_THREADS": "many"}, 4),
        ({"NUMBA_NUM_THREADS": "0"}, 4),
        ({"NUMBA_NUM_THREADS": "-1"}, 4),
        ({"NUMBA_NUM_THREADS": "64"}, 4),  # more than there are cores gain nothing
        ({"OPENBLAS_NUM_THREADS": "1"}, 4),
    ],
)
def test_threads_by_environment(tmp_path, monkeypatch, environment, threads):
    monkeypatch.setattr(os, "process_cpu_count", lambda: 4, raising=False)
    assert default_threads(environment, tmp_path) == threads


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this platform")
def test_affinity(monkeypatch, tmp_path):
    before = os.sched_getaffinity(0)
    assert cores.cores(tmp_path) == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cores.cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_process_uses_it(run_script):
    text = "import elman; print(elman.get_num_threads())"
    unset = {"NUMBA_NUM_THREADS": None, "OMP_NUM_THREADS": None}
    assert int(run_script(text, **unset)) == cores.cores()
    assert int(run_script(text, **unset | {"NUMBA_NUM_THREADS": "1"})) == 1
    assert int(run_script(text, **unset | {"OMP_NUM_THREADS": "1"})) == 1
    said = "import elman; elman.set_num_threads(3); print(elman.get_num_threads())"
    assert int(run_script(said, NUMBA_NUM_THREADS="1")) == 3


def test_workers_of_joblib_share_the_cores(run_script):
    pytest.importorskip("joblib")
    script = """
        import json, joblib
        def threads():
            import elman
            return elman.get_num_threads()
        if __name__ == "__main__":
            n = joblib.cpu_count()
            print(json.dumps(joblib.Parallel(n, "loky")(joblib.delayed(threads)() for _ in range(2 * n))))
    """
    found = json.loads(run_script(script, NUMBA_NUM_THREADS=None, OMP_NUM_THREADS=None))
    assert set(found) == {1}
