"""Spectra, exponents and gradient growth of anything that can be linearized. NumPy and SciPy only."""

from .covariant import CovariantVectors, covariant_vectors
from .diagnose import diagnose
from .explain import Explanation
from .fisher import FisherMemory, fisher_memory
from .fixed_points import FixedPoints, fixed_points
from .gates import SpectrumByGate
from .gradient_flow import GradientFlow, gradient_flow
from .lyapunov import LyapunovSpectrum, lyapunov_spectrum
from .mean_field import MeanField, mean_field
from .measured_memory import MeasuredMemory, measured_memory
from .memory import MemoryCapacity, memory_capacity
from .partial_spectrum import PartialSpectrum
from .phase_diagram import PhaseDiagram, phase_diagram
from .prescribe import Prescription, TunedPrescription
from .pseudospectrum import Pseudospectrum
from .report import Diagnosis
from .spectrum import Spectrum, spectrum
from .verification import Verification

__all__ = [
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
]
