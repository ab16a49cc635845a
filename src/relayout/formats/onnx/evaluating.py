"""Values and extents that follow from constants and extents alone: the shapes that an exporter has a graph compute."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from relayout.formats.onnx.inferring import infer_node
from relayout.formats.onnx.shape_vectors import (
    MOVES,
    OF_ITEMS,
    Array,
    Item,
    as_integers,
    move_elements,
    object_vector,
    product_or_quotient,
)
from relayout.graph.domains import CONVOLUTION, RESIZE
from relayout.layout import Extent

# How much an operator would write, known from its operands before it runs: a short file can ask for any amount.

Operands = Sequence[Array | None]
Attributes = Mapping[str, Any]


def output_size(
    node: onnx.NodeProto,  # the node, of an operator that is evaluated
    operands: Operands,  # the values of its inputs; None for one that is left out
) -> float:
    """Return at least as many elements as a node's outputs have together, and as running it takes.

    Most operators write as many elements as their operands have where these are broadcast; `SIZES` has the others.

    Raises:
        ValueError, IndexError, TypeError: the node's operands are not what its operator takes.
    """
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    size = SIZES[node.op_type](operands, attributes) if node.op_type in SIZES else _broadcast(operands)
    return max(size, *(array.size for array in operands if array is not None), 0)


def _broadcast(operands: Operands, *more: Sequence[int]) -> float:
    """Return the elements of operands that are stretched to each other, and to more shapes."""
    shapes = [*(array.shape for array in operands if array is not None), *more]
    extents = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return math.prod(float(max(map(abs, each))) for each in extents)


def _integers(operands: Operands, slot: int) -> list[int]:
    """Return the elements of an operand, as extents."""
    array = operands[slot] if slot < len(operands) else None
    return [] if array is None else [abs(int(item or 0)) for item in array.reshape(-1).tolist()]


def _first(operands: Operands) -> Array:
    if (array := operands[0]) is None:
        raise ValueError("the first input is left out")
    return array


def _gathered(operands: Operands, attributes: Attributes) -> float:
    data, indices = _first(operands), operands[1]
    extent = data.shape[int(attributes.get("axis", 0))]
    return 0.0 if indices is None or not extent else float(indices.size) * data.size / extent


def _gathered_slices(operands: Operands, attributes: Attributes) -> float:
    data, indices = _first(operands), operands[1]
    if indices is None or not indices.ndim or not indices.shape[-1]:
        return float(data.size) * (1 if indices is None else indices.size + 1)
    depth = int(attributes.get("batch_dims", 0)) + indices.shape[-1]
    slices: float = math.prod(map(float, data.shape[depth:]))
    return slices * float(indices.size // indices.shape[-1])


def _padded(operands: Operands, attributes: Attributes) -> float:
    dims = _first(operands).shape
    pads = _integers(operands, 1) or [abs(int(item)) for item in attributes.get("pads", attributes.get("paddings", []))]
    axes = [int(item) for item in operands[3].reshape(-1)] if len(operands) > 3 and operands[3] is not None else []
    padded = list(map(float, dims))
    count = len(pads) // 2
    for axis, before, after in zip(axes or range(len(dims)), pads[:count], pads[count:], strict=False):
        padded[axis] += before + after
    return math.prod(padded)


def _range_size(operands: Operands, _: Attributes) -> float:
    ends = [float(array.reshape(-1)[0]) for array in operands if array is not None]
    start, limit, delta = ends
    return max(0, math.ceil((limit - start) / delta)) if delta else math.inf


SIZES: Mapping[str, Callable[[Operands, Attributes], float]] = {
    "Concat": lambda operands, _: sum(array.size for array in operands if array is not None),
    "ConstantOfShape": lambda operands, _: math.prod(map(float, _integers(operands, 0))),
    "Expand": lambda operands, _: _broadcast(operands[:1], _integers(operands, 1)),
    "Gather": _gathered,
    "GatherND": _gathered_slices,
    "OneHot": lambda operands, _: float(_first(operands).size) * math.prod(map(float, _integers(operands, 1))),
    "Pad": _padded,
    "Range": _range_size,
    "Tile": lambda operands, _: float(_first(operands).size) * math.prod(map(float, _integers(operands, 1))),
}
"""Operators that write more than their operands have, or other amounts."""


def writes_at_most(node: onnx.NodeProto, operands: Operands, most: int) -> bool:
    """Tell whether a node is known to write no more than so many elements."""
    try:
        with np.errstate(all="ignore"):
            size = output_size(node, operands)
    except (ValueError, IndexError, TypeError, OverflowError):
        return False
    return size <= most  # not where it is not a number


# The operators that most graphs compute shapes with, by NumPy, as ONNX's reference computes them.
#
# Loading the reference takes as long as converting a small model.


def compute_plainly(
    node: onnx.NodeProto,
    operands: Sequence[Array | None],  # the values of its inputs, as numbers; None for one that is left out
) -> Array | None:
    """Return what a node gives; None where its operator or this form of it is not computed here.

    Raises:
        ValueError, LookupError, TypeError: the operands are not what the operator takes.
    """
    if any(array is None for array in operands) and node.op_type != "Clip":
        return None
    if node.op_type in OTHERS:
        return OTHERS[node.op_type](node, *operands)
    function = FUNCTIONS.get(node.op_type)
    kinds = {array.dtype for array in operands[1 if node.op_type == "Where" else 0 :] if array is not None}
    if function is None or len(kinds) != 1:
        return None
    if any(attribute.type != onnx.AttributeProto.INT or attribute.i for attribute in node.attribute):
        return None
    return np.asarray(function(*operands))


def _filled(node: onnx.NodeProto, shape: Array) -> Array:
    """Return a tensor of the attribute's value; of 0.0 where there is no attribute."""
    values = [numpy_helper.to_array(attribute.t) for attribute in node.attribute if attribute.name == "value"]
    value = values[0] if values else np.zeros(1, np.float32)
    return np.full(tuple(shape.tolist()), value.reshape(()))


