"""ONNX's shape inference, held to an amount of memory.

With data propagation it makes a symbol of some 150 bytes for every element of every vector that is added, gathered or
cast, known or not: a file of 200 bytes that adds vectors of 10**8 elements would take 15 GB. Propagation is for shapes,
which are short. Where vectors are long together, it is left out, and what it would have found stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from relayout import isolation
from relayout.errors import ReadError
from relayout.formats.onnx.wire import graphs_in, nested_graphs
from relayout.graph.domains import RESIZING
from relayout.graph.subgraphs import all_nodes
from relayout.layout import Extent
from relayout.layout.stored_as import CLAIMED, STATED

# Names that shape inference makes up for extents, and the names that say the same.


class ExtentNames:
    """Names that inference made up for extents, and what else these are called.

    A name stands for one extent and is never used for another: `used` holds all names so far.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.used: set[str] = set()
        ends = (*graph.inputs, *graph.outputs)
        shapes = (shape for end in ends for shape in (end.shape, end.meta.get(STATED)) if shape is not None)
        self._stated = {name for shape in shapes for dim in shape for name in symbols_of_dim(dim)}
        self._same: dict[str, Extent] = {}

    def learn(self, before: ir.Shape | None, after: Sequence[int | ir.SymbolicDim | str] | None) -> None:
        """Note the extents of another shape for names that were made up in one of the same rank."""
        if before is None or after is None or len(before) != len(after):
            return
        for dim, other in zip(before, after, strict=True):
            name = None if isinstance(dim, int) else dim.value
            other_extent = other if isinstance(other, int | str) else other.value
            if name is None or other_extent in (None, "") or not MADE_UP.fullmatch(name) or name in self._stated:
                continue
            extent = self._of(Extent.of(other_extent))
            if name not in self._same and name not in extent.names:
                self._same[name] = extent

    def settle(self, model: ir.Model, outputs_of: OutputsOf | None) -> None:
        """Say every extent by its one name, node after node: by what a node reads its outputs' may be known.

        [b, 8, h, w] -> Conv -> [unk__8, 8, h, w]: unk__8 is b
        """
        for node in model.graph:
            for value in node.outputs if self._same else ():
                self._rename(value)
            if outputs_of is not None and any(any(map(_is_made_up_here, v.shape or ())) for v in node.outputs):
                for value, (_, shape) in zip(node.outputs, outputs_of(node, model.opset_imports), strict=False):
                    self.learn(value.shape, shape)
                    self._rename(value)
        for value in (value for node in all_nodes(model.graph) for value in node.outputs) if self._same else ():
            self._rename(value)

    def _of(self, extent: Extent) -> Extent:
        while not self._same.keys().isdisjoint(extent.names):
            extent = extent.fixed({name: str(self._same[name]) for name in extent.names if name in self._same})
        return extent

    def _rename(self, value: ir.Value) -> None:
        if value.shape is None or not any(self._same.keys() & symbols_of_dim(dim) for dim in value.shape):
            return
        dims = [
            dim if isinstance(dim, int) or dim.value is None else self._of(Extent.of(dim.value)) for dim in value.shape
        ]
        value.shape = ir.Shape([(d.number if d.is_static else str(d)) if isinstance(d, Extent) else d for d in dims])


def symbols_of_dim(dim: int | ir.SymbolicDim) -> frozenset[str]:
    """Return the symbols in the extent of a dimension."""
    return frozenset() if isinstance(dim, int) or dim.value is None else Extent.of(dim.value).names


def _is_made_up_here(dim: int | ir.SymbolicDim) -> bool:
    return not isinstance(dim, int) and dim.value is not None and MADE_UP.fullmatch(dim.value) is not None


ALIASES = ("", "ai.onnx")  # the names of the standard's domain

SHORT = 1 << 10
"""Elements up to which a vector may be a shape, and is not counted: thousands of biases are in a usual model."""

MOST_PROPAGATED = 1 << 21  # elements of all longer vectors together with which data is still propagated: some 300 MB

MOST_SCALED = 1 << 20  # how many times an extent may become; a larger scale is damaged

INTEGERS = (onnx.TensorProto.UNDEFINED, onnx.TensorProto.INT32, onnx.TensorProto.INT64)
"""Types of what shapes are made of."""


