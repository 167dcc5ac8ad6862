"""The Elman network as a layer."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike

from ..cells import ELMAN
from ..validation import choice
from .axes import refuse_unsupported
from .initializers import Initializer
from .recurrent import Recurrent


class RNN(Recurrent):
    r"""A layer of Elman cells: :math:`h_t = \phi(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})`.

    Parameters
    ----------
    input_size : int
        Numbers D in each step's input; 0 for an autonomous network.
    hidden_size : int
        Units H.
    num_layers : int
        1 in this version.
    nonlinearity : {"tanh", "relu", "sigmoid", "identity"}
        The function :math:`\phi`. The slope of relu at 0 is taken as 0.
    bias : bool, default True
        Whether the layer has ``bias_ih_l0`` and ``bias_hh_l0``.
    batch_first : bool, default False
        Whether x and output have the axes (B, T, .) instead of (T, B, .).
    dropout : float
        0 in this version.
    bidirectional : bool
        False in this version.
    dtype : {"float64", "float32"}
        Type of parameters, states and gradients; inputs are converted to it.
    weight_ih_init, weight_hh_init, bias_init : str or callable
        Initialisers by name (``"glorot"``, ``"orthogonal"``, ``"zeros"``, ``"uniform"``, ``"identity"``,
        ``"gaussian"``) or as objects (:mod:`elman.initializers`). ``"uniform"`` for all three is what PyTorch does.
    rng : None, int or numpy.random.Generator
        Source of the initial weights.

    Attributes
    ----------
    params : mapping
        ``weight_ih_l0`` (H, D), ``weight_hh_l0`` (H, H), ``bias_ih_l0`` (H,), ``bias_hh_l0`` (H,): live views.

    Raises
    ------
    DTypeError, ArgumentError
        For sizes, names or types outside what is listed.

    References
    ----------
    Elman, J. L., Finding structure in time, Cognitive Science 14 (1990) 179-211.

    Examples
    --------
    >>> import numpy as np, elman
    >>> layer = elman.RNN(3, 20, rng=0)
    >>> output, hn = layer(np.zeros((100, 8, 3)))
    >>> output.shape, hn.shape
    ((100, 8, 20), (1, 8, 20))
    """

    NONLINEARITIES = ELMAN.variants

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike = "float64",
        weight_ih_init: str | Initializer = "glorot",
        weight_hh_init: str | Initializer = "orthogonal",
        bias_init: str | Initializer = "zeros",
        rng: Any = None,
    ) -> None:
        refuse_unsupported(num_layers=num_layers, dropout=dropout, bidirectional=bidirectional)
        self.nonlinearity = choice(nonlinearity, "nonlinearity", ELMAN.variants)
        super().__init__(
            ELMAN, nonlinearity, input_size, hidden_size, bias=bias, batch_first=batch_first, dtype=dtype,
            weight_ih=weight_ih_init, weight_hh=weight_hh_init, bias_init=bias_init, rng=rng,
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"RNN({self.input_size}, {self.hidden_size}, nonlinearity={self.nonlinearity!r}, bias={self.bias}, "
            f"batch_first={self.batch_first}, dtype={self.dtype.name!r})"
        )
