"""Convolutions of volumes that XNNPACK computes image by image: it has none over three axes.

On x64 LiteRT's own kernel for three axes takes 3 to 7 times as long.
"""

import onnx_ir as ir

from relayout.formats.tflite.exporting.operators.convolution import BY_IMAGES
from relayout.graph.quantized_unit import unit_of
from relayout.targets.litert.insertion import Insertion

VOLUME = "relayout.ndhwc.dhwio"
"""The domain of a convolution over three axes."""
MOST_PARTS = 64
"""Convolutions that one becomes."""


def split_volume(before: Insertion) -> bool:
    """Let a convolution of volumes of real numbers be written image by image, and return whether it is one.

    Its parameters are constants: no quantizer takes a bias that is computed.
    """
    node = before.node
    image, kernel, *_ = node.inputs
    if node.domain != VOLUME or image is None or kernel is None or kernel.const_value is None:
        return False
    parameters = [value for value in node.inputs[1:] if value is not None]
    is_constant = all(value.const_value is not None and not value.is_graph_input() for value in parameters)
    is_known = image.shape is not None and all(isinstance(extent, int) for extent in [*image.shape][1:])
    is_real = image.dtype == kernel.dtype == ir.DataType.FLOAT and unit_of(node) is None
    if is_constant and is_known and is_real and kernel.const_value.shape.numpy()[0] <= MOST_PARTS:
        node.meta[BY_IMAGES] = True
    return BY_IMAGES in node.meta
