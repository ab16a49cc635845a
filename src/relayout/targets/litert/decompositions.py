"""Operators that LiteRT has no builtin for, as others that layouts pass through.

They are written before layouts are chosen: means and products run in any order of axes, where the operator that they
stand for exists in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.lowering.conditions import Condition, attribute
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.normalization import Normalizing
from relayout.rules.signature import Constants
from relayout.targets.litert.division_unit import DIVISION_UNIT
from relayout.targets.litert.einsum_products import EINSUM
from relayout.targets.litert.group_normalization import Groups, for_each_channel
from relayout.targets.litert.hard_sigmoid_unit import HARD_SIGMOID_UNIT
from relayout.targets.litert.scattered_rows import SCATTERED_ROWS
from relayout.targets.litert.without_effect import WITHOUT_EFFECT

EXACT = 256
"""Products of bytes whose sum single precision holds exactly."""
INSIDE = Condition("inference", lambda operator: not operator.int("training_mode", 0) and not operator.gives(1))
STATIC_RANK = Condition("a known rank", lambda operator: operator.rank() is not None)


def _batch_normalization(operator: Operator, given: Constants) -> Sequence[Step]:
    """`a x + b` for each channel."""
    if any(each is None for each in given[1:5]):
        return ()
    scale, bias, mean, variance = (each.astype(np.float64) for each in given[1:5] if each is not None)
    kind = next(each.dtype for each in given if each is not None)
    shape = (-1, *[1] * ((operator.rank() or 2) - 2))
    factor = scale / np.sqrt(variance + operator.node.attributes.get_float("epsilon", 1e-5))
    shift = bias - mean * factor
    return (
        Step("Mul", (0, factor.astype(kind).reshape(shape)), "scaled"),
        Step("Add", ("scaled", shift.astype(kind).reshape(shape)), "normalized"),
    )


def _instance_normalization(operator: Operator, given: Constants) -> Sequence[Step]:
    """Mean and variance over the axes of space."""
    rank = operator.rank()
    if rank is None or rank < 3:
        return ()
    groups = Groups.of_reshaped(operator)
    if groups is not None and given[1] is not None and given[2] is not None:
        return tuple(_over_groups(operator, groups, given[1], given[2]))
    return tuple(_over_space(operator, rank, given))


def _over_groups(
    operator: Operator, groups: Groups, scale: NDArray[np.generic], bias: NDArray[np.generic]
) -> Iterator[Step]:
    yield from groups.steps(0, scale.dtype)
    row = (-1, *[1] * len(groups.space))
    last = "normalized"
    if not np.all(scale == 1):
        yield Step("Mul", (last, for_each_channel(scale, groups).reshape(row)), "weighted")
        last = "weighted"
    if np.any(bias):
        yield Step("Add", (last, for_each_channel(bias, groups).reshape(row)), "shifted")
        last = "shifted"
    shape = [0, *(extent for extent in (operator.shape() or ())[1:] if isinstance(extent, int))]
    yield Step("Reshape", (last, np.array(shape, np.int64)), "grouped")


def _over_space(operator: Operator, rank: int, given: Constants) -> Iterator[Step]:
    dtype = operator.node.outputs[0].dtype
    unit = np.ones((1,), np.float32 if dtype is None else dtype.numpy())
    yield from Normalizing.of(operator)(0, range(2, rank), unit, np.zeros_like(unit))
    row = (-1, *[1] * (rank - 2))
    parts: list[NDArray[np.generic] | str] = []
    for slot, name in ((1, "scales"), (2, "shifts")):
        array = given[slot]
        if array is None:
            yield Step("Reshape", (slot, np.array([_channels(operator), *row[1:]], np.int64)), name)
        parts.append(name if array is None else array.reshape(row))
    yield Step("Mul", ("normalized", parts[0]), "weighted")
    yield Step("Add", ("weighted", parts[1]), "shifted")


def _channels(operator: Operator) -> int:
    """Return the number of channels; -1 where it is not known."""
    shape = operator.shape()
    return shape[1] if shape is not None and isinstance(shape[1], int) else -1


def _group_normalization(operator: Operator, given: Constants) -> Sequence[Step]:
    """Mean and variance over each group of channels and the axes of space."""
    shape, groups = operator.shape(), operator.int("num_groups", 0)
    if shape is None or not groups or given[1] is None or given[2] is None or not isinstance(shape[1], int):
        return ()
    return tuple(_grouped(operator, shape[1], groups, len(shape), given))


def _grouped(operator: Operator, channels: int, groups: int, rank: int, given: Constants) -> Iterator[Step]:
    scale, bias = (each for each in given[1:3] if each is not None)
    if operator.version < 21:  # a scale for each group
        scale, bias = (np.repeat(each, channels // groups) for each in (scale, bias))
    shape = operator.shape() or ()
    space = [extent if isinstance(extent, int) else 0 for extent in shape[2:]]
    if any(not extent for extent in space):
        return
    if 1 < groups < channels:
        yield from Groups(groups, channels, tuple(space), Normalizing.of(operator)).steps(0, scale.dtype)
        last = "normalized"
    else:
        split = np.array([0, groups, channels // groups, *space], np.int64)
        joined = np.array([0, channels, *space], np.int64)
        unit = np.ones((1,), scale.dtype)
        yield Step("Reshape", (0, split), "grouped")
        yield from Normalizing.of(operator)("grouped", range(2, rank + 1), unit, np.zeros_like(unit))
        yield Step("Reshape", ("normalized", joined), "joined")
        last = "joined"
    row = (-1, *[1] * (rank - 2))
    yield Step("Mul", (last, scale.reshape(row)), "weighted")
    yield Step("Add", ("weighted", bias.reshape(row)), "shifted")


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


def _mean_variance(operator: Operator, given: Constants) -> Sequence[Step]:
    """Mean and variance over some axes."""
    dtype = operator.node.outputs[0].dtype
    if operator.rank() is None or dtype is None:
        return ()
    unit = np.ones((1,), dtype.numpy())
    axes = operator.ints("axes") or (0, 2, 3)
    return tuple(Normalizing(operator.version, 1e-9)(0, axes, unit, np.zeros_like(unit)))


def _integer_convolution(operator: Operator, given: Constants) -> Sequence[Step]:
    """A convolution of real numbers, of so few channels at a time that its sums are exact, in int32."""
    kernel, shape = operator.shape(1), operator.shape()
    if kernel is None or shape is None or not all(isinstance(dim, int) for dim in kernel):
        return ()
    window = prod(int(dim) for dim in kernel[2:])
    group, channels = operator.int("group", 1), int(kernel[1])
    if any(operator.rank(slot) for slot in (2, 3) if operator.has(slot)):
        return ()  # a zero point for each channel, which ONNX Runtime has no kernel for
    if window > EXACT or (group > 1 and channels * window > EXACT):
        return ()
    return tuple(_integer_steps(operator, given, channels, EXACT // window))


def _integer_steps(operator: Operator, given: Constants, channels: int, most: int) -> Iterator[Step]:
    named = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    found = {name: operator.node.attributes[name].value for name in named if name in operator.node.attributes}
    attributes = {name: tuple(value) if isinstance(value, list | tuple) else value for name, value in found.items()}
    for slot, name in ((0, "image"), (1, "kernel")):
        real = Step("Cast", (slot,), f"{name} real", {"to": int(ir.DataType.FLOAT)})
        yield real
        if operator.has(slot + 2):
            yield Step("Cast", (slot + 2,), f"{name} zero", {"to": int(ir.DataType.FLOAT)})
            yield Step("Sub", (real.name, f"{name} zero"), f"{name} centred")
    centred = [
        f"{name} {'centred' if operator.has(slot + 2) else 'real'}" for slot, name in ((0, "image"), (1, "kernel"))
    ]
    if channels <= most:
        yield Step("Conv", tuple(centred), "sums", attributes)
        yield Step("Cast", ("sums",), "integers", {"to": int(ir.DataType.INT32)})
        return
    total = ""
    for begin in range(0, channels, most):
        ends = [np.array([each], np.int64) for each in (begin, min(begin + most, channels), 1)]
        parts = [f"{name} {begin}" for name in centred]
        for name, part in zip(centred, parts, strict=True):
            yield Step("Slice", (name, *ends), part)
        yield Step("Conv", tuple(parts), f"sums {begin}", attributes)
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
    DIVISION_UNIT,
    *WITHOUT_EFFECT,
)
