"""Operands of two element types where ONNX has one: no runtime runs such a node, and LiteRT would refuse the file."""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir


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
