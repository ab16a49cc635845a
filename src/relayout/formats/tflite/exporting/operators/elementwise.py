"""Operators on each element by itself."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport
from relayout.formats.tflite.exporting.registry import described, exporter
from relayout.formats.tflite.exporting.steps import Steps


def _one(op: NodeExport, builtin: str) -> None:
    op.result(builtin, [op.input(0)])


def _two(op: NodeExport, builtin: str) -> None:
    op.result(builtin, [op.input(0), op.input(1)])


UNARY = {
    "Ceil": "CEIL",
    "Cos": "COS",
    "Exp": "EXP",
    "Floor": "FLOOR",
    "HardSwish": "HARD_SWISH",
    "Log": "LOG",
    "Neg": "NEG",
    "Not": "LOGICAL_NOT",
    "Relu": "RELU",
    "Round": "ROUND",
    "Sigmoid": "LOGISTIC",
    "Sin": "SIN",
    "Sqrt": "SQRT",
    "Tanh": "TANH",
}
"""ONNX's operator -> the builtin."""

for _name, _builtin in UNARY.items():
    exporter(_name)(described(partial(_one, builtin=_builtin), _name.lower(), f"{_builtin}."))


@exporter("Abs")
def absolute(op: NodeExport) -> None:
    """ABS; of 64 bits MAXIMUM of the operand and its negation, unsigned integers as they are."""
    operand, steps = op.input(0), Steps(op)
    if operand.type.name.startswith("UINT"):
        op.give(operand)
    elif operand.type == TensorType.INT64:
        steps.give(steps.maximum(operand, steps.each("NEG", operand)))
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
    low = op.emit("MINIMUM", [operand, op.real(1, operand)], operand.dims)
    if np.issubdtype(NUMPY[operand.type], np.signedinteger):
        low = op.emit("MAXIMUM", [low, op.real(-1, operand)], operand.dims)
    op.give(low)


@exporter("Erf")
def erf(op: NodeExport) -> None:
    """GELU divided by its operand; a product near 0."""
    operand = op.input(0)
    op.give(_erf(op, operand))


def _erf(op: NodeExport, operand: DraftTensor) -> DraftTensor:
    """`erf(x) = 2 gelu(sqrt(2) x) / (sqrt(2) x) - 1`, by the kernel that computes it best; 0 at 0."""
    dims = operand.dims
    # gelu(z) = z/2 (1 + erf(z / sqrt 2)). With z = sqrt(2) x, away from 0: erf(x) = 2 gelu(z) / z - 1.
    tiny = 1e-3
    wide = op.emit("MUL", [operand, op.real(math.sqrt(2), operand)], dims)
    small = op.emit("LESS", [op.emit("ABS", [operand], dims), op.real(tiny, operand)], dims, TensorType.BOOL)
    safe = op.emit("SELECT_V2", [small, op.real(1.0, operand), wide], dims, operand.type)
    doubled = op.emit("MUL", [op.emit("GELU", [safe], dims), op.real(2.0, operand)], dims)
    far = op.emit("SUB", [op.emit("DIV", [doubled, safe], dims), op.real(1.0, operand)], dims)
    near = op.emit("MUL", [operand, op.real(2 / math.sqrt(math.pi), operand)], dims)
    return op.emit("SELECT_V2", [small, near, far], dims, operand.type)


# Two operands


def stretched(op: NodeExport, *tensors: DraftTensor) -> Dims:
    """Return the extents of what several operands stretch to."""
    rank = max(len(tensor.dims) for tensor in tensors)
    columns = zip(*((1,) * (rank - len(tensor.dims)) + tensor.dims for tensor in tensors), strict=True)
    return tuple(next((dim for dim in column if dim != 1), 1) for column in columns)


BINARY = {
    "Add": "ADD",
    "And": "LOGICAL_AND",
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_EQUAL",
    "Less": "LESS",
    "LessOrEqual": "LESS_EQUAL",
    "Mul": "MUL",
    "Or": "LOGICAL_OR",
    "Sub": "SUB",
    "Xor": "NOT_EQUAL",
}
"""ONNX's operator -> the builtin."""

for _name, _builtin in BINARY.items():
    exporter(_name)(described(partial(_two, builtin=_builtin), _name.lower(), f"{_builtin}."))


def _variadic(op: NodeExport, builtin: str) -> None:
    tensors = op.inputs()
    result = tensors[0]
    if len(tensors) == 1:
        op.give(result)
        return
    for tensor in tensors[1:-1]:
        result = op.emit(builtin, [result, tensor], stretched(op, result, tensor))
    op.result(builtin, [result, tensors[-1]])


for _name, _builtin in {"Max": "MAXIMUM", "Min": "MINIMUM", "Sum": "ADD"}.items():
    exporter(_name)(described(partial(_variadic, builtin=_builtin), _name.lower(), f"{_builtin}, pair by pair."))


@exporter("Mean")
def mean(op: NodeExport) -> None:
    """ADD, pair by pair, and MUL."""
    tensors = op.inputs()
    result = tensors[0]
    for tensor in tensors[1:]:
        result = op.emit("ADD", [result, tensor], stretched(op, result, tensor))
    op.result("MUL", [result, op.real(1.0 / len(tensors))])


@exporter("Where")
def where(op: NodeExport) -> None:
    """SELECT_V2."""
    op.result("SELECT_V2", [op.input(0), op.input(1), op.input(2)])


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
        op.result("EQUAL", [op.emit("ABS", [operand], operand.dims), infinity])
    elif positive or negative:
        op.result("EQUAL", [operand, infinity if positive else op.real(-np.inf, operand)])
    else:
        never = op.emit("NOT_EQUAL", [operand, operand], operand.dims, TensorType.BOOL)
        op.result("LOGICAL_AND", [never, op.const(np.array(False))])


@exporter("Cast")
def cast(op: NodeExport) -> None:
    """CAST; of numbers to truth values NOT_EQUAL with 0."""
    operand, kind, stored = op.input(0), op.output(0).type, op.stored_type()
    if stored == TensorType.FLOAT16 and op.value(0).dtype not in (ir.DataType.FLOAT16, ir.DataType.BOOL):
        half = op.emit("CAST", [operand], operand.dims, stored, in_data_type=operand.type, out_data_type=stored)
        op.result("CAST", [half], in_data_type=stored, out_data_type=kind)
    elif operand.type == kind:
        op.give(operand)
    elif kind == TensorType.BOOL:
        op.result("NOT_EQUAL", [operand, op.real(0, operand)])
    else:
        op.result("CAST", [operand], in_data_type=operand.type, out_data_type=kind)


@exporter("CastLike")
def cast_like(op: NodeExport) -> None:
    """CAST, as Cast is written."""
    cast(op)
