"""Check of a linearization before its analysis; the refusal says how to make one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, ShapeError
from ..linearization import Linearization
from ..validation.words import kind


def trajectories(lin: Any, caller: str, sequences: int = 1) -> Linearization:
    """Check and return a linearization of at least ``sequences`` sequences, with a state.

    Parameters
    ----------
    lin : Linearization
    caller : str
        Name of the public function, for the message.
    sequences : int, default 1
        How many are needed.

    Raises
    ------
    DTypeError
        If it is not a Linearization; the message says how to make one.
    ArgumentError, ShapeError
        If there are too few sequences, or the state has size 0.
    """
    if not isinstance(lin, Linearization):
        if isinstance(lin, type):
            cure = f"make one first, and linearize it along its input: {caller}({lin.__name__}(...).linearize(x))"
        elif hasattr(lin, "linearize"):
            cure = f"linearize the model along its input first: {caller}(model.linearize(x))"
        else:
            cure = f"wrap Jacobians (T, S, S) or (T, n, S, S) first: {caller}(elman.JacobianStack(J))"
        was = "ndarray" if isinstance(lin, np.ndarray) else kind(lin)  # whatever its shape
        raise DTypeError(f"{caller} takes a Linearization, got {was}; {cure}")
    if lin.n_sequences < sequences:
        count = "one sequence, got none" if sequences == 1 else f"{sequences} sequences, got {lin.n_sequences}"
        raise ArgumentError(f"{caller} needs at least {count}")
    if lin.state_size < 1:
        raise ShapeError(f"{caller} needs a state of at least one number, got Jacobians of shape (0, 0)")
    return lin
