"""Convolutions as others that LiteRT runs faster, first transposed ones: TRANSPOSE_CONV takes longer, or has no form.

The pixels at one place of their blocks of `stride` are a convolution in steps of one (`lowering.transposed_axes`). If
the stride is one, it is the only one, with the kernel turned around. Else the places of a block are

1. channels of one convolution, whose window holds the taps of all of them:   Conv ─ DepthToSpace
2. convolutions of their own, whose pixels are put beside each other:   Conv … ─ Concat

TRANSPOSE_CONV has no dilations and no groups: one builtin for each of 64 groups took 20 times as long as the second
form. Of real numbers without groups it takes 1.2 to 9 times as long as the better of the two (4 to 112 rows of pixels,
16 to 1,024 channels).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.domains import CONVOLUTION
from relayout.graph.quantized_unit import QuantizedUnit
from relayout.layout import Dim
from relayout.lowering.conditions import DEPTHWISE, Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.lowering.transposed_axes import Axis, Place, are_few, kernel_at, places_of
from relayout.rules import Operator, Step
from relayout.rules.signature import Attribute, Constants
from relayout.rules.slicing import SLICE_INPUTS
from relayout.targets.litert.insertion import OPEN
from relayout.targets.litert.integer_scales import requantized, stored_integers
from relayout.targets.litert.large_windows import MOST_AT_A_TIME

IMAGES = (3, 4)  # ranks: one or two axes of space
OUTPUTS = 16  # outputs that XNNPACK's product of matrices computes at a time: what is missing of them takes as long


def _axes(operator: Operator) -> list[Axis] | None:
    """Return the axes of space of a node; None where its pads follow from extents, or its steps are very long."""
    kernel, rank = operator.shape(1), operator.rank()
    padded_by_rule = operator.string("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or operator.ints("output_shape")
    if rank not in IMAGES or kernel is None or len(kernel) != rank or padded_by_rule:
        return None
    sizes = [extent for extent in kernel[2:] if isinstance(extent, int)]
    count = rank - 2
    strides, dilations = (operator.ints(name) or (1,) * count for name in ("strides", "dilations"))
    pads, extra = operator.ints("pads") or (0,) * 2 * count, operator.ints("output_padding") or (0,) * count
    if len(sizes) != count or 0 in sizes:
        return None
    rows = zip(sizes, strides, dilations, pads[:count], pads[count:], extra, strict=True)
    axes = [
        Axis(size, stride, dilation, begin, (size - 1) * dilation + 1 + more - stride - begin - end)
        for size, stride, dilation, begin, end, more in rows
    ]
    return axes if are_few(axes) else None


class _Kernel(NamedTuple):
    """A constant kernel, `o i *s`: the outputs of all groups, the inputs of one."""

    numbers: NDArray[np.generic]  # real ones, or integers
    scale: NDArray[np.generic] | None = None  # of integers, one or one for each output; None: the numbers are real
    zero: NDArray[np.generic] | None = None  # the zero points, as many; None: 0

    @staticmethod
    def of(operator: Operator, constants: Constants) -> "_Kernel | None":
        """Return the kernel of a transposed convolution; None where it is computed, or of other scales."""
        group = operator.int("group", 1)
        if constants[1] is not None:
            return _Kernel(_by_output(constants[1], group))
        unit = operator.unit()
        stored = None if unit is None or result_of(unit) is None else unit.operands[1]
        weights = stored_integers(stored) if stored is not None and stored.is_constant else None
        if stored is None or weights is None:
            return None
        numbers, *scales = weights
        if scales[0].size == 1:
            return _Kernel(_by_output(numbers, group), *(each.reshape(()) for each in scales))
        if stored.node.attributes.get_int("axis", 1) % numbers.ndim == 1:
            return _Kernel(_by_output(numbers, group), *(np.tile(each, group) for each in scales))
        return None if numbers.shape[1] > 1 or group != len(numbers) else _Kernel(numbers, *scales)

    def at(self, places: Sequence[Place]) -> NDArray[np.generic]:
        """Return the kernel of the pixels at some places."""
        return kernel_at(self.numbers, places, self.zero)


def result_of(unit: QuantizedUnit) -> Sequence[NDArray[np.generic]] | None:
    """Return the scale of a unit's one result, and its zero point; None where it is computed."""
    (first, *others), scale = unit.results, unit.results[0].meaning
    if others or first.scale is None or scale is None or not scale.is_one:
        return None
    return first.scale.numpy().reshape(()), scale.parameters[1]


def _by_output(kernel: NDArray[np.generic], group: int) -> NDArray[np.generic]:
    """Return a kernel `i o *s`, the inputs of all groups and the outputs of one, as `o i *s`."""
    return np.concatenate([np.swapaxes(part, 0, 1) for part in np.split(kernel, group)])


