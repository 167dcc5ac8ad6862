"""The largest norm of a power of a matrix, and where it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from ...linearization import Array
from ..matrices import frobenius_norm

# Powers searched for the transient peak before giving up on a proof: a peak at step k needs a radius near 1 - 1/k, so
# this covers radii up to about 0.9999.
MAX_POWER = 10_000
# Relative rounding of a power that is not exceeded in practice, though its bound may be larger.
_KNOWN = 1e-6


class TransientPeak(NamedTuple):
    """Largest norm of a power of the matrix.

    Attributes
    ----------
    value : float
        ``max_k |W^k|_2`` over ``k >= 0``; inf if the powers are not bounded.
    step : int or None
        The first ``k`` that attains it within rounding; None if there is none.
    """

    value: float
    step: int | None


def transient_peak(W: Array, norm: float) -> TransientPeak:
    """``max_k |W^k|_2`` over ``k >= 0`` for bounded powers, and the first k that attains it within rounding.

    Parameters
    ----------
    W : ndarray, shape (H, H), real or complex
        With its marginal eigenvalues exactly on the unit circle, so that the powers do not drift.
    norm : float
        Its spectral norm, above 1.

    Returns
    -------
    TransientPeak
    """
    records, power = [TransientPeak(1.0, 0)], W
    for k in range(1, MAX_POWER + 1):
        # the Frobenius norm is cheap and never less than the spectral norm
        frobenius = frobenius_norm(power)
        if frobenius > records[-1].value:
            value = float(scipy.linalg.svdvals(power)[0])
            if value > records[-1].value:
                records.append(TransientPeak(value, k))
        # Once |W^m| < 1 no later power exceeds the maximum found: write j = q m + r with r < m, then
        # |W^j| <= |W^m|^q |W^r| <= |W^r|, and r was searched.
        if frobenius < 1:
            break
        power = power @ W
    value, step = records[-1]
    # k products, whose errors are multiplied by powers of at most this norm
    rounding = (step or 0) * len(W) * float(np.finfo(np.float64).eps) * norm * value
    return next(record for record in records if record.value >= value * (1 - min(rounding, _KNOWN)))
