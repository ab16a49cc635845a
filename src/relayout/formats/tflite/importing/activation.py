"""Activations fused into an operator: which clamp they are, and when a quantized range makes them redundant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType, TensorType
from relayout.formats.tflite.importing.registry import Unsupported

if TYPE_CHECKING:
    from relayout.formats.tflite.container.model import Quantization, Tensor
    from relayout.formats.tflite.importing.operation import Operation

_CLAMPS = {
    ActivationFunctionType.NONE: (-math.inf, math.inf),
    ActivationFunctionType.RELU: (0.0, math.inf),
    ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    ActivationFunctionType.RELU6: (0.0, 6.0),
}
_RANGES = {TensorType.INT8: (-128, 127), TensorType.UINT8: (0, 255), TensorType.INT16: (-32768, 32767)}


def clamp(fused: int) -> tuple[float, float]:
    """Return the interval that an activation clamps to."""
    try:
        return _CLAMPS[ActivationFunctionType(fused)]
    except (KeyError, ValueError):
        # The kernels ignore TANH and SIGN_BIT, or refuse them: nobody means what they would do.
        name = ActivationFunctionType(fused).name if fused in list(ActivationFunctionType) else str(fused)
        raise Unsupported(f"fused activation {name}, which the kernels ignore or refuse") from None


def needed(fused: int, tensor: Tensor, quantization: Quantization | None) -> tuple[float, float]:
    """Return the part of a clamp that the quantized range does not imply; infinite where nothing is left to do.

    The kernels clamp integers between round(low / scale) + zero_point and round(high / scale) + zero_point; an end at
    or beyond the type's own end does nothing that saturation does not do.
    """
    low, high = clamp(fused)
    if quantization is None or quantization.per_channel or tensor.type not in _RANGES:
        return low, high
    least, greatest = _RANGES[tensor.type]
    scale, zero_point = float(quantization.scale[0]), int(quantization.zero_point[0])
    if scale <= 0:
        return low, high
    if low / scale + zero_point < least + 0.5:
        low = -math.inf
    if high / scale + zero_point >= greatest - 0.5:
        high = math.inf
    return low, high


def apply_stored(
    operation: Operation, value: ir.Value, fused: int, tensor: Tensor, quantization: Quantization
) -> ir.Value:
    """Clamp integers, as the kernels do: each end is the integer nearest to it, halves away from zero."""
    low, high = needed(fused, tensor, quantization)
    scale, zero_point = float(quantization.scale[0]), int(quantization.zero_point[0])
    low, high = (end if math.isinf(end) else zero_point + _steps(end, scale) for end in (low, high))
    return value if math.isinf(low) and math.isinf(high) else clip(operation, value, low, high)


def _steps(end: float, scale: float) -> float:
    """Return how many steps of a scale the end of a clamp is from 0; halves round away from it."""
    return math.copysign(math.floor(abs(end / scale) + 0.5), end)


def emit_activation(
    operation: Operation, value: ir.Value, fused: int, tensor: Tensor, quantization: Quantization | None
) -> ir.Value:
    """Emit what is needed of an activation."""
    low, high = needed(fused, tensor, quantization)
    if (low, high) == (-math.inf, math.inf):
        return value
    if value.dtype in (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16):
        raise Unsupported("an activation on integers without a scale, for which the kernel takes 0")
    if quantization is not None and not quantization.per_channel:
        low, high = (_at_tie(end, float(quantization.scale[0])) for end in (low, high))
    if (low, high) == (0.0, math.inf) and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32):
        return operation.emit("Relu", [value])
    return clip(operation, value, low, high)


def _at_tie(end: float, scale: float) -> float:
    """Return where a clamp ends, on the step above it if it lies midway between two: the kernels round away from 0."""
    if math.isinf(end) or scale <= 0:
        return end
    steps = _steps(end, scale)
    return end if steps == round(end / scale) else steps * scale


def clip(operation: Operation, value: ir.Value, low: float, high: float) -> ir.Value:
    """Emit a Clip; an infinite end is left open."""
    if value.dtype == ir.DataType.UINT32:
        low = -math.inf if low <= 0 else low
        if math.isinf(low) and math.isinf(high):
            return value
    ends = [
        None if math.isinf(end) else operation.builder.array(operation.hint(name), np.array(end, value.dtype.numpy()))
        for name, end in (("min", low), ("max", high))
        if value.dtype is not None
    ]
    return operation.emit("Clip", [value, *ends])
