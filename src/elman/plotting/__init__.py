"""Pictures of results, for papers: one function per result, which draws on one matplotlib axes and returns it.

matplotlib is imported when the first picture is drawn. Nothing here changes its settings (``rcParams``) or shows a
window. Line styles and markers differ as well as colours, so that every picture can be read in grey. Norms that grow
or decay over many steps may leave the range of floating-point numbers; their decimal logarithms are drawn instead, on
an axis whose decades are written as powers of ten.
"""

from .diagnosis import plot_diagnosis, plot_directions, plot_verification
from .equilibria import plot_fixed_points, plot_point_eigenvalues, plot_points
from .gradient import plot_bounds, plot_gradient_flow
from .lyapunov import plot_finite_time, plot_lyapunov
from .memory import plot_memory
from .monitor import plot_monitor
from .random_networks import plot_mean_field, plot_phase_diagram
from .spectra import (
    plot_jacobian_spectrum,
    plot_partial_spectrum,
    plot_pseudospectrum,
    plot_spectrum,
    plot_spectrum_by_gate,
)
from .training import plot_forecast, plot_history
from .trials import plot_explanation, plot_prescription

__all__ = [
    "plot_bounds",
    "plot_diagnosis",
    "plot_directions",
    "plot_explanation",
    "plot_finite_time",
    "plot_fixed_points",
    "plot_forecast",
    "plot_gradient_flow",
    "plot_history",
    "plot_jacobian_spectrum",
    "plot_lyapunov",
    "plot_mean_field",
    "plot_memory",
    "plot_monitor",
    "plot_partial_spectrum",
    "plot_phase_diagram",
    "plot_point_eigenvalues",
    "plot_points",
    "plot_prescription",
    "plot_pseudospectrum",
    "plot_spectrum",
    "plot_spectrum_by_gate",
    "plot_verification",
]
