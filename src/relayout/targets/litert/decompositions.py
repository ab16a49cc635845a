"""Operators that LiteRT has no builtin for, as others that layouts pass through.

They are written before layouts are chosen: means and products run in any order of axes, where the operator that they
stand for exists in one.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.domains import CONVOLUTION
from relayout.graph.quantized_unit import (
    BYTES,
    DEQUANTIZE,
    QUANTIZE,
    WORDS,
    Scale,
    bytes_of,
    dequantizer_of,
    scale_of,
    stored_reals,
)
from relayout.lowering.conditions import Condition, attribute
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.normalization import Normalizing
from relayout.rules.signature import Attribute, Constants
from relayout.targets.litert.convolutions import TRANSPOSED_CONVOLUTION, convolution_attributes
from relayout.targets.litert.einsum_products import EINSUM
from relayout.targets.litert.integer_forms import channel_factors

# ScatterND that writes a box of a tensor as Slices and Concats, through which layouts pass.
#
#     x[:, :, a:b] = u    =    Concat<axis=2>(Slice(x, to a), u, Slice(x, from b))
#
# PyTorch writes such an assignment as a ScatterND whose places are a constant for each element. A box that ends within
# several axes is one along the first of them, of a part that has a box along the next.


class Box(NamedTuple):
    """Elements that are written along one axis, of which others stay."""

    axis: int
    begin: int
    end: int
    extent: int


def _boxes(operator: Operator) -> list[Box] | None:
    """Return the axes along which a part is written; None where the places are no box, or not known."""
    constant, dims = operator.constant(1), operator.shape(0)
    if constant is None or dims is None or not constant.size or operator.unit() is not None:
        return None
    places = constant.astype(np.int64)
    extents, count = places.shape[:-1], places.shape[-1]
    if len(extents) != count or not all(isinstance(dim, int) for dim in dims[:count]):
        return None
    known = np.array(dims[:count], np.int64)
    begin = places.reshape(-1, count)[0]
    begin = begin + known * (begin < 0)
    if not np.array_equal(places + known * (places < 0), begin + np.moveaxis(np.indices(extents), 0, -1)):
        return None
    rows = zip(begin.tolist(), extents, known.tolist(), strict=True)
    return [Box(axis, at, at + size, dim) for axis, (at, size, dim) in enumerate(rows) if size < dim]


def _in_boxes(operator: Operator, _: Constants) -> Sequence[Step]:
    boxes = _boxes(operator)
    return () if boxes is None else list(_boxed(0, boxes)) or (Step("Identity", (2,), "written"),)


def _boxed(source: int | str, boxes: Sequence[Box]) -> Iterator[Step]:
    """Yield what writes the updates into a box of a value."""
    if not boxes:
        return
    (axis, begin, end, extent), rest = boxes[0], boxes[1:]
    middle: int | str = 2
    if rest:
        yield _slice(source, axis, begin, end, f"inside {axis}")
        yield from _boxed(f"inside {axis}", rest)
        middle = f"written {rest[0].axis}"
    parts: list[int | str] = [middle]
    if begin:
        yield _slice(source, axis, 0, begin, f"before {axis}")
        parts.insert(0, f"before {axis}")
    if end < extent:
        yield _slice(source, axis, end, extent, f"behind {axis}")
        parts.append(f"behind {axis}")
    yield Step("Concat", tuple(parts), f"written {axis}", {"axis": axis})


def _slice(source: int | str, axis: int, begin: int, end: int, name: str) -> Step:
    numbers: list[NDArray[np.int64]] = [np.array([number], np.int64) for number in (begin, end, axis)]
    return Step("Slice", (source, *numbers), name)


BOX = Condition("places are a box", lambda operator: _boxes(operator) is not None)
SCATTERED_BOXES = Expansion("ScatterND", (attribute("reduction", ("none",), "none"), BOX), _in_boxes, of_tflite=False)


# A quantized division by one number as a product, for which LiteRT has a kernel on integers.
#
#     x / c  =  x · 1/c
#
# The integer of 1/c is 1 or -1, and its scale all the rest, so nothing is rounded but the result.


def _real(operator: Operator) -> np.dtype[Any]:
    """Return the type of what a node gives; single precision where it is not known."""
    return (operator.node.outputs[0].dtype or ir.DataType.FLOAT).numpy()


def _divisor(operator: Operator) -> float | None:
    """Return the one number that bytes are divided by; None where there is none, or where it is 0."""
    number = operator.constant(1)
    if number is not None:
        is_eligible = _is_between_bytes(operator.node)
    else:
        number, unit = stored_reals(operator.node.inputs[1]), operator.unit()
        is_eligible = unit is not None and all(each.dtype in BYTES for each in unit.activations)
    return float(number.reshape(-1)[0]) or None if is_eligible and number is not None and number.size == 1 else None


def _is_between_bytes(node: ir.Node) -> bool:
    """Tell whether a node reads dequantized bytes and is quantized to bytes: quantizers leave its divisor real."""
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    behind = [use.node for use in node.outputs[0].uses()]
    if before is None or before.op_type != DEQUANTIZE or not behind or node.outputs[0].is_graph_output():
        return False
    integers = [before.inputs[0], *(each.outputs[0] for each in behind if each.op_type == QUANTIZE)]
    return len(integers) > len(behind) and all(each is not None and each.dtype in BYTES for each in integers)


def _as_product(operator: Operator, _: Constants) -> Sequence[Step]:
    divisor, real = _divisor(operator), _real(operator)
    x, y = operator.shape(), operator.outputs[0]
    if divisor is None or x is None or y is None or len(x) != len(y):
        return ()
    one, none, scale = np.array(np.sign(divisor), np.int8), np.array(0, np.int8), np.array(1 / abs(divisor), real)
    return (Step("DequantizeLinear", (one, scale, none), "inverse"), Step("Mul", (0, "inverse"), "quotient"))


BY_ONE_NUMBER = Condition(
    "in a quantized unit of bytes, by one number", lambda operator: _divisor(operator) is not None
)
DIVISION_UNIT = Expansion("Div", (BY_ONE_NUMBER,), _as_product)

# A normalization over groups of channels, by way of each channel's mean.
#
#     x -> Reshape [n g -1] -> InstanceNormalization -> Reshape [n c h w]
#
# Means over the pixels and over a few channels together are slow where channels lie last, and so is what stretches to
# them: a group is two elements wide, or four. A mean over the pixels alone is fast, and so is a scale for each channel.
# The mean of a group is that of its channels' means, since all have as many pixels.

EXPAND = 8  # the opset that brought Expand


class Groups(NamedTuple):
    """The groups of an image's channels."""

    number: int  # how many groups
    channels: int  # how many channels
    space: tuple[int, ...]  # the other extents
    normalizing: Normalizing  # how each is normalized

    @staticmethod
    def of_reshaped(operator: Operator) -> "Groups | None":
        """Return the groups of an InstanceNormalization behind a Reshape that joins channels; None of any other."""
        producer, shape = _giving(operator.node.inputs[0], "Reshape"), operator.shape()
        image = None if producer is None else producer.inputs[0]
        if image is None or image.shape is None or len(image.shape) < 3 or not shape or operator.version < EXPAND:
            return None
        batch, *extents = (dim if isinstance(dim, int) else dim.value for dim in image.shape)
        known, rows = ([dim for dim in dims if isinstance(dim, int)] for dims in (extents, shape[1:]))
        if batch != shape[0] or len(known) < len(extents) or len(rows) < len(shape) - 1:
            return None
        (channels, *space), (number, *rest) = known, rows
        if not 1 < number < channels or channels % number or prod(rest) != channels // number * prod(space):
            return None
        return Groups(number, channels, tuple(space), Normalizing.of(operator))

    def steps(
        self,
        operand: int | str,  # the image, in any shape
        scale: NDArray[np.generic],  # what each channel is multiplied by
        bias: NDArray[np.generic],  # what is added to each channel then
    ) -> Iterator[Step]:
        """Return the steps that normalize an image; the last one gives `normalized`."""
        yield Step("Reshape", (operand, np.array([0, self.channels, *self.space], np.int64)), "image")
        row = (-1, *[1] * len(self.space))
        yield from self.normalizing.by(self._mean, "image", scale.reshape(row), bias.reshape(row))

    def _mean(self, operand: int | str, name: str) -> Iterator[Step]:
        """Yield the mean of each group, for each of its channels."""
        width = self.channels // self.number
        yield self.normalizing.mean(operand, range(2, 2 + len(self.space)), f"{name}/channels")
        yield Step("Reshape", (f"{name}/channels", np.array([0, self.number, width], np.int64)), f"{name}/grouped")
        yield self.normalizing.mean(f"{name}/grouped", [2], f"{name}/group")
        yield Step("Expand", (f"{name}/group", np.array([1, self.number, width], np.int64)), f"{name}/stretched")
        ones = [1] * len(self.space)
        yield Step("Reshape", (f"{name}/stretched", np.array([0, self.channels, *ones], np.int64)), name)


