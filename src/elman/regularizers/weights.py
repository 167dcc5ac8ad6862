"""Penalties on weights."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError
from ..kernels.orthonormal import square_product
from ..kernels.squares import sum_of_squares
from ..validation.scalars import at_least_zero
from ..validation.words import kind

Array = NDArray[Any]


class L2:
    r"""Sum of the squares of parameters: :math:`s \sum \theta^2`, with the gradient :math:`2 s \theta`.

    With :class:`elman.SGD` it is weight decay of 2 s; :class:`elman.AdamW` decays weights without going through the
    moments of the gradient, which is not the same.

    Parameters
    ----------
    strength : float
        The factor s, at least 0.
    parameters : str or sequence of str, default "*weight*"
        Patterns of the names that count: by default weights, and no biases.
    """

    def __init__(self, strength: float, parameters: str | Iterable[str] = "*weight*") -> None:
        self.strength = at_least_zero(strength, "strength")
        self.parameters = (parameters,) if isinstance(parameters, str) else tuple(parameters)
        if not all(isinstance(pattern, str) for pattern in self.parameters):
            raise DTypeError(f"parameters must be patterns of names, such as '*weight*', got {kind(parameters)}")

    def __repr__(self) -> str:
        return f"L2({self.strength:g}, {list(self.parameters)})"

    def penalty_and_gradient(self, model: Any, trace: Any, d_theta: Array, d_states: Array | None) -> float:
        """Add ``2 s theta`` to ``d_theta``; see :class:`elman.training.Regularizer`.

        Raises
        ------
        ArgumentError
            If no name matches.
        """
        views, total, found = model.parameters.view(d_theta), 0.0, False
        for name, value in model.params.items():
            if any(fnmatchcase(name, pattern) for pattern in self.parameters):
                views[name][...] += (2.0 * self.strength) * value
                total, found = total + sum_of_squares(value), True
        if not found:
            raise ArgumentError(
                f"parameters of L2 must match names of parameters, and {list(self.parameters)} match none of "
                f"{', '.join(model.params)}"
            )
        return self.strength * total


class SoftOrthogonality:
    r"""Distance of each gate's recurrent matrix from the orthogonal ones: :math:`s \sum_g \|W_g^\top W_g - I\|_F^2`.

    Parameters
    ----------
    strength : float
        The factor s, at least 0.

    References
    ----------
    E. Vorontsov, C. Trabelsi, S. Kadoury and C. Pal, On orthogonality and learning recurrent networks with long term
    dependencies, ICML 2017, arXiv:1702.00071.
    """

    def __init__(self, strength: float) -> None:
        self.strength = at_least_zero(strength, "strength")

    def __repr__(self) -> str:
        return f"SoftOrthogonality({self.strength:g})"

    def penalty_and_gradient(self, model: Any, trace: Any, d_theta: Array, d_states: Array | None) -> float:
        """Add ``4 s W (W^T W - I)`` to ``d_theta``; see :class:`elman.training.Regularizer`.

        Raises
        ------
        ArgumentError
            For a layer with a projection, whose recurrent matrices are not square.
        """
        views, total = model.parameters.view(d_theta), 0.0
        for name, value in model.params.items():
            if "weight_hh" not in name:
                continue
            H = value.shape[1]
            if len(value) % H:
                raise ArgumentError("SoftOrthogonality needs square recurrent matrices: leave proj_size out")
            for first in range(0, len(value), H):
                W = value[first : first + H].astype(np.float64)
                excess = square_product(W.T, W)
                excess[np.diag_indices(H)] -= 1.0
                views[name][first : first + H] += (4.0 * self.strength) * square_product(W, excess)
                total += sum_of_squares(excess)
        return self.strength * total
