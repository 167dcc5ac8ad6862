"""The caller's sequences in the kernels' order of axes, and conversion back to the caller's order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import ArgumentError, ShapeError
from ...validation.arrays import all_finite, finite, floating, matching, plain
from ...validation.sequences import checked_lengths, is_list, reset_mask, sequence_list, sequences, truths
from .rows import Rows
from .schedule import Schedule, segmented

Array = NDArray[Any]


class Batch:
    """Sequences side by side.

    Parameters
    ----------
    x : array_like or list of array_like
        (T, B, D); (B, T, D) with ``batch_first``; (T, D) for one sequence; or a list of (T_i, D): see
        :func:`elman.lists.is_list`.
    lengths : array_like of int, shape (B,), optional
        Number of valid steps of each sequence.
    reset : array_like of bool, optional
        Shaped as x without its last axis: True where a sequence restarts before the step.
    input_size : int
        Number D of inputs per step.
    dtype : numpy.dtype
        Type to convert to.
    batch_first : bool
        Whether the caller's axes are (B, T, ...).

    Attributes
    ----------
    x : ndarray, shape (T, B, D)
        C-contiguous.
    T, B : int
        Number of steps of the longest sequence, and number of sequences.
    lengths : ndarray of int, shape (B,), or None
        None if all have T steps.
    rows : Rows
        The inputs as rows ``t * B + b``.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If something does not fit; numbers that are not finite are refused at valid steps only.
    """

    def __init__(
        self, x: Any, lengths: ArrayLike | None, reset: Any, *, input_size: int, dtype: np.dtype[Any],
        batch_first: bool,
    ) -> None:  # fmt: skip
        self.batch_first, self.listed = batch_first, is_list(x)
        if self.listed:
            if lengths is not None:
                raise ArgumentError("lengths must be left out for a list of sequences, each of which has its own")
            x, lengths = sequence_list(x, input_size)
            given, self.single = x, False
        else:
            given, self.single = sequences(x, input_size, batch_first)
        self.x = floating(given, "x", dtype)
        self.T, self.B = self.x.shape[:2]
        self.lengths = None if lengths is None else checked_lengths(lengths, self.T, self.B)
        if not all_finite(self.x):
            finite(self.x, "x", None if self.lengths is None else self.valid, self.outer_index)
        self.reset = None if reset is None else self._checked_reset(reset)
        self.rows = Rows(self.x.reshape(-1), input_size, self.T * self.B)
        self._schedules: dict[bool, Schedule] = {}

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which steps are valid, (T, B)."""
        stops = self.T if self.lengths is None else self.lengths
        return np.broadcast_to(np.arange(self.T)[:, None] < stops, (self.T, self.B))

    def schedule(self, reverse: bool) -> Schedule:
        """The kernels' rows for one direction."""
        schedule = self._schedules.get(reverse)
        if schedule is None:
            schedule = self._schedules[reverse] = segmented(self.T, self.B, self.lengths, self.reset, reverse)
        return schedule

    def _checked_reset(self, reset: Any) -> NDArray[np.bool_]:
        """A reset mask as (T, B)."""
        if self.listed:
            mask = np.zeros((self.T, self.B), bool)
            lengths = self._lengths()
            if len(reset) != self.B or any(np.shape(r) != (n,) for r, n in zip(reset, lengths, strict=True)):
                raise ShapeError("reset must be a list of arrays (T_i,), one for each sequence of x")
            for b, row in enumerate(reset):
                mask[: lengths[b], b] = truths(row)
            return mask
        axes = "(T,)" if self.single else "(B, T)" if self.batch_first else "(T, B)"
        return self.time_major(reset_mask(reset, self.leading, axes))

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes of the caller's array without the last: (T, B), (B, T), or (T,) for one sequence."""
        return (self.T,) if self.single else (self.B, self.T) if self.batch_first else (self.T, self.B)

    def _lengths(self) -> list[int]:
        return [self.T] * self.B if self.lengths is None else self.lengths.tolist()

    def outward(self, y: Array) -> Any:
        """Convert (T, B, ...) to the caller's form: a view, or a list of views."""
        if self.listed:
            return [y[:n, b] for b, n in enumerate(self._lengths())]
        if self.single:
            return y[:, 0]
        return y.swapaxes(0, 1) if self.batch_first else y

    def time_major(self, y: Array) -> Array:
        """An array in the caller's order of axes as (T, B, ...): a view."""
        return y[:, None] if self.single else y.swapaxes(0, 1) if self.batch_first else y

    def inward(self, y: Any, name: str, width: int, dtype: np.dtype[Any]) -> Array:
        """Convert the gradient of an output of ``width`` numbers from the caller's form to C-contiguous (T, B, width).

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If it does not fit; the padding may hold anything.
        """
        if self.listed:
            lengths = self._lengths()
            if not isinstance(y, list | tuple) or len(y) != self.B:
                raise ShapeError(f"{name} must be a list of {self.B} arrays (T_i, {width}), as trace.output is")
            out = np.zeros((self.T, self.B, width), dtype)
            for b, n in enumerate(lengths):
                out[:n, b] = matching(y[b], f"{name}[{b}]", (n, width), f"that of trace.output[{b}]", dtype)
            return out
        wanted = (*self.leading, width)
        if is_list(y) and not self.single:
            raise ShapeError(f"{name} must be one array of shape {wanted}, as trace.output is, got a list of arrays")
        given = plain(y, name)
        if given.shape != wanted:
            raise ShapeError(f"{name} must have shape that of trace.output = {wanted}, got {given.shape}")
        out = floating(self.time_major(given), name, dtype)
        if not all_finite(out):
            finite(out, name, None if self.lengths is None else self.valid, self.outer_index)
        return out

    def outer_index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Convert an index into (T, B, ...) to one into what the caller gave."""
        t, b, *rest = index
        order = (t,) if self.single else (b, t) if self.batch_first or self.listed else (t, b)
        return (*order, *rest)
