"""Products of recurrent operators whose weights were bytes in a `.tflite`: LiteRT rounds each row of the other operand.

    DequantizeLinear<tflite.rounded>(bytes)  ->  Unsqueeze  ->  GRU, RNN

The bytes are the weights of each step's FULLY_CONNECTED, as in the file. As real numbers they give others: where no
gate keeps a state, each step adds to the distance.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.older import lacks
from relayout.formats.tflite.exporting.scales import Scales, dequantizer_of, scales_of
from relayout.formats.tflite.spelled_out import ASYMMETRIC, ROUNDED, Builtin, Operand
from relayout.light_dataclass import dataclass

FRONT = ("Identity", "Reshape", "Unsqueeze")
"""Operators that put an axis of one element before a matrix."""
PRODUCT = "FULLY_CONNECTED"


@dataclass
class RoundedWeights:
    """Weights of bytes, `rows columns`, and the products with some of their rows.

    Args:
        op: the recurrent operator.
        array: the bytes.
        scale: a scale for each row.
        asymmetric: whether products round their data around any number; else around zero.
    """

    op: NodeExport
    array: NDArray[Any]
    scale: NDArray[np.float32]
    asymmetric: bool
    tensors: dict[tuple[int, int], DraftTensor] = field(default_factory=dict)

    def product(self, data: DraftTensor, begin: int, end: int, bias: DraftTensor | None = None) -> DraftTensor:
        """Return the product of data with some rows."""
        if (begin, end) not in self.tensors:
            self.tensors[begin, end] = self.op.const(
                np.ascontiguousarray(self.array[begin:end]), self._meaning(begin, end), "bytes"
            )
        dims: Dims = (*data.dims[:-1], end - begin)
        return self.op.emit(
            PRODUCT, [data, self.tensors[begin, end], bias], dims, asymmetric_quantize_inputs=self.asymmetric
        )

    def _meaning(self, begin: int, end: int) -> Quantization:
        scale = self.scale[begin:end] if self.scale.size > 1 else self.scale
        return Quantization(scale, np.zeros(scale.shape, np.int64), 0)

    def runs_in(self, runtime: str) -> bool:
        """Return whether a runtime has such products."""
        data = Operand(TensorType.FLOAT32, (1, self.array.shape[1]), None)
        weights = Operand(TensorType.INT8, self.array.shape, self._meaning(0, self.array.shape[0]))
        result = Operand(TensorType.FLOAT32, (1, self.array.shape[0]), None)
        said = {"asymmetric_quantize_inputs": self.asymmetric}
        return not runtime or not lacks(runtime, Builtin(PRODUCT, said, (data, weights, None), (result,)))


def rounded_weights_of(op: NodeExport, slot: int) -> RoundedWeights | None:
    """Return the bytes of an operand of one direction; None where it was none, or the runtime has no such products."""
    value = op.value(slot)
    node = _dequantizer(value)
    source = None if node is None else _behind_views(node.inputs[0])
    if node is None or source is None or source.const_value is None or source.is_graph_input():
        return None
    directions, *matrix = op.static(slot)
    found, tensor = scales_of(node), source.const_value
    if found is None or tensor.dtype != ir.DataType.INT8 or directions != 1 or tensor.size == 0:
        return None
    if found[1].any() or not _is_of_rows(node, found, matrix[0]):
        return None
    made = RoundedWeights(op, tensor.numpy().reshape(matrix), found[0], node.metadata_props[ROUNDED] == ASYMMETRIC)
    return made if made.runs_in(op.graph.runtime) else None


def _is_of_rows(node: ir.Node, scales: Scales, rows: int) -> bool:
    """Return whether a DequantizeLinear has one scale, or one for each row of a matrix."""
    scale, _, axis = scales
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if scale.size == 1:
        return True
    return scale.size == rows and shape is not None and [*shape[: axis + 1]] == [*[1] * axis, rows]


def _dequantizer(value: ir.Value) -> ir.Node | None:
    """Return the DequantizeLinear that says that rows beside its weights are rounded; None where there is none."""
    found = _behind_views(value)
    node = None if found is None else dequantizer_of(found)
    return node if node is not None and ROUNDED in node.metadata_props else None


def _behind_views(value: ir.Value | None) -> ir.Value | None:
    """Return the value whose elements a value has, in the same order."""
    while value is not None and (node := value.producer()) is not None and node.op_type in FRONT and not node.domain:
        value = node.inputs[0]
    return value
