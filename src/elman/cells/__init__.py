"""The recurrent cells, each in its own file. What a cell owes the rest is written in :mod:`elman.cells.cell`."""

from .cell import Cell
from .elman import ELMAN
from .gru import GRU
from .lstm import LSTM

__all__ = ["ELMAN", "GRU", "LSTM", "Cell"]