def _steps(
    operator: Operator,  # the node
    constants: Constants,  # its constants
    *,
    for_cpu: bool = False,  # whether LiteRT's CPU kernels run it, for which one pixel may have a block for its result
) -> Sequence[Step]:
    """Return what stands for a node; none where it stays."""
    axes, kernel, shape = _axes(operator), _Kernel.of(operator, constants), operator.shape()
    if axes is None or kernel is None or shape is None:
        return ()
    if for_cpu and operator.int("group", 1) == 1:
        axes = _in_one_step(axes, shape[2:])
    extents = zip(shape[2:], axes, strict=True)
    blocks = [extent + axis.more if isinstance(extent, int) else OPEN for extent, axis in extents]
    # Where the batch is open, too, LiteRT computes a shape with what others do not have.
    outer = [OPEN] if not for_cpu and not isinstance(shape[0], int) else []
    # A Reshape finds one extent: all others are known from the first axis on that has steps.
    long = next((place for place, axis in enumerate(axes) if axis.stride > 1), len(axes))
    is_known = [*blocks[long:], *outer].count(OPEN) <= 1
    bias = constants[2] if operator.has(2) else np.zeros(len(kernel.numbers), kernel.numbers.dtype)
    if operator.int("group", 1) == 1 and kernel.scale is None and bias is not None:
        spread = _spread(axes, len(kernel.numbers), blocks)
        if spread and (not is_known or _takes_less_as_channels(axes, len(kernel.numbers))):
            return _as_channels(axes, kernel, bias), *spread
    return tuple(_one_by_one(operator, axes, kernel, blocks)) if is_known else ()


def _in_one_step(axes: list[Axis], extents: Sequence[Dim]) -> list[Axis]:
    """Return the axes, of which those of one element have a step as long as the kernel where that is no large block."""
    short = [axis.as_one if extent == 1 else axis for extent, axis in zip(extents, axes, strict=True)]
    return short if are_few(short) else axes


