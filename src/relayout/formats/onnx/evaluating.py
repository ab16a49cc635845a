"""Values and extents that follow from constants and extents alone: the shapes that an exporter has a graph compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from relayout.formats.onnx.inferring import infer_node
from relayout.formats.onnx.output_sizes import writes_at_most
from relayout.layout import Extent, product

Array = NDArray[Any]
Item = int | Extent | None
"""An extent in a vector of shapes: a number, a product with symbols, or not known."""

_MOVING = "Cast Concat Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze"
MOVING = frozenset(_MOVING.split())
"""Operators whose results hold elements of their first operand (Concat: of all), by no more than where they stand."""
_NAMES = """
    Add And Ceil ConstantOfShape Div Equal Expand Floor Greater Less Max Min Mod Mul Neg Not Or Pow Range Reciprocal
    ReduceMax ReduceMin ReduceProd ReduceSum ScatterND Split Sub Where
"""
SHAPE_ARITHMETIC = MOVING | frozenset(_NAMES.split())
"""Operators that exporters compute shapes and axes with; others are not evaluated from constants alone."""
_NAMES = """
    Abs ArgMax ArgMin Clip Cos CumSum Exp EyeLike GatherElements GatherND GreaterOrEqual IsNaN LessOrEqual Log OneHot
    Pad ReduceMean Round ScatterElements Sign Sin Sqrt Tile Trilu Xor
"""
FROM_EXTENTS = SHAPE_ARITHMETIC | frozenset(_NAMES.split())
"""Operators that are evaluated where extents, and not constants alone, are what they start from."""
STARTS = frozenset(("ConstantOfShape", "Range", "Shape", "Size"))
"""Where values begin that follow from extents: masks, positions. Weights are not folded here."""
WINDOWS = frozenset(("AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool"))
"""Operators that slide a window over the last axes of their first operand."""
_NAMES = """
    Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or
    Pow PRelu Sub Sum Where Xor
