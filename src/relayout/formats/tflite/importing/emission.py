"""Emitting ONNX nodes on behalf of one TFLite operator: names, types and shapes are taken care of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.flatbuffer import Table, empty_table
from relayout.formats.tflite.container.model import MAX_NAME, Operator, Tensor
from relayout.formats.tflite.container.schema import SCHEMA
from relayout.formats.tflite.importing.builder import Builder, Dim, Dims, dims
from relayout.formats.tflite.importing.emitted_shapes import emitted_shape, emitted_type
from relayout.formats.tflite.importing.registry import Entry, Unsupported, entry_of
from relayout.formats.tflite.importing.tensors import Tensors

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.program import Program


def options_of(operator: Operator, entry: Entry | None = None) -> Table:
    """An operator's options, with the defaults where a file leaves them out.

    Args:
        operator: the operator, one that is registered.
        entry: its entry, where that is at hand.

    Raises:
        ReadError: they are those of another operator.
    """
    entry = entry or entry_of(operator.name)
    found, kind = operator.options, entry.options if entry else ""
    if found is None:
        return empty_table(SCHEMA, kind) if kind else Table("", 0, {})
    if kind and found.kind != kind:
        raise ReadError(f"{operator.name} has {found.kind}, not {kind}", where=operator.place)
    return found


class Emission:
    """A TFLite operator, its tensors and options, and the nodes that are written for it."""

    def __init__(self, operator: Operator, entry: Entry, tensors: Tensors, program: Program) -> None:
        self.operator, self.tensors, self.program = operator, tensors, program
        self.builder: Builder = tensors.builder
        self.options = options_of(operator, entry)
        self.source = f"{operator.name} {operator.place}"
        tensors.placeholders.follow(operator)

    def has(self, i: int) -> bool:
        """Tell whether operand i is given."""
        return i < len(self.operator.inputs) and self.operator.inputs[i] >= 0

    def input(self, i: int) -> Tensor:
        """The tensor of operand i."""
        if not self.has(i):
            raise ReadError(f"{self.operator.name} lacks operand {i}", where=f"{self.operator.place}.inputs")
        return self.tensors.subgraph.tensors[self.operator.inputs[i]]

    def output(self, i: int = 0) -> Tensor:
        """The tensor of result i."""
        if i >= len(self.operator.outputs):
            raise ReadError(f"{self.operator.name} lacks result {i}", where=f"{self.operator.place}.outputs")
        return self.tensors.subgraph.tensors[self.operator.outputs[i]]

    @property
    def place(self) -> str:
        """Return where the operator stands in the file."""
        return self.operator.place

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        shape: Dims | None = None,
        dtype: ir.DataType | None = None,
        *,
        name: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """Append a node with one output, of the shape and type that follow from the inputs unless they are stated."""
        if shape is None:
            shape = emitted_shape(op_type, inputs, attributes)
        return self.emit_all(op_type, inputs, [shape], dtype, name=name, **attributes)[0]

    def emit_all(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        shapes: Sequence[Dims],
        dtype: ir.DataType | None = None,
        *,
        name: str = "",
        **attributes: Any,
    ) -> tuple[ir.Value, ...]:
        """Append a node with one output for each shape, between Casts where another type stands in for its own."""
        if (dtype := dtype or emitted_type(op_type, inputs)) is None:
            raise ValueError(f"{op_type} has no input to take its type from")
        name = name or self.hint(op_type.lower())
        others = self.program.choices.passes.stand_ins.get(op_type, {})
        # The condition of a Where is boolean whatever is chosen among.
        skipped = 1 if op_type == "Where" else 0
        types = [v.dtype for v in inputs[skipped:] if v is not None and v.dtype is not None]
        found: dict[ir.DataType | None, ir.DataType] = {kind: others[kind] for kind in types if kind in others}
        given = [
            self.cast(v, found[v.dtype]) if v is not None and v.dtype in found and i >= skipped else v
            for i, v in enumerate(inputs)
        ]
        outputs = [(name, found.get(dtype, dtype), shape) for shape in shapes]
        results = self.builder.emit(op_type, given, outputs, source=self.source, **attributes)
        return tuple(self.cast(value, dtype) for value in results)

    def hint(self, suffix: str) -> str:
        """The name wanted for a value of this operator's own."""
        return self.tensors.hint(self.output(), suffix)

    def ints(self, values: Sequence[int], name: str = "axes") -> ir.Value:
        """A one-dimensional int64 constant."""
        return self.builder.array(self.hint(name), np.array(values, np.int64))

    def number(self, value: float, like: ir.Value, name: str = "constant") -> ir.Value:
        """A scalar constant of the same type as a value."""
        if like.dtype is None:
            raise ValueError(f"{like.name} has no type")
        with np.errstate(over="ignore"):  # damaged files ask for numbers beyond the type's: infinity
            constant = np.array(value, like.dtype.numpy())
        return self.builder.array(self.hint(name), constant)

    def transpose(self, value: ir.Value, perm: Sequence[int], name: str = "") -> ir.Value:
        """A Transpose; the result is named after the value."""
        if len(dims(value)) != len(perm):
            raise ReadError(f"{self.operator.name} wants rank {len(perm)}, not {len(dims(value))}", where=self.place)
        name = name or f"{(value.name or '')[:MAX_NAME]}/transposed"
        return self.emit("Transpose", [value], name=name, perm=list(perm))

    def reshape(self, value: ir.Value, shape: Sequence[Dim]) -> ir.Value:
        """A Reshape to known extents, of which at most one may be known only at run time."""
        target = [dim if isinstance(dim, int) else -1 for dim in shape]
        if target.count(-1) > 1:
            raise Unsupported("a shape with several unknown dimensions")
        # Without allowzero a 0 would copy the input's extent; together with -1 ONNX forbids it.
        zero = 1 if 0 in target and -1 not in target else None
        return self.emit("Reshape", [value, self.ints(target, "shape")], tuple(shape), allowzero=zero)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A Cast, or the value itself if it has the type."""
        return value if value.dtype == dtype else self.emit("Cast", [value], dtype=dtype, to=dtype)

    def out_dims(self, known: Sequence[Dim], i: int = 0) -> Dims:
        """The shape of result i: what is known from the operands, else what the file says, else a name."""
        tensor = self.output(i)
        declared = self.tensors.claimed(tensor)
        if len(declared) != len(known):
            declared = (None,) * len(known)
        return tuple(
            dim if dim is not None else self.tensors.symbol(tensor, axis, declared[axis])
            for axis, dim in enumerate(known)
        )
