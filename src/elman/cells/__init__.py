"""One file a cell: equation, arrays, five kernels, one record. :mod:`elman.cells.cell` is the contract."""

from .cell import Cell
from .elman import ELMAN

__all__ = ["ELMAN", "Cell"]
