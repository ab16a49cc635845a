"""Nodes of constants, and of extents, are computed where the file grows by little."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.evaluating import NUMERIC, SIZES, node_results, writes_at_most
from relayout.graph.quantized_unit import VIEWS
from relayout.graph.subgraphs import all_graphs, take_over
from relayout.graph.walks import drop_unread, known_tensor, producers

SMALL = 1 << 10  # elements of operands up to which a result may be larger than they are
LARGEST = 1 << 18  # elements of an operand, and of a result, up to which nodes are computed one after another
FREE = 1 << 16
"""Elements of a result of small operands up to which nobody asks by how much it makes the file larger; and of operands
and results of nodes that are computed each for itself."""
MOST_GROWTH = 1 << 20  # bytes by which results of larger operands may make the file larger, all of them together
PART = 4  # nodes that are computed one after another may make the file larger by this part of the model's constants
MOST_TOGETHER = 4096  # nodes that are computed for one result: a table has a few dozen
GROWN = "relayout.grown"  # key of a model's `meta`: by how many bytes they did
_NAMES = """
    Abs Add BatchNormalization Cast Ceil Clip Concat Cos Div Equal Erf Exp Floor Gather Gemm Greater LayerNormalization
    Less Log LpNormalization MatMul Max Mean Min Mul Neg Not Pow QuantizeLinear Reciprocal ReduceL1 ReduceL2 ReduceMax
    ReduceMean ReduceMin ReduceSum ReduceSumSquare Relu Round Sigmoid Sign Sin Slice Softmax Softplus Split Sqrt Sub Sum
    Tanh Trilu Where
"""
COMPUTED = frozenset(_NAMES.split())
"""Operators of weights of any size that are computed: those whose reference takes no longer than numpy does."""
NARROW = VIEWS | {"Cast"}
"""Operators whose results need not be stored: kernels read the constant before a Cast, and views of constants are
re-laid as they are written."""
_NAMES = """
    Bernoulli DequantizeLinear Dropout If Loop Multinomial QuantizeLinear RandomNormal RandomNormalLike RandomUniform
    RandomUniformLike Scan SequenceMap
"""
KEPT = frozenset(_NAMES.split())
"""Operators that are never computed here: what is read of them is their form, or each run gives something else."""
_NAMES = """
    AffineGrid BlackmanWindow CenterCropPad Col2Im ConstantOfShape DFT Expand EyeLike HammingWindow HannWindow
    MelWeightMatrix OneHot Pad Range Resize Tile Upsample
