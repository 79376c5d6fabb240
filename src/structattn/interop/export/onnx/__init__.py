"""Export to ONNX: an encoder and a decoder step."""
