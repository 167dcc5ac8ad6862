"""One file for a model and all that belongs to it: :func:`elman.save` and :func:`elman.load`."""

from .file import Saved, load, save
from .models import build, describe

__all__ = ["Saved", "build", "describe", "load", "save"]
