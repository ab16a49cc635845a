"""How values are written where ONNX Runtime computes with them: constants that it folds, and clamps of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, Tensor
from relayout.formats.tflite.importing import activation
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.extents import contents
from relayout.formats.tflite.importing.operation import BYTES_ONLY, FoldingOperation, Operation
from relayout.formats.tflite.importing.operators.shape import tiled_dims
from relayout.graph.domains import RESIZE


class OnnxRuntimeOperation(FoldingOperation):
    """An operator whose values are written as ONNX Runtime's optimizer and kernels take them best."""

    def real_constant(self, tensor: Tensor, quantization: Quantization, value: ir.Value, axis: int | None) -> ir.Value:
        """Return the real numbers of a constant beside which nothing is quantized, as Cast, Sub and Mul.

        They are DequantizeLinear's numbers to the last bit. ONNX Runtime folds these nodes when it loads a model, and a
        DequantizeLinear never: that would run each time, and the convolution behind it would have no constant kernel.
        """
        shape = [1] * len(dims(value))
        if axis is not None:
            shape[axis] = -1
        name = self.tensors.hint(tensor, "dequantized")
        value = self.emit("Cast", [value], dtype=ir.DataType.FLOAT, name=name, to=ir.DataType.FLOAT)
        for op_type, suffix, numbers in (
            ("Sub", "zero_point", quantization.zero_point.astype(np.float32)),
            ("Mul", "scale", quantization.scale),
        ):
            if np.any(numbers) or suffix == "scale":
                constant = self.builder.array(
                    self.tensors.hint(tensor, suffix), numbers.reshape(shape if axis is not None else ())
                )
                value = self.emit(op_type, [value, constant], name=name)
        return value

    def moves_integers(self, operands: Sequence[int], types: Sequence[TensorType]) -> bool:
        """Tell whether elements are moved by themselves: integers for which there is a kernel are."""
        return self.output().type in types

    def quantize(self, value: ir.Value, i: int = 0, *, perm: Sequence[int] | None = None, fused: int = 0) -> ir.Value:
        """Return the integers of result i; an activation clamps the integers.

        ONNX Runtime has no integer kernel where a clamp stands between an operator and its QuantizeLinear.
        """
        tensor = self.output(i)
        quantization = self.tensors.quantization(tensor)
        clamps = (
            quantization is not None
            and not quantization.per_channel
            and value.dtype == ir.DataType.FLOAT
            and tensor.type in BYTES_ONLY
        )
        if quantization is None or not clamps:
            return super().quantize(value, i, perm=perm, fused=fused)
        value = super().quantize(value, i, perm=perm)
        return activation.apply_stored(self, value, fused, tensor, quantization)


# Element types for which ONNX Runtime has no kernel, and the types that are computed with in their place.
#
# The standard allows more types than the runtime has kernels for, in 1.23, the first that results are to run on. A node
# of such a type is written between two Casts; the type in between holds every value of the other, or, where nothing but
# whole elements is moved, the same bits.

_BOOL, _FLOAT, _DOUBLE = ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.DOUBLE
_I8, _I16, _I32, _I64 = ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64
_U8, _U16, _U32, _U64 = ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64

_SHORT = {_I16: _I32, _U16: _I32}
_COMPARED = {**_SHORT, _BOOL: _U8}
_NARROW = {_I8: _I32, _U8: _I32, **_SHORT, _U32: _I64}

IN_PLACE_OF: dict[str, dict[ir.DataType, ir.DataType]] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _COMPARED | {_U32: _I64}),
    **dict.fromkeys(("Clip", "Pad"), _SHORT),
    **dict.fromkeys(("CumSum", "Range", "ReduceProd", "ReduceSum"), _NARROW | {_U64: _I64}),
    **dict.fromkeys(("Max", "Min"), _COMPARED),
    "MaxPool": {_I16: _FLOAT, _U16: _FLOAT, _I32: _DOUBLE, _U32: _DOUBLE},
    "NonZero": {_I8: _I64, **_SHORT, _U32: _I64, _U64: _I64},
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _SHORT | {_U32: _I64}),
    RESIZE: {**_COMPARED, _U32: _I32},
    "TopK": {_U16: _I32, _U32: _I64, _BOOL: _U8},
    "Where": {_I8: _I32, **_SHORT, _U64: _I64, _BOOL: _U8},
}
"""ONNX operator -> the types that its kernel does not take -> what stands in for them."""


def has_centred_weights(op: Operation, *types: TensorType) -> bool:
    """Tell whether operand 1 is a constant of some types around 0, with one scale or one along its first axis."""
    weights, quantization = op.input(1), op.tensors.quantization(op.input(1))
    return (
        weights.type in types
        and weights.data is not None
        and quantization is not None
        and not quantization.zero_point.any()
        and (not quantization.per_channel or quantization.axis == 0)
    )


def convolves_bytes(
    op: Operation,
    data: int = 0,  # the operand that is data
) -> bool:
    """Tell whether data and result of a convolution are bytes, and its weights constants of int8 around 0."""
    ends = (op.input(data), op.output())
    return (
        {tensor.type for tensor in ends} <= set(BYTES_ONLY)
        and all((q := op.tensors.quantization(tensor)) is not None and not q.per_channel for tensor in ends)
        and op.input(data).stated == TensorType.INT8
        and has_centred_weights(op, TensorType.INT8)
    )


# A few copies of a tensor along one axis as a Concat: of short rows ONNX Runtime does it in a sixth of Tile's time.

FEW = 8  # times that one Concat reads a tensor at most


def tile_as_concat(op: Operation) -> bool:
    """Hand over a TILE as a Concat of the same value, if one axis alone is repeated, a few times."""
    known = tuple(op.integers(1)) if op.is_constant(1) else contents(op.stored(1))
    repeated = [axis for axis, count in enumerate(known or ()) if count != 1]
    count = known[repeated[0]] if known is not None and len(repeated) == 1 else 0
    if not isinstance(count, int) or not 1 < count <= FEW:
        return False
    (x,), finish = op.carried(0)
    finish(op.emit("Concat", [x] * count, op.out_dims(tiled_dims(op, x, known)), axis=repeated[0]))
    return True
