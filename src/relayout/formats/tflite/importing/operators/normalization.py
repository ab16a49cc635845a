"""Operators that relate an element to its neighbours along the last axis."""

from __future__ import annotations

import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.registry import operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST


@operator("SOFTMAX", options="SoftmaxOptions")
def softmax(op: Operation) -> None:
    """Softmax of beta times x, always over the last axis; of 16 bits by tables; of one integer 1."""
    beta = op.options.beta
    quantization = op.tensors.quantization(op.input(0))
    if op.input(0).type == TensorType.INT16 and quantization is not None:
        from relayout.formats.tflite.importing.operators.tabulated import scale_and_zero_point
        from relayout.formats.tflite.importing.operators.tabulated import softmax as tabulated_softmax

        tabulated_softmax(op, scale_and_zero_point(quantization)[0], beta)
        return
    x = op.real(0)
    if beta != 1:
        x = op.each("Mul", x, op.number(beta, x, "beta"))
    if quantization is not None and dims(x)[-1] == 1:
        # All ones. ONNX Runtime's kernel on integers does not saturate then: 256 steps are 0.
        op.result(op.each("Exp", op.each("Sub", x, x)))
        return
    op.result(op.each("Softmax", x, axis=-1))


@operator("LOG_SOFTMAX")
def log_softmax(op: Operation) -> None:
    """LogSoftmax over the last axis."""
    op.result(op.each("LogSoftmax", op.real(0), axis=-1))


@operator("L2_NORMALIZATION", options="L2NormOptions")
def l2_normalization(op: Operation) -> None:
    """X over its length along the last axis, which counts as 1e-6 at least (LpNormalization has no such floor)."""
    x = op.real(0)
    shape: Dims = (*dims(x)[:-1], 1)
    length = op.emit("ReduceL2", [x, op.ints([-1])], shape, keepdims=1)
    floored = op.each("Max", length, op.number(1e-6, x, "least"))
    op.result(op.each("Div", x, floored), fused=op.options.fused_activation_function)


@operator("LOCAL_RESPONSE_NORMALIZATION", options="LocalResponseNormalizationOptions")
def local_response_normalization(op: Operation) -> None:
    """LRN over a window of `2 * radius + 1` channels; ONNX divides alpha by that size, TFLite does not."""
    op.require_rank(0, 4)
    options, x = op.options, op.real(0, TO_FIRST)
    size = 2 * options.radius + 1
    y: ir.Value = op.each("LRN", x, size=size, alpha=options.alpha * size, beta=options.beta, bias=options.bias)
    op.result(y, perm=TO_LAST)
