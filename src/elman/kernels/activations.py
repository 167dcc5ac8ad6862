r"""tanh, sigmoid, relu, identity over whole vectors, and their derivatives from the output.

Error, in units in the last place (ULP) against 80-bit arithmetic, over the whole range
(``tests/kernels/test_activations.py``):

============ ================= =================
function     float32, at most  float64, at most
============ ================= =================
tanh         1.5               1.5
sigmoid      2.0               2.0
============ ================= =================

relu and identity are exact. NaN stays NaN, the sign of zero is preserved, limits at infinity are correct. Where the
true sigmoid is below the smallest normal number (x < -87.33 in float32, x < -708.39 in float64), the result is 0.

Method: e^r = 1 + r + r^2 P(r) after subtracting the nearest multiple of ln 2 in two parts (W. J. Cody, W. Waite,
Software manual for the elementary functions, 1980); tanh x = x + x^3 A(x^2)/B(x^2) below 0.625 and 1 - 2/(1 + e^2x)
above, one division for both. Coefficients: ``tests/data/make_coefficients.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .compile import inline, kernel
from .dual import DualOps
from .elementwise import elementwise
from .operands import rows_at
from .vector import SINGLE, ArrayOps, lanes_of

NONLINEARITIES = ("tanh", "relu", "sigmoid", "identity")
"""Names in the order of the integer that kernels take as ``variant``."""

MAX_SLOPE = {"tanh": 1.0, "relu": 1.0, "sigmoid": 0.25, "identity": 1.0}
"""Largest derivative of each nonlinearity."""

LOG2_E = 1.4426950408889634


class Coefficients(NamedTuple):
    """Constants of one floating-point format; ``ln2_high`` ends with enough zeros for k * ln2_high to be exact."""

    exp: tuple[float, ...]
    tanh_numerator: tuple[float, ...]
    tanh_denominator: tuple[float, ...]
    ln2_high: float
    ln2_low: float
    tanh_one: float
    sigmoid_lowest: float
    sigmoid_highest: float


COEFFICIENTS_SINGLE = Coefficients(
    exp=(
        0.49999993413393217134,
        0.16666520106429845718,
        0.041668394034847061868,
        0.0083687805419409438919,
        0.0013814475678133574354,
    ),
    tanh_numerator=(-0.33333308007983068896, -0.001541567781083208788),
    tanh_denominator=(1.0, 0.40461226619761723993),
    ln2_high=0.693359375,
    ln2_low=-2.121944400546905827679e-4,
    tanh_one=10.0,
    sigmoid_lowest=-87.33654022216797,
    sigmoid_highest=87.3,
)

COEFFICIENTS_DOUBLE = Coefficients(
    exp=(
        0.50000000000000000444,
        0.1666666666666668357,
        0.041666666666666088999,
        0.0083333333333169173564,
        0.0013888888889117306992,
        0.00019841269896680435262,
        0.000024801586924537806348,
        2.7557234559190127872e-6,
        2.7557582842948059912e-7,
        2.5112144373410624172e-8,
        2.0826523772987535872e-9,
    ),
    tanh_numerator=(-0.33333333333333323549, -0.020496785850842387136, -0.0001990888984355444188),
    tanh_denominator=(1.0, 0.46149035755251208425, 0.023288647811808516453, 0.00020643827023923635865),
    ln2_high=0.693147180369123816490,
    ln2_low=1.90821492927058770002e-10,
    tanh_one=20.0,
    sigmoid_lowest=-708.3964185322641,
    sigmoid_highest=708.3,
)


def coefficients(m: Any) -> Coefficients:
    """Constants of the format that the operations are for."""
    return COEFFICIENTS_SINGLE if m.format is SINGLE else COEFFICIENTS_DOUBLE


def horner(m: Any, c: Any, u: Any) -> Any:
    """Sum of c[i] u**i, highest first."""
    *rest, value = c
    for lower in reversed(rest):
        value = m.fma(u, value, lower)
    return value


def _paired(m: Any, c: tuple[float, ...], u: Any) -> Any:
    """The same sum over pairs in u**2: as many operations at half the depth (for an odd number of coefficients)."""
    pairs = [m.fma(u, c[i + 1], c[i]) for i in range(0, len(c) - 1, 2)]
    return horner(m, [*pairs, c[-1]], u * u)


def exponential(m: Any, y: Any, scale: float) -> Any:
    """e**(scale * y) = (1 + tail) * power, for a power-of-two ``scale`` and a result in the normal range."""
    c = coefficients(m)
    t = m.fma(y, scale * LOG2_E, m.format.magic)
    k = t - m.format.magic
    r = m.fma(k, -c.ln2_low, m.fma(k, -c.ln2_high, y * scale))
    return m.fma(r * r, _paired(m, c.exp, r), r), m.pow2(t)


def tanh_slope(m: Any, y: Any, g: Any) -> Any:
    """``g * (1 - y**2)`` for y = tanh(a)."""
    return g * m.fma(-y, y, 1.0)


def relu_slope(m: Any, y: Any, g: Any) -> Any:
    """``g`` where y > 0, else 0: the slope at 0 is taken as 0, as PyTorch does."""
    return m.where(y > 0.0, g, 0.0)


def sigmoid_slope(m: Any, y: Any, g: Any) -> Any:
    """``g * y * (1 - y)`` for y = sigmoid(a)."""
    return g * m.fma(-y, y, y)


def identity_slope(m: Any, y: Any, g: Any) -> Any:
    """The slope of the identity is 1."""
    return g


def _with_slope(slope: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a nonlinearity so that dual numbers use its derivative, not that of its approximation."""

    def with_this(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def nonlinearity(m: Any, x: Any) -> Any:
            return m.chain(f, slope, x) if isinstance(m, DualOps) else f(m, x)

        return nonlinearity

    return with_this


@_with_slope(tanh_slope)
def tanh(m: Any, x: Any) -> Any:
    """Hyperbolic tangent."""
    c = coefficients(m)
    a = m.abs(x)
    square = a * a
    # a comparison with NaN is false, so that NaN passes through every selection
    tail, power = exponential(m, m.where(a > c.tanh_one, c.tanh_one, a), -2.0)
    e = m.fma(tail, power, power)
    small = a < 0.625
    above = m.where(small, a * square * horner(m, c.tanh_numerator, square), e * -2.0)
    below = m.where(small, horner(m, c.tanh_denominator, square), e + 1.0)
    return m.copysign(m.where(small, a, 1.0) + above / below, x)


@_with_slope(sigmoid_slope)
def sigmoid(m: Any, x: Any) -> Any:
    """Logistic function 1 / (1 + e**-x)."""
    c = coefficients(m)
    y = m.where(x > c.sigmoid_highest, c.sigmoid_highest, x)
    y = m.where(y < c.sigmoid_lowest, c.sigmoid_lowest, y)
    tail, power = exponential(m, y, -1.0)
    e = m.fma(tail, power, power)
    d = e + 1.0
    s = 1.0 / d
    # one Newton step against the rounding of 1 + e, which (d - e) - 1 gives exactly
    s = m.fma(s, ((d - e) - 1.0) * s, s)
    return m.where(x < c.sigmoid_lowest, 0.0, s)


@_with_slope(relu_slope)
def relu(m: Any, x: Any) -> Any:
    """Positive part; -0 stays -0."""
    return m.where(x < 0.0, 0.0, x)


@_with_slope(identity_slope)
def identity(m: Any, x: Any) -> Any:
    """The linear cell."""
    return x


FORMULAS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "tanh": (tanh, tanh_slope),
    "relu": (relu, relu_slope),
    "sigmoid": (sigmoid, sigmoid_slope),
    "identity": (identity, identity_slope),
}
"""Name: (the function, its derivative from the output times a gradient)."""


