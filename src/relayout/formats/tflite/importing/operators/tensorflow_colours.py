"""Operators of TensorFlow on colours that are left to the Flex delegate; the last axis holds three."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.activation import clip
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.operators.slicing import divided, joined
from relayout.formats.tflite.importing.registry import operator

_BOOL = ir.DataType.BOOL


def _channels(op: Operation) -> Sequence[ir.Value]:
    x = op.stored(0)
    if not dims(x) or dims(x)[-1] != 3:
        raise ReadError(f"{op.operator.name} of shape {list(dims(x))}", where=op.place)
    return divided(op, x, len(dims(x)) - 1, [1, 1, 1])


def _joined(op: Operation, parts: Sequence[ir.Value]) -> ir.Value:
    return joined(op, parts, len(dims(parts[0])) - 1)


def _where(op: Operation, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return op.emit("Where", [condition, a, b], dims(condition), a.dtype)


def _hue(op: Operation, rgb: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The hue, a turn being 1, the greatest of three, and how much less the least is; grey has the hue 0."""
    red, green, blue = rgb
    greatest, least = (op.emit(kind, list(rgb), dims(red)) for kind in ("Max", "Min"))
    width = two(op, "Sub", greatest, least)
    unit = two(op, "Mul", width, op.number(6, width, "six"))

    def sixth(a: ir.Value, b: ir.Value, turn: int) -> ir.Value:
        part = two(op, "Div", two(op, "Sub", a, b), unit)
        return two(op, "Add", part, op.number(turn / 6, part, "turn")) if turn else part

    other = _where(op, two(op, "Equal", green, greatest, _BOOL), sixth(blue, red, 2), sixth(red, green, 4))
    hue = _where(op, two(op, "Equal", red, greatest, _BOOL), sixth(green, blue, 0), other)
    zero = op.number(0, hue, "zero")
    hue = _where(op, two(op, "Greater", width, zero, _BOOL), hue, zero)
    below = two(op, "Less", hue, zero, _BOOL)
    return _where(op, below, two(op, "Add", hue, op.number(1, hue, "one")), hue), greatest, width


def _saturation(op: Operation, greatest: ir.Value, width: ir.Value) -> ir.Value:
    zero = op.number(0, width, "zero")
    return _where(op, two(op, "Greater", greatest, zero, _BOOL), two(op, "Div", width, greatest), zero)


def _coloured(op: Operation, hue: ir.Value, greatest: ir.Value, width: ir.Value) -> ir.Value:
    """Red, green and blue of a hue, the greatest of which, and how much less the least is, are given."""
    least = two(op, "Sub", greatest, width)
    at = two(op, "Mul", hue, op.number(6, hue, "six"))
    parts = []
    for middle, sign, offset in ((3, 1, -1), (2, -1, 2), (4, -1, 2)):
        share = one(op, "Abs", two(op, "Sub", at, op.number(middle, at, "middle")))
        share = two(op, "Add", one(op, "Neg", share) if sign < 0 else share, op.number(offset, at, "offset"))
        parts.append(two(op, "Add", least, two(op, "Mul", width, clip(op, share, 0, 1))))
    return _joined(op, parts)


@operator("CUSTOM FlexRGBToHSV")
def rgb_to_hsv(op: Operation) -> None:
    """Max and Min of three channels, and quotients of their differences."""
    hue, greatest, width = _hue(op, _channels(op))
    op.result(_joined(op, [hue, _saturation(op, greatest, width), greatest]))


@operator("CUSTOM FlexHSVToRGB")
def hsv_to_rgb(op: Operation) -> None:
    """How far the hue is from that of each channel, clipped, times the saturation."""
    hue, saturation, value = _channels(op)
    op.result(_coloured(op, hue, value, two(op, "Mul", saturation, value)))


@operator("CUSTOM FlexAdjustHue")
def adjust_hue(op: Operation) -> None:
    """Add to the hue, of which the whole turns are taken away."""
    hue, greatest, width = _hue(op, _channels(op))
    hue = two(op, "Add", hue, op.stored(1))
    hue = two(op, "Sub", hue, one(op, "Floor", hue))
    op.result(_coloured(op, hue, greatest, width))


@operator("CUSTOM FlexAdjustSaturation")
def adjust_saturation(op: Operation) -> None:
    """Mul of the saturation, clipped between 0 and 1."""
    hue, greatest, width = _hue(op, _channels(op))
    saturation = clip(op, two(op, "Mul", _saturation(op, greatest, width), op.stored(1)), 0, 1)
    op.result(_coloured(op, hue, greatest, two(op, "Mul", saturation, greatest)))


@operator("CUSTOM FlexAdjustContrastv2")
def adjust_contrast(op: Operation) -> None:
    """Mul of what each element is off the mean of its channel of the image."""
    x = op.stored(0)
    rank = len(dims(x))
    if rank < 3:
        raise ReadError(f"{op.operator.name} of rank {rank}", where=op.place)
    axes = op.ints([rank - 3, rank - 2])
    mean = op.emit("ReduceMean", [x, axes], (*dims(x)[:-3], 1, 1, dims(x)[-1]), keepdims=1)
    op.result(two(op, "Add", two(op, "Mul", two(op, "Sub", x, mean), op.stored(1)), mean))
