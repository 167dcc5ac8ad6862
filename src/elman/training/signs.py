"""Signs that data are not what their caller takes them for: what is wrong, or likely to be, and the cure."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataWarning, DTypeError, ShapeError
from ..windows import Windows
from .model import Model

Array = NDArray[Any]

MUCH_LONGER = 10  # times as many steps as sequences
LEAST_STEPS = 100  # below, there is little to lose
FAR = 10.0  # from unit scale
LOOKED_AT = 200_000  # numbers that tell the scale

SILENCE = '(to silence this: warnings.simplefilter("ignore", elman.errors.DataWarning))'


def check_axes(x: Array, name: str, time: int | None) -> None:
    """Refuse a wrong number of axes, and nothing at all."""
    if x.ndim < 2 or x.ndim > (2 if time is None else 3):
        layout = "(N, D)" if time is None else "(T, N, D), or (N, T, D) with batch_first, or (T, D) for one sequence"
        raise ShapeError(f"{name} must have shape {layout}, got {x.shape}{_axis_cure(x.shape, name, time)}")
    if x.size == 0:
        raise ShapeError(f"{name} must hold at least one sample and step to learn from, got shape {x.shape}")


def _axis_cure(shape: tuple[int, ...], name: str, time: int | None) -> str:
    """How to get rid of axes that are too many, or to add one."""
    wanted = 2 if time is None else 3
    if len(shape) == 1:
        return f": one feature needs an axis of its own, {name}[:, None]" if time is not None else ""
    if len(shape) > wanted and 1 in shape[:-1]:
        axis = shape.index(1)
        return f": axis {axis} has length 1 and can go, {name}.squeeze({axis})"
    if len(shape) > wanted:
        leading = ", ".join(map(str, shape[: wanted - 1]))
        return f": make one axis of the features of a step, {name}.reshape({leading}, -1)"
    return ""


def check_input_kind(x: Array, name: str) -> None:
    """Refuse whole numbers as inputs: they are nearly always tokens.

    Raises
    ------
    DTypeError
        With both cures.
    """
    if x.dtype.kind in "iu":
        codes = f"np.eye(K)[{name}]" if x.shape[-1] != 1 else f"np.eye(K)[{name}[..., 0]]"
        raise DTypeError(
            f"{name} must be an array of real floating-point numbers, got dtype {x.dtype}: tokens or classes 0 .. K-1 "
            f"must be encoded one-hot, {codes}; whole numbers that are measurements converted, {name}.astype(float)"
        )


@contextmanager
def naming_batch_first(x: Array, y: Array, axes: int, time: int | None) -> Iterator[None]:
    """Say more of targets that do not fit: one for each entry of the first axis of a time-first model's inputs."""
    try:
        yield
    except ShapeError as error:
        if time != 0 or x.ndim != 3 or y.ndim != 1 + axes or len(y) != len(x):
            raise
        raise ShapeError(
            f"{error}. There is one target for each of the {len(x)} entries of the first axis of x: if those are "
            f"sequences of {x.shape[1]} steps, build the layer with batch_first=True, or give x.swapaxes(0, 1)"
        ) from error


def warn_of_axes(model: Model, x: Any, stacklevel: int) -> None:
    """Warn where sequences seem to stand along the first axis of a time-first model's inputs.

    The evidence: many times as many steps as sequences. Numbers that change less from step to step than from sequence
    to sequence speak against it.
    """
    if not isinstance(x, np.ndarray) or isinstance(x, Windows) or x.ndim != 3 or model.time_axis != 0:
        return
    steps, n = x.shape[:2]
    if n < 2 or steps < max(LEAST_STEPS, MUCH_LONGER * n) or _smoother_along_first(x):
        return
    warnings.warn(
        f"x of shape {x.shape} is read as {n} sequences of {steps} steps, the order (T, N, D) of this network. If it "
        f"is {steps} sequences of {n} steps, build the layer with batch_first=True, or give x.swapaxes(0, 1) and y "
        f"alike {SILENCE}",
        DataWarning,
        stacklevel=stacklevel,
    )


def _smoother_along_first(x: Array) -> bool:
    """Whether numbers change clearly less along the first axis than along the second."""
    some = np.asarray(x[: LOOKED_AT // max(1, x[0].size) + 2])
    if some.dtype.kind not in "fiu":
        return False
    with np.errstate(all="ignore"):
        first, second = (np.nanmean(np.square(np.diff(some.astype(np.float64), axis=axis))) for axis in (0, 1))
    return bool(first < 0.5 * second)


def warn_of_scale(x: Array, y: Array | None, stacklevel: int) -> None:
    """Warn where inputs, or targets that outputs have to reach, are far from unit scale.

    Parameters
    ----------
    x, y : ndarray
        Checked data; y is None where its scale does not matter.
    """
    for name, a in (("x", x), ("y", y)):
        if a is None or a.dtype.kind != "f":
            continue
        flat = a.reshape(-1, a.shape[-1]) if a.flags.c_contiguous else np.asarray(a[:1]).reshape(-1, a.shape[-1])
        some = flat[:: max(1, flat.size // LOOKED_AT)].astype(np.float64)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # channels without a number
            mean, deviation = np.abs(np.nanmean(some, 0)).max(), np.nanstd(some, 0).max()
        if mean > FAR or deviation > FAR:
            warnings.warn(
                f"{name} is far from unit scale, with channels of mean up to {mean:.3g} and deviation up to "
                f"{deviation:.3g}: units saturate, or gradients are clipped in every update. Scale it by numbers of "
                f"the training data alone: elman.forecast.Scaler, or ({name} - mean) / std {SILENCE}",
                DataWarning,
                stacklevel=stacklevel,
            )
