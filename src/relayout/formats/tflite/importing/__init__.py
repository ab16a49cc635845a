"""TensorFlow Lite operators as ONNX, one function each."""
