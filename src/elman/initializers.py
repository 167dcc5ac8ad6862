"""Initial weights. An initialiser is a function ``(shape, rng) -> float64 array``; any such function may be given.

Recurrent matrices are orthogonal by default (A. M. Saxe, J. L. McClelland, S. Ganguli, ICLR 2014): every singular
value is 1, so that the linear part neither shrinks nor grows a gradient. Input matrices are Glorot uniform (X.
Glorot, Y. Bengio, AISTATS 2010).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError
from .kernels.orthonormal import orthonormal_rows
from .kernels.orthonormal import spectral_radius as radius_of
from .validation.arrays import real_numbers
from .validation.rng import generator
from .validation.scalars import number

Array = NDArray[Any]
Initializer = Callable[[tuple[int, ...], np.random.Generator], Array]


def zeros(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """All zero."""
    return np.zeros(shape)


def glorot(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Uniform within ``+-sqrt(6 / (rows + columns))``."""
    limit = np.sqrt(6.0 / max(1, sum(shape)))
    return rng.uniform(-limit, limit, shape)


def _matrix(shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Rows and columns of a matrix; a vector, such as a bias, is refused."""
    if len(shape) != 2:
        raise ArgumentError(f"the initialiser {name!r} is for matrices, and cannot fill an array of shape {shape}")
    return shape[0], shape[1]


def orthogonal(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Uniformly distributed (Haar) orthogonal columns or rows, from the QR form of a Gaussian matrix.

    The distribution is uniform if R has a positive diagonal (Mezzadri, Notices of the AMS 54 (2007) 592).
    """
    rows, columns = _matrix(shape, "orthogonal")
    q: Array = orthonormal_rows(rng.standard_normal((max(shape), min(shape))).T)
    return q.T if rows >= columns else q


def identity(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """The identity (Q. V. Le, N. Jaitly, G. E. Hinton, arXiv:1504.00941, for relu)."""
    rows, columns = _matrix(shape, "identity")
    return np.eye(rows, columns)


def uniform(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Uniform within ``+-1/sqrt(rows)``: PyTorch's default for recurrent layers, where a gate's block has H rows."""
    limit = 1.0 / np.sqrt(max(1, shape[0]))
    return rng.uniform(-limit, limit, shape)


def gaussian(gain: float = 1.0) -> Initializer:
    """Independent normal entries of standard deviation ``gain / sqrt(columns)``: spectral radius about ``gain``.

    Raises
    ------
    ArgumentError, DTypeError
        If ``gain`` is negative, not finite, or not a number.
    """
    gain = _scale(gain, "gain")

    def draw(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.standard_normal(shape) * (gain / np.sqrt(max(1, shape[-1])))

    return draw


def spectral_radius(radius: float = 1.0) -> Initializer:
    """A Gaussian matrix scaled so that its largest eigenvalue has modulus ``radius`` (square matrices).

    Raises
    ------
    ArgumentError, DTypeError
        If ``radius`` is negative or not finite, or no number.
    """
    radius = _scale(radius, "radius")

    def draw(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return scale_to_radius(gaussian(1.0)(shape, rng), radius)

    return draw


def _scale(value: Any, name: str) -> float:
    """A finite number of at least 0: a negative one would flip signs, and is nearly always a mistake."""
    value = number(value, name)
    if value < 0:
        raise ArgumentError(f"{name} must be a finite number of at least 0, got {value!r}")
    return value


def scale_to_radius(W: Array, radius: float) -> Array:
    """Multiply a square matrix so that its spectral radius becomes ``radius``.

    Raises
    ------
    ArgumentError, DTypeError
        If ``radius`` is negative, not finite or not a number, or if W is not square or is nilpotent (its radius is 0 up
        to rounding, so that no factor helps).
    """
    radius = _scale(radius, "radius")
    W = real_numbers(W, "W").astype(np.float64)
    if not np.isfinite(W).all():
        raise ArgumentError("W must be finite: a matrix with NaN or infinite entries has no spectral radius")
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        raise ArgumentError(f"only a square matrix has a spectral radius, got shape {W.shape}")
    now = radius_of(W)
    if now == 0.0:
        raise ArgumentError(
            "the matrix is nilpotent: its spectral radius is 0, and no factor can make it anything else"
        )
    return W * (radius / now)


NAMED: dict[str, Initializer] = {
    "orthogonal": orthogonal,
    "glorot": glorot,
    "zeros": zeros,
    "uniform": uniform,
    "identity": identity,
    "gaussian": gaussian(1.0),
    "spectral_radius": spectral_radius(1.0),
}


def by_name(initializer: str | Initializer, name: str) -> Initializer:
    """An initialiser given by name or as a function.

    Raises
    ------
    ArgumentError
        For an unknown name or something that cannot be called.
    """
    if callable(initializer):
        return initializer
    if not isinstance(initializer, str) or initializer not in NAMED:
        raise ArgumentError(
            f"{name} must be a function (shape, rng) -> array, such as elman.initializers.spectral_radius(0.9), "
            f"or one of {', '.join(map(repr, NAMED))}; got {initializer!r}"
        )
    return NAMED[initializer]


def fill(
    parameters: Mapping[str, Array], gates: int, weight_ih: str | Initializer, weight_hh: str | Initializer,
    bias: str | Initializer, rng: int | np.random.Generator | None,
) -> None:  # fmt: skip
    """Draw the parameters of a recurrent layer, each gate's block by itself; learned initial states are not changed.

    Raises
    ------
    ArgumentError
        If an initialiser returns an array of another shape, or numbers that are not finite.
    """
    rng = generator(rng)
    given = {
        "weight_ih": (weight_ih, "weight_ih_init", gates),
        "weight_hh": (weight_hh, "weight_hh_init", gates),
        "weight_hr": (weight_ih, "weight_ih_init", 1),
        "bias": (bias, "bias_init", gates),
    }
    for name, view in parameters.items():
        kind = "bias" if name.startswith("bias") else name[:9]
        if kind not in given:
            continue
        initializer, argument, blocks = given[kind]
        draw = by_name(initializer, argument)
        for block in view.reshape(blocks, len(view) // blocks, *view.shape[1:]):
            values = real_numbers(draw(block.shape, rng), f"what {argument} gives")
            if values.shape != block.shape or not np.isfinite(values).all():
                raise ArgumentError(
                    f"{argument} must give finite numbers of shape {block.shape} for {name}, got shape {values.shape}"
                )
            block[...] = values