def _takes_less_as_channels(axes: Sequence[Axis], outputs: int) -> bool:
    """Tell whether one convolution for all places has no more products than one for each."""
    places, united = (list(places_of(axes, united=each).values()) for each in (False, True))
    several = -(-outputs // OUTPUTS) * sum(prod(place.window for place in each) for each in places)
    return -(-outputs * len(united) // OUTPUTS) * prod(place.window for place in united[0]) <= several


def _as_channels(axes: Sequence[Axis], kernel: _Kernel, bias: NDArray[np.generic]) -> Step:
    """Return the convolution whose channels are those of each place in turn."""
    united = list(places_of(axes, united=True).values())
    weights, biases = np.concatenate([kernel.at(each) for each in united]), np.tile(bias, len(united))
    return Step(CONVOLUTION, (0, weights, biases), "channels", _attributes(united[0]))


def convolution_attributes(operator: Operator) -> dict[str, Attribute]:
    """Return the attributes of a convolution, as a step has them."""
    named = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attributes = {name: operator.node.attributes[name].value for name in named if name in operator.node.attributes}
    return {name: tuple(value) if isinstance(value, list | tuple) else value for name, value in attributes.items()}


def _attributes(places: Sequence[Place]) -> dict[str, Attribute]:
    pads = tuple(place.pads[side] for side in (0, 1) for place in places)
    return {"dilations": tuple(place.dilation for place in places), "pads": pads}


def _spread(axes: Sequence[Axis], outputs: int, blocks: Sequence[int]) -> tuple[Step, ...]:
    """Return what makes pixels of the channels of each place; nothing where no operator does without moving rows."""
    strides, long = {axis.stride for axis in axes}, [place for place, axis in enumerate(axes) if axis.stride > 1]
    if not long or any(axis.over for axis in axes):
        return ()
    if len(strides) == 1 and len(axes) == 2:
        return (Step("DepthToSpace", ("channels",), "spread", {"blocksize": strides.pop()}),)
    last = len(axes) - 1
    if long != [last] or blocks.count(OPEN) > 1:
        return ()
    stride, extent = axes[last].stride, blocks[last]
    joined = [*[0] * (2 + last), OPEN if extent == OPEN else extent * stride]
    return (
        Step("Reshape", ("channels", np.array([0, stride, outputs, *blocks], np.int64)), "split"),
        Step("Transpose", ("split",), "moved", {"perm": (0, *range(2, 4 + last), 1)}),
        Step("Reshape", ("moved", np.array(joined, np.int64)), "spread"),
    )


def _one_by_one(operator: Operator, axes: Sequence[Axis], kernel: _Kernel, blocks: Sequence[int]) -> Iterator[Step]:
    """Yield a convolution for each place, and what puts their pixels beside each other."""
    is_one = all(axis.stride == 1 and not axis.over for axis in axes)
    unit = None if kernel.scale is None or is_one else operator.unit()
    scale = (unit and result_of(unit)) or []
    parts: dict[tuple[int, ...], str] = {}
    for numbers, places in places_of(axes).items():
        parts[numbers] = name = "_".join(["place", *map(str, numbers)])
        yield from rounded(_convolution(operator, kernel, places, name), scale)
    extents = [*blocks]
    for place in reversed(range(len(axes))):
        if axes[place].stride > 1:
            yield from _joined(parts, place, axes[place].stride, extents, scale)
    cut = {2 + place: -axis.over for place, axis in enumerate(axes) if axis.over}
    lists = {"starts": (0,) * len(cut), "ends": tuple(cut.values()), "axes": tuple(cut)}
    (whole,) = parts.values()
    if cut and operator.version < SLICE_INPUTS:
        yield Step("Slice", (whole,), "cut", lists)
    elif cut:
        yield from rounded(
            [Step("Slice", (whole, *(np.array(each, np.int64) for each in lists.values())), "cut")], scale
        )


def rounded(
    steps: Iterable[Step],
    scale: Sequence[NDArray[np.generic]],  # of the unit's result, and its zero point if any; none: the numbers are real
) -> Iterator[Step]:
    """Yield steps, and round what the last one gives as the quantized unit rounds its result.

    That may stand before an activation as well as behind it.
    """
    *before, last = steps
    yield from before
    if scale:
        yield last._replace(name=f"{last.name}_sum")
        yield from requantized(f"{last.name}_sum", last.name, scale)
    else:
        yield last


def _convolution(operator: Operator, kernel: _Kernel, places: Sequence[Place], name: str) -> Iterator[Step]:
    """Write the convolution that gives the pixels at some places."""
    numbers: str | NDArray[np.generic] = kernel.at(places)
    if kernel.scale is not None and kernel.zero is not None:
        along: dict[str, Attribute] = {"axis": 0} if kernel.scale.ndim else {}
        yield Step("DequantizeLinear", (numbers, kernel.scale, kernel.zero), f"{name}_kernel", along)
        numbers = f"{name}_kernel"
    operands = (0, numbers, *([2] if operator.has(2) else []))
    yield Step(CONVOLUTION, operands, name, {"group": operator.int("group", 1), **_attributes(places)})


def _joined(
    # numbers of the places on each axis that is not joined yet -> name of their pixels
    parts: dict[tuple[int, ...], str],
    place: int,  # the axis, behind which all are joined
    stride: int,  # its places
    blocks: list[int],  # the extents; OPEN where one is
    scale: Sequence[NDArray[np.generic]],  # see `rounded`
) -> Iterator[Step]:
    """Put the pixels of an axis beside each other; `parts` and `blocks`, the extents, are those of the result then."""
    leading_zeros, behind = [0] * (2 + place), blocks[place + 1 :]
    rows: dict[tuple[int, ...], list[str]] = {}
    for numbers, name in parts.items():
        yield Step("Reshape", (name, np.array([*leading_zeros, 0, 1, *behind], np.int64)), f"{name}_apart")
        rows.setdefault(numbers[:place], []).append(f"{name}_apart")
    parts.clear()
    blocks[place] *= 1 if blocks[place] == OPEN else stride
    for numbers, names in rows.items():
        parts[numbers] = name = "_".join(["joined", *map(str, numbers)])
        yield from rounded([Step("Concat", tuple(names), f"{name}_apart", {"axis": len(leading_zeros) + 1})], scale)
        yield Step("Reshape", (f"{name}_apart", np.array([*leading_zeros, *blocks[place:]], np.int64)), name)


def _is_formless(operator: Operator) -> bool:
    axes = _axes(operator)
    return axes is not None and (operator.int("group", 1) > 1 or all(axis.stride == 1 for axis in axes))


def _is_real(operator: Operator) -> bool:
    (image, *_) = operator.node.inputs
    return image is not None and image.dtype == ir.DataType.FLOAT and _axes(operator) is not None


FORMLESS = Condition("steps of one, or groups", _is_formless)
TRANSPOSED_CONVOLUTION = Expansion("ConvTranspose", (FORMLESS,), _steps, of_tflite=False)
"""For every runtime of a `.tflite`."""
REAL = Condition("floats", _is_real)
FAST_TRANSPOSED_CONVOLUTION = Expansion("ConvTranspose", (REAL,), partial(_steps, for_cpu=True), of_tflite=False)
"""For LiteRT's CPU kernels alone: others have one for the operator."""

# A depthwise convolution with several results for each channel as several convolutions with one.
#
#     Conv(x, w)    becomes    Concat(Conv(x, w[0::2]), Conv(x, w[1::2])), whose channels are put in order
#
# XNNPACK's depthwise kernels give one result for each channel. For more it takes its kernel for groups, which computes
# at least eight results of a group; of int8 it has none. The Transpose is gone where the next convolution takes its
# weights in another order. With it the convolutions take, of images of 7 × 7 to 112 × 112 in steps of 1 and 2,
#
# 1. of real numbers 0.3 to 0.8 times as long from 16 channels on, with two to four results and windows of up to 9 × 9.
#    Fewer channels, or more results, take up to twice as long.
# 2. of int8 0.05 to 0.5 times as long from 8 channels on, with two to eight results and windows of up to 25 elements.
#    Those by larger windows run as real numbers, see `large_windows`.

FEWEST_CHANNELS, MOST_RESULTS = 16, 4
FEWEST_OF_UNITS, MOST_OF_UNITS = 8, 8  # the same of quantized units


def _count(operator: Operator) -> int:
    """Return how many results each channel has."""
    outputs = (operator.shape(1) or (None,))[0]
    return outputs // operator.int("group", 1) if isinstance(outputs, int) else 0


def _is_faster(operator: Operator) -> bool:
    """Tell whether a node has few results for each of many channels.

    One extent may be open, which a Reshape finds.
    """
    image, shape, window = operator.node.inputs[0], operator.shape() or (), (operator.shape(1) or ())[2:]
    if image is None or image.dtype != ir.DataType.FLOAT or len(shape) not in IMAGES:
        return False
    if sum(not isinstance(extent, int) for extent in shape) > 1:
        return False
    is_large = prod(extent for extent in window if isinstance(extent, int)) > MOST_AT_A_TIME
    is_real = is_large or operator.unit() is None  # large windows of bytes run as real numbers
    fewest, most = (FEWEST_CHANNELS, MOST_RESULTS) if is_real else (FEWEST_OF_UNITS, MOST_OF_UNITS)
    return operator.int("group", 1) >= fewest and 1 < _count(operator) <= most


def _one_by_result(operator: Operator, constants: Constants) -> Sequence[Step]:
    """Convolutions with one result for each channel, and a Concat."""
    unit, count = operator.unit(), _count(operator)
    scale = [] if unit is None else result_of(unit)
    weights = [_every(count, constants[slot], unit, slot) for slot in (1, 2) if operator.has(slot)]
    if scale is None or not all(weights):
        return ()
    attributes = convolution_attributes(operator)
    steps, parts = list[Step](), [f"result_{place}" for place in range(count)]
    for place, part in enumerate(parts):
        operands: list[int | str | NDArray[np.generic]] = [0]
        for slot, arrays in enumerate(weights, 1):
            own = arrays[place]
            if len(own) > 1:
                steps.append(Step("DequantizeLinear", own, f"{part}_{slot}", {"axis": 0} if own[1].ndim else {}))
            operands.append(f"{part}_{slot}" if len(own) > 1 else own[0])
        steps += rounded([Step(CONVOLUTION, tuple(operands), part, attributes)], scale)
    # Channels are split where they are the last axis: 0 says of the others that they stay, whatever their extents are.
    channels, rank = operator.int("group", 1), operator.rank() or 0
    last, first, stay = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1)), [0] * (rank - 1)
    return (
        *steps,
        *rounded([Step("Concat", tuple(parts), "joined", {"axis": 1})], scale),
        Step("Transpose", ("joined",), "last", {"perm": last}),
        Step("Reshape", ("last", np.array([*stay, count, channels], np.int64)), "split"),
        Step("Transpose", ("split",), "ordered", {"perm": (*range(rank - 1), rank, rank - 1)}),
        Step("Reshape", ("ordered", np.array([*stay, count * channels], np.int64)), "whole"),
        Step("Transpose", ("whole",), "first", {"perm": first}),
    )


def _every(
    count: int, real: NDArray[np.generic] | None, unit: QuantizedUnit | None, slot: int
) -> list[tuple[NDArray[np.generic], ...]]:
    """Return the weights of the first, second, ... result of each channel: real ones alone, or integers and scales."""
    if real is not None:
        return [(np.ascontiguousarray(real[place::count]),) for place in range(count)]
    stored = None if unit is None else unit.operands[slot]
    tensors = stored_integers(stored) if stored is not None and stored.is_constant else None
    if stored is None or tensors is None:
        return []
    return [
        tuple(
            np.ascontiguousarray(each[place::count]) if each.size > 1 else each.reshape(())
            for each in tensors[: 2 + stored.has_zero_point]
        )
        for place in range(count)
    ]


FAST_MULTIPLIER = Expansion(  # for LiteRT's CPU kernels alone
    CONVOLUTION,
    (DEPTHWISE, Condition("few results for each of many channels", _is_faster)),
    _one_by_result,
    of_tflite=False,
)