def _picked(node: onnx.NodeProto, data: Array, indices: Array) -> Array:
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return np.take_along_axis(data, indices, axis)


def _scattered(node: onnx.NodeProto, data: Array, indices: Array, updates: Array) -> Array | None:
    """Return the data with updates in some places; None where these are reduced with what is there."""
    if node.attribute and node.attribute[0].s not in (b"", b"none"):
        return None
    result = data.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


def _quotient(one: Array, other: Array) -> Array:
    """Integers are truncated, as ONNX has it; its reference floored them until version 1.22."""
    if one.dtype.kind not in "iu":
        return one / other
    floor: Array = one // other
    rounded: Array = np.add(floor, (floor < 0) & (floor * other != one), dtype=floor.dtype)
    return rounded


def _sigmoid(x: Array) -> Array:
    power: Array = np.exp(-np.abs(x))
    quotient: Array = np.where(x > 0, 1, power) / (1 + power)
    return quotient


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Div": _quotient,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "MatMul": np.matmul,
    "Mod": np.mod,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": np.power,
    "Range": lambda start, limit, delta: np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype),
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": _sigmoid,
    "Sub": np.subtract,
    "Where": np.where,
}
"""Operators without attributes but flags that are 0, on operands of one type."""

OTHERS: dict[str, Callable[..., Array | None]] = {
    "Clip": lambda node, data, least=None, most=None: None if node.attribute else np.clip(data, least, most),
    "ConstantOfShape": _filled,
    "Expand": lambda _, data, shape: np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape.tolist()))),
    "GatherElements": _picked,
    "ScatterND": _scattered,
}
"""Operators whose attributes are read, or whose operands are of several types or left out."""


# Results of one node of known operands: by NumPy where that is simple, else by ONNX's reference.

EACH_AXIS = 13
"""The first version of Softmax and its like that knows one axis; before, they took all axes from one on together."""
CENTRES = 16  # the first version of RoiAlign that has pixels' centres
RESIZED = 11  # the first version of Resize that has places of its own for scales and sizes
COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
FITTING = 1e-3


def _is_resized_otherwise(attributes: Attributes, version: int, slots: Sequence[Array | None]) -> bool:
    """Tell whether the reference may resize otherwise than runtimes do.

    1. `pytorch_half_pixel` to an extent of 1, where the reference takes the middle.
    2. Scales that give no whole extents: of the scale and the extents' quotient it may take the other one.
    3. The nearest element, unless each has as many neighbours: the last digit of a coordinate chooses between two.
    """
    place = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    if version < RESIZED or place not in COORDINATES or {"axes", "keep_aspect_ratio_policy"} & attributes.keys():
        return True
    x, scales, sizes = slots[0], *(slots[slot] if slot < len(slots) else None for slot in (2, 3))
    if x is None or (scales is None or not scales.size) == (sizes is None or not sizes.size):
        return True
    before = np.array(x.shape, np.float64)
    exact = np.asarray(sizes if scales is None or not scales.size else before * scales, np.float64)
    after = exact.astype(np.int64)
    if np.abs(exact - after).max(initial=0) > FITTING:
        return True
    if place == "pytorch_half_pixel" and ((after == 1) & (before != 1)).any():
        return True
    return attributes.get("mode", b"nearest") == b"nearest" and bool((after % before).any())