# Operators that give one of their operands as it is, whatever the others are.
#
#     Where(IsNaN(x), 0, x)  =  x    where x is dequantized
#     x + 0  =  x
#
# PyTorch's exporter writes both into every attention: a mask of nothing, and a guard against rows that are masked
# whole. On real numbers each would split a quantized graph, and the guard would have three operators.

INTEGERS = (*BYTES, *WORDS)


def _is_whole(operator: Operator, slot: int) -> bool:
    """Tell whether an operand has the result's shape: else it is broadcast."""
    return operator.shape(slot) is not None and operator.shape(slot) == operator.outputs[0]


def _is_never_met(operator: Operator) -> bool:
    """Tell whether the condition of a Where is IsNaN of integers with a scale."""
    test = _giving(operator.node.inputs[0], "IsNaN")
    return test is not None and _scale_behind(test.inputs[0]) is not None and _is_whole(operator, 2)


def _scale_behind(value: ir.Value | None) -> Scale | None:
    """Return what the integers mean that are dequantized to a value; None where none are, or where that is computed."""
    node = dequantizer_of(value)
    scale = None if node is None else scale_of(node)
    return scale if scale is not None and scale.dtype in INTEGERS else None


def _giving(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """Return the node that gives a value if it is a standard operator of that type."""
    node = None if value is None else value.producer()
    return node if node is not None and (node.op_type, node.domain) == (op_type, "") else None


def _result_slot(operator: Operator) -> int | None:
    """Return which operand of a sum is the result; None where neither is."""
    return next((slot for slot in (0, 1) if _is_mask_of_zeros(operator, 1 - slot) and _is_result(operator, slot)), None)


def _is_result(operator: Operator, slot: int) -> bool:
    """Tell whether an operand has the result's shape and, where both are quantized, its scale."""
    before = dequantizer_of(operator.node.inputs[slot])
    if before is None:
        return _is_whole(operator, slot)
    own = scale_of(before)
    behind = [use.node for use in operator.node.outputs[0].uses() if use.node.op_type == QUANTIZE]
    return own is not None and all(own.equals(scale_of(each)) for each in behind) and _is_whole(operator, slot)


def _is_mask_of_zeros(operator: Operator, slot: int) -> bool:
    """Tell whether an operand is constant and 0 in several axes: in one it is a bias, which costs nothing."""
    value = operator.node.inputs[slot]
    if sum(extent != 1 for extent in operator.shape(slot) or ()) < 2:
        return False
    dequantize, scale = dequantizer_of(value), _scale_behind(value)
    if dequantize is None:
        return _has_only(value, 0)
    if scale is None or scale.zero.size != 1:
        return False
    return _has_only(dequantize.inputs[0], int(scale.stated_zero[0]))


def _has_only(value: ir.Value | None, number: int) -> bool:
    known = None if value is None else value.const_value
    if known is None or not known.size:
        return False
    array = known.numpy().reshape(-1)
    return bool(array[0] == number and (array == number).all())


def _operand(operator: Operator, _: Constants) -> Sequence[Step]:
    slot = _result_slot(operator)
    return () if slot is None else (Step("Identity", (slot,), "number"),)


OF_INTEGERS = Condition("its condition is IsNaN of dequantized integers", _is_never_met)
OF_ZEROS = Condition("of zeros", lambda operator: _result_slot(operator) is not None)
WITHOUT_EFFECT = (
    Expansion("Where", (OF_INTEGERS,), lambda *_: (Step("Identity", (2,), "number"),)),
    Expansion("Add", (OF_ZEROS,), _operand),
)

# ScatterND along one axis as ScatterElements, which has the axis anywhere: no cache is transposed for it.
#
# ScatterND(x[g *r], i[n 1], u[n *r])    =    ScatterElements<axis=0>(x, Expand(i[n 1 …], [n *r]), u)

ROWS = Condition("places along the first axis", lambda operator: (operator.shape(1) or ())[1:] == (1,))


def _scattered_rows(operator: Operator, _: Constants) -> Sequence[Step]:
    data, updates = operator.shape(0), operator.shape(2)
    if data is None or updates is None or len(data) < 2 or tuple(updates[1:]) != tuple(data[1:]):
        return ()
    reduction = operator.string("reduction", "none")
    is_real = operator.dtype(0).kind == "f"
    if is_real and updates[0] != 1 and reduction == "none" and BOX.holds(operator):
        return ()  # Slices of several rows of real numbers take a quarter of the time, of int64 twice as long
    attributes: dict[str, Attribute] = {"axis": 0, **({} if reduction == "none" else {"reduction": reduction})}
    numbers = [dim for dim in updates if isinstance(dim, int)]
    is_static, is_one_row = len(numbers) == len(updates), updates[0] == 1 and reduction == "none"
    if not is_static and not is_one_row:  # more rows of open extents are written as a flat tensor
        return ()
    return (
        Step("Reshape", (1, np.array([updates[0], *[1] * (len(data) - 1)], np.int64)), "rows"),
        *(() if is_static else (Step("Shape", (2,), "extents"),)),
        Step("Expand", ("rows", np.array(numbers, np.int64) if is_static else "extents"), "places"),
        Step("ScatterElements", (0, "places", 2), "scattered", attributes),
    )


SCATTERED_ROWS = Expansion("ScatterND", (ROWS,), _scattered_rows)

# A quantized HardSigmoid as a sum and a product on integers, for which LiteRT has kernels.
#
#     clip(α x + β, 0, 1)  =  α · clip(x + β/α, 0, 1/α)
#
# The integers between the two have 255 steps from 0 to 1/α, so their range is the clip. A result whose range ends below
# 1 has that range: its integers then are those between the two, and the product rounds nothing.

STEPS, LEAST, MOST = 255, -128, 127


def _results(operator: Operator) -> list[Scale] | None:
    """Return the scales of the results of a unit of bytes; None where a node is in none, or falls."""
    unit = operator.unit()
    if unit is None or unit.dtype not in BYTES or operator.node.attributes.get_float("alpha", 0.2) <= 0:
        return None
    known = [scale for result in unit.results if (scale := bytes_of(result.node)) is not None]
    return known if len(known) == len(unit.results) else None


def _as_sum_and_product(operator: Operator, _: Constants) -> Sequence[Step]:
    real, attributes = _real(operator), operator.node.attributes
    alpha, beta = attributes.get_float("alpha", 0.2), attributes.get_float("beta", 0.5)
    if not beta:
        return ()
    tops = [(MOST - int(scale.zero[0])) * scale.step for scale in _results(operator) or ()]
    top = min(1.0, max(tops, default=1.0))
    most, none, least = (np.array(number, np.int8) for number in (np.sign(beta) * MOST, 0, LEAST))
    shift, factor, step = (
        np.array(number, real) for number in (abs(beta) / alpha / MOST, alpha, top / (STEPS * alpha))
    )
    return (
        Step("DequantizeLinear", (most, shift, none), "shift"),
        Step("Add", (0, "shift"), "moved"),
        Step("QuantizeLinear", ("moved", step, least), "integers"),
        Step("DequantizeLinear", ("integers", step, least), "clipped"),
        Step("DequantizeLinear", (np.array(1, np.int8), factor, none), "factor"),
        Step("Mul", ("clipped", "factor"), "scaled"),
    )


QUANTIZED = Condition("in a quantized unit of bytes", lambda operator: bool(_results(operator)))
HARD_SIGMOID_UNIT = Expansion("HardSigmoid", (QUANTIZED,), _as_sum_and_product)

EXACT = 256  # products of bytes whose sum single precision holds exactly
INSIDE = Condition("inference", lambda operator: not operator.int("training_mode", 0) and not operator.gives(1))
STATIC_RANK = Condition("a known rank", lambda operator: operator.rank() is not None)


def _batch_normalization(operator: Operator, _: Constants) -> Sequence[Step]:
    """`a x + b` for each channel; for each element of an image with `spatial=0` of opsets up to 8."""
    factors, kind = channel_factors(operator), _real(operator)
    if factors is None:
        return ()
    ones = [1] * ((operator.rank() or 2) - 2)
    factor, shift = (each.astype(kind).reshape(*(each.shape if each.ndim > 1 else (-1, *ones))) for each in factors)
    return (Step("Mul", (0, factor), "scaled"), Step("Add", ("scaled", shift), "normalized"))


def _instance_normalization(operator: Operator, constants: Constants) -> Sequence[Step]:
    """Mean and variance over the axes of space."""
    rank = operator.rank()
    if rank is None or rank < 3:
        return ()
    groups = Groups.of_reshaped(operator)
    if groups is None or constants[1] is None or constants[2] is None:
        return tuple(_over_space(operator, rank, constants))
    shape = [0, *(extent for extent in (operator.shape() or ())[1:] if isinstance(extent, int))]
    width = groups.channels // groups.number
    return (
        *groups.steps(0, np.repeat(constants[1], width), np.repeat(constants[2], width)),
        Step("Reshape", ("normalized", np.array(shape, np.int64)), "grouped"),
    )


def _over_space(operator: Operator, rank: int, constants: Constants) -> Iterator[Step]:
    row, normalizing = (-1, *[1] * (rank - 2)), Normalizing.of(operator)
    scale, bias = constants[1:3]
    if scale is not None and bias is not None:
        yield from normalizing(0, range(2, rank), scale.reshape(row), bias.reshape(row))
        return
    unit = np.ones((1,), _real(operator))
    yield from normalizing(0, range(2, rank), unit, np.zeros_like(unit))
    parts: list[NDArray[np.generic] | str] = []
    shape = operator.shape()
    channels = shape[1] if shape is not None and isinstance(shape[1], int) else -1
    for slot, name in ((1, "scales"), (2, "shifts")):
        array = constants[slot]
        if array is None:
            yield Step("Reshape", (slot, np.array([channels, *row[1:]], np.int64)), name)
        parts.append(name if array is None else array.reshape(row))
    yield Step("Mul", ("normalized", parts[0]), "weighted")
    yield Step("Add", ("weighted", parts[1]), "shifted")


def _group_normalization(operator: Operator, constants: Constants) -> Sequence[Step]:
    """Mean and variance over each group of channels and the axes of space."""
    shape, groups = operator.shape(), operator.int("num_groups", 0)
    if shape is None or not groups or constants[1] is None or constants[2] is None or not isinstance(shape[1], int):
        return ()
    channels, space = shape[1], tuple(extent for extent in shape[2:] if isinstance(extent, int) and extent)
    if len(space) < len(shape) - 2:
        return ()
    width, scale, bias = channels // groups, constants[1], constants[2]
    if operator.version < 21:  # a scale for each group
        scale, bias = (np.repeat(each, width) for each in (scale, bias))
    normalizing = Normalizing.of(operator)
    if 1 < groups < channels:
        return tuple(Groups(groups, channels, space, normalizing).steps(0, scale, bias))
    parts = (each.reshape(groups, width, *[1] * len(space)) for each in (scale, bias))
    return (
        Step("Reshape", (0, np.array([0, groups, width, *space], np.int64)), "grouped"),
        *normalizing("grouped", range(2, len(shape) + 1), *parts),
        Step("Reshape", ("normalized", np.array([0, channels, *space], np.int64)), "joined"),
    )


def _depth_to_space(operator: Operator, _: Constants) -> Sequence[Step]:
    """Channels of one pixel that lie together, as those that lie apart: views, and the operator that LiteRT has."""
    shape, block = operator.shape(), operator.int("blocksize", 1)
    if shape is None or len(shape) != 4 or not isinstance(shape[1], int):
        return ()
    channels = shape[1] // block**2
    return (
        Step("Transpose", (0,), "last", {"perm": (0, 2, 3, 1)}),
        # The split axis is the last: 0 says of the others that they stay, whatever their extents are.
        Step("Reshape", ("last", np.array([0, 0, 0, channels, block**2], np.int64)), "split"),
        Step("Transpose", ("split",), "moved", {"perm": (0, 1, 2, 4, 3)}),
        Step("Reshape", ("moved", np.array([0, 0, 0, shape[1]], np.int64)), "joined"),
        Step("Transpose", ("joined",), "first", {"perm": (0, 3, 1, 2)}),
        Step("DepthToSpace", ("first",), "spread", {"blocksize": block, "mode": "DCR"}),
    )


def _mean_variance(operator: Operator, _: Constants) -> Sequence[Step]:
    """Mean and variance over some axes."""
    if operator.node.outputs[0].dtype is None:
        return ()
    unit = np.ones((1,), _real(operator))
    return tuple(Normalizing(operator.version, 1e-9)(0, operator.ints("axes") or (0, 2, 3), unit, np.zeros_like(unit)))


def _integer_convolution(operator: Operator, _: Constants) -> Sequence[Step]:
    """Return a convolution of real numbers, of so few channels at a time that its sums are exact, in int32."""
    kernel, shape = operator.shape(1), operator.shape()
    if kernel is None or shape is None or not all(isinstance(dim, int) for dim in kernel):
        return ()
    window = prod(int(dim) for dim in kernel[2:])
    group, channels = operator.int("group", 1), int(kernel[1])
    if operator.has(2) and operator.shape(2) not in ((), (1,)):
        return ()  # the standard has one zero point for an image
    if window > EXACT or (group > 1 and channels * window > EXACT):
        return ()
    return tuple(_integer_steps(operator, channels, EXACT // window))


def _integer_steps(operator: Operator, channels: int, most: int) -> Iterator[Step]:
    attributes = convolution_attributes(operator)
    for slot, name in ((0, "image"), (1, "kernel")):
        real = Step("Cast", (slot,), f"{name} real", {"to": int(ir.DataType.FLOAT)})
        yield real
        if operator.has(slot + 2):
            zero = Step("Cast", (slot + 2,), f"{name} zero", {"to": int(ir.DataType.FLOAT)})
            yield zero
            if operator.rank(slot + 2):  # one for each channel
                along = np.array([-1, *[1] * ((operator.rank(1) or 0) - 1)], np.int64)
                zero = Step("Reshape", (zero.name, along), f"{name} zeros")
                yield zero
            yield Step("Sub", (real.name, zero.name), f"{name} centred")
    centred = [
        f"{name} {'centred' if operator.has(slot + 2) else 'real'}" for slot, name in ((0, "image"), (1, "kernel"))
    ]
    if channels <= most:
        yield Step(CONVOLUTION, tuple(centred), "sums", attributes)
        yield Step("Cast", ("sums",), "integers", {"to": int(ir.DataType.INT32)})
        return
    total = ""
    for begin in range(0, channels, most):
        ends = [np.array([each], np.int64) for each in (begin, min(begin + most, channels), 1)]
        parts = [f"{name} {begin}" for name in centred]
        for name, part in zip(centred, parts, strict=True):
            yield Step("Slice", (name, *ends), part)
        yield Step(CONVOLUTION, tuple(parts), f"sums {begin}", attributes)
        yield Step("Cast", (f"sums {begin}",), f"integers {begin}", {"to": int(ir.DataType.INT32)})
        if total:
            yield Step("Add", (total, f"integers {begin}"), f"total {begin}")
        total = f"total {begin}" if total else f"integers {begin}"


DECOMPOSITIONS = (
    Expansion("ConvInteger", (STATIC_RANK,), _integer_convolution),
    Expansion("BatchNormalization", (INSIDE, STATIC_RANK), _batch_normalization),
    Expansion("InstanceNormalization", (STATIC_RANK,), _instance_normalization),
    Expansion("GroupNormalization", (STATIC_RANK,), _group_normalization),
    Expansion("MeanVarianceNormalization", (STATIC_RANK,), _mean_variance),
    Expansion("DepthToSpace", (attribute("mode", ("CRD",), "DCR"),), _depth_to_space),
    EINSUM,
    HARD_SIGMOID_UNIT,
    SCATTERED_ROWS,
    SCATTERED_BOXES,
    TRANSPOSED_CONVOLUTION,
    DIVISION_UNIT,
    *WITHOUT_EFFECT,
)
