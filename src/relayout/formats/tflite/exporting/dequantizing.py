"""The real numbers that a DequantizeLinear makes of integers, where no kernel reads the integers themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.contents import TensorContent
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.blocks import blocks_of, folded
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.scales import scales_of
from relayout.formats.tflite.exporting.signs import has_zero_point_of_16_bits
from relayout.formats.tflite.exporting.steps import Steps
from relayout.formats.tflite.exporting.value_types import kernel_type, tensor_dims

if TYPE_CHECKING:
    from relayout.formats.tflite.exporting.graph_export import GraphExport

UNSCALED = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT16)
"""Integers that no DEQUANTIZE takes."""
DEQUANTIZED = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.INT4, ir.DataType.FLOAT16)
"""Types that DEQUANTIZE has kernels for."""


def real_numbers(graph: GraphExport, value: ir.Value, source: ir.Value, node: ir.Node) -> DraftTensor:
    """Return the tensor of the real numbers that integers mean.

    Args:
        graph: the subgraph under construction.
        value: the real numbers.
        source: the integers.
        node: the DequantizeLinear between the two.
    """
    in_blocks = _from_blocks(graph.draft, node)
    if in_blocks is not None:
        return in_blocks
    scales = scales_of(node)
    by_axis = scales is not None and scales[0].size > 1
    stored = None if source.is_graph_input() else source.const_value
    has_kernel = source.dtype in DEQUANTIZED and not (by_axis and source.dtype == ir.DataType.INT16)
    if stored is not None and not has_kernel:
        constant = _dequantized_constant(graph.draft, value, stored, node)
        if constant is not None:
            return constant
    unscaled = source.dtype in UNSCALED or (by_axis and stored is None)
    integers = None if unscaled else _integers_or_none(graph, source, node)
    if integers is None or has_zero_point_of_16_bits(integers):
        return _scaled(graph, node)
    name = value.name or "dequantized"
    named = name if value.is_graph_output() else graph.draft.unique(name)
    result = DraftTensor(named, kernel_type(value), tensor_dims(value))
    graph.draft.add("DEQUANTIZE", [integers], [result])
    return result


def _from_blocks(draft: Draft, node: ir.Node) -> DraftTensor | None:
    """Return the real numbers that constants in blocks mean; None where they are no such constants."""
    name = node.outputs[0].name or "dequantized"
    blocks = blocks_of(node)
    if blocks is not None and blocks.is_small:
        return blocks.real_numbers(draft, name)
    numbers = folded(node)
    if numbers is None:
        return None
    dims = tuple(numbers.shape.numpy())
    return DraftTensor(draft.unique(name), TensorType.FLOAT32, dims, TensorContent(numbers))


def _integers_or_none(graph: GraphExport, source: ir.Value, node: ir.Node) -> DraftTensor | None:
    try:
        return graph.integers.read(source, node)
    except Unwritable:
        return None


def _dequantized_constant(
    draft: Draft, value: ir.Value, integers: ir.TensorProtocol, node: ir.Node
) -> DraftTensor | None:
    """Return what DEQUANTIZE has no kernel for: the integers of a bias; None where their scale is computed."""
    found = scales_of(node)
    if found is None:
        return None
    scale, zero, axis = found
    array = integers.numpy().astype(np.float64)
    if scale.size > 1:
        shape = [-1 if place == axis else 1 for place in range(array.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    else:
        scale, zero = scale[0], zero[0]
    return draft.constant(value.name or "constant", ((array - zero) * scale).astype(np.float32))


def _scaled(graph: GraphExport, node: ir.Node) -> DraftTensor:
    """Return what integers mean where no kernel knows: their distance from the zero point times the scale."""
    op = NodeExport(graph, node)
    steps = Steps(op)
    number = steps.cast(op.input(0), TensorType.FLOAT32)
    axis, block = op.axis(1), op.integer("block_size")
    scales = [steps.cast(op.input(slot), TensorType.FLOAT32) for slot in (1, 2) if op.has(slot)]
    scales = [_along(steps, scale, number, axis, block) for scale in scales]
    if len(scales) > 1:
        number = steps.sub(number, scales[1])
    return steps.mul(number, scales[0])


def _along(steps: Steps, scale: DraftTensor, number: DraftTensor, axis: int, block: int) -> DraftTensor:
    """Return scales or zero points stretched along the axis that they belong to; one for all stays as it is."""
    rank = len(number.dims)
    if block and not _is_in_blocks(scale, number, axis, block):
        raise Unwritable(f"scales or zero points that do not fit blocks of {block}")
    if block and scale.dims:
        (extent,) = known(number.dims[axis : axis + 1])
        return steps.gather(scale, steps.ints(np.arange(extent) // block), axis)
    if len(scale.dims) == 1 and rank:
        return steps.reshape(scale, [scale.dims[0] if each == axis else 1 for each in range(rank)])
    return scale


def _is_in_blocks(scale: DraftTensor, number: DraftTensor, axis: int, block: int) -> bool:
    """Tell whether there is a scale for each block along an axis, or one for all."""
    if block < 0 or len(scale.dims) not in (0, len(number.dims)):
        return False
    counts = [
        -(-dim // block) if isinstance(dim, int) and each == axis else dim for each, dim in enumerate(number.dims)
    ]
    return not scale.dims or list(scale.dims) == counts
