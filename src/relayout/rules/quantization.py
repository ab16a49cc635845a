"""Quantizing and dequantizing values: element by element, with scales per tensor, per channel or per block."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.graph.walks import known_tensor
from relayout.layout import Extent
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Fact, Letters, Signature, renumbered_axis

PER_AXIS_SINCE = 13  # opset from which scales may lie along an axis


INTEGERS = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
"""Types that come back as they were: a single float tells all of their products with a scale apart."""
LEAST, MOST = 1e-30, 1e30  # the scales of which that is so


def undoes(back: ir.Node, node: ir.Node) -> bool:
    """Tell whether a QuantizeLinear gives the very integers that a DequantizeLinear has read; scales are per tensor."""
    (read, *said), (_, *known), output = node.inputs, back.inputs, back.outputs[0]
    if read is None or read.dtype is None or read.dtype != output.dtype or read.dtype not in INTEGERS:
        return False
    if node.outputs[0].dtype != ir.DataType.FLOAT or "precision" in back.attributes:
        return False  # halves, since opset 23
    if len(said) != len(known):
        return False
    tensors = [known_tensor(value) for value in (*said, *known)]
    arrays = [tensor.numpy() for tensor in tensors if tensor is not None]
    pairs = zip(arrays, arrays[len(said) :], strict=False)
    if len(arrays) < len(tensors) or not all(np.array_equal(one, other) for one, other in pairs):
        return False
    scale = arrays[0]
    return bool(scale.dtype == np.float32) and LEAST < float(scale.reshape(-1)[0]) < MOST


def _by_unknown_scales(operator: Operator, letters: Letters, axis: int) -> Signature | None:
    """Scales of unknown rank, per tensor or along an axis: it keeps its order, and is renumbered in case it counts."""
    if operator.int("block_size", 0):
        return None
    inputs = operator.operands({0: letters})
    if not operator.domain and operator.version < PER_AXIS_SINCE:
        return Signature(inputs, (letters,))
    if not -len(letters) <= axis < len(letters):
        return None
    along = letters[axis]
    return Signature(inputs, (letters,), whole=frozenset({along}), changes=renumbered_axis(along))


@rule("DequantizeLinear", kind="axis attributes", repeats=True)
@rule("DequantizeLinear", kind="axis attributes", domain="com.microsoft", repeats=True)
@rule("QuantizeLinear", kind="axis attributes")
@rule("QuantizeLinear", kind="axis attributes", domain="com.microsoft")
def quantization(operator: Operator) -> Fact:
    """Any order; the axis of per-channel scales is one dimension and follows (in order, where scales are per block)."""
    shape, scale, axis = operator.shape(), operator.shape(1), operator.int("axis", 1)
    if shape is None:
        return None
    letters = axis_letters(len(shape))
    if scale is None:
        return _by_unknown_scales(operator, letters, axis)
    if not scale or (len(scale) == 1 and Extent.of(scale[0]).is_one and shape != scale):  # per tensor
        back = operator.name == "DequantizeLinear"
        return Signature(operator.operands({0: letters}), (letters,), with_reader=back, with_producer=not back)
    if not letters:
        return None
    along = letters[axis % len(letters)] if len(letters) > 1 else letters[0]
    one, changes = frozenset({along}), renumbered_axis(along)
    if len(scale) == 1:
        inputs = operator.operands({0: letters, 1: (along,), 2: (along,)})
        return Signature(inputs, (letters,), block=one, changes=changes)
    return Signature(operator.operands(dict.fromkeys(range(3), letters)), (letters,), whole=one, changes=changes)


@rule("DynamicQuantizeLinear", kind="layout-agnostic")
def dynamic(operator: Operator) -> Fact:
    """Any order: the scale is that of the whole value."""
    rank = operator.needed_rank()
    letters: Letters = axis_letters(rank)
    outputs = (letters, None, None)[: len(operator.outputs)]
    return Signature((letters,), outputs, across=frozenset(letters))
