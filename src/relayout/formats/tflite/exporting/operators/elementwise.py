"""Operators on each element by itself."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import BITS
from relayout.formats.tflite.exporting.draft import NUMPY, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import each_exporter, exporter
from relayout.formats.tflite.same_operators import ARITHMETIC, COMPARISONS, LOGICAL, UNARY

# Trigonometric and hyperbolic functions: those that have no builtin, from SIN, COS, ATAN2, EXP and LOG.


def _ones(op: NodeExport, like: DraftTensor) -> DraftTensor:
    """Return ones of a tensor's extents: ATAN2 stretches nothing."""
    return op.minimum(op.maximum(like, 1.0), 1.0)


@exporter("Tan")
def tan(op: NodeExport) -> None:
    """SIN divided by COS."""
    x = op.input(0)
    op.give(op.div(op.each("SIN", x), op.each("COS", x)))


@exporter("Atan")
def atan(op: NodeExport) -> None:
    """ATAN2 with 1."""
    x = op.input(0)
    op.give(op.each("ATAN2", x, _ones(op, x)))


@exporter("Asin")
def asin(op: NodeExport) -> None:
    """ATAN2 with the cosine, `sqrt((1 - x) (1 + x))`."""
    x = op.input(0)
    op.give(op.each("ATAN2", x, _cosine(op, x)))


@exporter("Acos")
def acos(op: NodeExport) -> None:
    """ATAN2 of the sine, `sqrt((1 - x) (1 + x))`."""
    x = op.input(0)
    op.give(op.each("ATAN2", _cosine(op, x), x))


def _cosine(op: NodeExport, x: DraftTensor) -> DraftTensor:
    return op.each("SQRT", op.mul(op.sub(1.0, x), op.add(x, 1.0)))


@each_exporter({"Sinh": "SUB"}, "Half the difference of EXP of the operand and of its negation.")
@each_exporter({"Cosh": "ADD"}, "Half the sum of EXP of the operand and of its negation.")
def _half_exponentials(op: NodeExport, builtin: str) -> None:
    """Combine exp(x) / 2 and exp(-x) / 2, each as a product of roots: exp(x) alone overflows earlier."""
    half = op.mul(op.input(0), 0.5)
    up, down = op.each("EXP", half), op.each("EXP", op.each("NEG", half))
    op.give(op.each(builtin, op.mul(op.mul(up, 0.5), up), op.mul(op.mul(down, 0.5), down)))


@exporter("Asinh")
def asinh(op: NodeExport) -> None:
    """LOG of the size and the root of its square and 1, with the operand's sign."""
    x = op.input(0)
    size = op.each("ABS", x)
    root = op.each("SQRT", op.add(op.mul(size, size), 1.0))
    op.give(op.mul(op.each("SIGN", x), op.each("LOG", op.add(size, root))))


@exporter("Acosh")
def acosh(op: NodeExport) -> None:
    """LOG of the operand and the root of its square less 1."""
    x = op.input(0)
    root = op.mul(op.each("SQRT", op.sub(x, 1.0)), op.each("SQRT", op.add(x, 1.0)))
    op.give(op.each("LOG", op.add(x, root)))


@exporter("Atanh")
def atanh(op: NodeExport) -> None:
    """Half the LOG of `(1 + x) / (1 - x)`."""
    x = op.input(0)
    op.give(op.mul(op.each("LOG", op.div(op.add(x, 1.0), op.sub(1.0, x))), 0.5))


_ALSO = {"EXP": "Exp", "LOG": "Log", "NEG": "Neg", "NOT_EQUAL": "Xor", "SELECT_V2": "Where", "TANH": "Tanh"}
"""Builtins that the importer reads otherwise."""


@each_exporter({v: k for k, v in {**UNARY, **ARITHMETIC, **LOGICAL, **COMPARISONS, **_ALSO}.items()}, "{}.")
def _literal(op: NodeExport, builtin: str) -> None:
    op.result(builtin, op.inputs())


@exporter("Abs")
def absolute(op: NodeExport) -> None:
    """ABS; of 64 bits MAXIMUM of the operand and its negation, unsigned integers as they are."""
    operand = op.input(0)
    if operand.type.name.startswith("UINT"):
        op.give(operand)
    elif operand.type == TensorType.INT64:
        op.give(op.maximum(operand, op.each("NEG", operand)))
    else:
        op.result("ABS", [operand])


