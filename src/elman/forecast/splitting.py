"""A split in time: what a model may be trained on, and what it is judged by."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError
from ..validation.scalars import real, size
from .series import table

Array = NDArray[Any]


class Split(NamedTuple):
    """Parts of a series.

    Attributes
    ----------
    past, test : ndarray, shape (n, D)
        What may be used to make a model, and what it is judged by; views.
    start : int
        Index of the first step of ``test`` in the series, the first origin.
    """

    past: Array
    test: Array
    start: int


def split(series: ArrayLike, *, test: int | float, gap: int = 0) -> Split:
    """Cut a series into past and test, with a gap between them.

    Parameters
    ----------
    series : array_like, shape (n,) or (n, D)
        In the order of time.
    test : int or float
        Steps of the test, or their share of the series, between 0 and 1.
    gap : int, default 0
        Steps before the test that belong to neither: as many as a forecast's longest lead minus one keep every target
        of the training out of the test.

    Returns
    -------
    Split

    Raises
    ------
    ArgumentError, DTypeError, ShapeError
        If an argument does not fit, or nothing is left of the past.
    """
    whole, gap = table(series), size(gap, "gap", least=0)
    n = len(whole)
    if isinstance(test, float | np.floating):
        share = real(test, "test")
        if not 0.0 < share < 1.0:
            raise ArgumentError(f"test must be a number of steps, or a share between 0 and 1, got {test!r}")
        steps = max(1, round(share * n))
    else:
        steps = size(test, "test")
    if steps + gap >= n:
        raise ArgumentError(f"test and gap must leave a past of the {n} steps, got {steps} and {gap}")
    return Split(whole[: n - steps - gap], whole[n - steps :], n - steps)
