"""Pools over `n *s c`."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import Padding
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, MOVABLE, Operation, is_mixed
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.window import TO_LAST, Border, is_open, left_to_the_runtime, pads, slid

# The border of windows that slide over `n *s c`: attributes where it is known, nodes where it is not.


def unbordered(
    op: Operation,  # the operator that slides them
    window: Sequence[int],  # their extents
    dilations: Sequence[int],  # from one element of a window to the next
    *,
    least: bool = False,  # whether the border has to be below nothing
    # whether there may be no other PAD before this one, which ONNX Runtime would make a border, too: of a pool beyond
    # what it may have
    alone: bool = False,
) -> Border | None:
    """Return the border of zeros that a PAD puts around operand 0, if windows without a border can have it instead."""
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
    op: Operation,  # the operator that slides them
    x: ir.Value,  # its operand, `n c *s`
    window: Sequence[int],  # extents of a window; as many as the strides and dilations
    strides: Sequence[int],  # from one window to the next
    dilations: Sequence[int],  # from one element of a window to the next
    same: bool,  # whether there are `ceil(extent / stride)` windows, a border around them where they need one
    fill: float = 0,  # what is in the border
    explicit: bool = False,  # whether no attribute may say it
) -> tuple[ir.Value, dict[str, Any], bool]:
    """The operand of windows, the attributes that say where they begin, and whether a border is part of it now."""
    spatial = dims(x)[2:]
    if not same or not is_open(spatial, window, strides, dilations):
        known = pads(spatial, window, strides, dilations, same)
        if not explicit or not any(known):
            return x, {"pads": known}, False
    elif not explicit and left_to_the_runtime(window, strides, dilations):
        return x, {"auto_pad": "SAME_UPPER"}, False
    many = len(strides)
    extents = op.emit("Shape", [x], start=2, end=2 + many)
    step, none = op.ints(strides, "strides"), op.ints([0] * many, "none")
    size = op.ints([(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)], "windows")
    places = op.each("Div", op.each("Sub", extents, op.ints([1] * many, "one")), step)
    total = op.each("Sub", op.each("Add", op.each("Mul", places, step), size), extents)
    total = op.each("Max", total, none)
    begin = op.each("Div", total, op.ints([2] * many, "two"))
    outer = op.ints([0, 0], "outer")
    amounts = op.emit("Concat", [outer, begin, outer, op.each("Sub", total, begin)], axis=0)
    padded: tuple[Dim, ...] = (*dims(x)[:2], *[None] * many)
    x = op.emit("Pad", [x, amounts, *([op.number(fill, x, "fill")] if fill else [])], padded, mode="constant")
    return x, {"pads": [0] * 2 * many}, True


# Pools.


class Sliding(NamedTuple):
    """Windows over the axes between batch and channels, `n *s c`."""

    window: list[int]  # their extents
    strides: list[int]  # from one window to the next
    same: bool  # whether there are `ceil(extent / stride)` of them, a border around them where they need one
    planar: bool = False  # whether the channels lie before those axes, `n c *s`

    @staticmethod
    def of(op: Operation) -> "Sliding":
        """Return the windows that `Pool2DOptions` describes."""
        o = op.options
        return Sliding([o.filter_height, o.filter_width], [o.stride_h, o.stride_w], o.padding == Padding.SAME)

    @property
    def ones(self) -> list[int]:
        """From one element of a window to the next."""
        return [1] * len(self.window)

    @property
    def to_first(self) -> tuple[int, ...]:
        """The perm `n *s c -> n c *s`."""
        return (0, len(self.window) + 1, *range(1, len(self.window) + 1))

    @property
    def to_last(self) -> tuple[int, ...] | None:
        """The perm back, if there is one."""
        return None if self.planar else (0, *range(2, len(self.window) + 2), 1)

    def first(self, op: Operation, x: ir.Value) -> ir.Value:
        """Return a value as `n c *s`."""
        return x if self.planar else op.transpose(x, self.to_first)


def pooled(
    op: Operation,
    over: Sliding,
    op_type: str,
    x: ir.Value,
    border: Border | None = None,
    fill: float = 0,
    kernel: Sequence[ir.Value] = (),
    **attributes: Any,
) -> tuple[ir.Value, bool]:
    """Return one pool over `n c *s`; whether a border of `fill` was computed, which it takes for elements.

    Behind a PAD that stays it says that it has no border (`VALID`): where it is silent, ONNX Runtime makes the PAD a
    border of the pool's, also with zeros where others are below, and beyond what a pool may have.
    """
    x, shape, around, computed = surrounded(op, over, x, border, fill)
    more = {"kernel_shape": over.window, "strides": over.strides, **attributes}
    return op.emit(op_type, [x, *kernel], shape, **around, **more), computed


def surrounded(
    op: Operation, over: Sliding, x: ir.Value, border: Border | None = None, fill: float = 0
) -> tuple[ir.Value, Dims, dict[str, Any], bool]:
    """Return a pool's operand `n c *s`, its result's shape, its border as attributes, whether one was computed."""
    window, strides, (n, c, *_) = over.window, over.strides, dims(x)
    spatial = dims(op.stored(0))[2:] if over.planar else dims(op.stored(0))[1:-1]
    known: list[Dim] = [slid(e, k, s, 1, over.same) for e, k, s in zip(spatial, window, strides, strict=True)]
    if over.planar:
        shape = op.out_dims([n, c, *known])
    else:
        first, *rest, last = op.out_dims([n, *known, c])
        shape = (first, last, *rest)
    if border is not None:
        return x, shape, {"pads": border.pads}, False
    padded = op.operator.inputs[0] in op.tensors.borders
    x, around, computed = bordered(op, x, window, strides, over.ones, over.same, fill, padded)
    return x, shape, {"auto_pad": "VALID"} if padded else around, computed


def average(op: Operation, over: Sliding, prepare: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """AveragePool over the elements that are there, of what is made of `n c *s`; zeros from a PAD are there.

    With a computed border, it is divided by the share of each window that is there.
    """
    if (border := unbordered(op, over.window, over.ones, alone=True)) is not None:
        x = prepare(over.first(op, op.tensors.value(border.inner)))
        return pooled(op, over, "AveragePool", x, border, count_include_pad=1)[0]
    x = prepare(over.first(op, op.stored(0)))
    mean, computed = pooled(op, over, "AveragePool", x, count_include_pad=0)
    if not computed:
        return mean
    extents = op.emit("Shape", [x], start=2, end=2 + len(over.window))
    plane = op.emit("Concat", [op.ints([1, 1], "one"), extents], axis=0)
    there = op.emit("Expand", [op.number(1, x, "there"), plane])
    share, _ = pooled(op, over, "AveragePool", there, count_include_pad=0)
    return op.each("Div", mean, share)


def greatest(
    op: Operation,  # the operator
    over: Sliding,  # its windows
    x: ir.Value,  # what it reads
    prepare: Callable[[ir.Value], ir.Value] | None = None,  # what is made of `n c *s` before
) -> ir.Value:
    """MaxPool of `n *s c`, as `n c *s`; a computed border holds the least there is.

    Zeros from a PAD are elements, and MaxPool's own border is none: the same where nothing is below 0.
    """
    border = unbordered(op, over.window, over.ones, least=True, alone=True) if x is op.stored(0) else None
    x = over.first(op, x if border is None else op.tensors.value(border.inner))
    x = x if prepare is None else prepare(x)
    dtype = x.dtype or ir.DataType.FLOAT
    least = float(np.iinfo(dtype.numpy().name).min) if dtype.is_integer() else -math.inf
    return pooled(op, over, "MaxPool", x, border, fill=0 if border else least)[0]


@operator("AVERAGE_POOL_2D", options="Pool2DOptions")
def average_pool_2d(op: Operation) -> None:
    """AveragePool over the elements that are there, not over the padding."""
    op.require_rank(0, 4)
    fused = op.options.fused_activation_function
    if op.input(0).type in MOVABLE and op.input(0).quantization is None:
        if fused:
            raise Unsupported("an activation on integers without a scale, for which the kernel takes 0")
        mean = average(op, Sliding.of(op), lambda x: op.cast(x, ir.DataType.FLOAT))
        # Halves are rounded away from zero, where Round takes them to the even integer.
        up = op.each("Floor", op.each("Add", op.each("Abs", mean), op.number(0.5, mean, "half")))
        op.result_whole(op.transpose(op.each("Mul", up, op.each("Sign", mean)), TO_LAST))
        return
    op.result_alike(average(op, Sliding.of(op), partial(op.dequantize, 0)), TO_LAST, fused)


@operator("MAX_POOL_2D", options="Pool2DOptions")
def max_pool_2d(op: Operation) -> None:
    """MaxPool; of the integers where the result is not quantized as the operand is."""
    op.require_rank(0, 4)
    if op.input(0).type in MOVABLE and op.input(0).quantization is None and op.options.fused_activation_function:
        raise Unsupported("an activation on integers without a scale, for which the kernel takes 0")
    over, fused = Sliding.of(op), op.options.fused_activation_function
    if op.moves_in_unit(0, types=BYTES_ONLY):
        op.result(greatest(op, over, op.stored(0), partial(op.dequantize, 0)), perm=TO_LAST, fused=fused)
        return
    (x,), finish = op.carried(0, types=BYTES_ONLY, fused=fused)
    finish(op.transpose(greatest(op, over, x), TO_LAST))


@operator("L2_POOL_2D", options="Pool2DOptions")
def l2_pool_2d(op: Operation) -> None:
    """Sqrt of AveragePool of the squares."""
    op.require_rank(0, 4)

    def squared(x: ir.Value) -> ir.Value:
        x = op.dequantize(0, x)
        return op.emit("Mul", [x, x])

    mean = average(op, Sliding.of(op), squared)
    op.result(op.emit("Sqrt", [mean]), perm=TO_LAST, fused=op.options.fused_activation_function)
