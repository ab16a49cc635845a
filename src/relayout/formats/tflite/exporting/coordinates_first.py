"""NonZero as the builtin that lists coordinates row by row, before layouts are chosen.

NonZero(x)  ->  Transpose(tflite:WHERE(Cast<bool>(x)))

The Transpose is a view then, as any other: one behind it cancels out, and one that remains is in the report.
"""

from __future__ import annotations

import onnx_ir as ir

from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.graph.source_names import added, stands_for
from relayout.graph.subgraphs import all_nodes
from relayout.graph.value_names import Names


def list_coordinates_first(model: ir.Model, names: Names) -> None:
    """Write each NonZero of a tensor with axes so, in place."""
    for node in list(all_nodes(model.graph)):
        operand = node.inputs[0] if node.op_type == "NonZero" and node.domain in ("", "ai.onnx") else None
        if operand is None or operand.shape is None or operand.dtype is None or not len(operand.shape):
            continue
        _lower(node, operand, names)


def _lower(node: ir.Node, operand: ir.Value, names: Names) -> None:
    graph, (result,), shape = node.graph, node.outputs, operand.shape
    assert graph is not None
    assert shape is not None
    count = None if result.shape is None else result.shape[1]
    if operand.dtype != ir.DataType.BOOL:
        cast = ir.Node("", "Cast", [operand], [ir.AttrInt64("to", int(ir.DataType.BOOL))])
        operand = _added(cast, node, f"{result.name}/truth", names)
        operand.shape, operand.type = shape, ir.TensorType(ir.DataType.BOOL)
    where = ir.Node(DOMAIN, "WHERE", [operand])
    rows = _added(where, node, f"{result.name}/rows", names)
    rows.shape, rows.type = ir.Shape([count, len(shape)]), ir.TensorType(ir.DataType.INT64)
    node.op_type, node.version = "Transpose", None
    node.replace_input_with(0, rows)
    node.attributes["perm"] = ir.AttrInt64s("perm", [1, 0])
    added(node)


def _added(made: ir.Node, node: ir.Node, name: str, names: Names) -> ir.Value:
    """Put a node before the one that it stands for, and return its result."""
    (value,) = made.outputs
    value.name, made.name = names.unique(name), names.unique(f"{node.name or node.op_type}/{made.op_type}")
    stands_for(made, node)
    stands_for(value, node.outputs[0])
    assert node.graph is not None
    node.graph.insert_before(node, made)
    return value
