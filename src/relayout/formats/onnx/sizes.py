"""Does every tensor of a model hold as much data as its type and shape say?

Asked before anything else looks at the data: a shape of 10^12 elements over no data must not become an allocation, nor
a short buffer an exception far from its cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.onnx.bodies import graphs_in

_TYPED = {
    "FLOAT": "float_data",
    "COMPLEX64": "float_data",
    "DOUBLE": "double_data",
    "COMPLEX128": "double_data",
    "INT64": "int64_data",
    "UINT32": "uint64_data",
    "UINT64": "uint64_data",
    "STRING": "string_data",
}
"""The field of a TensorProto that holds elements of each type, where they are not raw; all smaller types share one."""

EXTERNAL_KEYS = ("location", "offset", "length", "checksum", "basepath")
"""What ONNX says of external data. Other keys mean something to one runtime only, and are not looked at."""

MOST_ELEMENTS, MOST_DIGITS = 2**48, 19


def shape_of(tensor: onnx.TensorProto, where: str) -> tuple[int, ...]:
    """The tensor's shape; ReadError if it is none."""
    shape = tuple(tensor.dims)
    if any(extent < 0 for extent in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise ReadError(f"no tensor can have the shape {list(shape)}", where=where)
    return shape


def type_of(tensor: onnx.TensorProto, where: str) -> ir.DataType:
    """The tensor's element type; ReadError if it is none that this version knows."""
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        dtype = ir.DataType.UNDEFINED
    if dtype == ir.DataType.UNDEFINED:
        raise ReadError(f"unknown element type {tensor.data_type}", where=where)
    return dtype


def check_data(tensor: onnx.TensorProto, where: str) -> None:
    """ReadError unless the tensor's data, raw or typed, is as long as its type and shape say."""
    shape, dtype = shape_of(tensor, where), type_of(tensor, where)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if dtype == ir.DataType.STRING:
            raise ReadError("strings cannot be external data", where=where)
        keys = [entry.key for entry in tensor.external_data if entry.key in EXTERNAL_KEYS]
        if len(set(keys)) < len(keys):
            raise ReadError("external data with one key twice", where=where)
        for entry in tensor.external_data:
            if not isinstance(entry.value, str):
                raise ReadError(f"external data with the {entry.key} {entry.value!r}, which is not text", where=where)
            if entry.key in ("offset", "length") and not (entry.value.isdecimal() and len(entry.value) < MOST_DIGITS):
                raise ReadError(f"external data with the {entry.key} '{entry.value}'", where=where)
        return
    count = math.prod(shape)
    if tensor.HasField("raw_data"):
        if dtype == ir.DataType.STRING:
            raise ReadError("strings cannot be raw data", where=where)
        need, have, unit = -(-count * dtype.bitwidth // 8), len(tensor.raw_data), "bytes"
    else:
        need, have, unit = (
            _elements(dtype, count),
            len(getattr(tensor, _TYPED.get(dtype.name, "int32_data"))),
            "elements",
        )
    if need != have:
        raise ReadError(f"{dtype.name}{list(shape)} needs {need} {unit} of data and has {have}", where=where)


def tensors_in(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Every tensor of the model with its place: initializers and attributes, of subgraphs and functions too."""
    yield from _graph_tensors(model.graph, "")
    for function in model.functions:
        yield from _node_tensors(function.node, f"function '{function.name}', ")


def _graph_tensors(graph: onnx.GraphProto, place: str) -> Iterator[tuple[str, onnx.TensorProto]]:
    for tensor in graph.initializer:
        yield f"{place}initializer '{tensor.name}'", tensor
    yield from _node_tensors(graph.node, place)


def _node_tensors(nodes: Any, place: str) -> Iterator[tuple[str, onnx.TensorProto]]:
    for node in nodes:
        attributes = node.attribute
        for attribute in attributes if attributes else ():
            tensors = [*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors]
            graphs = graphs_in(attribute)
            if tensors or graphs:
                where = f"{place}{node.op_type} '{node.name}', attribute '{attribute.name}'"
                yield from ((where, tensor) for tensor in tensors)
                for graph in graphs:
                    yield from _graph_tensors(graph, f"{where}, ")


def _elements(dtype: ir.DataType, count: int) -> int:
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return 2 * count
    if dtype != ir.DataType.STRING and dtype.bitwidth in (2, 4):
        return -(-count * dtype.bitwidth // 8)
    return count
