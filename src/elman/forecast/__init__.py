"""Forecasting with honest scores: what is known when, baselines, several leads, and intervals with their coverage.

An *origin* o is a place in a series: what comes before it is known, and ``series[o]``, ``series[o + 1]``, ... are to be
forecast, at the leads 1, 2, ...
"""

from .baselines import Autoregression, persistence, seasonal
from .intervals import conformal, coverage
from .networks import direct, feedback
from .scaling import Scaler
from .scoring import Scores, actual, scores
from .splitting import Split, split

__all__ = [
    "Autoregression",
    "Scaler",
    "Scores",
    "Split",
    "actual",
    "conformal",
    "coverage",
    "direct",
    "feedback",
    "persistence",
    "scores",
    "seasonal",
    "split",
]
