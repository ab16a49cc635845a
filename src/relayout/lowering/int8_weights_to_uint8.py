"""Kernels of int8 as uint8, for CPUs on which products of uint8 by int8 saturate."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.subgraphs import all_nodes
from relayout.graph.walks import drop_unread
from relayout.lowering.constants import Constants, as_unsigned
from relayout.rules import domain_of_version


class Slots(NamedTuple):
    """The slots of the kernel, its zero point, its scale, and the data that it meets; None: there is none."""

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

DATA_ZERO = 2  # the operand of all of these that is the zero point of the data, and has its type


def operator_key(node: ir.Node) -> tuple[str, str]:
    """Return the domain and type of an operator as `KERNELS` has them, in whatever layout it is."""
    return domain_of_version(node.domain), node.op_type


def avoid_saturation(model: ir.Model) -> tuple[str, ...]:
    """Store constant kernels of int8 as uint8, in place; return a sentence for the report."""
    count = unsigned_kernels(model)
    return (f"kernels of int8 stored as uint8, so that products do not saturate: {count}",) if count else ()


def unsigned_kernels(
    model: ir.Model,
    leaving: Collection[tuple[str, str]] = (),  # operators (domain, name) whose kernels stay as they are
) -> int:
    """Store constant kernels of int8 as uint8, in place; how many.

    An integer and its zero point move by 128, and mean the same: `(w + 128) - (z + 128) = w - z`.
    """
    moving = _Moving(model)
    for node in list(all_nodes(model.graph)):
        key = operator_key(node)
        if key in KERNELS and key not in leaving:
            moving.move(node, KERNELS[key])
    drop_unread(moving.moved)  # and what moved them
    return moving.count


class _Moving:
    def __init__(self, model: ir.Model) -> None:
        self.constants = Constants(model)
        self.known: dict[ir.Value, NDArray[np.generic] | None] = {}
        self.moved: dict[ir.Value, ir.Value] = {}
        self.zeros: dict[tuple[int, ...], ir.Value] = {}
        self.count = 0

    def move(self, node: ir.Node, slots: Slots) -> None:
        operands = [*node.inputs, *[None] * (slots.zero + 1 - len(node.inputs))]
        kernel, zero = operands[slots.kernel], operands[slots.zero]
        data = None if slots.data is None else operands[slots.data]
        known_by = operands[DATA_ZERO] if data is not None and data.dtype is None else data
        is_eligible = data is None or (known_by is not None and known_by.dtype == ir.DataType.UINT8)
        if kernel is None or kernel.dtype not in (ir.DataType.INT8, None) or not is_eligible:
            return
        known = self._array(kernel)
        parameter = self._zero(None if slots.scale is None else operands[slots.scale]) if zero is None else zero
        if known is None or known.dtype != np.int8 or known.ndim < 2 or parameter is None:
            return
        if self._array(parameter) is None:
            return
        self.count += kernel not in self.moved
        node.resize_inputs(len(operands))
        node.replace_input_with(slots.kernel, self._moved(kernel))
        node.replace_input_with(slots.zero, self._moved(parameter))

    def _array(self, value: ir.Value) -> NDArray[np.generic] | None:
        if value not in self.known:
            self.known[value] = self.constants.behind(value)
        return self.known[value]

    def _moved(self, value: ir.Value) -> ir.Value:
        """Return a constant as uint8, one for all of its readers."""
        if value not in self.moved:
            array = self._array(value)
            assert array is not None
            self.moved[value] = self.constants.new(f"{value.name}/unsigned", as_unsigned(array))
        return self.moved[value]

    def _zero(self, scale: ir.Value | None) -> ir.Value | None:
        """Return the zero point of a node that names none, in the shape of its scale; None where that is not known."""
        if scale is not None and (scale.shape is None or not scale.shape.is_static()):
            return None
        shape = () if scale is None or scale.shape is None else tuple(scale.shape.numpy())
        return self.zeros.setdefault(shape, ir.val("zero_point", const_value=ir.tensor(np.zeros(shape, np.int8))))
