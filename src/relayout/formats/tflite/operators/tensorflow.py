"""Operators of TensorFlow that TFLite does not have, or not for such operands: they are left to the Flex delegate."""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.builder import Dim, dims
from relayout.formats.tflite.nodedef import NodeDef
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.elementwise import binary_of_reals, unary_of_reals
from relayout.formats.tflite.operators.slicing import LAST, cut, joined
from relayout.formats.tflite.operators.strided import strided_slice
from relayout.formats.tflite.registry import Unsupported, operator

_ONE = ("Abs", "Atan", "Ceil", "Cosh", "Erf", "Exp", "Floor", "Log", "Neg", "Sign", "Sinh", "Softsign", "Sqrt", "Tan")
"""Operators of one operand, by ONNX's names, too. Some are TFLite's own, but not of 64 bits."""

_TWO = {"AddV2": "Add", "Maximum": "Max", "Minimum": "Min", "Mul": "Mul", "Pow": "Pow", "RealDiv": "Div", "Sub": "Sub"}
"""Operators of two operands that broadcast, of 64-bit reals -> ONNX's names."""

_EQUATION = re.compile(r"[A-Za-z]*(,[A-Za-z]*)*->[A-Za-z]*")
"""An Einsum's, without ellipses."""


for _name in _ONE:
    operator(f"CUSTOM Flex{_name}")(unary_of_reals(_name))
for _name, _op_type in _TWO.items():
    operator(f"CUSTOM Flex{_name}")(binary_of_reals(_op_type, ", broadcast from the right"))


@operator("CUSTOM FlexStridedSlice")
def flex_strided_slice(op: Operation) -> None:
    """As STRIDED_SLICE; so the converter leaves new axes among those of unknown extents."""
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    given = attributes(op)
    op.options = Table("StridedSliceOptions", 0, {**{name: given.number(name) for name in names}, "offset": False})
    strided_slice(op)


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
