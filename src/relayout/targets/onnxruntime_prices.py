"""What ONNX Runtime's integer kernels take longer with channels first than last, in transposed elements.

Per element that they read or give. Written by `bench/measure_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.31.0, AMD EPYC"
CHANNELS_FIRST = {
    "QLinearConv": 1.37,
    "QLinearAveragePool": 38.06,
    "QLinearGlobalAveragePool": 0.14,
    "MaxPool": 187.17,
}
LEAST_CHANNELS = {
    "BatchNormalization": 16,
    "constants": 32,
}
"""From how many channels on a scale and shift per channel is no slower as a depthwise convolution."""
