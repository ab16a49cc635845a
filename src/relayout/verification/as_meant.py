"""Changes to a graph with which ONNX Runtime computes what it means: no internal layouts, no sums that saturate."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.formats.onnx import complete
from relayout.graph.subgraphs import all_nodes
from relayout.lowering.int8_weights_to_uint8 import KERNELS, operator_key, unsigned_kernels
from relayout.rules import outputs_of
from relayout.rules.internal_nhwc import is_internal, standard_of

# Operators of ONNX Runtime's internal domain for channels last, as the standard's between Transposes.
#
# ONNX Runtime loads no file with operators of that domain: they are there from the time an execution provider has
# claimed them. To run such a model, each is written as what the domain means by it.


def run_as_standard(model: ir.Model) -> tuple[str, ...]:
    """Write operators of the internal domain as the standard's between Transposes, in place; what to say of it."""
    nodes = [(node, key) for node in all_nodes(model.graph) if is_internal(node) and (key := standard_of(node))]
    if nodes:
        complete(model, outputs_of)
    count = 0
    for node, key in nodes:
        operand, result, graph = node.inputs[0], node.outputs[0], node.graph
        if operand is None or operand.shape is None or graph is None:
            continue
        rank = len(operand.shape)
        named = node.name or result.name
        to_first, to_last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
        first = ir.node("Transpose", [operand], {"perm": to_first}, name=f"{named}/to_first")
        last = ir.node("Transpose", [result], {"perm": to_last}, name=f"{named}/to_last")
        node.domain, node.op_type = key
        node.replace_input_with(0, first.outputs[0])
        value, name = last.outputs[0], result.name
        value.shape, value.type = result.shape, result.type
        result.replace_all_uses_with(value, replace_graph_outputs=True)
        last.replace_input_with(0, result)
        result.name, result.shape, value.name = f"{name}/channels_first", None, name
        first.outputs[0].name = f"{name}/operand"
        value.metadata_props.update(result.metadata_props)
        result.metadata_props.clear()
        model.opset_imports.setdefault(key[0], 1)
        graph.insert_before(node, first)
        graph.insert_after(node, last)
        count += 1
    if not count:
        return ()
    return (f"operators of com.ms.internal.nhwc, run as the standard's between Transposes: {count}",)


# Products of uint8 by int8, which ONNX Runtime adds up in 16 bits on x64 without VNNI: there they saturate.
#
# It multiplies uint8 by uint8 in full, and stores kernels so if a session is told to. A verification does that
# itself: it judges the model, and says what a program must do for the same numbers. (Told to, ONNX Runtime up to 1.32
# reads the zero point of every kernel, there or not, and may end the process over one that is not.)

OPTION = "session.x64quantprecision"
"""ONNX Runtime's session option: with "1", kernels of int8 are stored as uint8 where products would saturate."""
BEYOND = frozenset({("com.microsoft", "QLinearConv")})
"""The operators whose kernels the option leaves as they are."""
_ROWS = 8


@cache
def saturates(opened: Callable[[bytes], Any]) -> bool:
    """Whether products of uint8 by int8 saturate on this CPU.

    Args:
        opened: makes a session of a model, as ONNX Runtime does by default.
    """
    from onnx import TensorProto, helper, numpy_helper

    kernel = numpy_helper.from_array(np.full((_ROWS, _ROWS), 127, np.int8), "w")
    ends = [("x", TensorProto.UINT8), ("y", TensorProto.INT32)]
    x, y = (helper.make_tensor_value_info(name, kind, [1, _ROWS]) for name, kind in ends)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "g", [x], [y], [kernel])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (found,) = opened(model.SerializeToString()).run(None, {"x": np.full((1, _ROWS), 255, np.uint8)})
    return bool((found != 255 * 127 * _ROWS).any())


def compute_in_full(model: ir.Model, loads_with_option: Callable[[], bool]) -> tuple[str, ...]:
    """Store kernels of int8 as the option would, in place, where their products saturate; what to say of it.

    Args:
        model: the model, whose values have types.
        loads_with_option: whether ONNX Runtime loads the file with the option: it fails over a kernel whose zero point
            is computed.
    """
    told = "products of uint8 by int8 saturate in ONNX Runtime on this CPU, which has no VNNI"
    said = []
    if unsigned_kernels(model, leaving=BEYOND):
        same = f"for the same numbers a program must set the session option {OPTION}=1"
        if not loads_with_option():
            same = "--target onnxruntime-cpu-avx2 gives the same numbers"
        said.append(f"{told}, and were computed in full: {same}")
    if any(map(_is_beyond, all_nodes(model.graph))):
        said.append(f"{told}: com.microsoft:QLinearConv is wrong here; --target onnxruntime-cpu-avx2 is exact")
    return tuple(said)


def has_products(model: ir.Model) -> bool:
    """Whether a model has operators whose products may saturate, or what is dequantized for them."""
    return any(operator_key(node) in KERNELS for node in all_nodes(model.graph))


def _is_beyond(node: ir.Node) -> bool:
    key = node.domain, node.op_type
    given = node.inputs[KERNELS[key].kernel :] if key in BEYOND else ()
    return bool(given) and given[0] is not None and given[0].dtype == ir.DataType.INT8
