"""The Elman network as a layer."""

from __future__ import annotations

from typing import Unpack

from ..cells import ELMAN
from ..validation.scalars import choice
from .options import LayerOptions
from .recurrent import Recurrent


class RNN(Recurrent):
    r"""A layer of Elman cells: :math:`h_t = \phi(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})`.

    Parameters
    ----------
    input_size : int
        Number D of inputs per step; 0 for an autonomous network.
    hidden_size : int
        Number H of units.
    num_layers : int, default 1
        Number of stacked layers; each reads the output of the one below.
    nonlinearity : {"tanh", "relu", "sigmoid", "identity"}
        The function :math:`\phi`. The slope of relu at 0 is taken as 0.
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
        ``weight_ih_l0`` (H, D), ``weight_hh_l0`` (H, H), ``bias_ih_l0`` (H,), ``bias_hh_l0`` (H,), and so on for every
        layer (``_l1``) and backward direction (``_l0_reverse``): live views.

    Raises
    ------
    DTypeError, ArgumentError
        For sizes, names or types other than those listed.

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
        **options: Unpack[LayerOptions],
    ) -> None:
        self.nonlinearity = choice(nonlinearity, "nonlinearity", ELMAN.variants)
        super().__init__(ELMAN, nonlinearity, input_size, hidden_size, num_layers, **options)
