"""Packed weights kept between calls for as long as the weights do not change.

Parameters are ordinary arrays that anyone may edit at any time, so there is nothing that would tell of a change. The
weights themselves are compared with what they were, bit by bit; that reads them once, where packing moves each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from numpy.typing import NDArray

Made = TypeVar("Made")

CHUNK = 1 << 16
"""Numbers compared at a time: their copy stays in the second-level cache."""


class _Snapshot(NamedTuple):
    size: int
    chunks: list[bytes]
    made: Any


def _chunks(theta: NDArray[Any]) -> list[bytes]:
    return [theta[i : i + CHUNK].tobytes() for i in range(0, theta.size, CHUNK)]


def _unchanged(snapshot: _Snapshot, theta: NDArray[Any]) -> bool:
    if theta.size != snapshot.size:
        return False
    start = 0
    for chunk in snapshot.chunks:
        if theta[start : start + CHUNK].tobytes() != chunk:
            return False
        start += CHUNK
    return True


class Kept(Generic[Made]):
    """Something made from a parameter vector, and the vector's bits at that time; empty in a copy or a pickle."""

    def __init__(self) -> None:
        self._snapshot: _Snapshot | None = None

    def get(self, theta: NDArray[Any], make: Callable[[], Made]) -> Made:
        """What ``make`` made when it was last called, or, if ``theta`` has changed since, what it makes now."""
        snapshot = self._snapshot
        if snapshot is None or not _unchanged(snapshot, theta):
            chunks = _chunks(theta)
            # one assignment, so that threads see an old pair or a new one
            self._snapshot = snapshot = _Snapshot(theta.size, chunks, make())
        made: Made = snapshot.made
        return made

    def __reduce__(self) -> tuple[type[Kept[Made]], tuple[()]]:
        return type(self), ()
