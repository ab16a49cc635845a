"""Operators that LiteRT runs itself and slowly, or XNNPACK in a slow way, are others in the file: the same numbers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.operators.convolution import BY_IMAGES
from relayout.graph.domains import CONVOLUTION
from relayout.graph.quantized_unit import BYTES, DEQUANTIZE, scale_of, unit_of
from relayout.lowering.fold_affine import channel_windows
from relayout.targets.litert.insertion import OPEN, Insertion, integers_of
from relayout.targets.litert.large_windows import split_large_window

# Atan, Asin and Acos by a polynomial: LiteRT has ATAN2 alone for them, whose kernel takes an element at a time.
#
#     Atan    t = x / (1 + sqrt(1 + x²))                    the tangent of half the angle
#     Asin    t = x / (1 + sqrt((1 - x) (1 + x)))           the same
#     Acos    t = sqrt(1 - x) / (sqrt(2) + sqrt(1 + x))     the tangent of a quarter of the angle
#
# `t` is between -1 and 1. `t / (1 + sqrt(1 + t²))` is the tangent of half of that angle, at most that of pi / 8, where
# a short polynomial gives the angle. On x64 XNNPACK takes a fifth of the time (200,704 elements). Results are at most 5
# units in the last place off, ONNX Runtime's own 3.3 to 4.5; numbers below 5e-38 are 0.

FEWEST = 1 << 8  # elements from which on the polynomial takes less time
COEFFICIENTS = (0.080537118850475, -0.138776750433951, 0.199777096382368, -0.333329491266362, 1.0)
"""Of `atan(t) / t` in t², the highest power first: 2e-8 off, relatively, up to the tangent of pi / 8."""
LARGEST = 1e18  # a number whose arctangent is pi / 2, and whose square is finite


class _Formula(NamedTuple):
    """Operators on elements before a node."""

    before: Insertion

    def __call__(self, op_type: str, *operands: ir.Value | float) -> ir.Value:
        """Add an operator."""
        (result,), values = self.before.node.outputs, list[ir.Value]()
        for each in operands:
            name = f"{result.name}/{each}"
            value = each if isinstance(each, ir.Value) else self.before.graph.initializers.get(name)
            values.append(value or self.before.constant(np.array(each, np.float32), name))
        return self.before.add(op_type, values, result.shape, result.type, name=f"{result.name}/{op_type.lower()}")

    def halved(self, tangent: ir.Value) -> ir.Value:
        """Return the tangent of half the angle."""
        root = self("Sqrt", self("Add", self("Mul", tangent, tangent), 1.0))
        return self("Div", tangent, self("Add", root, 1.0))

    def angle(self, tangent: ir.Value, times: float) -> ir.Value:
        """Return a multiple of the angle of a tangent between -1 and 1."""
        small = self.halved(tangent)
        square = self("Mul", small, small)
        highest, *others = COEFFICIENTS
        series = self("Mul", square, highest)
        for place, coefficient in enumerate(others):
            series = self("Add", self("Mul", series, square) if place else series, coefficient)
        return self("Mul", self("Mul", small, 2 * times), series)


def _atan(formula: _Formula, x: ir.Value) -> ir.Value:
    # The bound stands first: kernels then give NaN for NaN.
    bounded = formula("Max", -LARGEST, formula("Min", LARGEST, x))
    return formula.angle(formula.halved(bounded), 2)


def _asin(formula: _Formula, x: ir.Value) -> ir.Value:
    cosine = formula("Sqrt", formula("Mul", formula("Sub", 1.0, x), formula("Add", x, 1.0)))
    return formula.angle(formula("Div", x, formula("Add", cosine, 1.0)), 2)


def _acos(formula: _Formula, x: ir.Value) -> ir.Value:
    sine, cosine = formula("Sqrt", formula("Sub", 1.0, x)), formula("Sqrt", formula("Add", x, 1.0))
    return formula.angle(formula("Div", sine, formula("Add", cosine, sqrt(2))), 4)


FORMULAS: Mapping[str, Callable[[_Formula, ir.Value], ir.Value]] = {"Acos": _acos, "Asin": _asin, "Atan": _atan}


def write_angle(before: Insertion) -> bool:
    """Rewrite an Atan, Asin or Acos of many real numbers, and return whether it is one."""
    node, (value,) = before.node, before.node.inputs
    if node.domain or value is None or value.dtype != ir.DataType.FLOAT or value.shape is None or unit_of(node):
        return False
    if value.shape.is_static() and prod(value.shape.numpy()) < FEWEST:
        return False
    before.replace(FORMULAS[node.op_type](_Formula(before), value))
    return True


# Convolutions of volumes that XNNPACK computes image by image: it has none over three axes.
#
# On x64 LiteRT's own kernel for three axes takes 3 to 7 times as long.

VOLUME = "relayout.ndhwc.dhwio"  # the domain of a convolution over three axes
MOST_PARTS = 64  # convolutions that one becomes


def split_volume(before: Insertion) -> bool:
    """Let a convolution of volumes of real numbers be written image by image, and return whether it is one.

    Its parameters are constants: no quantizer takes a bias that is computed.
    """
    node = before.node
    image, kernel, *_ = node.inputs
    if node.domain != VOLUME or image is None or kernel is None or kernel.const_value is None:
        return False
    parameters = [value for value in node.inputs[1:] if value is not None]
    is_constant = all(value.const_value is not None and not value.is_graph_input() for value in parameters)
    is_known = image.shape is not None and all(isinstance(extent, int) for extent in [*image.shape][1:])
    is_real = image.dtype == kernel.dtype == ir.DataType.FLOAT and unit_of(node) is None
    if is_constant and is_known and is_real and kernel.const_value.shape.numpy()[0] <= MOST_PARTS:
        node.meta[BY_IMAGES] = True
    return BY_IMAGES in node.meta


# A border of rows of the image is gathered, one axis after another, and put around the image.
#
#     Pad(x, mode reflect)    becomes    Concat(Gather(x, front), x, Gather(x, behind)) ─ the same along the other axis
#
# LiteRT's kernel for a border that mirrors moves single elements, and GATHER of all rows takes 2 to 4 times as long.

GATHER = "Gather"
INTEGERS = (*BYTES, ir.DataType.INT16)  # types that GATHER takes with a scale
BORDERS = ("reflect", "edge", "wrap")  # modes of a Pad that repeat rows
LONGEST_BORDER = 1 << 12  # rows of a border that are gathered


class _Border(NamedTuple):
    """The border of one axis: its extent, and which rows stand before it and behind it."""

    axis: int
    extent: int
    front: NDArray[np.int64]
    behind: NDArray[np.int64]


def gather_border(before: Insertion) -> bool:
    """Rewrite a Pad of real numbers by constant amounts that repeats rows, and return whether it is one."""
    node = before.node
    if node.domain or node.attributes.get_string("mode", "constant") not in BORDERS:
        return False
    producer = None if node.inputs[0] is None else node.inputs[0].producer()
    is_simple = unit_of(node) is None or (producer is not None and producer.op_type == DEQUANTIZE)
    borders = _borders(node) if is_simple else []
    if not borders:
        return False
    (value, *_), (result,) = node.inputs, node.outputs
    assert value is not None
    dequantize = value.producer() if unit_of(node) is not None else None
    scale = None if dequantize is None else scale_of(dequantize)
    has_kernel = scale is not None and scale.is_one and scale.dtype in INTEGERS
    integers = dequantize.inputs if dequantize is not None and has_kernel else []

    def rounded(real_value: ir.Value) -> ir.Value:  # between integers what lies between is quantized as the operand is
        return before.quantized(real_value, integers[1:], integers[0].type) if integers and integers[0] else real_value

    for axis, extent, *sides in borders:
        parts = [value]
        for place, rows in zip((0, 2), sides, strict=True):
            if len(rows):
                places = before.constant(rows, f"{result.name}/rows_{axis}")
                dims = _with_extent(value, axis, len(rows))
                part = before.add(GATHER, [value, places], dims, value.type, {"axis": axis})
                parts.insert(place, rounded(part))
        dims = _with_extent(value, axis, extent + sum(map(len, sides)))
        joined = before.add("Concat", parts, dims, value.type, {"axis": axis})
        value = joined if axis == borders[-1].axis else rounded(joined)
    before.replace(value)
    return True


def _with_extent(value: ir.Value, axis: int, extent: int) -> ir.Shape:
    dims = [*(value.shape or ())]
    dims[axis] = extent
    return ir.Shape(dims)


def _borders(node: ir.Node) -> list[_Border]:
    """Return the borders of the axes that have one; none where a row is repeated twice, or cut."""
    value, amounts = node.inputs[0], integers_of(node, 1) or [*node.attributes.get_ints("pads", ())]
    if value is None or value.shape is None or value.dtype != ir.DataType.FLOAT:
        return []
    mode = node.attributes.get_string("mode", "constant")
    axes = integers_of(node, 3) if len(node.inputs) > 3 and node.inputs[3] is not None else range(len(value.shape))
    borders = []
    for axis, before, after in zip(axes or (), amounts, amounts[len(amounts) // 2 :], strict=False):
        extent = value.shape[axis]
        if before or after:
            if not isinstance(extent, int) or not (0 <= before < extent and 0 <= after < extent):
                return []
            if max(before, after) > LONGEST_BORDER:
                return []
            first, last = np.arange(before), np.arange(after)
            front, behind = {
                "reflect": (before - first, extent - 2 - last),
                "edge": (0 * first, 0 * last + extent - 1),
                "wrap": (first + extent - before, last),
            }[mode]
            borders.append(_Border(axis % len(value.shape), extent, front, behind))
    return borders


# A Slice that takes each k-th row of an axis takes one of k, once the axis is split: XNNPACK runs no other steps.
#
#     Slice(x, start, step k)    becomes    Reshape ─ Slice(start, start + 1) ─ Reshape
#
# On x64 the two Reshapes and the Slice take a tenth of the time of LiteRT's own kernel, which moves single elements,
# and less where rows are long. Along the last axis, where they are elements, nothing is gained.


class _Rows(NamedTuple):
    """Each row of an axis that is a whole number of steps behind the first."""

    axis: int
    first: int
    step: int


def split_strided_slice(before: Insertion) -> bool:
    """Rewrite a Slice of real numbers by constant steps that divide the extents, and return whether it is one."""
    strided_axes = [] if before.node.domain else _taken(before.node)
    (value, *_), (result,) = before.node.inputs, before.node.outputs
    if value is None or not strided_axes:
        return False
    for number, rows in enumerate(strided_axes):
        dims = _dims(value)
        front, back = dims[: rows.axis], dims[rows.axis + 1 :]
        count = dims[rows.axis] // rows.step
        groups = [_size([*front, count]), rows.step, _size(back)]
        if len(dims) == 2:  # what a RESHAPE drops alone, the builtin before it would drop, which XNNPACK cannot
            groups.insert(0, 1)
        split = before.reshaped(value, groups, f"{result.name}/split_{number}")
        row = before.part(split, {len(groups) - 2: (rows.first, rows.first + 1)}, f"{split.name}/row")
        value = before.reshaped(row, [*front, count, *back], f"{result.name}/rows_{number}")
    before.replace(value)
    return True


def _taken(node: ir.Node) -> list[_Rows]:
    """Return what a Slice takes; nothing of one that would be no faster otherwise."""
    value, dims = node.inputs[0], _dims(node.inputs[0])
    places = [integers_of(node, slot) for slot in range(1, len(node.inputs))]
    is_known = bool(dims) and dims.count(OPEN) <= 1 and 0 not in dims and len(places) == 4 and None not in places
    if value is None or value.dtype != ir.DataType.FLOAT or not is_known:
        return []
    strided_axes: list[_Rows] = []
    for start, end, axis, step in zip(*(each or () for each in places), strict=True):
        place, extent = axis % len(dims), dims[axis]
        if extent == OPEN or place == len(dims) - 1 or step < 1 or extent % step:
            return []
        rows = range(extent)[start:end:step]
        if rows.start >= step or len(rows) != extent // step:
            return []
        strided_axes.append(_Rows(place, rows.start, step))
    return [each for each in strided_axes if each.step > 1]


def _dims(value: ir.Value | None) -> list[int]:
    shape = () if value is None or value.shape is None else value.shape
    return [extent if isinstance(extent, int) else OPEN for extent in shape]


def _size(dims: Sequence[int]) -> int:
    return OPEN if OPEN in dims else prod(dims)


# An LRN is a convolution with a band matrix, and roots: LiteRT's own kernel takes a power of each element.
#
#     LRN(x)    becomes    x · s^-beta,    s = Conv(x · x, band, bias)
#
# The band has alpha / size where a channel is in another one's window. Powers are products of RSQRT(s) and its root, so
# beta is a multiple of 1/4. On x64 XNNPACK takes a third to a thirteenth of the time (64 to 512 channels).

DOMAIN = "relayout.nhwc"
CONV_DOMAIN = "relayout.nhwc.ohwi"
MOST_CHANNELS = 512  # channels above which the matrix takes as long as the powers
QUARTERS = (1, 2, 3, 4)  # beta in quarters


def write_local_response(before: Insertion) -> bool:
    """Rewrite an LRN of real numbers and few channels, and return whether it is one."""
    node = before.node
    value = node.inputs[0] if node.domain == DOMAIN else None
    channels = None if value is None or value.shape is None else value.shape[-1]
    if value is None or value.dtype != ir.DataType.FLOAT or not isinstance(channels, int):
        return False
    defaults = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    alpha, beta, shift = (node.attributes.get_float(name, default) for name, default in defaults.items())
    size, name, like = node.attributes.get_int("size"), node.outputs[0].name, (value.shape, value.type)
    # The power is a product of roots, of a number above 0; windows of odd size alone have a middle.
    if channels > MOST_CHANNELS or 4 * beta not in QUARTERS or alpha < 0 or shift <= 0 or size % 2 == 0:
        return False
    band = channel_windows(channels, size, alpha / size)[:, None, None, :]
    bias = np.full(channels, shift, np.float32)
    kernel = before.constant(band, f"{name}/kernel"), before.constant(bias, f"{name}/bias")
    square = before.add("Mul", [value, value], *like)
    total = before.add(CONVOLUTION, [square, *kernel], *like, domain=CONV_DOMAIN)
    exponent = before.constant(np.array(-0.5, np.float32), f"{name}/exponent")
    half = before.add("Pow", [total, exponent], *like)
    halves, fourths = divmod(round(4 * beta), 2)
    factors = [half] * halves + [before.add("Sqrt", [half], *like)] * fourths
    for factor in factors:
        value = before.add("Mul", [value, factor], *like)
    before.replace(value)
    return True


# Booleans are compared, or are integers meanwhile: LiteRT's own kernels of NOT, AND and OR take an element at a time.
#
#     Not(x)       becomes    Equal(x, false)
#     And(x, y)    becomes    Cast(Min(Cast(x), Cast(y))), of int8; Or the same with Max
#
# On x64 a Not takes a 50th of the time, the others an 8th, or a 14th by an operand that is stretched.

COMPARED = {"And": "Min", "Or": "Max"}  # operators of booleans -> those of integers
FEWEST_BOOLEANS = 256  # elements of a result from which on integers take less time


def compare_with_false(before: Insertion) -> bool:
    """Rewrite a Not."""
    (value,), (result,) = before.node.inputs, before.node.outputs
    false = before.constant(np.array(False), f"{result.name}/false")
    before.replace(before.add("Equal", [value, false], result.shape, result.type))
    return True


def compute_with_integers(before: Insertion) -> bool:
    """Rewrite an And or an Or of many booleans, and return whether it is one."""
    node, (result,) = before.node, before.node.outputs
    dims = _dims(result)
    if not dims or (OPEN not in dims and prod(dims) < FEWEST_BOOLEANS):
        return False
    integers = ir.TensorType(ir.DataType.INT8)
    casts = [
        before.add("Cast", [value], None if value is None else value.shape, integers, {"to": ir.DataType.INT8})
        for value in node.inputs
    ]
    extreme = before.add(COMPARED[node.op_type], casts, result.shape, integers)
    before.replace(before.add("Cast", [extreme], result.shape, result.type, {"to": ir.DataType.BOOL}))
    return True


REWRITES: Mapping[str, Callable[[Insertion], bool]] = {
    **dict.fromkeys(COMPARED, compute_with_integers),
    **dict.fromkeys(FORMULAS, write_angle),
    CONVOLUTION: lambda before: split_large_window(before) or split_volume(before),
    "LRN": write_local_response,
    "Not": compare_with_false,
    "Pad": gather_border,
    "Slice": split_strided_slice,
}
"""Operator -> what writes its slow forms as other operators, in place."""
LINE = "written as operators that take less time in LiteRT"  # the words of a report before their names


def rewrite_slow_operators(graph: ir.Graph, *, is_rewritten: bool) -> Counter[str]:
    """Rewrite operators that LiteRT runs slowly, in place, and return how many there were of each."""
    if not is_rewritten:
        return Counter()
    nodes = [node for node in graph if node.op_type in REWRITES]
    return Counter(node.op_type for node in nodes if REWRITES[node.op_type](Insertion(graph, node)))