"""
BROADCASTING = frozenset(_NAMES.split())
"""Operators whose operands broadcast against each other."""
_NAMES = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
REDUCING = frozenset(_NAMES.split())
"""Operators that reduce axes, which an operand may name."""
CUTTING = frozenset(("Split",))
"""Operators of which the extents of all results are told alike."""
JOINING = frozenset(("Concat",))
"""Operators whose operands may be known one by one: of the others the length is enough."""
PRODUCTS = frozenset(("Div", "Mul"))
"""Arithmetic that is done with symbols, too."""
MOST_ELEMENTS = 64
"""Of a value that is evaluated from constants: shapes and axes are short."""
MOST_BYTES = 1 << 18
"""Of a value that follows from extents. An operator that would write more elements is not run."""
MOST_TOGETHER = 1 << 26
"""Bytes of all long values of a graph."""


class Evaluation:
    """What is known of a graph in advance, node after node.

    A vector of shapes may be known in part. It is an array of objects then: integers, extents with symbols, and None
    for an extent that has no name.

    Args:
        model: the graph, with inferred shapes.
        known: values that are known already.

    Attributes:
        named: dimension -> what is known of its extent besides its name.
    """

    def __init__(self, model: onnx.ModelProto, known: Mapping[str, Array]) -> None:
        graph = model.graph
        self.opsets = model.opset_import
        self.shapes = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)}
        self.values = dict(known)
        self._long = 0
        self.extents = {name for name, array in known.items() if array.size > MOST_ELEMENTS}
        self.weights: dict[str, onnx.TensorProto] = {}
        self.named: dict[str, Item] = {}
        self.constants: dict[str, list[Item]] = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        inputs = {value.name for value in graph.input}
        for tensor in graph.initializer:
            if tensor.name in inputs or tensor.name in self.values:
                continue
            if int(np.prod(tensor.dims)) <= MOST_ELEMENTS:
                self.values[tensor.name] = numpy_helper.to_array(tensor)
            else:
                self.weights[tensor.name] = tensor

    def run(self, node: onnx.NodeProto) -> Iterator[tuple[str, Array]]:
        """What a node gives, as far as it is known as a whole; what is known in part is kept."""
        names = [name for name in node.input if name]
        follows = node.op_type in STARTS or any(name in self.extents for name in names)
        if node.op_type in JOINING:
            follows |= self._partly(names)
        if not follows and not all(name in self.values for name in names):
            return
        for name, array in zip(node.output, self._results(node, names, follows), strict=False):
            if array.size > MOST_ELEMENTS and not (follows and array.nbytes <= MOST_BYTES):
                continue
            if array.size > MOST_ELEMENTS:
                self._long += array.nbytes
                if self._long > MOST_TOGETHER:
                    continue
            array = self._typed(name, array)
            self.values[name] = array
            if follows:
                self.extents.add(name)
            if array.dtype != object:
                yield name, array

    def _partly(self, names: Sequence[str]) -> bool:
        """Whether some of the vectors that are joined are known, and of the others how long they are: that is noted."""
        known = [name for name in names if name in self.values]
        if len(known) in (0, len(names)) or any(self.values[name].dtype.kind not in "iO" for name in known):
            return False
        shapes = {name: self.dims(name) for name in names if name not in self.values}
        lengths = {name: dims[0] for name, dims in shapes.items() if dims is not None and len(dims) == 1}
        counts = {name: count for name, count in lengths.items() if isinstance(count, int) and count <= MOST_ELEMENTS}
        self.values |= {name: _objects([None] * count) for name, count in counts.items()}
        self.extents |= counts.keys()
        return True

    def _typed(self, name: str, array: Array) -> Array:
        """Numbers in the type that shape inference knows: those that were found one by one are 64 bits wide."""
        kind = self.shapes[name].elem_type if name in self.shapes else 0
        if array.dtype != np.int64 or kind not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            return array
        return array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind), copy=False)

    def told(self, node: onnx.NodeProto) -> list[Item]:
        """The extents that an operator gives, as far as a vector of shapes that it reads tells them; empty: no word.

        Shape inference makes up names for all of them where it does not know the vector as a whole.
        """
        return TOLD[node.op_type](self, node) if node.op_type in TOLD else []

    def followed(self, node: onnx.NodeProto) -> Iterator[tuple[str, list[Item]]]:
        """The extents of what a node gives, as far as those of what it reads tell."""
        names = [name for name in dict.fromkeys(node.input) if name]
        numbers = {name: self.values[name] for name in names if name in self.values}
        data = {name: numpy_helper.from_array(array) for name, array in numbers.items() if array.dtype.kind in "if"}
        version = max((one.version for one in self.opsets if one.domain in ("", "ai.onnx")), default=1)
        found = infer_node(node, dict(self._types(names)), data, version)
        yield from ((name, self._dims(kind.tensor_type) or []) for name, kind in found.items())

    def _types(self, names: Sequence[str]) -> Iterator[tuple[str, onnx.TypeProto]]:
        for name in names:
            tensor = self.initializers.get(name)
            if tensor is not None:
                yield name, onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            elif name in self.shapes:
                yield name, onnx.TypeProto(tensor_type=self.shapes[name])

    def tiled(self, node: onnx.NodeProto) -> list[Item]:
        """The extents of what a Tile gives: its operand's, as often as it is repeated."""
        repeats, dims = self.values.get(node.input[1]) if len(node.input) == 2 else None, self.dims(node.input[0])
        if repeats is None or dims is None or repeats.shape != (len(dims),):
            return []
        return [_combined("Mul", dim, item) for dim, item in zip(dims, repeats.tolist(), strict=True)]

    def reshaped(self, node: onnx.NodeProto) -> list[Item]:
        """The extents of what a Reshape gives, as its vector of shapes and the extents of its operand tell them."""
        if len(node.input) < 2:  # before opset 5 an attribute says it, which shape inference reads
            return []
        wanted, dims = self.values.get(node.input[1]), self.dims(node.input[0])
        if wanted is None or wanted.ndim != 1:
            return []
        given = None if dims is None or None in dims else product(Extent.of(dim) for dim in dims if dim is not None)
        copies = not any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute)
        found: list[Item] = []
        for axis, item in enumerate(wanted.tolist()):
            known = dims[axis] if dims is not None and axis < len(dims) else None
            found.append(known if item == 0 and copies else item)
        others = [Extent.of(item) for item in found if item is not None and item != -1]
        if found.count(-1) == 1 and given is not None and len(others) == len(found) - 1:
            found[found.index(-1)] = _item(given.floor(product(others)))
        return [None if item == -1 else item for item in found]

    def expanded(self, node: onnx.NodeProto) -> list[Item]:
        """The extents of what an Expand gives: its operand's, stretched to its vector of shapes."""
        wanted, dims = self.values.get(node.input[1]), self.dims(node.input[0])
        if wanted is None or wanted.ndim != 1 or dims is None:
            return []
        rank = max(len(dims), wanted.size)
        filled = [[1] * (rank - len(items)) + items for items in (dims, wanted.tolist())]
        return [_stretched(dim, item) for dim, item in zip(*filled, strict=True)]

    def resized(self, node: onnx.NodeProto) -> list[Item]:
        """Find the extents of what a Resize gives: its sizes, or its operand's as often as a whole scale says."""
        given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        dims, names = self.dims(node.input[0]), [*node.input, "", "", "", ""]
        if dims is None or given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
            return []
        axes = [axis % len(dims) for axis in given.get("axes", range(len(dims)))] if dims else []
        found = list(dims)
        factors, sizes, count = (self.values.get(names[slot]) for slot in (2, 1)), self.values.get(names[3]), len(axes)
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

    def parted(self, node: onnx.NodeProto) -> list[Item]:
        """Find the extents of each part that a Split gives: its operand's, but for the axis that it cuts."""
        dims = self.dims(node.input[0])
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        if not dims or not -len(dims) <= axis < len(dims):
            return []
        return [None if place == axis % len(dims) else dim for place, dim in enumerate(dims)]

    def reduced(self, node: onnx.NodeProto) -> list[Item]:
        """Find how many extents a reduction along computed axes gives."""
        dims, kept = self.dims(node.input[0]), [a.i for a in node.attribute if a.name == "keepdims"] != [0]
        if dims is None or len(node.input) < 2 or not node.input[1]:
            return []  # before opset 13 or 18 an attribute says it, which shape inference reads
        return [1 if dim == 1 else None for dim in dims] if kept else self._with_axes(node, -1)

    def squeezed(self, node: onnx.NodeProto) -> list[Item]:
        """Find how many extents are left without computed axes."""
        return self._with_axes(node, -1)

    def unsqueezed(self, node: onnx.NodeProto) -> list[Item]:
        """Find how many extents there are with computed axes."""
        return self._with_axes(node, 1)

    def _with_axes(self, node: onnx.NodeProto, sign: int) -> list[Item]:
        """Count extents: the operand's, and as many more or fewer as there are axes in the second operand."""
        dims, axes = self.dims(node.input[0]), self.dims(node.input[1]) if len(node.input) > 1 else None
        count = axes[0] if axes is not None and len(axes) == 1 else None
        return [None] * (len(dims) + sign * count) if dims is not None and isinstance(count, int) else []

    def joined(self, node: onnx.NodeProto) -> list[Item]:
        """The extents of what a Concat gives: all its operands have those of the axes that it does not join."""
        shapes = [self.dims(name) for name in node.input]
        given = [dims for dims in shapes if dims is not None]
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), None)
        if not given or axis is None or any(len(dims) != len(given[0]) for dims in given) or not given[0]:
            return []
        pairs = zip(*given, strict=True)
        known = [min((dim for dim in dims if dim is not None), key=_vagueness, default=None) for dims in pairs]
        known[axis % len(known)] = None
        return known

    def padded(self, node: onnx.NodeProto) -> list[Item]:
        """The extents that a Pad leaves as they are, and those whose pads are known."""
        dims = self.dims(node.input[0])
        if dims is None or len(node.input) < 2 or (len(node.input) > 3 and node.input[3]):
            return []  # before opset 11 an attribute says it, which shape inference reads
        pads = self.values.get(node.input[1])
        if pads is None or pads.shape != (2 * len(dims),):
            return []
        added = zip(dims, *pads.reshape(2, -1).tolist(), strict=True)
        return [_padded(dim, before, after) for dim, before, after in added]

    def cut(self, node: onnx.NodeProto) -> list[Item]:
        """The extents that a Slice keeps, wherever it begins and ends: those of the axes that it does not cut."""
        dims = self.dims(node.input[0])
        if dims is None or len(node.input) < 3:  # before opset 10 attributes say it, which shape inference reads
            return []
        count = self.dims(node.input[1])
        axes = np.arange(count[0]) if count and isinstance(count[0], int) else None
        if len(node.input) > 3 and node.input[3]:
            axes = self.values.get(node.input[3])
        if axes is None or axes.dtype == object:
            return []
        gone = {axis % len(dims) for axis in axes.tolist()}
        return [None if axis in gone else dim for axis, dim in enumerate(dims)]

    def broadcast(self, node: onnx.NodeProto) -> list[Item]:
        """The extents of operands that broadcast against each other, where no more than one of them is not 1."""
        given = [self.dims(name) for name in node.input if name]
        shapes = [dims for dims in given if dims is not None]
        if len(shapes) < len(given):
            return []
        rank = max(map(len, shapes), default=0)
        found: list[Item] = []
        for axis in range(-rank, 0):
            dims = {dims[axis] for dims in shapes if len(dims) >= -axis} - {1}
            found.append(next(iter(dims), 1) if len(dims) < 2 else None)
        return found

    def slid(self, node: onnx.NodeProto) -> list[Item]:
        """The extents that a sliding window leaves: `(h + pads - reach + stride)//stride`, or all of them.

        Named are sums, and quotients of what is no sum: what divides a quotient is not seen to divide what it is of.
        """
        given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        weights = self.dims(node.input[1]) if len(node.input) > 1 else None
        kernel = given.get("kernel_shape") or (weights or [])[2:]
        dims, count = self.dims(node.input[0]), len(kernel)
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
                found.append(_item(Extent.of(extent).plus(more).floor(Extent(stride))))
        return found

    def dims(self, name: str) -> list[Item] | None:
        """The extents of a value; None: not even its rank is known."""
        if name in self.constants:
            return self.constants[name]
        tensor = self.shapes.get(name)
        return None if tensor is None else self._dims(tensor)

    def _dims(self, tensor: onnx.TypeProto.Tensor) -> list[Item] | None:
        if not tensor.HasField("shape"):
            return None
        return [
            dim.dim_value if dim.HasField("dim_value") else self.extent(dim.dim_param) if dim.dim_param else None
            for dim in tensor.shape.dim
        ]

    def extent(self, name: str) -> Item:
        """The extent of a dimension of that name."""
        return self.named[name] if name in self.named else Extent.of(name)

    def _results(self, node: onnx.NodeProto, names: Sequence[str], follows: bool) -> list[Array]:
        if node.op_type in ("Shape", "Size"):
            return _shape(node, self.dims(names[0]))
        if node.op_type not in (FROM_EXTENTS if follows else SHAPE_ARITHMETIC):
            return []
        given = {}
        for name in names:
            array = self.values.get(name)
            if array is None and name in self.weights:
                array = self.values[name] = numpy_helper.to_array(self.weights[name])
            if array is None:
                return []
            given[name] = array
        if not writes_at_most(node, [given.get(name) for name in node.input], MOST_BYTES):
            return []
        if any(array.dtype == object for array in given.values()):
            if node.op_type in OF_ITEMS:
                return OF_ITEMS[node.op_type](*(given[name] for name in node.input))
            return _reckoned(node, given) if node.op_type in PRODUCTS else self._moved(node, given)
        return self._computed(node, given)

    def _moved(self, node: onnx.NodeProto, given: Mapping[str, Array]) -> list[Array]:
        """An operator that only moves elements, run on their numbers in a list of all."""
        moved = set(node.input if node.op_type == "Concat" else node.input[:1])
        to = next((attribute.i for attribute in node.attribute if attribute.name == "to"), None)
        if node.op_type not in MOVING or to not in (None, onnx.TensorProto.INT64, onnx.TensorProto.INT32):
            return []
        if any(array.dtype == object for name, array in given.items() if name not in moved):
            return []
        items: list[Item] = []
        numbered = dict(given)
        for name in moved:
            flat = given[name].ravel().tolist()
            numbered[name] = np.arange(len(items), len(items) + len(flat)).reshape(given[name].shape)
            items += flat
        return [
            _whole(_objects([items[i] for i in a.ravel()]).reshape(a.shape), to) for a in self._computed(node, numbered)
        ]

    def _computed(self, node: onnx.NodeProto, given: Mapping[str, Array]) -> list[Array]:
        if any(array.dtype.kind not in "iubf" for array in given.values()):
            return []
        if node.op_type == "Div" and any((array < 0).any() for array in given.values() if array.dtype.kind == "i"):
            return []  # integers are truncated by the standard, and floored by its reference
        from onnx.reference import ReferenceEvaluator

        inputs = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "one", inputs, outputs)
        single = onnx.helper.make_model(graph, opset_imports=self.opsets)
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(array) for array in ReferenceEvaluator(single).run(None, dict(given))]
        except Exception:  # the node is wrong, or the reference lacks it: it is simply not known in advance
            return []


