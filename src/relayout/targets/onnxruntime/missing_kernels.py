"""Element types for which ONNX Runtime has no kernel, and the types that are computed with in their place.

The standard allows more types than the runtime has kernels for, in 1.23, the first that results are to run on. A node
of such a type is written between two Casts; the type in between holds every value of the other, or, where nothing but
whole elements is moved, the same bits.
"""

from __future__ import annotations

import onnx_ir as ir

_BOOL, _FLOAT, _DOUBLE = ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.DOUBLE
_I8, _I16, _I32, _I64 = ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64
_U8, _U16, _U32, _U64 = ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64

_SHORT = {_I16: _I32, _U16: _I32}
_NARROW = {_I8: _I32, _U8: _I32, **_SHORT, _U32: _I64}

IN_PLACE_OF: dict[str, dict[ir.DataType, ir.DataType]] = {
    "ArgMax": {**_SHORT, _BOOL: _U8, _U32: _I64},
    "ArgMin": {**_SHORT, _BOOL: _U8, _U32: _I64},
    "Clip": _SHORT,
    "CumSum": {**_NARROW, _U64: _I64},
    "Max": {**_SHORT, _BOOL: _U8},
    "MaxPool": {_I16: _FLOAT, _U16: _FLOAT, _I32: _DOUBLE, _U32: _DOUBLE},
    "Min": {**_SHORT, _BOOL: _U8},
    "NonZero": {_I8: _I64, **_SHORT, _U32: _I64, _U64: _I64},
    "Pad": _SHORT,
    "Range": {_I8: _I32, _U8: _I32, **_SHORT, _U32: _I64, _U64: _I64},
    "ReduceMax": {**_SHORT, _U32: _I64},
    "ReduceMin": {**_SHORT, _U32: _I64},
    "ReduceProd": {**_NARROW, _U64: _I64},
    "ReduceSum": {**_NARROW, _U64: _I64},
    "Resize": {**_SHORT, _BOOL: _U8, _U32: _I32},
    "TopK": {_U16: _I32, _U32: _I64, _BOOL: _U8},
    "Where": {_I8: _I32, **_SHORT, _U64: _I64, _BOOL: _U8},
}
"""ONNX operator -> the types that its kernel does not take -> what stands in for them."""
