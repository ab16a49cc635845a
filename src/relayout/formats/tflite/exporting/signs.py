"""Unsigned integers as the signed ones of the same width, and back."""

from __future__ import annotations

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor

SHIFTS = {
    TensorType.UINT8: (TensorType.INT8, 128),
    TensorType.UINT16: (TensorType.INT16, 32768),
}
"""Unsigned integers -> the signed ones that LiteRT's kernels take, and how much lower these lie."""
SHIFTS_OF_WORDS = {TensorType.UINT16: SHIFTS[TensorType.UINT16]}
"""The same, of integers that no kernel takes; some take unsigned bytes."""


def change_sign(draft: Draft, source: DraftTensor, result: DraftTensor) -> None:
    """Write integers as those of the other sign, which mean the same numbers.

    QUANTIZE does it to bytes. It has no kernel for uint16: CAST to int32, ADD the distance, CAST.

    Args:
        draft: the graph.
        source: integers of one sign.
        result: those of the other, with the same scale.
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
