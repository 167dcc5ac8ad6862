"""The LSTM as a layer."""

from __future__ import annotations

from typing import Unpack

from ..cells import LSTM as CELL
from ..cells import LSTM_PROJECTED
from ..errors import ArgumentError
from ..validation.scalars import number, size
from .options import LayerOptions
from .recurrent import Recurrent


class LSTM(Recurrent):
    r"""A layer of LSTM cells: :math:`c_t = f c_{t-1} + i g`, :math:`h_t = o \tanh(c_t)`.

    Called as :class:`elman.RNN`, with states ``(h, c)`` in place of h: ``output, (hn, cn) = layer(x, (h0, c0))``.

    Parameters
    ----------
    input_size, hidden_size : int
        Number D of inputs per step, number H of units.
    num_layers : int, default 1
        Number of stacked layers; each reads the output of the one below.
    bias : bool, default True
        Whether the layer has ``bias_ih_l0`` and ``bias_hh_l0``.
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
    forget_bias : float, default 1.0
        Added to the forget gate's part of every initial ``bias_ih``, and to no other bias. At 0, half of c is lost at
        every step at first (Jozefowicz, Zaremba, Sutskever, ICML 2015).
    proj_size : int, default 0
        If above 0, the size R < H of the output ``h = W_hr (o tanh(c))``, which is also what the recurrent weights
        read (Sak, Senior, Beaufays, Interspeech 2014).
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
        ``weight_ih_l0`` (4H, D), ``weight_hh_l0`` (4H, H), ``bias_ih_l0`` (4H,), ``bias_hh_l0`` (4H,), and so on for
        every layer and backward direction; with a projection to R numbers ``weight_hh_l0`` (4H, R) and ``weight_hr_l0``
        (R, H): live views.

    Raises
    ------
    DTypeError, ArgumentError
        For sizes, names or types other than those listed.

    References
    ----------
    Hochreiter and Schmidhuber, Long short-term memory, Neural Computation 9 (1997) 1735-1780.
    """

    GATES = CELL.gate_names

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        forget_bias: float = 1.0,
        proj_size: int = 0,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.proj_size = size(proj_size, "proj_size", least=0)
        if self.proj_size and self.proj_size >= size(hidden_size, "hidden_size"):
            raise ArgumentError(f"proj_size must be less than hidden_size = {hidden_size}, got {proj_size}")
        forget_bias = number(forget_bias, "forget_bias")
        if forget_bias not in (0.0, 1.0) and not options.get("bias", True):
            raise ArgumentError(f"forget_bias must be left out where there is no bias to add it to, got {forget_bias}")
        cell = LSTM_PROJECTED if proj_size else CELL
        super().__init__(
            cell, cell.variants[0], input_size, hidden_size, num_layers, proj_size=self.proj_size, **options
        )
        if self.bias:
            self.change("forget_bias", forget_bias)
