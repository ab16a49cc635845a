"""Shape inference in rounds: each knows the values that follow from the shapes of the last one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import onnx
from onnx import numpy_helper

from relayout.formats.onnx.evaluating import BROADCASTING, CUTTING, SLIDING, Evaluation
from relayout.formats.onnx.extents_from_vectors import broadcast_extents, extents_from_vectors, slid_extents
from relayout.formats.onnx.inferring import MADE_UP, infer_and_judge
from relayout.formats.onnx.shape_vectors import Array, Item
from relayout.formats.onnx.wire import graphs_in
from relayout.layout import Extent

ROUNDS = 8  # each round knows the shapes that the values of the last one give
RESERVED = "relayout.reserved"  # an input that nobody reads, of a model that is only looked at
INFERRED = 200_000
"""Nodes whose shapes are inferred in all rounds together, where `ROUNDS` are not enough: a network whose layers reckon
their pads from what the layer before gives takes a round or two for each.
"""


def infer_in_rounds(
    light: onnx.ModelProto,  # the model without its weights, which is changed
    used: set[str],  # names that have been made up for extents, and are not again; it grows
) -> tuple[onnx.GraphProto, dict[str, Array]]:
    """Return the graph with inferred types and shapes, and the values that are known in advance."""
    stated = {value.name: value for value in light.graph.value_info}
    shapes = [
        value.type.tensor_type.shape for value in (*light.graph.input, *light.graph.output, *light.graph.value_info)
    ]
    symbols = {dim.dim_param for shape in shapes for dim in shape.dim if dim.dim_param}
    whole: dict[str, onnx.ValueInfoProto] = {}
    known: dict[str, Array] = {}
    nodes = len(light.graph.node)
    # Before version 4 of the IR only what an input declares is an initializer: what is found would count for nothing.
    light.ir_version = max(light.ir_version, 4)
    for _ in range(max(ROUNDS, min(nodes, INFERRED // max(1, nodes)))):
        _reserve(light.graph, used)
        inferred, settled = infer_and_judge(light)
        if settled and not known:
            return inferred.graph, known
        whole.update({value.name: value for value in inferred.graph.value_info})
        found, shapes = _evaluated(inferred, known, symbols)
        if not found and not shapes:
            break
        known |= found
        if any(value.name in found for value in light.graph.output):
            break
        stated |= {value.name: value for value in shapes}
        open_still = [value for name, value in stated.items() if name not in known]
        _continue_with(light, inferred, known, open_still)
    result = onnx.GraphProto()
    result.CopyFrom(inferred.graph)
    named = {value.name for value in result.value_info}
    result.value_info.extend(value for name, value in whole.items() if name not in named)
    _name_by_others(result, inferred, known, symbols)
    return result, known


def _continue_with(
    light: onnx.ModelProto, inferred: onnx.ModelProto, known: Mapping[str, Array], stated: Sequence[onnx.ValueInfoProto]
) -> None:
    """Make a model what was inferred of it, with what is known as initializers instead of nodes.

    Without this, ONNX's inference would keep the symbols in value_info, and make up others beside the known extents.
    """
    kept = [node for node in light.graph.node if not any(name in known for name in node.output)]
    given = {tensor.name for tensor in light.graph.initializer}
    light.CopyFrom(inferred)
    del light.graph.node[:], light.graph.value_info[:]
    light.graph.node.extend(kept)
    light.graph.value_info.extend(stated)
    light.graph.initializer.extend(numpy_helper.from_array(known[name], name) for name in known if name not in given)


def _reserve(graph: onnx.GraphProto, used: set[str]) -> None:
    """Have an input whose extents are all names that were made up: ONNX makes none up that the graph has."""
    for dim in _open_dims(graph, (*graph.input, *graph.output, *graph.value_info)):
        used.update(MADE_UP.findall(dim.dim_param))
    if graph.input and graph.input[-1].name == RESERVED:
        del graph.input[-1]
    graph.input.append(onnx.helper.make_tensor_value_info(RESERVED, onnx.TensorProto.FLOAT, sorted(used)))


def _name_by_others(
    graph: onnx.GraphProto, inferred: onnx.ModelProto, known: Mapping[str, Array], symbols: Container[str]
) -> None:
    """Say extents that shape inference had to make names for in other names: `height`, `height*width`."""
    dims = list(_open_dims(graph, graph.value_info))
    if not any(_is_made_up(dim.dim_param, symbols) for dim in dims):
        return
    evaluation = Evaluation(inferred, known)
    for node in inferred.graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        for _ in evaluation.run(node):
            pass
        items = slid_extents(evaluation, node) if node.op_type in SLIDING else extents_from_vectors(evaluation, node)
        items = broadcast_extents(evaluation, node) if node.op_type in BROADCASTING else items
        for dim, item in zip(evaluation.dims(node.output[0]) or (), items, strict=False):
            if isinstance(dim, Extent) and len(dim.symbols) == dim.number == 1 and item not in (None, dim):
                (name,) = dim.symbols
                if _is_made_up(name, symbols):
                    evaluation.named[name] = item
    for dim in dims:
        if (item := evaluation.named.get(dim.dim_param)) is not None:
            dim.Clear()
            if isinstance(item, int):
                dim.dim_value = item
            else:
                dim.dim_param = str(item)


def _open_dims(
    graph: onnx.GraphProto, values: Iterable[onnx.ValueInfoProto]
) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """The dynamic dimensions of some values of a graph, and of all in its nodes' bodies, which share their names."""
    for value in values:
        yield from (dim for dim in value.type.tensor_type.shape.dim if dim.dim_param)
    for node in graph.node:
        for attribute in node.attribute:
            for body in graphs_in(attribute):
                yield from _open_dims(body, (*body.input, *body.value_info, *body.output))


