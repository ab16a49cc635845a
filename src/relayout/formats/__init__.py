"""Files: TensorFlow Lite is read, ONNX is read and written. Knows nothing of rules."""
