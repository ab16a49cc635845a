"""One graph of a model, or one body, and the subgraph of the file that it becomes."""

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.folding import run_node
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.flexbuffer import FlexOption, to_flexbuffer
from relayout.formats.tflite.exporting.constants import constant_tensor, refused_texts, require_text_kernel
from relayout.formats.tflite.exporting.draft import NUMPY, Draft, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.few_axes import use_few_axes
from relayout.formats.tflite.exporting.integers import IntegerTensors
from relayout.formats.tflite.exporting.kernel_types import (
    TENSOR_TYPES,
    kernel_type,
    mixed_types,
    require_broadcast,
    require_scales,
    stored_type,
    tensor_dims,
    widen,
)
from relayout.formats.tflite.exporting.node import IMAGES, NodeExport
from relayout.formats.tflite.exporting.older import refuse_newer, write_for
from relayout.formats.tflite.exporting.refusals import Refusals
from relayout.formats.tflite.exporting.registry import REFUSAL, Entry, OpenExtentError, Unwritable, export_of, is_custom
from relayout.formats.tflite.exporting.scales import (
    SHIFTS,
    SHIFTS_OF_WORDS,
    change_sign,
    raised,
    scales_in,
)
from relayout.formats.tflite.exporting.units import QuantizedUnits, UnitNodes, UnitResults, real_numbers
from relayout.formats.tflite.exporting.variables import DraftVariables
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, dequantizer_of

MOST_ELEMENTS = 1 << 31  # elements of a result: kernels count them in 32 bits

# Operands and results without elements: kernels refuse most of them, and what comes of them is known.

COMBINING = ("Reduce", "Arg", "MatMul", "Gemm", "GlobalAveragePool", "GlobalMaxPool")
"""Beginnings of the names of operators that combine elements of their first operand."""


def write_empty(op: NodeExport) -> bool:
    """Write a node as constants if no element goes into its results; return whether it is so."""
    slots = [slot for slot, value in enumerate(op.node.outputs) if value.name]
    if not op.node.inputs or not slots:
        return False
    if all(_has_none(op.node.outputs[slot]) for slot in slots):
        if any(kernel_type(op.node.outputs[slot]) == TensorType.STRING for slot in slots):
            raise Unwritable("texts without elements")
        arrays = [np.zeros(known(op.out_dims(slot)), NUMPY[kernel_type(op.node.outputs[slot])]) for slot in slots]
    elif op.op_type.startswith(COMBINING) and _has_none(op.node.inputs[0]):
        arrays = _combined(op)
    else:
        return False
    for slot, array in zip(slots, arrays, strict=True):
        op.give(op.const(array), slot)
    return True


def _has_none(value: ir.Value | None) -> bool:
    """Return whether it is known that a value has no elements."""
    dims = [] if value is None or value.shape is None else list(value.shape)
    return 0 in dims and all_known(dims)


def _combined(op: NodeExport) -> list[NDArray[Any]]:
    """Return what a node gives by ONNX's reference: its first operand has no elements."""
    operands: dict[str, NDArray[Any]] = {}
    for slot, value in enumerate(op.node.inputs):
        if value is not None and value.dtype is not None:
            array = op.constant(slot)
            if array is None and not _has_none(value):
                raise Unwritable("an operand without elements")
            shape = () if value.shape is None else value.shape.numpy()
            operands[value.name or ""] = np.zeros(shape, value.dtype.numpy()) if array is None else array
    results = run_node(op.graph.model, op.node, operands)
    if results is None:
        raise Unwritable("an operand without elements")
    return [array for array, value in zip(results, op.node.outputs, strict=True) if value.name]


# A node that the user asks for as a custom operator: LiteRT computes it where the application registers a kernel.

RAW = "custom_options"  # the attribute of a node that was read from a `.tflite` whose options are no map: their bytes


