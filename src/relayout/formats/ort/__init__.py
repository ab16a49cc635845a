"""ORT-format models: FlatBuffers of ONNX Runtime, read as the ONNX that they hold. Nothing writes them here."""
