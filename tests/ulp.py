"""Errors in units in the last place, and arguments that meet every branch and rounding boundary."""

from __future__ import annotations

import numpy as np
import pytest

LN2 = np.log(np.longdouble(2))


extended = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="this platform's long double has no more digits than a double"
)


def ulp_error(value, exact):
    """Error in units in the last place of the exact value's binade; below the smallest normal, in subnormal places."""
    info = np.finfo(value.dtype)
    _, exponent = np.frexp(exact)
    lowest = np.ldexp(np.longdouble(1), int(np.log2(info.smallest_subnormal)))
    unit = np.maximum(np.ldexp(np.longdouble(1), exponent - info.nmant - 1), lowest)
    return np.abs(value - exact) / unit


def neighbours(points, dtype, count):
    """Floating-point numbers up to ``count`` places to either side of each point, and the negatives of all."""
    points = np.abs(np.asarray(points, np.longdouble)).astype(dtype)
    bits = points.view(np.int32 if dtype.itemsize == 4 else np.int64)
    near = bits[:, None] + np.arange(-count, count + 1, dtype=bits.dtype)
    near = near[near >= 0].view(dtype)
    return np.concatenate([near, -near])


def points(dtype):
    """Named sets of arguments that between them meet every branch and rounding boundary."""
    info, rng = np.finfo(dtype), np.random.default_rng(5)
    widest = 92 if dtype.itemsize == 4 else 712
    lowest = int(np.log2(info.smallest_subnormal))
    magnitudes = np.ldexp(1 + rng.random(200_000), rng.integers(lowest, info.maxexp, 200_000)).astype(dtype)
    subnormal = np.ldexp(rng.random(20_000), info.minexp).astype(dtype)
    halves = LN2 / 2 * np.arange(1, 2 * widest)
    return {
        "dense near zero": np.linspace(-2, 2, 200_001).astype(dtype),
        "dense": np.linspace(-25, 25, 300_001).astype(dtype),
        "wide": np.linspace(-widest, widest, 300_001).astype(dtype),
        "logarithmic": np.concatenate([magnitudes, -magnitudes]),
        "subnormal": np.concatenate([subnormal, -subnormal]),
        "exponent's rounding": neighbours(halves, dtype, 40),
        "exponent's rounding at 2x": neighbours(halves / 2, dtype, 40),
        "change of formula": neighbours([0.625], dtype, 20_000),
        "saturation": neighbours([10, 20, 87.3, 708.3, 9.0109, 19.0615, 16.6355, 36.7368], dtype, 1_000),
    }
