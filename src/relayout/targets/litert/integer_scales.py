"""Scales and zero points of quantized integers, as LiteRT's signed kernels have them."""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.scales import are_normal

DEQUANTIZING, QUANTIZING = frozenset({"DequantizeLinear"}), frozenset({"QuantizeLinear"})
SHIFTS = {ir.DataType.UINT8: 128, ir.DataType.UINT16: 32768}
"""Unsigned types -> how much lower their integers lie once they are signed."""
BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
WORDS = (ir.DataType.INT16, ir.DataType.UINT16)


class Scale(NamedTuple):
    """The quantization of integers: type, scales and zero points, the last as signed integers have them."""

    dtype: ir.DataType
    scale: NDArray[np.float32]
    zero: NDArray[np.int64]

    @property
    def is_one(self) -> bool:
        """True if there is one scale for the tensor."""
        return self.scale.size == 1

    @property
    def is_symmetric(self) -> bool:
        """True if all zero points are 0."""
        return not self.zero.any()

    def equals(self, other: "Scale | None") -> bool:
        """Tell whether the same integer means the same number."""
        return (
            other is not None
            and self.is_one
            and other.is_one
            and self.scale[0] == other.scale[0]
            and self.zero[0] == other.zero[0]
        )


def scale_of(node: ir.Node) -> Scale | None:
    """Return what the integers of a QuantizeLinear or DequantizeLinear mean; None where no constant says so."""
    integers = node.inputs[0] if node.op_type in DEQUANTIZING else node.outputs[0]
    scale = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if integers is None or integers.dtype is None or scale is None or node.attributes.get_int("block_size", 0) != 0:
        return None
    scales = scale.numpy().astype(np.float32).reshape(-1)
    if not are_normal(scales):
        return None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    if zero is not None and zero.const_value is None:
        return None
    zeros = np.zeros(scales.shape, np.int64)
    if zero is not None and zero.const_value is not None:
        zeros = zero.const_value.numpy().astype(np.int64).reshape(-1)
    return Scale(integers.dtype, scales, zeros - SHIFTS.get(integers.dtype, 0))
