"""A graph whose layouts are chosen becomes a `.tflite` model: one function per operator, in the graph's order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import LayoutError, UnsupportedError
from relayout.formats.stored import nbytes
from relayout.formats.tflite.container.contents import TensorContent
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Quantization, Signature
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.exporting.custom import write_custom
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftTensor
from relayout.formats.tflite.exporting.fusing import fuse
from relayout.formats.tflite.exporting.kernel_types import widen
from relayout.formats.tflite.exporting.node import IMAGES, NodeExport, known
from relayout.formats.tflite.exporting.older import newer_operators, write_for
from relayout.formats.tflite.exporting.registry import Entry, Unwritable, entries
from relayout.formats.tflite.exporting.signs import SHIFTS, change_sign, has_zero_point_of_16_bits
from relayout.formats.tflite.exporting.steps import Steps
from relayout.formats.tflite.exporting.tidying import tidy
from relayout.formats.tflite.exporting.units import QuantizedUnits, UnitNodes
from relayout.graph.source_names import label
from relayout.layout.stored_as import Holds

SMALL = 1 << 16
"""Elements of constants that are looked at as arrays."""
UNSCALED = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT16)
"""Integers that no DEQUANTIZE takes."""
FEW = 1 << 8
"""Elements up to which a constant in half precision is written in single."""
DEQUANTIZE, QUANTIZE = "DequantizeLinear", "QuantizeLinear"
TYPES: Mapping[ir.DataType, TensorType] = {
    ir.DataType.FLOAT: TensorType.FLOAT32,
    ir.DataType.FLOAT16: TensorType.FLOAT16,
    ir.DataType.DOUBLE: TensorType.FLOAT64,
    ir.DataType.INT64: TensorType.INT64,
    ir.DataType.INT32: TensorType.INT32,
    ir.DataType.INT16: TensorType.INT16,
    ir.DataType.INT8: TensorType.INT8,
    ir.DataType.INT4: TensorType.INT4,
    ir.DataType.UINT8: TensorType.UINT8,
    ir.DataType.UINT16: TensorType.UINT16,
    ir.DataType.UINT32: TensorType.UINT32,
    ir.DataType.UINT64: TensorType.UINT64,
    ir.DataType.BOOL: TensorType.BOOL,
    ir.DataType.COMPLEX64: TensorType.COMPLEX64,
    ir.DataType.BFLOAT16: TensorType.BFLOAT16,
}
DEQUANTIZED = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.INT4, ir.DataType.FLOAT16)
"""Types that DEQUANTIZE has kernels for."""
INTEGERS = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
MOVING = frozenset(
    {"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice"}
    | {"SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators whose results hold elements of their first operand, whatever these mean."""
JOINING = frozenset({"Concat"})
"""Those of which this is true of all operands."""


class UnwritableGraphError(UnsupportedError):
    """Operators, inputs or outputs cannot be written: all of them, each with its reason.

    Args:
        found: operator and reason -> (how often, first place).
        values: the first output of each such operator; of an input, those of the operators that read it.
        hint: what to do about it.
    """

    def __init__(self, found: dict[str, tuple[int, str]], values: set[str], hint: str = "") -> None:
        self.values = values
        super().__init__(found, hint)


