"""Shape inference in rounds: each knows the values, and by vectors of shapes the extents, that follow from the last."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy

import numpy as np
import onnx
from onnx import numpy_helper

from relayout.formats.onnx.evaluating import BROADCASTING, CUTTING, REDUCING, SLIDING, Evaluation
from relayout.formats.onnx.inferring import MADE_UP, infer_and_judge
from relayout.formats.onnx.shape_vectors import Array, Item, combine_items, item_of
from relayout.formats.onnx.wire import bodies_of
from relayout.graph.domains import RESIZING
from relayout.layout import Extent, product

RANGE_OPERANDS = 3


def tiled(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents of what a Tile gives: its operand's, as often as it is repeated."""
    repeats = evaluation.values.get(node.input[1]) if len(node.input) == 2 else None
    dims = evaluation.dims(node.input[0])
    if repeats is None or dims is None or repeats.shape != (len(dims),):
        return []
    return [combine_items("Mul", dim, item) for dim, item in zip(dims, repeats.tolist(), strict=True)]


def reshaped(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents of what a Reshape gives, as its vector of shapes and the extents of its operand tell them."""
    if len(node.input) < 2:  # before opset 5 an attribute says it, which shape inference reads
        return []
    shape_vector, dims = evaluation.values.get(node.input[1]), evaluation.dims(node.input[0])
    if shape_vector is None or shape_vector.ndim != 1:
        return []
    items: list[Item] = shape_vector.tolist()
    if not any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute):
        own = [*(dims or ()), *[None] * len(items)]
        items = [own[axis] if item == 0 else item for axis, item in enumerate(items)]
    element_count = _element_count(dims)
    others = [Extent.of(item) for item in items if item is not None and item != -1]
    if items.count(-1) == 1 and element_count is not None and len(others) == len(items) - 1:
        items[items.index(-1)] = item_of(element_count.floor(product(others)))
    return [None if item == -1 else item for item in items]


def _element_count(dims: Sequence[Item] | None) -> Extent | None:
    """Return the number of elements of a value, if it is known."""
    return None if dims is None or None in dims else product(Extent.of(dim) for dim in dims if dim is not None)


def expanded(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents of what an Expand gives: its operand's, stretched to its vector of shapes."""
    shape_vector, dims = evaluation.values.get(node.input[1]), evaluation.dims(node.input[0])
    if shape_vector is None or shape_vector.ndim != 1 or dims is None:
        return []
    rank = max(len(dims), shape_vector.size)
    filled = [[1] * (rank - len(items)) + items for items in (dims, shape_vector.tolist())]
    return [_stretched(dim, item) for dim, item in zip(*filled, strict=True)]


def resized(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Find the extents of what a Resize gives: its sizes, or its operand's as often as a whole scale says."""
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    dims, names = evaluation.dims(node.input[0]), [*node.input, "", "", "", ""]
    if dims is None or attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return []
    axes = [axis % len(dims) for axis in attributes.get("axes", range(len(dims)))] if dims else []
    extents = list(dims)
    factors = (evaluation.values.get(names[slot]) for slot in (2, 1))
    sizes = evaluation.values.get(names[3])
    count = len(axes)
    scales = attributes.get("scales") or next((array for array in factors if _is_for(array, axes, "f")), None)
    crops = attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize"
    items: list[Item] = [None] * count
    if sizes is not None and _is_for(sizes, axes, "iO"):
        items = sizes.tolist()
    elif scales is not None and len(scales) == count and not names[3] and not crops:
        items = [_scaled(dims[axis], float(scale)) for axis, scale in zip(axes, scales, strict=True)]
    for axis, item in zip(axes, items, strict=True):
        extents[axis] = item
    return extents


def parted(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Find the extents of each part that a Split gives: its operand's, but for the axis that it cuts."""
    dims = evaluation.dims(node.input[0])
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if not dims or not -len(dims) <= axis < len(dims):
        return []
    return [None if place == axis % len(dims) else dim for place, dim in enumerate(dims)]


def reduced(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Find how many extents a reduction along computed axes gives."""
    dims, keep_dims = evaluation.dims(node.input[0]), [a.i for a in node.attribute if a.name == "keepdims"] != [0]
    if dims is None or len(node.input) < 2 or not node.input[1]:
        return []  # before opset 13 or 18 an attribute says it, which shape inference reads
    return [1 if dim == 1 else None for dim in dims] if keep_dims else _with_axes(evaluation, node, -1)


def _with_axes(evaluation: Evaluation, node: onnx.NodeProto, sign: int) -> list[Item]:
    """Count extents: the operand's, and as many more or fewer as there are axes in the second operand."""
    dims, axes = evaluation.dims(node.input[0]), evaluation.dims(node.input[1]) if len(node.input) > 1 else None
    count = axes[0] if axes is not None and len(axes) == 1 else None
    return [None] * (len(dims) + sign * count) if dims is not None and isinstance(count, int) else []


def joined(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents of what a Concat gives: all its operands have those of the axes that it does not join."""
    shapes = [evaluation.dims(name) for name in node.input]
    known_shapes = [dims for dims in shapes if dims is not None]
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), None)
    if (
        not known_shapes
        or axis is None
        or any(len(dims) != len(known_shapes[0]) for dims in known_shapes)
        or not known_shapes[0]
    ):
        return []
    pairs = zip(*known_shapes, strict=True)
    known = [min((dim for dim in dims if dim is not None), key=_vagueness, default=None) for dims in pairs]
    known[axis % len(known)] = None
    return known


def padded(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents that a Pad leaves as they are, and those whose pads are known."""
    dims = evaluation.dims(node.input[0])
    if dims is None or len(node.input) < 2 or (len(node.input) > 3 and node.input[3]):
        return []  # before opset 11 an attribute says it, which shape inference reads
    pads = evaluation.values.get(node.input[1])
    if pads is None or pads.shape != (2 * len(dims),):
        return []
    added = zip(dims, *pads.reshape(2, -1).tolist(), strict=True)
    return [_padded(dim, before, after) for dim, before, after in added]


def cut(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents that a Slice keeps, wherever it begins and ends: those of the axes that it does not cut."""
    dims = evaluation.dims(node.input[0])
    if dims is None or len(node.input) < 3:  # before opset 10 attributes say it, which shape inference reads
        return []
    count = evaluation.dims(node.input[1])
    axes = np.arange(count[0]) if count and isinstance(count[0], int) else None
    if len(node.input) > 3 and node.input[3]:
        axes = evaluation.values.get(node.input[3])
    if axes is None or axes.dtype == object:
        return []
    gone = [axis % len(dims) for axis in axes.tolist()]
    _note_bounds(evaluation, node, gone)
    return [None if axis in gone else dim for axis, dim in enumerate(dims)]


def counted(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extent of a Range from 0 in steps of 1: where it ends."""
    if len(node.input) != RANGE_OPERANDS:
        return []
    start, end, step = (evaluation.values.get(name) for name in node.input)
    if start is None or end is None or step is None or (start != 0).any() or (step != 1).any() or end.size != 1:
        return []
    item = end.reshape(-1)[0]
    return [item] if isinstance(item, Extent) else []


def _note_bounds(evaluation: Evaluation, node: onnx.NodeProto, axes: Sequence[int]) -> None:
    """Note that a Slice `x[:length]` has `length` elements along an axis, or as many as `x` has if that is fewer."""
    starts, ends = (evaluation.values.get(name) for name in node.input[1:3])
    steps = evaluation.values.get(node.input[4]) if len(node.input) > 4 and node.input[4] else np.ones(len(axes))
    dims = evaluation.dims(node.output[0])
    if starts is None or ends is None or steps is None or dims is None:
        return
    for axis, start, end, step in zip(axes, starts.ravel(), ends.ravel(), steps.ravel(), strict=False):
        dim = dims[axis] if axis < len(dims) else None
        if start == 0 and step == 1 and isinstance(end, Extent) and isinstance(dim, Extent) and _has_made_up_name(dim):
            evaluation.bounded[str(dim)] = end


def broadcast_extents(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents of operands that broadcast against each other, where no more than one of them is not 1.

    One that is another or a number below it can only broadcast against that where it is the same, or 1.
    """
    operand_dims = [evaluation.dims(name) for name in node.input if name]
    shapes = [dims for dims in operand_dims if dims is not None]
    if len(shapes) < len(operand_dims):
        return []
    rank = max(map(len, shapes), default=0)
    extents: list[Item] = []
    for axis in range(-rank, 0):
        dims = {dims[axis] for dims in shapes if len(dims) >= -axis} - {1}
        dims -= {dim for dim in dims if isinstance(dim, Extent) and evaluation.bounded.get(str(dim)) in dims - {dim}}
        extents.append(next(iter(dims), 1) if len(dims) < 2 else None)
    return extents


def slid_extents(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents that a sliding window leaves: `(h + pads - reach + stride)//stride`, or all of them.

    Named are sums, and quotients of what is no sum: what divides a quotient is not seen to divide what it is of.
    """
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    weights = evaluation.dims(node.input[1]) if len(node.input) > 1 else None
    kernel = attributes.get("kernel_shape") or (weights or [])[2:]
    dims, count = evaluation.dims(node.input[0]), len(kernel)
    if dims is None or not count or len(dims) != count + 2:
        return []
    strides, dilations = (attributes.get(name, [1] * count) for name in ("strides", "dilations"))
    pads, same = attributes.get("pads", [0] * 2 * count), attributes.get("auto_pad", b"NOTSET").startswith(b"SAME")
    up = attributes.get("ceil_mode", 0)
    extents: list[Item] = [None, None]
    for axis, extent in enumerate(dims[2:]):
        size, stride = kernel[axis], strides[axis]
        reach = dilations[axis] * (size - 1) + 1 if isinstance(size, int) else None
        more = None if reach is None else pads[axis] + pads[axis + count] - reach + stride
        if same and stride == 1:
            extents.append(extent)
        elif extent is None or more is None or same or (stride > 1 and (more or up)):
            extents.append(None)
        else:
            extents.append(item_of(Extent.of(extent).plus(more).floor(Extent(stride))))
    return extents


TOLD: dict[str, Callable[[Evaluation, onnx.NodeProto], list[Item]]] = {
    "Concat": joined,
    "Expand": expanded,
    "Pad": padded,
    "Range": counted,
    "Reshape": reshaped,
    **dict.fromkeys(RESIZING, resized),
    **dict.fromkeys(REDUCING, reduced),
    "Slice": cut,
    "Split": parted,
    "Squeeze": lambda evaluation, node: _with_axes(evaluation, node, -1),
    "Tile": tiled,
    "Unsqueeze": lambda evaluation, node: _with_axes(evaluation, node, 1),
}
"""Operators that read the extents of what they give, or where it is cut."""


def extents_from_vectors(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Return the extents that an operator gives, as far as a vector of shapes that it reads tells them; empty: no word.

    Shape inference makes up names for all of them where it does not know the vector as a whole.
    """
    return TOLD[node.op_type](evaluation, node) if node.op_type in TOLD else []


def _stretched(dim: Item, item: Item) -> Item:
    """The extent of two that broadcast against each other: one that is a number above 1, or the other of a 1."""
    if 1 in (dim, item) or dim == item:
        extent = item if dim == 1 else dim
    else:
        extent = next((one for one in (dim, item) if isinstance(one, int)), None)
    return None if isinstance(extent, int) and extent < 0 else extent


def _padded(dim: Item, before: Item, after: Item) -> Item:
    """Return an extent with so much more on both sides."""
    if dim is None or not (isinstance(before, int) and isinstance(after, int)):
        return None
    return item_of(Extent.of(dim).plus(before + after))


def _is_for(array: Array | None, axes: Sequence[int], kinds: str) -> bool:
    """Tell whether an array has one item of these kinds for each axis."""
    return array is not None and array.shape == (len(axes),) and array.dtype.kind in kinds


def _scaled(dim: Item, scale: float) -> Item:
    """Multiply an extent by a whole number; by others it is rounded, and ONNX's inference knows numbers."""
    return combine_items("Mul", dim, int(scale)) if scale >= 1 and scale.is_integer() else None


def _vagueness(item: int | Extent) -> tuple[bool, bool]:
    """Numbers come before names, and names that shape inference made up last."""
    return isinstance(item, Extent), isinstance(item, Extent) and _has_made_up_name(item)


def _has_made_up_name(extent: Extent) -> bool:
    return any(name.startswith("unk__") for name in extent.names)


# Shape inference in rounds.

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
        new_values, shapes = _evaluated(inferred, known, symbols)
        if not new_values and not shapes:
            break
        known |= new_values
        if any(value.name in new_values for value in light.graph.output):
            break
        stated |= {value.name: value for value in shapes}
        open_still = [value for name, value in stated.items() if name not in known]
        _continue_with(light, inferred, known, open_still)
    result = deepcopy(inferred.graph)
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
    remaining_nodes = [node for node in light.graph.node if not any(name in known for name in node.output)]
    initializer_names = {tensor.name for tensor in light.graph.initializer}
    light.CopyFrom(inferred)
    del light.graph.node[:], light.graph.value_info[:]
    light.graph.node.extend(remaining_nodes)
    light.graph.value_info.extend(stated)
    light.graph.initializer.extend(
        numpy_helper.from_array(known[name], name) for name in known if name not in initializer_names
    )


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
    for body in bodies_of(graph.node):
        yield from _open_dims(body, (*body.input, *body.value_info, *body.output))


def _is_made_up(name: str, symbols: Container[str]) -> bool:
    """Tell whether shape inference made a name up, now or when the file was written."""
    return name not in symbols or MADE_UP.fullmatch(name) is not None


def _evaluated(
    model: onnx.ModelProto, known: Mapping[str, Array], symbols: Container[str]
) -> tuple[dict[str, Array], list[onnx.ValueInfoProto]]:
    """Return the values and shapes of the main graph that follow from those known before.

    Shape inference names an extent that it does not know; `symbols` are those that the file has.
    """
    evaluation = Evaluation(model, known)
    shapes = {value.name: value for value in model.graph.value_info}
    values: dict[str, Array] = {}
    new_shapes: dict[str, onnx.ValueInfoProto] = {}
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or node.output[0] in known:
            continue
        values.update(evaluation.run(node))
        output_extents = [
            (name, extents_from_vectors(evaluation, node))
            for name in (node.output if node.op_type in CUTTING else node.output[:1])
        ]
        if evaluation.bounded and node.op_type in BROADCASTING:
            output_extents = [(node.output[0], broadcast_extents(evaluation, node))]
        # A chain of shapes that are reckoned from those before them is gone through at once.
        if any(name in new_shapes for name in node.input):
            output_extents += evaluation.followed(node)
        for name, items in output_extents:
            value = _named(new_shapes.get(name, shapes[name]), items, symbols) if name in shapes else None
            if value is not None:
                new_shapes[name] = value
                evaluation.shapes[name] = value.type.tensor_type
    return values, list(new_shapes.values())


def _named(value: onnx.ValueInfoProto, shape: Sequence[Item], symbols: Container[str]) -> onnx.ValueInfoProto | None:
    """Return the value with those extents that are known of it, in the file's symbols; None: they say nothing new.

    Of the others the names go: the next inference numbers what it does not know anew.
    """
    better = deepcopy(value)
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
