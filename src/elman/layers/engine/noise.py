"""Random draws of one training pass: dropout between layers, dropout of recurrent connections, zoneout.

A pass that draws nothing is an evaluation. Where it makes a difference, the caller must say which of the two is meant,
so that neither happens by oversight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ArgumentError
from ...validation.rng import generator
from ...validation.scalars import flag, probability

Array = NDArray[Any]

DRAWN = 1 << 13
"""Numbers drawn at once if a byte of each is stored: they stay in the cache, in the same order as from one call."""


@dataclass(frozen=True, eq=False)
class Noise:
    """Factors for one pass; None where there are none.

    Attributes
    ----------
    between : tuple of ndarray (T * B, width) or None
        For each layer, the factors of its output before the next layer reads it.
    recurrent : tuple of ndarray (R,) or None
        For each direction, the factors of the columns of W_hh: 0 for a unit whose recurrent connections are cut.
    zoneout : tuple of ndarray (T * B, n_states, H) of uint8, or None
        For each direction, which states are kept from the step before: 1, or 0.
    """

    between: tuple[Array | None, ...]
    recurrent: tuple[Array | None, ...]
    zoneout: tuple[Array | None, ...]


@dataclass(frozen=True)
class Regularizer:
    """The rates of a layer.

    Attributes
    ----------
    dropout : float
        Fraction of the numbers between layers that a training pass sets to 0.
    recurrent_dropout : float
        Fraction of the units whose recurrent connections a training pass cuts, the same units at every step.
    zoneout : tuple of float
        For each state, the fraction that a training pass keeps from the step before.
    """

    dropout: float
    recurrent_dropout: float
    zoneout: tuple[float, ...]

    @classmethod
    def checked(cls, dropout: Any, recurrent_dropout: Any, zoneout: Any, states: tuple[str, ...]) -> Regularizer:
        """Make it from the arguments of a layer.

        Raises
        ------
        DTypeError, ArgumentError
            For anything but numbers of at least 0 and less than 1, or if there is not one per state.
        """
        rates = zoneout if isinstance(zoneout, tuple | list) else (zoneout,) * len(states)
        if len(rates) != len(states):
            raise ArgumentError(f"zoneout must be one number, or one for each state ({', '.join(states)})")
        return cls(
            probability(dropout, "dropout"),
            probability(recurrent_dropout, "recurrent_dropout"),
            tuple(probability(rate, "zoneout") for rate in rates),
        )

    @property
    def active(self) -> bool:
        """Whether training and evaluation differ."""
        return bool(self.dropout or self.recurrent_dropout or any(self.zoneout))

    def draw(self, rng: Any, layers: int, directions: int, rows: int, R: int, H: int, dtype: np.dtype[Any]) -> Noise:
        """Draw the factors of one training pass over ``rows`` steps of all sequences.

        Numbers that are not dropped are divided by the fraction kept, so that an evaluation need not scale anything.
        Zoneout needs no scale: an evaluation uses the mean of what training draws.
        """
        rng = generator(rng)

        def kept(rate: float, shape: tuple[int, ...]) -> Array | None:
            return (rng.random(shape) >= rate).astype(dtype) / dtype.type(1 - rate) if rate else None

        def zoned() -> Array | None:
            if not any(self.zoneout):
                return None
            # comparing with one number for all is several times as fast
            rates = np.array(self.zoneout)[:, None] if len(set(self.zoneout)) > 1 else self.zoneout[0]
            drawn = np.empty((rows, len(self.zoneout), H), np.uint8)
            some = max(1, DRAWN // max(1, drawn[:1].size))
            for i in range(0, rows, some):
                part = drawn[i : i + some]
                np.less(rng.random(part.shape), rates, out=part.view(bool))
            return drawn

        n = layers * directions
        last = (None,)
        return Noise(
            tuple(kept(self.dropout, (rows, directions * R)) for _ in range(layers - 1)) + last,
            tuple(kept(self.recurrent_dropout, (R,)) for _ in range(n)),
            tuple(zoned() for _ in range(n)),
        )


def choose(regularizer: Regularizer, training: bool | None, rng: Any) -> bool:
    """Whether this is a training pass.

    Raises
    ------
    ArgumentError, DTypeError
        If ``training`` is missing where it makes a difference or is not a truth value, or an evaluation has an ``rng``.
    """
    if training is None:
        if regularizer.active:
            raise ArgumentError(
                "training must be said for a layer with dropout, recurrent_dropout or zoneout: True draws from rng, "
                "False evaluates"
            )
        training = False
    training = flag(training, "training")
    if rng is not None and not training:
        raise ArgumentError("rng draws nothing in an evaluation: leave it out, or say training=True")
    return training
