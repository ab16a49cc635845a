"""ONNX files: read safely with weights left on disk, checked, written as a stream and atomically."""
