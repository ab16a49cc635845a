"""Borders inside and outside of tensors, and reductions over windows that slide."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import LAST, cut
from relayout.formats.tflite.importing.registry import Unsupported, operator

REDUCERS = ("", "Add", "Mul", "Min", "Max", "And", "Or")  # what the numbers of `ReduceWindowFunction` stand for

_OF_BOOLEANS = {"Add": "Or", "Mul": "And", "Min": "And", "Max": "Or", "And": "And", "Or": "Or"}


def interleave(op: Operation, x: ir.Value, axis: int, step: int, value: ir.Value) -> ir.Value:
    """Every element along an axis `step` places from the next, a value between them: Pad behind each, then Slice."""
    shape = list(dims(x))
    extent = shape[axis]
    if step == 1 or extent == 0:
        return x
    if not isinstance(extent, int):
        raise Unsupported("unknown dimensions, between whose elements others come")
    apart: list[Dim] = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    amounts = [0] * len(apart)
    amounts[axis + 1] = step - 1
    x = op.reshape(x, apart)
    apart[axis + 1] = step
    x = op.emit("Pad", [x, op.ints([0] * len(apart) + amounts, "pads"), value], mode="constant")
    shape[axis] = extent * step
    return cut(op, op.reshape(x, shape), [0], [(extent - 1) * step + 1], [axis])


def bordered(op: Operation, x: ir.Value, lows: Sequence[int], highs: Sequence[int], value: ir.Value) -> ir.Value:
    """A border of a value; where an amount is negative, as much is cut off."""
    if any(low < 0 or high < 0 for low, high in zip(lows, highs, strict=True)):
        starts, ends = [max(-low, 0) for low in lows], [min(high, 0) or LAST for high in highs]
        x = cut(op, x, starts, ends, range(len(lows)))
    begins, ends = [max(low, 0) for low in lows], [max(high, 0) for high in highs]
    if not any(begins + ends):
        return x
    return op.emit("Pad", [x, op.ints(begins + ends, "pads"), value], mode="constant")


def reduce_windows(
    op: Operation,
    op_type: str,
    x: ir.Value,
    start: ir.Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> ir.Value:
    """Combine the elements of each window, one axis after the other, with a start value.

    Along an axis, windows of 2 n elements are two of n elements side by side: a window of k takes log k combinations.
    """
    rank = len(dims(x))
    if not len(window) == len(strides) == len(dilations) == rank or min([*window, *strides, *dilations], default=1) < 1:
        raise ReadError(f"a window of {list(window)[:9]} does not fit rank {rank}", where=op.place)
    for axis, (size, stride, dilation) in enumerate(zip(window, strides, dilations, strict=True)):
        extent = dims(x)[axis]
        if not isinstance(extent, int):
            raise Unsupported("unknown dimensions, of whose windows ONNX has to know how many there are")
        count = extent - (size - 1) * dilation
        if count < 1:
            raise Unsupported("a window larger than its axis")
        covered, length, total = x, 1, None  # `covered` combines `length` elements from each place on
        done = 0
        while True:
            if size & length:
                part = _from(op, covered, axis, done * dilation, count)
                total = part if total is None else op.each(op_type, total, part)
                done += length
            if length * 2 > size:
                break
            places = dims(covered)[axis]
            left = (places if isinstance(places, int) else 0) - length * dilation
            first, second = _from(op, covered, axis, 0, left), _from(op, covered, axis, length * dilation, left)
            covered, length = op.each(op_type, first, second), length * 2
        x = total if total is not None else x
        if stride > 1:
            x = cut(op, x, [0], [LAST], [axis], [stride])
    return op.each(op_type, x, start)


def _from(op: Operation, x: ir.Value, axis: int, first: int, count: int) -> ir.Value:
    return x if (first, count) == (0, dims(x)[axis]) else cut(op, x, [first], [first + count], [axis])


@operator("REDUCE_WINDOW", options="ReduceWindowOptions")
def reduce_window(op: Operation) -> None:
    """Slices of the operand, combined; then combined with the start value. Scales do not count."""
    number = op.options.reduce_function
    if not 0 < number < len(REDUCERS):
        raise Unsupported(f"reduce function {number}")
    window, strides, dilations = (op.integers(i) for i in (2, 3, 4))
    x, start, op_type = op.whole(0), scalar(op, op.whole(1)), REDUCERS[number]
    if x.dtype == ir.DataType.BOOL:
        op_type = _OF_BOOLEANS[op_type]
    op.result_whole(reduce_windows(op, op_type, x, start, window, strides, dilations))


@operator("DILATE", options="DilateOptions")
def dilate(op: Operation) -> None:
    """Pad behind every element, for each axis, and Slice what follows the last one."""
    x, value, steps = op.raw(0), op.raw(2), op.integers(1)
    if len(steps) != len(dims(x)) or min(steps, default=1) < 1:
        raise ReadError(f"dilations {steps} do not fit rank {len(dims(x))}", where=op.place)
    for axis, step in enumerate(steps):
        x = interleave(op, x, axis, step, value)
    op.result_whole(x)
