"""PyTorch's modules for models other than recurrent layers: ``Sequential`` perceptrons, ``ModuleDict`` networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..layers import MLP

Array = NDArray[Any]
ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "Sigmoid": "sigmoid", "Identity": "identity"}
"""Modules of torch.nn, and the nonlinearities that they compute."""
WEIGHTS = {"0.weight": "weight_ih", "0.bias": "bias_ih", "2.weight": "weight_ho", "2.bias": "bias_ho"}
"""Names in a perceptron's ``Sequential``, and in an :class:`elman.MLP`."""
PARTS = ("layer", "readout")


def is_perceptron(torch: Any, module: Any) -> bool:
    """Whether this is ``Sequential`` of a linear map, a nonlinearity that elman has, and a linear map."""
    if type(module) is not torch.nn.Sequential or len(module) != 3:
        return False
    kinds = [type(part) for part in module]
    return kinds[0] is kinds[2] is torch.nn.Linear and kinds[1] in [getattr(torch.nn, name) for name in ACTIVATIONS]


def is_network(torch: Any, module: Any) -> bool:
    """Whether this is a ``ModuleDict`` of a layer and a readout, as :func:`~elman.interop.torch.to_torch` makes it."""
    return type(module) is torch.nn.ModuleDict and set(module) == set(PARTS)


def perceptron_of(module: Any, weights: dict[str, Array], dtype: Any) -> MLP:
    """The perceptron of a ``Sequential``.

    Parameters
    ----------
    module : torch.nn.Sequential
        See :func:`is_perceptron`.
    weights : dict of str to ndarray
        Its state.
    dtype : dtype-like, optional
        None for that of the weights.

    Raises
    ------
    ArgumentError
        If a linear map has no bias.
    """
    if missing := sorted(set(WEIGHTS) - set(weights)):
        raise ArgumentError(
            f"a perceptron must have both biases, got none as {', '.join(missing)}: convert the two linear maps one by "
            'one, from_torch(module, prefix="0") and prefix="2"'
        )
    (H, D), (Q, _) = weights["0.weight"].shape, weights["2.weight"].shape
    kind = np.result_type(np.float32, *weights.values()) if dtype is None else dtype
    mlp = MLP(D, H, Q, ACTIVATIONS[type(module[1]).__name__], dtype=kind, rng=0)
    mlp.load_state_dict({ours: weights[name].astype(mlp.dtype) for name, ours in WEIGHTS.items()})
    return mlp


def perceptron_module(torch: Any, mlp: MLP) -> Any:
    """A ``Sequential`` that computes the same equation, its weights still to be loaded."""
    if not mlp.input_size:
        raise ArgumentError("PyTorch has no perceptron with input_size = 0: its output is one vector, bias alone")
    options = {"device": "meta", "dtype": getattr(torch, mlp.dtype.name)}
    name = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == mlp.nonlinearity)
    return torch.nn.Sequential(
        torch.nn.Linear(mlp.input_size, mlp.hidden_size, **options),
        getattr(torch.nn, name)(),
        torch.nn.Linear(mlp.hidden_size, mlp.output_size, **options),
    )
