"""A source of random numbers."""

from __future__ import annotations

from reprlib import repr as shortened
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError
from .words import kind


def generator(rng: Any, name: str = "rng") -> np.random.Generator:
    """A source of random numbers.

    Parameters
    ----------
    rng : None, int or numpy.random.Generator
        None draws a seed from the system; an integer is a seed. Anything else that :func:`numpy.random.default_rng`
        takes is allowed: a sequence of integers, a seed sequence, a bit generator.

    Raises
    ------
    DTypeError, ArgumentError
        For anything else, or a negative seed.
    """
    must = f"{name} must be None, an integer of at least 0 as a seed, or a numpy.random.Generator"
    if isinstance(rng, bool | np.bool_):
        raise DTypeError(f"{must}, got {rng!r}")
    try:
        return np.random.default_rng(rng)
    except TypeError as error:
        raise DTypeError(f"{must}, such as numpy.random.default_rng(0); got {kind(rng)}") from error
    except ValueError as error:
        raise ArgumentError(f"{must}, got {shortened(rng)}") from error
