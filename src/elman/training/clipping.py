"""The norm of a gradient, and clipping by it (Pascanu, Mikolov & Bengio 2013, "On the difficulty of training
recurrent neural networks", algorithm 1).

One norm over all parameters: clipping shortens the step and keeps its direction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, NonFiniteError
from ..kernels.squares import sum_of_squares
from ..kernels.subnormal import flushed
from ..norms import whole_norm
from ..validation.scalars import real
from ..validation.words import kind

Array = NDArray[Any]


def global_norm(gradient: Array) -> float:
    """Euclidean norm of a gradient.

    Parameters
    ----------
    gradient : ndarray of float32 or float64
        Of any shape; usually the flat gradient of all parameters.

    Returns
    -------
    float
        The norm, computed in float64 without overflow or underflow of the squares; 0 for an empty array. It is NaN or
        inf if an entry is, and inf if the norm itself exceeds the largest float64.

    Raises
    ------
    DTypeError
        If the gradient is not one array of float32 or float64.
    """
    _check(gradient)
    return whole_norm(gradient, sum_of_squares)


def clip_by_global_norm(gradient: Array, max_norm: float) -> float:
    """Scale a gradient in place by ``min(1, max_norm / norm)``.

    Parameters
    ----------
    gradient : ndarray of float32 or float64
        Changed in place if its norm exceeds ``max_norm``, otherwise not touched. Entries that would fall below the
        smallest normal number of the dtype become 0.
    max_norm : float
        Largest norm allowed, at least 0; ``inf`` clips nothing.

    Returns
    -------
    float
        The norm before clipping.

    Raises
    ------
    ArgumentError
        If ``max_norm`` is negative (it would reverse the gradient) or NaN.
    DTypeError
        If the gradient is not one array of float32 or float64, such as a dict, or would have to be changed and is
        read-only.
    NonFiniteError
        If the norm is not finite: scaling would turn one bad entry into NaN everywhere. The gradient stays as it was.
    """
    if not real(max_norm, "max_norm") >= 0.0:
        raise ArgumentError(f"max_norm must be a number >= 0 (inf clips nothing), got {max_norm!r}")
    norm = global_norm(gradient)
    if not math.isfinite(norm):
        raise NonFiniteError(
            f"the gradient has norm {norm}, so it cannot be clipped; it was not changed", what="gradient"
        )
    if norm > max_norm:
        if not gradient.flags.writeable:
            raise DTypeError("gradient must be writable to be clipped in place, and is read-only: clip a copy")
        scale(gradient, max_norm / norm)
    return norm


@flushed
def scale(gradient: Array, factor: float) -> None:
    """Multiply a gradient in place; what falls below the smallest normal number becomes 0."""
    gradient *= factor


def _check(gradient: Any) -> None:
    """Refuse what is not one array whose numbers can be scaled in place."""
    if isinstance(gradient, np.ndarray) and gradient.dtype in (np.float32, np.float64):
        if isinstance(gradient, np.ma.MaskedArray):
            raise DTypeError("gradient must not be a masked array, whose mask would be lost: fill it first")
        return
    cure = ""
    if isinstance(gradient, Mapping | list | tuple):
        cure = ": one norm is taken over all parameters, so give them as one vector, such as grads.theta"
    raise DTypeError(f"gradient must be one array of float32 or float64, got {kind(gradient)}{cure}")
