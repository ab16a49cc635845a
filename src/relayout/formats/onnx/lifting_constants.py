"""Constant nodes as initializers: a constant is stored as its readers want it."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.onnx.bodies import bodies_of
from relayout.formats.onnx.inferring import ALIASES
from relayout.graph.subgraphs import all_nodes

SMALL = 1 << 12
"""Bytes of a tensor up to which it is copied, as the tensor of an initializer."""


def lift_constants(model: ir.Model) -> None:
    """Make the outputs of Constant nodes initializers, in place.

    Raises:
        ReadError: a Constant holds nothing that a constant can be.
    """
    if any(node.op_type == "Constant" for node in all_nodes(model.graph)):
        from onnx_ir.passes.common import LiftConstantsToInitializersPass

        try:
            LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        except Exception as error:  # errors of many types, for attributes of the wrong name, type or number
            raise ReadError(f"a Constant holds no constant: {' '.join(str(error).split())}") from None


def lift_tensors(graph: onnx.GraphProto) -> None:
    """Make the small tensors of Constant nodes initializers, in place, and in bodies likewise.

    `lift_constants` does it, too, but to read a node takes longer than to read a tensor, and exporters write thousands.
    """
    outputs = {value.name for value in graph.output}
    lifted = [node for node in graph.node if _holds_small_tensor(node) and node.output[0] not in outputs]
    for node in lifted:
        tensor = graph.initializer.add()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = node.output[0]
    if lifted:  # they go behind the others, and then away: nothing is copied
        names = {node.output[0] for node in lifted}
        graph.node.sort(key=lambda node: bool(node.output) and node.output[0] in names)
        del graph.node[-len(lifted) :]
    for body in bodies_of(graph.node):
        lift_tensors(body)


def _holds_small_tensor(node: onnx.NodeProto) -> bool:
    """Tell whether a node is a Constant of a small tensor, and nothing else."""
    if node.op_type != "Constant" or node.domain not in ALIASES or len(node.output) != 1:
        return False
    if [(each.name, each.type) for each in node.attribute] != [("value", onnx.AttributeProto.TENSOR)]:
        return False
    return bool(node.attribute[0].t.ByteSize() <= SMALL)
