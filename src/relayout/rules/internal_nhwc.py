"""Operators of `com.ms.internal.nhwc`: what each is in the standard's layout.

Facts: ONNX Runtime's sources (`layout_transformation.cc`, `internal_nhwc_onnx_schemas.cc`). Its layout transformation
puts a Transpose before the image that an operator reads and one behind the image that it gives, and moves the operator
to the internal domain. Kernels and parameters stay as they were. A convolution may have taken in an activation.
"""

from __future__ import annotations

import onnx_ir as ir

from relayout.graph.domains import CONVOLUTION, INTERNAL_NHWC
from relayout.layout import Layout
from relayout.rules.layouts import OperatorLayouts, fitted
from relayout.rules.operator import Operator
from relayout.rules.signature import Written

Key = tuple[str, str]
NHWC, IMAGE = Layout.parse("NHWC"), 4
OPERATORS = frozenset(
    "AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool GlobalMaxPool"  # noqa: SIM905
    " GridSample InstanceNormalization LRN LpPool MaxPool QLinearConv SpaceToDepth".split()
)
"""Operators of the standard that are there under their own names; of those that are not here nothing is known."""
ACTIVATED = {CONVOLUTION: ("com.microsoft", "FusedConv")}  # operator -> what it is where it has taken in an activation
OPERANDS = {CONVOLUTION: 3}
"""Operator -> the most operands that it may have: what is added to a fused convolution's result has no known layout."""


def is_internal(node: ir.Node) -> bool:
    """Tell whether a node is of the internal domain."""
    return node.domain == INTERNAL_NHWC


def standard_of(node: ir.Node) -> Key | None:
    """Return the domain and name of what a node of the internal domain is; None where that is not known."""
    name = node.op_type
    if name not in OPERATORS or len(node.inputs) > OPERANDS.get(name, len(node.inputs)):
        return None
    if any(value.name and (value.uses() or value.is_graph_output()) for value in node.outputs[1:]):
        return None  # one image is transposed; indices would count in another order
    return ACTIVATED.get(name) if "activation" in node.attributes else ("", name)


def layouts_of_internal(operator: Operator) -> OperatorLayouts:
    """Return the layouts of a node of the internal domain.

    Raises:
        LayoutError: its image is of a rank without such a layout.
    """
    return OperatorLayouts(fitted(NHWC, operator.rank() or IMAGE), written=Written(INTERNAL_NHWC, operator.name))
