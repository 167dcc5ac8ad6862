"""Losses: a number, and its derivative with respect to the network's output.

A loss is an object with ``value_and_gradient(output, target, weight=None)``: the weighted mean over positions of the
loss of each. See :class:`Loss` for what one of your own needs.
"""

from __future__ import annotations

from ..errors import DTypeError
from ..validation.scalars import choice
from ..validation.words import kind, model_cure
from .classification import BinaryCrossEntropy, CrossEntropy
from .nothing import Zero
from .protocol import Loss
from .protocol import broken as broken
from .protocol import checked as checked
from .protocol import is_own as is_own
from .regression import NSE, Huber, MeanAbsoluteError, MeanSquaredError, Poisson, Quantile

__all__ = [
    "NSE",
    "BinaryCrossEntropy",
    "CrossEntropy",
    "Huber",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Poisson",
    "Quantile",
    "Zero",
    "get_loss",
]

LOSSES: dict[str, Loss] = {
    "mse": MeanSquaredError(),
    "mae": MeanAbsoluteError(),
    "huber": Huber(),
    "quantile": Quantile(),
    "poisson": Poisson(),
    "nse": NSE(),
    "binary_cross_entropy": BinaryCrossEntropy(),
    "cross_entropy": CrossEntropy(),
}
"""Losses by name."""


def get_loss(loss: str | Loss) -> Loss:
    """Return a loss by its name, or the object itself if it is one.

    Parameters
    ----------
    loss : str or object with ``value_and_gradient(output, target)``
        ``"mse"``, ``"mae"``, ``"huber"``, ``"quantile"`` (the median), ``"poisson"``, ``"nse"``,
        ``"binary_cross_entropy"``, ``"cross_entropy"``, or a loss.

    Returns
    -------
    Loss
        An object with ``value_and_gradient``.

    Raises
    ------
    ArgumentError
        If the name is unknown.
    DTypeError
        If the object has no such method.
    """
    if isinstance(loss, str):
        return LOSSES[choice(loss, "loss", LOSSES)]
    if isinstance(loss, type) or not callable(getattr(loss, "value_and_gradient", None)):
        raise DTypeError(
            "loss must be a name or an object with a method value_and_gradient(output, target) -> (value, d_output), "
            f"got {kind(loss)}{model_cure(loss)}"
        )
    return loss
