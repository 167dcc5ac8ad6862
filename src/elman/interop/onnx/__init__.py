"""ONNX: recurrent nodes of a model read in, and networks written."""