def _is_made_up(name: str, symbols: Container[str]) -> bool:
    """Tell whether shape inference made a name up, now or when the file was written."""
    return name not in symbols or MADE_UP.fullmatch(name) is not None


def _evaluated(
    model: onnx.ModelProto, known: Mapping[str, Array], symbols: Container[str]
) -> tuple[dict[str, Array], list[onnx.ValueInfoProto]]:
    """The values and shapes of the main graph that follow from those known before.

    Shape inference names an extent that it does not know; `symbols` are those that the file has.
    """
    evaluation = Evaluation(model, known)
    shapes = {value.name: value for value in model.graph.value_info}
    values: dict[str, Array] = {}
    found: dict[str, onnx.ValueInfoProto] = {}
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or node.output[0] in known:
            continue
        values.update(evaluation.run(node))
        told = [
            (name, extents_from_vectors(evaluation, node))
            for name in (node.output if node.op_type in CUTTING else node.output[:1])
        ]
        if evaluation.bounded and node.op_type in BROADCASTING:
            told = [(node.output[0], broadcast_extents(evaluation, node))]
        # A chain of shapes that are reckoned from those before them is gone through at once.
        if any(name in found for name in node.input):
            told += evaluation.followed(node)
        for name, items in told:
            value = _named(found.get(name, shapes[name]), items, symbols) if name in shapes else None
            if value is not None:
                found[name] = value
                evaluation.shapes[name] = value.type.tensor_type
    return values, list(found.values())


def _named(value: onnx.ValueInfoProto, shape: Sequence[Item], symbols: Container[str]) -> onnx.ValueInfoProto | None:
    """The value with those extents that are known of it, in the file's symbols; None: they say nothing new.

    Of the others the names go: the next inference numbers what it does not know anew.
    """
    better = onnx.ValueInfoProto()
    better.CopyFrom(value)
    dims, new = better.type.tensor_type.shape.dim, False
    if shape and not better.type.tensor_type.HasField("shape"):  # before opset 14 not even the rank is inferred
        dims.extend(onnx.TensorShapeProto.Dimension() for _ in shape)
        new = True
    for dim, item in zip(dims, shape, strict=False):
        if dim.HasField("dim_value") or dim.dim_param in symbols:
            continue
        before = dim.dim_param
        dim.Clear()
        if isinstance(item, int):
            dim.dim_value = item
        elif item is not None and all(symbol in symbols for symbol in item.names):
            dim.dim_param = str(item)
        new |= dim.WhichOneof("value") is not None and dim.dim_param != before
    return better if new and len(dims) == len(shape) else None
