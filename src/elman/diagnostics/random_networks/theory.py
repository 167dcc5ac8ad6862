r"""Mean-field theory of large random networks: how strongly the state varies and how fast gradients grow.

For :math:`h_t = W \phi(h_{t-1}) + I_t` with independent :math:`W_{ij} \sim N(0, g^2/N)` and large ``N``, every
pre-activation is Gaussian with the self-consistent variance

.. math:: q = g^2 \langle \phi(\sqrt q\, z)^2 \rangle + \sigma_I^2 + \sigma_b^2, \qquad
   \chi = g^2 \langle \phi'(\sqrt q\, z)^2 \rangle, \qquad z \sim N(0, 1),

and a gradient grows by :math:`\tfrac12 \log \chi` nats per step: order where it is negative, chaos where it is positive
(Sompolinsky, Crisanti and Sommers 1988; Molgedey, Schuchhardt and Schuster 1992 with input).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.special

from ...errors import ArgumentError
from ...linearization import Array
from ...results import Drawn
from ...validation.scalars import at_least_zero, choice

# |rate| up to which a phase is called critical: the rounding of the fixed point
_CRITICAL = 1e-9
# Half width of the integrals in standard deviations, beyond which the normal density is below 1e-18 of its peak.
_WIDTH = 9.0
_FINEST = 200_001


@dataclass(frozen=True)
class _Nonlinearity:
    """phi, its derivative, and, if phi(c x) = c phi(x), the constant share ``<phi^2> / q = <phi'^2>``."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    share: float | None = None

    def moments(self, q: float) -> tuple[float, float]:
        """``<phi^2>`` and ``<phi'^2>`` for variance q, to rounding.

        The trapezoidal rule converges exponentially for analytic functions; the spacing is adapted to the poles of
        tanh, which approach the real axis as q grows.
        """
        if self.share is not None:
            return self.share * q, self.share
        points = min(_FINEST, 2 * math.ceil(_WIDTH / 0.3 * max(1.0, math.sqrt(q))) + 1)
        z = np.linspace(-_WIDTH, _WIDTH, points)
        weight = np.exp(-0.5 * z * z)
        weight /= weight.sum()
        x = math.sqrt(q) * z
        return float(weight @ self.value(x) ** 2), float(weight @ self.slope(x) ** 2)


def _sigmoid_slope(x: Array) -> Array:
    s = scipy.special.expit(x)
    out: Array = s * (1 - s)
    return out


def _tanh_slope(x: Array) -> Array:
    out: Array = 1 - np.tanh(x) ** 2
    return out


NONLINEARITIES = {
    "tanh": _Nonlinearity(np.tanh, _tanh_slope),
    "relu": _Nonlinearity(lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(float), 0.5),
    "sigmoid": _Nonlinearity(scipy.special.expit, _sigmoid_slope),
    "identity": _Nonlinearity(lambda x: x, np.ones_like, 1.0),
}


