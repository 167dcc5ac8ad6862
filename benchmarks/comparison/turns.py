"""One case of a comparison: answers checked, then times taken in turns; a failure is part of the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..cases import Array, Case, Shape, flops, make_case
from ..sides import SIDES
from .rows import OURS, Row

TOLERANCE = {"float32": 1e-4, "float64": 1e-10}

SLOW = 8
"""A peer that takes this many times our time is measured in one round."""

ROUNDS = 3, 9
"""Least and most."""

SECONDS = 0.01, 0.3
"""Least and most that calls in a row take together, but for a single call that is longer."""

LONG = 0.5
"""Seconds of a call that is too long to be made for warming up alone."""

SETUP = 1.5
"""Seconds to compile a pass and to compare its answers: a guess that only divides the budget."""

CHECKED_STEPS = 8
"""Steps of a stream whose answers are compared."""


class Disagreement(AssertionError):
    """Two packages gave different answers: the peer is not timed."""


class Asked(Protocol):
    """Something that answers requests, such as :class:`benchmarks.sides.workers.Peer`."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of :class:`benchmarks.sides.side.Side`."""

    def revive(self) -> None:
        """Begin again after a crash."""


class Plan(NamedTuple):
    """A case, and what is measured of it."""

    cell: str
    shape: Shape
    dtype: str
    passes: tuple[str, ...]
    ragged: bool = False

    def case(self) -> Case:
        """The data; a stream gets as many steps as are compared."""
        shape = (CHECKED_STEPS, *self.shape[1:]) if "step" in self.passes else self.shape
        return make_case(shape, self.dtype, self.cell, ragged=self.ragged)

    def least(self, packages: Sequence[str], peak: float) -> float:
        """A guess of the seconds that it takes, with the fewest calls there can be, at six tenths of the peak."""
        probe = make_case((1, 1, 1, 1), self.dtype, self.cell)
        total = 0.0
        for kind in self.passes:
            able = sum(SIDES[name].can(probe, kind) for name in packages)
            work = flops(self.shape, self.cell, kind == "forward_backward")
            total += able * (SETUP + (1 + ROUNDS[0]) * work / (0.6 * peak))
        return total


def check_agreement(ours: Mapping[str, Array], theirs: Mapping[str, Array], dtype: str) -> None:
    """Compare answers by name; deviations count relative to the largest entry of the peer's array.

    Raises
    ------
    Disagreement
        Naming the first array that is missing, of another shape, or off by more than the dtype allows.
    """
    if ours.keys() != theirs.keys():
        raise Disagreement(f"one side has answers that the other lacks: {sorted(ours.keys() ^ theirs.keys())}")
    for name, reference in theirs.items():
        value = ours[name]
        if value.shape != reference.shape or value.dtype != reference.dtype:
            raise Disagreement(f"{name}: {value.dtype}{value.shape} against {reference.dtype}{reference.shape}")
        error, largest = np.max(np.abs(value - reference)), np.max(np.abs(reference))
        # written so that NaN does not pass
        if not error <= TOLERANCE[dtype] * largest:
            raise Disagreement(
                f"{name} differs by {error:.1e}, with {largest:.1e} its largest entry; {dtype} allows "
                f"{TOLERANCE[dtype]:.0e} of that"
            )


def compare(sides: Mapping[str, Asked], plan: Plan, seconds: float) -> list[Row]:
    """Check one case, and time its passes in turns, each for about ``seconds`` in all."""
    case = plan.case()
    lost: dict[str, str] = {}
    for name, side in sides.items():
        try:
            side.revive()
            side.ask("take", case)
        except RuntimeError as error:
            lost[name] = reason(error)
    T, B = plan.shape[:2]
    steps = T * B if case.lengths is None else int(case.lengths.sum())
    rows = []
    for kind in plan.passes:
        row = Row(plan.cell, plan.shape, plan.dtype, kind, plan.ragged, steps, failed=dict(lost))
        right = agreeing({name: side for name, side in sides.items() if name not in lost}, kind, plan.dtype, row.failed)
        row.times.update(take_turns({name: sides[name] for name in right}, kind, seconds, row.failed))
        rows.append(row)
    return rows


def agreeing(sides: Mapping[str, Asked], kind: str, dtype: str, failed: dict[str, str]) -> list[str]:
    """Ours and those that agree with ours, or none; ``failed`` gets why the others are left out.

    Ours alone where no other package was to be compared.
    """
    right: list[str] = []
    ours: Mapping[str, Array] = {}
    for name in sorted(sides, key=lambda name: name != OURS):
        try:
            answers = sides[name].ask("answer", kind)
            if name == OURS:
                ours = answers
            elif not right:
                return []
            if answers is not None:
                check_agreement(ours, answers, dtype)
                right.append(name)
        except (RuntimeError, Disagreement) as error:
            failed[name] = reason(error)
    if right == [OURS] and (len(sides) > 1 or failed):
        failed[OURS] = "no peer agrees: the answer is unchecked"
        return []
    return right


def take_turns(sides: Mapping[str, Asked], kind: str, seconds: float, failed: dict[str, str]) -> dict[str, list[float]]:
    """Seconds a call by package, one number a round; all rounds together take about ``seconds``.

    The first turn is short: it warms up and tells how many rounds there is time for, and it counts where calls are too
    long to be made in vain.
    """

    def turn(names: Sequence[str], least: float) -> dict[str, float]:
        done = {}
        for name in names:
            try:
                done[name] = float(sides[name].ask("measure", kind, least))
            except RuntimeError as error:
                failed[name] = reason(error)
        return done

    first = turn(list(sides), SECONDS[0])
    if OURS not in first:
        return {}
    fast = [name for name, t in first.items() if t <= SLOW * first[OURS]]
    total = sum(first[name] for name in fast)
    rounds = int(np.clip(seconds / max(total, len(fast) * SECONDS[0]), *ROUNDS))
    least = float(np.clip(seconds / (rounds * len(fast)), *SECONDS))
    turns = [{name: first[name] for name in fast}] if max(first[name] for name in fast) > LONG else []
    while len(turns) < rounds:
        turns.append(turn(fast, least))
    for name in first.keys() - set(fast):
        turns[0] |= {name: first[name]} if first[name] > least else turn([name], least)
    return {name: [t[name] for t in turns if name in t] for name in first if name not in failed}


def reason(error: Exception) -> str:
    """The last line of a message, which in a traceback says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