def slope(nonlinearity: str, output: Any) -> Any:
    """Derivative of a nonlinearity, from its output, on a NumPy array of any shape."""
    return FORMULAS[nonlinearity][1](ArrayOps(output.dtype), output, np.ones_like(output))


def _activation(name: str) -> Any:
    f = FORMULAS[name][0]
    return elementwise(lambda m, x: (f(m, x),), 1, (0,))


def _scaling(name: str) -> Any:
    f = FORMULAS[name][1]
    return elementwise(lambda m, y, v: (f(m, y, v),), 2, (1,), "squares")


def _delta(name: str) -> Any:
    f = FORMULAS[name][1]
    return elementwise(lambda m, y, g, _: (g, f(m, y, g)), 3, (None, 2), "squares")


_tanh, _relu, _sigmoid, _identity = (_activation(name) for name in NONLINEARITIES)
_scale_tanh, _scale_relu, _scale_sigmoid, _scale_identity = (_scaling(name) for name in NONLINEARITIES)


_delta_tanh, _delta_relu, _delta_sigmoid, _delta_identity = (_delta(name) for name in NONLINEARITIES)


@inline
def activate(variant, a, rows, vectors):
    """Apply a nonlinearity in place to rows of vectors; return 1 if every result is finite, else 0.

    Parameters
    ----------
    variant : int
        Index into :data:`NONLINEARITIES`.
    a : operand
        Read and written: ``rows`` rows of ``vectors`` whole vectors.
    """
    if variant == 0:
        return _tanh(a, rows, 1, vectors)
    if variant == 1:
        return _relu(a, rows, 1, vectors)
    if variant == 2:
        return _sigmoid(a, rows, 1, vectors)
    return _identity(a, rows, 1, vectors)


