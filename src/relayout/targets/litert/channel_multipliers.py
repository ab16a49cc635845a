"""A depthwise convolution with several results for each channel as several convolutions with one.

    Conv(x, w)    becomes    Concat(Conv(x, w[0::2]), Conv(x, w[1::2])), whose channels are put in order

XNNPACK's depthwise kernels give one result for each channel. For more it takes its kernel for groups, which computes at
least eight results of a group. Two to four convolutions and a Transpose behind them take 0.3 to 0.8 times as long as
that from 16 channels on (windows of 1 × 1 to 9 × 9, strides of 1 and 2, images of 7 × 7 to 112 × 112; fewer channels
take up to twice as long), and quantized to int8 0.05 to 0.13 times. The Transpose is gone where the next convolution
takes its weights in another order.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.lowering.conditions import DEPTHWISE, Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Attribute, Constants

FEWEST_CHANNELS, MOST_RESULTS = 16, 4
IMAGES = (3, 4)  # ranks: one or two axes of space


def _count(operator: Operator) -> int:
    """Return how many results each channel has."""
    kernel = operator.shape(1)
    outputs = None if kernel is None else kernel[0]
    return outputs // operator.int("group", 1) if isinstance(outputs, int) else 0


def _is_faster(operator: Operator) -> bool:
    """Tell whether a node of single precision has two to four results for each of many channels.

    One extent may be open, which a Reshape finds.
    """
    image, shape = operator.node.inputs[0], operator.shape() or ()
    is_real = image is not None and image.dtype == ir.DataType.FLOAT and len(shape) in IMAGES
    is_found = sum(not isinstance(extent, int) for extent in shape) <= 1
    return is_real and is_found and operator.int("group", 1) >= FEWEST_CHANNELS and 1 < _count(operator) <= MOST_RESULTS


def _one_by_one(operator: Operator, given: Constants) -> Sequence[Step]:
    """Convolutions with one result for each channel, and a Concat."""
    kernel, bias, count = given[1], given[2] if operator.has(2) else None, _count(operator)
    if kernel is None or (operator.has(2) and bias is None):
        return ()
    named = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    found = {name: operator.node.attributes[name].value for name in named if name in operator.node.attributes}
    attributes: dict[str, Attribute] = {
        name: tuple(value) if isinstance(value, list | tuple) else value for name, value in found.items()
    }
    channels, rank = operator.int("group", 1), len(kernel.shape)
    parts = [
        Step(
            "Conv",
            (0, *(np.ascontiguousarray(each[place::count]) for each in (kernel, bias) if each is not None)),
            f"result_{place}",
            attributes,
        )
        for place in range(count)
    ]
    # Channels are split where they are the last axis: 0 says of the others that they stay, whatever their extents are.
    last, first, stay = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1)), [0] * (rank - 1)
    return (
        *parts,
        Step("Concat", tuple(part.name for part in parts), "joined", {"axis": 1}),
        Step("Transpose", ("joined",), "last", {"perm": last}),
        Step("Reshape", ("last", np.array([*stay, count, channels], np.int64)), "split"),
        Step("Transpose", ("split",), "ordered", {"perm": (*range(rank - 1), rank, rank - 1)}),
        Step("Reshape", ("ordered", np.array([*stay, count * channels], np.int64)), "whole"),
        Step("Transpose", ("whole",), "first", {"perm": first}),
    )


FAST_MULTIPLIER = Expansion(
    "Conv",
    (DEPTHWISE, Condition("several results for each of many channels", _is_faster)),
    _one_by_one,
    of_tflite=False,
)
"""For LiteRT's CPU kernels alone."""
