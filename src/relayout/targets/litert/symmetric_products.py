"""The second operand of a product of int8 activations gets the zero point 0: XNNPACK has no kernel for others.

    MatMul(a, b)    becomes    MatMul([a a], [near rest])

`near` are the integers of b with the zero point 0, saturated to 8 bits, and `rest` is what they lack. The product has
twice the depth, and the same sums, integer by integer. On x64 LiteRT's own kernel takes 2 to 14 times as long from 16
rows on (attention of 12 to 1,024 positions); for a row or two it is the faster one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from relayout.graph.quantized_unit import DEQUANTIZE
from relayout.targets.litert.insertion import Insertion
from relayout.targets.litert.integer_scales import BYTES, SHIFTS, scale_of

PRODUCT = "MatMul"
LEAST_ROWS = 16
"""Rows of the result below which LiteRT's own kernel is as fast."""
LEAST_DEPTH = 16
"""Bytes in a row of the first operand: shorter runs take a CONCATENATION as long as a TRANSPOSE."""
LEAST = -128
"""The zero point above which there are 255 integers: two halves have 127 each."""


def make_second_operands_symmetric(graph: ir.Graph, units: Collection[ir.Node]) -> int:
    """Rewrite products in place, and return how many there were.

    Args:
        graph: its layouts are chosen.
        units: the operators that run on integers.
    """
    doubled: dict[ir.Node, ir.Value] = {}
    split: dict[ir.Node, ir.Value] = {}
    count = 0
    for node in [node for node in graph if node in units and node.op_type == PRODUCT and not node.domain]:
        first, second = map(_dequantized, node.inputs)
        if first is None or second is None or not _is_slow(first, second):
            continue
        before = Insertion(graph, node)
        if first not in doubled:
            doubled[first] = _twice(before, first)
        if second not in split:
            split[second] = _in_halves(before, second)
        node.replace_input_with(0, doubled[first])
        node.replace_input_with(1, split[second])
        count += 1
    return count


def _dequantized(value: ir.Value | None) -> ir.Node | None:
    """Return the DequantizeLinear that gives an operand, if that is an activation of bytes."""
    node = None if value is None else value.producer()
    integers = None if node is None or node.op_type != DEQUANTIZE else node.inputs[0]
    return node if integers is not None and integers.const_value is None and integers.dtype in BYTES else None


def _is_slow(first: ir.Node, second: ir.Node) -> bool:
    """Tell whether the second operand has a zero point, and the product is worth the copies."""
    scale, shape, other = scale_of(second), first.outputs[0].shape, second.outputs[0].shape
    if scale is None or scale.zero[0] in (0, LEAST) or shape is None or other is None:
        return False
    if min(len(shape), len(other)) < 2:
        return False
    rows, depth = shape[-2], shape[-1]
    has_rows = not isinstance(rows, int) or rows >= LEAST_ROWS
    return has_rows and isinstance(depth, int) and depth >= LEAST_DEPTH


def _twice(before: Insertion, operand: ir.Node) -> ir.Value:
    """Return an operand twice, side by side."""
    (integers, *parameters), value = operand.inputs, operand.outputs[0]
    assert integers is not None
    return before.quantized(_joined(before, [value, value], -1), parameters, integers.type)


def _in_halves(before: Insertion, operand: ir.Node) -> ir.Value:
    """Return an operand as two of the zero point 0 whose sum it is, one above the other."""
    (integers, scale), value = operand.inputs[:2], operand.outputs[0]
    assert integers is not None
    assert integers.dtype is not None
    assert scale is not None
    zero = np.full((scale.shape or ir.Shape(())).numpy(), SHIFTS.get(integers.dtype, 0), integers.dtype.numpy())
    parameters = scale, before.constant(zero, f"{value.name}/zero_point")
    near = before.quantized(value, parameters, integers.type)
    lacking = before.add("Sub", [value, near], value.shape, value.type)
    rest = before.quantized(lacking, parameters, integers.type)
    return before.quantized(_joined(before, [near, rest], -2), parameters, integers.type)


def _joined(before: Insertion, parts: Sequence[ir.Value], axis: int) -> ir.Value:
    """Join two parts of one shape."""
    dims = [*(parts[0].shape or ())]
    extent = dims[axis]
    dims[axis] = 2 * extent if isinstance(extent, int) else None
    return before.add("Concat", parts, ir.Shape(dims), parts[0].type, {"axis": axis})
