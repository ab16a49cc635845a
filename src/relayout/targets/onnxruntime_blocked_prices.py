"""What ONNX Runtime's plain kernels of floats take longer than those for blocks, in reordered elements.

Per element that they read or give. Written by `bench/measure_blocked_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.31.0, AMD EPYC"
KERNELS = {
    "Conv": 0.95,
    "MaxPool": 2.07,
    "AveragePool": 2.73,
    "GlobalAveragePool": 0.93,
    "GlobalMaxPool": 0.81,
}
PER_TAP = {
    "Conv": 1.78,
    "depthwise": 0.97,
}
"""For each element of a window above the first."""
