"""Definitions of operators of com.microsoft that each stand for several of the standard.

FusedConv(x, w, b, z)            ->  Relu(Add(Conv(x, w, b), z))
DynamicQuantizeMatMul(x, w, s)   ->  MatMul((integers - zero) * scale, DequantizeLinear(w, s))
EmbedLayerNormalization(words)   ->  SkipLayerNormalization(Gather(table, words), …)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.definition_body import DefinitionBody, definition_by
from relayout.formats.tflite.exporting.draft import known
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.graph.domains import CONVOLUTION, INTERNAL_NHWC, MICROSOFT

CONVOLUTION_DOMAINS = {(MICROSOFT, "FusedConv"): "", (INTERNAL_NHWC, CONVOLUTION): INTERNAL_NHWC}
"""A convolution with an activation -> the domain of the convolution alone."""
ACTIVATION, PARAMETERS = "activation", "activation_params"
SUMMAND = 3  # the operand that is added to the result before the activation
PARAMETERS_OF: Mapping[str, tuple[str, ...]] = {  # activation -> what its parameters are, in order
    "": (),
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}
OPERANDS = ("Clip",)  # activations whose parameters are operands; those of others are attributes
DYNAMIC = 11  # the version of the standard that brings DynamicQuantizeLinear
IN_BLOCKS = 21  # the version from which on a DequantizeLinear has a scale for each block
WHOLE_BYTE = 8
SIGNED_TYPES = {
    4: ir.DataType.INT4.numpy(),
    8: ir.DataType.INT8.numpy(),
}  # bits of an integer -> the signed type that holds it


def _fused_conv(body: DefinitionBody) -> None:
    """Conv, Add and the activation."""
    domain = CONVOLUTION_DOMAINS[body.node.domain, body.node.op_type]
    operands = [f"x{slot}" if body.has(slot) else "" for slot in range(len(body.node.inputs))]
    result = body.add(CONVOLUTION, *operands[:SUMMAND], domain=domain)
    body.take_attributes(ACTIVATION, PARAMETERS)
    if body.has(SUMMAND):
        result = body.add("Add", result, operands[SUMMAND])
    _activate(body, result, body.numbers(PARAMETERS))


def _fused_gemm(body: DefinitionBody) -> None:
    """Gemm and the activation."""
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    operands = [f"x{slot}" for slot in range(3) if body.has(slot)]
    result = body.add("Gemm", *operands)
    body.take_attributes(ACTIVATION, *names)
    count = len(PARAMETERS_OF.get(body.text(ACTIVATION), ()))  # further ones mean nothing
    _activate(body, result, [body.number(name) for name in names[:count] if name in body.node.attributes])


def _activate(body: DefinitionBody, result: str, parameters: list[float]) -> None:
    """Give a result behind the activation that an attribute names."""
    activation = body.text(ACTIVATION)
    names = PARAMETERS_OF.get(activation)
    if names is None or len(names) != len(parameters):
        raise Unwritable(f"activation {activation!r} with {len(parameters)} parameters")
    if activation in OPERANDS:
        result = body.add(activation, result, *map(body.single, parameters))
    elif activation:
        result = body.add(activation, result)
        pairs = zip(names, parameters, strict=True)
        body.nodes[-1].attribute.extend(onnx.helper.make_attribute(*pair) for pair in pairs)
    body.give(result)


def _matmul_integer_to_float(body: DefinitionBody) -> None:
    """MatMul of the real numbers, and Add."""
    left, right = body.real_numbers("x0", 2, 4), body.weights(1, 3, 5)
    _product(body, left, right, 6)


def _dynamic_quantize_matmul(body: DefinitionBody) -> None:
    """DynamicQuantizeLinear, MatMul of the real numbers, and Add."""
    body.require_opset(DYNAMIC)
    parts = ["integers", "scale", "zero"]
    body.nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", ["x0"], parts))
    integers, scale, zero = parts
    left = body.add("Cast", integers, to=onnx.TensorProto.FLOAT)
    left = body.add("Sub", left, body.add("Cast", zero, to=onnx.TensorProto.FLOAT))
    _product(body, body.add("Mul", left, scale), body.weights(1, 2, 3), 4)


def _product(body: DefinitionBody, left: str, right: str, bias: int) -> None:
    product = body.add("MatMul", left, right)
    body.give(body.add("Add", product, f"x{bias}") if body.has(bias) else product)


def _embed_layer_normalization(body: DefinitionBody) -> None:
    """Gathers, Add and SkipLayerNormalization; ReduceSum of a mask."""
    if len(body.dims(0)) != 2 or len(body.dims(2)) != 2:
        raise Unwritable("words or a table that are no matrices")
    words = body.add("Gather", "x2", "x0")
    if body.has(8):
        places = body.add("Gather", "x3", "x8")
    elif isinstance(length := body.dims(0)[1], int):
        places = body.reshape(body.part("x3", 0, 0, length), 1, length, -1)
    else:
        raise Unwritable("positions that count the words of an open extent")
    skip = places
    if body.has(1) and body.has(4):
        words, skip = body.add("Add", words, places), body.add("Gather", "x4", "x1")
    outputs = ["normalized", "", "", "sum"]
    node = onnx.helper.make_node("SkipLayerNormalization", [words, skip, "x5", "x6"], outputs, domain=MICROSOFT)
    node.attribute.append(onnx.helper.make_attribute("epsilon", body.number("epsilon", 1e-12)))
    body.nodes.append(node)
    body.give("normalized")
    body.give("sum", 2)
    if body.gives(1):
        body.give(_word_counts(body), 1)


def _word_counts(body: DefinitionBody) -> str:
    """Count the words that a mask shows in each row, `batch`; zeros without a mask."""
    mask = body.add("Cast", "x7" if body.has(7) else "x0", to=onnx.TensorProto.FLOAT)
    shown = body.add("Equal", mask, body.single(1.0 if body.has(7) else -1.0))
    counts = body.reduce("ReduceSum", body.add("Cast", shown, to=onnx.TensorProto.FLOAT), 1)
    return body.reshape(body.add("Cast", counts, to=onnx.TensorProto.INT32), -1)


def _gather_block_quantized(body: DefinitionBody) -> None:
    """Gather of what DequantizeLinear makes of blocks."""
    body.require_opset(IN_BLOCKS)
    data, zeros = "x0", ["x3"] if body.has(3) else []
    if body.kind in (ir.DataType.UINT8, ir.DataType.UINT4):
        is_packed = body.kind == ir.DataType.UINT8
        bits = body.integer("bits", 4) if is_packed else 4
        if bits not in SIGNED_TYPES:
            raise Unwritable(f"weights of {bits} bits")
        data = _signed(body, body.required_constant(0, "weights in blocks"), bits, is_packed)
        if body.has(3):
            zeros = [_signed(body, body.required_constant(3, "the zero points of blocks"), bits, is_packed, 2)]
        else:  # bytes stand for numbers around their middle
            zeros = [body.const(np.full(known(body.dims(2)), 0 if is_packed else -(1 << bits - 1), SIGNED_TYPES[bits]))]
    axis, size = body.integer("quantize_axis", 1), body.integer("block_size", 128)
    real = body.add("DequantizeLinear", data, "x2", *zeros, axis=axis, block_size=size)
    body.give(body.add("Gather", real, "x1", axis=body.integer("gather_axis")))


def _signed(
    body: DefinitionBody,
    integers: NDArray[Any],
    bits: int,
    is_packed: bool,
    like: int | None = None,  # the operand that has as many in a row; None: bytes hold no more than there are
) -> str:
    """Add unsigned integers as signed ones, lower by half their range."""
    numbers = integers.astype(np.int16)
    if is_packed and bits < WHOLE_BYTE:  # along the last axis, the lowest bits first
        numbers = np.stack([numbers & 15, numbers >> 4], -1).reshape(*integers.shape[:-1], -1)
    if like is not None:
        numbers = numbers[..., : known(body.dims(like))[-1]]
    return body.const((numbers - (1 << bits - 1)).astype(SIGNED_TYPES[bits]))


WEIGHTS, RECURRENT, SCALES = 1, 2, 8
"""The quantized operands of an LSTM, and where their scales and zero points begin behind those of an LSTM."""


def _dynamic_quantize_lstm(body: DefinitionBody) -> None:
    """LSTM with the real numbers that its weights stand for.

    Kernels also round what is multiplied to 8 bits in each run, which an LSTM of real numbers does not.
    """
    operands = [f"x{slot}" if body.has(slot) else "" for slot in range(SCALES)]
    for place, slot in enumerate((WEIGHTS, RECURRENT)):
        operands[slot] = body.const(_real_weights(body, slot, SCALES + 2 * place))
    results = [f"y{slot}" if value.name else "" for slot, value in enumerate(body.node.outputs)]
    body.nodes.append(onnx.helper.make_node("LSTM", operands, results))
    body.take_attributes()


def _real_weights(body: DefinitionBody, slot: int, scale_slot: int) -> NDArray[np.float32]:
    """Return the weights of each direction as an LSTM has them, `d 4h i`, of integers, `d i 4h`."""
    slots = (slot, scale_slot, scale_slot + 1)
    integers, scale, zero_point = (body.required_constant(each, "a weight of an LSTM") for each in slots)
    if integers.ndim != 3 or scale.ndim not in (1, 2) or scale.shape != zero_point.shape:
        raise Unwritable("weights, scales and zero points that do not fit each other")
    scale, zero_point = (each.reshape(len(integers), 1, -1).astype(np.float32) for each in (scale, zero_point))
    real = (integers.astype(np.float32) - zero_point) * scale
    return np.ascontiguousarray(real.transpose(0, 2, 1))


DEFINITIONS: Mapping[str, Callable[[DefinitionBody], None]] = {
    "DynamicQuantizeLSTM": _dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "GatherBlockQuantized": _gather_block_quantized,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
}
"""Operator of com.microsoft -> what adds the nodes that compute it."""
FIRST = 7  # the first version of the standard whose convolutions and products are as they are today
fused_definition_of = definition_by((MICROSOFT,), DEFINITIONS, DefinitionBody, FIRST)
_activated_convolution = definition_by((INTERNAL_NHWC,), {CONVOLUTION: _fused_conv}, DefinitionBody, FIRST)


def internal_definition_of(node: ir.Node, imports: Mapping[str, int]) -> onnx.FunctionProto | None:
    """Return the function that a convolution with an activation is, on images with the channels last."""
    if (node.domain, node.op_type) not in CONVOLUTION_DOMAINS or not node.attributes.get_string(ACTIVATION, ""):
        return None
    return _activated_convolution(node, imports)
