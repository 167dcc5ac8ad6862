"""Intervals around forecasts, by split-conformal prediction, and how often they hold what came."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, ShapeError
from ..validation.arrays import finite_numbers
from ..validation.scalars import real

Array = NDArray[Any]


def conformal(residuals: ArrayLike, level: float = 0.9) -> Array:
    r"""Half widths of intervals, from the errors of forecasts that were not used to make the model.

    The :math:`\lceil (m + 1)\,\text{level} \rceil`-th smallest of m absolute errors, at each lead: a further error that
    is exchangeable with them is no larger with at least that probability. Errors of neighbouring origins are not
    independent, so the promise is approximate for a series: measure :func:`coverage` on the test.

    Parameters
    ----------
    residuals : array_like, shape (m, leads, ...)
        Errors at m origins.
    level : float, default 0.9
        Between 0 and 1.

    Returns
    -------
    ndarray, shape (leads, ...)
        Infinite where m is too small for the level.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If the errors are not finite, there are none, or the level lies outside.

    References
    ----------
    V. Vovk, A. Gammerman and G. Shafer, Algorithmic Learning in a Random World (2005); J. Lei et al., Distribution-free
    predictive inference for regression, J. Am. Stat. Assoc. 113 (2018) 1094.
    """
    errors, level = finite_numbers(residuals, "residuals"), real(level, "level")
    if errors.ndim < 2 or not len(errors):
        raise ShapeError(
            f"residuals must have shape (origins, leads, ...), with one origin at least, got {errors.shape}"
        )
    if not 0.0 < level < 1.0:
        raise ArgumentError(f"level must lie between 0 and 1, got {level!r}")
    rank = math.ceil((len(errors) + 1) * level)
    if rank > len(errors):
        return np.full(errors.shape[1:], np.inf)
    out: Array = np.sort(np.abs(errors), axis=0)[rank - 1]
    return out


def coverage(actual: ArrayLike, forecast: ArrayLike, half_width: ArrayLike) -> Array:
    """Share of the origins at which the interval holds what came, by lead.

    Parameters
    ----------
    actual, forecast : array_like, shape (m, leads, ...)
    half_width : array_like, shape (leads, ...)
        From :func:`conformal`.

    Returns
    -------
    ndarray, shape (leads, ...)

    Raises
    ------
    ShapeError
        If the shapes do not fit each other.
    """
    y, f, h = (np.asarray(a, np.float64) for a in (actual, forecast, half_width))
    if y.shape != f.shape or y.ndim < 2 or h.shape != y.shape[1:]:
        raise ShapeError(
            "actual and forecast must have one shape (origins, leads, ...), and half_width that without origins; got "
            f"{y.shape}, {f.shape} and {h.shape}"
        )
    out: Array = (np.abs(y - f) <= h).mean(axis=0)
    return out
