"""Small real data that comes with the package, and cutting a series into windows."""

from ..windows import Windows
from .series import sunspots, windows

__all__ = ["Windows", "sunspots", "windows"]
