"""Mean-field rates over a range of gains and inputs: where order ends and chaos begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError, ShapeError
from ...linearization import Array
from ...results import Drawn
from ...validation.arrays import finite_numbers
from .theory import NONLINEARITIES, mean_field


@dataclass(frozen=True, eq=False)
class PhaseDiagram(Drawn, picture="plot_phase_diagram"):
    """Mean-field rate over gains and input variances; made by :func:`phase_diagram`.

    Attributes
    ----------
    gains : ndarray, shape (G,)
        Ascending.
    input_variances : ndarray, shape (V,)
        Ascending.
    rate : ndarray, shape (V, G)
        Nats per step.
    critical_gain : ndarray, shape (V,)
        The boundary between order and chaos, even if it lies beyond ``gains``.
    bias_variance : float
    nonlinearity : str
    """

    gains: Array
    input_variances: Array
    rate: Array
    critical_gain: Array
    bias_variance: float
    nonlinearity: str

    @property
    def has_chaos(self) -> bool:
        """Whether the state is bounded where gradients grow, above the boundary; if not, it grows without end too."""
        return NONLINEARITIES[self.nonlinearity].share is None

    def __repr__(self) -> str:
        return (
            f"PhaseDiagram({self.nonlinearity}, {len(self.input_variances)} input variances x {len(self.gains)} gains)"
        )

    def __str__(self) -> str:
        shown = np.unique(np.linspace(0, len(self.input_variances) - 1, 8).round().astype(int))
        return "\n".join(
            [
                f"Phase diagram of large random {self.nonlinearity} networks, bias variance {self.bias_variance:.4g}",
                f"  gain {self.gains[0]:.4g} .. {self.gains[-1]:.4g}, rate {self.rate.min():+.4g} .. "
                f"{self.rate.max():+.4g} nats/step",
                "  input variance   critical gain",
                *(f"  {self.input_variances[i]:<14.4g}   {self.critical_gain[i]:.5g}" for i in shown),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python."""
        return {
            "gains": self.gains.tolist(),
            "input_variances": self.input_variances.tolist(),
            "rate": self.rate.tolist(),
            "critical_gain": self.critical_gain.tolist(),
            "bias_variance": self.bias_variance,
            "nonlinearity": self.nonlinearity,
        }


def phase_diagram(
    gains: ArrayLike, input_variances: ArrayLike, bias_variance: float = 0.0, nonlinearity: str = "tanh"
) -> PhaseDiagram:
    """Sweep :func:`mean_field` over gains and input variances.

    Parameters
    ----------
    gains : array_like, shape (G,)
        At least two, ascending.
    input_variances : array_like, shape (V,)
        At least two, ascending.
    bias_variance, nonlinearity
        As for :func:`mean_field`.

    Returns
    -------
    PhaseDiagram

    Raises
    ------
    ShapeError, ArgumentError
        If an axis does not ascend or has fewer than two values, or a value is refused by :func:`mean_field`.
    """
    axes = []
    for values, name in ((gains, "gains"), (input_variances, "input_variances")):
        axis = finite_numbers(values, name)
        if axis.ndim != 1 or len(axis) < 2:
            raise ShapeError(f"{name} must be a sequence of at least two numbers, got shape {axis.shape}")
        if (np.diff(axis) <= 0).any():
            raise ArgumentError(f"{name} must ascend")
        axes.append(axis)
    fields = [[mean_field(float(g), float(s), bias_variance, nonlinearity) for g in axes[0]] for s in axes[1]]
    return PhaseDiagram(
        axes[0],
        axes[1],
        np.array([[field.rate for field in row] for row in fields]),
        np.array([row[0].critical_gain for row in fields]),
        fields[0][0].bias_variance,
        nonlinearity,
    )
