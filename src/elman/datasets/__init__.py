"""Small real data that comes with the package, and cutting a series into windows."""

from .series import sunspots, windows

__all__ = ["sunspots", "windows"]
