"""What a user builds: recurrent layers, readouts, networks; with their parameters, traces and linearizations."""

from .dense import MLP, DenseGradients, DenseTrace, Readout
from .generation import NetworkStepper
from .gru import GRU
from .lstm import LSTM
from .mgu import MGU
from .network import Network, NetworkTrace
from .recurrent import Recurrent
from .ridge import ReadoutSolution
from .rnn import RNN
from .stepper import Stepper
from .trace import Gradients, Trace

__all__ = [
    "GRU",
    "LSTM",
    "MGU",
    "MLP",
    "RNN",
    "DenseGradients",
    "DenseTrace",
    "Gradients",
    "Network",
    "NetworkStepper",
    "NetworkTrace",
    "Readout",
    "ReadoutSolution",
    "Recurrent",
    "Stepper",
    "Trace",
]
