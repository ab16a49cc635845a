"""What ONNX Runtime's kernels of floats take longer where elements lie apart, in transposed elements.

Written by `bench/measure_float_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.32.0, AMD EPYC"
REDUCED = {"ReduceMax": 2.91, "ReduceMean": 3.93, "ReduceMin": 2.88, "ReduceSum": 3.93}
"""Per element that is read, where what is reduced is not innermost."""
STRETCHED = 47  # per short run of a stretched operand
LEAST_IN_VOLUMES = 16  # from how many channels on a convolution in three dimensions takes no longer on integers
