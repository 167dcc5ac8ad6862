"""What is said when a loss or a gradient is not finite, and where in the training and the data it was."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NonFiniteError
from ..losses import Loss, broken
from ..validation.arrays import all_finite
from .model import Model, check_finite, parameter_at

Array = NDArray[Any]

UNCHANGED = "Parameters and optimizer are as the last complete update left them"


def loss_error(loss: Loss, value: float, d_output: Array, chosen: Array, output: Array, model: Model) -> NonFiniteError:
    """Say where the output first stopped being finite, unless a parameter has, or what is wrong with the loss.

    A loss that is not ours may be at fault itself; one of ours can only have met too large an output.

    Parameters
    ----------
    value, d_output
        What the loss returned.
    chosen, output : ndarray
        The outputs that have a target, and all of them.
    """
    words = broken(loss, value, d_output, chosen) if all_finite(output) else ""
    check_finite(model)
    if words:
        return NonFiniteError(f"{words}. {UNCHANGED}", what="loss")
    bad = np.argwhere(~np.isfinite(output))
    cause, step, sample = f"the output, up to {np.abs(output).max():.3g}, is too large for it", None, None
    if len(bad):
        time, batch = model.time_axis, model.batch_axis
        first = bad[0] if time is None else bad[bad[:, time].argmin()]
        step, sample = None if time is None else int(first[time]), int(first[batch])
        cause = "the output is not finite"
    return NonFiniteError(
        f"the loss is {value}: {cause}; lower the learning rate or the scale of the weights. {UNCHANGED}",
        what="loss",
        step=step,
        sample=sample,
    )


def gradient_error(norm: float, gradient: Array, model: Model) -> NonFiniteError:
    """Name the first parameter whose gradient is not finite."""
    bad = np.flatnonzero(~np.isfinite(gradient))
    if len(bad):
        cause = f"the gradient of {parameter_at(model, int(bad[0]))} is not finite"
    else:
        cause = f"the norm of the gradient is {norm}, with entries up to {np.abs(gradient).max():.3g}"
    return NonFiniteError(
        f"{cause}; if it explodes over the sequence, cut that by truncation=... or lower the scale of the recurrent "
        f"weights. {UNCHANGED}",
        what="gradient",
    )


def placed(error: NonFiniteError, place: str, first_step: int, samples: Array) -> NonFiniteError:
    """The same error with its place in the training, and with step and sample counted as in the data."""
    step = None if error.step is None else error.step + first_step
    sample = None if error.sample is None else int(samples[error.sample])
    counted = [
        f"{name} {index} of the data" for name, index in (("step", step), ("sample", sample)) if index is not None
    ]
    return NonFiniteError(
        f"{error} ({'; '.join([place, *counted])})",
        what=error.what,
        layer=error.layer,
        gate=error.gate,
        step=step,
        sample=sample,
    )
