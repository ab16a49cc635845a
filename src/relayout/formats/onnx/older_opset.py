"""A model in an older opset: `--opset 13`, for tools that read no newer one.

1. An operator whose definition did not change since stays. So does one that says nothing new: attributes at their
   defaults are left out, and element types and operands are held to the older schema.
2. Axes that became operands become attributes again (ReduceMean before 18), and the like (`older_forms.py`).
3. A few operators that are younger become older ones (`older_operators.py`). All others are one error.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.formats.onnx.older_forms import ROWS
from relayout.formats.onnx.older_model import NewerError, OlderModel, owners_of
from relayout.formats.onnx.older_operators import DEFINITIONS, OlderSteps
from relayout.formats.onnx.operator_schemas import first_version, first_version_with, is_default, schema_of
from relayout.graph.subgraphs import all_nodes

IR_VERSIONS = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
"""Opset -> the IR version that came with it."""
WITH_FUNCTIONS = 8
"""The first IR version that has model-local functions."""
MOST_NAMED = 5


def to_older_opset(model: ir.Model, opset: int) -> None:
    """Write a model's operators as an older opset has them, in place.

    Args:
        model: the model; of another opset than this or an older one.
        opset: the version of ONNX's own domain, 13 or newer.

    Raises:
        LayoutError: operators that need a newer one: all of them, each with the reason and how many.
    """
    rewriting = _Rewriting(model, opset)
    for owner in owners_of(model):
        rewriting.older.owner = owner
        for node in list(all_nodes(owner)):
            if node.domain in ("", "ai.onnx"):
                rewriting.node(node)
    if rewriting.refused:
        listed = [f"{what} ×{count}" for what, count in rewriting.refused.items()]
        more = f"; and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
        raise LayoutError(f"--opset {opset}: a newer one is needed for {'; '.join(listed[:MOST_NAMED])}{more}")
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        imports[""] = opset
    model.ir_version = max(IR_VERSIONS[opset], WITH_FUNCTIONS if model.functions else 0)


class _Rewriting:
    def __init__(self, model: ir.Model, opset: int) -> None:
        self.older, self.current = OlderModel(model, opset), model.opset_imports.get("", opset)
        self.refused: dict[str, int] = {}

    def node(self, node: ir.Node) -> None:
        """Rewrite one node, or note why it cannot be."""
        try:
            self._rewrite(node)
        except NewerError as newer:
            reason = f"{node.op_type} ({newer})"
            self.refused[reason] = self.refused.get(reason, 0) + 1

    def _rewrite(self, node: ir.Node) -> None:
        now = schema_of(node, self.current)
        then = schema_of(node, self.older.opset)
        if now is None or (then is not None and then.since_version == now.since_version and node.op_type not in ROWS):
            return
        if then is None:
            if node.op_type not in DEFINITIONS:
                raise NewerError(f"from opset {first_version(node.op_type)} on")
            DEFINITIONS[node.op_type](OlderSteps(self.older, node))
            return
        row = ROWS.get(node.op_type)
        if row is not None:
            row(self.older, node)
        for name, attribute in list(node.attributes.items()):
            if name in then.attributes:
                continue
            if not is_default(now, name, attribute):
                raise NewerError(f"{name} {_shown(attribute)}, from opset {first_version_with(node.op_type, name)} on")
            del node.attributes[name]
        if len(node.inputs) < then.min_input or any(value is None for value in node.inputs[: then.min_input]):
            raise NewerError("an absent operand")
        if len(node.inputs) > then.max_input:
            raise NewerError(f"{len(node.inputs)} operands, where opset {self.older.opset} has {then.max_input}")
        _hold_types(node, then)


def _shown(attribute: ir.Attr) -> str:
    return str(attribute.value)[:40]


def _hold_types(node: ir.Node, schema: Any) -> None:
    """Refuse element types that the older schema does not have."""
    allowed = {each.type_param_str: set(each.allowed_type_strs) for each in schema.type_constraints}
    for values, formals in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for slot, value in enumerate(values):
            formal = formals[min(slot, len(formals) - 1)]
            name = None if value is None or value.type is None else _type_name(value.type)
            if name is not None and name not in allowed.get(formal.type_str, {formal.type_str}):
                raise NewerError(f"{name} as {formal.name}")


def _type_name(kind: ir.TypeProtocol) -> str:
    """Return a type as schemas write it: `seq(tensor(float))`."""
    if isinstance(kind, ir.SequenceType):
        return f"seq({_type_name(kind.elem_type)})"
    if isinstance(kind, ir.OptionalType):
        return f"optional({_type_name(kind.elem_type)})"
    return f"tensor({kind.dtype.name.lower()})"
