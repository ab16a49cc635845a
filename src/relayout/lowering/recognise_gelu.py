"""A GELU that is spelled out, as the operator.

x / sqrt(2) -> Erf -> + 1 -> * x -> * 0.5        (the last two in any order, or 0.5 on x)
"""

from __future__ import annotations

import math

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes
from relayout.lowering.constants import Constants
from relayout.lowering.fuse_epilogue import only_reader

ERF, PRODUCT, QUOTIENT, SUM = (frozenset({name}) for name in ("Erf", "Mul", "Div", "Add"))
DOMAIN = "com.microsoft"
"""Of an operator that no opset before 20 has."""


def recognise_gelu(model: ir.Model) -> dict[str, int]:
    """Write each GELU that is spelled out as one node, in place.

    Returns:
        Operator -> how many.
    """
    found = [node for node in all_nodes(model.graph) if node.op_type in ERF and not node.domain]
    if not found:
        return {}
    constants = Constants(model)
    count = sum(_write(model, constants, node) for node in found)
    return {"Gelu": count} if count else {}


def _write(model: ir.Model, constants: Constants, erf: ir.Node) -> bool:
    x = _scaled_operand(constants, erf.inputs[0])
    end = None if x is None else _end(constants, erf, x)
    if x is None or end is None or end.graph is None:
        return False
    model.opset_imports.setdefault(DOMAIN, 1)
    y = end.outputs[0]
    end.domain, end.op_type, end.version = DOMAIN, "Gelu", None
    end.resize_inputs(1)
    end.replace_input_with(0, x)
    assert y.producer() is end
    return True


def _scaled_operand(constants: Constants, value: ir.Value | None) -> ir.Value | None:
    """Return x of `x / sqrt(2)`."""
    node = None if value is None else value.producer()
    if node is None or node.domain or len(node.inputs) != 2:
        return None
    first, second = node.inputs
    if node.op_type in QUOTIENT and _is_number(constants, second, math.sqrt(2)):
        return first
    if node.op_type in PRODUCT:
        for operand, number in ((first, second), (second, first)):
            if _is_number(constants, number, math.sqrt(0.5)):
                return operand
    return None


def _end(constants: Constants, erf: ir.Node, x: ir.Value) -> ir.Node | None:
    """Return the last node of a GELU of x; None: it is another function."""
    raised = only_reader(erf)
    if raised is None or raised.op_type not in SUM or not _has_number(constants, raised, 1.0):
        return None
    product = only_reader(raised)
    if product is None or product.op_type not in PRODUCT:
        return None
    if any(_is_half_of(constants, value, x) for value in product.inputs):
        return product
    last = only_reader(product)
    if last is None or last.op_type not in PRODUCT:
        return None
    reads_x = [x in node.inputs for node in (product, last)]
    halves = [_has_number(constants, node, 0.5) for node in (product, last)]
    return last if reads_x in ([True, False], [False, True]) and halves == reads_x[::-1] else None


def _is_half_of(constants: Constants, value: ir.Value | None, x: ir.Value) -> bool:
    node = None if value is None else value.producer()
    return (
        node is not None
        and node.op_type in PRODUCT
        and not node.domain
        and x in node.inputs
        and _has_number(constants, node, 0.5)
    )


def _has_number(constants: Constants, node: ir.Node, number: float) -> bool:
    return any(_is_number(constants, value, number) for value in node.inputs)


def _is_number(constants: Constants, value: ir.Value | None, number: float) -> bool:
    array = constants.array(value)
    return array is not None and array.size == 1 and abs(float(array.reshape(-1)[0]) - number) < 1e-5 * number
