"""Files: TensorFlow Lite and ONNX are read and written, ORT-format models are read. Knows nothing of rules."""
