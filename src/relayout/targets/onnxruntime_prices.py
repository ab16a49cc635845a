"""What ONNX Runtime's integer kernels take longer with channels first than last, in transposed elements.

Per element that they read or give. Written by `bench/measure_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.31.0, AMD EPYC"
CHANNELS_FIRST = {
    "QLinearConv": 1.16,
    "QLinearAveragePool": 38.58,
    "QLinearGlobalAveragePool": 0.10,
    "MaxPool": 175.24,
}
