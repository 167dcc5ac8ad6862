"""A side in a process of its own: ``python -m benchmarks.sides.workers NAME THREADS``, and the object that talks to it.

Requests ``(method, *arguments)`` come pickled on standard input; answers ``(ok, value or message)`` go to standard
output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from . import SIDES, Side

ROOT = Path(__file__).resolve().parents[2]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SINGLE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
"""XLA's flags for one thread; for more it takes the cores it may run on."""


class Peer:
    """A package in a process of its own, for as long as the ``with`` block lasts; begun anew where it has died."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads = name, threads
        self.start()

    def start(self) -> None:
        """Begin the process."""
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(self.threads)) | {"JAX_PLATFORMS": "cpu"}
        if self.threads == 1:
            environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {SINGLE}".strip()
        command = [sys.executable, "-m", "benchmarks.sides.workers", self.name, str(self.threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT
        )

    def revive(self) -> None:
        """Begin again if the process is gone."""
        if self.process.poll() is not None:
            self.process.communicate()
            self.start()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the side over there.

        Raises
        ------
        RuntimeError
            With its traceback if it failed, or if the process is gone.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((method, *arguments), self.process.stdin)
            self.process.stdin.flush()
            ok, answer = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):
            self.process.wait()
            raise RuntimeError(f"the process of {self.name} ended; its own message is above") from None
        if not ok:
            raise RuntimeError(f"{self.name} failed at {method}:\n{answer}")
        return answer

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def confine(threads: int) -> None:
    """Keep this process to as many cores as it has threads: equal terms, also for packages that ask the system."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores()[-threads:])


def serve(side: Side) -> None:
    """Answer requests until standard input ends; whatever else is printed goes to standard error."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        try:
            method, *arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = True, getattr(side, method)(*arguments)
        except Exception:
            answer = False, traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    confine(int(sys.argv[2]))
    serve(SIDES[sys.argv[1]](int(sys.argv[2])))
