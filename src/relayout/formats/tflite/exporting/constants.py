"""The tensors that the constants of a graph become."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.stored import nbytes
from relayout.formats.tflite.container.contents import TensorContent
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.text_tensors import text_constant
from relayout.formats.tflite.exporting.value_types import TYPES, tensor_dims

SMALL = 1 << 16
"""Elements of constants that are looked at as arrays."""
FEW = 1 << 8
"""Elements up to which a constant in half precision is written in single."""


def constant_tensor(draft: Draft, value: ir.Value) -> DraftTensor:
    """Return the tensor of a constant as kernels read it.

    Raises:
        Unwritable: TensorFlow Lite has no such elements.
    """
    tensor = value.const_value
    assert tensor is not None
    if tensor.dtype not in TYPES:
        raise Unwritable(f"constants of {tensor.dtype.name}")
    kind = TYPES[tensor.dtype]
    if kind == TensorType.STRING:
        return text_constant(draft, value.name or "constant", tensor.numpy())
    array = tensor.numpy() if tensor.size <= SMALL and kind != TensorType.INT4 else None
    size = nbytes(tensor.dtype, tuple(tensor.shape.numpy()))
    data: Any = TensorContent(tensor) if size else np.zeros(0, np.uint8)
    name = draft.unique(value.name or "constant")
    made = DraftTensor(name, kind, tuple(tensor.shape.numpy()), data, array)
    return in_single(draft, made) if kind == TensorType.FLOAT16 else made


def in_single(draft: Draft, half: DraftTensor) -> DraftTensor:
    """Return a constant in half precision as kernels read it: small ones in single, others behind a DEQUANTIZE."""
    if half.array is not None and half.array.size <= FEW:
        return draft.constant(half.name, half.array.astype(np.float32))
    single = draft.tensor(f"{half.name}/float32", TensorType.FLOAT32, half.dims)
    draft.add("DEQUANTIZE", [half], [single])
    return single


def integer_constant(
    draft: Draft, value: ir.Value, kind: TensorType, shift: int, quantization: Quantization
) -> DraftTensor:
    """Return the tensor of constant integers.

    Args:
        draft: the subgraph under construction.
        value: the constant.
        kind: the element type that kernels take.
        shift: how much lower the integers lie in that type.
        quantization: what they mean there.
    """
    tensor = value.const_value
    assert tensor is not None
    name = draft.unique(value.name or "constant")
    if shift:
        signed = np.int8 if kind == TensorType.INT8 else np.int16
        lowered: NDArray[Any] = (tensor.numpy().astype(np.int32) - shift).astype(signed)
        data = np.frombuffer(lowered.tobytes(), np.uint8)
        return DraftTensor(name, kind, lowered.shape, data, lowered, quantization)
    array = tensor.numpy() if tensor.size <= SMALL and kind != TensorType.INT4 else None
    return DraftTensor(name, kind, tensor_dims(value), TensorContent(tensor), array, quantization)
