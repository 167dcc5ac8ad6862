"""A series and places in it, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..validation.arrays import plain, real_numbers
from ..validation.scalars import size

Array = NDArray[Any]


def table(series: ArrayLike, name: str = "series") -> Array:
    """A series as (n, D) of a floating dtype.

    Raises
    ------
    ShapeError, DTypeError
        If it has other than one or two axes, or no real numbers.
    """
    given = real_numbers(series, name)
    if given.ndim not in (1, 2):
        raise ShapeError(f"{name} must have shape (n,) or (n, D), got {given.shape}")
    given = given if given.dtype.kind == "f" else given.astype(np.float64)
    return given[:, None] if given.ndim == 1 else given


def places(origins: ArrayLike, leads: int, n: int, least: int, ahead: bool = False) -> tuple[Array, int]:
    """Origins and the number of leads.

    Parameters
    ----------
    least : int
        Steps that are needed before an origin.
    ahead : bool
        Whether the series must go on for all leads, since what comes is read.

    Raises
    ------
    DTypeError, ArgumentError
        If they are no integers, or lie outside the series.
    """
    o, leads = np.atleast_1d(plain(origins, "origins")), size(leads, "leads")
    if o.dtype.kind not in "iu" or o.ndim != 1:
        raise DTypeError(f"origins must be integers, one or an array of one axis, got {o.dtype} of shape {o.shape}")
    most = n - leads if ahead else n
    if o.size and not (o.min() >= least and o.max() <= most):
        raise ArgumentError(
            f"origins must lie in {least} .. {most}: {least} steps of the {n} must come before each"
            f"{f', and {leads} after' if ahead else ''}; got {o.min()} .. {o.max()}"
        )
    return o.astype(np.intp), leads
