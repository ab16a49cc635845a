"""What ONNX Runtime's plain kernels of floats take longer than those for blocks of channels, in reordered elements.

Per element that they read or give. Written by `bench/measure_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.31.0, AMD EPYC"
KERNELS = {
    "Conv": 0.75,
    "MaxPool": 1.20,
    "AveragePool": 2.50,
    "GlobalAveragePool": 0.50,
    "GlobalMaxPool": 0.50,
}
PER_TAP = {
    "Conv": 1.20,
    "depthwise": 0.55,
}
"""For each element of a window above the first."""
