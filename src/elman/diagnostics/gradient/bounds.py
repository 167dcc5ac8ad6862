"""Bounds that no gradient can leave: from the singular values of every Jacobian, and from the weights alone.

Pascanu, Mikolov and Bengio, On the difficulty of training recurrent neural networks (2013).
"""

from __future__ import annotations

import math

import numpy as np

from ...linearization import Array, ElementwiseFactors, Linearization
from ..matrices import rounding_of


def norm_bound(factors: ElementwiseFactors) -> float:
    r"""Largest growth per step that these weights allow on any input: :math:`\log(\sigma_{max}(W)\,\max|\phi'|)`.

    Below 0, it proves that every gradient decays, by at least this much per step (R. Pascanu, T. Mikolov, Y. Bengio,
    ICML 2013). Above 0, it proves nothing.

    Returns
    -------
    float
        Nats per step; -inf for a weight of zero, and exactly 0 where it is 0 within rounding, as for orthogonal
        weights.
    """
    weight = factors.weight.astype(np.float64)
    bound = float(np.linalg.norm(weight, 2)) * factors.max_slope
    if abs(bound - 1) <= rounding_of(weight, factors.weight.dtype) * factors.max_slope:
        return 0.0
    return math.log(bound) if bound > 0 else -math.inf


def singular_bounds(lin: Linearization) -> tuple[Array, Array]:
    """Cumulative log of the largest and of the smallest singular value by lag, two arrays (T + 1, n)."""
    upper, lower = np.zeros((2, lin.n_steps + 1, lin.n_sequences))
    for lag in range(1, lin.n_steps + 1):
        jacobians = np.stack([lin.jacobian(lin.n_steps - lag, i) for i in range(lin.n_sequences)])
        values = np.linalg.svd(jacobians.astype(np.float64, copy=False), compute_uv=False)
        with np.errstate(divide="ignore"):
            upper[lag] = upper[lag - 1] + np.log(values[:, 0])
            lower[lag] = lower[lag - 1] + np.log(values[:, -1])
    return upper, lower


def a_priori_bound(lin: Linearization) -> Array | None:
    """``k log(max|phi'| sigma_max(W_hh))`` for lags 0 .. T; None if the Jacobians do not have these factors."""
    if lin.factors is None:
        return None
    return np.concatenate([[0.0], norm_bound(lin.factors) * np.arange(1, lin.n_steps + 1)])
