"""Forecasts of several leads by a network: by feeding its outputs back, or all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError
from ..validation.scalars import size
from .series import places, table

Array = NDArray[Any]


def feedback(net: Any, series: ArrayLike, origins: ArrayLike, leads: int, window: int) -> Array:
    """Forecasts by a network that puts out the next step, fed back as its input.

    Parameters
    ----------
    net : elman.Network
        With as many outputs as the series has channels.
    series : array_like, shape (n,) or (n, D)
        Scaled as for the training.
    origins : array_like of int, shape (m,)
        Each at least ``window``.
    leads : int
        How many.
    window : int
        Steps before an origin that the network reads, from its own initial state.

    Returns
    -------
    ndarray, shape (m, leads, D)

    Raises
    ------
    ShapeError, DTypeError, ArgumentError, NonFiniteError
        If an argument does not fit, or a state overflows.
    """
    x, leads = _windows(net, series, origins, leads, window)
    made: Array = net.generate(x, leads)
    return made if net.time_axis == 1 else np.ascontiguousarray(made.swapaxes(0, 1))


def direct(net: Any, series: ArrayLike, origins: ArrayLike, leads: int, window: int) -> Array:
    """Forecasts by a network that puts out all leads at the last step, lead by lead, each with all channels.

    Arguments, result and errors as for :func:`feedback`; the network has ``leads * D`` outputs.
    """
    x, leads = _windows(net, series, origins, leads, window)
    output = net.predict(x)
    last = output if net.at == "end" else np.moveaxis(output, net.time_axis, 0)[-1]
    if last.shape[-1] % leads:
        raise ArgumentError(f"net must have an output for each of {leads} leads and channels, it has {last.shape[-1]}")
    out: Array = last.reshape(len(last), leads, -1)
    return out


def _windows(net: Any, series: ArrayLike, origins: ArrayLike, leads: int, window: int) -> tuple[Array, int]:
    """What the network reads before each origin, in its order of axes."""
    values, window = table(series), size(window, "window")
    o, leads = places(origins, leads, len(values), window)
    x = values[o[:, None] - window + np.arange(window)]
    return (x if net.time_axis == 1 else np.ascontiguousarray(x.swapaxes(0, 1))), leads
