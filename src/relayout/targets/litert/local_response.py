"""An LRN is a convolution with a band matrix, and roots: LiteRT's own kernel takes a power of each element.

    LRN(x)    becomes    x · s^-beta,    s = Conv(x · x, band, bias)

The band has alpha / size where a channel is in another one's window. Powers are products of RSQRT(s) and its root, so
beta is a multiple of 1/4. On x64 XNNPACK takes a third to a thirteenth of the time (64 to 512 channels).
"""

import numpy as np
import onnx_ir as ir

from relayout.lowering.channel_windows import channel_windows
from relayout.targets.litert.insertion import Insertion

DOMAIN = "relayout.nhwc"
CONV_DOMAIN = "relayout.nhwc.ohwi"
MOST_CHANNELS = 512
"""Channels above which the matrix takes as long as the powers."""
QUARTERS = (1, 2, 3, 4)
"""beta in quarters."""


def write_local_response(before: Insertion) -> bool:
    """Rewrite an LRN of real numbers and few channels, and return whether it is one."""
    node = before.node
    value = node.inputs[0] if node.domain == DOMAIN else None
    channels = None if value is None or value.shape is None else value.shape[-1]
    if value is None or value.dtype != ir.DataType.FLOAT or not isinstance(channels, int):
        return False
    if channels > MOST_CHANNELS or not _is_product_of_roots(node):
        return False
    _replace(before, value, channels)
    return True


def _is_product_of_roots(node: ir.Node) -> bool:
    """Tell whether the power is a product of roots, of a number above 0; windows of odd size alone have a middle."""
    attributes = node.attributes
    is_positive = attributes.get_float("alpha", 1e-4) >= 0 and attributes.get_float("bias", 1.0) > 0
    return 4 * attributes.get_float("beta", 0.75) in QUARTERS and is_positive and attributes.get_int("size") % 2 == 1


def _replace(before: Insertion, value: ir.Value, channels: int) -> None:
    node, like = before.node, (value.shape, value.type)
    name, beta = node.outputs[0].name, node.attributes.get_float("beta", 0.75)
    alpha, size = node.attributes.get_float("alpha", 1e-4), node.attributes.get_int("size")
    band = channel_windows(channels, size, alpha / size)[:, None, None, :]
    bias = np.full(channels, node.attributes.get_float("bias", 1.0), np.float32)
    kernel = before.constant(band, f"{name}/kernel"), before.constant(bias, f"{name}/bias")
    square = before.add("Mul", [value, value], *like)
    total = before.add("Conv", [square, *kernel], *like, domain=CONV_DOMAIN)
    exponent = before.constant(np.array(-0.5, np.float32), f"{name}/exponent")
    half = before.add("Pow", [total, exponent], *like)
    halves, fourths = divmod(round(4 * beta), 2)
    factors = [half] * halves + [before.add("Sqrt", [half], *like)] * fourths
    result = value
    for factor in factors:
        result = before.add("Mul", [result, factor], *like)
    before.replace(result)
