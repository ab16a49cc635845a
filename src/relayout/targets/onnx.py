"""The standard itself: every operator on images in its own order, and in every other as a function."""

from relayout.targets.target_table import Target

TARGET = Target("onnx", "the ONNX standard: channels first, kernels OIHW; other layouts as model-local functions", ())
