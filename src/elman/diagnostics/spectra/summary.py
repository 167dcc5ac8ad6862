"""The spectrum of one matrix in words: what has been computed or is cheap, and how to get the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .marginal import modes_in_words, slowest_mode
from .resolvent import numerical_radius_in_words

if TYPE_CHECKING:
    from .dense import Spectrum

SEARCHED = ("numerical_radius", "kreiss_constant", "transient_peak")
"""Found by searches that take up to seconds, at any size: shown once they have been computed."""

DECOMPOSED = ("departure_from_normality", "eigenvector_condition")
"""Each takes one more decomposition."""

CHEAP_SIZE = 128
"""Largest matrix whose summary includes these: two decompositions take 30 ms at this size, and a second at 512."""


def summary(s: Spectrum) -> str:
    """A table of each number with what it proves."""
    H, smallest = len(s.W), float(s.singular_values[-1])
    bound = f"{1 / s.norm:.4g}" if s.norm > 0 else "inf"
    shown = {name for name in (*DECOMPOSED, *SEARCHED) if name in s.__dict__}
    if H <= CHEAP_SIZE:
        shown |= set(DECOMPOSED)
    if s.stability == "growing":
        shown |= {"kreiss_constant", "transient_peak"}  # infinite, without a search
    rows: list[tuple[str, float | None, str]] = [
        ("radius", s.radius, f"{_rate(s.radius)} in the end if the network were linear and undriven; alone"),
        ("", None, "it proves nothing, above 1 or below, for a driven nonlinear network"),
        ("norm", s.norm, f"{_rate(s.norm)}: a gradient grows by at most norm * max|phi'| a step,"),
        ("", None, f"so it provably vanishes if max|phi'| < {bound}"),
        ("smallest sigma", smallest, f"{_rate(smallest)}: a gradient keeps at least this * min|phi'| a step"),
    ]
    if "numerical_radius" in shown:
        radius = s.numerical_radius
        rows.append(("numerical radius", radius, numerical_radius_in_words(radius, s.rounding)))
    if "departure_from_normality" in shown:
        normal = "0 to rounding" if s.departure_from_normality <= s.rounding else "0"
        words = f"from normality (Henrici); {normal}: radius = norm, no transients"
        rows.append(("departure", s.departure_from_normality, words))
    if "eigenvector_condition" in shown:
        rows.append(("eigenvectors", s.eigenvector_condition, "condition: |W^k| <= this * radius^k"))
    rows += [
        ("slowest mode", *slowest_mode(s.eigenvalues, s.marginal)),
        ("", None, modes_in_words(s.eigenvalues, s.marginal)),
    ]
    if "kreiss_constant" in shown:
        K = s.kreiss_constant
        rows.append(("Kreiss constant", K, f"the peak of |W^k| is at least K and at most e H K = {np.e * H * K:.4g}"))
    if "transient_peak" in shown:
        peak, step = s.transient_peak
        place = f"max_k |W^k|, growth of a linear network, at k = {step} steps"
        rows.append(("transient peak", peak, "powers are unbounded" if step is None else place))
    table = [f"  {name:<18}{'' if value is None else format(value, '.6g'):<13}{text}" for name, value, text in rows]
    missing = [name for name in (*DECOMPOSED, *SEARCHED) if name not in shown]
    if missing:
        table.append(f"  computed when asked for, and shown from then on: {', '.join(missing)}")
    return "\n".join([f"Spectrum of a recurrent matrix, H = {H}", *table])


def _rate(factor: float) -> str:
    """The logarithm of a factor per step, with its unit."""
    with np.errstate(divide="ignore"):
        return f"{np.log(factor):+z.4f} nats/step"
