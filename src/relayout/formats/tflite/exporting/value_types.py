"""Element types and extents of ONNX values in the terms of a `.tflite` file."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims
from relayout.formats.tflite.exporting.registry import Unwritable

TYPES: Mapping[ir.DataType, TensorType] = {
    ir.DataType.FLOAT: TensorType.FLOAT32,
    ir.DataType.FLOAT16: TensorType.FLOAT16,
    ir.DataType.DOUBLE: TensorType.FLOAT64,
    ir.DataType.INT64: TensorType.INT64,
    ir.DataType.INT32: TensorType.INT32,
    ir.DataType.INT16: TensorType.INT16,
    ir.DataType.INT8: TensorType.INT8,
    ir.DataType.INT4: TensorType.INT4,
    ir.DataType.UINT8: TensorType.UINT8,
    ir.DataType.UINT16: TensorType.UINT16,
    ir.DataType.UINT32: TensorType.UINT32,
    ir.DataType.UINT64: TensorType.UINT64,
    ir.DataType.BOOL: TensorType.BOOL,
    ir.DataType.COMPLEX64: TensorType.COMPLEX64,
    ir.DataType.BFLOAT16: TensorType.BFLOAT16,
    ir.DataType.STRING: TensorType.STRING,
}


def stored_type(value: ir.Value) -> TensorType:
    """Return the type of a value's elements where it is an input or output of the file.

    Raises:
        Unwritable: TensorFlow Lite has none.
    """
    if value.dtype is None:
        raise Unwritable("the element type of an operand or result is not known")
    if value.dtype not in TYPES:
        raise Unwritable(f"elements of {value.dtype.name}")
    return TYPES[value.dtype]


def kernel_type(value: ir.Value) -> TensorType:
    """Return the type of a value's elements between operators: kernels compute half precision in single."""
    kind = stored_type(value)
    return TensorType.FLOAT32 if kind == TensorType.FLOAT16 else kind


def tensor_dims(value: ir.Value) -> Dims:
    """Return the extents of a value.

    Raises:
        Unwritable: its rank is not known.
    """
    if value.shape is None:
        raise Unwritable("the rank of an operand or result is not known")
    return tuple(
        dim if isinstance(dim, int) else str(dim.value or f"?{value.name}.{axis}")
        for axis, dim in enumerate(value.shape)
    )
