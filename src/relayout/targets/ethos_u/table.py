"""Arm Ethos-U55, U65 and U85, NPUs of int8 and int16: what Arm's compiler Vela puts on them. LiteRT runs the rest.

Operators, types and limits: the report of Arm's compiler, `vela --supported-ops-report` of ethos-u-vela 5.2.0, tables
"Ethos-U55 and Ethos-U65 TFLite" and "Ethos-U85 TFLite", each row corrected by compiling single operators
(`tests/targets/test_ethos_u.py`). One limit is not here: the absolute weights of an output channel sum up to at most
127 × 65,536, which no usual network exceeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.rewriting import Rewriting
from relayout.graph.quantized_unit import Quantization, Scale, unit_of
from relayout.layout import product
from relayout.lowering.conditions import (
    CONSTANT_KERNEL,
    COUNTED_BORDER,
    DEPTHWISE,
    NO_DILATIONS,
    NO_INDICES,
    NO_PADDED_MEAN,
    NOT_DEPTHWISE,
    SAME_OR_VALID,
    SPATIAL_ONLY,
    STATIC_BUT_N,
    Condition,
    attribute,
    constant,
    constant_slice,
    is_unpadded,
    kernel_slot,
    strides,
)
from relayout.lowering.decomposition_rows import Expansion
from relayout.lowering.unit_rows import SAME_SCALES, weights_of
from relayout.rules import Operator, Placement, Signature, Step
from relayout.rules.signature import Constants
from relayout.targets.litert.decompositions import DECOMPOSITIONS
from relayout.targets.litert.integer_scales import requantized, stored_integers
from relayout.targets.litert.prices import PRICES
from relayout.targets.litert.quantized_units import INTEGER_KERNEL
from relayout.targets.litert.table import beside_litert
from relayout.targets.target_table import Kernel, convolutions
from relayout.targets.tflite_micro import MICRO

# Means as Vela takes them: of one image, over axes of space, each of at most 4,096 elements.
#
#     MEAN(x[2 6 9 8], 3)  ->  RESHAPE(MEAN(RESHAPE(x, [108 8 1]), 1), [2 6 9 1])
#
# Neighbours that are averaged are one axis, as are those before and those behind it: RESHAPEs cost nothing. Vela
# averages eight channels in the time of one, so that a mean of neighbours that lie last is one of eighths, and then of
# these:
#
#     MEAN(x[32 768], 1)   ->  MEAN(RESHAPE(MEAN(RESHAPE(x, [32 96 8]), 1), [32 8 1]), 1)

LONGEST = 4096  # the longest axis that Vela averages
FEWEST_AXES, MOST_AXES = 2, 4
LANES, SHORTEST = 8, 128  # channels that are averaged at once, and from how many elements on two means take less time


class MeanForm(NamedTuple):
    """A tensor and the axes of it over which a mean is taken."""

    dims: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def is_taken(self) -> bool:
        """True if Vela takes it."""
        if not FEWEST_AXES <= len(self.dims) <= MOST_AXES or max(self.dims[axis] for axis in self.axes) > LONGEST:
            return False
        is_one_image = len(self.dims) < MOST_AXES or self.dims[0] == 1
        leaves_last = len(self.dims) - 1 not in self.axes or len(self.dims) == FEWEST_AXES or 1 in self.dims[-3:]
        return is_one_image and leaves_last


def mean_form(
    dims: Sequence[int | str],  # extents. Vela takes an open one for 1, and of such a tensor no axes are joined
    axes: Sequence[int],  # the axes that are averaged; there is at least one
) -> MeanForm:
    """Return the form in which Vela takes a mean, its own or one on joined axes; if it takes none, one of few axes."""
    extents = tuple(dim if isinstance(dim, int) else 1 for dim in dims)
    own = MeanForm(extents, tuple(sorted({axis % len(extents) for axis in axes})))
    if own.is_taken or extents != tuple(dims):
        return own
    joined = _joined(own)
    return joined if joined.is_taken or len(extents) > MOST_AXES else own


def _joined(form: MeanForm) -> MeanForm:
    """Return a mean over one axis of three, or over two of one image, where the axes are neighbours."""
    larger = [axis for axis, extent in enumerate(form.dims) if extent != 1]
    runs = [(is_averaged, list(run)) for is_averaged, run in groupby(larger, lambda axis: axis in form.axes)]
    places = [place for place, (is_averaged, _) in enumerate(runs) if is_averaged] or [len(runs)]
    if len(places) > 1:
        return MeanForm(tuple(prod(form.dims[axis] for axis in run) for _, run in runs), tuple(places))
    before, along, behind = (
        prod(form.dims[axis] for _, run in some for axis in run)
        for some in (runs[: places[0]], runs[places[0] : places[0] + 1], runs[places[0] + 1 :])
    )
    rows = next((rows for rows in range(-(-along // LONGEST), LONGEST + 1) if not along % rows), 1)
    if rows == 1 or before > 1:
        return MeanForm((before, along, behind), (1,))
    return MeanForm((1, rows, along // rows, behind), (1, 2))


def _in_lanes(form: MeanForm) -> tuple[MeanForm, ...]:
    """Return the two means of a mean over the last elements; none where it is another, or short."""
    larger = [axis for axis, extent in enumerate(form.dims) if extent != 1 or axis in form.axes]
    along = prod(form.dims[axis] for axis in form.axes)
    if larger[-len(form.axes) :] != list(form.axes) or along < SHORTEST or along % LANES:
        return ()
    before = prod(form.dims) // along
    parts = mean_form((before, along // LANES, LANES), (1,)), MeanForm((before, LANES, 1), (1,))
    return parts if all(part.is_taken for part in parts) else ()


def write_mean(op: Rewriting) -> DraftTensor | None:
    """Write a mean in the form that Vela takes, and return what it gives; None where that is its own.

    A mean of integers stays one, since what lies between two has no scale.
    """
    source, axes = op.operands[:2] if op.operator.name == "MEAN" else (None, None)
    if source is None or axes is None or axes.array is None or not axes.array.size or not source.is_static:
        return None
    form, result = mean_form(source.dims, axes.array.reshape(-1).tolist()), op.result
    forms = _in_lanes(form) if result.type == TensorType.FLOAT32 else ()
    if not forms and form.dims == source.dims:
        return None
    last = source
    for each in forms or (form,):
        dims = tuple(1 if axis in each.axes else extent for axis, extent in enumerate(each.dims))
        inputs = [op.reshape(last, each.dims), op.ints(each.axes)]
        last = op.emit("MEAN", inputs, dims, result.type, result.quantization, keep_dims=True)
    return last


# Convolutions of real numbers with strides above 3 and a border, as Vela takes them once a quantizer was there.
#
#     CONV_2D(PAD(x))  ->  CONV_2D(CONCATENATION(zeros, x, zeros)), along each axis that has a border
#
# Vela 5.2 takes such strides without a border, and puts a PAD back into the convolution: it then compiles nothing.
# Units of integers get the same before layouts are chosen (`STRIDED_BORDER`).

LONGEST_STRIDE = 3  # the longest stride that Vela takes together with a border


def write_border(op: Rewriting) -> DraftTensor | None:
    """Write the border of a convolution with long strides as constants; None of any other operator."""
    options = op.operator.options
    strides = (options.get("stride_h", 1), options.get("stride_w", 1))
    if op.operator.name != "CONV_2D" or max(strides) <= LONGEST_STRIDE or op.result.type != TensorType.FLOAT32:
        return None
    image, *others = op.operator.inputs
    pad = next((each for each in op.draft.operators if each.name == "PAD" and image in each.outputs), None)
    source, pads = (None, None) if pad is None else pad.inputs[:2]
    if source is None or pads is None or pads.array is None or not source.is_static:
        return None
    last = source
    for axis, (before, behind) in enumerate(pads.array.tolist()):
        borders = [
            op.const(np.zeros((*last.shape[:axis], extent, *last.shape[axis + 1 :]), np.float32))
            for extent in (before, behind)
        ]
        last = op.concat([each for each in (borders[0], last, borders[1]) if each.dims[axis]], axis)
    return op.same(last, *others)


# The same of units, in the graph; groups, which Vela takes with short strides alone, get weights of zero between them.


def borders(operator: Operator) -> tuple[int, ...] | None:
    """Return the elements of zero before each axis of space, then those behind; None where they are not known."""
    x, y, slot = operator.shape(), operator.outputs[0], kernel_slot(operator)
    kernel = None if slot is None else operator.shape(slot)
    mode, space = operator.string("auto_pad", "NOTSET"), (operator.rank() or 2) - 2
    if mode in ("NOTSET", "VALID"):
        return (mode == "NOTSET" and operator.ints("pads")) or (0,) * 2 * space
    if x is None or y is None or kernel is None:
        return None
    steps, totals = operator.ints("strides") or (1,) * space, []
    for before, after, side, step in zip(x[2:], y[2:], kernel[2:], steps, strict=True):
        if not isinstance(before, int) or not isinstance(after, int) or not isinstance(side, int):
            return None
        totals.append(max((after - 1) * step + side - before, 0))
    smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return (*smaller, *larger) if mode == "SAME_UPPER" else (*larger, *smaller)


def _behind_borders(operator: Operator, _: Constants) -> Sequence[Step]:
    """Return a Concat along each axis that has a border, and the convolution without one."""
    unit, pads, shape = operator.unit(), borders(operator), operator.shape()
    operand = None if unit is None or unit.node is not operator.node else unit.operands[0]
    scale = None if operand is None else operand.meaning
    if unit is None or scale is None or pads is None or shape is None or not scale.is_one or min(pads) < 0:
        return ()
    extents = [extent for extent in shape if isinstance(extent, int)]
    if len(extents) < len(shape):
        return ()
    steps: list[Step] = []
    last: int | str = 0
    for axis, pair in enumerate(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True), start=2):
        if any(pair):
            steps += _bordered(last, axis, pair, extents, scale)
            last = steps[-1].name
            extents[axis] += sum(pair)
    own = ("auto_pad", "pads", "group")
    others = {name: each.value for name, each in operator.node.attributes.items() if name not in own}
    inputs: list[int | str] = [last, *range(1, len(operator.node.inputs))]
    if operator.int("group", 1) > 1:
        weights = _dense_weights(operator.int("group", 1), unit.operands[1])
        if weights is None:
            return ()
        steps.append(weights)
        inputs[1] = weights.name
    return (*steps, Step("Conv", tuple(inputs), "convolved", others))


def _bordered(
    operand: int | str, axis: int, pair: tuple[int, int], extents: Sequence[int], scale: Scale
) -> Iterator[Step]:
    """Yield the steps that join an operand to its border along an axis, as integers with its scale."""
    parameters = scale.parameters
    names = [f"before_{axis}", operand, f"behind_{axis}"]
    for name, count in zip((names[0], names[2]), pair, strict=True):
        dims = [count if each == axis else extent for each, extent in enumerate(extents)]
        if count:
            border = np.full(dims, parameters[1], scale.dtype.numpy())
            yield Step("DequantizeLinear", (border, *parameters), str(name))
    parts = [name for name, count in zip(names, (pair[0], 1, pair[1]), strict=True) if count]
    yield Step("Concat", tuple(parts), f"joined_{axis}", {"axis": axis})
    yield from requantized(f"joined_{axis}", f"bordered_{axis}", parameters)


def _dense_weights(groups: int, operand: Quantization | None) -> Step | None:
    """Return the weights of groups as those of all channels, with zeros between; None where they are computed."""
    if (stored := stored_integers(operand)) is None:
        return None
    integers, scale, zero = stored
    count, channels = len(integers) // groups, integers.shape[1]
    dense = np.zeros((len(integers), channels * groups, *integers.shape[2:]), integers.dtype)
    dense[:] = zero.reshape(-1, *[1] * (integers.ndim - 1))
    for group in range(groups):
        rows, columns = slice(group * count, (group + 1) * count), slice(group * channels, (group + 1) * channels)
        dense[rows, columns] = integers[rows]
    return Step("DequantizeLinear", (dense, scale, zero), "dense", {"axis": 0})


SHORT = strides(LONGEST_STRIDE)
LONG = Condition(
    f"strides above {LONGEST_STRIDE} and a border or groups",
    lambda operator: not SHORT.holds(operator) and (any(borders(operator) or ()) or operator.int("group", 1) > 1),
)
STRIDED_BORDER = Expansion("Conv", (NOT_DEPTHWISE, NO_DILATIONS, LONG), _behind_borders)

# Prices of operators on Ethos-U in an order of axes, in bytes that might be transposed instead.
#
# Measured by Vela's estimates of single operators (`bench/measure_npu_prices.py`). Cycles for a byte:
#
#     a Transpose that moves runs          0.375     of NHWC to NCHW, in two steps    0.75
#     ReduceMax along the last axis        2.0       along another                    0.26 to 0.51
#     ReduceMean along the last axis       0.67      along another                    0.26 to 0.51
#     Pad of the last axis                 1.5       of another                       0.7 to 0.78

PER_TRANSPOSE = 100  # bytes that are transposed in the cycles that the smallest Transpose takes
PER_SCATTERED = 1  # a Transpose that takes the innermost axis along runs in two steps
MOST = {"ReduceMax": 4, "Pad": 2, "ReduceMean": 1}
"""Operator -> bytes for each byte of its operand, where the last axis is the one that it works along."""


def price(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return what a node costs in an order beside its best one."""
    unit = operator.unit() if operator.name in MOST else None
    dims, letters = placement.inputs[0], signature.inputs[0]
    if unit is None or unit.dtype is None or not dims or letters is None:
        return PRICES(operator, signature, placement)
    along = {letters[axis % len(letters)] for axis in _axes(operator, len(letters))}
    extents = [extent for _, extent in dims]
    if dims[-1][0] not in along or (operator.name != "Pad" and any(extent.number == 1 for extent in extents[-3:])):
        return 0
    return MOST[operator.name] * product(extents).number * ceil(unit.dtype.itemsize) * placement.runs


