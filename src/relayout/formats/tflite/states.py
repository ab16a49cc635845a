"""The word by which an ONNX node says that its states were a `.tflite`'s variables, which runtimes keep."""

STATES = "tflite.states"
"""Metadata of an LSTM node that begins with zeros in every run."""
KEPT = "kept"
"""In the `.tflite` that it was read from, each run begins with what the last one left, and the first one with zeros."""
