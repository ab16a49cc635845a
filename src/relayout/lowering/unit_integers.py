"""The integers of quantized units, and what QuantizeLinear and DequantizeLinear say that they mean."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.lowering.constants import Constants, as_unsigned
from relayout.lowering.unit_rows import DEQUANTIZING, Reals

Array = NDArray[np.generic]
BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


class Integers(NamedTuple):
    """Integers and what they mean: `(integers - zero) * scale`, along an axis where there are several scales."""

    values: ir.Value
    scale: ir.Value
    zero: ir.Value
    axis: int

    @property
    def scales(self) -> NDArray[np.float32]:
        """The scales, one or one per item of the axis."""
        return np.asarray(known_constant(self.scale)).reshape(-1).astype(np.float32)

    @property
    def zeros(self) -> NDArray[np.int64]:
        """The zero points, likewise."""
        return np.asarray(known_constant(self.zero)).reshape(-1).astype(np.int64)

    @property
    def is_plain(self) -> bool:
        """Tell whether one scale and one zero point hold for all."""
        return self.scales.size == self.zeros.size == 1

    def alike(self, other: "Integers") -> bool:
        """Tell whether an integer means the same in both."""
        kinds = self.values.dtype == other.values.dtype
        scales = bool(np.array_equal(self.scales, other.scales))
        return kinds and self.is_plain and scales and bool(np.array_equal(self.zeros, other.zeros))


class IntegerReader:
    """The types of integers by the nodes that quantize them, and the nodes that nothing may read any longer."""

    def __init__(self, constants: Constants) -> None:
        self.constants, self.names = constants, constants.names
        self.left: dict[ir.Node, None] = {}
        """Nodes that units stand for, and that go where nothing reads them."""
        self._zeros: dict[ir.DataType, ir.Value] = {}

    def dequantized(self, value: ir.Value) -> Integers | None:
        """The integers that a value was dequantized from."""
        node = value.producer()
        if node is None or node.op_type not in DEQUANTIZING or node.domain or node.inputs[0] is None:
            return None
        found = self.integers(node, node.inputs[0])
        if found is not None:
            self.left[node] = None
        return found

    def integers(self, node: ir.Node, values: ir.Value) -> Integers | None:
        """The integers on one side of a node that quantizes or dequantizes, if their scales are constant floats."""
        scale = node.inputs[1]
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        known = known_constant(scale)
        if scale is None or known is None or known.dtype != np.float32 or known.ndim > 1 or values.dtype is None:
            return None
        if zero is None:
            zero = self.zero(values.dtype)
        if node.attributes.get_int("block_size", 0) or known_constant(zero) is None:
            return None
        return Integers(values, scale, zero, node.attributes.get_int("axis", 1))

    def zero(self, dtype: ir.DataType) -> ir.Value:
        """The zero point of a node that names none."""
        if dtype not in self._zeros:
            self._zeros[dtype] = self.constants.new("zero_point", np.zeros((), dtype.numpy()))
        return self._zeros[dtype]

    def real(self, value: ir.Value | None) -> Reals | None:
        """A constant as real numbers, dequantized where it is stored as integers."""
        known = known_constant(value)
        if value is None:
            return None
        if known is not None:
            return known.astype(np.float64) if known.dtype.kind == "f" else None
        found = self.dequantized(value)
        integers = None if found is None else known_constant(found.values)
        if found is None or integers is None:
            return None
        shape = [1] * integers.ndim
        if not found.is_plain:
            shape[found.axis % integers.ndim] = -1
        zeros, scales = found.zeros, found.scales.astype(np.float64)
        ones: Sequence[int] = shape if integers.ndim else ()
        return np.asarray((integers.astype(np.int64) - zeros.reshape(ones)) * scales.reshape(ones), np.float64)

    def shifted(self, zero: ir.Value | None) -> ir.Value:
        """An int8 constant as uint8."""
        return self.constants.new(
            f"{zero.name if zero else 'zero'}/unsigned", as_unsigned(np.asarray(known_constant(zero)))
        )


def byte_range(value: ir.Value) -> tuple[int, int]:
    """Return the least and the largest integer of a value of bytes."""
    return (0, 255) if value.dtype == ir.DataType.UINT8 else (-128, 127)


def known_constant(value: ir.Value | None) -> Array | None:
    """Return a constant, an initializer that no input overrides; None for any other value."""
    if value is None or value.const_value is None or value.is_graph_input() or value.producer() is not None:
        return None
    return value.const_value.numpy()
