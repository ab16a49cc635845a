"""Nodes of constants, and of extents, are computed where the file grows by little."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.node_results import NUMERIC, node_results
from relayout.graph.subgraphs import all_graphs

SMALL = 1 << 10
"""Elements of operands up to which a result may be larger than they are."""
LARGEST = 1 << 16
"""Elements of an operand, and of a result, up to which a node is computed."""
MOST_GROWTH = 1 << 20
"""Bytes by which results of larger operands may make the file larger, all of them together."""
GROWN = "relayout.grown"
"""Key of a model's `meta`: by how many bytes they did."""
KEPT = frozenset(
    [
        "DequantizeLinear",
        "QuantizeLinear",
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
        "Dropout",
        "If",
        "Loop",
        "Scan",
        "SequenceMap",
    ]
)
"""Operators that are never computed here: what is read of them is their form, or each run gives something else."""
GROWING = frozenset(
    [
        "ConstantOfShape",
        "Expand",
        "Tile",
        "Range",
        "Pad",
        "Resize",
        "Upsample",
        "OneHot",
        "EyeLike",
        "MelWeightMatrix",
        "HannWindow",
        "HammingWindow",
        "BlackmanWindow",
        "CenterCropPad",
        "AffineGrid",
        "Col2Im",
        "DFT",
    ]
)
"""Operators whose results can be larger than their operands: they are computed where their extents are known."""


def fold(model: ir.Model) -> bool:
    """Compute nodes whose operands are constants, in place; return whether there were any."""
    found, grown = False, int(model.meta.get(GROWN, 0))
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            results = _computed(model, node)
            growth = 0 if results is None else _growth(node, results)
            if results is not None and grown + growth <= MOST_GROWTH:
                replace_by_constants(graph, node, results)
                found, grown = True, grown + growth
    model.meta[GROWN] = grown
    return found


def _growth(node: ir.Node, results: list[NDArray[Any]]) -> int:
    """Return how many bytes more a file has with the results of a node, where its operands are not small."""
    operands = [value for value in node.inputs if value is not None and value.const_value is not None]
    if all(value.const_value is None or value.const_value.size <= SMALL for value in operands):
        return 0
    last_read = [value.const_value for value in operands if len(value.uses()) == 1]
    return sum(array.nbytes for array in results) - sum(each.nbytes for each in last_read if each is not None)


def _computed(model: ir.Model, node: ir.Node) -> list[NDArray[Any]] | None:
    """Return what a node gives, if it is known."""
    if node.domain or node.op_type in KEPT or any(value.is_graph_output() for value in node.outputs):
        return None
    if all(value.const_value is not None for value in node.outputs if value.name) and node.outputs:
        return _contents(node)
    if node.op_type == "Shape":
        return _shape(node)
    return _of_constants(model, node)


def _of_constants(model: ir.Model, node: ir.Node) -> list[NDArray[Any]] | None:
    """Return what a node gives that reads constants alone; None where that is much, or not known."""
    operands = [value for value in node.inputs if value is not None]
    if not all(map(_is_known, operands)) or (not node.inputs and node.op_type != "Constant"):
        return None
    if node.op_type in GROWING and not _is_bounded(node):
        return None
    tensors = {value.name or "": value.const_value for value in operands}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None}
    results = run_node(model, node, arrays)
    if results is None or any(array.size > LARGEST for array in results):
        return None
    grows = sum(array.nbytes for array in results) > sum(array.nbytes for array in arrays.values())
    return None if grows and any(array.size > SMALL for array in arrays.values()) else results


def _contents(node: ir.Node) -> list[NDArray[Any]] | None:
    arrays = [value.const_value.numpy() if value.const_value is not None else np.zeros(0) for value in node.outputs]
    return arrays if all(array.size <= LARGEST for array in arrays) else None


def _shape(node: ir.Node) -> list[NDArray[Any]] | None:
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(shape))
    return [np.array(shape.numpy()[start:end], np.int64)]


def _is_known(value: ir.Value) -> bool:
    constant = value.const_value
    return constant is not None and constant.size <= LARGEST and not value.is_graph_input()


def _is_bounded(node: ir.Node) -> bool:
    shapes = [value.shape for value in node.outputs]
    if all(shape is not None and all(isinstance(dim, int) for dim in shape) for shape in shapes):
        return all(prod(shape.numpy()) <= LARGEST for shape in shapes if shape is not None)
    numbers = [
        value.const_value.numpy() for value in node.inputs if value is not None and value.const_value is not None
    ]
    if node.op_type in ("ConstantOfShape", "Expand"):
        return bool(prod(max(int(each), 1) for each in numbers[-1].reshape(-1)) <= LARGEST)
    if node.op_type == "Range":
        first, last, step = (float(each.reshape(-1)[0]) for each in numbers)
        return bool(step and abs((last - first) / step) <= LARGEST)
    return False


def run_node(model: ir.Model, node: ir.Node, arrays: dict[str, NDArray[Any]]) -> list[NDArray[Any]] | None:
    """Return what a node of constants gives; None where nobody computes it, or not in the types that it says.

    Args:
        model: the model.
        node: the node.
        arrays: its operands, by name.
    """
    if any(array.dtype.kind not in NUMERIC for array in arrays.values()):
        return None
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    computed = node_results(ir.serde.serialize_node(node), arrays, opsets)
    if len(computed) != sum(bool(value.name) for value in node.outputs):
        return None
    named = iter(computed)
    results = [next(named) if value.name else np.zeros(0) for value in node.outputs]
    fits = all(
        value.dtype is None or ir.DataType.from_numpy(array.dtype) == value.dtype or not value.name
        for array, value in zip(results, node.outputs, strict=True)
    )
    return results if fits else None


def replace_by_constants(graph: ir.Graph, node: ir.Node, arrays: list[NDArray[Any]]) -> None:
    """Replace a node by constants that hold its results."""
    for value, array in zip(node.outputs, arrays, strict=True):
        if not value.name:
            continue
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=value.name)
        made = ir.Value(
            name=value.name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        value.replace_all_uses_with(made)
        value.name = None
        if made.uses():
            graph.register_initializer(made)
    graph.remove(node, safe=True)
