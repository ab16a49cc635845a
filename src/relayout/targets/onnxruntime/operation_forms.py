"""How values are written where ONNX Runtime computes with them: constants that it folds, and clamps of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, Tensor
from relayout.formats.tflite.importing import activation
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, FoldingOperation


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
        value = self.emit("Cast", [value], dims(value), ir.DataType.FLOAT, name=name, to=ir.DataType.FLOAT)
        for op_type, suffix, numbers in (
            ("Sub", "zero_point", quantization.zero_point.astype(np.float32)),
            ("Mul", "scale", quantization.scale),
        ):
            if np.any(numbers) or suffix == "scale":
                constant = self.builder.array(
                    self.tensors.hint(tensor, suffix), numbers.reshape(shape if axis is not None else ())
                )
                value = self.emit(op_type, [value, constant], dims(value), name=name)
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
