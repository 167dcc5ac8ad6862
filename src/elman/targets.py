"""A target for every step, or for the last: how training and diagnoses tell which.

The axes of a target decide. Beyond those of time and sequences it has as many as the loss declares in its
``target_axes``: one, the channels, unless the loss takes classes.
"""

from __future__ import annotations

import math
from typing import Any

from .errors import ShapeError

NAMED = {"mse": 1, "cross_entropy": 0}
"""The ``target_axes`` of losses that have a name."""


def target_axes(loss: Any) -> int:
    """Axes of a target beyond those of time and sequences.

    Parameters
    ----------
    loss : str or object
        A name in :data:`NAMED`, or an object that declares them; 1 if it does not.
    """
    return NAMED.get(loss, 1) if isinstance(loss, str) else int(getattr(loss, "target_axes", 1))


def positions(
    shape: tuple[int, ...],
    name: str,
    every: tuple[int, ...] | None,
    last: tuple[int, ...] | None,
    axes: int,
    channels: int | None = None,
) -> tuple[int, ...]:
    """Return which leading axes a target has: ``every`` or ``last``.

    Parameters
    ----------
    shape : tuple of int
        Shape of the target.
    name : str
        What the message calls it.
    every, last : tuple of int, or None
        Leading axes of a target for every step, and of one for the last step; None where there can be no such target.
    axes : int
        ``target_axes`` of the loss.
    channels : int, optional
        Length of the axis of channels, if it is known.

    Raises
    ------
    ShapeError
        If it is neither; the message names the likely remedy.
    """
    wide = (channels,) if axes and channels is not None else ()
    flat = axes == 1 and shape in (every, last)
    # with T = N, a target (T, N) could be taken for channels at the last step, unless their number is known
    if not flat or not wide or (last is not None and shape == (*last, *wide)):
        for leading in (every, last):
            if leading is not None and len(shape) == len(leading) + axes and shape[: len(leading)] == leading:
                return leading
    hint = "its axes of time and batch are swapped"
    if every is None or len(shape) != len(every) + axes or shape[: len(every)] != every[::-1] or flat:
        hint = _cure(shape, name, [leading for leading in (every, last) if leading is not None], axes, channels)
    must = f"{name} must have shape {_allowed(every, last, axes, wide)}, got {shape}"
    raise ShapeError(f"{must}: {hint}" if hint else must)


def _cure(shape: tuple[int, ...], name: str, allowed: list[tuple[int, ...]], axes: int, channels: int | None) -> str:
    """What makes a target of this shape one that fits; empty if nothing is known."""
    if axes == 1 and shape in allowed:
        one = "" if channels in (None, 1) else f" for a network of 1 output channel in the place of {channels},"
        return f'add the axis of channels, {name}[..., None],{one} or for classes give loss="cross_entropy"'
    for axis, length in enumerate(shape):
        rest = (*shape[:axis], *shape[axis + 1 :])
        fits = any(len(rest) == len(leading) + axes and rest[: len(leading)] == leading for leading in allowed)
        if length == 1 and fits and (axes != 1 or channels in (None, rest[-1])):
            return f"axis {axis} has length 1 and can go, {name}.squeeze({axis})"
    if axes == 0 and shape[:-1] in allowed:
        if channels in (None, shape[-1]):
            return f"if it is one-hot, pass {name}.argmax(-1)"
        return 'it must hold one class at each position; for real numbers give another loss, such as loss="mse"'
    for leading in allowed if axes == 1 else ():
        trail = shape[len(leading) :]
        if shape[: len(leading)] == leading and len(trail) > 1 and channels in (None, math.prod(trail)):
            return f"make one axis of its channels, {name}.reshape({', '.join(map(str, (*leading, -1)))})"
    return ""


def _allowed(every: tuple[int, ...] | None, last: tuple[int, ...] | None, axes: int, wide: tuple[int, ...]) -> str:
    """The shapes that a target may have, in words."""
    trail = [str(n) for n in wide] or ["Q"] * axes

    def shown(leading: tuple[int, ...]) -> str:
        parts = [*map(str, leading), *trail]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    if every is None or last is None:
        return shown(last if every is None else every)  # type: ignore[arg-type]
    return f"{shown(every)} (a target at every step) or {shown(last)} (at the last step only)"
