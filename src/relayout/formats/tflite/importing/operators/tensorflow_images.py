"""Operators of TensorFlow on images `n h w c` that are left to the Flex delegate: pools, patches, windows, crops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.container.nodedef import NodeDef
from relayout.formats.tflite.importing.activation import clip
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators import resize
from relayout.formats.tflite.importing.operators.gathering import counted
from relayout.formats.tflite.importing.operators.pooling import Sliding, average, greatest
from relayout.formats.tflite.importing.operators.pooling import surrounded as pool_operand
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import LAST, cut, divided, joined, unsqueeze
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.registry import Translation, Unsupported, each_operator, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST, is_open, pads, slid

_INT64 = ir.DataType.INT64

# Pools of TensorFlow that are left to the Flex delegate: over three axes, of integers, with the places of maxima.

MOST = 1 << 16
"""The longest side of a window or of an image that is cut or weighted by constants, and the longest stride."""


def sides(op: Operation, node_def: NodeDef, name: str, planar: bool = False) -> list[int]:
    """A list of numbers, one for each axis of operand 0, of which those of batch and channels are 1: the others."""
    n, *rest = node_def.numbers(name) or [0]
    c, inner = (rest[0], rest[1:]) if planar and rest else (rest[-1], rest[:-1]) if rest else (0, [])
    if len(rest) + 1 != len(op.extents(0)) or not inner or not all(1 <= k <= MOST for k in inner):
        raise op.damaged(f"{op.operator.name} has the {name} {[n, *rest][:9]}")
    if (n, c) != (1, 1):
        raise Unsupported("windows over the batch or over channels")
    return inner


def padding(op: Operation, node_def: NodeDef) -> Padding:
    """SAME or VALID."""
    name = node_def.text("padding")
    if name not in Padding.__members__:
        raise Unsupported(f"padding {name}")
    return Padding[name]


def planar(node_def: NodeDef, ranks: str = "HW") -> bool:
    """Tell whether channels come before the axes that are named."""
    layout = node_def.text("data_format")
    if layout not in (f"N{ranks}C", f"NC{ranks}"):
        raise Unsupported(f"the layout {layout}")
    return layout == f"NC{ranks}"


def _sliding(op: Operation, ranks: str = "HW") -> Sliding:
    """Return the windows, which `op.options` hold, too, for those who ask for the padding there."""
    node_def = attributes(op)
    first, same = planar(node_def, ranks), padding(op, node_def)
    op.require_rank(0, len(ranks) + 2)
    op.options = Table("Pool", 0, {"padding": same})
    window, strides = sides(op, node_def, "ksize", first), sides(op, node_def, "strides", first)
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
    node_def = attributes(op)
    op.require_rank(0, 4)
    window, strides = sides(op, node_def, "ksize"), sides(op, node_def, "strides")
    over = Sliding(window, strides, padding(op, node_def) == Padding.SAME)
    x, shape, around, computed = pool_operand(op, over, over.first(op, op.stored(0)))
    if computed:
        raise Unsupported("unknown dimensions, around which SAME puts a border before places are counted")
    outputs = [(op.hint("maxpool"), x.dtype or ir.DataType.FLOAT, shape), (op.hint("flat"), _INT64, shape)]
    more = {"kernel_shape": window, "strides": strides, **around}
    y, flat = op.builder.emit("MaxPool", [x], outputs, source=op.source, **more)
    plane, channels = (_elements(op, x, *axes) for axes in ((2, 3), (1,)))
    place, row = op.each("Mod", flat, plane), op.each("Div", flat, plane)
    place = op.each("Add", op.each("Mul", place, channels), op.each("Mod", row, channels))
    if node_def.number("include_batch_in_index"):
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


# Operators of TensorFlow on colours that are left to the Flex delegate; the last axis holds three.


def _channels(op: Operation) -> Sequence[ir.Value]:
    x = op.stored(0)
    if not dims(x) or dims(x)[-1] != 3:
        raise op.damaged(f"{op.operator.name} of shape {list(dims(x))}")
    return divided(op, x, len(dims(x)) - 1, [1, 1, 1])


def _joined(op: Operation, parts: Sequence[ir.Value]) -> ir.Value:
    return joined(op, parts, len(dims(parts[0])) - 1)


def _hue(op: Operation, rgb: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the hue, a turn being 1, the greatest of three, and how much less the least is; grey has the hue 0."""
    red, green, blue = rgb
    greatest, least = (op.emit(kind, list(rgb)) for kind in ("Max", "Min"))
    width = op.each("Sub", greatest, least)
    unit = op.each("Mul", width, op.number(6, width, "six"))

    def sixth(a: ir.Value, b: ir.Value, turn: int) -> ir.Value:
        part = op.each("Div", op.each("Sub", a, b), unit)
        return op.each("Add", part, op.number(turn / 6, part, "turn")) if turn else part

    other = op.emit("Where", [op.each("Equal", green, greatest), sixth(blue, red, 2), sixth(red, green, 4)])
    hue = op.emit("Where", [op.each("Equal", red, greatest), sixth(green, blue, 0), other])
    zero = op.number(0, hue, "zero")
    hue = op.emit("Where", [op.each("Greater", width, zero), hue, zero])
    below = op.each("Less", hue, zero)
    return op.emit("Where", [below, op.each("Add", hue, op.number(1, hue, "one")), hue]), greatest, width


