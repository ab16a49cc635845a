"""TensorFlow's operator at the end of detection networks, which is left to the Flex delegate."""

from __future__ import annotations

import math

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.container.nodedef import NodeDef
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.pooling import Sliding, average, greatest, surrounded
from relayout.formats.tflite.importing.operators.reduction import top_elements
from relayout.formats.tflite.importing.operators.slicing import joined, squeeze, unsqueeze
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.registry import Unsupported, operator

# Pools of TensorFlow that are left to the Flex delegate: over three axes, of integers, with the places of maxima.

_INT64 = ir.DataType.INT64

MOST = 1 << 16
"""The longest side of a window or of an image that is cut or weighted by constants, and the longest stride."""


def sides(op: Operation, given: NodeDef, name: str, planar: bool = False) -> list[int]:
    """A list of numbers, one for each axis of operand 0, of which those of batch and channels are 1: the others."""
    n, *rest = given.numbers(name) or [0]
    c, inner = (rest[0], rest[1:]) if planar and rest else (rest[-1], rest[:-1]) if rest else (0, [])
    if len(rest) + 1 != len(op.extents(0)) or not inner or not all(1 <= k <= MOST for k in inner):
        raise ReadError(f"{op.operator.name} has the {name} {[n, *rest][:9]}", where=op.place)
    if (n, c) != (1, 1):
        raise Unsupported("windows over the batch or over channels")
    return inner


def padding(op: Operation, given: NodeDef) -> Padding:
    """SAME or VALID."""
    name = given.text("padding")
    if name not in Padding.__members__:
        raise Unsupported(f"padding {name}")
    return Padding[name]


def planar(given: NodeDef, ranks: str = "HW") -> bool:
    """Tell whether channels come before the axes that are named."""
    layout = given.text("data_format")
    if layout not in (f"N{ranks}C", f"NC{ranks}"):
        raise Unsupported(f"the layout {layout}")
    return layout == f"NC{ranks}"


def _sliding(op: Operation, ranks: str = "HW") -> Sliding:
    """The windows, which `op.options` hold, too, for those who ask for the padding there."""
    given = attributes(op)
    first, same = planar(given, ranks), padding(op, given)
    op.require_rank(0, len(ranks) + 2)
    op.options = Table("Pool", 0, {"padding": same})
    window, strides = sides(op, given, "ksize", first), sides(op, given, "strides", first)
    return Sliding(window, strides, same == Padding.SAME, first)


@operator("CUSTOM FlexMaxPool", "CUSTOM FlexMaxPool3D")
def max_pool(op: Operation) -> None:
    """MaxPool."""
    if op.input(0).type in (TensorType.INT64, TensorType.BFLOAT16):
        raise Unsupported(f"{op.input(0).type.name}, of which ONNX Runtime has no pool")
    over = _sliding(op, "DHW" if op.operator.name.endswith("3D") else "HW")
    op.result(greatest(op, over, op.stored(0)), perm=over.to_last)


@operator("CUSTOM FlexAvgPool3D")
def average_pool(op: Operation) -> None:
    """AveragePool over the elements that are there, not over the padding."""
    if op.input(0).type != TensorType.FLOAT32:
        raise Unsupported(f"{op.input(0).type.name}, of which ONNX Runtime has no average pool")
    over = _sliding(op, "DHW")
    op.result(average(op, over, lambda x: x), perm=over.to_last)


@operator("CUSTOM FlexMaxPoolWithArgmax")
def max_pool_with_argmax(op: Operation) -> None:
    """MaxPool; its indices, which count `n c h w` flattened, counted in `h w c`, or in `n h w c`."""
    if op.input(0).type not in (TensorType.FLOAT32, TensorType.FLOAT64):
        raise Unsupported(f"{op.input(0).type.name}, of whose greatest elements ONNX Runtime gives no places")
    given = attributes(op)
    op.require_rank(0, 4)
    window, strides = sides(op, given, "ksize"), sides(op, given, "strides")
    over = Sliding(window, strides, padding(op, given) == Padding.SAME)
    x, shape, around, computed = surrounded(op, over, over.first(op, op.stored(0)))
    if computed:
        raise Unsupported("unknown dimensions, around which SAME puts a border before places are counted")
    outputs = [(op.hint("maxpool"), x.dtype or ir.DataType.FLOAT, shape), (op.hint("flat"), _INT64, shape)]
    more = {"kernel_shape": window, "strides": strides, **around}
    y, flat = op.builder.emit("MaxPool", [x], outputs, source=op.source, **more)
    plane, channels = (_elements(op, x, *axes) for axes in ((2, 3), (1,)))
    place, row = op.each("Mod", flat, plane), op.each("Div", flat, plane)
    place = op.each("Add", op.each("Mul", place, channels), op.each("Mod", row, channels))
    if given.number("include_batch_in_index"):
        image = op.each("Mul", op.each("Div", row, channels), op.each("Mul", plane, channels))
        place = op.each("Add", place, image)
    op.result(y, perm=over.to_last)
    op.result(op.cast(place, op.tensors.plain_dtype(op.output(1))), 1, perm=over.to_last)


def _elements(op: Operation, x: ir.Value, *axes: int) -> ir.Value:
    """Return how many elements a value has along neighbouring axes, as a scalar."""
    extents = [d for d in dims(x)[axes[0] : axes[-1] + 1] if isinstance(d, int)]
    if len(extents) == len(axes):
        return op.number(math.prod(extents), op.ints([0]), "extent")
    return op.emit("ReduceProd", [op.emit("Shape", [x], start=axes[0], end=axes[-1] + 1)], keepdims=0)


