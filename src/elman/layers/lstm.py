"""The LSTM as a layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..cells import LSTM as CELL
from ..errors import ArgumentError
from .axes import refuse_unsupported
from .initializers import Initializer
from .recurrent import Recurrent


class LSTM(Recurrent):
    r"""A layer of LSTM cells: :math:`c_t = f c_{t-1} + i g`, :math:`h_t = o \tanh(c_t)`.

    Called as :class:`elman.RNN`, with states ``(h, c)`` in place of h: ``output, (hn, cn) = layer(x, (h0, c0))``.

    Parameters
    ----------
    input_size, hidden_size : int
        Numbers D in each step's input, units H.
    num_layers : int
        1 in this version.
    bias : bool, default True
        Whether the layer has ``bias_ih_l0`` and ``bias_hh_l0``.
    batch_first : bool, default False
        Whether x and output have the axes (B, T, .) instead of (T, B, .).
    dropout, bidirectional
        0 and False in this version.
    forget_bias : float, default 1.0
        Added to the forget gate's part of ``bias_ih_l0``, and to no other bias: what the gate sees at the start. At 0,
        half of c is lost at every step (Jozefowicz, Zaremba, Sutskever, ICML 2015).
    proj_size : int
        0 in this version.
    dtype : {"float64", "float32"}
        Type of parameters, states and gradients.
    weight_ih_init, weight_hh_init, bias_init : str or callable
        As for :class:`elman.RNN`, drawn for each gate by itself.
    rng : None, int or numpy.random.Generator
        Source of the initial weights.

    Attributes
    ----------
    GATES : tuple of str
        Order of the gates in the weights: i, f, g, o, as in PyTorch and Keras.
    params : mapping
        ``weight_ih_l0`` (4H, D), ``weight_hh_l0`` (4H, H), ``bias_ih_l0`` (4H,), ``bias_hh_l0`` (4H,): live views.

    Raises
    ------
    DTypeError, ArgumentError
        For sizes, names or types outside what is listed.

    References
    ----------
    Hochreiter and Schmidhuber, Long short-term memory, Neural Computation 9 (1997) 1735-1780.
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
        forget_bias: float = 1.0,
        proj_size: int = 0,
        dtype: DTypeLike = "float64",
        weight_ih_init: str | Initializer = "glorot",
        weight_hh_init: str | Initializer = "orthogonal",
        bias_init: str | Initializer = "zeros",
        rng: Any = None,
    ) -> None:
        refuse_unsupported(num_layers=num_layers, dropout=dropout, bidirectional=bidirectional, proj_size=proj_size)
        if not np.isfinite(forget_bias):
            raise ArgumentError(f"forget_bias must be a finite number, got {forget_bias!r}")
        super().__init__(
            CELL, CELL.variants[0], input_size, hidden_size, bias=bias, batch_first=batch_first, dtype=dtype,
            weight_ih=weight_ih_init, weight_hh=weight_hh_init, bias_init=bias_init, rng=rng,
        )  # fmt: skip
        if self.bias:
            self.params["bias_ih_l0"][self.hidden_size : 2 * self.hidden_size] += forget_bias

    def __repr__(self) -> str:
        return (
            f"LSTM({self.input_size}, {self.hidden_size}, bias={self.bias}, batch_first={self.batch_first}, "
            f"dtype={self.dtype.name!r})"
        )
