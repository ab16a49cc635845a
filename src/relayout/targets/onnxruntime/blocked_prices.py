"""What ONNX Runtime's plain kernels of floats take longer than those for blocks, in reordered elements.

Per element that they read or give. Written by `bench/measure_blocked_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.31.0, AMD EPYC"
KERNELS = {"Conv": 0.91, "MaxPool": 2.04, "AveragePool": 2.78, "GlobalAveragePool": 0.95, "GlobalMaxPool": 0.76}
PER_TAP = {"Conv": 1.79, "depthwise": 0.96}
"""For each element of a window above the first."""
IN_BLOCKS = {"ReduceMax": 0.16, "ReduceMean": 0.12, "ReduceMin": 0.18}
LAST = {"ReduceMax": 8.11, "ReduceMean": 8.25, "ReduceMin": 8.14}
"""What takes longer over the axes of space, in blocks and channels last, per element that is read."""
STRETCHED, NODE = 4.75, 2000
"""Of an operand that is stretched in blocks, per element; of a node, whatever it does, in all."""
