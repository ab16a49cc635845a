"""Sparse constants of a file, as dense ones: what a layout is of, and what runtimes make of them, too."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper

from relayout.errors import ReadError
from relayout.formats.onnx.bodies import graphs_in
from relayout.formats.onnx.sizes import check_data, shape_of

INDICES = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.INT16, onnx.TensorProto.INT8)
"""Element types of places: ONNX has the first alone, and ONNX Runtime writes the shortest that will do."""
MOST_BYTES = 1 << 30
"""Of a sparse constant once it is dense: a file of a few bytes may state any shape."""


def make_dense(model: onnx.ModelProto) -> None:
    """Store sparse initializers and sparse Constants dense, in place.

    Raises:
        ReadError: one has no data, or indices outside of its shape, or takes too much memory.
    """
    _graph(model.graph, "")
    for function in model.functions:
        _nodes(function.node, f"function '{function.name}', ")


def _graph(graph: onnx.GraphProto, place: str) -> None:
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, f"{place}sparse initializer '{sparse.values.name}'"))
    graph.ClearField("sparse_initializer")
    _nodes(graph.node, place)


def _nodes(nodes: Iterable[onnx.NodeProto], place: str) -> None:
    for node in nodes:
        attributes = node.attribute
        for attribute in attributes if attributes else ():
            if attribute.name == "sparse_value" and node.op_type == "Constant":
                dense = _dense(attribute.sparse_tensor, f"{place}Constant '{node.name}'")
                attribute.CopyFrom(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=dense))
            for graph in graphs_in(attribute):
                _graph(graph, f"{place}{node.op_type} '{node.name}', attribute '{attribute.name}', ")


def _dense(sparse: onnx.SparseTensorProto, where: str) -> onnx.TensorProto:
    """The tensor, whose elements are given with their places: `v[n]`, and `i[n]` in the flat tensor or `i[n rank]`."""
    values, indices = sparse.values, sparse.indices
    shape = shape_of(onnx.TensorProto(dims=sparse.dims), where)
    for tensor in (values, indices):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.HasField("segment"):
            raise ReadError("sparse, in a file of its own or in segments", where=where, hint="store it dense")
        check_data(tensor, where)
    numbers = values.data_type != onnx.TensorProto.STRING and len(values.dims) == 1
    if not numbers or indices.data_type not in INDICES:
        raise ReadError("sparse, but not of numbers in a list with their places", where=where, hint="store it dense")
    given, places = numpy_helper.to_array(values), numpy_helper.to_array(indices)
    if math.prod(shape) * given.dtype.itemsize > MOST_BYTES:
        raise ReadError(f"sparse, of the shape {list(shape)}: too large to be dense", where=where)
    extents = shape
    if places.shape == given.shape:
        places, extents = places[:, None], (math.prod(shape),)
    elif places.shape != (given.size, len(shape)):
        raise ReadError(f"{given.size} elements with places of the shape {list(places.shape)}", where=where)
    if np.any((places < 0) | (places >= np.array(extents, np.int64))):
        raise ReadError(f"an element lies outside of the shape {list(shape)}", where=where)
    dense = np.zeros(extents, given.dtype)
    dense[tuple(places.T)] = given
    found = numpy_helper.from_array(dense.reshape(shape))
    try:
        found.name = values.name
    except UnicodeError:
        raise ReadError("a name that is not UTF-8", where=where) from None
    return found
