"""The border of windows that slide over `n c *s`: attributes where it is known, nodes where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from relayout.formats.tflite.container.enums import Padding
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.marking import is_mixed
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.window import Border, is_open, left_to_the_runtime, pads


def unbordered(
    op: Operation, window: Sequence[int], dilations: Sequence[int], *, least: bool = False, alone: bool = False
) -> Border | None:
    """The border of zeros that a PAD puts around operand 0, if windows without a border can have it instead.

    Args:
        op: the operator that slides them.
        window: their extents.
        dilations: from one element of a window to the next.
        least: whether the border has to be below nothing.
        alone: whether there may be no other PAD before this one, which ONNX Runtime would make a border, too: of a pool
            beyond what it may have.
    """
    border = op.tensors.borders.get(op.operator.inputs[0])
    if border is None or is_mixed(op):  # which comes back as the builtin that it is, of the PAD's result
        return None
    if op.options.padding != Padding.VALID or (least and not border.least):
        return None
    if alone and border.inner.index in op.tensors.borders:
        return None
    sizes = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    return border if all(amount < k for amount, k in zip(border.pads, sizes * 2, strict=True)) else None


def bordered(
    op: Operation,
    x: ir.Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    same: bool,
    fill: float = 0,
    explicit: bool = False,
) -> tuple[ir.Value, dict[str, Any], bool]:
    """What the windows slide over, the attributes that say where they begin, and whether a border is part of it now.

    Args:
        op: the operator that slides them.
        x: its operand, `n c *s`.
        window: extents of a window; as many as the strides and dilations.
        strides: from one window to the next.
        dilations: from one element of a window to the next.
        same: whether there are `ceil(extent / stride)` windows, a border around them where they need one.
        fill: what is in the border.
        explicit: whether no attribute may say it.
    """
    spatial = dims(x)[2:]
    if not same or not is_open(spatial, window, strides, dilations):
        known = pads(spatial, window, strides, dilations, same)
        if not explicit or not any(known):
            return x, {"pads": known}, False
    elif not explicit and left_to_the_runtime(window, strides, dilations):
        return x, {"auto_pad": "SAME_UPPER"}, False
    amounts = _amounts(op, x, window, strides, dilations)
    padded: tuple[Dim, ...] = (*dims(x)[:2], *[None] * len(strides))
    x = op.emit("Pad", [x, amounts, *([op.number(fill, x, "fill")] if fill else [])], padded, mode="constant")
    return x, {"pads": [0] * 2 * len(strides)}, True


def _amounts(
    op: Operation, x: ir.Value, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> ir.Value:
    """`pads` for all axes of `n c *s`, from extents known only at run time."""
    many = len(strides)
    extents = op.emit("Shape", [x], start=2, end=2 + many)
    step, none = op.ints(strides, "strides"), op.ints([0] * many, "none")
    size = op.ints([(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)], "windows")
    places = op.each("Div", op.each("Sub", extents, op.ints([1] * many, "one")), step)
    total = op.each("Sub", op.each("Add", op.each("Mul", places, step), size), extents)
    total = op.each("Max", total, none)
    begin = op.each("Div", total, op.ints([2] * many, "two"))
    outer = op.ints([0, 0], "outer")
    return op.emit("Concat", [outer, begin, outer, op.each("Sub", total, begin)], axis=0)