OTHERWISE: dict[str, Callable[[Attributes, int, Sequence[Array | None]], bool]] = {
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), lambda _, version, __: version < EACH_AXIS),
    "LpNormalization": lambda attributes, *_: attributes.get("p", 2) == 1,  # it adds up negative numbers as they are
    RESIZE: _is_resized_otherwise,
    "RoiAlign": lambda _, version, __: version < CENTRES,
    "Unique": lambda attributes, *_: not attributes.get("sorted", 1),  # it sorts where indices are not asked for
    "Upsample": lambda *_: True,
}
"""Operator -> whether ONNX's reference computes it otherwise than runtimes: attributes, version, operands."""

NUMERIC = "iubf"  # kinds of NumPy types that are computed with. Others are moved alone.


def node_results(
    node: onnx.NodeProto,
    operands: Mapping[str, Array],  # its operands, by name
    opsets: Iterable[onnx.OperatorSetIdProto],  # of its model
) -> list[Array]:
    """Return what a node gives, an array for each output that has a name.

    Returns:
        The arrays; none where nobody computes it, or where the node is wrong: it is simply not known in advance.
    """
    slots = [operands.get(name) for name in node.input]
    try:
        with np.errstate(all="ignore"):
            if (moved := move_elements(node, slots)) is not None:
                return [moved]
            if any(array.dtype.kind not in NUMERIC for array in operands.values()):
                return []
            plain = compute_plainly(node, slots)
            return _by_reference(node, operands, opsets) if plain is None else [plain]
    except Exception:  # of many types: the reference lacks operators and types
        return []


def _by_reference(
    node: onnx.NodeProto, operands: Mapping[str, Array], opsets: Iterable[onnx.OperatorSetIdProto]
) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    opsets = list(opsets)
    version = max((one.version for one in opsets if one.domain in ("", "ai.onnx")), default=1)
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type in OTHERWISE and OTHERWISE[node.op_type](
        attributes, version, [operands.get(name) for name in node.input]
    ):
        return []
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in operands.items()
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "node", inputs, outputs), opset_imports=opsets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, dict(operands))]


# Operators that are evaluated in advance, and those whose extents follow from the operands'.

_NAMES = """
    Add And Ceil ConstantOfShape Div Equal Expand Floor Greater Less Max Min Mod Mul Neg Not Or Pow Range Reciprocal
    ReduceMax ReduceMin ReduceProd ReduceSum ScatterND Split Sub Where
"""
SHAPE_ARITHMETIC = frozenset(MOVES) | frozenset(_NAMES.split())
"""Operators that exporters compute shapes and axes with; others are not evaluated from constants alone."""
_NAMES = """
    Abs ArgMax ArgMin Clip Cos CumSum Exp EyeLike GatherElements GatherND GreaterOrEqual IsNaN LessOrEqual Log OneHot
    Pad ReduceMean Round ScatterElements Sign Sin Sqrt Tile Trilu Xor
"""
FROM_EXTENTS = SHAPE_ARITHMETIC | frozenset(_NAMES.split())
"""Operators that are evaluated where extents, and not constants alone, are what they start from."""
STARTS = frozenset(("ConstantOfShape", "Range", "Shape", "Size"))
"""Where values begin that follow from extents: masks, positions. Weights are not folded here."""
SLIDING = frozenset(["AveragePool", CONVOLUTION, "ConvInteger", "LpPool", "MaxPool"])
"""Operators that slide a window over the last axes of their first operand."""
_NAMES = """
    Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or
    Pow PRelu Sub Sum Where Xor
"""
BROADCASTING = frozenset(_NAMES.split())  # operators whose operands broadcast against each other
_NAMES = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
REDUCING = frozenset(_NAMES.split())  # operators that reduce axes, which an operand may name
CUTTING = frozenset(("Split",))  # operators whose results have extents that follow by one rule
JOINING = frozenset(("Concat",))  # operators whose operands may be known one by one: of the others the length is enough
PRODUCTS = frozenset(("Div", "Mul"))  # arithmetic that is done with symbols, too


MOST_ELEMENTS = 64  # of a value that is evaluated from constants: shapes and axes are short
MOST_BYTES = 1 << 18  # of a value that follows from extents. An operator that would write more elements is not run.
MOST_TOGETHER = 1 << 26  # bytes of all long values of a graph


