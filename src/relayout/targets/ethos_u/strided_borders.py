"""A convolution with strides above 3 and a border, as one without behind a Concat of the border; groups as zeros.

Vela 5.2 takes such strides without a border and groups alone, and puts a PAD back into the convolution: it then
compiles nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from relayout.graph.quantized_unit import Quantization, unit_of
from relayout.lowering.conditions import NO_DILATIONS, NOT_DEPTHWISE, Condition, kernel_slot
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants
from relayout.targets.litert.integer_forms import requantized
from relayout.targets.litert.integer_scales import SHIFTS, Scale, scale_of

LONGEST_STRIDE = 3
"""The longest stride that Vela takes together with a border."""


def _is_long(operator: Operator) -> bool:
    has_more = any(borders(operator) or ()) or operator.int("group", 1) > 1
    return max(operator.ints("strides") or (1,)) > LONGEST_STRIDE and has_more


def borders(operator: Operator) -> tuple[int, ...] | None:
    """Return the elements of zero before each axis of space, then those behind; None where they are not known."""
    x, y, slot = operator.shape(), operator.outputs[0], kernel_slot(operator)
    kernel = None if slot is None else operator.shape(slot)
    mode, space = operator.string("auto_pad", "NOTSET"), (operator.rank() or 2) - 2
    if mode in ("NOTSET", "VALID"):
        return operator.ints("pads") or (0,) * 2 * space if mode == "NOTSET" else (0,) * 2 * space
    if x is None or y is None or kernel is None:
        return None
    steps, totals = operator.ints("strides") or (1,) * space, []
    for before, after, side, step in zip(x[2:], y[2:], kernel[2:], steps, strict=True):
        if not isinstance(before, int) or not isinstance(after, int) or not isinstance(side, int):
            return None
        totals.append(max((after - 1) * step + side - before, 0))
    smaller = [total // 2 for total in totals]
    larger = [total - half for total, half in zip(totals, smaller, strict=True)]
    return (*smaller, *larger) if mode == "SAME_UPPER" else (*larger, *smaller)


def _behind_borders(operator: Operator, _: Constants) -> Sequence[Step]:
    """A Concat along each axis that has a border, and the convolution without one."""
    unit, pads, shape = unit_of(operator.node), borders(operator), operator.shape()
    operand = None if unit is None or unit.node is not operator.node else unit.operands[0]
    scale = None if operand is None else scale_of(operand.node)
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
    step, zero = float(scale.scale[0]), int(scale.zero[0])
    parameters = np.array(step, np.float32), np.array(zero + SHIFTS.get(scale.dtype, 0), scale.dtype.numpy())
    names = [f"before_{axis}", operand, f"behind_{axis}"]
    for name, count in zip((names[0], names[2]), pair, strict=True):
        dims = [count if each == axis else extent for each, extent in enumerate(extents)]
        if count:
            border = np.full(dims, parameters[1], scale.dtype.numpy())
            yield Step("DequantizeLinear", (border, *parameters), str(name))
    parts = [name for name, count in zip(names, (pair[0], 1, pair[1]), strict=True) if count]
    yield Step("Concat", tuple(parts), f"joined_{axis}", {"axis": axis})
    yield from requantized(f"joined_{axis}", f"bordered_{axis}", step, zero, scale.dtype)


def _dense_weights(groups: int, operand: Quantization | None) -> Step | None:
    """Return the weights of groups as those of all channels, with zeros between; None where they are computed."""
    stored = None if operand is None else operand.node.inputs[0]
    if operand is None or stored is None or stored.const_value is None or operand.scale is None:
        return None
    integers, scale = stored.const_value.numpy(), operand.scale.numpy()
    zero = np.zeros(scale.shape, integers.dtype) if operand.zero_point is None else operand.zero_point.numpy()
    count, channels = len(integers) // groups, integers.shape[1]
    dense = np.zeros((len(integers), channels * groups, *integers.shape[2:]), integers.dtype)
    dense[:] = zero.reshape(-1, *[1] * (integers.ndim - 1))
    for group in range(groups):
        rows, columns = slice(group * count, (group + 1) * count), slice(group * channels, (group + 1) * channels)
        dense[rows, columns] = integers[rows]
    return Step("DequantizeLinear", (dense, scale, zero), "dense", {"axis": 0})


LONG = Condition(f"strides above {LONGEST_STRIDE} and a border or groups", _is_long)
STRIDED_BORDER = Expansion("Conv", (NOT_DEPTHWISE, NO_DILATIONS, LONG), _behind_borders)
