"""One file a cell: equation, arrays, five kernels, one record. :mod:`elman.cells.cell` is the contract."""

from .cell import Cell
from .elman import ELMAN
from .gru import GRU
from .lstm import LSTM

__all__ = ["ELMAN", "GRU", "LSTM", "Cell"]
