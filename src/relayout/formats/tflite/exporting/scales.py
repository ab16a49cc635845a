"""The scales of the integers of a graph, and unsigned integers as signed ones."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.graph.domains import RESIZE
from relayout.graph.quantized_unit import BYTES, DEQUANTIZE, QUANTIZE, WORDS, Scale, scale_of

INTEGERS = (*BYTES, *WORDS)
MOVING = frozenset(  # operators whose results hold elements of their first operand, whatever these mean
    {"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice"}
    | {"SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
JOINING = frozenset({"Concat"})  # those of which this is true of all operands


def scales_in(graph: ir.Graph) -> dict[ir.Value, Scale]:
    """Return integers -> their scales, by the nodes that quantize them or read them as real numbers.

    Integers that are only moved mean what those mean that they are moved to.
    """
    scales: dict[ir.Value, Scale] = {}
    for node in graph:
        if node.domain or node.op_type not in (DEQUANTIZE, QUANTIZE):
            continue
        integers, scale = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0], scale_of(node)
        if integers is not None and scale is not None:
            scales[integers] = scale
    for node in reversed(graph):
        if node.op_type not in (*MOVING, "Pad", RESIZE):
            continue
        scale = next((scales[each] for each in node.outputs if each in scales), None)  # a Split has several
        if scale is None or not scale.is_one:
            continue
        for value in node.inputs if node.op_type in JOINING else node.inputs[:1]:
            if value is not None and value.dtype == node.outputs[0].dtype and value.dtype in INTEGERS:
                scales.setdefault(value, scale)
    return scales


def meaning_of(
    scale: Scale,  # what integers mean
    shift: int = 0,  # how much lower they lie in the file than as ONNX states them
) -> Quantization:
    """Return what integers mean, as the file says it."""
    return Quantization(scale.scale.astype(np.float32), scale.stated_zero - shift, scale.axis)


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
    draft.add_cast(source, wide)
    draft.add("ADD", [wide, draft.constant("distance", np.array(step, np.int32))], [moved])
    draft.add_cast(moved, result)


def raised(tensor: DraftTensor, kind: TensorType) -> Quantization | None:
    """Return what signed integers mean as unsigned ones of the same width; None where they are no others."""
    meaning = tensor.quantization
    if meaning is None or tensor.type == kind or kind not in SHIFTS:
        return None
    return meaning._replace(zero_point=meaning.zero_point + SHIFTS[kind][1])


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