@dataclass(frozen=True)
class MeanField(Drawn, picture="plot_mean_field"):
    """Mean-field prediction for one random network; made by :func:`mean_field`.

    Attributes
    ----------
    gain, input_variance, bias_variance : float
        As given: ``g``, and the variances of the input to a unit and of its bias.
    nonlinearity : str
        As given.
    q : float
        Variance of the pre-activations; inf where it has no bound, NaN where any value is self-consistent.
    chi : float
        Mean growth of a squared gradient per step.
    """

    gain: float
    input_variance: float
    bias_variance: float
    nonlinearity: str
    q: float
    chi: float

    @property
    def rate(self) -> float:
        """``log(chi) / 2``: growth of gradients and of small differences in nats per step; -inf at gain 0."""
        return 0.5 * math.log(self.chi) if self.chi > 0 else -math.inf

    @cached_property
    def critical_gain(self) -> float:
        """Gain at which chi is 1 for these variances and this nonlinearity."""
        return _critical_gain(NONLINEARITIES[self.nonlinearity], self.input_variance + self.bias_variance)

    @property
    def phase(self) -> str:
        """``"ordered"``, ``"critical"``, ``"chaotic"``, or ``"unbounded"`` where the state itself grows without end."""
        if abs(self.rate) <= _CRITICAL:
            return "critical"
        if self.rate < 0:
            return "ordered"
        return "chaotic" if NONLINEARITIES[self.nonlinearity].share is None else "unbounded"

    def __str__(self) -> str:
        return "\n".join(
            [
                f"Mean field of a large random {self.nonlinearity} network, W_ij ~ N(0, g^2/N): {self.phase}",
                f"  gain g            {self.gain:.6g}",
                f"  input, bias       variances {self.input_variance:.6g}, {self.bias_variance:.6g}",
                f"  q                 {self.q:.6g}: variance of the pre-activations",
                f"  chi               {self.chi:.6g}: growth of a squared gradient a step",
                f"  rate              {self.rate:+.5f} nats/step, a factor {math.exp(self.rate):.5g} a step",
                f"  critical gain     {self.critical_gain:.6g} for these variances",
                "  holds for independent weights, before training; near the critical gain only in very large networks",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python."""
        given = ("gain", "input_variance", "bias_variance", "nonlinearity")
        found = ("q", "chi", "rate", "critical_gain", "phase")
        return {name: getattr(self, name) for name in (*given, *found)}


def mean_field(
    gain: float, input_variance: float = 0.0, bias_variance: float = 0.0, nonlinearity: str = "tanh"
) -> MeanField:
    """Mean-field prediction of the gradient's rate for a large network with independent random weights.

    Parameters
    ----------
    gain : float
        ``g >= 0``, for weights of variance ``g^2 / N``; uniform weights within ``+-1/sqrt(N)`` have ``g = 1/sqrt(3)``.
    input_variance : float, default 0
        Variance over units and time of ``W_ih x_t``, the input to a unit.
    bias_variance : float, default 0
        Variance of the biases over units.
    nonlinearity : {"tanh", "relu", "sigmoid", "identity"}, default "tanh"
        Of the Elman cell.

    Returns
    -------
    MeanField

    Raises
    ------
    ArgumentError
        If a number is negative or not finite, the variance overflows, or the nonlinearity is not one of these.

    References
    ----------
    Sompolinsky, Crisanti and Sommers, Chaos in random neural networks, PRL 61 (1988) 259; Molgedey, Schuchhardt and
    Schuster, Suppressing chaos in neural networks by noise, PRL 69 (1992) 3717; for biases, Poole et al., Exponential
    expressivity in deep neural networks through transient chaos, NeurIPS 29 (2016).

    Examples
    --------
    >>> field = mean_field(2.0)
    >>> round(field.rate, 5), field.phase, field.critical_gain
    (0.15472, 'chaotic', 1.0)
    """
    g, added = at_least_zero(gain, "gain"), at_least_zero(input_variance, "input_variance")
    bias = at_least_zero(bias_variance, "bias_variance")
    nonlinearity = choice(nonlinearity, "nonlinearity", NONLINEARITIES)
    if not math.isfinite(g * g + added + bias):
        raise ArgumentError(
            f"gain^2 + input_variance + bias_variance must be a finite float64, got gain {g:.4g}, input_variance "
            f"{added:.4g}, bias_variance {bias:.4g}; give smaller numbers"
        )
    phi = NONLINEARITIES[nonlinearity]
    q = _variance(phi, g, added + bias)
    slopes = phi.share if phi.share is not None else phi.moments(q)[1]
    return MeanField(g, added, bias, nonlinearity, q, g * g * slopes)


def _variance(phi: _Nonlinearity, gain: float, added: float) -> float:
    """The largest self-consistent q, at which the state settles; inf if there is none."""
    if phi.share is not None:
        left = 1 - gain * gain * phi.share
        # the square of a rounded root is 1 only up to rounding
        left = 0.0 if abs(left) <= 4 * np.finfo(np.float64).eps else left
        if left == 0 and added == 0:
            return math.nan
        return added / left if left > 0 else math.inf if added else _undriven(left)

    def surplus(q: float) -> float:
        return gain * gain * phi.moments(q)[0] + added - q

    # |phi| <= 1, and g^2 <phi^2> is a concave function of q: at most one root besides 0
    if phi.moments(0.0)[0] == 0 and added == 0 and gain * float(phi.slope(np.zeros(1))[0]) <= 1:
        return 0.0
    from scipy.optimize import brentq

    top = gain * gain + added
    low = added if added else top
    while surplus(low) <= 0 < low:
        low /= 4
    return float(brentq(surplus, low, top, xtol=1e-15 * top, rtol=1e-14)) if top > low else top


def _undriven(left: float) -> float:
    """Variance without input or bias if phi is homogeneous: 0 if states decay, else inf, as all but exactly 0 grow."""
    return 0.0 if left > 0 else math.inf


def _critical_gain(phi: _Nonlinearity, added: float) -> float:
    """The gain at which chi is 1, found by its q: q is self-consistent at the gain sqrt((q - added) / <phi^2>)."""
    if phi.share is not None:
        return 1 / math.sqrt(phi.share)
    if added == 0 and phi.moments(0.0)[0] == 0:
        return 1 / float(phi.slope(np.zeros(1))[0])
    from scipy.optimize import brentq

    def excess(gained: float) -> float:
        squares, slopes = phi.moments(gained + added)
        return gained * slopes / squares - 1

    # tanh can be nearly linear for a tiny input: the root may be tiny as well
    high = 1.0
    while excess(high) < 0:
        high *= 4
    low = high
    while excess(low) > 0:
        low /= 4
    gained = float(brentq(excess, low, high, rtol=1e-14))
    return math.sqrt(gained / phi.moments(gained + added)[0])