def _saturation(op: Operation, greatest: ir.Value, width: ir.Value) -> ir.Value:
    zero = op.number(0, width, "zero")
    return op.emit("Where", [op.each("Greater", greatest, zero), op.each("Div", width, greatest), zero])


def _coloured(op: Operation, hue: ir.Value, greatest: ir.Value, width: ir.Value) -> ir.Value:
    """Red, green and blue of a hue, the greatest of which, and how much less the least is, are given."""
    least = op.each("Sub", greatest, width)
    at = op.each("Mul", hue, op.number(6, hue, "six"))
    parts = []
    for middle, sign, offset in ((3, 1, -1), (2, -1, 2), (4, -1, 2)):
        share = op.each("Abs", op.each("Sub", at, op.number(middle, at, "middle")))
        share = op.each("Add", op.each("Neg", share) if sign < 0 else share, op.number(offset, at, "offset"))
        parts.append(op.each("Add", least, op.each("Mul", width, clip(op, share, 0, 1))))
    return _joined(op, parts)


@operator("CUSTOM FlexRGBToHSV")
def rgb_to_hsv(op: Operation) -> None:
    """Max and Min of three channels, and quotients of their differences."""
    hue, greatest, width = _hue(op, _channels(op))
    op.result(_joined(op, [hue, _saturation(op, greatest, width), greatest]))


@operator("CUSTOM FlexHSVToRGB")
def hsv_to_rgb(op: Operation) -> None:
    """Return how far the hue is from that of each channel, clipped, times the saturation."""
    hue, saturation, value = _channels(op)
    op.result(_coloured(op, hue, value, op.each("Mul", saturation, value)))


@operator("CUSTOM FlexAdjustHue")
def adjust_hue(op: Operation) -> None:
    """Add to the hue, of which the whole turns are taken away."""
    hue, greatest, width = _hue(op, _channels(op))
    hue = op.each("Add", hue, op.stored(1))
    hue = op.each("Sub", hue, op.each("Floor", hue))
    op.result(_coloured(op, hue, greatest, width))


@operator("CUSTOM FlexAdjustSaturation")
def adjust_saturation(op: Operation) -> None:
    """Mul of the saturation, clipped between 0 and 1."""
    hue, greatest, width = _hue(op, _channels(op))
    saturation = clip(op, op.each("Mul", _saturation(op, greatest, width), op.stored(1)), 0, 1)
    op.result(_coloured(op, hue, greatest, op.each("Mul", saturation, greatest)))


@operator("CUSTOM FlexAdjustContrastv2")
def adjust_contrast(op: Operation) -> None:
    """Mul of what each element is off the mean of its channel of the image."""
    x = op.stored(0)
    rank = len(dims(x))
    if rank < 3:
        raise op.damaged(f"{op.operator.name} of rank {rank}")
    mean = op.emit("ReduceMean", [x, op.ints([rank - 3, rank - 2])], keepdims=1)
    op.result(op.each("Add", op.each("Mul", op.each("Sub", x, mean), op.stored(1)), mean))


