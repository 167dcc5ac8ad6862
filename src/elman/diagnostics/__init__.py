"""Spectra, exponents and gradient growth of anything that can be linearized. NumPy and SciPy only."""

from .diagnosis.diagnose import diagnose
from .diagnosis.explain import Explanation
from .diagnosis.prescribe import Prescription, TunedPrescription
from .diagnosis.result import Diagnosis
from .diagnosis.verification import Verification
from .equilibria.search import FixedPoints, fixed_points
from .gradient.flow import GradientFlow, gradient_flow
from .lyapunov.covariant import CovariantVectors, covariant_vectors
from .lyapunov.exponents import LyapunovSpectrum, lyapunov_spectrum
from .memory.capacity import MemoryCapacity, memory_capacity
from .memory.fisher import FisherMemory, fisher_memory
from .memory.measured import MeasuredMemory, measured_memory
from .random_networks.phase_diagram import PhaseDiagram, phase_diagram
from .random_networks.theory import MeanField, mean_field
from .spectra.dense import Spectrum, spectrum
from .spectra.gates import SpectrumByGate
from .spectra.partial import PartialSpectrum
from .spectra.pseudospectrum import Pseudospectrum

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
