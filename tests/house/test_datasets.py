"""Bundled data and windows."""

import numpy as np
import pytest

from elman import datasets
from elman.errors import ArgumentError


def test_sunspots():
    years, numbers = datasets.sunspots()
    assert np.array_equal(years, np.arange(1700, 2009))
    assert numbers[0] == 5
    assert numbers[-1] == 2.9
    # the largest yearly number of the original series, in solar cycle 19
    assert (numbers.max(), years[numbers.argmax()]) == (190.2, 1957)


@pytest.mark.parametrize(("length", "stride", "count"), [(4, None, 2), (4, 1, 7), (10, None, 1), (3, 5, 2)])
def test_windows(length, stride, count):
    series = np.arange(20.0).reshape(10, 2)
    w = datasets.windows(series, length, stride)
    assert w.shape == (length, count, 2)
    for b in range(count):
        start = b * (stride or length)
        assert np.array_equal(w[:, b], series[start : start + length])


def test_windows_of_a_vector_and_refusals():
    assert datasets.windows(np.arange(5.0), 2).shape == (2, 2, 1)
    with pytest.raises(ArgumentError, match="length = 6"):
        datasets.windows(np.arange(5.0), 6)
    with pytest.raises(ArgumentError, match="stride"):
        datasets.windows(np.arange(5.0), 2, 0)
