"""Rows of parameters that several gates or directions share: `direction row …`.

Unsqueeze(Concat(a, b, c, d))  ->  the rows of the second gate are b
"""

from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.folding import SMALL as IN_SINGLE
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import TensorContent
from relayout.formats.tflite.exporting.constants import in_single
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.kernel_types import kernel_type
from relayout.formats.tflite.exporting.node import NodeExport

SMALL = 1 << 12  # elements up to which rows are held as an array


class ParameterRows(NamedTuple):
    """Some rows of a parameter."""

    value: ir.Value  # the value that holds them
    number: int | None  # the place on its first axis, where that counts directions; None: it has no such axis
    begin: int  # the first row
    size: int  # how many rows

    @property
    def constant(self) -> ir.TensorProtocol | None:
        """The constant that holds the rows; None where they are computed."""
        return None if self.value.is_graph_input() else self.value.const_value

    def array(self) -> NDArray[Any] | None:
        """Return rows that are constant."""
        constant = self.constant
        return None if constant is None else self._cut(constant)

    def _cut(self, constant: ir.TensorProtocol) -> NDArray[Any]:
        whole = constant.numpy()
        part: NDArray[Any] = (whole if self.number is None else whole[self.number])[self.begin : self.begin + self.size]
        return part

    def is_negated(self, other: "ParameterRows") -> bool:
        """Return whether these are the other rows with the other sign."""
        producer = self.value.producer()
        if producer is not None and producer.op_type == "Neg" and not producer.domain:
            return producer.inputs[0] is other.value and self[1:] == other[1:]
        mine, theirs = self.array(), other.array()
        return mine is not None and theirs is not None and bool(np.array_equal(mine, -theirs))

    def tensor(self, op: NodeExport, *, negated: bool = False, keeps_half: bool = False) -> DraftTensor:
        """Return the rows as a tensor, with the other sign if asked for.

        Args:
            op: the node.
            negated: whether they have the other sign.
            keeps_half: whether constants in half precision stay so in the file.
        """
        constant = self.constant
        shape = self.value.shape
        assert shape is not None
        if self.number is None and shape[0] == self.size and not negated:
            return op.graph.tensor_of(self.value)
        if constant is None:
            tensor = op.graph.tensor_of(self.value)
            tensor = tensor if self.number is None else op.at(tensor, 0, self.number)
            tensor = op.part(tensor, 0, self.begin, self.size)
            return op.each("NEG", tensor) if negated else tensor
        sign = -1 if negated else 1
        dims = (self.size, *(int(dim) for dim in shape.numpy()[1 if self.number is None else 2 :]))
        is_half = keeps_half and constant.dtype == ir.DataType.FLOAT16
        if np.prod(dims) <= (IN_SINGLE if is_half else SMALL) or not (is_half or constant.dtype == ir.DataType.FLOAT):
            return op.const((sign * self._cut(constant)).astype(np.float32), what="rows")
        lazy = ir.LazyTensor(
            lambda: ir.Tensor(np.ascontiguousarray(sign * self._cut(constant))),
            dtype=constant.dtype,
            shape=ir.Shape(dims),
            name=self.value.name,
        )
        name = op.draft.unique(f"{self.value.name}/rows")
        if is_half:
            return in_single(op.draft, DraftTensor(name, TensorType.FLOAT16, dims, TensorContent(lazy)))
        return DraftTensor(name, kernel_type(self.value), dims, TensorContent(lazy))


def select_rows(
    value: ir.Value,  # `direction row …`
    number: int,  # the direction
    begin: int,  # the first row
    size: int,  # how many rows
) -> ParameterRows:
    """Return rows of one direction of a parameter, as those of the smallest value that holds them."""
    found = ParameterRows(value, number, begin, size)
    while (smaller := _source(found)) is not None:
        found = smaller
    return found


def _source(rows: ParameterRows) -> ParameterRows | None:
    """Return the same rows as those of what a value is put together of; None where it is not."""
    node, shape = rows.value.producer(), rows.value.shape
    if node is None or node.domain or shape is None:
        return None
    if node.op_type in ("Unsqueeze", "Reshape"):
        first = node.inputs[0] if node.inputs else None
        lacks_directions = first is not None and first.shape is not None and list(first.shape) == list(shape[1:])
        if first is None or not lacks_directions or rows.number != 0:
            return None
        return ParameterRows(first, None, rows.begin, rows.size)
    return _operand_rows(rows, node, len(shape)) if node.op_type == "Concat" else None


def _operand_rows(rows: ParameterRows, node: ir.Node, rank: int) -> ParameterRows | None:
    """Return the same rows as those of one operand of a Concat along the rows, or along the directions."""
    axis = node.attributes.get_int("axis", 0) % rank
    along_rows = axis == (0 if rows.number is None else 1)
    if not along_rows and (axis or rows.number is None):
        return None
    place = rows.begin if along_rows else int(rows.number or 0)
    length = rows.size if along_rows else 1
    for value in node.inputs:
        extent = None if value is None or value.shape is None else value.shape[axis]
        if value is None or not isinstance(extent, int):
            return None
        if place < extent:
            moved = rows._replace(begin=place) if along_rows else rows._replace(number=place)
            return moved._replace(value=value) if place + length <= extent else None
        place -= extent
    return None
