"""Recurrent networks for science on a CPU, and what their gradients do.

Build
    :class:`RNN`, :class:`LSTM`, :class:`GRU`, :class:`MGU`, :class:`Readout`, :class:`MLP`, :class:`Network`,
    :mod:`elman.initializers`
Train
    :func:`fit`, :class:`Adam`, :class:`SGD`, :func:`clip_by_global_norm`, :mod:`elman.training`
Diagnose
    :func:`diagnose` and, while it trains, :class:`Monitor`; :func:`gradient_flow`, :func:`lyapunov_spectrum`,
    :func:`covariant_vectors`, :func:`spectrum`, :func:`fixed_points`; :func:`mean_field`, :func:`phase_diagram`;
    :func:`memory_capacity`, :func:`measured_memory`, :func:`fisher_memory`; :class:`Linearization`,
    :class:`StepLinearization` and :class:`JacobianStack` bring in systems from elsewhere
Data and exchange
    :mod:`elman.datasets`, :mod:`elman.tasks`; :mod:`elman.interop`: PyTorch, safetensors, Keras, ONNX, the textbook
Extend
    :mod:`elman.cells.cell` is the contract of a cell, :mod:`elman.testing` proves one
Settings
    :func:`set_num_threads`, :func:`get_num_threads`; :func:`warmup` compiles before the first call
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import datasets, errors, initializers, interop, plotting, tasks, testing
    from .diagnostics import (
        CovariantVectors,
        Diagnosis,
        Explanation,
        FisherMemory,
        FixedPoints,
        GradientFlow,
        LyapunovSpectrum,
        MeanField,
        MeasuredMemory,
        MemoryCapacity,
        PartialSpectrum,
        PhaseDiagram,
        Prescription,
        Pseudospectrum,
        Spectrum,
        SpectrumByGate,
        TunedPrescription,
        Verification,
        covariant_vectors,
        diagnose,
        fisher_memory,
        fixed_points,
        gradient_flow,
        lyapunov_spectrum,
        mean_field,
        measured_memory,
        memory_capacity,
        phase_diagram,
        spectrum,
    )
    from .kernels.parallel import get_num_threads, set_num_threads
    from .layers import GRU, LSTM, MGU, MLP, RNN, Network, Readout
    from .linearization import JacobianStack, Linearization, StepLinearization
    from .monitor import Monitor
    from .precompile import warmup
    from .training import SGD, Adam, History, clip_by_global_norm, fit

_HOMES = {
    ".diagnostics": (
        "CovariantVectors",
        "Diagnosis",
        "Explanation",
        "FisherMemory",
        "FixedPoints",
        "GradientFlow",
        "LyapunovSpectrum",
        "MeanField",
        "MeasuredMemory",
        "MemoryCapacity",
        "PartialSpectrum",
        "PhaseDiagram",
        "Prescription",
        "Pseudospectrum",
        "Spectrum",
        "SpectrumByGate",
        "TunedPrescription",
        "Verification",
        "covariant_vectors",
        "diagnose",
        "fisher_memory",
        "fixed_points",
        "gradient_flow",
        "lyapunov_spectrum",
        "mean_field",
        "measured_memory",
        "memory_capacity",
        "phase_diagram",
        "spectrum",
    ),
    ".kernels.parallel": ("get_num_threads", "set_num_threads"),
    ".layers": ("GRU", "LSTM", "MGU", "MLP", "RNN", "Network", "Readout", "initializers"),
    ".linearization": ("JacobianStack", "Linearization", "StepLinearization"),
    ".monitor": ("Monitor",),
    ".precompile": ("warmup",),
    ".training": ("SGD", "Adam", "History", "clip_by_global_norm", "fit"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("cells", "datasets", "diagnostics", "errors", "interop", "plotting", "tasks", "testing", "training")


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
    "CovariantVectors",
    "Diagnosis",
    "Explanation",
    "FisherMemory",
    "FixedPoints",
    "GradientFlow",
    "History",
    "JacobianStack",
    "Linearization",
    "LyapunovSpectrum",
    "MeanField",
    "MeasuredMemory",
    "MemoryCapacity",
    "Monitor",
    "Network",
    "PartialSpectrum",
    "PhaseDiagram",
    "Prescription",
    "Pseudospectrum",
    "Readout",
    "Spectrum",
    "SpectrumByGate",
    "StepLinearization",
    "TunedPrescription",
    "Verification",
    "__version__",
    "clip_by_global_norm",
    "covariant_vectors",
    "datasets",
    "diagnose",
    "errors",
    "fisher_memory",
    "fit",
    "fixed_points",
    "get_num_threads",
    "gradient_flow",
    "initializers",
    "interop",
    "lyapunov_spectrum",
    "mean_field",
    "measured_memory",
    "memory_capacity",
    "phase_diagram",
    "plotting",
    "set_num_threads",
    "spectrum",
    "tasks",
    "testing",
    "warmup",
]
