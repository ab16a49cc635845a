"""What ONNX Runtime's kernels of floats take longer where elements lie apart, in transposed elements.

Written by `bench/measure_float_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.32.0, AMD EPYC"
REDUCED = {
    "ReduceMax": 2.94,
    "ReduceMean": 3.91,
    "ReduceMin": 2.85,
    "ReduceSum": 3.94,
}
"""Per element that is read, where what is reduced is not innermost."""
STRETCHED = 47
"""Per short run of a stretched operand."""
