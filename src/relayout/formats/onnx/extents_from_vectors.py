"""Extents of what an operator gives, by the vectors of shapes and the extents that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from relayout.formats.onnx.evaluating import REDUCING, Evaluation
from relayout.formats.onnx.shape_vectors import Array, Item, combine_items, item_of
from relayout.graph.domains import RESIZING
from relayout.layout import Extent, product

RANGE_OPERANDS = 3


def tiled(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """The extents of what a Tile gives: its operand's, as often as it is repeated."""
    repeats = evaluation.values.get(node.input[1]) if len(node.input) == 2 else None
    dims = evaluation.dims(node.input[0])
    if repeats is None or dims is None or repeats.shape != (len(dims),):
        return []
    return [combine_items("Mul", dim, item) for dim, item in zip(dims, repeats.tolist(), strict=True)]


def reshaped(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """The extents of what a Reshape gives, as its vector of shapes and the extents of its operand tell them."""
    if len(node.input) < 2:  # before opset 5 an attribute says it, which shape inference reads
        return []
    wanted, dims = evaluation.values.get(node.input[1]), evaluation.dims(node.input[0])
    if wanted is None or wanted.ndim != 1:
        return []
    items: list[Item] = wanted.tolist()
    if not any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute):
        own = [*(dims or ()), *[None] * len(items)]
        items = [own[axis] if item == 0 else item for axis, item in enumerate(items)]
    given = _element_count(dims)
    others = [Extent.of(item) for item in items if item is not None and item != -1]
    if items.count(-1) == 1 and given is not None and len(others) == len(items) - 1:
        items[items.index(-1)] = item_of(given.floor(product(others)))
    return [None if item == -1 else item for item in items]


def _element_count(dims: Sequence[Item] | None) -> Extent | None:
    """Return the number of elements of a value, if it is known."""
    return None if dims is None or None in dims else product(Extent.of(dim) for dim in dims if dim is not None)


