"""The recurrent cells, each in its own file. What a cell owes the rest is written in :mod:`elman.cells.cell`."""

from .cell import Cell, Gate
from .elman import ELMAN
from .gru import GRU
from .gru_reset_before import GRU_RESET_BEFORE
from .lstm import LSTM
from .lstm_projected import LSTM_PROJECTED
from .mgu import MGU

__all__ = ["ELMAN", "GRU", "GRU_RESET_BEFORE", "LSTM", "LSTM_PROJECTED", "MGU", "Cell", "Gate"]
