"""What a forward pass stores, and what a backward pass returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, MissingNameError
from ..states import parts
from .engine.batch import Batch
from .engine.kept import Version
from .engine.layout import Layout
from .engine.noise import Noise
from .engine.rows import Rows
from .engine.stack import Stack
from .engine.views import Record, outer_gates, outer_states

Array = NDArray[Any]


class Named(Mapping[str, Array]):
    """Arrays by name, each made when first asked for.

    Parameters
    ----------
    makers : mapping of str to callable
    missing : str
        End of the error message about a name that is not among them.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Array]], missing: str) -> None:
        self._makers, self._made, self._missing = dict(makers), dict[str, Array](), missing

    def __getitem__(self, name: str) -> Array:
        if name not in self._makers:
            raise MissingNameError(f"{name!r} is not in this trace, {self._missing}")
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __repr__(self) -> str:
        return f"{{{', '.join(self)}}}"


@dataclass(frozen=True, eq=False)
class Trace:
    """A forward pass with every state and gate activation.

    Where possible, the arrays are views into what :meth:`Recurrent.backward` reads: they are read-only, and ``x`` must
    not be changed before that call. In the padding of sequences with ``lengths`` they are 0.

    Attributes
    ----------
    output : ndarray or list of ndarray, or None
        The output, shaped as that of calling the layer; None with ``keep_output=False``.
    hn : ndarray or tuple of ndarray
        The final state, shaped as that of calling the layer.
    """

    output: Any
    hn: Any
    records: tuple[Record, ...]
    batch: Batch
    rows: Rows
    noise: Noise | None
    stack: Stack
    version: Version

    @cached_property
    def states(self) -> Mapping[str, Array]:
        """Every state by name, such as ``"h_l0"``, each (T + 1, B, H); none in a trace with ``checkpoint``.

        Entry 0 is the initial state and entry t + 1 the state after step t; for a backward direction
        (``"h_l0_reverse"``) entry t is the state after step t, and the entry after the last step of a sequence is its
        initial state.
        """
        return _named(self.stack, self.records, [layout.cell.states for layout in self.stack.layouts], outer_states)

    @cached_property
    def gates(self) -> Mapping[str, Array]:
        """Every stored gate activation by name, each (T, B, H); none in a trace with ``checkpoint``.

        Empty for the Elman cell, whose activation is its state.
        """
        return _named(self.stack, self.records, [layout.cell.stored for layout in self.stack.layouts], outer_gates)

    @property
    def checkpoint(self) -> int:
        """Steps between the stored states; 0 if all are stored."""
        return self.records[0].checkpoint

    @property
    def final_output(self) -> Array:
        """The output after the whole of each sequence, (B, directions * H): what a classifier of sequences reads.

        The forward direction's output at the last valid step, then the backward direction's at the first; ``output``
        holds them at different steps. For a sequence of length 0 it is the initial state.
        """
        return final_output(self.hn, self.stack.per_layer)

    def __repr__(self) -> str:
        kept = f"checkpoint={self.checkpoint}" if self.checkpoint else f"states {', '.join(self.states)}"
        gates = f"gates {', '.join(self.gates)}, " if self.gates else ""
        return f"Trace(output {shape_of(self.output)}, {kept}, {gates}{in_bytes(self.nbytes)})"

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays: states, gates, random draws, input and output, each counted once."""
        noise = self.noise
        drawn = () if noise is None else (*noise.between, *noise.recurrent, *noise.zoneout)
        arrays = [a for r in self.records for a in (r.x.flat, r.states, r.gates, r.kept)]
        return bytes_of([*arrays, self.rows.flat, *drawn])


def shape_of(output: Any) -> str:
    """The shape of an output, for ``repr``."""
    if output is None:
        return "None"
    return f"list of {len(output)}" if isinstance(output, list) else str(output.shape)


def bytes_of(arrays: Iterable[Array | None]) -> int:
    """Bytes of several arrays; views of the same memory count once."""
    there = (array for array in arrays if array is not None)
    return sum({array.__array_interface__["data"][0]: array.nbytes for array in there}.values())


def in_bytes(n: int) -> str:
    """A number of bytes in words, to three digits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} bytes"


def final_output(hn: Any, per_layer: int) -> Array:
    """The last layer's final output, its ``per_layer`` directions side by side, from the final states of all."""
    joined: Array = np.concatenate(list(parts(hn)[0][-per_layer:]), axis=-1)
    return joined


def spacing(checkpoint: bool | int, T: int, cached: int = 0) -> int:
    """Steps between the states that a trace of T steps stores; 0 for all of them.

    Parameters
    ----------
    checkpoint : bool or int
        As the user gave it. True stands for the square root of T, or for ``cached`` if that is more.
    cached : int
        Steps that stay in the caches: windows of fewer would save too little memory for what they cost.

    Raises
    ------
    DTypeError, ArgumentError
        If it is neither a truth value nor an integer of at least 1.
    """
    truth = isinstance(checkpoint, bool | np.bool_)
    number = isinstance(checkpoint, int | np.integer)
    if not truth and not (number and checkpoint >= 1):
        raise (ArgumentError if number else DTypeError)(
            f"checkpoint must be True, False (keep every state), or a number of steps of at least 1, got {checkpoint!r}"
        )
    if truth:
        return max(1, math.isqrt(max(T - 1, 0)) + 1, min(cached, T)) if checkpoint else 0
    return int(checkpoint)


def _named(
    stack: Stack, records: tuple[Record, ...], names: list[tuple[str, ...]],
    make: Callable[[Layout, Record, int], Array],
) -> Named:  # fmt: skip
    """The arrays under these names in the records of all directions."""
    every = records[0].checkpoint
    if every:
        return Named(
            {},
            f"which has only the states before every {every} steps (checkpoint) and makes the others again in the "
            "backward pass: leave checkpoint out to look at them",
        )
    makers = {
        name + layout.suffix: partial(make, layout, record, i)
        for layout, record, own in zip(stack.layouts, records, names, strict=True)
        for i, name in enumerate(own)
    }
    return Named(makers, f"which has {', '.join(makers) or 'none'}")


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of a scalar L with respect to everything a layer reads.

    Attributes
    ----------
    params : mapping of str to ndarray
        ``dL/d parameter`` by name: views into ``theta``.
    theta : ndarray
        The same as one vector, aligned with ``layer.theta``.
    x : ndarray or list of ndarray, or None
        ``dL/dx``, shaped as x, 0 in the padding; None with ``need_x=False``.
    h0 : ndarray or tuple of ndarray
        ``dL/dh0``, shaped as ``hn``.
    state_norms : ndarray, shape (num_layers * num_directions, T, B), float64
        ``|dL/dh_t|``, the whole gradient that flows into the state after each step; 0 in the padding.
    """

    params: Mapping[str, Array]
    theta: Array
    x: Any
    h0: Any
    state_norms: Array

    def __repr__(self) -> str:
        return f"Gradients({', '.join(self.params)}; x, h0, state_norms {self.state_norms.shape})"