# Resizes and the exchange of space for depth that TensorFlow's converter leaves to the Flex delegate, `n h w c`.

_F32 = ir.DataType.FLOAT

_STEPS = 1 << 10  # TensorFlow takes cubic weights from a table: a place between two elements is one of so many


def _resize_options(op: Operation) -> None:
    node_def = attributes(op)
    names = ("align_corners", "half_pixel_centers")
    op.options = Table("ResizeOptions", 0, {name: bool(node_def.number(name)) for name in names})


@operator("CUSTOM FlexResizeBilinear")
def resize_bilinear(op: Operation) -> None:
    """Resize, linear; of integers, too, the result is real."""
    op.require_rank(0, 4)
    _resize_options(op)
    x = op.transpose(op.cast(op.stored(0), _F32), TO_FIRST)
    op.result(resize.resized(op, x, mode="linear"), perm=TO_LAST)


@operator("CUSTOM FlexResizeNearestNeighbor")
def resize_nearest(op: Operation) -> None:
    """As RESIZE_NEAREST_NEIGHBOR."""
    if op.input(0).type in (TensorType.FLOAT64, TensorType.INT64):
        raise Unsupported(f"{op.input(0).type.name}, which ONNX Runtime does not resize")
    _resize_options(op)
    resize.resize_nearest_neighbor(op)


@operator("CUSTOM FlexResizeBicubic")
def resize_bicubic(op: Operation) -> None:
    """Resize, cubic; of known extents, where TensorFlow rounds places to 1024ths, Gathers and weights.

    With half pixels its coefficient is -0.5, and what lies outside has no weight; else -0.75, and the edge is repeated.
    Of open extents places are not rounded. Beside a Transpose, ONNX Runtime shrinks nothing with a cubic Resize: it
    moves the Transpose through, and has no kernel for what that gives.
    """
    op.require_rank(0, 4)
    _resize_options(op)
    aligned, half = op.options.align_corners, op.options.half_pixel_centers
    x = op.cast(op.stored(0), _F32)
    known = [
        (extent, size)
        for extent, size in zip(dims(x)[1:3], resize.size_of(op), strict=True)
        if isinstance(extent, int) and isinstance(size, int) and size <= MOST
    ]
    places = [_places(*pair, aligned, half) for pair in known]
    if len(known) == 2 and (any(map(_rounds, places)) or any(size < extent for extent, size in known)):
        for axis, axis_places in enumerate(places, 1):
            x = _weighted(op, x, axis, axis_places, half)
        op.result(x)
        return
    y = resize.resized(
        op,
        op.transpose(x, TO_FIRST),
        mode="cubic",
        cubic_coeff_a=-0.5 if half else -0.75,
        exclude_outside=int(half),
    )
    op.result(y, perm=TO_LAST)


def _places(extent: int, size: int, aligned: bool, half: bool) -> npt.NDArray[np.float32]:
    """Return where the elements of the result lie, as TensorFlow computes it in single precision."""
    if aligned and size > 1:
        scale = np.float32(extent - 1) / np.float32(size - 1)
    else:
        scale = np.float32(extent) / np.float32(size)
    at = np.arange(size, dtype=np.float32)
    places: npt.NDArray[np.float32] = (at + np.float32(0.5)) * scale - np.float32(0.5) if half else at * scale
    return places


def _rounds(places: npt.NDArray[np.float32]) -> bool:
    steps = (places - np.floor(places)) * _STEPS
    return bool(np.any(np.abs(steps - np.round(steps)) > 2**-8))


def _weighted(op: Operation, x: ir.Value, axis: int, places: npt.NDArray[np.float32], half: bool) -> ir.Value:
    """Four neighbours along an axis, each with its weight from the table."""
    extent = dims(x)[axis]
    if not isinstance(extent, int):
        raise ValueError("an unknown extent")
    first = np.floor(places).astype(np.int64)
    step = np.round((places - first.astype(np.float32)) * _STEPS) / _STEPS
    a = -0.5 if half else -0.75
    distances = np.abs(np.stack([step + 1, step, 1 - step, 2 - step]))
    inner = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    outer = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    indices, weights = first + np.array([[-1], [0], [1], [2]]), np.where(distances <= 1, inner, outer)
    inside = np.clip(indices, 0, extent - 1)
    if half:
        weights = np.where(inside == indices, weights, 0)
        weights /= weights.sum(0)
    return resize.weighted(op, x, axis, zip(inside, weights.astype(np.float32), strict=True))