def write_custom(op: NodeExport) -> None:
    """CUSTOM of the node's name: its attributes are a FlexBuffer map."""
    inputs = [op.input(slot) if op.has(slot) else None for slot in range(len(op.node.inputs))]
    outputs = [op.output(slot) for slot in range(len(op.node.outputs))]
    raw = op.node.attributes.get(RAW)
    if raw is not None and raw.type == ir.AttributeType.TENSOR:
        options = raw.as_tensor().tobytes()
    else:
        attributes = {name: _option(attribute) for name, attribute in op.node.attributes.items()}
        options = to_flexbuffer(attributes) if attributes else b""
    op.draft.add(f"CUSTOM {op.op_type}", inputs, outputs, options)


def _option(attribute: ir.Attr) -> FlexOption:
    kinds = ir.AttributeType
    if attribute.type in (kinds.INT, kinds.FLOAT, kinds.STRING, kinds.INTS, kinds.FLOATS, kinds.STRINGS):
        value: FlexOption = attribute.value
        return value
    raise Unwritable(f"its attribute {attribute.name} is neither a number nor a text, nor a list of these")


class FileRuntime(NamedTuple):
    """The runtime that a file is for, and what is asked of the file."""

    unsigned: bool  # whether unsigned integers stay so
    custom_ops: Mapping[str, str]  # operators that become CUSTOM ones, by name -> their domain; "" for any
    oldest: str  # the oldest runtime that has to run the file; "": any
    unrolls: bool  # whether the steps of an LSTM are written one by one, for want of a kernel that runs them all
    has_lstm: bool  # whether the runtime has a kernel that runs all steps of an LSTM of real numbers
    for_integers: bool  # whether a quantizer makes integers of all values: it sees none of a loop or a kernel's states