def _axes(operator: Operator, rank: int) -> Sequence[int]:
    """Return the axes that a node works along."""
    if operator.name != "Pad":
        return operator.integers(1) or operator.ints("axes") or range(rank)
    pads = operator.integers(1) or operator.ints("pads") or ()
    padded = operator.integers(3) if operator.has(3) else range(rank)
    sides = zip(padded or (), pads, pads[len(pads) // 2 :], strict=False)
    return [axis for axis, before, after in sides if before or after]


BYTES = ("INT8", "UINT8")
TYPES = (*BYTES, "INT16")
IMAGE = (3, 4)
HIGHEST_WINDOW, LARGEST_WINDOW, LARGEST_PADDED = 256, 1 << 16, 8
MOST_ROWS = 1 << 16


STRIDES = Condition(
    f"strides of at most {LONGEST_STRIDE}, or no pads and no dilations",
    lambda operator: SHORT.holds(operator) or (is_unpadded(operator) and NO_DILATIONS.holds(operator)),
)
POOL_STRIDES = Condition(
    f"strides of at most {LONGEST_STRIDE}, or no pads SAME_UPPER",
    lambda operator: SHORT.holds(operator) or is_unpadded(operator) or not SAME_OR_VALID.holds(operator),
)

WINDOW = Condition(
    f"a window of at most {HIGHEST_WINDOW} rows and {LARGEST_WINDOW:,} elements",
    lambda operator: (
        bool(sides := operator.ints("kernel_shape") or ())
        and (sides[0] if len(sides) == 2 else 1) <= HIGHEST_WINDOW
        and prod(sides) <= LARGEST_WINDOW
    ),
)
PADDED_WINDOW = Condition(
    f"no pads, or a window of at most {LARGEST_PADDED} × {LARGEST_PADDED} and count_include_pad 0",
    lambda operator: (
        is_unpadded(operator)
        or (NO_PADDED_MEAN.holds(operator) and max(operator.ints("kernel_shape") or (0,)) <= LARGEST_PADDED)
    ),
)


def _extents(shape: Sequence[int | str] | None) -> tuple[int, ...]:
    """Return extents; Vela takes an open one, which may be that of the batch alone, for 1."""
    return tuple(dim if isinstance(dim, int) else 1 for dim in shape or ())


def _is_covered(operator: Operator) -> bool:
    """Tell whether the window of a transposed convolution covers its strides, and all of the result."""
    x, y = _extents(operator.shape())[2:], _extents(operator.outputs[0])[2:]
    slot = kernel_slot(operator)
    sides = () if slot is None else _extents(operator.shape(slot))[2:]
    steps = operator.ints("strides") or (1,) * len(sides)
    dilations = operator.ints("dilations") or (1,) * len(sides)
    pads = operator.ints("pads") or (0,) * len(sides)
    if len({len(x), len(y), len(sides)}) != 1:
        return False
    for before, after, side, step, dilation, pad in zip(x, y, sides, steps, dilations, pads, strict=False):
        whole = (side - 1) * dilation + 1
        if whole < step or after + pad > (before - 1) * step + whole:
            return False
    return True


def _is_spread(operator: Operator) -> bool:
    """Tell whether a transposed convolution has strides, and extents that it gives, as the NPU has them."""
    x, slot = _extents(operator.shape())[2:], kernel_slot(operator)
    sides = () if slot is None else _extents(operator.shape(slot))[2:]
    steps = operator.ints("strides") or (1,) * len(sides)
    others = [axis for axis, step in enumerate(steps) if step != max(steps)]
    return _is_covered(operator) and all(steps[axis] == x[axis] == sides[axis] == 1 for axis in others)


COVERED = Condition("a window that covers the strides, no output_padding beyond it", _is_covered)
SPREAD = Condition("strides alike, or along the only axis, and no output_padding beyond the window", _is_spread)


def _factors(operator: Operator) -> list[tuple[float, bool]] | None:
    """Return by how much height and width grow, and whether they are of one element; none if an image does not change.

    None: it has other axes.
    """
    x, y = _extents(operator.shape()), _extents(operator.outputs[0])
    if len(x) != 4 or len(y) != 4:
        return None
    if x == y or x[2:] == (1, 1):
        return []
    less = operator.string("coordinate_transformation_mode", "half_pixel") == "align_corners"
    sides = zip(x[2:], y[2:], strict=True)
    return [((after - less) / max(before - less, 1), before == after == 1) for before, after in sides]


def _is_linear(operator: Operator) -> bool:
    return operator.string("mode", "nearest") == "linear"


def _is_resized(operator: Operator) -> bool:
    factors = _factors(operator)
    halves = operator.string("coordinate_transformation_mode", "half_pixel") == "half_pixel" and _is_linear(operator)
    allowed = (2.0,) if halves else (2.0, 4.0, 8.0)
    if not factors:
        return factors is not None
    is_even = len({factor for factor, _ in factors}) == 1 or any(is_flat for _, is_flat in factors)
    return is_even and all(factor in allowed for factor, is_flat in factors if not is_flat)


RESIZED = Condition("2, 4 or 8 times the height and width; of linear half pixels 2 times", _is_resized)


def _is_averaged(operator: Operator) -> bool:
    shape = operator.shape()
    if not shape:
        return False
    if operator.name == "GlobalAveragePool":
        shape, axes = (shape[0], *shape[2:], shape[1]), tuple(range(1, len(shape) - 1))
    else:
        axes = operator.integers(1) or operator.ints("axes") or ()
    return bool(axes) and mean_form(shape, axes).is_taken


AVERAGED = Condition(f"neighbouring axes of at most {LONGEST:,} elements together, or in one image each", _is_averaged)


FORWARD = constant_slice("steps of at least 1", lambda step: step > 0)
FEW_ROWS = Condition(
    f"at most {MOST_ROWS:,} rows along its axis",
    lambda operator: (
        not (shape := _extents(operator.shape())) or prod(shape) // max(shape[operator.int("axis", -1)], 1) <= MOST_ROWS
    ),
)

PEEPHOLES, PROJECTION, NORMALIZATION = (9, 10, 11), (16, 17), (20, 21, 22, 23)
"""Inputs of an LSTM of TensorFlow Lite that the NPU lacks. Input 1 is the weights of its input gate."""
PLAIN_GATES = Condition(
    "four gates of their own weights, without peepholes, projection and normalization",
    lambda operator: operator.has(1) and not any(map(operator.has, (*PEEPHOLES, *PROJECTION, *NORMALIZATION))),
)
LSTM = frozenset({"UNIDIRECTIONAL_SEQUENCE_LSTM"})  # of real numbers Vela 5.2 refuses it together with the whole file
GATE = Expansion(  # a HARD_SWISH of real numbers, which Vela 5.2 refuses together with the whole file
    "HardSwish",
    (Condition("on real numbers", lambda each: unit_of(each.node) is None or not INTEGER_KERNEL.holds(each)),),
    lambda *_: (Step("HardSigmoid", (0,), "gate", {"alpha": 1 / 6, "beta": 0.5}), Step("Mul", (0, "gate"), "gated")),
)
ANY = (STATIC_BUT_N, INTEGER_KERNEL)
PADDED = (attribute("mode", ("constant", "reflect"), "constant"), constant(1, "list of pads"))
WEIGHTS = (STATIC_BUT_N, CONSTANT_KERNEL, weights_of(*BYTES), INTEGER_KERNEL)
MATRIX = (STATIC_BUT_N, constant(1, "second operand"), weights_of(*BYTES), INTEGER_KERNEL)
AVERAGE = (NO_DILATIONS, SAME_OR_VALID, *ANY, STRIDES, WINDOW, PADDED_WINDOW)

TARGET = beside_litert(
    name="ethos-u",
    line="Arm Ethos-U55 and U65, by Vela: int8 and int16, NHWC; LiteRT's kernels run the rest",
    kernels=(
        Kernel("Conv", ("NHWC OHWI",), TYPES, IMAGE, (*WEIGHTS, STRIDES), NOT_DEPTHWISE),
        Kernel("Conv", ("NHWC IHWO",), TYPES, IMAGE, (*WEIGHTS, SHORT), DEPTHWISE),
        Kernel("ConvTranspose", ("NHWC OHWI",), TYPES, IMAGE, (*WEIGHTS, strides(2), SPREAD)),
        Kernel("MaxPool", ("NHWC",), TYPES, IMAGE, (NO_INDICES, *ANY, POOL_STRIDES, WINDOW)),
        Kernel("AveragePool", ("NHWC",), TYPES, IMAGE, AVERAGE),
        Kernel("AveragePool", ("NHWC",), TYPES, (4,), (NO_DILATIONS, COUNTED_BORDER, *ANY, STRIDES, WINDOW)),
        Kernel("GlobalAveragePool", ("NHWC",), TYPES, (3, 4, 5), (AVERAGED, *ANY)),
        Kernel("GlobalMaxPool", ("NHWC",), TYPES, IMAGE, ANY),
        Kernel("Resize", ("NHWC",), TYPES, (4,), (SPATIAL_ONLY, RESIZED, *ANY)),
        Kernel("ReduceMean", types=TYPES, limits=(AVERAGED, *ANY)),
        Kernel("ReduceMax ReduceMin", types=TYPES, limits=ANY),
        Kernel("Gemm MatMul", types=TYPES, limits=MATRIX),
        Kernel("MatMul", types=BYTES, limits=ANY),
        Kernel("Add Mul Sub", types=TYPES, limits=ANY),
        Kernel("Pow", types=("INT8", "INT16"), limits=ANY),
        Kernel("Max Min", types=TYPES, limits=(SAME_SCALES, *ANY)),
        Kernel("Concat Flatten Reshape Split Squeeze Unsqueeze", types=TYPES, limits=ANY),
        Kernel("Transpose", types=BYTES, limits=ANY),
        Kernel("Transpose", types=("INT16",), limits=(SAME_SCALES, *ANY)),
        Kernel("Pad", types=TYPES, limits=(*PADDED, *ANY)),
        Kernel("Slice", types=TYPES, limits=(FORWARD, *ANY)),
        Kernel("Clip HardSwish LeakyRelu Relu Sigmoid Tanh", types=TYPES, limits=ANY),
        Kernel("Abs Elu Gelu", types=BYTES, limits=ANY),
        Kernel("Gelu", types=BYTES, limits=ANY, domain="com.microsoft"),
        Kernel("QuantizeLinear", types=TYPES, limits=(STATIC_BUT_N,)),
        Kernel("Softmax", types=TYPES, limits=(FEW_ROWS, *ANY), trailing="axis"),
        Kernel("SOFTMAX", types=("INT16",), limits=(STATIC_BUT_N, FEW_ROWS), domain="tflite"),
        Kernel("UNIDIRECTIONAL_SEQUENCE_LSTM", types=("INT8",), limits=(STATIC_BUT_N, PLAIN_GATES), domain="tflite"),
    ),
    price=price,
    per_transpose=PER_TRANSPOSE,
    per_scattered=PER_SCATTERED,
    expansions=(*DECOMPOSITIONS, GATE, STRIDED_BORDER),
    builtins=MICRO._replace(
        names=MICRO.names - LSTM,
        lacks=frozenset(),  # Linux runs the rest of a file beside an Ethos-U, too
        integers=frozenset({"GELU", "TILE", "RELU_N1_TO_1"}) | LSTM,
        form=lambda op: write_mean(op) or write_border(op),
        on_bytes=frozenset(("ABS", "ELU", "EXP", "GELU", "LOG", "RSQRT")),
    ),
)

# Ethos-U85: the same with fewer limits. It also runs comparisons, divisions, Casts, Gathers and choices, of which no
# row is here: the report counts them as those of the host.


def _is_resized_by_u85(operator: Operator) -> bool:
    """Tell whether height and width grow little; of linear ones by powers of two."""
    factors, is_linear = _factors(operator), _is_linear(operator)
    return factors is not None and all(
        factor <= MOST_GROWN and not (is_linear and (factor != int(factor) or int(factor) & (int(factor) - 1)))
        for factor, _ in factors
    )


MOST_GROWN = 1024
RESIZED_BY_U85 = Condition("of linear ones a power of 2 times the height and width", _is_resized_by_u85)
U85_ROWS = (  # the rows of operators that an Ethos-U85 has more of
    *convolutions(TYPES, IMAGE, WEIGHTS),
    Kernel("ConvTranspose", ("NHWC OHWI",), TYPES, IMAGE, (*WEIGHTS, COVERED)),
    Kernel("MaxPool", ("NHWC",), TYPES, IMAGE, (NO_INDICES, *ANY, WINDOW)),
    Kernel("AveragePool", ("NHWC",), TYPES, IMAGE, (NO_DILATIONS, SAME_OR_VALID, *ANY, WINDOW, PADDED_WINDOW)),
    Kernel("AveragePool", ("NHWC",), TYPES, (4,), (NO_DILATIONS, COUNTED_BORDER, *ANY, WINDOW)),
    Kernel("Resize", ("NHWC",), TYPES, (4,), (SPATIAL_ONLY, RESIZED_BY_U85, *ANY)),
    Kernel("MatMul", types=TYPES, limits=ANY),
)
ETHOS_U85 = replace(
    TARGET,
    name="ethos-u85",
    line="Arm Ethos-U85, by Vela: int8 and int16, NHWC, longer strides; LiteRT's kernels run the rest",
    kernels=(*U85_ROWS, *(row for row in TARGET.kernels if row.op_types not in {each.op_types for each in U85_ROWS})),
    expansions=(*DECOMPOSITIONS, GATE),
)
TARGETS = (ETHOS_U85,)
ALIASES = {
    **dict.fromkeys(("ethosu", "ethos-u55", "ethos-u65", "ethosu55", "ethosu65", "vela"), "ethos-u"),
    "ethosu85": "ethos-u85",
}
