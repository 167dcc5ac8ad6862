"""Training: losses, optimizers, clipping, and :func:`fit`."""

from ..losses import CrossEntropy, Loss, MeanSquaredError
from .callbacks import Callback, Update
from .clipping import clip_by_global_norm, global_norm
from .fit import fit
from .history import History
from .model import Gradients, Model, Trace
from .optimizer import Optimizer
from .optimizers import SGD, Adam

__all__ = [
    "SGD",
    "Adam",
    "Callback",
    "CrossEntropy",
    "Gradients",
    "History",
    "Loss",
    "MeanSquaredError",
    "Model",
    "Optimizer",
    "Trace",
    "Update",
    "clip_by_global_norm",
    "fit",
    "global_norm",
]
