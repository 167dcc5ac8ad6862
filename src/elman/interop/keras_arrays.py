"""Arrays of Keras's recurrent layers, including those for cuDNN, in elman's layout, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, ShapeError, StateDictError
from ..layers import GRU
from ..validation.arrays import plain

Array = NDArray[Any]


class _Doubled(np.ndarray[Any, Any]):
    """A bias (2, G) that was given as cuDNN's (2 G,)."""


def is_cudnn(arrays: list[Array]) -> bool:
    """Whether these arrays of one direction are of a Keras layer for cuDNN, which has tanh and sigmoid only."""
    return isinstance(arrays[-1], _Doubled)


def _known(value: Any) -> Any:
    """An array of bfloat16, which NumPy does not have (but the package ml_dtypes does), as float32, which holds it."""
    return value.astype(np.float32) if "bfloat16" in str(getattr(value, "dtype", "")) else value


def directions(given: Any) -> list[list[Array]]:
    """The arrays of one layer, two or three for each direction, in the layout of Keras 3."""
    if not isinstance(given, list | tuple):
        raise DTypeError(f"from_keras takes a layer of Keras or lists of arrays, got {type(given).__name__}")
    if len(given) not in (2, 3, 4, 6):
        raise StateDictError(
            "a recurrent layer of Keras has kernel, recurrent kernel and perhaps bias, twice if it is bidirectional; "
            f"got {len(given)} arrays{'' if given else ': build it first by calling it'}"
        )
    arrays = [plain(_known(value), "weights") for value in given]
    n = len(arrays) if len(arrays) < 4 else len(arrays) // 2
    for i, a in enumerate(arrays):
        if a.dtype.kind != "f":
            raise DTypeError(f"weights must be arrays of real floating-point numbers, got dtype {a.dtype}")
        if a.ndim != 2 and i % n < 2:
            raise ShapeError(f"a kernel must have two axes, got shape {a.shape}")
    return [_from_cudnn(arrays[i : i + n]) for i in range(0, len(arrays), n)]


def _from_cudnn(arrays: list[Array]) -> list[Array]:
    """Arrays of Keras 2's CuDNNGRU and CuDNNLSTM, known by their bias (2 G,), in the layout of GRU and LSTM.

    cuDNN reads each gate's kernel, whose shape Keras gives as (D, H), as H rows of D numbers, and the recurrent kernel
    transposed. The two halves of the bias are that of the input and that of the state, which in a GRU cannot be merged:
    the reset gate acts on the second alone. The same as ``_convert_rnn_weights`` in TensorFlow 2,
    https://github.com/tensorflow/tensorflow/blob/v2.4.0/tensorflow/python/keras/saving/hdf5_format.py
    """
    kernel, recurrent, *bias = arrays
    H, G = recurrent.shape
    if not bias or bias[0].shape != (2 * G,) or H == 0 or G not in (3 * H, 4 * H):
        return arrays
    if kernel.shape[1] != G:
        raise ShapeError(f"the kernel must have {G} columns, as the recurrent kernel, got {kernel.shape[1]}")
    kernels = [np.ascontiguousarray(k).reshape(H, -1).T for k in np.split(kernel, G // H, axis=1)]
    recurrents = [k.T for k in np.split(recurrent, G // H, axis=1)]
    return [np.hstack(kernels), np.hstack(recurrents), bias[0].reshape(2, G).view(_Doubled)]


def _swapped(blocks: Array) -> Array:
    """The first two of three blocks of rows exchanged: z, r, h to r, z, n, and back."""
    first, second, third = np.split(blocks, 3)
    return np.concatenate([second, first, third])


def to_ours(arrays: list[Array], cell: Any, H: int, options: dict[str, Any]) -> dict[str, Array]:
    """Our arrays of one direction, by name without the suffix."""
    kernel, recurrent, *bias = arrays
    out = {"weight_ih": kernel.T, "weight_hh": recurrent.T}
    if bias:
        two = options.get("reset_after") or isinstance(bias[0], _Doubled)
        wanted = (2, *recurrent.shape[1:]) if two else recurrent.shape[1:]
        if bias[0].shape != wanted:
            raise ShapeError(f"the bias must have shape {wanted}, got {bias[0].shape}")
        rows = np.atleast_2d(bias[0])
        out |= {"bias_ih": rows[0], "bias_hh": rows[1] if len(rows) == 2 else np.zeros_like(rows[0])}
    if cell is GRU:
        for name, a in out.items():
            if len(a) != 3 * H:
                raise ShapeError(f"the {name} of a GRU must have 3 H = {3 * H} columns in Keras, got {len(a)}")
        out = {name: _swapped(a) for name, a in out.items()}
    return out


def to_theirs(layer: Any, suffix: str) -> list[Array]:
    """Keras's arrays of one direction."""
    swap = _swapped if isinstance(layer, GRU) else np.copy
    ours = {name: swap(layer.params[name + suffix]) for name in ("weight_ih", "weight_hh")}
    out = [np.ascontiguousarray(w.T) for w in ours.values()]
    if layer.bias:
        b_ih, b_hh = (swap(layer.params[name + suffix]) for name in ("bias_ih", "bias_hh"))
        two = isinstance(layer, GRU) and layer.reset_after
        out.append(np.stack([b_ih, b_hh]) if two else b_ih + b_hh)
    return out
