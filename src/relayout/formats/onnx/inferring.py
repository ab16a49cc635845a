"""ONNX's shape inference, held to an amount of memory.

With data propagation it makes a symbol of some 150 bytes for every element of every vector that is added, gathered or
cast, known or not: a file of 200 bytes that adds vectors of 10**8 elements would take 15 GB. Propagation is for shapes,
which are short. Where vectors are long together, it is left out, and what it would have found stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from relayout import isolation
from relayout.errors import ReadError
from relayout.formats.onnx.bodies import graphs_in

SHORT = 1 << 10
"""Elements up to which a vector may be a shape, and is not counted: thousands of biases are in a usual model."""

MOST_PROPAGATED = 1 << 21
"""Elements of all longer vectors together with which data is still propagated: some 300 MB."""

INTEGERS = (onnx.TensorProto.UNDEFINED, onnx.TensorProto.INT32, onnx.TensorProto.INT64)
"""Types of what shapes are made of."""


def infer_shapes(model: onnx.ModelProto, stated: onnx.GraphProto | None = None) -> onnx.ModelProto:
    """The model with inferred types and shapes; from the values of shapes, too, where that stays small.

    Args:
        model: what to infer.
        stated: the same graph with shapes that ONNX's checker has held to its inference: where every value has one,
            lengths are read there, and nothing is inferred to find them.

    Raises:
        Exception: what onnx raises for a model that is not consistent.
    """
    complete = stated is not None and not model.functions and _is_complete(stated)
    if stated is not None and complete and sum(_lengths(stated)) <= MOST_PROPAGATED:
        return isolation.propagate(model, is_short=True) or isolation.infer_shapes(model)
    return infer_and_judge(model)[0]


def infer_and_judge(model: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
    """The model with inferred types and shapes, and whether nothing is left to find: see `is_settled`."""
    plain = isolation.infer_shapes(model)
    if is_settled(plain.graph):
        return plain, True
    if sum(_lengths(plain.graph)) > MOST_PROPAGATED:
        return plain, False
    return isolation.propagate(model, is_short=not _has_open_vector(plain.graph)) or plain, False


def is_settled(graph: onnx.GraphProto, *, may_be_open: bool = False) -> bool:
    """Whether nothing is left to find: every shape is known, and no operator gives constants, or what could be a shape.

    A graph with bodies is never said to be.

    Args:
        graph: the graph.
        may_be_open: whether extents may be names, where only what data propagation finds is asked for.
    """
    settled: dict[bytes, bool] = {}
    known = set()
    for value in (*graph.value_info, *graph.output):
        key = value.type.SerializeToString()
        if key not in settled:
            settled[key] = _is_plain(value.type.tensor_type, may_be_open)
        if not settled[key]:
            return False
        known.add(value.name)
    constants = {"", *(tensor.name for tensor in graph.initializer)}
    return all(
        known.issuperset(filter(None, node.output))
        and not constants.issuperset(node.input)
        and not any(map(graphs_in, node.attribute))
        for node in graph.node
    )


def _is_plain(tensor: onnx.TypeProto.Tensor, may_be_open: bool) -> bool:
    """Whether it is a tensor of known extents, and not of the numbers that shapes are made of."""
    known = tensor.HasField("shape") and (may_be_open or all(dim.HasField("dim_value") for dim in tensor.shape.dim))
    return known and tensor.elem_type not in INTEGERS


def infer_node(
    node: onnx.NodeProto, types: dict[str, onnx.TypeProto], data: dict[str, onnx.TensorProto], version: int
) -> dict[str, onnx.TypeProto]:
    """Types and shapes of what a node of ONNX's own gives, by itself; of one with bodies, or that is wrong, nothing.

    Args:
        node: the node.
        types: of each of its inputs.
        data: what is known of them.
        version: of the operators of ONNX's own.
    """
    if any(attribute.HasField("g") for attribute in node.attribute):
        return {}
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
        return isolation.infer_node_outputs(schema, node, types, data, version)
    except ReadError:  # it crashes: that is said at once
        raise
    except Exception:  # onnx raises types of its own: what is wrong is said when the result is checked
        return {}


def _is_complete(graph: onnx.GraphProto) -> bool:
    """Whether the shape of every value is stated, with all extents of vectors; a subgraph never says so."""
    shaped = {value.name for value in (*graph.value_info, *graph.output) if _has_lengths(value.type.tensor_type)}
    return all(
        all(name in shaped for name in node.output if name) and not any(a.HasField("g") for a in node.attribute)
        for node in graph.node
    )


def _has_lengths(tensor: onnx.TypeProto.Tensor) -> bool:
    dims = tensor.shape.dim
    return tensor.HasField("shape") and (len(dims) != 1 or dims[0].HasField("dim_value"))


def _has_open_vector(graph: onnx.GraphProto) -> bool:
    """Whether a vector of integers may be longer than a shape, as far as is known; of subgraphs too."""
    return any(map(_is_open_vector, (*graph.input, *graph.value_info, *graph.output))) or any(
        _has_open_vector(inner) for node in graph.node for attribute in node.attribute for inner in graphs_in(attribute)
    )


def _is_open_vector(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    if tensor.elem_type not in INTEGERS:
        return False
    dims = tensor.shape.dim
    return not tensor.HasField("shape") or (len(dims) == 1 and not dims[0].HasField("dim_value"))


def _lengths(graph: onnx.GraphProto) -> Iterator[int]:
    """The lengths of vectors that are too long for a shape, of subgraphs too."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 1 and dims[0].dim_value > SHORT:
            yield dims[0].dim_value
    for node in graph.node:
        for attribute in node.attribute:
            for inner in graphs_in(attribute):
                yield from _lengths(inner)
