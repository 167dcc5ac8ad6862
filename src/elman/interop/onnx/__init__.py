"""ONNX: reading recurrent nodes of a model, and writing networks."""

from .layer import OnnxLayer
from .read import from_onnx
from .write import to_onnx

__all__ = ["OnnxLayer", "from_onnx", "to_onnx"]
