"""What element types Transposes and Reshapes take: those that quantize to few bits came with later opsets."""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir

_PARTS = "INT4 UINT4 FLOAT4E2M1 INT2 UINT2"
PARTS = frozenset(ir.DataType[name] for name in _PARTS.split() if name in ir.DataType.__members__)
"""Types of which several elements lie in one byte."""


@cache
def is_transposed(dtype: ir.DataType | None, version: int) -> bool:
    """Whether Transpose takes elements of a type in an opset: floats of 8 bits from opset 21 on only."""
    if dtype in (None, ir.DataType.UNDEFINED):
        return True
    try:
        schema = onnx.defs.get_schema("Transpose", version, "")
    except onnx.defs.SchemaError:
        return True
    return f"tensor({str(dtype).lower()})" in schema.inputs[0].types


@cache
def is_reshaped(dtype: ir.DataType | None, version: int) -> bool:
    """Tell whether elements of a type may be reshaped: none that Transpose does not take, and no parts of bytes."""
    return is_transposed(dtype, version) and dtype not in PARTS
