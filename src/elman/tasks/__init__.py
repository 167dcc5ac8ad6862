"""Synthetic tasks that need memory: ``x, y`` in the layout of :func:`elman.fit`, with closed baselines."""

from .bits import flip_flop
from .lags import adding, copy_memory, temporal_order

__all__ = ["adding", "copy_memory", "flip_flop", "temporal_order"]
