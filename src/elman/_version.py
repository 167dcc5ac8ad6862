"""The version, in its one place: the build reads it from here, and so does ``elman.__version__``."""

__version__ = "0.1.0"
