"""Operators of TensorFlow that TFLite does not have, or not for such operands: they are left to the Flex delegate."""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.nodedef import NodeDef
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import one, two, unary_of_reals
from relayout.formats.tflite.importing.operators.gathering import gather
from relayout.formats.tflite.importing.operators.slicing import LAST, cut, joined, unsqueeze
from relayout.formats.tflite.importing.registry import Translation, Unsupported, described, operator

_ONE = ("Reciprocal", "Selu", "Softmax", "Softplus", "Softsign")
"""Operators of one operand, by ONNX's names, too."""

_OF_FLOATS = ("Atan", "Cosh", "Erf", "Sinh", "Tan")
"""The same, of 32-bit reals only."""

_EQUATION = re.compile(r"[A-Za-z]*(,[A-Za-z]*)*->[A-Za-z]*")
"""An Einsum's, without ellipses."""


def _of_floats(op_type: str) -> Translation:
    def translate(op: Operation) -> None:
        if op.input(0).type == TensorType.FLOAT64:
            raise Unsupported("FLOAT64, for which ONNX Runtime has no kernel")
        op.result(one(op, op_type, op.real(0)))

    return described(translate, op_type.lower(), f"{op_type}.")


for _name in _ONE:
    operator(f"CUSTOM Flex{_name}")(unary_of_reals(_name))
for _name in _OF_FLOATS:
    operator(f"CUSTOM Flex{_name}")(_of_floats(_name))


@operator("CUSTOM FlexEinsum")
def einsum(op: Operation) -> None:
    """Einsum."""
    equation = attributes(op).text("equation").replace(" ", "")
    terms, _, result = equation.partition("->")
    values = [op.stored(i) for i in range(len(op.operator.inputs))]
    fits = terms.count(",") + 1 == len(values) and set(result) <= set(terms)
    if not (fits and _EQUATION.fullmatch(equation)):
        raise Unsupported("an equation that is no list of axes by letters")
    extents: dict[str, Dim] = {}
    for letters, value in zip(terms.split(","), values, strict=True):
        if len(letters) == len(dims(value)):  # of what a branch gives, the file may not know the rank
            extents.update((a, d) for a, d in zip(letters, dims(value), strict=True) if extents.get(a) in (None, 1))
    op.result(op.emit("Einsum", values, tuple(extents.get(axis) for axis in result), equation=equation))


def attributes(op: Operation) -> NodeDef:
    """Those of TensorFlow's operator."""
    return NodeDef(np.asarray(op.operator.custom_options).tobytes(), op.place)


@operator("CUSTOM FlexRoll")
def roll(op: Operation) -> None:
    """Concat of two Slices for each axis: the end comes to the front."""
    x = op.stored(0)
    shifts, axes = op.integers(1), op.integers(2)
    if len(shifts) != len(axes):
        raise ReadError(f"{len(shifts)} shifts of {len(axes)} axes", where=op.place)
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(op, x, shift, op.axis(axis, len(dims(x))))
    op.result(x)


def _rolled(op: Operation, x: ir.Value, shift: int, axis: int) -> ir.Value:
    extent = dims(x)[axis]
    if isinstance(extent, int):
        at = -shift % max(extent, 1)
        return joined(op, [cut(op, x, [at], [LAST], [axis]), cut(op, x, [0], [at], [axis])], axis) if at else x
    # The shift may be longer than the axis, and the axis empty.
    extents = op.emit("Shape", [x], (1,), ir.DataType.INT64, start=axis, end=axis + 1)
    extents = op.emit("Max", [extents, op.ints([1], "one")], (1,))
    place = op.emit("Mod", [op.ints([-shift], "shift"), extents], (1,))
    shape = (*dims(x)[:axis], None, *dims(x)[axis + 1 :])
    bounds = ((place, op.ints([LAST], "last")), (op.ints([0], "first"), place))
    parts = [op.emit("Slice", [x, *both, op.ints([axis], "axis")], shape) for both in bounds]
    return op.emit("Concat", parts, dims(x), axis=axis)


@operator("CUSTOM FlexGatherV2")
def gather_v2(op: Operation) -> None:
    """As GATHER, whose axis is an operand."""
    (axis,) = op.integers(2, 1)
    op.options = Table("GatherOptions", 0, {"axis": axis, "batch_dims": attributes(op).number("batch_dims")})
    gather(op)


@operator("CUSTOM FlexConcatV2")
def concat_v2(op: Operation) -> None:
    """Concat; the axis is the last operand."""
    count = len(op.operator.inputs) - 1
    if count < 1:
        raise ReadError("nothing to concatenate", where=op.place)
    (axis,), parts = op.integers(count, 1), [op.stored(i) for i in range(count)]
    op.result(joined(op, parts, op.axis(axis, len(dims(parts[0])))))


@operator("CUSTOM FlexBiasAdd")
def bias_add(op: Operation) -> None:
    """Add to each channel; with channels first the bias has axes of 1 behind."""
    x, bias = op.stored(0), op.stored(1)
    if len(dims(x)) < 2 or len(dims(bias)) != 1:
        raise ReadError(f"a bias of shape {list(dims(bias))} for {list(dims(x))}", where=op.place)
    if attributes(op).text("data_format").startswith("NC"):
        bias = unsqueeze(op, bias, range(1, len(dims(x)) - 1)) if len(dims(x)) > 2 else bias
    op.result(two(op, "Add", x, bias))
