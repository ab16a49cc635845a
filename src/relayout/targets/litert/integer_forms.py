"""Quantized units as other units that LiteRT computes on integers, for targets that prefer integers to exactness.

Each form says how many steps of the result it may be off. Between two units stand integers whose scale is chosen here:
16 bits where a result of 8 bits is made of them, so that only the last rounding shows.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf, prod, sqrt
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.domains import CONVOLUTION
from relayout.graph.quantized_unit import BYTES, SHIFTS, Scale, stored_reals, unit_of
from relayout.lowering.conditions import Condition, clip_bounds
from relayout.lowering.decomposition_rows import Expansion
from relayout.lowering.unit_rows import affine_weights
from relayout.rules import Operator, Step
from relayout.rules.normalization import Normalizing
from relayout.targets.litert.integer_scales import requantized
from relayout.targets.litert.quantized_units import (
    AVERAGING,
    INTEGER_KERNEL,
    KERNEL_SCALES,
    OTHER_LOGISTIC,
    WORD_STEP,
    Candidate,
    candidate_of,
    reaches_logarithms,
)

WIDE_STEPS = 128  # steps of 16 bits in a step of 8 bits: 255 × 128 are less than 2^15, and the product is exact
STEPS, WORDS = 255, 32767
TINY = 1e-9
ENLARGED = 64


class IntegerForm(NamedTuple):
    """A form on integers."""

    expansion: Expansion  # what it writes
    steps_off: Callable[[Operator], int]  # the greatest number of steps of the result by which it differs from a unit
    words: str = ""  # an operator that runs on 16 bits: a target has to claim that. "": none.


def _one(_: Operator) -> int:
    return 1


def unit_scales(node: ir.Node) -> Candidate | None:
    """Return the unit of bytes that a node is in; None where it is in none with one constant scale at either end."""
    unit = unit_of(node)
    candidate = None if unit is None or unit.node is not node else candidate_of(unit)
    first = None if candidate is None or not candidate.inputs else candidate.inputs[0]
    if candidate is None or first is None or not first.is_one:
        return None
    kinds = {each.dtype for each in (first, *candidate.outputs)}
    is_of_bytes = kinds <= set(BYTES) and all(each.equals(candidate.result) for each in candidate.outputs)
    return candidate if is_of_bytes else None


UNIT = Condition(
    "in a quantized unit of bytes for whose scales there is no integer kernel",
    lambda operator: unit_scales(operator.node) is not None and not INTEGER_KERNEL.holds(operator),
)


def of_words(step: float) -> Scale:
    """Return the meaning of signed integers of 16 bits."""
    return Scale.one(step, 0, ir.DataType.INT16)


def _in_unit(name: str, write: Callable[[Operator, Candidate], Sequence[Step]], limit: Condition = UNIT) -> Expansion:
    """Return what a unit of an operator is written as; it stays where that is nothing."""

    def steps(operator: Operator, _: object) -> Sequence[Step]:
        scales = unit_scales(operator.node)
        return () if scales is None else write(operator, scales)

    return Expansion(name, (limit,), steps)


def _through_words(operator: Operator, scales: Candidate) -> Sequence[Step]:
    """QUANTIZE to 16 bits, the kernel of 16 bits, and QUANTIZE to the result."""
    wide = scales.first.step / WIDE_STEPS
    if abs(wide / OTHER_LOGISTIC - 1) <= 0.02:
        wide *= 2
    attributes = {name: attribute.value for name, attribute in operator.node.attributes.items()}
    return (
        *requantized(0, "wide", of_words(wide).parameters),
        Step(operator.name, ("wide",), "fine", attributes),
        *requantized("fine", "result", of_words(WORD_STEP).parameters),
    )


def _through_bytes(operator: Operator, scales: Candidate) -> Sequence[Step]:
    """The kernel of bytes with its own scale, and QUANTIZE to the result."""
    if operator.name == "LogSoftmax" and not reaches_logarithms(scales.result):
        return ()
    attributes = {name: attribute.value for name, attribute in operator.node.attributes.items()}
    kernel = Scale.one(*_kernel_scale(operator.name, scales), ir.DataType.INT8)
    return (
        Step(operator.name, tuple(range(len(operator.node.inputs))), "coarse", attributes),
        *requantized("coarse", "result", kernel.parameters),
    )


def _kernel_scale(name: str, scales: Candidate) -> tuple[float, int]:
    """Return the scale and zero point that an operator's kernel of bytes gives."""
    return KERNEL_SCALES.get(name) or (scales.first.step, int(scales.first.zero[0]))


def off_through_bytes(operator: Operator) -> int:
    """Return how many steps a result may be off that its kernel rounds to a scale of its own first."""
    scales = unit_scales(operator.node)
    assert scales is not None
    return ceil(_kernel_scale(operator.name, scales)[0] / scales.result.step / 2 + 0.5)


