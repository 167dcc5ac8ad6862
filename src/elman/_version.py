"""The version, defined only here: both the build and ``elman.__version__`` read it."""

__version__ = "0.1.0"
