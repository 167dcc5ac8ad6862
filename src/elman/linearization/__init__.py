r"""The protocol between a model and its analysis: the tangent dynamics of a network along trajectories.

A recurrent network :math:`s_{t+1} = F(s_t, x_t)` has the Jacobians :math:`J_t = \partial s_{t+1} / \partial s_t`, whose
rows are outputs. A layer of elman provides its own :class:`Linearization`; :class:`JacobianStack` takes the Jacobians
of any network as arrays, :class:`StepLinearization` takes a step function with its derivative.
"""

from .protocol import Array as Array
from .protocol import ElementwiseFactors, Linearization
from .stack import JacobianStack
from .step import StepLinearization

__all__ = ["ElementwiseFactors", "JacobianStack", "Linearization", "StepLinearization"]
