"""What a user builds: recurrent layers, readouts, networks; their parameters, traces and linearizations."""

from .dense import MLP, Readout
from .gru import GRU
from .lstm import LSTM
from .mgu import MGU
from .network import Network
from .rnn import RNN

__all__ = ["GRU", "LSTM", "MGU", "MLP", "RNN", "Network", "Readout"]
