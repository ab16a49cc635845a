"""The scales and zero points that QuantizeLinear and DequantizeLinear nodes of a graph state."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.graph.domains import RESIZE

Scales = tuple[NDArray[np.float32], NDArray[np.int64], int]
"""Scales and zero points, one or one for each channel, and the axis of the channels."""
DEQUANTIZE, QUANTIZE = "DequantizeLinear", "QuantizeLinear"
INTEGERS = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
MOVING = frozenset(  # operators whose results hold elements of their first operand, whatever these mean
    {"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice"}
    | {"SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
JOINING = frozenset({"Concat"})  # those of which this is true of all operands


def dequantizer_of(value: ir.Value | None) -> ir.Node | None:
    """Return the DequantizeLinear that produces a value; None for another producer."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == DEQUANTIZE and not node.domain else None


def scales_in(graph: ir.Graph) -> dict[ir.Value, Scales]:
    """Return integers -> their scales, by the nodes that quantize them or read them as real numbers.

    Integers that are only moved mean what those mean that they are moved to.
    """
    scales: dict[ir.Value, Scales] = {}
    for node in graph:
        if node.domain or node.op_type not in (DEQUANTIZE, QUANTIZE):
            continue
        integers, node_scales = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0], scales_of(node)
        if integers is not None and node_scales is not None:
            scales[integers] = node_scales
    for node in reversed(graph):
        if node.op_type not in (*MOVING, "Pad", RESIZE):
            continue
        node_scales = next((scales[each] for each in node.outputs if each in scales), None)  # a Split has several
        if node_scales is None or node_scales[0].size != 1:
            continue
        for value in node.inputs if node.op_type in JOINING else node.inputs[:1]:
            if value is not None and value.dtype == node.outputs[0].dtype and value.dtype in INTEGERS:
                scales.setdefault(value, node_scales)
    return scales


def scales_of(node: ir.Node) -> Scales | None:
    """Return the scale, zero point and axis of a QuantizeLinear or DequantizeLinear; None where they are computed.

    LiteRT has no meaning for others than positive normal numbers: such ones are none, and arithmetic does what ONNX
    says.
    """
    scale = None if len(node.inputs) < 2 or node.inputs[1] is None else node.inputs[1].const_value
    if scale is None or node.attributes.get_int("block_size", 0) != 0:
        return None
    zero_value = node.inputs[2] if len(node.inputs) > 2 else None
    zero = None if zero_value is None else zero_value.const_value
    scales = scale.numpy().astype(np.float32).reshape(-1)
    are_normal = (scales >= np.finfo(np.float32).tiny).all() and np.isfinite(scales).all()
    if (zero_value is not None and zero is None) or not are_normal:
        return None
    zeros = np.zeros(scales.shape, np.int64) if zero is None else zero.numpy().astype(np.int64).reshape(-1)
    rank = 1 if node.inputs[0] is None or node.inputs[0].shape is None else len(node.inputs[0].shape)
    return scales, zeros, node.attributes.get_int("axis", 1) % max(rank, 1) if scales.size > 1 else 0


# Unsigned integers as the signed ones of the same width, and back.

SHIFTS = {  # unsigned integers -> the signed ones that LiteRT's kernels take, and how much lower these lie
    TensorType.UINT8: (TensorType.INT8, 128),
    TensorType.UINT16: (TensorType.INT16, 32768),
}
SHIFTS_OF_WORDS = {TensorType.UINT16: SHIFTS[TensorType.UINT16]}
"""Those of integers that no kernel takes; some take unsigned bytes."""


def change_sign(
    draft: Draft,  # the graph
    source: DraftTensor,  # integers of one sign
    result: DraftTensor,  # those of the other, with the same scale
) -> None:
    """Write integers as those of the other sign, which mean the same numbers.

    QUANTIZE does it to bytes. It has no kernel for uint16: CAST to int32, ADD the distance, CAST.
    """
    if TensorType.UINT16 not in (source.type, result.type):
        draft.add("QUANTIZE", [source], [result])
        return
    _, distance = SHIFTS[TensorType.UINT16]
    step = -distance if source.type == TensorType.UINT16 else distance
    wide, moved = (draft.tensor(f"{source.name}/int32", TensorType.INT32, source.dims) for _ in range(2))
    draft.add("CAST", [source], [wide], in_data_type=source.type, out_data_type=TensorType.INT32)
    draft.add("ADD", [wide, draft.constant("distance", np.array(step, np.int32))], [moved])
    draft.add("CAST", [moved], [result], in_data_type=TensorType.INT32, out_data_type=result.type)


def is_change_of_sign(source: DraftTensor, result: DraftTensor) -> bool:
    """Return whether integers are those of the other sign, which mean the same numbers."""
    meaning, other = source.quantization, result.quantization
    signed, shift = SHIFTS.get(source.type, (source.type, 0))
    other_signed, back = SHIFTS.get(result.type, (result.type, 0))
    if source.type == result.type or signed != other_signed or meaning is None or other is None:
        return False
    return meaning._replace(zero_point=meaning.zero_point - shift + back).equals(other)


def has_zero_point_of_16_bits(tensor: DraftTensor) -> bool:
    """Return whether integers of 16 bits have a zero point: DEQUANTIZE and CONCATENATION refuse them."""
    meaning = tensor.quantization
    return tensor.type == TensorType.INT16 and meaning is not None and bool(np.any(meaning.zero_point))
