"""Inputs of unknown rank, which take the rank that their readers need: a `.tflite` has no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

from relayout.formats.onnx.inferring import infer_node
from relayout.graph.domains import CONVOLUTION, RESIZE


def _shape(node: ir.Node, slot: int) -> tuple[int | ir.SymbolicDim, ...] | None:
    """Return the shape of an operand; None where there is none, or it is not known."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    if value is None or value.shape is not None:
        return None if value is None or value.shape is None else tuple(value.shape)
    return None if value.const_value is None else tuple(value.const_value.shape.numpy())


def _of_operand(slot: int) -> Callable[[ir.Node], int | None]:
    """Return what gives the rank of another operand, which is a weight."""

    def rank(node: ir.Node) -> int | None:
        shape = _shape(node, slot)
        return len(shape) if shape else None

    return rank


def _of_list(name: str, per_axis: int, more: int) -> Callable[[ir.Node], int | None]:
    """Return what gives a rank by the length of an attribute."""

    def rank(node: ir.Node) -> int | None:
        values = node.attributes.get_ints(name, None)
        return None if not values else len(values) // per_axis + more

    return rank


def _of_extents(slot: int, per_axis: int) -> Callable[[ir.Node], int | None]:
    """Return what gives a rank by the number of elements of an operand."""

    def rank(node: ir.Node) -> int | None:
        shape = _shape(node, slot)
        count = shape[0] if shape and len(shape) == 1 else None
        return count // per_axis if isinstance(count, int) and count else None

    return rank


RECURRENT = ("GRU", "LSTM", "RNN")
NEEDED: Mapping[str, tuple[Callable[[ir.Node], int | None], ...]] = {
    **dict.fromkeys(["AveragePool", "MaxPool"], (_of_list("kernel_shape", 1, 2),)),
    **dict.fromkeys([CONVOLUTION, "ConvTranspose"], (_of_operand(1),)),
    **dict.fromkeys(["DepthToSpace", "SpaceToDepth"], (lambda _: 4,)),
    **dict.fromkeys(RECURRENT, (lambda _: 3,)),
    "Gemm": (lambda _: 2,),
    "Pad": (_of_list("pads", 2, 0), _of_extents(1, 2)),
    "QLinearConv": (_of_operand(3),),
    RESIZE: (_of_extents(2, 1), _of_extents(3, 1)),
    "Transpose": (_of_list("perm", 1, 0),),
}
"""Operator -> what tells the rank of its first operand: the first of these that is known."""
CHANNELS: Mapping[str, tuple[int, int, int]] = {
    CONVOLUTION: (1, 1, 1),
    "ConvTranspose": (1, 1, 0),
    **dict.fromkeys(RECURRENT, (2, 1, 2)),
}
"""Operator -> the axis of its first operand whose extent a weight tells, the weight, and its axis."""
MOST = 64  # readers in a row that are asked
PROBED = (3, 5)  # numbers of axes that are tried: an operator whose result has as many axes of each keeps them


def rank_inputs(model: ir.Model) -> list[str]:
    """Give inputs of unknown rank the one that their readers need, in place, with open extents.

    Returns:
        A sentence for the report about each of them.
    """
    notes, version = [], model.opset_imports.get("", 1)
    for value in model.graph.inputs:
        is_unranked = value.shape is None and isinstance(value.type, ir.TensorType)
        shape = _shape_of(value, version) if is_unranked else None
        if shape is not None:
            value.shape = shape
            notes.append(f"input {value.name} has no rank in the file, and {len(shape)} axes, as what reads it needs")
    return notes


def _shape_of(value: ir.Value, version: int) -> ir.Shape | None:
    """Return the shape that the first reader to need a rank needs; None where none does."""
    waiting, seen = [value], {value}
    while waiting and len(seen) < MOST:
        value = waiting.pop(0)
        for node, slot in value.uses():
            if node.domain or slot:
                continue
            for rank_of in NEEDED.get(node.op_type, ()):
                if (rank := rank_of(node)) is not None:
                    return ir.Shape([None] * rank if node.op_type not in CHANNELS else _with_channels(node, rank))
            result = node.outputs[0]
            if result not in seen and _keeps_rank(node, version):
                waiting.append(result)
                seen.add(result)
    return None


def _with_channels(node: ir.Node, rank: int) -> list[int | None]:
    """Return open extents, but for one that a weight tells."""
    axis, slot, of_weight = CHANNELS[node.op_type]
    weights, groups = _shape(node, slot), node.attributes.get_int("group", 1) if node.op_type == CONVOLUTION else 1
    extent = weights[of_weight] if weights is not None and of_weight < len(weights) else None
    return [extent * groups if place == axis and isinstance(extent, int) else None for place in range(rank)]


def _keeps_rank(node: ir.Node, version: int) -> bool:
    """Return whether a result has as many axes as the first operand, as ONNX infers it from parameters of one axis."""
    tensors = [None if value is None else value.const_value for value in node.inputs[1:]]
    if any(value is not None and tensor is None for value, tensor in zip(node.inputs[1:], tensors, strict=True)):
        return False
    if any(tensor is not None and len(tensor.shape) > 1 for tensor in tensors):
        return False
    proto = ir.serde.serialize_node(node)
    data = {name: ir.serde.serialize_tensor(each) for name, each in zip(proto.input[1:], tensors, strict=False) if each}
    types = {name: onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for name, tensor in data.items()}
    kind = (node.inputs[0] and node.inputs[0].dtype) or ir.DataType.FLOAT
    for rank in PROBED:
        types[proto.input[0]] = onnx.helper.make_tensor_type_proto(int(kind), [None] * rank)
        result = infer_node(proto, types, data, version).get(proto.output[0])
        if result is None or not result.tensor_type.HasField("shape") or len(result.tensor_type.shape.dim) != rank:
            return False
    return True
