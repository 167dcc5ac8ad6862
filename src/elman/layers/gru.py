"""The GRU as a layer."""

from __future__ import annotations

from typing import Unpack

from ..cells import GRU as CELL
from ..cells import GRU_RESET_BEFORE
from ..validation.scalars import flag
from .options import LayerOptions
from .recurrent import Recurrent


class GRU(Recurrent):
    r"""A layer of gated recurrent units: :math:`h_t = (1 - z) n + z h_{t-1}`.

    Called as :class:`elman.RNN`. The reset gate acts after the product, as in PyTorch and Keras 3,
    :math:`n = \tanh(W_{in} x + b_{in} + r (W_{hn} h + b_{hn}))`, or before it, as in the original paper.

    Parameters
    ----------
    input_size, hidden_size : int
        Number D of inputs per step, number H of units.
    num_layers : int, default 1
        Number of stacked layers; each reads the output of the one below.
    bias : bool, default True
        Whether the layer has ``bias_ih_l0`` and ``bias_hh_l0``. They cannot be merged: r acts on the second alone.
    batch_first : bool, default False
        Whether x and output have the axes (B, T, .) instead of (T, B, .). States always are
        (layers * directions, B, .).
    dropout : float, default 0
        Fraction of the numbers between layers that a training pass sets to 0; the others are divided by the fraction
        kept.
    bidirectional : bool, default False
        Whether each layer also reads its input backwards, with parameters of its own (suffix ``_reverse``).
    recurrent_dropout : float, default 0
        Fraction of the units whose recurrent connections a training pass cuts: one draw of columns of ``weight_hh`` for
        all steps and all sequences of the pass (Gal and Ghahramani, NeurIPS 2016, arXiv:1512.05287; shared by the batch
        as in Merity, Keskar, Socher, ICLR 2018, arXiv:1708.02182, so that the kernels run as fast as without it).
    zoneout : float or tuple of float, default 0
        Fraction of each state that a training pass keeps from the step before, drawn for each unit and step (Krueger et
        al., ICLR 2017, arXiv:1606.01305); an evaluation uses the mean. A tuple has one number per state.
    learn_initial_state : bool, default False
        Whether the initial state, where none is given, is learned: parameters ``h0_l0`` (H,), ...
    reset_after : bool, default True
        False for :math:`n = \tanh(W_{in} x + b_{in} + W_{hn} (r h) + b_{hn})`, as in the original paper and by default
        in ONNX. No choice of weights makes one form equal to the other.
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
        ``weight_ih_l0`` (3H, D), ``weight_hh_l0`` (3H, H), ``bias_ih_l0`` (3H,), ``bias_hh_l0`` (3H,), and so on for
        every layer and backward direction: live views.

    Raises
    ------
    DTypeError, ArgumentError
        For sizes, names or types other than those listed.

    References
    ----------
    Cho et al., Learning phrase representations using RNN encoder-decoder, EMNLP 2014, arXiv:1406.1078.
    """

    GATES = CELL.gate_names

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        reset_after: bool = True,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.reset_after = flag(reset_after, "reset_after")
        cell = CELL if self.reset_after else GRU_RESET_BEFORE
        super().__init__(cell, cell.variants[0], input_size, hidden_size, num_layers, **options)
