"""Time series: the yearly sunspot number, and windows of a series."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError
from ..validation.arrays import real_numbers
from ..validation.scalars import size
from ..windows import Windows

Array = NDArray[Any]


def sunspots() -> tuple[Array, Array]:
    """Yearly mean total sunspot number, 1700 to 2008.

    Returns
    -------
    years : ndarray of int, shape (309,)
    numbers : ndarray, shape (309,), float64
        International (Wolf) sunspot number, original series.

    Notes
    -----
    SIDC, Royal Observatory of Belgium; in the public domain. The series is the classical test of autoregressive models:
    Yule, Phil. Trans. R. Soc. A 226 (1927) 267.
    """
    text = resources.files(__package__).joinpath("sunspots.csv").read_text(encoding="utf-8")
    table = np.array([line.split(",") for line in text.split()[1:]], dtype=np.float64)
    return table[:, 0].astype(np.int64), table[:, 1]


def windows(series: ArrayLike, length: int, stride: int | None = None) -> Windows:
    """Cut a series into windows, as sequences of a batch.

    Parameters
    ----------
    series : array_like, shape (n,) or (n, D)
        One series; a vector is taken as D = 1. A map of a file (:class:`numpy.memmap`) stays where it is.
    length : int
        Steps T of each window.
    stride : int, optional
        Steps from one start to the next; ``length`` by default, so that windows do not overlap. Overlapping windows are
        not independent: intervals computed from them are too narrow.

    Returns
    -------
    Windows, shape (T, B, D)
        Time-major: a read-only array that shares the memory of the series, if that is an array, and takes none of its
        own; the steps left over at the end are dropped. Take a copy, ``.copy()``, to write into it.

    Raises
    ------
    ArgumentError, DTypeError
        If the series is shorter than one window, has the wrong number of axes, is masked or not of real numbers, or a
        size is not a positive integer.
    """
    length = size(length, "length")
    stride = length if stride is None else size(stride, "stride")
    data = real_numbers(series, "series")
    if data.ndim == 1:
        data = data[:, None]
    if data.ndim != 2 or len(data) < length:
        raise ArgumentError(f"series must have shape (n,) or (n, D) with n >= length = {length}, got {np.shape(data)}")
    view = np.lib.stride_tricks.sliding_window_view(data, length, axis=0)[::stride]
    return view.transpose(2, 0, 1).view(Windows)
