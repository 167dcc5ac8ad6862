"""How good a network is on given data: outputs compared with targets, at every step or at the last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..metrics import get_metric
from ..states import State
from ..validation.arrays import plain, real_numbers
from ..validation.scalars import choice
from ..validation.sequences import is_list
from ..validation.words import kind

if TYPE_CHECKING:
    from .network import Network

Array = NDArray[Any]


def evaluated(
    network: Network, x: Any, y: Any, metrics: Any, h0: State | None, lengths: ArrayLike | None, reset: Any,
    sample_weight: ArrayLike | None, missing: str,
) -> dict[str, float]:  # fmt: skip
    """Metrics of a network on data: ``Network.evaluate``."""
    chosen = _metrics(metrics)
    output, target, counted = _positions(network, x, y, h0, lengths, reset)
    weight = np.where(counted, _weights(sample_weight, counted.shape, network, output.ndim > 2), 0.0)
    if choice(missing, "missing", ("refuse", "ignore")) == "ignore":
        target, weight = _without_gaps(target, weight)
    return {name: float(metric(output, target, weight)) for name, metric in chosen}


def _metrics(metrics: Any) -> list[tuple[str, Any]]:
    """Names and functions of one metric or several."""
    several = isinstance(metrics, Iterable) and not isinstance(metrics, str | Mapping)
    chosen = [get_metric(metric) for metric in (metrics if several else (metrics,))]
    names = [name for name, _ in chosen]
    if not chosen or len(set(names)) < len(names):
        raise ArgumentError(f"metrics must be one or more of different names, got {names}")
    return chosen


def _positions(
    network: Network, x: Any, y: Any, h0: State | None, lengths: ArrayLike | None, reset: Any
) -> tuple[Array, Array, Array]:
    """Outputs (..., Q) at the positions of the targets, the targets, and which positions are steps of a sequence."""
    output, _ = network(x, h0, lengths=lengths, reset=reset)
    if isinstance(output, list):
        return _of_list(output, y)
    target = plain(y, "y")
    if target.dtype.kind not in "fiub":
        raise DTypeError(f"y must hold numbers, got {kind(y)}")
    leading: tuple[int, ...] = output.shape[:-1]
    if target.shape[: len(leading)] == leading:
        return output, target, _valid(network, leading, lengths)
    single = len(leading) == 1
    n = 0 if single or not leading else int(output.shape[network.batch_axis])
    last: tuple[int, ...] = () if single else (n,)
    if network.at == "end" or target.shape[: len(last)] != last or not output.size:
        raise ShapeError(
            f"y must have a target for every position of the output, {leading}, or for the last step of each sequence, "
            f"{last}; got shape {target.shape}"
        )
    steps = output if single else np.moveaxis(output, network.time_axis, 0)
    ends = np.asarray(len(steps) if lengths is None else lengths) - 1
    at_end = steps[ends] if single else steps[ends, np.arange(n)]
    return at_end, target, np.broadcast_to(ends >= 0, last)


def _of_list(output: list[Array], y: Any) -> tuple[Array, Array, Array]:
    """The same for a list of sequences: a list of targets for every step, or an array of targets for the last step."""
    if is_list(y) or (isinstance(y, list | tuple) and any(np.ndim(item) for item in y)):
        targets = [plain(item, f"y[{i}]") for i, item in enumerate(y)]
        if [len(t) for t in targets] != [len(o) for o in output]:
            raise ShapeError("y must be a list with as many targets for each sequence as x has steps")
        flat = np.concatenate(output)
        return flat, np.concatenate(targets), np.ones(len(flat), bool)
    target = plain(y, "y")
    if len(target) != len(output):
        raise ShapeError(f"y must have one target for each of {len(output)} sequences, got shape {target.shape}")
    there = np.array([len(o) > 0 for o in output])
    Q = output[0].shape[-1]
    return np.stack([o[-1] if len(o) else np.zeros(Q, o.dtype) for o in output]), target, there


def _valid(network: Network, leading: tuple[int, ...], lengths: ArrayLike | None) -> Array:
    """Which positions are steps of a sequence."""
    if lengths is None or network.at == "end":
        return np.ones(leading, bool)
    steps = np.arange(leading[network.time_axis])
    valid = steps[:, None] < np.asarray(lengths)
    return valid if network.time_axis == 0 else valid.T


def _weights(weight: ArrayLike | None, leading: tuple[int, ...], network: Network, steps: bool) -> Array:
    """Weights of positions, from weights of positions or of sequences."""
    if weight is None:
        return np.ones(leading)
    w = real_numbers(weight, "sample_weight").astype(np.float64)
    if w.shape == leading:
        return w
    axis = network.batch_axis if steps else 0
    if len(leading) > 1 and w.shape == (leading[axis],):
        return np.broadcast_to(np.expand_dims(w, 1 - axis), leading)
    raise ShapeError(
        f"sample_weight must have one number for each target, {leading}, or for each sequence, got shape {w.shape}"
    )


def _without_gaps(target: Array, weight: Array) -> tuple[Array, Array]:
    """Targets, with weight 0 where one is NaN; classes that were floats because of gaps become integers."""
    if target.dtype.kind != "f":
        return target, weight
    gap: Any = np.isnan(target)
    if target.ndim == weight.ndim:
        filled = np.where(gap, 0.0, target)
        if (filled != np.floor(filled)).any():
            raise DTypeError("y must hold integer classes, with NaN in the gaps; got other numbers")
        target = filled.astype(np.intp)
    else:
        gap = gap.any(axis=tuple(range(weight.ndim, target.ndim)))
    return target, np.where(gap, 0.0, weight)