@each_operator(
    {"CUSTOM FlexDepthToSpace": ("DepthToSpace", resize.depth_to_space, False)}, "{}, of channels first, too."
)
@each_operator(
    {"CUSTOM FlexSpaceToDepth": ("SpaceToDepth", resize.space_to_depth, True)}, "{}, of channels first, too."
)
def _exchange(op: Operation, op_type: str, translate: Translation, down: bool) -> None:
    node_def = attributes(op)
    block = node_def.number("block_size")
    if not planar(node_def):
        op.options = Table(op_type, 0, {"block_size": block})
        translate(op)
        return
    op.require_rank(0, 4)
    x = op.stored(0)
    n, c, h, w = dims(x)
    shape = (
        n,
        resize.scaled(c, block * block, not down, op),
        resize.scaled(h, block, down, op),
        resize.scaled(w, block, down, op),
    )
    mode = None if down else "DCR"
    op.result(op.emit(op_type, [x], op.out_dims(shape), blocksize=block, mode=mode))


# Operators of TensorFlow that decode what a network says, and are left to the Flex delegate.


@operator("CUSTOM FlexCTCGreedyDecoder")
def greedy_decoder(op: Operation) -> None:
    """ArgMax at each time; NonZero finds what is no blank, within its sequence and, if so asked, no repetition."""
    node_def, x, lengths = attributes(op), op.stored(0), op.cast(op.stored(1), _INT64)
    time, _, classes = dims(x)
    blank = node_def.number("blank_index")
    if blank < 0 and not isinstance(classes, int):
        raise Unsupported("unknown dimensions, of which the last class is the blank")
    steps = scalar(op, op.emit("Shape", [x], start=0, end=1))
    within = op.each("Less", counted(op, steps, time), unsqueeze(op, lengths, [1]))
    logits = op.transpose(x, (1, 0, 2))
    best = op.emit("ArgMax", [logits], axis=2, keepdims=0)
    last = op.number(blank + (classes if blank < 0 and isinstance(classes, int) else 0), best, "blank")
    mask = op.each("And", within, op.each("Not", op.each("Equal", best, last)))
    if node_def.number("merge_repeated"):
        before = resize.bordered(op, best, [0, 1], [0, -1], op.number(-1, best, "none"))
        mask = op.each("And", mask, op.each("Not", op.each("Equal", best, before)))
    count = op.tensors.symbol(op.output(1), 0)
    places = op.transpose(op.emit("NonZero", [mask], (2, count), _INT64), (1, 0))
    so_far = op.emit("CumSum", [op.cast(mask, _INT64), op.number(1, op.ints([1]), "axis")])
    before = op.each("Sub", op.emit("GatherND", [so_far, places]), op.number(1, so_far, "one"))
    rows = op.emit("Gather", [places, op.ints([0], "row")], axis=1)
    op.result(joined(op, [rows, unsqueeze(op, before, [1])], 1), 0)
    op.result(op.emit("GatherND", [best, places]), 1)
    longest = op.emit("ReduceMax", [so_far], keepdims=0)
    longest = op.emit("Reshape", [longest, op.ints([1], "shape")])
    op.result(joined(op, [op.emit("Shape", [so_far], start=0, end=1), longest], 0), 2)
    greatest = op.emit("ReduceMax", [logits, op.ints([2])], keepdims=0)
    valid = op.emit("Where", [within, greatest, op.number(0, x, "zero")])
    op.result(op.each("Neg", op.emit("ReduceSum", [valid, op.ints([1])], keepdims=1)), 3)


MOST_SLICES, MOST_ELEMENTS = 1 << 10, 1 << 8
"""Rows and columns of a patch; elements of a window, each of which is a Slice."""


