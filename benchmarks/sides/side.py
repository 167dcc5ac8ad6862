"""What every package does in a comparison: take over a case, answer it, and be timed."""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..cases import Array, Case

WHOLE = ("forward", "forward_backward")
"""Passes over whole sequences."""

PASSES = (*WHOLE, "step")
"""Those, and one step of a stream, whose state the side keeps."""

Answers = dict[str, dict[str, Array]]
"""By pass and name: "output" (T, B, H), "hn" and "cn" (1, B, H), and "d_" before the names of gradients."""


class Side(ABC):
    """One package, with the layer of one case, whose calls leave finished results behind."""

    case: Case

    @abstractmethod
    def __init__(self, threads: int) -> None:
        """Import the package and tell it its number of threads."""

    @abstractmethod
    def version(self) -> str:
        """Name and version of the package."""

    @staticmethod
    def can(case: Case, name: str) -> bool:
        """Whether the package has a pass for a case."""
        return True

    @abstractmethod
    def load(self, case: Case) -> None:
        """Build the layer of a case, and keep its data as the package wants them."""

    @abstractmethod
    def forward(self) -> Any:
        """Inference."""

    def forward_backward(self) -> Any:
        """Forward pass, and the gradients of all parameters and of the input."""
        raise NotImplementedError

    def start_stream(self) -> list[Any]:
        """Begin at the zero state; the inputs of the single steps (B, D), as the package wants them."""
        raise NotImplementedError

    def step(self, x_t: Any) -> Any:
        """Go on by one step of a stream."""
        raise NotImplementedError

    @abstractmethod
    def arrays(self, name: str, result: Any) -> dict[str, Array]:
        """What a pass over whole sequences gave, under the common names; copies where the next call writes again."""

    @abstractmethod
    def output(self, result: Any) -> Array:
        """What a step gave, (B, H)."""

    def prepare(self, case: Case, passes: Sequence[str] = WHOLE) -> Answers:
        """Take over a case, and run once what can be run, so that all is compiled; its answers by pass."""
        self.take(case)
        answers = {name: self.answer(name) for name in passes}
        return {name: answer for name, answer in answers.items() if answer is not None}

    def take(self, case: Case) -> None:
        """Take over a case."""
        self.case = case
        self.load(case)

    def answer(self, name: str) -> dict[str, Array] | None:
        """The answers of one pass, None if there is no such pass; those of a stream are its outputs, by step."""
        if not self.can(self.case, name):
            return None
        if name == "step":
            return {f"output {t}": self.output(self.step(x_t)).copy() for t, x_t in enumerate(self.start_stream())}
        return self.arrays(name, getattr(self, name)())

    def measure(self, name: str, seconds: float) -> float:
        """Seconds a call of a pass, from calls in a row that take at least ``seconds`` together; at least one."""
        call: Callable[[], Any] = partial(self.step, self.start_stream()[0]) if name == "step" else getattr(self, name)
        gc.collect()
        gc.disable()
        try:
            calls, start = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - start) < seconds or calls == 0:
                call()
                calls += 1
        finally:
            gc.enable()
        return elapsed / calls
