"""Calls of kernels by their addresses, and rows of flags."""

import numpy as np
import pytest
from numba import config, njit

from elman.kernels.address import Convention
from elman.kernels.compile import kernel
from elman.kernels.flags import from_flags
from elman.kernels.operands import rows_at
from elman.kernels.vector import lanes, lanes_of

TO_INTEGER, TO_NOTHING = Convention("R d n i", "i"), Convention("r d n i", "")
call, tell = TO_INTEGER.call, TO_NOTHING.call
compiled = pytest.mark.skipif(config.DISABLE_JIT, reason="about compiled code")


@kernel
def scale(a, squares, counts, n):
    """A kernel: double what is there, note a square and a count, return a number."""
    for i in range(n):
        a[i] = 2 * a[i]
    squares[0] = a[0] * a[0]
    counts[0] = n
    return n - 1


@kernel
def half(a, squares, counts, n):
    a[n] = a[n] / 2


@kernel
def raises(a, squares, counts, n):
    if n > 2:
        raise ValueError("more than two")
    return n


@kernel
def twice(address, a, squares, counts, n):
    """Calls it on all of a, then on all but the first."""
    return call(address, a, 0, squares, counts, n) + call(address, a, 1, squares, counts, n - 1)


@kernel
def once(address, a, squares, counts, n):
    tell(address, a, squares, counts, n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_kernel_that_is_called_is_the_one_at_the_address(dtype):
    a, squares, counts = np.arange(1, 5).astype(dtype), np.zeros(1), np.zeros(1, np.int64)
    assert twice(TO_INTEGER.address(scale, a.dtype), a, squares, counts, 3) == 2 + 1
    assert a.tolist() == [2, 8, 12, 4]
    assert (squares[0], counts[0]) == (64, 2)
    once(TO_NOTHING.address(half, a.dtype), a, squares, counts, 3)
    assert a.tolist() == [2, 8, 12, 2]


def test_an_exception_comes_through():
    a, squares, counts = np.ones(4), np.zeros(1), np.zeros(1, np.int64)
    address = TO_INTEGER.address(raises, a.dtype)
    assert twice(address, a, squares, counts, 2) == 2 + 1
    with pytest.raises(ValueError, match="more than two"):
        twice(address, a, squares, counts, 3)


@compiled
def test_one_address_for_each_kernel_and_dtype():
    single, double = np.dtype("f4"), np.dtype("f8")
    assert TO_INTEGER.address(scale, double) == TO_INTEGER.address(scale, double)
    others = [TO_INTEGER.address(scale, single), TO_INTEGER.address(raises, double)]
    assert len({TO_INTEGER.address(scale, double), *others}) == 3


@compiled
def test_what_does_not_fit_is_refused():
    with pytest.raises(TypeError, match="half must return int64, but returns none"):
        TO_INTEGER.address(half, np.dtype("f8"))
    address = TO_INTEGER.address(scale, np.dtype("f8"))
    strided, single = np.ones(8)[::2], np.zeros(1, np.float32)
    squares, counts = np.zeros(1), np.zeros(1, np.int64)
    for arguments in ((strided, squares, counts), (np.ones(4), single, counts), (np.ones(4), squares, single)):
        with pytest.raises(Exception, match="Invalid use of type Intrinsic|No implementation of function"):
            twice(address, *arguments, 3)


@compiled
def test_a_read_only_array_may_be_read():
    a, squares, counts = np.ones(3), np.zeros(1), np.zeros(1, np.int64)
    a.flags.writeable = False
    assert twice(TO_INTEGER.address(raises, a.dtype), a, squares, counts, 2) == 2 + 1


@kernel
def spread(flags, rs, to, to_rs, rows, n):
    from_flags(rows_at(flags, 1, rs), rows_at(to, 2, to_rs), rows, n // lanes(to))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("vectors", [0, 1, 3])
def test_flags_are_read_vector_by_vector(dtype, vectors):
    n = vectors * lanes_of(np.dtype(dtype).itemsize)
    flags = np.random.default_rng(0).integers(0, 2, 1 + 3 * (n + 5)).astype(np.uint8)
    to = np.full(2 + 3 * (n + 2), 7, dtype)
    spread(flags, n + 5, to, n + 2, 3, n)
    expected = np.full_like(to, 7)
    for r in range(3):
        expected[2 + r * (n + 2) :][:n] = flags[1 + r * (n + 5) :][:n]
    assert np.array_equal(to, expected)


def test_njit_functions_serve_as_well():
    plain = njit(lambda a, squares, counts, n: n) if not config.DISABLE_JIT else lambda a, squares, counts, n: n
    a, squares, counts = np.ones(3), np.zeros(1), np.zeros(1, np.int64)
    assert twice(TO_INTEGER.address(plain, a.dtype), a, squares, counts, 3) == 3 + 2