TOLD: dict[str, Callable[[Evaluation, onnx.NodeProto], list[Item]]] = {
    "Concat": Evaluation.joined,
    "Expand": Evaluation.expanded,
    "Pad": Evaluation.padded,
    "Reshape": Evaluation.reshaped,
    "Resize": Evaluation.resized,
    **dict.fromkeys(REDUCING, Evaluation.reduced),
    "Slice": Evaluation.cut,
    "Split": Evaluation.parted,
    "Squeeze": Evaluation.squeezed,
    "Tile": Evaluation.tiled,
    "Unsqueeze": Evaluation.unsqueezed,
    "Upsample": Evaluation.resized,
}
"""Operators that read the extents of what they give, or where it is cut."""


def _shape(node: onnx.NodeProto, dims: Sequence[Item] | None) -> list[Array]:
    if dims is None:
        return []
    if node.op_type == "Size":
        return [np.asarray(math.prod(dims))] if all(isinstance(dim, int) for dim in dims) else []  # type: ignore[arg-type]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return [_whole(_objects(dims[bounds.get("start", 0) : bounds.get("end", len(dims))]))]


def _reckoned(node: onnx.NodeProto, given: Mapping[str, Array]) -> list[Array]:
    """Products and quotients of extents."""
    left, right = np.broadcast_arrays(*(given[name] for name in node.input))
    pairs = zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)
    found = [_combined(node.op_type, one, other) for one, other in pairs]
    return [_whole(_objects(found).reshape(left.shape))]