def infer_shapes(model: onnx.ModelProto, stated: onnx.GraphProto | None = None) -> onnx.ModelProto:
    """Return the model with inferred types and shapes; from the values of shapes, too, where that stays small.

    Args:
        model: what to infer.
        stated: the same graph with shapes that ONNX's checker has held to its inference: where every value has one,
            lengths are read there, and nothing is inferred to find them.

    Raises:
        Exception: what onnx raises for a model that is not consistent.
    """
    complete = stated is not None and not model.functions and _is_complete(stated)
    if stated is not None and complete and sum(_lengths(stated)) <= MOST_PROPAGATED:
        return propagate(model, is_short=True) or infer(model)
    return infer_and_judge(model)[0]


def infer_and_judge(model: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
    """Return the model with inferred types and shapes, and whether nothing is left to find: see `is_settled`."""
    plain = infer(model)
    if is_settled(plain.graph):
        return plain, True
    if sum(_lengths(plain.graph)) > MOST_PROPAGATED:
        return plain, False
    return propagate(model, is_short=not _has_open_vector(plain.graph)) or plain, False


Ask = Callable[[onnx.ModelProto], onnx.ModelProto | None]  # what ONNX infers of a model; None where it cannot be asked


def infer(model: onnx.ModelProto, *, strict: bool = False) -> onnx.ModelProto:
    """Infer types and shapes as ONNX does, but for extents of 0 that do not follow from what a node reads.

    Where an extent is open, inference of some operators (Attention) reckons with 0: what it gives then is open, too.
    """
    inferred = _inferred(model, lambda each: isolation.infer_shapes(each, strict=strict))
    assert inferred is not None
    return inferred


def propagate(model: onnx.ModelProto, *, is_short: bool) -> onnx.ModelProto | None:
    """Infer as `infer` does, from the values of shapes, too; None where that takes too much memory, or crashes."""
    return _inferred(model, lambda each: isolation.propagate(each, is_short=is_short))


def _inferred(model: onnx.ModelProto, ask: Ask) -> onnx.ModelProto | None:
    inferred = ask(model)
    empty = [] if inferred is None else _made_empty(inferred)
    resized = {} if inferred is None else _resized_otherwise(inferred.graph)
    if inferred is None or not (empty or resized):
        return inferred
    # What such a node gives is an input of a graph without it, with its own extents, or open ones; then all is put
    # together again.
    opened = _opened(inferred.graph, empty) | {value.name: value for value in resized.values()}
    empty = sorted({*empty, *resized})
    bare = deepcopy(model)
    for index in reversed(empty):
        del bare.graph.node[index]
    _replace(bare.graph.value_info, [value for value in model.graph.value_info if value.name not in opened])
    _replace(bare.graph.output, [opened.get(value.name, value) for value in model.graph.output])
    bare.graph.input.extend(opened.values())
    if (again := _inferred(bare, ask)) is None:
        return None
    for index in empty:
        again.graph.node.insert(index, inferred.graph.node[index])
    _replace(again.graph.input, model.graph.input)
    outputs = {value.name for value in again.graph.output}
    again.graph.value_info.extend(value for name, value in opened.items() if name not in outputs)
    return again


def _replace(values: Any, others: Iterable[onnx.ValueInfoProto]) -> None:
    new_values = list(others)
    del values[:]
    values.extend(new_values)


def _made_empty(model: onnx.ModelProto) -> list[int]:
    """Find the nodes that give an extent of 0, which is another number where the open extents that they read are large.

    One that reads no elements itself, or nothing that is open, gives what it must.
    """
    graph = model.graph
    values = (*graph.input, *graph.value_info, *graph.output)
    if not (empty := _names_with(values, lambda kind: _has(kind, _is_zero))):
        return []
    types = {value.name: value.type for value in values}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    types |= {name: onnx.helper.make_tensor_type_proto(each.data_type, each.dims) for name, each in weights.items()}
    version = max((each.version for each in model.opset_import if each.domain in ALIASES), default=1)
    indices = []
    for index, node in enumerate(graph.node):
        if not _may_be_filled(node, empty, types):
            continue
        large = {name: _large(types[name]) for name in node.input if name in types}
        inferred_types = infer_node(
            node, large, {name: weights[name] for name in node.input if name in weights}, version
        )
        if not any(
            _has(inferred_types[name], _is_zero) for name in node.output if name in empty and name in inferred_types
        ):
            indices.append(index)
    return indices


def _may_be_filled(node: onnx.NodeProto, empty: set[str], types: Mapping[str, onnx.TypeProto]) -> bool:
    """Tell whether a node makes something empty of open extents that are not."""
    if empty.isdisjoint(node.output) or not empty.isdisjoint(filter(None, node.input)) or node.domain not in ALIASES:
        return False
    return any(name in types and _has(types[name], _is_unset) for name in node.input if name)


def _resized_otherwise(graph: onnx.GraphProto) -> dict[int, onnx.ValueInfoProto]:
    """Return the place of each Resize that gives other extents than ONNX infers, and what it gives."""
    nodes = {i: node for i, node in enumerate(graph.node) if node.op_type in RESIZING and node.domain in ALIASES}
    if not nodes:
        return {}
    values = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    constants = {node.output[0]: a.t for node in graph.node if node.op_type == "Constant" for a in node.attribute}
    constants |= {tensor.name: tensor for tensor in graph.initializer}
    resized = {index: _resized(node, values, constants) for index, node in nodes.items()}
    return {i: value for i, value in resized.items() if value is not None and value != values[value.name]}


def _resized(
    node: onnx.NodeProto, values: Mapping[str, onnx.ValueInfoProto], constants: Mapping[str, onnx.TensorProto]
) -> onnx.ValueInfoProto | None:
    """Return what a Resize by scales gives: runtimes multiply in float32, by which 100 * 0.7 is 70, and ONNX 69."""
    operand, value = values.get(node.input[0]), values.get(node.output[0])
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    scales = attributes.get("scales", constants.get(node.input[min(2, len(node.input) - 1)]))
    if isinstance(scales, onnx.TensorProto) and not scales.external_data:
        scales = numpy_helper.to_array(scales).tolist()
    is_cropped = attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize"
    if operand is None or value is None or not isinstance(scales, list) or len(node.input) > 3 or is_cropped:
        return None
    dims, resized = operand.type.tensor_type.shape.dim, deepcopy(value)
    new_dims, axes = resized.type.tensor_type.shape.dim, attributes.get("axes", range(len(dims)))
    is_sound = all(0 < scale < MOST_SCALED for scale in scales)
    if len(dims) != len(new_dims) or len(axes) != len(scales) or not is_sound:
        return None
    for axis, scale in zip(axes, scales, strict=True):
        if dims[axis].HasField("dim_value"):
            new_dims[axis].dim_value = int(np.float32(dims[axis].dim_value) * np.float32(scale))
    return resized


def _is_zero(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return dim.HasField("dim_value") and dim.dim_value == 0


def _is_unset(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return not dim.HasField("dim_value")


def _has(kind: onnx.TypeProto, test: Callable[[onnx.TensorShapeProto.Dimension], bool]) -> bool:
    return any(map(test, kind.tensor_type.shape.dim))


def _large(kind: onnx.TypeProto) -> onnx.TypeProto:
    """Return a type whose open extents are a number that many others divide."""
    result = deepcopy(kind)
    for dim in filter(_is_unset, result.tensor_type.shape.dim):
        dim.dim_value = 5040
    return result


def _opened(graph: onnx.GraphProto, nodes: Sequence[int]) -> dict[str, onnx.ValueInfoProto]:
    """Return the types of what some nodes give, with extents of 0 open."""
    names = {name for index in nodes for name in graph.node[index].output}
    opened_values: dict[str, onnx.ValueInfoProto] = {}
    for value in (*graph.value_info, *graph.output):
        if value.name in names:
            opened_values[value.name] = deepcopy(value)
            for dim in filter(_is_zero, opened_values[value.name].type.tensor_type.shape.dim):
                dim.Clear()
    return opened_values


def _names_with(values: Iterable[onnx.ValueInfoProto], test: Callable[[onnx.TypeProto], bool]) -> set[str]:
    """Return the values whose types pass a test; what is stated alike is looked at once."""
    results: dict[bytes, bool] = {}
    names = set()
    for value in values:
        kind = value.type
        key = kind.SerializeToString()
        if key not in results:
            results[key] = test(kind)
        if results[key]:
            names.add(value.name)
    return names


def is_settled(graph: onnx.GraphProto) -> bool:
    """Tell whether a graph is settled: every shape is known, and no operator gives constants or a possible shape.

    A graph with bodies is never said to be.
    """
    values = (*graph.value_info, *graph.output)
    known = _names_with(values, _is_plain)
    if len(known) < len({value.name for value in values}):
        return False
    known.add("")
    constants = {"", *(tensor.name for tensor in graph.initializer)}
    return all(
        known.issuperset(node.output)
        and not constants.issuperset(node.input)
        and not (node.attribute and any(map(graphs_in, node.attribute)))
        for node in graph.node
    )


def _is_plain(kind: onnx.TypeProto) -> bool:
    """Tell whether it is a tensor of known extents, and not of the numbers that shapes are made of."""
    tensor = kind.tensor_type
    known = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    return known and tensor.elem_type not in INTEGERS


def infer_node(
    node: onnx.NodeProto,
    types: dict[str, onnx.TypeProto],  # of each of its inputs
    data: dict[str, onnx.TensorProto],  # what is known of them
    version: int,  # of the operators of ONNX's own
) -> dict[str, onnx.TypeProto]:
    """Types and shapes of what a node of ONNX's own gives, by itself; of one with bodies, or that is wrong, nothing."""
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
    """Tell whether the shape of every value is stated, with all extents of vectors; a subgraph never says so."""
    shaped = _names_with((*graph.value_info, *graph.output), _has_lengths)
    return all(
        all(name in shaped for name in node.output if name) and not any(a.HasField("g") for a in node.attribute)
        for node in graph.node
    )


def _has_lengths(kind: onnx.TypeProto) -> bool:
    tensor = kind.tensor_type
    dims = tensor.shape.dim
    return tensor.HasField("shape") and (len(dims) != 1 or dims[0].HasField("dim_value"))


def _has_open_vector(graph: onnx.GraphProto) -> bool:
    """Tell whether a vector of integers may be longer than a shape, as far as is known; of subgraphs too."""
    return any(
        _is_open_vector(value)
        for each in nested_graphs(graph)
        for value in (*each.input, *each.value_info, *each.output)
    )


def _is_open_vector(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    if tensor.elem_type not in INTEGERS:
        return False
    dims = tensor.shape.dim
    return not tensor.HasField("shape") or (len(dims) == 1 and not dims[0].HasField("dim_value"))


def _lengths(graph: onnx.GraphProto) -> Iterator[int]:
    """Yield the lengths of vectors that are too long for a shape, of subgraphs too."""
    for each in nested_graphs(graph):
        for value in (*each.input, *each.value_info, *each.output):
            dims = value.type.tensor_type.shape.dim
            if len(dims) == 1 and dims[0].dim_value > SHORT:
                yield dims[0].dim_value


# The shape that is stated of a value, and the better one that becomes known.

MADE_UP = re.compile(r"unk__[0-9]+")  # names that ONNX's shape inference makes up for unknown extents
Dims = tuple[int | str | None, ...]  # extents of a shape; None is one that is not known
Output = tuple[ir.DataType | None, Sequence[int | str] | None]
"""Element type and shape of an output; None is a type or rank that is not known, "" an extent."""
OutputsOf = Callable[[ir.Node, Mapping[str, int]], Sequence[Output]]


def open_stated(value: ir.Value) -> None:
    """Open the extents that a file states of a value; what it states is a price only."""
    if value.shape is not None and CLAIMED not in value.meta:
        value.meta[CLAIMED] = value.shape
        value.shape = ir.Shape([None if isinstance(dim, int) else dim for dim in value.shape])


def dims_of_shape(shape: ir.Shape) -> Dims:
    """Return the extents of a shape: a number, a name, or None."""
    return tuple([dim if isinstance(dim, int) else dim.value for dim in shape])


def is_known_value(value: ir.Value) -> bool:
    """Return whether the type and every extent of a value are known."""
    return value.type is not None and value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def better_shape(stated: ir.Shape | None, inferred: ir.Shape | None, *, keep_names: bool = True) -> ir.Shape | None:
    """Return the stated shape, with the extents that it leaves open taken from the inferred one.

    With `keep_names` False, extents with made-up names are taken from it, too.
    """
    if stated is None or inferred is None or len(stated) != len(inferred):
        return stated if stated is not None else inferred
    pairs = zip(stated, inferred, strict=True)
    return ir.Shape([b if isinstance(b, int) or is_open_dim(a, keep_names=keep_names) else a for a, b in pairs])


def is_open_dim(dim: int | ir.SymbolicDim, *, keep_names: bool = True) -> bool:
    """Return whether a dimension has no extent; with `keep_names` False a made-up name counts as none."""
    if isinstance(dim, int):
        return False
    return dim.value is None or (not keep_names and MADE_UP.fullmatch(dim.value) is not None)
