"""The minimal gated unit as a layer."""

from __future__ import annotations

from typing import Unpack

from ..cells import MGU as CELL
from .options import LayerOptions
from .recurrent import Recurrent


class MGU(Recurrent):
    r"""A layer of minimal gated units: :math:`h_t = (1 - f) h_{t-1} + f n`.

    Called as :class:`elman.RNN`. It is a GRU whose single gate both resets and updates, with two thirds of a GRU's
    parameters:
    :math:`f = \sigma(W_{if} x + b_{if} + W_{hf} h + b_{hf})`,
    :math:`n = \tanh(W_{in} x + b_{in} + W_{hn} (f h) + b_{hn})`. Where f is 0 the state stays as it is.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, recurrent_dropout, zoneout
        As for :class:`elman.GRU`.
    learn_initial_state, dtype, weight_ih_init, weight_hh_init, bias_init, rng
        As for :class:`elman.GRU`.

    Attributes
    ----------
    GATES : tuple of str
        Order of the gates in the weights: f, n.
    params : mapping
        ``weight_ih_l0`` (2H, D), ``weight_hh_l0`` (2H, H), ``bias_ih_l0`` (2H,), ``bias_hh_l0`` (2H,), and so on for
        every layer and backward direction: live views. The two biases enter as their sum.

    Raises
    ------
    DTypeError, ArgumentError
        For sizes, names or types other than those listed.

    References
    ----------
    Zhou, Wu, Zhang and Zhou, Minimal gated unit for recurrent neural networks, International Journal of Automation and
    Computing 13 (2016) 226-234, arXiv:1603.09420.
    """

    GATES = CELL.gate_names

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, **options: Unpack[LayerOptions]) -> None:
        super().__init__(CELL, CELL.variants[0], input_size, hidden_size, num_layers, **options)
