"""No loss, for training by penalties alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..targets import target_axes

Array = NDArray[Any]


class Zero:
    """A loss of 0 whatever the output: with ``regularizers=``, :func:`elman.fit` then follows these alone.

    Parameters
    ----------
    loss : str or Loss, default "mse"
        Whose targets are given: they are not read, but their axes must be those of a target.
    """

    takes_weight = True

    def __init__(self, loss: Any = "mse") -> None:
        self.target_axes = target_axes(loss)

    def value_and_gradient(self, output: Array, target: Array, weight: ArrayLike | None = None) -> tuple[float, Array]:
        """0, and zeros of the output's shape; NaN where the output is not finite, which is an error as elsewhere.

        Parameters
        ----------
        output : ndarray, shape (..., Q)
        target : ndarray
            Not read.
        weight : array_like, optional
            Not read.
        """
        return float(np.sum(output * 0.0)), np.zeros_like(output)
