"""Penalties that :func:`elman.fit` adds to a loss: ``fit(..., regularizers=[L2(1e-4), Flossing(8)])``.

What one of your own needs is said by :class:`elman.training.Regularizer`.
"""

from .flossing import Flossing
from .states import Activity
from .weights import L2, SoftOrthogonality

__all__ = ["L2", "Activity", "Flossing", "SoftOrthogonality"]
