r"""Why gradients of an Elman cell grow or decay: four causes that add up exactly to the rate.

One step back turns the unit vector ``u`` into :math:`a = W^T D u` with the slopes :math:`D = \mathrm{diag}(\phi')`.
With ``S`` units and :math:`\tilde u = D u / |D u|`, the identity

.. math:: \log|a| = \underbrace{\log\frac{\|W\|_F}{\sqrt S}}_\text{gain}
   + \underbrace{\tfrac12 \log \overline{\phi'^2}}_\text{saturation}
   + \underbrace{\log|D u| - \tfrac12 \log \overline{\phi'^2}}_\text{preference}
   + \underbrace{\log|W^T \tilde u| - \log\frac{\|W\|_F}{\sqrt S}}_\text{alignment}

splits each step; its averages split the growth per step. In a random network the last two are small (mean-field theory
keeps only the first two); training makes them large, by steering gradients to unsaturated units and along strong
directions of ``W``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...linearization import Array, ElementwiseFactors
from ...norms import safe_norm
from ...results import Result
from ..gradient.intervals import interval_text, mean_interval

TERMS = {
    "gain": "size of W_hh: log(|W|_F / sqrt S)",
    "saturation": "slopes of the nonlinearity: 1/2 log mean phi'^2",
    "preference": "gradient on units with larger or smaller slopes than most",
    "alignment": "gradient along strong or weak directions of W_hh",
}


@dataclass(frozen=True, eq=False)
class Causes(Result):
    """The four causes, in nats per step, averaged over steps, vectors and living sequences.

    Attributes
    ----------
    gain, saturation, preference, alignment : float
        See :mod:`elman.diagnostics.diagnosis.causes`. Their sum is :attr:`rate` up to rounding.
    rate : float
        ``(L(T) - L(k0)) / (T - k0)``, the growth per step between the ends of the window. The least-squares rate of the
        diagnosis, over the same lags, differs a little where the curve is not straight.
    intervals : dict of str to (float, float)
        95 % t interval of each term over sequences.
    first_lag, last_lag : int
        ``k0`` and ``T``.
    """

    gain: float
    saturation: float
    preference: float
    alignment: float
    rate: float
    intervals: dict[str, tuple[float, float]]
    first_lag: int
    last_lag: int

    @classmethod
    def from_terms(cls, terms: Array, rates: Array, first_lag: int, last_lag: int) -> Causes | None:
        """Average :func:`elementwise_terms` over sequences; None if no sequence has a gradient at the last lag."""
        living = np.isfinite(rates)
        if not living.any():
            return None
        stats = {name: mean_interval(term[living]) for name, term in zip(TERMS, terms, strict=True)}
        return cls(
            **{name: mean for name, (mean, _, _) in stats.items()},
            rate=float(rates[living].mean()),
            intervals={name: (low, high) for name, (_, low, high) in stats.items()},
            first_lag=first_lag,
            last_lag=last_lag,
        )

    @classmethod
    def from_factors(cls, parts: Sequence[tuple[ElementwiseFactors, Array]], first_lag: int) -> Causes | None:
        """The causes along several batches of (factors, start vectors (n, K, S)); None without a living gradient."""
        if not parts:
            return None
        split = [elementwise_terms(factors, start, first_lag) for factors, start in parts]
        terms, rates = (np.concatenate(pieces, axis=-1) for pieces in zip(*split, strict=True))
        return cls.from_terms(terms, rates, first_lag, parts[0][0].slopes.shape[0])

    @property
    def terms(self) -> dict[str, float]:
        """The four terms by name."""
        return {name: getattr(self, name) for name in TERMS}

    @property
    def largest(self) -> str:
        """Name of the term that is largest in absolute value."""
        return max(self.terms, key=lambda name: abs(self.terms[name]))

    def __str__(self) -> str:
        lines = [f"causes, nats/step, adding up to {self.rate:+.4f} (lags {self.first_lag}..{self.last_lag}):"]
        for name, meaning in TERMS.items():
            interval = interval_text(*self.intervals[name], 4)
            mark = "  <- largest" if name == self.largest else ""
            lines.append(f"  {name:<11}{self.terms[name]:+.4f}  {interval}  {meaning}{mark}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        return {
            **self.terms,
            "rate": self.rate,
            "largest": self.largest,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "first_lag": self.first_lag,
            "last_lag": self.last_lag,
        }


def elementwise_terms(factors: ElementwiseFactors, start: Array, first_lag: int) -> tuple[Array, Array]:
    """Split the growth of gradients pulled back from the last state into its four causes.

    Parameters
    ----------
    factors : ElementwiseFactors
        Slopes (T, n, S) and weight (S, S).
    start : ndarray, shape (n, K, S)
        Gradients with respect to the last state; only their directions count.
    first_lag : int
        Lag ``k0`` from which the averages begin, ``0 <= k0 < T``.

    Returns
    -------
    terms : ndarray, shape (4, n), float64
        Gain, saturation, preference and alignment of each sequence in nats per step, averaged over lags
        ``k0 + 1 .. T`` and vectors; NaN for sequences with a gradient of exactly zero.
    rates : ndarray, shape (n,), float64
        ``(L(T) - L(k0)) / (T - k0)`` of each sequence; NaN likewise.
    """
    weight = factors.weight.astype(np.float64)
    T, n, S = factors.slopes.shape
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.log(np.linalg.norm(weight) / math.sqrt(S))
        u = np.asarray(start, dtype=np.float64)
        u = u / safe_norm(u)[..., None]
        totals = np.zeros((4, n))
        growth = np.zeros(n)
        for lag in range(1, T + 1):
            slopes = factors.slopes[T - lag].astype(np.float64)
            selected = slopes[:, None] * u
            size = np.linalg.norm(selected, axis=-1)
            a = selected @ weight
            norm = np.linalg.norm(a, axis=-1)
            u = a / norm[..., None]
            if lag > first_lag:
                saturation = 0.5 * np.log(np.square(slopes).mean(axis=-1))
                preference = np.log(size).mean(axis=-1) - saturation
                alignment = np.log(norm / size).mean(axis=-1) - gain  # |W^T D u| / |D u| is |W^T u~|
                totals += (np.full(n, gain), saturation, preference, alignment)
                growth += np.log(norm).mean(axis=-1)
        steps = T - first_lag
        terms, rates = totals / steps, growth / steps
    dead = ~np.isfinite(rates)
    terms[:, dead], rates[dead] = np.nan, np.nan
    return terms, rates