def expanded(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """The extents of what an Expand gives: its operand's, stretched to its vector of shapes."""
    wanted, dims = evaluation.values.get(node.input[1]), evaluation.dims(node.input[0])
    if wanted is None or wanted.ndim != 1 or dims is None:
        return []
    rank = max(len(dims), wanted.size)
    filled = [[1] * (rank - len(items)) + items for items in (dims, wanted.tolist())]
    return [_stretched(dim, item) for dim, item in zip(*filled, strict=True)]


def resized(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Find the extents of what a Resize gives: its sizes, or its operand's as often as a whole scale says."""
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    dims, names = evaluation.dims(node.input[0]), [*node.input, "", "", "", ""]
    if dims is None or given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return []
    axes = [axis % len(dims) for axis in given.get("axes", range(len(dims)))] if dims else []
    found = list(dims)
    factors = (evaluation.values.get(names[slot]) for slot in (2, 1))
    sizes = evaluation.values.get(names[3])
    count = len(axes)
    scales = given.get("scales") or next((array for array in factors if _is_for(array, axes, "f")), None)
    crops = given.get("coordinate_transformation_mode") == b"tf_crop_and_resize"
    items: list[Item] = [None] * count
    if sizes is not None and _is_for(sizes, axes, "iO"):
        items = sizes.tolist()
    elif scales is not None and len(scales) == count and not names[3] and not crops:
        items = [_scaled(dims[axis], float(scale)) for axis, scale in zip(axes, scales, strict=True)]
    for axis, item in zip(axes, items, strict=True):
        found[axis] = item
    return found


def parted(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Find the extents of each part that a Split gives: its operand's, but for the axis that it cuts."""
    dims = evaluation.dims(node.input[0])
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if not dims or not -len(dims) <= axis < len(dims):
        return []
    return [None if place == axis % len(dims) else dim for place, dim in enumerate(dims)]


def reduced(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """Find how many extents a reduction along computed axes gives."""
    dims, kept = evaluation.dims(node.input[0]), [a.i for a in node.attribute if a.name == "keepdims"] != [0]
    if dims is None or len(node.input) < 2 or not node.input[1]:
        return []  # before opset 13 or 18 an attribute says it, which shape inference reads
    return [1 if dim == 1 else None for dim in dims] if kept else _with_axes(evaluation, node, -1)


def _with_axes(evaluation: Evaluation, node: onnx.NodeProto, sign: int) -> list[Item]:
    """Count extents: the operand's, and as many more or fewer as there are axes in the second operand."""
    dims, axes = evaluation.dims(node.input[0]), evaluation.dims(node.input[1]) if len(node.input) > 1 else None
    count = axes[0] if axes is not None and len(axes) == 1 else None
    return [None] * (len(dims) + sign * count) if dims is not None and isinstance(count, int) else []


def joined(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """The extents of what a Concat gives: all its operands have those of the axes that it does not join."""
    shapes = [evaluation.dims(name) for name in node.input]
    given = [dims for dims in shapes if dims is not None]
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), None)
    if not given or axis is None or any(len(dims) != len(given[0]) for dims in given) or not given[0]:
        return []
    pairs = zip(*given, strict=True)
    known = [min((dim for dim in dims if dim is not None), key=_vagueness, default=None) for dims in pairs]
    known[axis % len(known)] = None
    return known


def padded(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """The extents that a Pad leaves as they are, and those whose pads are known."""
    dims = evaluation.dims(node.input[0])
    if dims is None or len(node.input) < 2 or (len(node.input) > 3 and node.input[3]):
        return []  # before opset 11 an attribute says it, which shape inference reads
    pads = evaluation.values.get(node.input[1])
    if pads is None or pads.shape != (2 * len(dims),):
        return []
    added = zip(dims, *pads.reshape(2, -1).tolist(), strict=True)
    return [_padded(dim, before, after) for dim, before, after in added]


def cut(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """The extents that a Slice keeps, wherever it begins and ends: those of the axes that it does not cut."""
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
    """The extent of a Range from 0 in steps of 1: where it ends."""
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
        if start == 0 and step == 1 and isinstance(end, Extent) and isinstance(dim, Extent) and _is_made_up(dim):
            evaluation.bounded[str(dim)] = end


def broadcast_extents(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """The extents of operands that broadcast against each other, where no more than one of them is not 1.

    One that is another or a number below it can only broadcast against that where it is the same, or 1.
    """
    given = [evaluation.dims(name) for name in node.input if name]
    shapes = [dims for dims in given if dims is not None]
    if len(shapes) < len(given):
        return []
    rank = max(map(len, shapes), default=0)
    found: list[Item] = []
    for axis in range(-rank, 0):
        dims = {dims[axis] for dims in shapes if len(dims) >= -axis} - {1}
        dims -= {dim for dim in dims if isinstance(dim, Extent) and evaluation.bounded.get(str(dim)) in dims - {dim}}
        found.append(next(iter(dims), 1) if len(dims) < 2 else None)
    return found


def slid_extents(evaluation: Evaluation, node: onnx.NodeProto) -> list[Item]:
    """The extents that a sliding window leaves: `(h + pads - reach + stride)//stride`, or all of them.

    Named are sums, and quotients of what is no sum: what divides a quotient is not seen to divide what it is of.
    """
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    weights = evaluation.dims(node.input[1]) if len(node.input) > 1 else None
    kernel = given.get("kernel_shape") or (weights or [])[2:]
    dims, count = evaluation.dims(node.input[0]), len(kernel)
    if dims is None or not count or len(dims) != count + 2:
        return []
    strides, dilations = (given.get(name, [1] * count) for name in ("strides", "dilations"))
    pads, same = given.get("pads", [0] * 2 * count), given.get("auto_pad", b"NOTSET").startswith(b"SAME")
    up = given.get("ceil_mode", 0)
    found: list[Item] = [None, None]
    for axis, extent in enumerate(dims[2:]):
        size, stride = kernel[axis], strides[axis]
        reach = dilations[axis] * (size - 1) + 1 if isinstance(size, int) else None
        more = None if reach is None else pads[axis] + pads[axis + count] - reach + stride
        if same and stride == 1:
            found.append(extent)
        elif extent is None or more is None or same or (stride > 1 and (more or up)):
            found.append(None)
        else:
            found.append(item_of(Extent.of(extent).plus(more).floor(Extent(stride))))
    return found


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
        found = item if dim == 1 else dim
    else:
        found = next((one for one in (dim, item) if isinstance(one, int)), None)
    return None if isinstance(found, int) and found < 0 else found


def _padded(dim: Item, before: Item, after: Item) -> Item:
    """An extent with so much more on both sides."""
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
    return isinstance(item, Extent), isinstance(item, Extent) and _is_made_up(item)


def _is_made_up(extent: Extent) -> bool:
    return any(name.startswith("unk__") for name in extent.names)
