"""A target for every step, or for the last: how training and diagnoses tell which.

The axes of a target decide. Beyond those of time and sequences it has as many as the loss declares in its
``target_axes``: one, the channels, unless the loss takes classes.
"""

from __future__ import annotations

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
    hint = ""
    if flat:
        hint = f": add the axis of channels, {name}[..., None]"
    elif every is not None and len(shape) == len(every) + axes and shape[: len(every)] == every[::-1]:
        hint = ": its axes of time and batch are swapped"
    raise ShapeError(f"{name} must have shape {_allowed(every, last, axes, wide)}, got {shape}{hint}")


def _allowed(every: tuple[int, ...] | None, last: tuple[int, ...] | None, axes: int, wide: tuple[int, ...]) -> str:
    """The shapes that a target may have, in words."""
    trail = [str(n) for n in wide] or ["Q"] * axes

    def shown(leading: tuple[int, ...]) -> str:
        parts = [*map(str, leading), *trail]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    if every is None or last is None:
        return shown(last if every is None else every)  # type: ignore[arg-type]
    return f"{shown(every)} (a target at every step) or {shown(last)} (at the last step only)"
