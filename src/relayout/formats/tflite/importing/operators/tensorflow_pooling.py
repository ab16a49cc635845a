"""Pools of TensorFlow that are left to the Flex delegate: over three axes, of integers, with the places of maxima."""

from __future__ import annotations

import math

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.container.nodedef import NodeDef
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.pooling import Sliding, average, greatest, surrounded
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.registry import Unsupported, operator

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
    """Whether channels come before the axes that are named."""
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
    place, row = two(op, "Mod", flat, plane), two(op, "Div", flat, plane)
    place = two(op, "Add", two(op, "Mul", place, channels), two(op, "Mod", row, channels))
    if given.number("include_batch_in_index"):
        image = two(op, "Mul", two(op, "Div", row, channels), two(op, "Mul", plane, channels))
        place = two(op, "Add", place, image)
    op.result(y, perm=over.to_last)
    op.result(op.cast(place, op.tensors.plain_dtype(op.output(1))), 1, perm=over.to_last)


def _elements(op: Operation, x: ir.Value, *axes: int) -> ir.Value:
    """How many elements a value has along neighbouring axes, as a scalar."""
    extents = [d for d in dims(x)[axes[0] : axes[-1] + 1] if isinstance(d, int)]
    if len(extents) == len(axes):
        return op.number(math.prod(extents), op.ints([0]), "extent")
    shape = op.emit("Shape", [x], (len(axes),), _INT64, start=axes[0], end=axes[-1] + 1)
    return op.emit("ReduceProd", [shape], (), keepdims=0)
