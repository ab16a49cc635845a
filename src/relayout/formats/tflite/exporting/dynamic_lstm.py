"""A definition of com.microsoft's DynamicQuantizeLSTM: an LSTM with the real numbers that its weights stand for.

Kernels also round what is multiplied to 8 bits in each run, which an LSTM of real numbers does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.domains import MICROSOFT

WEIGHTS, RECURRENT, SCALES = 1, 2, 8
"""The quantized operands, and where the scales and zero points of both begin behind those of an LSTM."""


def dynamic_lstm_definition_of(
    node: ir.Node,
    imports: Mapping[str, int],  # the model's: domain -> version
) -> onnx.FunctionProto | None:
    """Return the function that a DynamicQuantizeLSTM is; None of any other node, or where its weights are computed."""
    if (node.domain, node.op_type) != (MICROSOFT, "DynamicQuantizeLSTM"):
        return None
    weights = [_real_numbers(node, slot, SCALES + 2 * place) for place, slot in enumerate((WEIGHTS, RECURRENT))]
    if any(each is None for each in weights):
        return None
    names = [f"i{slot}" if value is not None else "" for slot, value in enumerate(node.inputs)]
    read, nodes = names[:SCALES], []
    for slot, each in zip((WEIGHTS, RECURRENT), weights, strict=True):
        assert each is not None
        read[slot] = f"real{slot}"
        nodes.append(onnx.helper.make_node("Constant", [], [read[slot]], value=onnx.numpy_helper.from_array(each)))
    given = [f"o{slot}" if value.name else "" for slot, value in enumerate(node.outputs)]
    made = onnx.helper.make_node("LSTM", read, given)
    made.attribute.extend(map(ir.serde.serialize_attribute, node.attributes.values()))
    opsets = [onnx.helper.make_opsetid("", imports.get("", 1))]
    inputs = [name or f"absent{slot}" for slot, name in enumerate(names)]
    outputs = [name or f"unread{slot}" for slot, name in enumerate(given)]
    nodes += [made, *(onnx.helper.make_node("Identity", ["i0"], [name]) for name in outputs if name not in given)]
    return onnx.helper.make_function("", "", inputs, outputs, nodes, opsets)


def _real_numbers(node: ir.Node, slot: int, scale_slot: int) -> NDArray[np.float32] | None:
    """Return the weights of each direction as an LSTM has them, `d 4h i`, of integers, `d i 4h`."""
    arrays: list[NDArray[Any]] = []
    for each in (slot, scale_slot, scale_slot + 1):
        value = node.inputs[each] if each < len(node.inputs) else None
        if value is None or value.const_value is None or value.is_graph_input():
            return None
        arrays.append(value.const_value.numpy())
    integers, scale, zero_point = arrays
    if integers.ndim != 3 or scale.ndim not in (1, 2) or scale.shape != zero_point.shape:
        return None
    scale, zero_point = (each.reshape(len(integers), 1, -1).astype(np.float32) for each in (scale, zero_point))
    real = (integers.astype(np.float32) - zero_point) * scale
    return np.ascontiguousarray(real.transpose(0, 2, 1))
