"""A scaler that is fitted on the past alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, ShapeError
from ..validation.arrays import real_numbers

Array = NDArray[Any]


class Scaler:
    """Channels to mean 0 and deviation 1, and back.

    Attributes
    ----------
    mean, deviation : ndarray, shape (D,), or None
        Of what :meth:`fit` was given, in float64; a constant channel has deviation 1.
    """

    def __init__(self) -> None:
        self.mean: Array | None = None
        self.deviation: Array | None = None

    def __repr__(self) -> str:
        return "Scaler()" if self.mean is None else f"Scaler(of {len(self.mean)} channels)"

    def fit(self, data: ArrayLike) -> Scaler:
        """Take mean and deviation over all axes but the last; NaN is left out.

        Parameters
        ----------
        data : array_like, shape (..., D), or (n,) for one channel
            The past: what a model may know.

        Returns
        -------
        Scaler
            Itself.

        Raises
        ------
        DTypeError, ArgumentError
            If there are no real numbers, or a channel has none that is finite.
        """
        given = real_numbers(data, "data").astype(np.float64)
        rows = given.reshape(-1, given.shape[-1]) if given.ndim > 1 else given.reshape(-1, 1)
        there = np.isfinite(rows)
        if not there.any(axis=0).all() or not (there | np.isnan(rows)).all():
            raise ArgumentError("data must have a finite number in each channel, and no infinite one")
        count = there.sum(axis=0)
        mean = np.where(there, rows, 0.0).sum(axis=0) / count
        deviation = np.sqrt((np.where(there, rows - mean, 0.0) ** 2).sum(axis=0) / count)
        self.mean, self.deviation = mean, np.where(deviation > 0.0, deviation, 1.0)
        return self

    def transform(self, data: ArrayLike) -> Array:
        """``(data - mean) / deviation``, in the dtype of floating data.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            If the scaler is not fitted, or the channels are others.
        """
        given, mean, deviation = self._checked(data)
        out: Array = ((given - mean) / deviation).astype(given.dtype)
        return out

    def inverse(self, data: ArrayLike) -> Array:
        """``data * deviation + mean``: the way back; arguments and errors as for :meth:`transform`."""
        given, mean, deviation = self._checked(data)
        out: Array = (given * deviation + mean).astype(given.dtype)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Mean and deviation as lists, or None."""
        return {
            "mean": None if self.mean is None else self.mean.tolist(),
            "deviation": None if self.deviation is None else self.deviation.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scaler:
        """The scaler of :meth:`to_dict`."""
        made = cls()
        if values["mean"] is not None:
            made.mean, made.deviation = (np.array(values[name], np.float64) for name in ("mean", "deviation"))
        return made

    def _checked(self, data: ArrayLike) -> tuple[Array, Array, Array]:
        if self.mean is None or self.deviation is None:
            raise ArgumentError("the scaler must be fitted on the past first: Scaler().fit(past)")
        given = real_numbers(data, "data")
        given = given if given.dtype.kind == "f" else given.astype(np.float64)
        if len(self.mean) != 1 and (not given.ndim or given.shape[-1] != len(self.mean)):
            raise ShapeError(f"data must have {len(self.mean)} channels on the last axis, got shape {given.shape}")
        return given, self.mean, self.deviation
