"""How good forecasts are, by lead, with intervals over origins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..results import Result
from ..validation.arrays import finite_numbers
from ..validation.rng import generator
from ..validation.scalars import size
from ..validation.words import kind
from .series import places, table

Array = NDArray[Any]

SAMPLES = 1000
"""Bootstrap samples: ends of 95 % intervals are then known to about a tenth of their distance."""


def actual(series: ArrayLike, origins: ArrayLike, leads: int) -> Array:
    """What came: ``series[o + k]`` for each origin o and lead k + 1.

    Returns
    -------
    ndarray, shape (m, leads, D)

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If an argument does not fit, or the series ends before the last lead.
    """
    values = table(series)
    o, leads = places(origins, leads, len(values), 0, ahead=True)
    out: Array = values[o[:, None] + np.arange(leads)]
    return out


@dataclass(frozen=True, eq=False)
class Scores(Result):
    """Root mean square errors by lead; made by :func:`scores`.

    Attributes
    ----------
    rmse : dict of str to ndarray, shape (leads,)
        By name of the forecast, in the unit of the series, over origins and channels.
    intervals : dict of str to ndarray, shape (leads, 2)
        95 % intervals over origins.
    n_origins, block : int
        Origins, and how many neighbouring ones were drawn together.
    """

    rmse: dict[str, Array]
    intervals: dict[str, Array]
    n_origins: int
    block: int

    def __str__(self) -> str:
        names = list(self.rmse)
        width = max(26, *(len(name) + 2 for name in names))
        lines = [
            f"Root mean square errors by lead, 95 % intervals over {self.n_origins} origins, in blocks of {self.block}",
            "  lead  " + "".join(f"{name:<{width}}" for name in names),
        ]
        for k in range(len(self.rmse[names[0]])):
            cells = []
            for name in names:
                low, high = self.intervals[name][k]
                cells.append(f"{f'{self.rmse[name][k]:.4g} [{low:.4g}, {high:.4g}]':<{width}}")
            lines.append(f"  {k + 1:<6}" + "".join(cells).rstrip())
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Errors and intervals as plain lists."""
        return {
            "rmse": {name: values.tolist() for name, values in self.rmse.items()},
            "intervals": {name: values.tolist() for name, values in self.intervals.items()},
            "n_origins": self.n_origins,
            "block": self.block,
        }


def scores(actual: ArrayLike, forecasts: Mapping[str, ArrayLike], *, block: int | None = None, rng: Any = 0) -> Scores:
    """Root mean square error of forecasts by lead, with intervals.

    Intervals are percentiles of 1000 samples of origins, drawn in blocks of neighbours, since the errors of
    neighbouring origins resemble each other (H. R. Künsch, Annals of Statistics 17 (1989) 1217). All forecasts meet the
    same samples.

    Parameters
    ----------
    actual : array_like, shape (m, leads, D) or (m, leads)
        What came: :func:`elman.forecast.actual`.
    forecasts : mapping of str to array_like
        By name, of the shape of ``actual``.
    block : int, optional
        Origins of a block; by default the larger of the number of leads and the cube root of m.
    rng : None, int or numpy.random.Generator, default 0
        Draws the samples.

    Returns
    -------
    Scores

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If shapes differ, a number is not finite, or there are no origins or forecasts.
    """
    y = finite_numbers(actual, "actual")
    if y.ndim not in (2, 3) or not y.size:
        raise ShapeError(f"actual must have shape (origins, leads) or (origins, leads, channels), got {y.shape}")
    if not isinstance(forecasts, Mapping) or not forecasts:
        raise DTypeError(f"forecasts must be a mapping of names to arrays, got {kind(forecasts)}")
    m, leads = y.shape[:2]
    length = max(leads, round(m ** (1 / 3))) if block is None else size(block, "block")
    length = min(length, m)
    starts = generator(rng).integers(m - length + 1, size=(SAMPLES, -(-m // length)))
    drawn = (starts[..., None] + np.arange(length)).reshape(SAMPLES, -1)[:, :m]
    rmse, intervals = {}, {}
    for name, forecast in forecasts.items():
        f = finite_numbers(forecast, f"forecasts[{name!r}]")
        if f.shape != y.shape:
            raise ShapeError(f"forecasts[{name!r}] must have the shape of actual, {y.shape}, got {f.shape}")
        squares = ((f - y).astype(np.float64) ** 2).reshape(m, leads, -1).mean(axis=-1)
        rmse[str(name)] = np.sqrt(squares.mean(axis=0))
        samples = np.sqrt(np.stack([squares[rows].mean(axis=0) for rows in drawn]))
        intervals[str(name)] = np.percentile(samples, [2.5, 97.5], axis=0).T
    if len(rmse) < len(forecasts):
        raise ArgumentError("forecasts must have different names")
    return Scores(rmse, intervals, m, length)