def _combined(operator: str, one: Item, other: Item) -> Item:
    if one is None or other is None:
        return None
    a, b = Extent.of(one), Extent.of(other)
    if a.number <= 0 or b.number <= 0:
        return None
    return _item(a * b if operator == "Mul" else a.floor(b))


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
    return _item(Extent.of(dim).plus(before + after))


def _is_for(array: Array | None, axes: Sequence[int], kinds: str) -> bool:
    """Tell whether an array has one item of these kinds for each axis."""
    return array is not None and array.shape == (len(axes),) and array.dtype.kind in kinds


def _scaled(dim: Item, scale: float) -> Item:
    """Multiply an extent by a whole number; by others it is rounded, and ONNX's inference knows numbers."""
    return _combined("Mul", dim, int(scale)) if scale >= 1 and scale.is_integer() else None


def _vagueness(item: int | Extent) -> tuple[bool, bool]:
    """Numbers come before names, and names that shape inference made up last."""
    made_up = isinstance(item, Extent) and any(name.startswith("unk__") for name in item.names)
    return isinstance(item, Extent), made_up


def _equal(one: Array, other: Array) -> list[Array]:
    """Which elements are equal, if it is known of each: no extent is negative, and one that has a name is itself."""
    left, right = np.broadcast_arrays(one, other)
    found: list[bool] = []
    for a, b in zip(left.ravel().tolist(), right.ravel().tolist(), strict=True):
        negative = any(isinstance(item, int) and item < 0 for item in (a, b))
        if a is None or b is None or not (a == b or negative or (isinstance(a, int) and isinstance(b, int))):
            return []
        found.append(a == b)
    return [np.array(found, bool).reshape(left.shape)]


def _chosen(condition: Array, one: Array, other: Array) -> list[Array]:
    """Elements of one or the other, where it is known of which."""
    return [] if condition.dtype == object else [_whole(np.where(condition, one, other))]


OF_ITEMS: dict[str, Callable[..., list[Array]]] = {"Equal": _equal, "Where": _chosen}
"""Operators on vectors of shapes of which only some extents are numbers."""


def _item(extent: Extent | None) -> Item:
    return extent.number if extent is not None and extent.is_static else extent


def _objects(items: Sequence[Item]) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def _whole(array: Array, kind: int | None = None) -> Array:
    """The array as integers where every element is one."""
    if not all(isinstance(item, int) for item in array.ravel()):
        return array
    return array.astype(np.int32 if kind == onnx.TensorProto.INT32 else np.int64)
