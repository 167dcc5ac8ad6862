"""Where batches come from: arrays from which they are drawn, or the caller's own supply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ..errors import ArgumentError, DTypeError
from ..losses import Loss
from ..validation.words import kind
from .cuts import Truncation
from .model import Model
from .samples import Draw, Samples


class Source(Protocol):
    """What training draws batches from."""

    def draws(self, batch_size: int, rng: np.random.Generator | None) -> Iterator[Draw]:
        """The batches of one pass through the data."""
        ...


class Batches:
    """Batches (x, y), or (x, y, sample_weight), that the caller makes; each pass goes through all of them.

    Parameters
    ----------
    model, loss, truncation, prefix, missing
        As for :class:`Samples`, which checks each batch.
    batches : iterable
        One that can be gone through again and again, such as a list, or an object whose ``__iter__`` begins anew. The
        arrays of a batch must not change before the next but one is asked for. The first batch is looked at, and
        checked, before the first epoch.

    Raises
    ------
    DTypeError, ArgumentError
        If it can be gone through only once, or is empty, or the first batch does not fit.
    """

    def __init__(
        self, model: Model, batches: Any, loss: Loss, truncation: Truncation | None = None, prefix: str = "",
        missing: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(batches, Iterator):
            raise DTypeError(
                f"{prefix}batches must be an iterable that begins anew for each epoch, got {kind(batches)}, which can "
                "be gone through once: give list(...) of it, or an object whose __iter__ makes a new one"
            )
        self.batches: Iterable[Any] = batches
        self._to_samples = lambda item, i: _samples(
            model, item, loss, truncation, f"{prefix}batches[{i}] ", missing
        )  # fmt: skip
        self.first = self._to_samples(self._begin()[0], 0)

    def _begin(self) -> tuple[Any, Iterator[Any]]:
        """The first batch, and what follows."""
        iterator = iter(self.batches)
        try:
            return next(iterator), iterator
        except StopIteration:
            raise ArgumentError(
                f"batches must hold at least one (x, y) in each pass, got none from {kind(self.batches)}"
            ) from None

    def checked(self) -> Iterator[Samples]:
        """The batches of one pass."""
        return (self._to_samples(item, i) for i, item in enumerate(self.batches))

    def draws(self, batch_size: int, rng: np.random.Generator | None) -> Iterator[Draw]:
        """The batches as they come: their sizes and their order are the caller's."""
        item, iterator = self._begin()
        i, n, missing = 0, 0, object()
        while item is not missing:
            following = next(iterator, missing)
            samples = self._to_samples(item, i)
            chosen = np.arange(n, n + samples.n_samples)
            yield Draw(chosen, samples.pieces(samples.whole()), following is missing)
            i, n, item = i + 1, n + samples.n_samples, following


def is_supply(x: Any) -> bool:
    """Whether this is a supply of batches rather than an array or a list of sequences: to be asked where y is None."""
    return isinstance(x, Iterable) and not hasattr(x, "shape") and not isinstance(x, str | bytes | Mapping)


def _samples(model: Model, item: Any, loss: Loss, truncation: Truncation | None, prefix: str, missing: bool) -> Samples:
    """A batch, checked."""
    if not isinstance(item, tuple | list) or len(item) not in (2, 3):
        raise DTypeError(f"{prefix.strip()} must be (x, y) or (x, y, sample_weight), got {kind(item)}")
    weight = item[2] if len(item) == 3 else None
    return Samples(model, item[0], item[1], loss, truncation, prefix=prefix, weight=weight, missing=missing)
