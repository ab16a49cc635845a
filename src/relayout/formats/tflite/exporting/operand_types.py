"""Operands that do not fit each other, in type or extents: LiteRT would refuse the file."""

from __future__ import annotations

from functools import cache
from itertools import zip_longest

import onnx
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft
from relayout.formats.tflite.exporting.registry import Unwritable

_NAMES = """
    ADD ATAN2 DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM
    MUL NOT_EQUAL POW SELECT_V2 SQUARED_DIFFERENCE SUB
"""
ELEMENTWISE = frozenset(_NAMES.split())
"""Builtins whose operands broadcast."""
NUMBERS = frozenset({TensorType.FLOAT32, TensorType.INT8, TensorType.UINT8, TensorType.INT16})
"""Types of what kernels of quantized integers compute with; the others are indices, extents and biases."""


def mixed_types(node: ir.Node, version: int) -> str:
    """Return the reason why a node cannot be run, by the types of its operands; empty if there is none.

    Args:
        node: an operator of the standard; for others nothing is known.
        version: the opset.
    """
    kinds = [None if value is None else value.dtype for value in node.inputs]
    if node.domain not in ("", "ai.onnx") or len({*kinds} - {None}) < 2:
        return ""
    found: dict[str, ir.DataType] = {}
    for variable, kind in zip(_variables(node.op_type, version, len(kinds)), kinds, strict=False):
        if variable and kind is not None and found.setdefault(variable, kind) != kind:
            return f"operands of {found[variable].name} and {kind.name}, which ONNX wants to be of one type"
    return ""


@cache
def _variables(op_type: str, version: int, count: int) -> tuple[str, ...]:
    """Return the name of each operand's type; empty where its type is a fixed one, or any."""
    try:
        schema = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return ()
    named = {constraint.type_param_str for constraint in schema.type_constraints}
    formal = [each.type_str if each.is_homogeneous and each.type_str in named else "" for each in schema.inputs]
    is_open = bool(schema.inputs) and schema.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return (*formal, *(formal[-1:] * (count - len(formal)) if is_open else ()))


def require_broadcast(draft: Draft, begin: int) -> None:
    """Refuse elementwise operators whose operands do not broadcast: LiteRT would not run the file.

    Args:
        draft: the graph.
        begin: the first operator to look at.

    Raises:
        Unwritable: two operands have other extents along an axis, and neither is 1.
    """
    for operator in draft.operators[begin:]:
        if operator.name not in ELEMENTWISE:
            continue
        dims = [tensor.dims for tensor in operator.inputs if tensor is not None]
        for along in zip_longest(*(reversed(each) for each in dims), fillvalue=1):
            extents = {extent for extent in along if isinstance(extent, int) and extent != 1}
            if len(extents) > 1:
                raise Unwritable(f"operands of {' and '.join(map(str, sorted(extents)))} elements along one axis")


def require_scales(draft: Draft, begin: int) -> None:
    """Refuse operators on quantized integers that read numbers without a scale: LiteRT ends the process there.

    Args:
        draft: the graph.
        begin: the first operator to look at.

    Raises:
        Unwritable: one reads real numbers, or integers without a scale.
    """
    for operator in draft.operators[begin:]:
        for tensor in operator.inputs:
            if tensor is not None and tensor.quantization is None and tensor.type in NUMBERS:
                raise Unwritable(f"{operator.name} on quantized integers reads {tensor.type.name} without a scale")
