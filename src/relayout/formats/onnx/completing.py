"""What the layout engine expects of a model and a file may leave out: types, shapes, and what is known in advance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import numpy_helper

from relayout.formats.onnx.checking import without_weights

Array = NDArray[Any]

_NAMES = """
    Add And Cast Ceil Concat ConstantOfShape Div Equal Expand Floor Gather Greater Identity Less Max Min Mod Mul Neg
    Not Or Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape ScatterND Slice Split Squeeze Sub Transpose Unsqueeze
    Where
"""
SHAPE_ARITHMETIC = frozenset(_NAMES.split())
"""Operators that exporters compute shapes and axes with; others are not evaluated, constant or not."""
MOST_ELEMENTS = 64
"""Of a value that is evaluated: shapes and axes are short."""
ROUNDS = 8
"""Each round knows the shapes that the values of the last one give."""


def complete(model: ir.Model) -> None:
    """Prepare a model for the layout engine, in place.

    1. Outputs of Constant nodes become initializers: a constant is stored as its readers want it.
    2. Values get the types and shapes that ONNX infers; those that a file states stay.
    3. Shapes and axes that the graph computes from known extents get a `const_value`; the nodes stay.

    What cannot be inferred stays unknown.
    """
    lift_constants(model)
    if all(_is_known(value) for node in model.graph.all_nodes() for value in node.outputs):
        return
    try:
        inferred, known = _inferred(without_weights(model))
    except Exception:  # onnx raises types of its own; what is wrong is said when the result is checked
        return
    _complete(model.graph, inferred)
    for value in (value for node in model.graph for value in node.outputs):
        if value.name in known:
            value.const_value = ir.Tensor(known[value.name])


def lift_constants(model: ir.Model) -> None:
    """Make the outputs of Constant nodes initializers, in place."""
    if any(node.op_type == "Constant" for node in model.graph.all_nodes()):
        from onnx_ir.passes.common import LiftConstantsToInitializersPass

        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def _is_known(value: ir.Value) -> bool:
    return value.type is not None and value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def _inferred(light: onnx.ModelProto) -> tuple[onnx.GraphProto, dict[str, Array]]:
    """The graph with inferred types and shapes, and the values that are known in advance."""
    whole: dict[str, onnx.ValueInfoProto] = {}
    known: dict[str, Array] = {}
    for _ in range(ROUNDS):
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
        whole.update({value.name: value for value in inferred.graph.value_info})
        found = dict(_evaluated(inferred, known))
        if not found:
            break
        known |= found
        kept = [node for node in light.graph.node if not any(name in known for name in node.output)]
        given = {tensor.name for tensor in light.graph.initializer}
        outputs = {value.name for value in light.graph.output}
        if any(name in outputs for name in found):
            break
        light.CopyFrom(inferred)
        del light.graph.node[:]
        light.graph.node.extend(kept)
        light.graph.initializer.extend(
            numpy_helper.from_array(known[name], name) for name in found if name not in given
        )
    result = onnx.GraphProto()
    result.CopyFrom(inferred.graph)
    stated = {value.name for value in result.value_info}
    result.value_info.extend(value for name, value in whole.items() if name not in stated)
    return result, known


def _evaluated(model: onnx.ModelProto, known: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Values of the main graph that follow from what is known, and were not known before."""
    graph = model.graph
    shapes = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)}
    values = dict(known)
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.name not in values and tensor.name not in inputs and int(np.prod(tensor.dims)) <= MOST_ELEMENTS:
            values[tensor.name] = numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.output[0] in known or node.domain not in ("", "ai.onnx"):
            continue
        for name, array in zip(node.output, _run(model, node, values, shapes), strict=False):
            values[name] = array
            yield name, array


def _run(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    values: Mapping[str, Array],
    shapes: Mapping[str, onnx.TypeProto.Tensor],
) -> list[Array]:
    """What a node gives, or nothing."""
    if node.op_type in ("Shape", "Size"):
        return _shape(node, shapes.get(node.input[0]))
    if node.op_type not in SHAPE_ARITHMETIC or not all(name in values for name in node.input if name):
        return []
    given = {name: values[name] for name in node.input if name}
    if any(array.dtype.kind not in "iubf" for array in given.values()):
        return []
    if node.op_type == "Div" and any((array < 0).any() for array in given.values()):
        return []  # integers are truncated by the standard, and floored by its reference
    if node.op_type in ("ConstantOfShape", "Expand") and int(np.prod(values[node.input[-1]])) > MOST_ELEMENTS:
        return []
    from onnx.reference import ReferenceEvaluator

    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "one", inputs, outputs)
    single = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        results = [np.asarray(array) for array in ReferenceEvaluator(single).run(None, given)]
    except Exception:  # the node is wrong, or the reference lacks it: it is simply not known in advance
        return []
    return results if all(array.size <= MOST_ELEMENTS for array in results) else []


def _shape(node: onnx.NodeProto, tensor: onnx.TypeProto.Tensor | None) -> list[Array]:
    if tensor is None or not tensor.HasField("shape"):
        return []
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    taken = dims[bounds.get("start", 0) : bounds.get("end", len(dims))]
    if any(dim is None for dim in (dims if node.op_type == "Size" else taken)):
        return []
    result = np.prod(dims, dtype=np.int64) if node.op_type == "Size" else np.array(taken)  # type: ignore[arg-type]
    return [np.asarray(result, np.int64)]


def _complete(graph: ir.Graph, inferred: onnx.GraphProto) -> None:
    found = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
    protos = {proto.output[0]: proto for proto in inferred.node if proto.output}
    for node in graph:
        for value in node.outputs:
            declared = found.get(value.name or "")
            if declared is None or _is_known(value):
                continue
            value.type = value.type or ir.serde.deserialize_type_proto_for_type(declared)
            value.shape = _better(value.shape, ir.serde.deserialize_type_proto_for_shape(declared))
        proto = protos.get(node.outputs[0].name or "") if node.outputs else None
        for attribute in proto.attribute if proto is not None else ():
            if attribute.HasField("g"):
                _complete(node.attributes[attribute.name].as_graph(), attribute.g)


def _better(stated: ir.Shape | None, inferred: ir.Shape | None) -> ir.Shape | None:
    """The stated shape, with the extents that it leaves open taken from the inferred one."""
    if stated is None or inferred is None or len(stated) != len(inferred):
        return stated if stated is not None else inferred
    return ir.Shape([b if isinstance(b, int) else a for a, b in zip(stated, inferred, strict=True)])