@inline
def scale_by_slope(variant, y, v, N, K, vectors, squares, first):
    """Multiply rows by the slope of a nonlinearity: ``v *= phi'``, from its output y.

    Parameters
    ----------
    variant : int
        Index into :data:`NONLINEARITIES`.
    y, v : operand
        Outputs y, which are read, and v, which is read and written: N x K rows of ``vectors`` whole vectors.
    squares, first
        Written: the sum of squares of each row of the result; see :func:`elman.kernels.elementwise.elementwise`.
    """
    if variant == 0:
        _scale_tanh(y, v, N, K, vectors, squares, first)
    elif variant == 1:
        _scale_relu(y, v, N, K, vectors, squares, first)
    elif variant == 2:
        _scale_sigmoid(y, v, N, K, vectors, squares, first)
    else:
        _scale_identity(y, v, N, K, vectors, squares, first)


@inline
def times_slope(variant, y, g, delta, N, K, vectors, squares, first):
    """Convert gradients of outputs to gradients of the nonlinearity's arguments: ``delta = g * phi'``.

    As :func:`scale_by_slope`, but g is not changed, and the squares are those of g.
    """
    if variant == 0:
        _delta_tanh(y, g, delta, N, K, vectors, squares, first)
    elif variant == 1:
        _delta_relu(y, g, delta, N, K, vectors, squares, first)
    elif variant == 2:
        _delta_sigmoid(y, g, delta, N, K, vectors, squares, first)
    else:
        _delta_identity(y, g, delta, N, K, vectors, squares, first)


@kernel
def scale_rows(variant, y, v, row_stride, rows, vectors, squares):
    """:func:`scale_by_slope` for whole flat arrays with one row stride, as a separate kernel."""
    y, v = rows_at(y, 0, row_stride), rows_at(v, 0, row_stride)
    scale_by_slope(variant, y, v, rows, 1, vectors, squares, 0)


@kernel
def activate_rows(variant, a, row_stride, rows, vectors):
    """:func:`activate` for a whole flat array, as a separate kernel: for layers without recurrence, and tests."""
    return activate(variant, rows_at(a, 0, row_stride), rows, vectors)


def evaluate(nonlinearity: str, x: Any) -> Any:
    """Apply a nonlinearity to every element of a float array, by the compiled vectors.

    Parameters
    ----------
    nonlinearity : str
        One of :data:`NONLINEARITIES`.
    x : ndarray
        float32 or float64, any shape; not changed.

    Returns
    -------
    ndarray
        Of the same shape and dtype.
    """
    n = lanes_of(x.dtype.itemsize)
    vectors = -(-x.size // n)
    padded = np.zeros(vectors * n, x.dtype)
    padded[: x.size] = x.ravel()
    activate_rows(NONLINEARITIES.index(nonlinearity), padded, padded.size, 1, vectors)
    return padded[: x.size].reshape(x.shape)
