"""Forecasts that a network has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, ShapeError
from ..validation.scalars import size
from .series import places, table

Array = NDArray[Any]


def persistence(series: ArrayLike, origins: ArrayLike, leads: int) -> Array:
    """The last known value, at every lead.

    Parameters
    ----------
    series : array_like, shape (n,) or (n, D)
    origins : array_like of int, shape (m,)
        Each from 1 to n.
    leads : int
        How many.

    Returns
    -------
    ndarray, shape (m, leads, D)

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If an argument does not fit.
    """
    values = table(series)
    o, leads = places(origins, leads, len(values), 1)
    return np.repeat(values[o - 1][:, None], leads, axis=1)


def seasonal(series: ArrayLike, origins: ArrayLike, leads: int, period: int) -> Array:
    """The value one period earlier, or as many periods as it takes to be known.

    Parameters
    ----------
    series, origins, leads
        As for :func:`persistence`; each origin at least ``period``.
    period : int
        Steps of a season.

    Returns
    -------
    ndarray, shape (m, leads, D)

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If an argument does not fit.
    """
    values, period = table(series), size(period, "period")
    o, leads = places(origins, leads, len(values), period)
    out: Array = values[o[:, None] - period + np.arange(leads) % period]
    return out


class Autoregression:
    """A linear autoregression of each channel on its own past, by least squares; further leads by feeding back.

    Parameters
    ----------
    order : int
        How many steps it looks back.

    Attributes
    ----------
    coefficients : ndarray, shape (D, order + 1), or None
        Of each channel, the oldest step first, then the constant.

    References
    ----------
    G. U. Yule, Phil. Trans. R. Soc. A 226 (1927) 267, for the yearly sunspot number.
    """

    def __init__(self, order: int) -> None:
        self.order = size(order, "order")
        self.coefficients: Array | None = None

    def __repr__(self) -> str:
        return f"Autoregression({self.order})"

    def fit(self, past: ArrayLike) -> Autoregression:
        """Find the coefficients; returns itself.

        Parameters
        ----------
        past : array_like, shape (n,) or (n, D)
            At least ``2 order + 1`` steps, finite.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            If it is too short, or not finite.
        """
        values = table(past, "past").astype(np.float64)
        if len(values) < 2 * self.order + 1 or not np.isfinite(values).all():
            raise ArgumentError(
                f"past must be finite and have at least {2 * self.order + 1} steps for order {self.order}, got "
                f"{len(values)}"
            )
        found = []
        for channel in values.T:
            windows = np.lib.stride_tricks.sliding_window_view(channel[:-1], self.order)
            design = np.column_stack([windows, np.ones(len(windows))])
            found.append(np.linalg.lstsq(design, channel[self.order :], rcond=None)[0])
        self.coefficients = np.array(found)
        return self

    def forecast(self, series: ArrayLike, origins: ArrayLike, leads: int) -> Array:
        """Forecasts at every lead.

        Parameters
        ----------
        series, origins, leads
            As for :func:`persistence`; each origin at least ``order``.

        Returns
        -------
        ndarray, shape (m, leads, D)

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If an argument does not fit, or it was not fitted.
        """
        values = table(series)
        if self.coefficients is None:
            raise ArgumentError("the autoregression must be fitted on the past first: Autoregression(order).fit(past)")
        if values.shape[1] != len(self.coefficients):
            raise ShapeError(f"series must have {len(self.coefficients)} channels, got {values.shape[1]}")
        o, leads = places(origins, leads, len(values), self.order)
        known = values[o[:, None] - self.order + np.arange(self.order)].astype(np.float64)
        for _ in range(leads):
            recent = known[:, -self.order :]
            new = (recent * self.coefficients[:, :-1].T).sum(axis=1) + self.coefficients[:, -1]
            known = np.concatenate([known, new[:, None]], axis=1)
        return known[:, self.order :]
