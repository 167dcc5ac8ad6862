"""Pictures of results, for papers: one function a result, each draws on one matplotlib axes and returns it.

matplotlib is imported when the first picture is drawn. Nothing here changes its settings (``rcParams``) or shows a
window. Line styles and markers differ as well as colours, so that every picture can be read in grey. Norms that grow
or decay over many steps may leave the range of floating-point numbers; they are drawn as their decimal logarithm, on an
axis with the decades written as powers of ten.
"""

from .diagnosis import plot_diagnosis, plot_verification
from .exponents import plot_lyapunov
from .flow import plot_bounds, plot_gradient_flow
from .plane import plot_jacobian_spectrum, plot_spectrum
from .series import plot_forecast, plot_history

__all__ = [
    "plot_bounds",
    "plot_diagnosis",
    "plot_forecast",
    "plot_gradient_flow",
    "plot_history",
    "plot_jacobian_spectrum",
    "plot_lyapunov",
    "plot_spectrum",
    "plot_verification",
]