"""
GROWING = frozenset(_NAMES.split())
"""Operators whose results can be larger than their operands, also where shape inference does not know their extents:
they are computed where they are known."""


def fold(
    model: ir.Model,
    weight_bytes: int,  # the bytes that its constants had before any was computed
) -> bool:
    """Compute nodes whose operands are constants, in place; return whether there were any.

    1. Nodes that are computed one after another, where what others read of their results is not much larger than the
       constants that they alone read.
    2. Of the others each for itself, where its operands and results are not large.
    """
    is_changed, grown = False, int(model.meta.get(GROWN, 0))
    for graph in list(all_graphs(model.graph)):
        chosen, grown = _chosen(graph, grown, weight_bytes // PART)
        constants: Constants = {}
        for node in list(graph):
            results = _computed(model, node, LARGEST if node in chosen else FREE)
            growth = 0 if results is None or node in chosen else _growth(node, results)
            if results is not None and (node in chosen or grown + growth <= MOST_GROWTH):
                replace_by_constants(graph, node, results, constants)
                is_changed, grown = True, grown + growth
    model.meta[GROWN] = grown
    return is_changed


def _chosen(
    graph: ir.Graph,
    grown: int,  # by how many bytes the file has grown before
    most: int,  # by how many it may
) -> tuple[set[ir.Node], int]:
    """Return the nodes that are computed one after another, and by how many bytes the file has grown with them."""
    constant = _constant_nodes(graph)
    chosen: set[ir.Node] = set()
    for node in constant:
        stored = [value for value in node.outputs if any(use.node not in constant for use in value.uses())]
        cone = _before(node, constant, chosen) if stored else set()
        growth = _growth_of_all(cone, stored, chosen)
        if stored and len(cone) <= MOST_TOGETHER and grown + growth <= most and _are_worth_it(cone):
            chosen |= cone
            grown += growth
    return chosen, grown


def _growth_of_all(
    nodes: Collection[ir.Node],
    stored: Sequence[ir.Value],  # what they give to others
    chosen: Collection[ir.Node],  # nodes that are computed anyway
) -> int:
    """Return how many bytes more a file has with what nodes that follow each other give to others."""
    read = {value: value.const_value for node in nodes for value in node.inputs if value is not None}
    sizes = [constant.size for constant in read.values() if constant is not None]
    if max(sizes, default=0) <= SMALL and all(value.shape is not None and _elements(value) <= FREE for value in stored):
        return 0
    own = [
        constant.nbytes
        for value, constant in read.items()
        if constant is not None and all(use.node in nodes or use.node in chosen for use in value.uses())
    ]
    return _sum_of_bytes(stored) - sum(own)


def _are_worth_it(nodes: Collection[ir.Node]) -> bool:
    """Return whether to compute nodes that follow each other: some that `fold_weights` does not, or that makes more.

    Weights stay as narrow as they are stored.
    """
    if all(node.op_type in NARROW for node in nodes):
        return False
    return any(node.op_type not in COMPUTED and node.op_type not in VIEWS for node in nodes) or any(
        _sum_of_bytes(node.outputs) > _sum_of_bytes(node.inputs) for node in nodes
    )


def _constant_nodes(graph: ir.Graph) -> dict[ir.Node, None]:
    """Return the nodes that can be computed one after another, as far as extents tell, in order."""
    constant_nodes: dict[ir.Node, None] = {}
    values: set[ir.Value] = set()
    for node in graph:
        operands = [value for value in node.inputs if value is not None]
        if node.domain or node.op_type in KEPT or any(value.is_graph_output() for value in node.outputs):
            continue
        are_known = bool(operands) and all(value in values or _is_known(value, LARGEST) for value in operands)
        if are_known and all(map(_has_few_elements, node.outputs)):
            constant_nodes[node] = None
            values.update(node.outputs)
    return constant_nodes


def _has_few_elements(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static() and _elements(value) <= LARGEST


def _elements(value: ir.Value) -> int:
    """Return the elements of a value whose extents are known."""
    return 0 if value.shape is None else prod(value.shape.numpy())


def bytes_of(value: ir.Value) -> int | None:
    """Return the bytes of a value; None where its extents or its type are not known."""
    shape, kind = value.shape, value.dtype
    unknown = (None, ir.DataType.STRING, ir.DataType.UNDEFINED)
    if shape is None or kind is None or not shape.is_static() or kind in unknown:
        return None
    return int(prod(shape.numpy()) * kind.bitwidth // 8)


def _sum_of_bytes(values: Iterable[ir.Value | None]) -> int:
    """Return the bytes of values whose extents are known."""
    return sum(bytes_of(value) or 0 for value in values if value is not None)


def _before(node: ir.Node, constant: Collection[ir.Node], chosen: Collection[ir.Node]) -> set[ir.Node]:
    """Return a node with all before it that have to be computed for it."""
    needed_nodes: set[ir.Node] = set()
    ahead = [node]
    while ahead and len(needed_nodes) <= MOST_TOGETHER:
        node = ahead.pop()
        if node in needed_nodes or node in chosen:
            continue
        needed_nodes.add(node)
        ahead += [producer for producer in producers(node.inputs) if producer in constant]
    return needed_nodes


def _growth(node: ir.Node, results: list[NDArray[Any]]) -> int:
    """Return how many bytes more a file has with the results of a node, where its operands are not small."""
    operands = [value for value in node.inputs if value is not None and value.const_value is not None]
    if all(value.const_value is None or value.const_value.size <= SMALL for value in operands):
        return 0
    last_read = [value.const_value for value in operands if len(value.uses()) == 1]
    return sum(array.nbytes for array in results) - sum(each.nbytes for each in last_read if each is not None)


def _computed(model: ir.Model, node: ir.Node, most: int) -> list[NDArray[Any]] | None:
    """Return what a node gives, if it is known, and no operand and no result has more elements than `most`."""
    if node.domain or node.op_type in KEPT or _gives_an_end(model, node):
        return None
    if all(value.const_value is not None for value in node.outputs if value.name) and node.outputs:
        return _contents(node)
    if node.op_type == "Shape":
        return _shape(node)
    return _of_constants(model, node, most)


def _gives_an_end(model: ir.Model, node: ir.Node) -> bool:
    """Return whether a node gives a result of the model, or a result of a body that is a constant already.

    Other results of bodies are computed here: a runtime that computes them before the first run may lose them.
    """
    if not any(value.is_graph_output() for value in node.outputs):
        return False
    return node.graph is model.graph or node.op_type in ("Constant", "Identity") or len(node.outputs) > 1


def _of_constants(model: ir.Model, node: ir.Node, most: int) -> list[NDArray[Any]] | None:
    """Return what a node gives that reads constants alone; None where that is much, or not known."""
    operands = [value for value in node.inputs if value is not None]
    if not all(_is_known(value, most) for value in operands) or (not node.inputs and node.op_type != "Constant"):
        return None
    if not _is_bounded(node, most):
        return None
    tensors = {value.name or "": value.const_value for value in operands}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None}
    results = run_node(model, node, arrays)
    if results is None or any(array.size > most for array in results):
        return None
    return None if most < LARGEST and _is_larger(results, list(arrays.values())) else results


def _is_larger(results: Sequence[NDArray[Any]], operands: Sequence[NDArray[Any]]) -> bool:
    """Return whether results take more bytes than operands that are not small."""
    is_small = all(array.size <= SMALL for array in operands)
    return not is_small and sum(array.nbytes for array in results) > sum(array.nbytes for array in operands)


def _contents(node: ir.Node) -> list[NDArray[Any]] | None:
    arrays = [value.const_value.numpy() if value.const_value is not None else np.zeros(0) for value in node.outputs]
    return arrays if all(array.size <= FREE for array in arrays) else None


def _shape(node: ir.Node) -> list[NDArray[Any]] | None:
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(shape))
    return [np.array(shape.numpy()[start:end], np.int64)]


def _is_known(value: ir.Value, most: int) -> bool:
    constant = known_tensor(value)
    return constant is not None and constant.size <= most


def _is_bounded(node: ir.Node, most: int) -> bool:
    """Tell whether a node gives few elements: as its constants say, where they do, whatever shape the file states."""
    if node.op_type in SIZES and node.op_type in GROWING:
        tensors = [None if value is None else value.const_value for value in node.inputs]
        arrays = [None if tensor is None else tensor.numpy() for tensor in tensors]
        return writes_at_most(ir.serde.serialize_node(node), arrays, most)
    shapes = [value.shape for value in node.outputs]
    if all(shape is not None and shape.is_static() for shape in shapes):
        return all(prod(shape.numpy()) <= most for shape in shapes if shape is not None)
    return node.op_type not in GROWING


def run_node(
    model: ir.Model,
    node: ir.Node,
    arrays: dict[str, NDArray[Any]],  # its operands, by name
) -> list[NDArray[Any]] | None:
    """Return what a node of constants gives; None where nobody computes it, or not in the types that it says."""
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


Constants = dict[tuple[str, tuple[int, ...], bytes], ir.Value]
"""Type, extents and content -> the constant of a graph that holds them."""


def replace_by_constants(
    graph: ir.Graph,
    node: ir.Node,
    arrays: list[NDArray[Any]],  # its results
    # constants that earlier nodes became, where an equal one is used again; None: each is new
    constants: Constants | None = None,
) -> None:
    """Replace a node by constants that hold its results; the result of a body is a copy of one."""
    for value, array in zip(node.outputs, arrays, strict=True):
        if not value.name:
            continue
        is_compared = constants is not None and array.dtype.kind != "O"
        key = array.dtype.name, array.shape, array.tobytes() if is_compared else b""
        if constants is not None and is_compared and key in constants and not value.is_graph_output():
            value.replace_all_uses_with(constants[key])
            value.name = None
            continue
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=value.name)
        constant = ir.val(value.name, const_value=tensor)
        if value.is_graph_output():
            constant.name = tensor.name = f"{value.name}/constant"
            copy = ir.node("Identity", [constant])
            graph.insert_before(node, copy)
            take_over(copy.outputs[0], value, but=[node])
        value.replace_all_uses_with(constant)
        value.name = None
        if constant.uses():
            graph.register_initializer(constant)
            if constants is not None and is_compared:
                constants[key] = constant
    graph.remove(node, safe=True)


# Weights that follow from others are computed: standardized and normalized kernels, a part of an embedding.
#
#     w -> Sub(mean) -> Div(std) -> Conv    becomes    w' -> Conv
#
# A runtime of ONNX computes such a kernel once, when it loads a model. One of `.tflite` does so in each run, and its
# fast kernels take constants alone.

GROWTH = 3  # weights and computed constants may have so many times the bytes of a model's weights

MOST_VIEWS = 8  # views between a constant and the node that reads it: networks have one or two

MOST_IN_MEMORY = 1 << 29
"""Bytes of computed weights, which stay in memory until they are written; the others are read from the file then."""


def bytes_of_weights(model: ir.Model) -> int:
    """Return the bytes of all constants of a model."""
    graphs = list(all_graphs(model.graph))
    return sum(bytes_of(value) or 0 for graph in graphs for value in graph.initializers.values())


def fold_weights(
    model: ir.Model,
    weight_bytes: int,  # the bytes that its constants had before any was computed
) -> bool:
    """Compute nodes that make constants of constants, none of them larger than its operands, in place.

    Returns:
        Whether there were any.
    """
    graphs = list(all_graphs(model.graph))
    room: int | None = None
    views: dict[ir.Value, int] = {}
    changed = False
    for graph in graphs:
        for node in list(graph):
            _note_view(node, views)
            size = _size_of_results(node, views)
            if size is None:
                continue
            room = _room(model, weight_bytes) if room is None else room
            if size > room:
                continue
            results = _computed_weights(model, node)
            if results is None:
                continue
            operands = [value for value in node.inputs if value is not None]
            replace_by_constants(graph, node, results)
            room += sum(bytes_of(value) or 0 for value in drop_unread(operands) if _is_made(value)) - size
            changed = True
    return changed


def _room(model: ir.Model, weight_bytes: int) -> int:
    """Return how many bytes of weights may still be computed."""
    values = [value for graph in all_graphs(model.graph) for value in graph.initializers.values()]
    in_memory = sum(bytes_of(value) or 0 for value in values if _is_made(value))
    return min(GROWTH * weight_bytes - bytes_of_weights(model), MOST_IN_MEMORY - in_memory)


def _note_view(node: ir.Node, views: dict[ir.Value, int]) -> None:
    """Enter the result of a view of constants, and how many views lie between it and them, where these are few."""
    operands = [value for value in node.inputs if value is not None]
    if node.domain or node.op_type not in VIEWS or not all(_has_known_operands(value, views) for value in operands):
        return
    depth = 1 + max((views.get(value, 0) for value in operands), default=0)
    if depth <= MOST_VIEWS:
        views[node.outputs[0]] = depth


def _size_of_results(node: ir.Node, views: Mapping[ir.Value, int]) -> int | None:
    """Return the bytes of a node's results; None where it is not computed.

    It is where its operands are constants, or views of them, and have as many bytes.
    """
    if node.domain or node.op_type not in COMPUTED or any(value.is_graph_output() for value in node.outputs):
        return None
    operands = [value for value in node.inputs if value is not None]
    if not operands or not all(_has_known_operands(value, views) for value in operands):
        return None
    operand_sizes, result_sizes = (
        list(map(bytes_of, operands)),
        [bytes_of(value) for value in node.outputs if value.name],
    )
    if None in operand_sizes or None in result_sizes:
        return None
    size = sum(filter(None, result_sizes))
    return size if size <= sum(filter(None, operand_sizes)) else None


def _has_known_operands(value: ir.Value, views: Mapping[ir.Value, int]) -> bool:
    """Tell whether a value is a constant, or a view of constants."""
    return value in views or known_tensor(value) is not None


def _computed_weights(model: ir.Model, node: ir.Node) -> list[NDArray[Any]] | None:
    """Return what a node gives; None where it cannot be computed."""
    arrays: dict[str, NDArray[Any]] = {}
    for value in node.inputs:
        if value is not None:
            array = _array(model, value)
            if array is None:
                return None
            arrays[value.name or ""] = array
    return run_node(model, node, arrays)


def _array(model: ir.Model, value: ir.Value) -> NDArray[Any] | None:
    """Return what a constant holds, or what views make of one."""
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    results = None if node is None else _computed_weights(model, node)
    return None if results is None else results[0]


def _is_made(value: ir.Value) -> bool:
    """Tell whether a constant was computed here: its array is in memory."""
    return type(value.const_value) is ir.Tensor
