"""What ONNX Runtime's integer kernels take longer with channels first than last, in transposed elements.

Per element that they read or give. Written by `bench/measure_prices.py`: not edited by hand.
"""

MEASURED = "ONNX Runtime 1.31.0, AMD EPYC"
CHANNELS_FIRST = {
    "QLinearConv": 1.33,
    "QLinearAveragePool": 34.42,
    "QLinearGlobalAveragePool": 0.10,
    "MaxPool": 192.88,
    "Resize": 4.63,
}
LEAST_CHANNELS = {"BatchNormalization": 16, "constants": 48}
"""From how many channels on a scale and shift per channel is no slower as a depthwise convolution."""
LEAST_RUN = 2  # from how many elements in a run on two Transposes are faster than one that moves all axes