@operator("CUSTOM FlexExtractImagePatches")
def extract_patches(op: Operation) -> None:
    """Reshape, Transpose, Reshape where patches do not overlap; else Slices along either axis, and their Concats."""
    op.require_rank(0, 4)
    node_def = attributes(op)
    window, strides, rates = (sides(op, node_def, name) for name in ("ksizes", "strides", "rates"))
    if sum(window) > MOST_SLICES:
        raise Unsupported("patches of many rows and columns")
    x = surrounded(op, window, strides, rates, padding(op, node_def), 0)
    reaches = [(k - 1) * rate for k, rate in zip(window, rates, strict=True)]
    _, h, w, _ = dims(x)
    if window == strides and reaches == [k - 1 for k in window] and isinstance(h, int) and isinstance(w, int):
        # `n (h a) (w b) c -> n h w (a b c)`
        (a, b), (n, _, _, c), (rows, columns) = window, dims(x), (h // window[0], w // window[1])
        x = cut(op, x, [0, 0], [rows * a, columns * b], [1, 2]) if (h, w) != (rows * a, columns * b) else x
        x = op.reshape(x, (n, rows, a, columns, b, c))
        x = op.transpose(x, (0, 1, 3, 2, 4, 5), op.hint("transposed"))
        op.result(op.reshape(x, (n, rows, columns, c * a * b if isinstance(c, int) else None)))
        return
    for axis in (2, 1):  # columns first: of the elements of a patch, rows are outermost
        x = joined(op, slices(op, x, axis, window[axis - 1], strides[axis - 1], rates[axis - 1]), 3)
    op.result(x)


def surrounded(
    op: Operation, window: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: Padding, fill: float
) -> ir.Value:
    """Operand 0, `n h w c`, with the border that windows need."""
    x, same = op.stored(0), padding == Padding.SAME
    if same and is_open(dims(x)[1:3], window, strides, rates):
        raise Unsupported("unknown dimensions, around which SAME puts a border")
    around = pads(dims(x)[1:3], window, strides, rates, same)
    x = resize.bordered(op, x, [0, *around[:2], 0], [0, *around[2:], 0], op.number(fill, x, "fill"))
    sides = zip(dims(x)[1:3], window, rates, strict=True)
    if any(isinstance(d, int) and d <= (k - 1) * rate for d, k, rate in sides):
        raise op.damaged(f"windows of {list(window)} do not fit {list(dims(x))}")
    return x


def slices(op: Operation, x: ir.Value, axis: int, count: int, stride: int, rate: int) -> list[ir.Value]:
    """Along an axis, the first elements of all windows, the second ones, and so on."""
    shape, reach = list(dims(x)), (count - 1) * rate
    shape[axis] = slid(shape[axis], count, stride, rate, same=False)
    bounds = [([i * rate], [i * rate - reach or LAST], [axis], [stride]) for i in range(count)]
    names = ("starts", "ends", "axes", "steps")
    return [op.emit("Slice", [x, *map(op.ints, of, names)], tuple(shape)) for of in bounds]


@operator("CUSTOM FlexDilation2D")
def dilation(op: Operation) -> None:
    """Max of Slices, to each of which its element of the kernel is added; what lies outside does not count."""
    op.require_rank(0, 4)
    op.require_rank(1, 3)
    node_def, kernel = attributes(op), op.constant(1)
    (rows, columns, _), strides, rates = kernel.shape, *(sides(op, node_def, name) for name in ("strides", "rates"))
    if op.input(0).type not in (TensorType.FLOAT32, TensorType.FLOAT64):
        raise Unsupported(f"{op.input(0).type.name}, of which a border has no least number")
    if rows * columns > MOST_ELEMENTS:
        raise Unsupported("windows of many elements")
    least = float(np.finfo(kernel.dtype).min)
    x = surrounded(op, (rows, columns), strides, rates, padding(op, node_def), least)
    sums: list[ir.Value] = []
    for i, strip in enumerate(slices(op, x, 1, rows, strides[0], rates[0])):
        for j, part in enumerate(slices(op, strip, 2, columns, strides[1], rates[1])):
            sums.append(op.each("Add", part, op.array("kernel", kernel[i, j])))
    op.result(op.emit("Max", sums))


@operator("CUSTOM FlexCropAndResize")
def crop_and_resize(op: Operation) -> None:
    """Gather of the four neighbours (or the nearest) of each place in each box, from the rows of all images.

    A place outside of its image, if only by a fraction of a pixel, has the value that the attribute says.
    """
    op.require_rank(0, 4)
    node_def = attributes(op)
    method, size = node_def.text("method"), op.integers(3)
    if method not in ("bilinear", "nearest"):
        raise Unsupported(f"the method {method}")
    if len(size) != 2 or not all(1 <= k <= MOST for k in size) or dims(op.stored(1))[1:] != (4,):
        raise op.damaged(f"crops of {size} and boxes of {list(dims(op.stored(1)))}")
    x, images = op.stored(0), unsqueeze(op, op.cast(op.stored(2), _INT64), [1, 2])
    n, height, width, _ = dims(x)
    (c,) = op.fixed(dims(x)[3:], "unknown dimensions, of whose images rows are made")
    extents = [_extent(op, x, axis) for axis in (1, 2)]
    (y, inside), (x_, within) = (_in_boxes(op, axis, size[axis], extents[axis]) for axis in (0, 1))
    rows = op.emit("Reshape", [x, op.ints([-1, c], "rows")], (product((n, height, width)), c))

    def at(row: ir.Value, column: ir.Value) -> ir.Value:
        row, column = (op.cast(v, _INT64) for v in (row, column))
        index = op.each("Add", op.each("Mul", images, extents[0]), row)
        index = op.each("Add", op.each("Mul", index, extents[1]), column)
        return op.cast(op.emit("Gather", [rows, index], axis=0), _F32)

    def between(low: ir.Value, high: ir.Value, share: ir.Value) -> ir.Value:
        return op.each("Add", low, op.each("Mul", op.each("Sub", high, low), share))

    if method == "nearest":
        half = op.number(0.5, y, "half")
        crops = at(*(op.each("Floor", op.each("Add", v, half)) for v in (y, x_)))
    else:
        (top, bottom, down), (left, right, along) = (_between(op, v) for v in (y, x_))
        upper, lower = (between(at(row, left), at(row, right), along) for row in (top, bottom))
        crops = between(upper, lower, down)
    inside = unsqueeze(op, op.each("And", inside, within), [3])
    outside = op.number(node_def.real("extrapolation_value"), crops, "outside")
    op.result(op.emit("Where", [inside, crops, outside]))


def _extent(op: Operation, x: ir.Value, axis: int) -> ir.Value:
    extent = dims(x)[axis]
    if isinstance(extent, int):
        return op.number(extent, op.ints([0]), "extent")
    return scalar(op, op.emit("Shape", [x], start=axis, end=axis + 1))


def _in_boxes(op: Operation, axis: int, count: int, extent: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Places in each box along an axis, rows `b i 1` or columns `b 1 i`, and whether the image has them."""
    boxes = unsqueeze(op, op.stored(1), [2])
    low, high = (cut(op, boxes, [axis + 2 * end], [axis + 2 * end + 1], [1]) for end in (0, 1))
    last = op.cast(op.each("Sub", extent, op.number(1, extent, "one")), _F32)
    if count > 1:
        step = op.each("Mul", op.each("Sub", high, low), last)
        step = op.each("Div", step, op.number(count - 1, step, "steps"))
        numbers = np.arange(count, dtype=np.float32).reshape((-1, 1) if axis == 0 else (-1,))
        at = op.each("Mul", op.array("numbers", numbers), step)
        at = op.each("Add", op.each("Mul", low, last), at)
    else:
        at = op.each("Mul", op.each("Add", low, high), op.number(0.5, low, "half"))
        at = op.each("Mul", at, last)
    zero = op.number(0, at, "zero")
    inside = op.each("And", op.each("GreaterOrEqual", at, zero), op.each("LessOrEqual", at, last))
    return op.each("Min", op.each("Max", at, zero), last), inside


def _between(op: Operation, at: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the elements before and after a place, and the share of the latter."""
    low = op.each("Floor", at)
    return low, op.each("Ceil", at), unsqueeze(op, op.each("Sub", at, low), [3])