@exporter("Identity")
def identity(op: NodeExport) -> None:
    """Nothing: its operand."""
    op.give(op.input(0))


@exporter("Reciprocal")
def reciprocal(op: NodeExport) -> None:
    """DIV."""
    op.result("DIV", [op.real(1.0), op.input(0)])


@exporter("Sign")
def sign(op: NodeExport) -> None:
    """SIGN."""
    operand = op.input(0)
    if operand.type in (TensorType.FLOAT32, TensorType.INT32):
        op.result("SIGN", [operand])
        return
    low = op.minimum(operand, 1)
    if np.issubdtype(NUMPY[operand.type], np.signedinteger):
        low = op.maximum(low, -1)
    op.give(low)


@exporter("Erf")
def erf(op: NodeExport) -> None:
    """GELU divided by its operand; a product near 0."""
    # gelu(z) = z/2 (1 + erf(z / sqrt 2)). With z = sqrt(2) x, away from 0: erf(x) = 2 gelu(z) / z - 1.
    operand = op.input(0)
    wide = op.mul(operand, math.sqrt(2))
    small = op.compare("LESS", op.each("ABS", operand), 1e-3)
    safe = op.select(small, 1.0, wide)
    far = op.sub(op.div(op.mul(op.each("GELU", safe), 2.0), safe), 1.0)
    near = op.mul(operand, 2 / math.sqrt(math.pi))
    op.give(op.select(small, near, far))


# Two operands


@each_exporter({"Max": "MAXIMUM", "Min": "MINIMUM", "Sum": "ADD"}, "{}, pair by pair.")
def _variadic(op: NodeExport, builtin: str) -> None:
    tensors = op.inputs()
    result = tensors[0]
    if len(tensors) == 1:
        op.give(result)
        return
    for tensor in tensors[1:-1]:
        result = op.each(builtin, result, tensor)
    op.result(builtin, [result, tensors[-1]])


@exporter("Mean")
def mean(op: NodeExport) -> None:
    """ADD, pair by pair, and MUL."""
    tensors = op.inputs()
    op.result("MUL", [reduce(op.add, tensors), op.real(1.0 / len(tensors))])


@exporter("IsNaN")
def is_nan(op: NodeExport) -> None:
    """NOT_EQUAL with itself."""
    operand = op.input(0)
    op.result("NOT_EQUAL", [operand, operand])


@exporter("IsInf")
def is_inf(op: NodeExport) -> None:
    """EQUAL with an infinity; with both, of the operand's size."""
    operand = op.input(0)
    positive, negative = op.integer("detect_positive", 1), op.integer("detect_negative", 1)
    infinity = op.real(np.inf, operand)
    if positive and negative:
        op.result("EQUAL", [op.each("ABS", operand), infinity])
    elif positive or negative:
        op.result("EQUAL", [operand, infinity if positive else op.real(-np.inf, operand)])
    else:
        never = op.compare("NOT_EQUAL", operand, operand)
        op.result("LOGICAL_AND", [never, op.const(np.array(False))])


@exporter("Cast")
def cast(op: NodeExport) -> None:
    """CAST; of numbers above 8 bits to truth values NOT_EQUAL with 0; of 64 bits to a sign or from one BITCAST."""
    operand, kind, stored = op.input(0), op.output(0).type, op.stored_type()
    if stored == TensorType.FLOAT16 and op.value(0).dtype not in (ir.DataType.FLOAT16, ir.DataType.BOOL):
        half = op.emit("CAST", [operand], operand.dims, stored, in_data_type=operand.type, out_data_type=stored)
        op.result("CAST", [half], in_data_type=stored, out_data_type=kind)
    elif operand.type == kind:
        op.give(operand)
    elif kind == TensorType.BOOL and BITS[operand.type] > 8:  # bytes have a meaning there, which CAST does not want
        op.result("NOT_EQUAL", [operand, op.real(0, operand)])
    elif {operand.type, kind} == {TensorType.INT64, TensorType.UINT64}:
        op.result("BITCAST", [operand])
    else:
        op.result("CAST", [operand], in_data_type=operand.type, out_data_type=kind)


@exporter("CastLike")
def cast_like(op: NodeExport) -> None:
    """CAST, as Cast is written."""
    cast(op)
