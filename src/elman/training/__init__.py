"""Training: losses, optimizers, clipping, and :func:`fit`."""

from ..losses import CrossEntropy, Loss, MeanSquaredError
from . import schedules
from .best import EarlyStopping, KeepBest
from .callbacks import Callback, TrainingInfo, Update
from .clipping import clip_by_global_norm, global_norm
from .fit import fit
from .history import History
from .model import Gradients, Model, Trace
from .optimizer import Optimizer
from .optimizers import SGD, Adam, AdamW, RMSprop
from .penalties import Regularizer
from .records import CSVLog, ModelCheckpoint

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CSVLog",
    "Callback",
    "CrossEntropy",
    "EarlyStopping",
    "Gradients",
    "History",
    "KeepBest",
    "Loss",
    "MeanSquaredError",
    "Model",
    "ModelCheckpoint",
    "Optimizer",
    "RMSprop",
    "Regularizer",
    "Trace",
    "TrainingInfo",
    "Update",
    "clip_by_global_norm",
    "fit",
    "global_norm",
    "schedules",
]
