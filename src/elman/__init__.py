"""Recurrent networks for science on a CPU, and what their gradients do.

Build
    :class:`RNN`, :class:`LSTM`, :class:`GRU`, :class:`MGU`, :class:`Readout`, :class:`MLP`, :class:`Network`,
    :mod:`elman.initializers`
Train
    :func:`fit`, :class:`Adam`, :class:`AdamW`, :class:`RMSprop`, :class:`SGD`, :mod:`elman.schedules`,
    :func:`clip_by_global_norm`, :mod:`elman.training`; :class:`EarlyStopping`, :class:`KeepBest`,
    :class:`ModelCheckpoint`, :class:`CSVLog`; :mod:`elman.metrics`; :func:`minimize`
Diagnose
    :func:`diagnose` and, during training, :class:`Monitor`; :func:`gradient_flow`, :func:`lyapunov_spectrum`,
    :func:`covariant_vectors`, :func:`spectrum`, :func:`fixed_points`; :func:`mean_field`, :func:`phase_diagram`;
    :func:`memory_capacity`, :func:`measured_memory`, :func:`fisher_memory`; :class:`Linearization`,
    :class:`StepLinearization` and :class:`JacobianStack` bring in systems from elsewhere
Data and exchange
    :mod:`elman.datasets`, :mod:`elman.tasks`; :mod:`elman.interop`: PyTorch, safetensors, Keras, ONNX, the textbook
Extend
    :mod:`elman.cells.cell` defines the contract of a cell, :mod:`elman.testing` checks it
Settings
    :func:`set_num_threads`, :func:`get_num_threads`; :func:`warmup` compiles before the first call
"""

from ._lazy import names_of_stub
from ._version import __version__ as __version__

__getattr__, __dir__, __all__ = names_of_stub(__name__)
