"""Shapes of ONNX Runtime's operators on integers, which ONNX does not know: those of the operators that they stand for.

ONNX Runtime's quantizer writes such operators (`QuantFormat.QOperator`, channels first) and states no shapes; nothing
behind one could be inferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

DOMAIN = "com.microsoft"
CHANNELS_LAST = "channels_last"


@dataclass(frozen=True)
class StandIn:
    """A standard operator whose result has the shape and the type of another's.

    Args:
        op_type: the standard operator.
        operands: the inputs of the other that it reads.
        each: it also reads every input that follows by so many, of a variadic operator; 0: none.
        removed: attributes that it has not.
    """

    op_type: str
    operands: tuple[int, ...]
    each: int = 0
    removed: tuple[str, ...] = ()


STAND_INS: Mapping[str, StandIn] = {
    "QLinearAdd": StandIn("Add", (0, 3)),
    "QLinearMul": StandIn("Mul", (0, 3)),
    "QLinearWhere": StandIn("Where", (0, 1, 4)),
    "QLinearConcat": StandIn("Concat", (2,), each=3),
    "QLinearSigmoid": StandIn("Identity", (0,)),
    "QLinearLeakyRelu": StandIn("Identity", (0,), removed=("alpha",)),
    "QLinearSoftmax": StandIn("Identity", (0,), removed=("axis", "opset")),
    "QLinearAveragePool": StandIn("AveragePool", (0,)),
    "QLinearGlobalAveragePool": StandIn("GlobalAveragePool", (0,)),
    "QLinearConv": StandIn("QLinearConv", tuple(range(9))),
    "QGemm": StandIn("Gemm", (0, 3)),
}


def with_stand_ins(model: onnx.ModelProto) -> frozenset[str]:
    """Write the standard operators instead, in place: for the inference of shapes.

    Returns:
        The values that they give: the shapes are right, the numbers would not be.
    """
    given: set[str] = set()
    for node in model.graph.node:
        found = STAND_INS.get(node.op_type) if node.domain == DOMAIN else None
        if found is None or any(a.name == CHANNELS_LAST and a.i for a in node.attribute):
            continue
        count = len(node.input)
        slots = range(found.operands[0], count, found.each) if found.each else found.operands
        inputs = [node.input[slot] for slot in slots if slot < count]
        attributes = [a for a in node.attribute if a.name not in (CHANNELS_LAST, *found.removed)]
        del node.input[:], node.attribute[:]
        node.input.extend(inputs)
        node.attribute.extend(attributes)
        node.domain, node.op_type = "", found.op_type
        given.update(node.output)
    return frozenset(given)
