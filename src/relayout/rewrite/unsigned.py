"""Kernels of int8 as uint8, for CPUs on which products of uint8 by int8 saturate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.captures import all_nodes
from relayout.rewrite.constants import Constants, as_unsigned


class Slots(NamedTuple):
    """Which operand is the kernel, its zero point, its scale, and the data that it meets; None: there is none."""

    kernel: int
    zero: int
    scale: int | None = None
    data: int | None = None


KERNELS = {
    ("", "DequantizeLinear"): Slots(0, 2, 1),
    ("", "MatMulInteger"): Slots(1, 3, None, 0),
    ("", "QLinearConv"): Slots(3, 5, 4, 0),
    ("", "QLinearMatMul"): Slots(3, 5, 4, 0),
    ("com.microsoft", "QGemm"): Slots(3, 5, 4, 0),
    ("com.microsoft", "QLinearConv"): Slots(3, 5, 4, 0),
}
"""Operators whose products saturate, and what is dequantized for them. ConvInteger has another kernel, an exact one."""


def unsigned_kernels(model: ir.Model) -> int:
    """Store constant kernels of int8 as uint8, in place; how many.

    An integer and its zero point move by 128, and mean the same: `(w + 128) - (z + 128) = w - z`.
    """
    moving = _Moving(model)
    for node in list(all_nodes(model.graph)):
        if (slots := KERNELS.get((node.domain, node.op_type))) is not None:
            moving.move(node, slots)
    moving.clear()
    return moving.count


class _Moving:
    def __init__(self, model: ir.Model) -> None:
        self.constants = Constants(model)
        self.moved: dict[ir.Value, ir.Value] = {}
        self.count = 0

    def move(self, node: ir.Node, slots: Slots) -> None:
        given = [*node.inputs, *[None] * (slots.zero + 1 - len(node.inputs))]
        kernel, zero = given[slots.kernel], given[slots.zero]
        data = None if slots.data is None else given[slots.data]
        met = data is None or data.dtype == ir.DataType.UINT8
        if kernel is None or kernel.dtype != ir.DataType.INT8 or len(kernel.shape or ()) < 2 or not met:
            return
        if self.constants.of(kernel) is None or (zero is not None and self.constants.of(zero) is None):
            return
        scale = None if slots.scale is None else given[slots.scale]
        shape = () if scale is None or scale.shape is None else tuple(scale.shape.numpy())
        self.count += kernel not in self.moved
        node.resize_inputs(len(given))
        node.replace_input_with(slots.kernel, self._moved(kernel))
        node.replace_input_with(slots.zero, self._zero(shape) if zero is None else self._moved(zero))

    def _moved(self, value: ir.Value) -> ir.Value:
        """A constant as uint8, one for all of its readers."""
        if value not in self.moved:
            array = self.constants.array(value)
            assert array is not None
            self.moved[value] = self.constants.new(f"{value.name}/unsigned", as_unsigned(array))
        return self.moved[value]

    def _zero(self, shape: tuple[int, ...]) -> ir.Value:
        return self.constants.new("zero_point/unsigned", as_unsigned(np.zeros(shape, np.int8)))

    def clear(self) -> None:
        """Remove the constants that nothing reads any longer."""
        for value in self.moved:
            graph = value.graph
            if graph is not None and value.is_initializer() and not value.uses() and not value.is_graph_output():
                del graph.initializers[value.name or ""]
