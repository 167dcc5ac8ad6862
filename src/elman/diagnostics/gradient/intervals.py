"""Student's t intervals over sequences: of one mean, and of a mean compared with the mean of others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...linearization import Array

LEVEL = 0.95  # of every interval that is shown
# of verdicts: at 0.95, repeated looks misjudge networks on the threshold in 2 % of cases, here in 0.4 %
DECISION_LEVEL = 0.99


def t_quantile(level: float, df: Any) -> Any:
    """Half width of the central interval of Student's t, in standard errors.

    Parameters
    ----------
    level : float
        Probability inside, such as 0.95.
    df : float or ndarray
        Degrees of freedom; the result is NaN where they are not positive.

    Returns
    -------
    float or ndarray
    """
    from scipy.special import stdtrit  # would take half of the time to import elman

    return stdtrit(np.where(np.asarray(df) > 0, df, np.nan), 0.5 + level / 2)[()]


def welch_half_width(sd: tuple[Any, Any], n: tuple[Any, Any], level: float = LEVEL) -> Any:
    r"""Half width of the interval for the difference of two sample means.

    :math:`t_\nu \sqrt{s_1^2/n_1 + s_2^2/n_2}` with Welch and Satterthwaite's degrees of freedom :math:`\nu` (B. L.
    Welch, Biometrika 34, 1947). The comparison of a mean predicted from :math:`n_1` sequences with the mean of
    :math:`n_2` others needs this width; the interval of the mean alone is too narrow.

    Parameters
    ----------
    sd : pair of float or ndarray
        Standard deviations of the two samples.
    n : pair of int or ndarray
        Their sizes; the result is NaN where one is below 2.

    Returns
    -------
    float or ndarray
    """
    n1, n2 = (np.where(np.asarray(size) > 1, size, np.nan).astype(np.float64) for size in n)
    v1, v2 = np.square(sd[0]) / n1, np.square(sd[1]) / n2
    total = v1 + v2
    # samples without any spread leave df at 0 / 0; their interval has width 0 whatever df is
    safe = np.where(total > 0, v1**2 / (n1 - 1) + v2**2 / (n2 - 1), 1.0)
    df = np.where(total > 0, total**2, 1.0) / safe
    return (t_quantile(level, df) * np.sqrt(total))[()]


def mean_interval(samples: Array, level: float = LEVEL) -> tuple[float, float, float]:
    """Mean of one number per sequence, with its t interval.

    Parameters
    ----------
    samples : ndarray, shape (n,)
        Independent values.

    Returns
    -------
    mean, low, high : float
        NaN where the sample is too small: no values have no mean, a single value has no interval.
    """
    n = len(samples)
    if n == 0:
        return math.nan, math.nan, math.nan
    mean = float(np.mean(samples))
    half = float(t_quantile(level, n - 1)) * float(np.std(samples, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return mean, mean - half, mean + half


def interval_text(low: float, high: float, digits: int, of: str = "") -> str:
    """A 95 % interval as text, with signs and ``digits`` decimals; in words where there is none.

    Parameters
    ----------
    low, high : float
        Ends; NaN where fewer than two sequences live.
    digits : int
        Decimals.
    of : str, default ""
        What the interval is of, such as ``"of the mean "``.
    """
    if math.isnan(low) or math.isnan(high):
        return "no interval (fewer than two sequences live)"
    return f"{100 * LEVEL:.0f} % {of}[{low:+.{digits}f}, {high:+.{digits}f}]"