def channel_factors(operator: Operator) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return `a` and `b` of a BatchNormalization, `a x + b` for each channel; None where they are computed."""
    parameters = [real_constant(operator, slot) for slot in range(1, 5)]
    if any(each is None for each in parameters) or operator.int("training_mode", 0):
        return None
    scale, bias, mean, variance = (each for each in parameters if each is not None)
    factor = scale / np.sqrt(variance + operator.node.attributes.get_float("epsilon", 1e-5))
    return factor, bias - mean * factor


def real_constant(operator: Operator, slot: int) -> NDArray[np.float64] | None:
    """Return a constant operand as real numbers, also one that is stored as integers; None for any other."""
    return stored_reals(operator.node.inputs[slot] if slot < len(operator.node.inputs) else None)


def _batch_normalization(operator: Operator, scales: Candidate) -> Sequence[Step]:
    """A depthwise convolution of 1 × 1: the scale of each channel is that of its one weight."""
    affine, rank = channel_factors(operator), operator.rank()
    if affine is None or rank is None:
        return ()
    step = scales.first.step
    weights = affine_weights(*affine, step, scales.result.step)
    if weights is None:
        return ()
    integers, steps, bias = weights
    channels, window = len(integers), (1,) * max(rank - 2, 1)
    zeros = np.zeros(channels, np.int8)
    operand: int | str = 0
    reshaped, behind = tuple[Step, ...](), tuple[Step, ...]()
    if rank == 2:
        operand = "row"
        reshaped = (Step("Reshape", (0, np.array([0, channels, 1], np.int64)), operand),)
        flat = Step("Reshape", ("column", np.array([0, channels], np.int64)), "flat")
        behind = (*requantized("normalized", "column", scales.result.parameters), flat)
    return (
        *reshaped,
        Step("DequantizeLinear", (integers.reshape(-1, 1, *window), steps, zeros), "weights", {"axis": 0}),
        Step(
            "DequantizeLinear",
            (bias, (steps.astype(np.float64) * step).astype(np.float32), zeros.astype(np.int32)),
            "bias",
            {"axis": 0},
        ),
        Step(CONVOLUTION, (operand, "weights", "bias"), "normalized", {"group": channels, "kernel_shape": window}),
        *behind,
    )


class _Normalization(NamedTuple):
    """A normalization of bytes."""

    elements: int  # how many have a mean together
    axes: tuple[int, ...]  # those of mean and variance
    groups: tuple[int, ...]  # the extents behind the first in which groups of channels are normalized; none: its own
    weight: NDArray[np.float64]  # what is multiplied afterwards
    bias: NDArray[np.float64]  # what is added then
    words: Mapping[str, float]  # the step of 16 bits of each value


def _normalization_of(operator: Operator, scales: Candidate) -> _Normalization | None:
    """Return a normalization of bytes with constant parameters and known extents; None of any other.

    A variance is at most that of numbers at both ends. What a sum with the bias cannot show is cut off.
    """
    rank, shape = operator.rank(), operator.shape()
    if rank is None or shape is None or operator.gives(1):
        return None
    is_layer = operator.name == "LayerNormalization"
    axes = tuple(range(operator.int("axis", -1) % rank, rank)) if is_layer else tuple(range(2, rank))
    extents = [extent for axis in axes if isinstance(extent := shape[axis], int)]
    weight, bias = real_constant(operator, 1), real_constant(operator, 2) if operator.has(2) else np.zeros(1)
    if weight is None or bias is None or len(extents) < max(len(axes), 1):
        return None
    if not is_layer:
        weight, bias = (each.reshape(-1, *[1] * len(axes)) for each in (weight, bias))
    groups = tuple[int, ...]()
    if number := operator.int("num_groups", 0):
        if not isinstance(channels := shape[1], int):
            return None
        weight = weight.repeat(channels // len(weight), 0)  # up to opset 20 the scales are those of groups
        bias = bias.repeat(channels // len(bias), 0)
        extents.append(channels // number)
        if number == 1:
            axes = (1, *axes)
        elif number != channels:
            groups, axes = (number, prod(extents)), (2,)
    ends = scales.result.real(np.array(scales.result.limits)).tolist()
    reach, step = np.maximum(*(np.abs(end - bias) for end in ends)), scales.first.step
    count = prod(extents)
    longest, epsilon = sqrt(max(count - 1, 1)), Normalizing.of(operator).epsilon
    greatest = min(longest, float((reach / np.maximum(np.abs(weight), TINY)).max()))
    limits = {
        "squared": (STEPS * step) ** 2,
        "variance": (STEPS / 2 * step) ** 2,
        "inverse": 2 / step,
        "factor": min((2 / step) ** 2, 2 / epsilon if epsilon else inf),
        "coarse": 2 * longest,
        "second_squared": (2 * longest) ** 2,
        "second_variance": 8.0,
        "second": 4 * (longest + 1),
        "normalized": greatest,
        "weighted": float(reach.max()),
        "result": max(map(abs, ends)),
    }
    words = {name: limit / WORDS for name, limit in limits.items()}
    return _Normalization(count, axes, groups, weight, bias, {"moved": step / WIDE_STEPS, **words})


def _normalization_of_words(operator: Operator, scales: Candidate) -> Sequence[Step]:
    """Mean, variance and inverse root on 16 bits, of which 255 steps of 8 bits have 128 each, twice.

    Words have too few steps for the variances of rows that vary by a step and of those that vary by all. The first
    inverse root is right within a factor, and the variance behind it near 1: the second has the rest.
    """
    known = _normalization_of(operator, scales)
    if known is None:
        return ()
    words, mean = known.words, Normalizing.of(operator).mean
    epsilon = operator.node.attributes.get_float("epsilon", 1e-5)

    def constant(array: NDArray[np.float64], name: str, step: float) -> tuple[Step, ...]:
        return _constant(array, name, of_words(step or 1 / WORDS))

    raised: tuple[Step, ...] = ()
    if round(epsilon / words["variance"]):
        raised = constant(np.asarray(epsilon), "epsilon", words["variance"])
        raised += _on_words(Step("Add", ("variance_words", "epsilon"), "raised"), words["variance"])
    last, second = "raised_words" if raised else "variance_words", "second_variance_words"
    share: tuple[Step, ...] = ()
    if round(epsilon * WORDS * words["factor"] / words["second_variance"]):
        share = _on_words(Step("Mul", ("inverse_words", "inverse_words"), "factor"), words["factor"])
        share += constant(np.asarray(epsilon), "share", epsilon / WORDS)
        share += _on_words(Step("Mul", ("factor_words", "share"), "lesser"), words["second_variance"])
        share += _on_words(Step("Add", (second, "lesser_words"), "whole"), words["second_variance"])
        second = "whole_words"

    view, back, wide, normalized = tuple[Step, ...](), tuple[Step, ...](), "wide", "normalized_words"
    if known.groups:
        whole = [0, *(extent for extent in (operator.shape() or ())[1:] if isinstance(extent, int))]
        view = (Step("Reshape", (wide, np.array([0, *known.groups], np.int64)), wide := "grouped"),)
        back = (Step("Reshape", (normalized, np.array(whole, np.int64)), normalized := "joined"),)
    return (
        *requantized(0, "wide", of_words(words["moved"]).parameters),
        *view,
        *_on_words(mean(wide, known.axes, "mean"), words["moved"]),
        *_on_words(Step("Sub", (wide, "mean_words"), "moved"), words["moved"]),
        *_on_words(Step("Mul", ("moved_words", "moved_words"), "squared"), words["squared"]),
        *_on_words(mean("squared_words", known.axes, "variance"), words["variance"]),
        *raised,
        *_inverse_root(last, "inverse", words["variance"], words["inverse"]),
        *_on_words(Step("Mul", ("moved_words", "inverse_words"), "coarse"), words["coarse"]),
        *_on_words(Step("Mul", ("coarse_words", "coarse_words"), "second_squared"), words["second_squared"]),
        *_on_words(mean("second_squared_words", known.axes, "second_variance"), words["second_variance"]),
        *share,
        *_inverse_root(second, "second", words["second_variance"], words["second"]),
        *_on_words(Step("Mul", ("coarse_words", "second_words"), "normalized"), words["normalized"]),
        *back,
        *constant(known.weight, "weight", float(np.abs(known.weight).max()) / WORDS),
        *_on_words(Step("Mul", (normalized, "weight"), "weighted"), words["weighted"]),
        *constant(known.bias, "bias", float(np.abs(known.bias).max()) / WORDS),
        *_on_words(Step("Add", ("weighted_words", "bias"), "result"), words["result"]),
    )


def _on_words(first: Step, step: float) -> tuple[Step, ...]:
    return (first, *requantized(first.name, f"{first.name}_words", of_words(step).parameters))


def _inverse_root(operand: str, name: str, step: float, result: float) -> tuple[Step, ...]:
    """The lesser of two roots: RSQRT has 512 straight lines above the root, so that a small number is enlarged."""
    root = np.array(-0.5, np.float32)
    return (
        *requantized(operand, f"{name}_enlarged", of_words(step / ENLARGED).parameters),
        *_on_words(Step("Pow", (operand, root), f"{name}_of_large"), result),
        *_on_words(Step("Pow", (f"{name}_enlarged", root), f"{name}_of_small"), result),
        *_on_words(Step("Min", (f"{name}_of_large_words", f"{name}_of_small_words"), name), result),
    )


def _off_normalized(operator: Operator) -> int:
    """Return the steps that a normalization of words may be off.

    Squares have the fewer steps the more are summed: measured were 4 steps over 4,096 elements that vary by a step, and
    97 over 16,384, where most squares are rounded to 0. Means in two parts change nothing of that. A mean may be half a
    word off, 1/256 of a step: where rows vary by a step in few elements, that is up to 1/16 of what is normalized.
    """
    scales = unit_scales(operator.node)
    known = None if scales is None else _normalization_of(operator, scales)
    if known is None or scales is None:
        return 0
    weight = float(np.abs(known.weight).max()) / scales.result.step
    return ceil(2 + known.elements / 256 + weight * min(sqrt(known.elements), 16) / 256)


def _of_one_scale(operator: Operator, scales: Candidate) -> Sequence[Step]:
    """Operands in the scale of the result, so that their integers are compared or chosen."""
    steps: list[Step] = []
    inputs: list[int | str] = []
    for slot, scale in enumerate(scales.inputs):
        if scale is None or scale.equals(scales.result):
            inputs.append(slot)
            continue
        array, name = real_constant(operator, slot), f"operand_{slot}"
        to, parameters = scales.result, scales.result.parameters
        steps += requantized(slot, name, parameters) if array is None else _constant(array, name, to)
        inputs.append(name)
    return (*steps, Step(operator.name, tuple(inputs), "result"))


def _constant(array: NDArray[np.float64], name: str, scale: Scale) -> tuple[Step, ...]:
    integers = (scale.integers(array) + SHIFTS.get(scale.dtype, 0)).astype(scale.dtype.numpy())
    return (Step("DequantizeLinear", (integers, *scale.parameters), name),)


def _clip(operator: Operator, scales: Candidate) -> Sequence[Step]:
    """MAXIMUM and MINIMUM with constants, in the scale of the result."""
    bounds = clip_bounds(operator) or clip_bounds(operator, real_constant)
    if bounds is None:
        return ()
    steps: list[Step] = []
    last: int | str = 0
    if not scales.first.equals(scales.result):
        steps += requantized(0, "moved", scales.result.parameters)
        last = "moved"
    for op_type, bound, open_end in (("Max", bounds[0], -np.inf), ("Min", bounds[1], np.inf)):
        if bound == open_end or abs(bound) >= np.finfo(np.float32).max:
            continue
        if last == "result_Max":
            steps += requantized(last, "above", scales.result.parameters)
            last = "above"
        steps += _constant(np.asarray(bound), f"bound_{op_type}", scales.result)
        steps.append(Step(op_type, (last, f"bound_{op_type}"), f"result_{op_type}"))
        last = f"result_{op_type}"
    return tuple(steps)


def _has_unlike_border(operator: Operator) -> bool:
    scales = unit_scales(operator.node)
    if scales is None or not operator.has(2) or operator.string("mode", "constant") != "constant":
        return False
    return not scales.first.equals(scales.result)


def _pad(operator: Operator, scales: Candidate) -> Sequence[Step]:
    """The operand in the scale of the result, in which the border may be a number that the operand has not."""
    border, others = real_constant(operator, 2), range(3, len(operator.node.inputs))
    if border is None or border.size != 1:
        return ()
    value = scales.result.real(scales.result.integers(border.reshape(()))).astype(np.float32)
    return (*requantized(0, "moved", scales.result.parameters), Step("Pad", ("moved", 1, value, *others), "padded"))


UNLIKE_BORDER = Condition("with a border, in a quantized unit of bytes of two scales", _has_unlike_border)
FORMS = (  # the forms, of which a unit gets the first that fits
    *(IntegerForm(_in_unit(name, _through_words), _one, name) for name in ("Sigmoid", "Tanh", "Softmax")),
    *(IntegerForm(_in_unit(name, _through_bytes), off_through_bytes) for name in (*KERNEL_SCALES, *AVERAGING)),
    IntegerForm(_in_unit("BatchNormalization", _batch_normalization), _one),
    *(
        IntegerForm(_in_unit(name, _normalization_of_words), _off_normalized, "ReduceMean")
        for name in ("LayerNormalization", "InstanceNormalization", "GroupNormalization")
    ),
    *(IntegerForm(_in_unit(name, _of_one_scale), _one) for name in ("Max", "Min", "Where")),
    IntegerForm(_in_unit("Clip", _clip), _one),
    IntegerForm(_in_unit("Pad", _pad, UNLIKE_BORDER), _one),
)
