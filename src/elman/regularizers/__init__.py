"""Penalties that :func:`elman.fit` adds to a loss: ``fit(..., regularizers=[L2(1e-4), Flossing(8)])``.

See :class:`elman.training.Regularizer` for what one of your own needs.
"""

from .flossing import Flossing
from .states import Activity
from .weights import L2, SoftOrthogonality

__all__ = ["L2", "Activity", "Flossing", "SoftOrthogonality"]
