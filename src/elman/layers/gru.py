"""The GRU as a layer."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike

from ..cells import GRU as CELL
from .axes import refuse_unsupported
from .initializers import Initializer
from .recurrent import Recurrent


class GRU(Recurrent):
    r"""A layer of gated recurrent units: :math:`h_t = (1 - z) n + z h_{t-1}`.

    Called as :class:`elman.RNN`. The reset gate acts after the product, as in PyTorch and Keras 3:
    :math:`n = \tanh(W_{in} x + b_{in} + r (W_{hn} h + b_{hn}))`.

    Parameters
    ----------
    input_size, hidden_size : int
        Numbers D in each step's input, units H.
    num_layers : int
        1 in this version.
    bias : bool, default True
        Whether the layer has ``bias_ih_l0`` and ``bias_hh_l0``. They do not merge into one: r acts on the second alone.
    batch_first : bool, default False
        Whether x and output have the axes (B, T, .) instead of (T, B, .).
    dropout, bidirectional
        0 and False in this version.
    reset_after : bool
        True in this version; the original paper resets before the product, which no choice of weights can imitate.
    dtype : {"float64", "float32"}
        Type of parameters, states and gradients.
    weight_ih_init, weight_hh_init, bias_init : str or callable
        As for :class:`elman.RNN`, drawn for each gate by itself.
    rng : None, int or numpy.random.Generator
        Source of the initial weights.

    Attributes
    ----------
    GATES : tuple of str
        Order of the gates in the weights: r, z, n, as in PyTorch; Keras has z, r, n.
    params : mapping
        ``weight_ih_l0`` (3H, D), ``weight_hh_l0`` (3H, H), ``bias_ih_l0`` (3H,), ``bias_hh_l0`` (3H,): live views.

    Raises
    ------
    DTypeError, ArgumentError
        For sizes, names or types outside what is listed.

    References
    ----------
    Cho et al., Learning phrase representations using RNN encoder-decoder, EMNLP 2014, arXiv:1406.1078.
    """

    GATES = CELL.gates

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        reset_after: bool = True,
        dtype: DTypeLike = "float64",
        weight_ih_init: str | Initializer = "glorot",
        weight_hh_init: str | Initializer = "orthogonal",
        bias_init: str | Initializer = "zeros",
        rng: Any = None,
    ) -> None:
        refuse_unsupported(num_layers=num_layers, dropout=dropout, bidirectional=bidirectional, reset_after=reset_after)
        super().__init__(
            CELL, CELL.variants[0], input_size, hidden_size, bias=bias, batch_first=batch_first, dtype=dtype,
            weight_ih=weight_ih_init, weight_hh=weight_hh_init, bias_init=bias_init, rng=rng,
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"GRU({self.input_size}, {self.hidden_size}, bias={self.bias}, batch_first={self.batch_first}, "
            f"dtype={self.dtype.name!r})"
        )
