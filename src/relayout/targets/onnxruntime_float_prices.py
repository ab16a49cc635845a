"""What ONNX Runtime's kernels of floats take longer where elements lie apart, in transposed elements.

Written by `bench/measure_float_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.32.0, AMD EPYC"
REDUCED = {
    "ReduceMax": 2.85,
    "ReduceMean": 3.89,
    "ReduceMin": 2.86,
    "ReduceSum": 3.83,
}
"""Per element that is read, where what is reduced is not innermost."""
STRETCHED, NODE = 49, 987
"""Per run for which each operand is one element, or none is; of a node, whatever it does, in all."""