_FLOAT = ir.DataType.FLOAT
_INT32 = ir.DataType.INT32


@operator("CUSTOM FlexCombinedNonMaxSuppression")
def combined_non_max_suppression(op: Operation) -> None:
    """NonMaxSuppression class by class; of what it keeps of an image TopK, among `b (c n)` scores.

    1. Boxes are `b n q 4`: one for all classes, or one for each. Scores are `b n c`; one counts above the threshold.
    2. Results are filled up with zeros; the last one tells how many are meant.
    """
    op.require_rank(0, 4)
    op.require_rank(1, 3)
    boxes, scores = op.real(0), op.transpose(op.real(1), [0, 2, 1])
    batch, classes, count = dims(scores)
    if not isinstance(classes, int):
        raise Unsupported("an unknown number of classes")
    if dims(boxes)[2] not in (1, classes) or dims(boxes)[3] != 4:
        raise ReadError(f"boxes of shape {list(dims(boxes))} for {classes} classes", where=op.place)
    each, whole = dims(boxes)[2] != 1, product((classes, count))
    table = _flat(op, _kept(op, boxes, scores, each), (batch, whole))
    total = _total(op, classes)
    most, found = _at_most(op, total, table)
    values, places = top_elements(op, table, most, (batch, found), ("best", "place"), axis=1)
    there = op.each("Greater", values, op.number(-math.inf, values, "none"))
    length = op.emit("Shape", [scores], start=2, end=3)
    if each:
        boxes, index = _flat(op, op.transpose(boxes, [0, 2, 1, 3]), (batch, whole, 4)), places
    else:
        boxes, index = squeeze(op, boxes, [2]), op.each("Mod", places, length)
    picked = op.emit("GatherND", [boxes, unsqueeze(op, index, [2])], batch_dims=1)
    if attributes(op).number("clip_boxes"):
        picked = op.emit("Clip", [picked, op.number(0, picked, "low"), op.number(1, picked, "high")])
    labels = op.cast(op.each("Div", places, length), _FLOAT)
    for i, value in enumerate((picked, values, labels)):
        meant = there if i else unsqueeze(op, there, [2])
        value = op.emit("Where", [meant, value, op.number(0, value, "zero")])
        op.result(_filled(op, value, most, total), i)
    op.result_stored(op.emit("ReduceSum", [op.cast(there, _INT32), op.ints([1])], keepdims=0), 3)


def _kept(op: Operation, boxes: ir.Value, scores: ir.Value, each: bool) -> ir.Value:
    """The scores `b c n`, those of boxes that are not kept infinitely low."""
    batch, classes, count = dims(scores)
    if each:  # an image for every class of an image
        images = product((batch, classes))
        boxes = op.reshape(op.transpose(boxes, [0, 2, 1, 3]), (images, count, 4))
        scores = op.reshape(scores, (images, 1, count))
    else:
        boxes = squeeze(op, boxes, [2])
    if op.is_constant(4) and not 0 <= float(op.constant(4).reshape(-1)[0]) <= 1:
        raise ReadError("the limit of overlaps is not between 0 and 1", where=op.place)
    most = op.reshape(op.cast(op.stored(2), _INT64), (1,))
    limits = [op.reshape(op.real(i), (1,)) for i in (4, 5)]
    found = op.builder.names.unique(op.hint("found"))
    rows = op.emit("NonMaxSuppression", [boxes, scores, most, *limits], (found, 3), _INT64)
    shape = op.emit("Shape", [scores])
    low = op.emit("ConstantOfShape", [shape], dtype=_FLOAT, value=ir.tensor([-math.inf], _FLOAT))
    kept = op.emit("ScatterND", [low, rows, op.emit("GatherND", [scores, rows])])
    return op.reshape(kept, (batch, classes, count)) if each else kept


def _flat(op: Operation, x: ir.Value, shape: tuple[Dim, ...]) -> ir.Value:
    """`b c n ... -> b (c n) ...`."""
    return op.emit("Reshape", [x, op.ints([0, -1, *shape[2:]], "shape")], shape)  # type: ignore[list-item]


def _total(op: Operation, classes: int) -> int:
    """Return how many boxes of an image the results have."""
    (total,) = op.integers(3, 1)
    if total < 1:
        raise ReadError(f"{total} boxes are wanted", where=op.place)
    if not attributes(op).number("pad_per_class"):
        return total
    return min(total, op.integers(2, 1)[0] * classes)


def _at_most(op: Operation, total: int, table: ir.Value) -> tuple[ir.Value, Dim]:
    """Return how many scores are looked at: no more than there are."""
    there = dims(table)[1]
    if isinstance(there, int):
        return op.ints([min(total, there)], "most"), min(total, there)
    return op.each("Min", op.ints([total], "most"), op.emit("Shape", [table], start=1, end=2)), None


def _filled(op: Operation, value: ir.Value, most: ir.Value, total: int) -> ir.Value:
    """Zeros behind the rows, up to the number wanted."""
    if dims(value)[1] == total:
        return value
    rank = len(dims(value))
    missing = op.each("Sub", op.ints([total], "total"), most)
    pads = joined(op, [op.ints([0] * (rank + 1), "begin"), missing, op.ints([0] * (rank - 2), "end")], 0)
    return op.emit("Pad", [value, pads], (dims(value)[0], total, *dims(value)[2:]), mode="constant")
