"""Recurrent networks for science on a CPU, and what their gradients do.

Build
    :class:`RNN`, :class:`LSTM`, :class:`GRU`, :class:`MGU`, :class:`Readout`, :class:`MLP`, :class:`Network`,
    :mod:`elman.initializers`
Train
    :func:`fit`, :class:`Adam`, :class:`SGD`, :func:`clip_by_global_norm`, :mod:`elman.training`
Diagnose
    :func:`diagnose`, :func:`gradient_flow`, :func:`lyapunov_spectrum`, :func:`spectrum`; :class:`Linearization` and
    :class:`JacobianStack` bring in networks from elsewhere
Data and exchange
    :mod:`elman.datasets`; :mod:`elman.interop`: PyTorch, safetensors, Keras, ONNX, the textbook's layout
Extend
    :mod:`elman.cells.cell` is the contract of a cell, :mod:`elman.testing` proves one
Settings
    :func:`set_num_threads`, :func:`get_num_threads`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import datasets, errors, interop, plotting, testing
    from .diagnostics import (
        Diagnosis,
        GradientFlow,
        LyapunovSpectrum,
        Spectrum,
        Verification,
        diagnose,
        gradient_flow,
        lyapunov_spectrum,
        spectrum,
    )
    from .kernels.parallel import get_num_threads, set_num_threads
    from .layers import GRU, LSTM, MGU, MLP, RNN, Network, Readout, initializers
    from .linearization import JacobianStack, Linearization
    from .training import SGD, Adam, History, clip_by_global_norm, fit

_HOMES = {
    ".diagnostics": (
        "Diagnosis",
        "GradientFlow",
        "LyapunovSpectrum",
        "Spectrum",
        "Verification",
        "diagnose",
        "gradient_flow",
        "lyapunov_spectrum",
        "spectrum",
    ),
    ".kernels.parallel": ("get_num_threads", "set_num_threads"),
    ".layers": ("GRU", "LSTM", "MGU", "MLP", "RNN", "Network", "Readout", "initializers"),
    ".linearization": ("JacobianStack", "Linearization"),
    ".training": ("SGD", "Adam", "History", "clip_by_global_norm", "fit"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("cells", "datasets", "diagnostics", "errors", "interop", "plotting", "testing", "training")


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: a program pays for what it uses."""
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'elman' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "GRU",
    "LSTM",
    "MGU",
    "MLP",
    "RNN",
    "SGD",
    "Adam",
    "Diagnosis",
    "GradientFlow",
    "History",
    "JacobianStack",
    "Linearization",
    "LyapunovSpectrum",
    "Network",
    "Readout",
    "Spectrum",
    "Verification",
    "__version__",
    "clip_by_global_norm",
    "datasets",
    "diagnose",
    "errors",
    "fit",
    "get_num_threads",
    "gradient_flow",
    "initializers",
    "interop",
    "lyapunov_spectrum",
    "plotting",
    "set_num_threads",
    "spectrum",
    "testing",
]
