"""Weights to and from other layouts. Every conversion is exact, or is refused with what it cannot express.

One thing is rounded: where the other side has one bias, as Keras and the textbook do, two biases become their sum.

The other packages are imported by the function that needs them, and only then.
"""

from . import keras, onnx, safetensors, textbook, torch
from .keras import from_keras, to_keras
from .metadata import StatedWeights
from .onnx.layer import OnnxLayer
from .onnx.read import from_onnx
from .onnx.write import to_onnx
from .safetensors import from_safetensors, load_safetensors, save_safetensors
from .textbook import from_textbook, to_textbook
from .torch import from_torch, to_torch
from .torch_files import load_pt

__all__ = [
    "OnnxLayer",
    "StatedWeights",
    "from_keras",
    "from_onnx",
    "from_safetensors",
    "from_textbook",
    "from_torch",
    "keras",
    "load_pt",
    "load_safetensors",
    "onnx",
    "safetensors",
    "save_safetensors",
    "textbook",
    "to_keras",
    "to_onnx",
    "to_textbook",
    "to_torch",
    "torch",
]