class Evaluation:
    """The values and extents of a graph that are known in advance, node after node.

    A vector of shapes may be known in part. It is an array of objects then: integers, extents with symbols, and None
    for an extent that has no name.
    """

    def __init__(
        self,
        model: onnx.ModelProto,  # the graph, with inferred shapes
        known: Mapping[str, Array],  # values that are known already
    ) -> None:
        graph = model.graph
        self.opsets = model.opset_import
        self.shapes = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)}
        self.values = dict(known)
        self._long = 0
        self.extents = {name for name, array in known.items() if array.size > MOST_ELEMENTS}
        self.weights: dict[str, onnx.TensorProto] = {}
        self.named: dict[str, Item] = {}  # dimension -> what is known of its extent besides its name
        # dimension that shape inference has a name for -> the extent that it is, or a number below that
        self.bounded: dict[str, Extent] = {}
        self.constants: dict[str, list[Item]] = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        inputs = {value.name for value in graph.input}
        for tensor in graph.initializer:
            if tensor.name in inputs or tensor.name in self.values:
                continue
            if math.prod(tensor.dims) <= MOST_ELEMENTS:
                self.values[tensor.name] = numpy_helper.to_array(tensor)
            else:
                self.weights[tensor.name] = tensor

    def run(self, node: onnx.NodeProto) -> Iterator[tuple[str, Array]]:
        """Return what a node gives, as far as it is known as a whole; what is known in part is kept."""
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
        """Tell whether some of the joined vectors are known, but not all. Note the lengths of the others."""
        known = [name for name in names if name in self.values]
        if len(known) in (0, len(names)) or any(self.values[name].dtype.kind not in "iO" for name in known):
            return False
        shapes = {name: self.dims(name) for name in names if name not in self.values}
        lengths = {name: dims[0] for name, dims in shapes.items() if dims is not None and len(dims) == 1}
        counts = {name: count for name, count in lengths.items() if isinstance(count, int) and count <= MOST_ELEMENTS}
        self.values |= {name: object_vector([None] * count) for name, count in counts.items()}
        self.extents |= counts.keys()
        return True

    def _typed(self, name: str, array: Array) -> Array:
        """Numbers in the type that shape inference knows: those that were found one by one are 64 bits wide."""
        kind = self.shapes[name].elem_type if name in self.shapes else 0
        if array.dtype != np.int64 or kind not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            return array
        return array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind), copy=False)

    def followed(self, node: onnx.NodeProto) -> Iterator[tuple[str, list[Item]]]:
        """Yield the extents of what a node gives, as far as those of what it reads tell."""
        names = [name for name in dict.fromkeys(node.input) if name]
        numbers = {name: self.values[name] for name in names if name in self.values}
        data = {name: numpy_helper.from_array(array) for name, array in numbers.items() if array.dtype.kind in "if"}
        version = max((one.version for one in self.opsets if one.domain in ("", "ai.onnx")), default=1)
        inferred_types = infer_node(node, dict(self._types(names)), data, version)
        yield from ((name, self._dims(kind.tensor_type) or []) for name, kind in inferred_types.items())

    def _types(self, names: Sequence[str]) -> Iterator[tuple[str, onnx.TypeProto]]:
        for name in names:
            if (tensor := self.initializers.get(name)) is not None:
                yield name, onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            elif name in self.shapes:
                yield name, onnx.TypeProto(tensor_type=self.shapes[name])

    def dims(self, name: str) -> list[Item] | None:
        """Return the extents of a value; None: not even its rank is known."""
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
        """Return the extent of a dimension of that name."""
        return self.named[name] if name in self.named else Extent.of(name)

    def _results(self, node: onnx.NodeProto, names: Sequence[str], follows: bool) -> list[Array]:
        if node.op_type in ("Shape", "Size"):
            return _shape(node, self.dims(names[0]))
        if node.op_type not in (FROM_EXTENTS if follows else SHAPE_ARITHMETIC):
            return []
        operands = {}
        for name in names:
            array = self.values.get(name)
            if array is None and name in self.weights:
                array = self.values[name] = numpy_helper.to_array(self.weights[name])
            if array is None:
                return []
            operands[name] = array
        if not writes_at_most(node, [operands.get(name) for name in node.input], MOST_BYTES):
            return []
        if any(array.dtype == object for array in operands.values()):
            if node.op_type in OF_ITEMS:
                return OF_ITEMS[node.op_type](*(operands[name] for name in node.input))
            if node.op_type in PRODUCTS:
                return product_or_quotient(node, operands)
        return node_results(node, operands, self.opsets)


def _shape(node: onnx.NodeProto, dims: Sequence[Item] | None) -> list[Array]:
    if dims is None:
        return []
    if node.op_type == "Size":
        return [np.asarray(math.prod(dims))] if all(isinstance(dim, int) for dim in dims) else []  # type: ignore[arg-type]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return [as_integers(object_vector(dims[bounds.get("start", 0) : bounds.get("end", len(dims))]))]
