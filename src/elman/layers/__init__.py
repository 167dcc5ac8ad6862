"""What a user builds: recurrent layers, readouts, networks; their parameters, traces and linearizations."""

from .dense import MLP, Readout
from .network import Network
from .rnn import RNN

__all__ = ["MLP", "RNN", "Network", "Readout"]
