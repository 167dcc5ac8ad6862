"""Penalties on the states of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ShapeError
from ..kernels.squares import sum_of_squares
from ..validation.scalars import at_least_zero

Array = NDArray[Any]


class Activity:
    r"""Mean square of the recurrent layer's output: :math:`s\,\frac{1}{n H} \sum h^2` over the n steps that there are.

    Parameters
    ----------
    strength : float
        The factor s, at least 0.
    """

    uses_states = True

    def __init__(self, strength: float) -> None:
        self.strength = at_least_zero(strength, "strength")

    def __repr__(self) -> str:
        return f"Activity({self.strength:g})"

    def penalty_and_gradient(self, model: Any, trace: Any, d_theta: Array, d_states: Array | None) -> float:
        """Add ``2 s h / (n H)`` to ``d_states``; see :class:`elman.training.Regularizer`.

        Raises
        ------
        ShapeError
            For a list of sequences, whose outputs are a list.
        """
        output, batch = trace.layer.output, trace.layer.batch
        if not isinstance(output, np.ndarray) or d_states is None:
            raise ShapeError("Activity needs sequences in one array: pad those of several lengths, and give lengths")
        steps = batch.T * batch.B if batch.lengths is None else int(np.sum(batch.lengths))
        factor = self.strength / max(1, steps * output.shape[-1])
        # beyond a sequence's end the output is 0
        d_states += (2.0 * factor) * output
        return factor * sum_of_squares(output)
