"""The two trainings of ``end_to_end.py``: the same loop in elman and in torch, each in a process of its own.

Both report to a :class:`Lap` after every update. It keeps the clock, stops it for evaluations and while it is the other
process's turn, and so decides in one place what is timed.
"""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from ..cases import Array
from ..sides import elman as side_elman
from ..sides import torch as side_torch
from ..sides.workers import confine
from .curves import held_out_score
from .problems import Problem


class Ready(NamedTuple):
    """A network is built and warm; ``first`` are the seconds of a first update, made on a network thrown away."""

    version: str
    first: float


class Stint(NamedTuple):
    """The updates from one evaluation to the next: losses, seconds, and the held-out loss and accuracy at the end."""

    loss: list[float]
    seconds: list[float]
    held_out: float
    accuracy: float | None


Report = Callable[[float], bool]
"""Told the loss of a batch after each update; answers whether to stop."""


class Side(ABC):
    """One package."""

    @abstractmethod
    def version(self) -> str:
        """Name and version of the package."""

    @abstractmethod
    def load(self, problem: Problem) -> None:
        """Take over data and build the network with its initial weights and a new optimizer."""

    @abstractmethod
    def train(self, report: Report) -> None:
        """Update through ``problem.batches`` until told to stop."""

    @abstractmethod
    def outputs(self) -> Array:
        """What the network says to the held-out sequences, (M, Q)."""


class Elman(side_elman.Package, Side):
    """``elman.fit``, whose random order is that of the problem: every update is checked to have seen its batch."""

    def load(self, problem: Problem) -> None:
        elman, (D, H, Q) = self.elman, problem.sizes
        layer = getattr(elman, problem.cell)(D, H, dtype=problem.dtype)
        self.network = elman.Network(layer, elman.Readout(H, Q, dtype=problem.dtype), at="end")
        self.network.load_state_dict(problem.weights)
        self.problem = problem

    def train(self, report: Report) -> None:
        problem = self.problem

        def done(update: Any) -> bool:
            if not np.array_equal(update.samples, problem.batches[update.step]):
                raise RuntimeError(f"elman.fit drew another batch than the problem's at update {update.step}")
            return report(update.loss)

        updates, batch_size = problem.batches.shape
        self.elman.fit(
            self.network, problem.x, problem.y, loss=problem.loss, optimizer=self.elman.Adam(problem.lr),
            epochs=-(-updates * batch_size // problem.x.shape[1]), batch_size=batch_size, clip_norm=1.0,
            callbacks=(done,), progress=False, rng=problem.seed,
        )  # fmt: skip

    def outputs(self) -> Array:
        output: Array = self.network(self.problem.held_x)[0]
        return output


class Torch(side_torch.Package, Side):
    """torch.nn as its users write it.

    Time first, the readout on the final state and Adam fused are at least as fast as batch first, the output's last
    step and Adam in its other forms. Gradients are dropped, not zeroed.
    """

    def load(self, problem: Problem) -> None:
        torch, (D, H, Q) = self.torch, problem.sizes
        dtype = getattr(torch, problem.dtype)
        self.layer = getattr(torch.nn, problem.cell)(D, H, dtype=dtype)
        self.readout = torch.nn.Linear(H, Q, dtype=dtype)
        parts = torch.nn.ModuleDict({"layer": self.layer, "readout": self.readout})
        parts.load_state_dict({name: torch.from_numpy(w) for name, w in problem.weights.items()})
        self.parameters = list(parts.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=problem.lr, fused=True)
        self.loss = {"mse": torch.nn.functional.mse_loss, "cross_entropy": torch.nn.functional.cross_entropy}[
            problem.loss
        ]
        self.x, self.y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
        self.held_x, self.batches = torch.from_numpy(problem.held_x), torch.from_numpy(problem.batches)

    def _network(self, x: Any) -> Any:
        _, hn = self.layer(x)
        return self.readout((hn[0] if isinstance(hn, tuple) else hn)[-1])

    def train(self, report: Report) -> None:
        utils = self.torch.nn.utils
        for batch in self.batches:
            loss = self.loss(self._network(self.x.index_select(1, batch)), self.y.index_select(0, batch))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            # the two halves of clip_grad_norm_, without the 1e-6 that it adds to the norm and elman does not: training
            # is so sensitive that this alone takes losses 4e-5 apart within a hundred updates
            norm = utils.get_total_norm([p.grad for p in self.parameters])
            utils.clip_grads_with_norm_(self.parameters, 1.0, norm - 1e-6)
            self.optimizer.step()
            if report(loss.item()):
                return

    def outputs(self) -> Array:
        with self.torch.inference_mode():
            output: Array = self._network(self.held_x).numpy()
        return output


SIDES: dict[str, Callable[[int], Side]] = {"elman": Elman, "torch": Torch}


class Lap:
    """The clock of a training, and its turns: every ``problem.every`` updates it evaluates, reports, and waits."""

    def __init__(self, side: Side, problem: Problem, connection: Connection) -> None:
        self.side, self.problem, self.connection = side, problem, connection
        self.loss, self.seconds = list[float](), list[float]()
        self.left = len(problem.batches)

    def go(self) -> bool:
        """Wait for the turn, and start the clock; False if there is none."""
        going: bool = self.connection.recv()
        self.started = time.perf_counter()
        return going

    def __call__(self, loss: float) -> bool:
        self.seconds.append(time.perf_counter() - self.started)
        self.loss.append(loss)
        self.left -= 1
        if len(self.loss) == self.problem.every or not self.left:
            score = held_out_score(self.side.outputs(), self.problem.held_y, self.problem.loss)
            self.connection.send(Stint(self.loss, self.seconds, *score))
            self.loss, self.seconds = [], []
            return not (self.go() and self.left)
        self.started = time.perf_counter()
        return False


def warm_up(side: Side, problem: Problem) -> float:
    """Seconds of one update and what it takes to get there, compilation included, on a network of its own."""
    side.load(problem)
    started = time.perf_counter()
    side.train(lambda _: True)
    seconds = time.perf_counter() - started
    side.outputs()
    return seconds


def serve(connection: Connection, package: str, threads: int) -> None:
    """Train problem after problem that comes over the connection, until None does; a failure is sent as its traceback.

    The process keeps to as many cores as it has threads.
    """
    try:
        confine(threads)
        side = SIDES[package](threads)
        while (problem := connection.recv()) is not None:
            first = warm_up(side, problem)
            side.load(problem)
            lap = Lap(side, problem, connection)
            connection.send(Ready(side.version(), first))
            if lap.go():
                side.train(lap)
    except Exception:
        connection.send(traceback.format_exc())