def export(
    model: ir.Model,
    *,
    units: QuantizedUnits | None = None,
    unsigned: bool = False,
    signature: str = "serving_default",
    describe: Callable[[Mapping[str, list[ir.Value]]], Mapping[str, bytes]] | None = None,
    names: Mapping[str, str] | None = None,
    custom_ops: Mapping[str, str] | None = None,
    runtime: str = "",
) -> Model:
    """Translate a model operator by operator.

    Args:
        model: its layouts are those of TensorFlow Lite; every value has a type and a rank.
        units: the operators that run on integers.
        unsigned: whether unsigned integers stay so, for kernels whose weights have zero points.
        signature: the key of the signature.
        describe: name -> bytes of what the file says beside its graph, made of: name of a tensor -> the values that it
            is.
        names: input or output -> its name in the signature, where that is another one.
        custom_ops: operators that become CUSTOM ones, by name -> their domain; "" for any.
        runtime: the oldest runtime that has to run it, such as `2.14`; "": any.

    Raises:
        UnwritableGraphError: operators that cannot be written, all of them with reason and count.
    """
    graph = GraphExport(model, model.graph, units or {}, unsigned=unsigned, custom_ops=custom_ops, runtime=runtime)
    graph.run()
    if graph.refused:
        raise UnwritableGraphError(graph.refused, graph.unwritten)
    for draft in graph.program:
        tidy(draft)
    changed = [tensor for draft in graph.program for tensor in fuse(draft)]
    subgraphs = tuple(draft.finish(f"subgraphs[{place}]") for place, draft in enumerate(graph.program))
    subgraph = subgraphs[0]
    called = names or {}

    def ends(values: Any, indices: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
        listed = [(value.name or "") for value in values]
        return tuple((called.get(name, name), index) for name, index in zip(listed, indices, strict=True))

    ports = Signature(
        signature, 0, ends(model.graph.inputs, subgraph.inputs), ends(model.graph.outputs, subgraph.outputs)
    )
    kept = {tensor.name for tensor in subgraph.tensors} - {tensor.name for tensor in changed}
    said = {} if describe is None else describe(graph.values_of(kept))
    notes = tuple((name, np.frombuffer(data, np.uint8)) for name, data in said.items())
    file = finished(Model("relayout", subgraphs, (ports,), notes))
    if runtime and (newer := newer_operators(file, runtime)):
        raise UnwritableGraphError(newer, set())
    return file


class GraphExport:
    """A graph and the subgraph that it becomes.

    Args:
        model: the model.
        graph: its graph, or a body.
        units: the operators that run on integers.
        program: the graphs of the file, if this one is a body.
        unsigned: whether unsigned integers stay so.
        custom_ops: operators that become CUSTOM ones, by name -> their domain; "" for any.
        runtime: the oldest runtime that has to run the file; "": any.
    """

    def __init__(
        self,
        model: ir.Model,
        graph: ir.Graph,
        units: QuantizedUnits,
        program: list[Draft] | None = None,
        *,
        unsigned: bool = False,
        custom_ops: Mapping[str, str] | None = None,
        runtime: str = "",
    ) -> None:
        self.model, self.graph, self.custom_ops, self.runtime = model, graph, custom_ops or {}, runtime
        self.program: list[Draft] = [] if program is None else program
        """All graphs of the file under construction; this one and its bodies are among them."""
        self.units = dict(units)
        self.unsigned = unsigned
        self.shifts = {} if unsigned else SHIFTS
        self.version = model.opset_imports.get("", 1)
        self.draft = Draft(graph.name or "main")
        self.program.append(self.draft)
        self.tensors: dict[ir.Value, DraftTensor] = {}
        self.integers: dict[ir.Value, DraftTensor] = {}
        """Integers between quantized units -> their tensor, of a type that kernels take."""
        self.refused: dict[str, tuple[int, str]] = {}
        self.unwritten: set[str] = set()
        """The first outputs of the nodes that are refused."""
        self._stated: dict[ir.Value, DraftTensor] = {}
        """Unsigned integers that are stored as signed ones -> a copy in the type that ONNX states."""
        self._before: dict[ir.Value, DraftTensor] = {}
        """Output of a unit's node -> what its kernel gives, before a QUANTIZE."""
        self.absorbed = {unit.activation for unit in units.values() if unit.activation is not None}
        self.unknown: set[ir.Value | None] = set()
        """Results of operators that cannot be written, of which nothing is known."""
        self.begin = 0
        """How many operators there were before those of the node that is translated."""
        self.parameters = dict(_parameters(graph))
        self._move_parameters()
        """Integers -> (scale, zero point, axis), by the nodes that quantize them or read them as real numbers."""

    def _move_parameters(self) -> None:
        """Let integers that are only moved mean what those mean that they are moved to."""
        for node in reversed(self.graph):
            found = self.parameters.get(node.outputs[0])
            if node.op_type not in (*MOVING, "Pad", "Resize") or found is None or found[0].size != 1:
                continue
            for value in node.inputs if node.op_type in JOINING else node.inputs[:1]:
                if value is not None and value.dtype == node.outputs[0].dtype and value.dtype in INTEGERS:
                    self.parameters.setdefault(value, found)

    def run(self) -> None:
        """Translate every node; what cannot be written is collected in `refused`."""
        ends = {value.name for value in (*self.graph.inputs, *self.graph.outputs) if value.name}
        for name in ends:
            self.draft.unique(name)
        self.draft.reserved = frozenset(value.name for node in self.graph for value in node.outputs if value.name)
        for value in self.graph.inputs:
            self._input(value)
        self.write()
        for value in self.graph.outputs:
            self._write_output(value)

    def write(self) -> None:
        """Translate every node; what cannot be written is collected in `refused`."""
        table = entries()
        for node in self.graph:
            self._node(node, table)

    # Bodies.

    def body(self, graph: ir.Graph) -> GraphExport:
        """Return the export of a body: a graph of its own in the file; what it refuses, this one refuses."""
        made = GraphExport(
            self.model,
            graph,
            self.units,
            self.program,
            unsigned=self.unsigned,
            custom_ops=self.custom_ops,
            runtime=self.runtime,
        )
        made.unwritten = self.unwritten
        made.refused = self.refused
        return made

    def take(self, values: Sequence[ir.Value]) -> None:
        """Let a body read values of the graph around it, by operands of its own."""
        for value in values:
            tensor = DraftTensor(self.draft.unique(value.name or "outer"), _type(value), self.dims_of(value))
            self.tensors[value] = tensor
            self.draft.inputs.append(tensor)

    def give_all(self, values: Sequence[ir.Value], op: NodeExport) -> None:
        """Let a body give values, of the types that a node's outputs have."""
        found = [self.tensor_of(value) for value in values if not self.refused and value not in self.unknown]
        self.draft.outputs = self.distinct(found)

    def distinct(self, tensors: Sequence[DraftTensor]) -> list[DraftTensor]:
        """Return a body's outputs: none of them is an input, a constant, or another output."""
        found: list[DraftTensor] = []
        for tensor in tensors:
            result = tensor
            if tensor in self.draft.inputs or tensor.data is not None or tensor in found:
                result = self.draft.tensor(f"{tensor.name}/given", tensor.type, tensor.dims, tensor.quantization)
                self._copy(tensor, result)
            found.append(result)
        return found

    def _input(self, value: ir.Value) -> None:
        try:
            tensor = DraftTensor(value.name or "", stored_type(value), self.dims_of(value))
        except Unwritable as problem:
            self._refuse_end("input", value, problem.reason, [use.node for use in value.uses()])
            return
        tensor.quantization = self.quantization_of(value)
        self.draft.inputs.append(tensor)
        kind = _type(value)
        if tensor.type == kind:
            self.tensors[value] = tensor
            return
        self.tensors[value] = self.draft.tensor(f"{value.name}/{kind.name.lower()}", kind, tensor.dims)
        self.draft.add("CAST", [tensor], [self.tensors[value]], in_data_type=tensor.type, out_data_type=kind)

    def _write_output(self, value: ir.Value) -> None:
        if self.refused or value in self.unknown:
            return
        try:
            self.draft.outputs.append(self._output(value))
        except Unwritable as problem:
            self._refuse_end("output", value, problem.reason, [value.producer()])

    def _node(self, node: ir.Node, table: Any) -> None:
        if node in self.absorbed or (node.op_type == DEQUANTIZE and not node.domain):
            return  # read where it is wanted
        if node.op_type == QUANTIZE and self._is_in_unit(node):
            return
        if any(value in self.unknown for value in node.inputs):
            self._leave_out(node)
            return
        domain = "" if node.domain == "ai.onnx" or node.domain.startswith(IMAGES) else node.domain
        entry = table.get((domain, node.op_type))
        is_custom = self.custom_ops.get(node.op_type) in ("", domain) and (domain or entry is None)
        try:
            if is_custom:
                write_custom(NodeExport(self, node))
            elif entry is None:
                raise Unwritable("TensorFlow Lite has no such operator")
            else:
                self.begin = len(self.draft.operators)
                if node not in self.units or not self._on_integers(entry, self.units[node]):
                    entry.export(NodeExport(self, node))
                widen(self.draft, self.begin)
                if self.runtime:
                    write_for(self.draft, self.begin, self.runtime)
        except Unwritable as problem:
            self._refuse(node, problem.reason)

    def _on_integers(self, entry: Entry, unit: UnitNodes) -> bool:
        """Write a unit as its operator on integers; False where that cannot be: it stays on real numbers."""
        kept = (self.tensors, self.integers, self._stated, self._before)
        before = [dict(each) for each in kept]
        try:
            entry.export(NodeExport(self, unit.node, quantized=True))
        except Unwritable:
            del self.draft.operators[self.begin :]
            for each, held in zip(kept, before, strict=True):  # nobody reads what is not written
                each.clear()
                each.update(held)
            del self.units[unit.node]
            self.absorbed.discard(unit.activation)
            return False
        self._finish(unit)
        return True

    def _refuse(self, node: ir.Node, reason: str) -> None:
        kind = f"{node.domain}:{node.op_type}" if node.domain and not node.domain.startswith(IMAGES) else node.op_type
        key = f"{kind} ({reason})"
        count, first = self.refused.get(key, (0, _place(node)))
        self.refused[key] = (count + 1, first)
        self.unwritten.add(node.outputs[0].name or "")
        self._leave_out(node)

    def _leave_out(self, node: ir.Node) -> None:
        """Let others read the outputs of a node that is not written: there is no file, but all its reasons are told."""
        for value in node.outputs:
            if value.shape is None or value.dtype not in TYPES:
                self.unknown.add(value)
            else:
                self.tensors.setdefault(value, DraftTensor("", _type(value), _dims(value)))

    def _refuse_end(self, kind: str, value: ir.Value, reason: str, nodes: Sequence[ir.Node | None]) -> None:
        self.refused[f"{kind} {value.name} ({reason})"] = (1, value.name or "")
        self.unwritten.update(node.outputs[0].name or "" for node in nodes if node is not None)
        self.tensors.setdefault(value, DraftTensor("", TensorType.FLOAT32, ()))

    def _is_in_unit(self, node: ir.Node) -> bool:
        value = node.inputs[0]
        producer = None if value is None else value.producer()
        return producer is not None and (producer in self.units or producer in self.absorbed)

    def values_of(self, names: Collection[str]) -> dict[str, list[ir.Value]]:
        """Return the values that are tensors of these names; constants are left out."""
        found: dict[str, list[ir.Value]] = {}
        for value, tensor in self.tensors.items():
            if tensor.name in names and tensor.data is None:
                found.setdefault(tensor.name, []).append(value)
        for value in self.graph.outputs:  # one that is a copy of a tensor of another name
            if value.name and value not in found.setdefault(value.name, []):
                found[value.name].append(value)
        return found

    # Values.

    def dims_of(self, value: ir.Value) -> Dims:
        """Return the extents of a value.

        Raises:
            Unwritable: its rank is not known.
        """
        if value.shape is None:
            raise Unwritable("the rank of an operand or result is not known")
        return _dims(value)

    def type_of(self, value: ir.Value) -> TensorType:
        """Return the type of a value's elements between operators."""
        return _type(value)

    def stored_type(self, value: ir.Value) -> TensorType:
        """Return the type of a value's elements where it is an input or output of the file."""
        return stored_type(value)

    def tensor_of(self, value: ir.Value, *, integers: bool = False) -> DraftTensor:
        """Return the tensor of a value; with `integers` those of which it was made, where it was dequantized."""
        node = value.producer()
        if node is not None and node.op_type == DEQUANTIZE and not node.domain:
            source = node.inputs[0]
            assert source is not None
            if integers:
                return self.integers_of(source, node)
            if value not in self.tensors:
                self.tensors[value] = self._dequantized(value, source, node)
            return self.tensors[value]
        if value not in self.tensors:
            if value.const_value is None:
                raise Unwritable("an operand is not computed before it is read")
            self.tensors[value] = self._constant(value)
        return self.tensors[value]

    def integers_of(self, value: ir.Value, reader: ir.Node | None = None) -> DraftTensor:
        """Return the tensor of integers that are read as real numbers, of a type that kernels take.

        Raises:
            Unwritable: their scale is computed, or others read them with another one.
        """
        scale, zero, axis = self._scales(value, reader)
        kind = _type(value)
        signed, shift = self.shifts.get(kind, (kind, 0))
        quantization = Quantization(scale, zero - shift, axis)
        if value not in self.integers:
            if value.const_value is not None and not value.is_graph_input():
                self.integers[value] = self._integer_constant(value, signed, shift, quantization)
            elif shift and value in self.tensors:
                self._require_meaning(self.tensors[value], kind, quantization, shift)
                made = self.draft.tensor(f"{value.name}/{signed.name.lower()}", signed, _dims(value), quantization)
                source = self.tensors[value]
                source.quantization = source.quantization or Quantization(scale, zero, axis)
                change_sign(self.draft, source, made)
                self.integers[value] = made
            else:
                tensor = self.tensors[value]
                tensor.quantization = tensor.quantization or quantization
                self.integers[value] = tensor
        self._require_meaning(self.integers[value], kind, quantization, shift)
        return self.integers[value]

    @staticmethod
    def _require_meaning(tensor: DraftTensor, kind: TensorType, wanted: Quantization, shift: int) -> None:
        """Refuse integers that mean other numbers to those that made them, or to others that read them.

        Args:
            tensor: the integers.
            kind: their type in the source.
            wanted: what they mean to the one that reads them, once they are signed.
            shift: how much lower they lie once they are signed.

        Raises:
            Unwritable: they do.
        """
        wanted = wanted._replace(zero_point=wanted.zero_point + (shift if tensor.type == kind else 0))
        tensor.quantization = tensor.quantization or wanted
        if not wanted.equals(tensor.quantization):
            raise Unwritable("integers that are read with two scales")

    def quantization_of(self, value: ir.Value) -> Quantization | None:
        """Return what the integers of a value mean, if anything in the graph says so."""
        if value not in self.parameters or value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
            return None
        scale, zero, axis = self.parameters[value]
        if scale.size > 1:  # of no constant: LiteRT's kernels take one scale
            return None
        return Quantization(scale, zero, axis)

    def _scales(self, value: ir.Value, reader: ir.Node | None) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
        if reader is not None and (found := _scales_of(reader)) is not None:
            return found
        if value not in self.parameters:
            raise Unwritable("the scale of its integers is computed")
        return self.parameters[value]

    def _integer_constant(
        self, value: ir.Value, kind: TensorType, shift: int, quantization: Quantization
    ) -> DraftTensor:
        tensor = value.const_value
        assert tensor is not None
        name = self.draft.unique(value.name or "constant")
        if shift:
            signed = np.int8 if kind == TensorType.INT8 else np.int16
            lowered: NDArray[Any] = (tensor.numpy().astype(np.int32) - shift).astype(signed)
            data = np.frombuffer(lowered.tobytes(), np.uint8)
            return DraftTensor(name, kind, lowered.shape, data, lowered, quantization)
        array = tensor.numpy() if tensor.size <= SMALL and kind != TensorType.INT4 else None
        return DraftTensor(name, kind, _dims(value), TensorContent(tensor), array, quantization)

    def _constant(self, value: ir.Value) -> DraftTensor:
        tensor = value.const_value
        assert tensor is not None
        if tensor.dtype not in TYPES:
            raise Unwritable(f"constants of {tensor.dtype.name}")
        kind = TYPES[tensor.dtype]
        array = tensor.numpy() if tensor.size <= SMALL and kind != TensorType.INT4 else None
        size = nbytes(tensor.dtype, tuple(tensor.shape.numpy()))
        data: Any = TensorContent(tensor) if size else np.zeros(0, np.uint8)
        name = self.draft.unique(value.name or "constant")
        made = DraftTensor(name, kind, tuple(tensor.shape.numpy()), data, array)
        return self._in_single(made) if kind == TensorType.FLOAT16 else made

    def _in_single(self, half: DraftTensor) -> DraftTensor:
        """Return a constant in half precision as kernels read it: small ones in single, others behind a DEQUANTIZE."""
        if half.array is not None and half.array.size <= FEW:
            return self.draft.constant(half.name, half.array.astype(np.float32))
        single = self.draft.tensor(f"{half.name}/float32", TensorType.FLOAT32, half.dims)
        self.draft.add("DEQUANTIZE", [half], [single])
        return single

    def _dequantized(self, value: ir.Value, source: ir.Value, node: ir.Node) -> DraftTensor:
        scales = _scales_of(node)
        by_axis = scales is not None and scales[0].size > 1
        has_kernel = source.dtype in DEQUANTIZED and not (by_axis and source.dtype == ir.DataType.INT16)
        if source.const_value is not None and not has_kernel and not source.is_graph_input():
            constant = self._dequantized_constant(value, source.const_value, node)
            if constant is not None:
                return constant
        unscaled = source.dtype in UNSCALED or (by_axis and (source.const_value is None or source.is_graph_input()))
        integers = None if unscaled else self._integers_or_none(source, node)
        if integers is None or has_zero_point_of_16_bits(integers):
            return self._scaled(value, source, node)
        name = value.name or "dequantized"
        named = name if value.is_graph_output() else self.draft.unique(name)
        result = DraftTensor(named, _type(value), _dims(value))
        self.draft.add("DEQUANTIZE", [integers], [result])
        return result

    def _dequantized_constant(self, value: ir.Value, integers: ir.TensorProtocol, node: ir.Node) -> DraftTensor | None:
        """Return what DEQUANTIZE has no kernel for: the integers of a bias; None where their scale is computed."""
        found = _scales_of(node)
        if found is None:
            return None
        scale, zero, axis = found
        array = integers.numpy().astype(np.float64)
        if scale.size > 1:
            shape = [-1 if place == axis else 1 for place in range(array.ndim)]
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        else:
            scale, zero = scale[0], zero[0]
        return self.draft.constant(value.name or "constant", ((array - zero) * scale).astype(np.float32))

    def moves_shifted(self, node: ir.Node) -> bool:
        """Return whether a node moves integers that are all stored as signed ones: then its results are, too."""
        if node.op_type not in MOVING:
            return False
        values = node.inputs if node.op_type in JOINING else node.inputs[:1]
        tensors = [self.tensors.get(value) for value in values if value is not None]
        kinds = [TYPES.get(value.dtype) if value.dtype else None for value in values if value is not None]
        shifted = (
            tensor is not None and kind is not None and tensor.type != kind
            for tensor, kind in zip(tensors, kinds, strict=True)
        )
        return all(shifted) and bool(tensors)

    def _moved(self, node: ir.Node, value: ir.Value) -> DraftTensor | None:
        """Return the integers that a node moves, whose meaning its result has, too."""
        source = node.inputs[0] if node.op_type in MOVING and node.inputs else None
        if source is None or source.dtype != value.dtype or value.dtype not in INTEGERS:
            return None
        tensor = self.tensors.get(source)
        return tensor if tensor is None or self.moves_shifted(node) or tensor.type == _type(value) else None

    def as_stated(self, value: ir.Value, tensor: DraftTensor) -> DraftTensor:
        """Return integers in the type that ONNX states, where they are stored as signed ones."""
        if value.dtype not in INTEGERS or tensor.type == _type(value) or tensor.quantization is None:
            return tensor
        if value not in self._stated:
            kind = _type(value)
            scale, zero, axis = tensor.quantization
            _, shift = SHIFTS[kind]
            dims = self.dims_of(value)
            made = self.draft.tensor(
                f"{value.name}/{kind.name.lower()}", kind, dims, Quantization(scale, zero + shift, axis)
            )
            change_sign(self.draft, tensor, made)
            self._stated[value] = made
        return self._stated[value]

    def _integers_or_none(self, source: ir.Value, node: ir.Node) -> DraftTensor | None:
        try:
            return self.integers_of(source, node)
        except Unwritable:
            return None

    def _scaled(self, value: ir.Value, source: ir.Value, node: ir.Node) -> DraftTensor:
        """Return what integers mean where no kernel knows: their distance from the zero point times the scale."""
        op = NodeExport(self, node)
        steps, rank = Steps(op), op.rank(0)
        number = steps.cast(op.input(0), TensorType.FLOAT32)
        axis, block = op.axis(1), op.integer("block_size")
        scales = [steps.cast(op.input(slot), TensorType.FLOAT32) for slot in (1, 2) if op.has(slot)]
        for place, scale in enumerate(scales):
            if block:
                (extent,) = known(number.dims[axis : axis + 1])
                scales[place] = steps.gather(scale, steps.ints(np.arange(extent) // block), axis)
            elif len(scale.dims) == 1:
                scales[place] = steps.reshape(scale, [scale.dims[0] if each == axis else 1 for each in range(rank)])
        if len(scales) > 1:
            number = steps.sub(number, scales[1])
        return steps.mul(number, scales[0])

    # Results.

    def result_of(self, node: NodeExport, slot: int) -> DraftTensor:
        """Return the tensor that an operator writes for a node's output."""
        value = node.node.outputs[slot]
        unit = self.units.get(node.node)
        if unit is None:
            if value not in self.tensors:
                name = value.name or ""
                is_output = value.is_graph_output() and stored_type(value) == _type(value)
                named = name if is_output else self.draft.unique(name or node.op_type)
                made = DraftTensor(named, _type(value), self.dims_of(value))
                made.quantization = self.quantization_of(value)  # kernels refuse integers that only some have
                source = self._moved(node.node, value)
                if source is not None:
                    made.type, made.quantization = source.type, source.quantization
                self.tensors[value] = made
            return self.tensors[value]
        if unit.kernel is None:
            return self._integer_result(unit, value)
        if value not in self._before:
            scale, zero = unit.kernel
            kind = self._integer_result(unit, value).type
            meaning = Quantization(np.array([scale], np.float32), np.array([zero + self._raised(kind)], np.int64), 0)
            self._before[value] = self.draft.tensor(f"{value.name}/kernel", kind, self.dims_of(value), meaning)
        return self._before[value]

    @staticmethod
    def _raised(kind: TensorType) -> int:
        """Return how much higher integers lie than the signed ones of the same width."""
        return 128 if kind == TensorType.UINT8 else 0

    def _finish(self, unit: UnitNodes) -> None:
        """Write what a unit's kernel does besides, and what follows it."""
        for value in unit.node.outputs:
            given = self.result_of(NodeExport(self, unit.node, quantized=True), unit.node.outputs.index(value))
            if unit.fused:
                operator = next(each for each in reversed(self.draft.operators) if given in each.outputs)
                operator.options["fused_activation_function"] = unit.fused
            if unit.kernel is not None:
                self.draft.add("QUANTIZE", [given], [self._integer_result(unit, value)])

    def _integer_result(self, unit: UnitNodes, value: ir.Value) -> DraftTensor:
        """Return the integers that a unit's kernel gives: those of its QuantizeLinear, or some before a QUANTIZE."""
        source = value if unit.activation is None or slot_of(unit, value) else unit.activation.outputs[0]
        quantize = unit.quantize[source][0]
        target = quantize.outputs[0]
        if target not in self.integers:
            scale, zero, axis = self._scales(target, quantize)
            kind = _type(target)
            signed, shift = self.shifts.get(kind, (kind, 0))
            dims = self.dims_of(value)
            if target.is_graph_output() and shift:
                name = self.draft.unique(f"{target.name}/{signed.name.lower()}")
            else:
                name = target.name or "" if target.is_graph_output() else self.draft.unique(target.name or "integers")
            made = DraftTensor(name or "", signed, dims, quantization=Quantization(scale, zero - shift, axis))
            for each in unit.quantize[source]:
                self.integers[each.outputs[0]] = made
                self.tensors[each.outputs[0]] = made
        return self.integers[target]

    def alias(self, node: NodeExport, slot: int, tensor: DraftTensor) -> None:
        """Let a tensor be a node's output. One that the last operator gives takes the output's name."""
        value = node.node.outputs[slot]
        if not node.quantized and not value.is_graph_output():
            self.tensors[value] = tensor
            return
        result = self.result_of(node, slot)
        last = self.draft.operators[-1] if self.draft.operators else None
        named = any(self.tensors.get(end) is tensor for end in self.graph.outputs)
        is_new = len(self.draft.operators) > self.begin and not named
        if last is not None and tensor in last.outputs and is_new:
            last.outputs = [result if each is tensor else each for each in last.outputs]
            if result.type == tensor.type and not node.quantized:
                result.quantization = tensor.quantization or result.quantization
            for known in (self.tensors, self.integers):  # whoever reads it under another name
                known.update({each: result for each, held in known.items() if held is tensor})
        else:
            self._copy(tensor, result)

    def _copy(self, tensor: DraftTensor, result: DraftTensor) -> None:
        """Give a tensor a second name; of extents that are known only at run time SHAPE tells them."""
        shape = self.draft.constant("shape", np.array(tensor.shape, np.int32))
        if not tensor.is_static:
            shape = self.draft.tensor("shape", TensorType.INT32, (len(tensor.dims),))
            self.draft.add("SHAPE", [tensor], [shape], out_type=TensorType.INT32)
        self.draft.add("RESHAPE", [tensor, shape], [result])

    def _output(self, value: ir.Value) -> DraftTensor:
        tensor = self.tensors.get(value)
        if tensor is None:
            tensor = self.tensor_of(value)
        kind = stored_type(value)
        if tensor.type != kind or tensor in self.draft.inputs or tensor.data is not None or tensor.name != value.name:
            meaning = self.quantization_of(value) or _raised(tensor, kind)
            result = DraftTensor(value.name or "", kind, self.dims_of(value), quantization=meaning)
            if kind != _type(value):
                self.draft.add("CAST", [tensor], [result], in_data_type=tensor.type, out_data_type=kind)
            elif tensor.type != kind:
                if result.quantization is None and tensor.quantization is not None:
                    scale, zero, axis = tensor.quantization
                    result.quantization = Quantization(scale, zero + SHIFTS[kind][1], axis)
                change_sign(self.draft, tensor, result)
            else:
                self._copy(tensor, result)
            return result
        return tensor

    def shape_tensor(self, node: NodeExport, dims: Dims, source: DraftTensor) -> DraftTensor:
        """Return extents as a tensor of int32, for operators that take a shape.

        Args:
            node: the node that is written.
            dims: the extents; of one that is known only at run time RESHAPE finds out by itself.
            source: what is reshaped: its extents are read where several are not known.

        Raises:
            Unwritable: extents that `source` does not have.
        """
        unknown = [dim for dim in dims if not isinstance(dim, int)]
        if len(unknown) <= 1:
            return node.ints32([dim if isinstance(dim, int) else -1 for dim in dims], "shape")
        listed = node.emit("SHAPE", [source], (len(source.dims),), TensorType.INT32, out_type=TensorType.INT32)
        pieces = []
        for dim in dims:
            if isinstance(dim, int):
                pieces.append(node.ints32([dim]))
            elif dim in source.dims:
                place = source.dims.index(dim)
                pieces.append(
                    node.emit("SLICE", [listed, node.ints32([place]), node.ints32([1])], (1,), TensorType.INT32)
                )
            else:
                raise Unwritable("several extents of a shape are known only at run time")
        return node.emit("CONCATENATION", pieces, (len(dims),), TensorType.INT32, axis=0)


def _raised(tensor: DraftTensor, kind: TensorType) -> Quantization | None:
    """Return what integers mean as those of another type, of the same width."""
    meaning = tensor.quantization
    if meaning is None or tensor.type == kind or kind not in SHIFTS:
        return None
    return meaning._replace(zero_point=meaning.zero_point + SHIFTS[kind][1])


def slot_of(unit: UnitNodes, value: ir.Value) -> bool:
    """Return whether a QuantizeLinear reads an output of a unit's node itself, not that of its activation."""
    return value in unit.quantize


def stored_type(value: ir.Value) -> TensorType:
    """Return the type of a value's elements where it is an input or output of the file.

    Raises:
        Unwritable: TensorFlow Lite has none.
    """
    if value.dtype is None:
        raise Unwritable("the element type of an operand or result is not known")
    if value.dtype not in TYPES:
        raise Unwritable(f"elements of {value.dtype.name}")
    return TYPES[value.dtype]


def _type(value: ir.Value) -> TensorType:
    """Return the type of a value's elements between operators: kernels compute half precision in single."""
    kind = stored_type(value)
    return TensorType.FLOAT32 if kind == TensorType.FLOAT16 else kind


def _dims(value: ir.Value) -> Dims:
    assert value.shape is not None
    return tuple(
        dim if isinstance(dim, int) else str(dim.value or f"?{value.name}.{axis}")
        for axis, dim in enumerate(value.shape)
    )


def _parameters(graph: ir.Graph) -> Iterator[tuple[ir.Value, tuple[NDArray[np.float32], NDArray[np.int64], int]]]:
    """Yield integers and what they mean: of each DequantizeLinear its operand, of each QuantizeLinear its result."""
    for node in graph:
        if node.domain or node.op_type not in (DEQUANTIZE, QUANTIZE):
            continue
        integers = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0]
        found = _scales_of(node)
        if integers is not None and found is not None:
            yield integers, found


def _scales_of(node: ir.Node) -> tuple[NDArray[np.float32], NDArray[np.int64], int] | None:
    """Return the scale, zero point and axis of a QuantizeLinear or DequantizeLinear; None where they are computed."""
    scale = None if len(node.inputs) < 2 or node.inputs[1] is None else node.inputs[1].const_value
    if scale is None or node.attributes.get_int("block_size", 0) != 0:
        return None
    zero_value = node.inputs[2] if len(node.inputs) > 2 else None
    if zero_value is not None and zero_value.const_value is None:
        return None
    scales = scale.numpy().astype(np.float32).reshape(-1)
    zero = None if zero_value is None or zero_value.const_value is None else zero_value.const_value.numpy()
    zeros = np.zeros(scales.shape, np.int64) if zero is None else zero.astype(np.int64).reshape(-1)
    rank = 1 if node.inputs[0] is None or node.inputs[0].shape is None else len(node.inputs[0].shape)
    return scales, zeros, node.attributes.get_int("axis", 1) % max(rank, 1) if scales.size > 1 else 0


def _place(node: ir.Node) -> str:
    """Return where an operator is: its name, or the source's name of its result.

    A result that is stored in another order is called by the source's name and that order: `y__nhwc`.
    """
    name, result = label(node), node.outputs[0]
    try:
        held = Holds.load(result.metadata_props.get(Holds.KEY, "[]"))
    except LayoutError:  # metadata of others
        held = []
    return next((each.name for each in held if not node.name and name.startswith(f"{each.name}__")), name)
