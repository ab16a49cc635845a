"""Float64 and bfloat16 of a model as float32, whose kernels every runtime has: `--float32`.

    Cast<to=DOUBLE>(x); Mul<DOUBLE>(y, w: DOUBLE)  ->  Cast<to=FLOAT>(x); Mul<FLOAT>(y, w: FLOAT)

Types alone change, of every value at once, so each operator has one type for its operands as before.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.subgraphs import all_graphs, graph_values

CONVERTED = {ir.DataType.DOUBLE: "float64", ir.DataType.BFLOAT16: "bfloat16"}
"""Types that become float32, and their names in a report."""
TYPES = ("to", "dtype", "output_datatype", "output_dtype", "softmax_precision", "stash_type")
"""Attributes that hold the number of an element type."""


def use_float32(model: ir.Model) -> tuple[str, ...]:
    """Give values of float64 and bfloat16 the type float32, in place: inputs, outputs and constants included.

    Finite numbers beyond the range of float32 become its largest, so a mask of the least float64 stays finite.

    Returns:
        A sentence for the report, which names the types; empty where the model has none of them.
    """
    found: set[ir.DataType] = set()
    for graph in chain(all_graphs(model.graph), *(all_graphs(each.graph) for each in model.functions.values())):
        for value in dict.fromkeys(graph_values(graph)):
            if value.dtype in CONVERTED:
                found.add(value.dtype)
                assert value.type is not None
                value.type.dtype = ir.DataType.FLOAT
            if value.const_value is not None and value.const_value.dtype in CONVERTED:
                value.const_value = _as_float32(value.const_value)
        for node in graph:
            found |= _convert_attributes(node)
    told = " and ".join(name for kind, name in CONVERTED.items() if kind in found)
    return (f"computed in float32, inputs and outputs included: {told}",) if found else ()


def _convert_attributes(node: ir.Node) -> set[ir.DataType]:
    """Let the attributes of a node name and hold float32, in place; return the types that they had."""
    found = set()
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.INT and name in TYPES and attribute.value in CONVERTED:
            found.add(ir.DataType(attribute.value))
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype in CONVERTED:
            found.add(attribute.value.dtype)
            node.attributes[name] = ir.AttrTensor(name, _as_float32(attribute.value))
        elif attribute.type == ir.AttributeType.TYPE_PROTO and attribute.value.type.dtype in CONVERTED:
            found.add(attribute.value.type.dtype)
            attribute.value.type.dtype = ir.DataType.FLOAT
    return found


def _as_float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor of float64 or bfloat16 as one of float32, read when it is used."""
    return ir.LazyTensor(
        lambda: ir.Tensor(_rounded(tensor.numpy()), name=tensor.name),
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name,
    )


def _rounded(array: NDArray[Any]) -> NDArray[np.float32]:
    """Return an array in single precision; finite numbers stay finite.

    >>> _rounded(np.array([-1e300, 0.5, np.inf]))
    array([-3.4028235e+38,  5.0000000e-01,            inf], dtype=float32)
    """
    largest = np.finfo(np.float32).max
    wide = array.astype(np.float64)
    return np.where(np.isinf(wide), wide, np.clip(wide, -largest, largest)).astype(np.float32)
