"""Spectra, exponents and gradient growth of anything that can be linearized. NumPy and SciPy only."""

from .diagnose import diagnose
from .gradient_flow import GradientFlow, gradient_flow
from .lyapunov import LyapunovSpectrum, lyapunov_spectrum
from .report import Diagnosis
from .spectrum import Spectrum, spectrum
from .verification import Verification

__all__ = [
    "Diagnosis",
    "GradientFlow",
    "LyapunovSpectrum",
    "Spectrum",
    "Verification",
    "diagnose",
    "gradient_flow",
    "lyapunov_spectrum",
    "spectrum",
]