class GraphExport:
    """A graph and the subgraph that it becomes."""

    def __init__(
        self,
        model: ir.Model,
        graph: ir.Graph,  # its graph, or a body
        units: QuantizedUnits,  # the operators that run on integers
        runtime: FileRuntime,  # what has to run the file
        program: list[Draft] | None = None,  # the graphs of the file, if this one is a body
        refusals: Refusals | None = None,  # what cannot be written, gathered over all graphs, if this one is a body
    ) -> None:
        self.model, self.graph, self.runtime = model, graph, runtime
        self.program: list[Draft] = [] if program is None else program
        """All graphs of the file under construction; this one and its bodies are among them."""
        self.units = dict(units)
        self.version = model.opset_imports.get("", 1)
        self.draft = Draft(graph.name or "main")
        self.program.append(self.draft)
        self.variables = DraftVariables()
        self.tensors: dict[ir.Value, DraftTensor] = {}
        self.refusals = Refusals() if refusals is None else refusals
        self.integers = IntegerTensors(
            self.draft, self.tensors, scales_in(graph), SHIFTS_OF_WORDS if runtime.unsigned else SHIFTS
        )
        self.unit_results = UnitResults(self.draft, self.integers, runtime.oldest)
        self.absorbed = {unit.activation for unit in units.values() if unit.activation is not None}
        self.transposed_blocks: dict[ir.Value, DraftTensor] = {}
        """Dequantized matrix of a constant in blocks -> the real numbers of the transposed matrix."""
        self.unknown: set[ir.Value | None] = set()
        """Results of operators that cannot be written, of which nothing is known."""
        self.end_names: dict[str, str] = {}  # input or output -> its tensor's name, where that is another one
        self.begin = 0  # how many operators there were before those of the node that is translated

    def run(self) -> None:
        """Translate every node; what cannot be written is collected in `refusals`."""
        ends = {value.name for value in (*self.graph.inputs, *self.graph.outputs) if value.name}
        for name in ends:
            self.draft.unique(name)
        self.draft.reserved = frozenset(value.name for node in self.graph for value in node.outputs if value.name)
        for value in self.graph.inputs:
            self._input(value)
        self.write()
        self.draft.operators[:0] = self.draft.leading
        for value in self.graph.outputs:
            self._write_output(value)
        if not self.refusals.reasons:
            self._name_values()

    def _name_values(self) -> None:
        """Give tensors the names of the values that they hold: names of their own would be longer after each import."""
        tensor_names = {tensor.name for tensor in self.draft.tensors()}
        values = {value.name for value in self.tensors}
        for value, tensor in self.tensors.items():
            if not value.name or value.name in tensor_names or tensor.name in values or tensor.data is not None:
                continue
            if tensor not in self.draft.inputs and tensor.type == kernel_type(value):
                tensor.name = value.name
                tensor_names.add(self.draft.taken(value.name))

    def write(self) -> None:
        """Translate every node; what cannot be written is collected in `refusals`."""
        for node in self.graph:
            self._node(node)

    # Bodies.

    def body(self, graph: ir.Graph) -> "GraphExport":
        """Return the export of a body: a graph of its own in the file; what it refuses, this one refuses."""
        return GraphExport(self.model, graph, self.units, self.runtime, self.program, self.refusals)

    def take(self, values: Sequence[ir.Value]) -> None:
        """Let a body read values of the graph around it, by operands of its own."""
        for value in values:
            tensor = DraftTensor(self.draft.unique(value.name or "outer"), kernel_type(value), tensor_dims(value))
            self.tensors[value] = tensor
            self.draft.inputs.append(tensor)

    def give_all(self, values: Sequence[ir.Value], op: NodeExport) -> None:
        """Let a body give values, of the types that a node's outputs have."""
        tensors = [self.tensor_of(value) for value in values if not self.refusals.reasons and value not in self.unknown]
        self.draft.outputs = self.distinct(tensors)

    def distinct(self, tensors: Sequence[DraftTensor], *, is_round: bool = False) -> list[DraftTensor]:
        """Return a body's outputs: none of them is a constant, or a tensor that LiteRT loses.

        It loses an input beside a tensor of open extents, and what it computes if that is two outputs. From round to
        round it copies one tensor after the other, so that an input can be an output at its own place alone.

        Args:
            tensors: the outputs.
            is_round: whether they are the inputs of the next round.
        """
        self._name_values()
        inputs, outputs = self.draft.inputs, list[DraftTensor]()
        is_static = all(tensor.is_static for tensor in (*inputs, *tensors))
        for place, tensor in enumerate(tensors):
            result = tensor
            is_kept = tensor in inputs and is_static and (inputs[place] is tensor if is_round else True)
            is_lost = (tensor in inputs and not is_kept) or (tensor in outputs and (is_round or not is_kept))
            if is_lost or tensor.data is not None:
                result = self.draft.tensor(f"{tensor.name}/given", tensor.type, tensor.dims, tensor.quantization)
                self.copy(tensor, result)
            outputs.append(result)
        return outputs

    def _input(self, value: ir.Value) -> None:
        try:
            tensor = DraftTensor(value.name or "", stored_type(value), tensor_dims(value))
        except Unwritable as problem:
            self._refuse_end("input", value, problem.reason, [use.node for use in value.uses()])
            return
        tensor.quantization = self.integers.meaning(value)
        self.draft.inputs.append(tensor)
        kind = kernel_type(value)
        if tensor.type == kind:
            self.tensors[value] = tensor
            return
        self.tensors[value] = self.draft.tensor(f"{value.name}/{kind.name.lower()}", kind, tensor.dims)
        self.draft.add_cast(tensor, self.tensors[value])

    def _write_output(self, value: ir.Value) -> None:
        if self.refusals.reasons or value in self.unknown:
            return
        try:
            self.draft.outputs.append(self._output(value))
        except Unwritable as problem:
            self._refuse_end("output", value, problem.reason, [value.producer()])

    # Complexity: each kind of node that is no builtin of its own is one guard.
    def _node(self, node: ir.Node) -> None:
        if any(value in self.unknown for value in node.inputs):
            self._leave_out(node)
            return
        if node in self.absorbed or (node.op_type == DEQUANTIZE and not node.domain):
            return  # read where it is wanted
        if node.op_type == QUANTIZE and self._is_in_unit(node):
            return
        domain = "" if node.domain == "ai.onnx" or node.domain.startswith(IMAGES) else node.domain
        entry = export_of((domain, node.op_type))
        try:
            if is_custom((domain, node.op_type), self.runtime.custom_ops):
                write_custom(NodeExport(self, node))
            elif entry is None:
                raise node.meta.get(REFUSAL) or Unwritable("TensorFlow Lite has no such operator")
            elif reason := mixed_types(node, self.version) or refused_texts(node) or _reason_of_size(node):
                raise Unwritable(reason)
            else:
                self.begin, known = len(self.draft.operators), len(self.program)
                self._export(node, entry)
                if node.domain != DOMAIN:  # a builtin that was read has types that its kernel takes
                    if node not in self.units:  # nor has a unit on integers others
                        widen(self.draft, self.begin)
                    use_few_axes(self.draft, self.begin)
                for new_operator in self.draft.operators[self.begin :]:
                    require_broadcast(new_operator)
                    require_text_kernel(new_operator)
                if self.runtime.oldest:
                    for draft in (self.draft, *self.program[known:]):  # its own, and bodies that it made
                        write_for(draft, self.begin if draft is self.draft else 0, self.runtime.oldest)
                for operator in self.draft.operators[self.begin :]:
                    operator.node = node.outputs[0].name or ""
        except OverflowError:
            self._refuse(node, "a number that does not fit 32 bits")
        except Unwritable as problem:
            if isinstance(problem, OpenExtentError):
                self.refusals.open_extents |= problem.extents or _open_extents(node)
            self._refuse(node, problem.reason)

    def _export(self, node: ir.Node, entry: Entry) -> None:
        """Write a node: on integers where it can be, as constants where it has no elements, else as its export says."""
        if node in self.units and self._on_integers(entry, self.units[node]):
            return
        op = NodeExport(self, node)
        if not write_empty(op):
            entry.export(op)

    def _on_integers(self, entry: Entry, unit: UnitNodes) -> bool:
        """Write a unit as its operator on integers; False where that cannot be: it stays on real numbers."""
        tables = (self.tensors, self.integers.by_value, self.integers.stated, self.unit_results.before)
        before = [dict(each) for each in tables]
        try:
            entry.export(NodeExport(self, unit.node, quantized=True))
            for new_operator in self.draft.operators[self.begin :]:
                require_scales(new_operator)
            if self.runtime.oldest:
                refuse_newer(self.draft, self.begin, self.runtime.oldest)
        except Unwritable:
            del self.draft.operators[self.begin :]
            for each, copy in zip(tables, before, strict=True):  # nobody reads what is not written
                each.clear()
                each.update(copy)
            del self.units[unit.node]
            self.absorbed.discard(unit.activation)
            return False
        self.unit_results.finish(unit)
        return True

    def _refuse(self, node: ir.Node, reason: str) -> None:
        self.refusals.refuse(node, reason)
        self._leave_out(node)

    def _leave_out(self, node: ir.Node) -> None:
        """Let others read the outputs of a node that is not written: there is no file, but all its reasons are told."""
        for value in node.outputs:
            if value.shape is None or value.dtype not in TENSOR_TYPES:
                self.unknown.add(value)
            else:
                self.tensors.setdefault(value, DraftTensor("", kernel_type(value), tensor_dims(value)))

    def _refuse_end(self, kind: str, value: ir.Value, reason: str, nodes: Sequence[ir.Node | None]) -> None:
        self.refusals.refuse_end(kind, value, reason, nodes)
        self.tensors.setdefault(value, DraftTensor("", TensorType.FLOAT32, ()))

    def _is_in_unit(self, node: ir.Node) -> bool:
        value = node.inputs[0]
        producer = None if value is None else value.producer()
        return producer is not None and (producer in self.units or producer in self.absorbed)

    def values_of(self, names: Collection[str]) -> dict[str, list[ir.Value]]:
        """Return the values that are tensors of these names; constants are left out."""
        values_by_name: dict[str, list[ir.Value]] = {}
        for value, tensor in self.tensors.items():
            if tensor.name in names and tensor.data is None:
                values_by_name.setdefault(tensor.name, []).append(value)
        for value in self.graph.outputs:  # one that is a copy of a tensor of another name
            name = self.end_names.get(value.name or "", value.name)
            if name and value not in values_by_name.setdefault(name, []):
                values_by_name[name].append(value)
        return values_by_name

    def name_ends(
        self,
        names: Mapping[str, str],  # name of an input or output -> the name that its tensor gets
    ) -> None:
        """Give tensors of inputs and outputs other names, where no tensor has these."""
        tensor_names = {tensor.name for tensor in self.draft.tensors()}
        for tensor in (*self.draft.inputs, *self.draft.outputs):
            name = names.get(tensor.name, "")
            if name and name not in tensor_names:
                self.end_names[tensor.name] = name
                tensor.name = name
                tensor_names.add(name)

    # Values.

    def tensor_of(self, value: ir.Value, *, integers: bool = False) -> DraftTensor:
        """Return the tensor of a value; with `integers` those of which it was made, where it was dequantized."""
        node = dequantizer_of(value)
        if node is not None:
            source = node.inputs[0]
            assert source is not None
            if integers:
                return self.integers.read(source, node)
            if value not in self.tensors:
                self.tensors[value] = real_numbers(self, value, source, node)
            return self.tensors[value]
        if value not in self.tensors:
            if value.const_value is None:
                raise Unwritable("an operand is not computed before it is read")
            self.tensors[value] = constant_tensor(self.draft, value)
        return self.tensors[value]

    # Results.

    def result_of(self, node: NodeExport, slot: int) -> DraftTensor:
        """Return the tensor that an operator writes for a node's output."""
        value = node.node.outputs[slot]
        unit = self.units.get(node.node)
        if unit is None:
            if value not in self.tensors:
                name = value.name or ""
                is_output = value.is_graph_output() and stored_type(value) == kernel_type(value)
                named = name if is_output else self.draft.unique(name or node.op_type)
                tensor = DraftTensor(named, kernel_type(value), tensor_dims(value))
                tensor.quantization = self.integers.meaning(value)  # kernels refuse integers that only some have
                source = self.integers.moved(node.node, value)
                if source is not None:
                    tensor.type, tensor.quantization = source.type, source.quantization
                self.tensors[value] = tensor
            return self.tensors[value]
        return self.unit_results.of(unit, value)

    def alias(self, node: NodeExport, slot: int, tensor: DraftTensor) -> None:
        """Let a tensor be a node's output. One that the last operator gives takes the output's name."""
        value = node.node.outputs[slot]
        if not node.quantized and not self._is_named(value):
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
            for known in (self.tensors, self.integers.by_value):  # whoever reads it under another name
                known.update({each: result for each, known_tensor in known.items() if known_tensor is tensor})
        elif node.quantized and result.quantization is not None and not result.quantization.equals(tensor.quantization):
            self.draft.add("QUANTIZE", [tensor], [result])
        else:
            self.copy(tensor, result)

    def _is_named(self, value: ir.Value) -> bool:
        """Return whether a value is an output of the model. Outputs of a body are seen to when all are written."""
        return value.is_graph_output() and self.draft is self.program[0]

    def copy(self, tensor: DraftTensor, result: DraftTensor) -> None:
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
            if tensor.name == value.name and tensor not in self.draft.inputs:
                tensor.name = self.draft.unique(f"{value.name}/{tensor.type.name.lower()}")
            meaning = self.integers.meaning(value) or raised(tensor, kind)
            result = DraftTensor(value.name or "", kind, tensor_dims(value), quantization=meaning)
            if kind != kernel_type(value):
                self.draft.add_cast(tensor, result)
            elif tensor.type != kind:
                change_sign(self.draft, tensor, result)
            else:
                self.copy(tensor, result)
            return result
        return tensor


def _open_extents(node: ir.Node) -> set[str]:
    """Return the extents of a node's operands and results that are known only at run time."""
    shapes = [value.shape or () for value in (*node.inputs, *node.outputs) if value is not None]
    return {str(dim.value) for shape in shapes for dim in shape if not isinstance(dim, int)}


def _reason_of_size(node: ir.Node) -> str:
    """Return the reason why no kernel can count what a node gives; empty where one can."""
    for value in node.outputs:
        if value.shape is not None and value.shape.is_static():
            count = prod(value.shape.numpy())
            if count >= MOST_ELEMENTS:
                return f"a tensor of {count:,} elements, which kernels count in 32 bits"
    return ""
