"""What ONNX Runtime's plain kernels of floats take longer than those for blocks, in reordered elements.

Per element that they read or give. Written by `bench/measure_blocked_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.31.0, AMD EPYC"
KERNELS = {
    "Conv": 0.94,
    "MaxPool": 1.45,
    "AveragePool": 2.75,
    "GlobalAveragePool": 0.95,
    "GlobalMaxPool": 0.87,
}
PER_TAP = {
    "Conv": 1.79,
    "depthwise": 0.96,
}
"""For each element of a window above the first."""
STRETCHED, NODE = 4.65, 2000
"""Of an operand that is stretched in blocks, per element; of a node, whatever it does, in all."""
