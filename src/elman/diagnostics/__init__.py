"""Spectra, exponents and gradient growth of anything that can be linearized. NumPy and SciPy only."""

from .diagnosis.bidirectional import Bidirectional, BidirectionalDiagnosis, BidirectionalVerification
from .diagnosis.causes import Causes
from .diagnosis.diagnose import diagnose
from .diagnosis.explain import Explanation, Trial
from .diagnosis.levels import WeightFacts
from .diagnosis.paths import PathShares
from .diagnosis.prescribe import Prescription, TunedPrescription
from .diagnosis.result import Diagnosis
from .diagnosis.sequences import Adjustable, Diagnosable
from .diagnosis.verification import Comparison, Verification
from .equilibria.search import FixedPoints, fixed_points
from .gradient.curve import GrowthCurve
from .gradient.flow import GradientFlow, gradient_flow
from .gradient.horizon import Horizon
from .lyapunov.covariant import CovariantVectors, covariant_vectors
from .lyapunov.exponents import LyapunovSpectrum, lyapunov_spectrum
from .memory.capacity import MemoryCapacity, memory_capacity
from .memory.fisher import FisherMemory, fisher_memory
from .memory.measured import MeasuredMemory, measured_memory
from .random_networks.phase_diagram import PhaseDiagram, phase_diagram
from .random_networks.theory import MeanField, mean_field
from .spectra.dense import Spectrum, spectrum
from .spectra.gates import SpectrumByGate
from .spectra.partial import Estimate, PartialSpectrum
from .spectra.powers import TransientPeak
from .spectra.pseudospectrum import Pseudospectrum

__all__ = [
    "Adjustable",
    "Bidirectional",
    "BidirectionalDiagnosis",
    "BidirectionalVerification",
    "Causes",
    "Comparison",
    "CovariantVectors",
    "Diagnosable",
    "Diagnosis",
    "Estimate",
    "Explanation",
    "FisherMemory",
    "FixedPoints",
    "GradientFlow",
    "GrowthCurve",
    "Horizon",
    "LyapunovSpectrum",
    "MeanField",
    "MeasuredMemory",
    "MemoryCapacity",
    "PartialSpectrum",
    "PathShares",
    "PhaseDiagram",
    "Prescription",
    "Pseudospectrum",
    "Spectrum",
    "SpectrumByGate",
    "TransientPeak",
    "Trial",
    "TunedPrescription",
    "Verification",
    "WeightFacts",
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
