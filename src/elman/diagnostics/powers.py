"""The largest power of a matrix: how far the undriven linear network can amplify before it decays."""

from __future__ import annotations

from typing import NamedTuple

import scipy.linalg

from ..linearization import Array
from .marginal import entry_rounding
from .matrices import frobenius_norm

# Powers searched for the transient peak before giving up a proof: a peak at step k needs a radius near 1 - 1/k, so this
# covers radii up to about .9999.
MAX_POWER = 10_000


class TransientPeak(NamedTuple):
    """Largest norm that a power of the matrix has.

    Attributes
    ----------
    value : float
        ``max_k |W^k|_2`` over ``k >= 0``; inf if the powers are not bounded.
    step : int or None
        The first ``k`` that has it; None if there is none.
    """

    value: float
    step: int | None


def largest_power(W: Array, norm: float) -> TransientPeak:
    """``max_k |W^k|_2`` of a matrix whose powers are bounded, and the first k within rounding of it.

    Parameters
    ----------
    W : ndarray, shape (H, H)
    norm : float
        Its spectral norm.
    """
    peak = TransientPeak(1.0, 0)
    if norm <= 1 + entry_rounding(W):
        return peak
    power, rounding = W, entry_rounding(W)
    for k in range(1, MAX_POWER + 1):
        # the Frobenius norm is cheap and never less than the spectral norm
        frobenius = frobenius_norm(power)
        if frobenius > peak.value:
            value = float(scipy.linalg.svdvals(power)[0])
            # each step adds the rounding of one product of a power with W
            if value > peak.value * (1 + k * rounding * peak.value):
                peak = TransientPeak(value, k)
        # Once |W^m| < 1 no later power exceeds the maximum found: write j = q m + r with r < m, then
        # |W^j| <= |W^m|^q |W^r| <= |W^r|, and r was searched.
        if frobenius < 1:
            break
        power = power @ W
    return peak
