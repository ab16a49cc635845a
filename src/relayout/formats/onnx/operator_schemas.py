"""Versions and defaults of operators, as ONNX's schemas of all opsets state them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
import onnx_ir as ir


def schema_of(node: ir.Node, opset: int) -> Any | None:
    """Return the schema of a node in an opset; None where the opset has no such operator."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


def first_version(op_type: str) -> int:
    """Return the first opset that has an operator."""
    return min(int(schema.since_version) for schema in _schemas(op_type))


def first_version_with(op_type: str, name: str) -> int:
    """Return the first opset in which an operator has an attribute."""
    return min(int(schema.since_version) for schema in _schemas(op_type) if name in schema.attributes)


def _schemas(op_type: str) -> Iterable[Any]:
    every = onnx.defs.get_all_schemas_with_history()
    return (schema for schema in every if schema.name == op_type and schema.domain == "")


ONES = frozenset({"dilations"})
"""Attributes whose default is 1 along each axis, which schemas say in their text only."""


def is_default(schema: Any, name: str, attribute: ir.Attr) -> bool:
    """Return whether an attribute has the default of a schema."""
    default = schema.attributes[name].default_value if name in schema.attributes else None
    if default is None or not default.type:
        return name in ONES and set(attribute.value) == {1}
    return bool(ir.serde.deserialize_attribute(default).value == attribute.value)
