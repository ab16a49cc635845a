"""A depthwise convolution with several results for each channel as several convolutions with one.

    Conv(x, w)    becomes    Concat(Conv(x, w[0::2]), Conv(x, w[1::2])), whose channels are put in order

XNNPACK's depthwise kernels give one result for each channel. For more it takes its kernel for groups, which computes at
least eight results of a group; of int8 it has none. The Transpose is gone where the next convolution takes its weights
in another order. With it the convolutions take, of images of 7 × 7 to 112 × 112 in steps of 1 and 2,

1. of real numbers 0.3 to 0.8 times as long from 16 channels on, with two to four results and windows of up to 9 × 9.
   Fewer channels, or more results, take up to twice as long.
2. of int8 0.05 to 0.5 times as long from 8 channels on, with two to eight results and windows of up to 25 elements.
   Those by larger windows run as real numbers, see `large_windows`.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.domains import CONVOLUTION
from relayout.graph.quantized_unit import QuantizedUnit
from relayout.lowering.conditions import DEPTHWISE, Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants
from relayout.targets.litert.integer_scales import stored_integers
from relayout.targets.litert.large_windows import MOST_AT_A_TIME
from relayout.targets.litert.transposed_convolutions import convolution_attributes, result_of, rounded

FEWEST_CHANNELS, MOST_RESULTS = 16, 4
FEWEST_OF_UNITS, MOST_OF_UNITS = 8, 8  # the same of quantized units
IMAGES = (3, 4)  # ranks: one or two axes of space


def _count(operator: Operator) -> int:
    """Return how many results each channel has."""
    outputs = (operator.shape(1) or (None,))[0]
    return outputs // operator.int("group", 1) if isinstance(outputs, int) else 0


def _is_faster(operator: Operator) -> bool:
    """Tell whether a node has few results for each of many channels.

    One extent may be open, which a Reshape finds.
    """
    image, shape, window = operator.node.inputs[0], operator.shape() or (), (operator.shape(1) or ())[2:]
    if image is None or image.dtype != ir.DataType.FLOAT or len(shape) not in IMAGES:
        return False
    if sum(not isinstance(extent, int) for extent in shape) > 1:
        return False
    is_large = prod(extent for extent in window if isinstance(extent, int)) > MOST_AT_A_TIME
    is_real = is_large or operator.unit() is None  # large windows of bytes run as real numbers
    fewest, most = (FEWEST_CHANNELS, MOST_RESULTS) if is_real else (FEWEST_OF_UNITS, MOST_OF_UNITS)
    return operator.int("group", 1) >= fewest and 1 < _count(operator) <= most


def _one_by_one(operator: Operator, given: Constants) -> Sequence[Step]:
    """Convolutions with one result for each channel, and a Concat."""
    unit, count = operator.unit(), _count(operator)
    scale = [] if unit is None else result_of(unit)
    weights = [_every(count, given[slot], unit, slot) for slot in (1, 2) if operator.has(slot)]
    if scale is None or not all(weights):
        return ()
    attributes = convolution_attributes(operator)
    steps, parts = list[Step](), [f"result_{place}" for place in range(count)]
    for place, part in enumerate(parts):
        operands: list[int | str | NDArray[np.generic]] = [0]
        for slot, arrays in enumerate(weights, 1):
            own = arrays[place]
            if len(own) > 1:
                steps.append(Step("DequantizeLinear", own, f"{part}_{slot}", {"axis": 0} if own[1].ndim else {}))
            operands.append(f"{part}_{slot}" if len(own) > 1 else own[0])
        steps += rounded([Step(CONVOLUTION, tuple(operands), part, attributes)], scale)
    # Channels are split where they are the last axis: 0 says of the others that they stay, whatever their extents are.
    channels, rank = operator.int("group", 1), operator.rank() or 0
    last, first, stay = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1)), [0] * (rank - 1)
    return (
        *steps,
        *rounded([Step("Concat", tuple(parts), "joined", {"axis": 1})], scale),
        Step("Transpose", ("joined",), "last", {"perm": last}),
        Step("Reshape", ("last", np.array([*stay, count, channels], np.int64)), "split"),
        Step("Transpose", ("split",), "ordered", {"perm": (*range(rank - 1), rank, rank - 1)}),
        Step("Reshape", ("ordered", np.array([*stay, count * channels], np.int64)), "whole"),
        Step("Transpose", ("whole",), "first", {"perm": first}),
    )


def _every(
    count: int, real: NDArray[np.generic] | None, unit: QuantizedUnit | None, slot: int
) -> list[tuple[NDArray[np.generic], ...]]:
    """Return the weights of the first, second, ... result of each channel: real ones alone, or integers and scales."""
    if real is not None:
        return [(np.ascontiguousarray(real[place::count]),) for place in range(count)]
    stored = None if unit is None else unit.operands[slot]
    tensors = stored_integers(stored) if stored is not None and stored.is_constant else None
    if stored is None or tensors is None:
        return []
    return [
        tuple(
            np.ascontiguousarray(each[place::count]) if each.size > 1 else each.reshape(())
            for each in tensors[: 2 + stored.has_zero_point]
        )
        for place in range(count)
    ]


FAST_MULTIPLIER = Expansion(  # for LiteRT's CPU kernels alone
    CONVOLUTION,
    (DEPTHWISE, Condition("few results for each of many channels", _is_faster)),
    _one_by_one,
    of_tflite=False,
)
