"""Scales and zero points of integers as LiteRT's kernels take them."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.quantized_unit import BYTES, SHIFTS, Quantization, Scale, bytes_of, dequantizer_of, scale_of
from relayout.rules import Step
from relayout.targets.litert.insertion import Insertion


def stored_integers(operand: Quantization | None) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """Return a constant operand's integers, its scales and as many zero points; None where one is computed."""
    stored = None if operand is None else operand.node.inputs[0]
    if operand is None or stored is None or stored.const_value is None or operand.scale is None:
        return None
    if operand.has_zero_point and operand.zero_point is None:
        return None
    integers, scale = stored.const_value.numpy(), operand.scale.numpy()
    zero = np.zeros((), integers.dtype) if operand.zero_point is None else operand.zero_point.numpy()
    return integers, scale, np.broadcast_to(zero, scale.shape)


def requantized(operand: int | str, name: str, parameters: Sequence[NDArray[Any]]) -> tuple[Step, Step]:
    """Return the steps that quantize an operand, with a scale and a zero point, and dequantize it again to a name."""
    return (
        Step("QuantizeLinear", (operand, *parameters), f"{name}_integers"),
        Step("DequantizeLinear", (f"{name}_integers", *parameters), name),
    )


# Scales with which LiteRT's kernels of sums and products of integers compute: with others they overflow, or abort.

COARSEST_BYTES, COARSEST_WORDS = 2.0**8, 2.0**14
"""Steps of the result below which a step of an operand of ADD and SUB lies: wider ones leave the 32 bits."""
WIDEST_BYTES, WIDEST_WORDS = 2.0**108, 2.0**113
"""The step of a result of ADD and SUB lies below: the kernel shifts it by 20 or 15 bits, as a float."""
LARGEST_BYTES, LARGEST_WORDS = 2.0**14, 1.0  # steps of the result below which the product of two steps lies


def adds(operands: Sequence[Scale], result: Scale) -> bool:
    """Tell whether ADD or SUB takes two operands of one scale each."""
    is_bytes, step = result.dtype in BYTES, result.step
    coarsest, widest = (COARSEST_BYTES, WIDEST_BYTES) if is_bytes else (COARSEST_WORDS, WIDEST_WORDS)
    return step < widest and max(each.step for each in operands) < step * coarsest


def multiplies(operands: Sequence[Scale], result: Scale) -> bool:
    """Tell whether MUL takes two operands of one scale each."""
    first, second, result_step = (each.step for each in (*operands, result))
    return first * second < result_step * (LARGEST_BYTES if result.dtype in BYTES else LARGEST_WORDS)


# ArgMax and ArgMin read integers, which lie in the order of the numbers that they mean.
#
#     DequantizeLinear ─ ArgMax    becomes    ArgMax
#
# Others that read the numbers still do.

ORDERED = frozenset({"ArgMax", "ArgMin"})
"""Operators whose results depend on the order of elements alone, and whose kernels take bytes."""


def read_integers(graph: ir.Graph) -> None:
    """Let operators that compare the elements of one operand read its integers, in place."""
    for node in graph:
        dequantize = dequantizer_of(node.inputs[0]) if node.op_type in ORDERED and not node.domain else None
        if dequantize is not None and bytes_of(dequantize) is not None:
            node.replace_input_with(0, dequantize.inputs[0])


# The second operand of a product of int8 activations gets the zero point 0: XNNPACK has no kernel for others.
#
#     MatMul(a, b)    becomes    MatMul([a a], [near rest])
#
# `near` are the integers of b with the zero point 0, saturated to 8 bits, and `rest` is what they lack. The product has
# twice the depth, and the same sums, integer by integer. On x64 LiteRT's own kernel takes 2 to 14 times as long from 16
# rows on (attention of 12 to 1,024 positions); for a row or two it is the faster one.

PRODUCT = "MatMul"
LEAST_ROWS = 16  # rows of the result below which LiteRT's own kernel is as fast
LEAST_DEPTH = 16  # bytes in a row of the first operand: shorter runs take a CONCATENATION as long as a TRANSPOSE
LEAST = -128  # the zero point above which there are 255 integers: two halves have 127 each


def make_second_operands_symmetric(
    graph: ir.Graph,  # its layouts are chosen
    units: Collection[ir.Node],  # the operators that run on integers
    *,
    is_rewritten: bool,
    unsigned: bool,  # whether unsigned integers stay so
) -> dict[str, int]:
    """Give second operands of products of integers the zero point 0, in place; return how many there were."""
    if not is_rewritten or unsigned:
        return {}
    doubled: dict[ir.Node, ir.Value] = {}
    split: dict[ir.Node, ir.Value] = {}
    count = 0
    for node in [node for node in graph if node in units and node.op_type == PRODUCT and not node.domain]:
        first, second = map(_dequantized, node.inputs)
        if first is None or second is None or not _is_slow(first, second):
            continue
        before = Insertion(graph, node)
        if first not in doubled:  # side by side
            (integers, *parameters), value = first.inputs, first.outputs[0]
            twice = _joined(before, [value, value], -1)
            doubled[first] = before.quantized(twice, parameters, None if integers is None else integers.type)
        if second not in split:
            split[second] = _in_halves(before, second)
        node.replace_input_with(0, doubled[first])
        node.replace_input_with(1, split[second])
        count += 1
    return {PRODUCT: count} if count else {}


def _dequantized(value: ir.Value | None) -> ir.Node | None:
    """Return the DequantizeLinear that gives an operand, if that is an activation of bytes."""
    node = dequantizer_of(value)
    integers = None if node is None else node.inputs[0]
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
