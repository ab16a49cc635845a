"""Products of uint8 by int8, which ONNX Runtime adds up in 16 bits on x64 without VNNI: there they saturate.

It computes them in full if a session is told so. A verification does: it judges the model, and says what a program must
do for the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.captures import all_nodes
from relayout.rewrite.unsigned import KERNELS

OPTION = "session.x64quantprecision"
"""ONNX Runtime's session option: with "1", kernels of int8 are stored as uint8 where products would saturate."""
BEYOND = ("com.microsoft", "QLinearConv")
"""The operator whose kernels the option leaves as they are."""
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


def note(model: ir.Model) -> str:
    """What to say of a model with kernels of int8, where their products saturate; empty for any other."""
    kinds = [(node.domain, node.op_type) for node in all_nodes(model.graph) if _has_kernel(node)]
    if not kinds:
        return ""
    told = f"products of uint8 by int8 saturate in ONNX Runtime on this CPU, which has no VNNI: {OPTION}=1 was set"
    if BEYOND in kinds:
        return f"{told}, which com.microsoft:QLinearConv ignores; --target onnxruntime-cpu-avx2 is exact here"
    return f"{told}, as a program must for these numbers"


def _has_kernel(node: ir.Node) -> bool:
    """Whether a node reads a kernel of int8: a constant of two axes or more."""
    slots = KERNELS.get((node.domain, node.op_type))
    value = node.inputs[slots.kernel] if slots is not None and slots.kernel < len(node.inputs) else None
    if value is None or value.const_value is None or value.dtype != ir.DataType.INT8:
        return False
    return len(value.shape or ()) > 1
