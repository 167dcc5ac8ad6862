"""Objects made from parameters, reused as long as the parameters do not change.

Parameters are ordinary arrays that anyone may edit at any time, so that nothing reports a change. Therefore the weights
themselves are compared with their earlier values, bit by bit; this reads them once, while packing moves each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Made = TypeVar("Made")

CHUNK = 1 << 16
"""Numbers compared at a time: their copy stays in the second-level cache."""


class Version(NamedTuple):
    """The bits of a vector at one time."""

    size: int
    chunks: list[bytes]

    @classmethod
    def of(cls, theta: NDArray[Any]) -> Version:
        """The present bits of ``theta``."""
        return cls(theta.size, [theta[i : i + CHUNK].tobytes() for i in range(0, theta.size, CHUNK)])

    def same(self, theta: NDArray[Any]) -> bool:
        """Whether the vector still, or again, has these bits."""
        if theta.size != self.size:
            return False
        if len(self.chunks) == 1:  # a small layer, for which the loop would take longer than the comparison
            return theta.tobytes() == self.chunks[0]
        start = 0
        for chunk in self.chunks:
            if theta[start : start + CHUNK].tobytes() != chunk:
                return False
            start += CHUNK
        return True

    def first_change(self, theta: NDArray[Any]) -> int:
        """Index of the first number with other bits, in a vector of the same size."""
        kind = np.dtype(f"u{theta.itemsize}")
        before = np.frombuffer(b"".join(self.chunks), kind)
        return int(np.flatnonzero(before != theta.view(kind))[0])


class _Snapshot(NamedTuple):
    version: Version
    made: Any


class Kept(Generic[Made]):
    """An object made from a parameter vector, and the vector's bits at that time; empty in a copy or a pickle."""

    def __init__(self) -> None:
        self._snapshot: _Snapshot | None = None

    def get(self, theta: NDArray[Any], make: Callable[[], Made]) -> Made:
        """The last result of ``make``, or a new one if ``theta`` has changed since then."""
        snapshot = self._snapshot
        if snapshot is None or not snapshot.version.same(theta):
            version = Version.of(theta)
            # a single assignment, so that threads see the old pair or the new one
            self._snapshot = snapshot = _Snapshot(version, make())
        made: Made = snapshot.made
        return made

    def __reduce__(self) -> tuple[type[Kept[Made]], tuple[()]]:
        return type(self), ()
