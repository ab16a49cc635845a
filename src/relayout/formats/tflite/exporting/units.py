"""A quantized unit, DequantizeLinear -> operator -> QuantizeLinear, that one operator on integers computes."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType, TensorType
from relayout.formats.tflite.container.model import Quantization, TensorContent
from relayout.formats.tflite.container.versions import version
from relayout.formats.tflite.exporting.blocks import blocks_of, folded
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor, known
from relayout.formats.tflite.exporting.integers import IntegerTensors
from relayout.formats.tflite.exporting.kernel_types import kernel_type, tensor_dims
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.older import is_older
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.scales import has_zero_point_of_16_bits
from relayout.graph.quantized_unit import scale_of

if TYPE_CHECKING:
    from relayout.formats.tflite.exporting.graph_export import GraphExport


class UnitNodes(NamedTuple):
    """The nodes that an operator on integers replaces."""

    node: ir.Node  # the operator between real numbers
    # output of the node, or of its activation -> the equal QuantizeLinear nodes that read it
    quantize: Mapping[ir.Value, tuple[ir.Node, ...]]
    activation: ir.Node | None = None  # a Relu or Clip between the two; None: there is none
    # the activation that the kernel applies, where the range of the integers does not imply it
    fused: ActivationFunctionType = ActivationFunctionType.NONE
    # the (scale, zero point) of signed integers that the kernel gives, where another is asked for: a QUANTIZE follows
    # it. None: as asked for.
    kernel: tuple[float, int] | None = None


QuantizedUnits = Mapping[ir.Node, UnitNodes]  # operator -> its unit, for the operators that run on integers


# The tensors that the kernels of quantized units write.


class UnitResults:
    """The results of the quantized units of one graph."""

    def __init__(
        self,
        draft: Draft,  # the subgraph under construction
        integers: IntegerTensors,  # its integers
        runtime: str = "",  # the oldest runtime that has to run it; "": any
    ) -> None:
        self.draft, self.integers, self.runtime = draft, integers, runtime
        self.before: dict[ir.Value, DraftTensor] = {}
        """Output of a unit's node -> what its kernel gives, before a QUANTIZE."""
        self.unread: dict[ir.Value, DraftTensor] = {}  # output of a unit's node that nobody reads -> its integers

    def of(self, unit: UnitNodes, value: ir.Value) -> DraftTensor:
        """Return the tensor that a unit's kernel writes for an output of its node."""
        if unit.kernel is None:
            return self._integer_result(unit, value)
        if value not in self.before:
            scale, zero = unit.kernel
            kind = self._integer_result(unit, value).type
            # Integers lie so much higher than the signed ones of the same width.
            zero += 128 if kind == TensorType.UINT8 else 0
            meaning = Quantization(np.array([scale], np.float32), np.array([zero], np.int64), 0)
            self.before[value] = self.draft.tensor(f"{value.name}/kernel", kind, tensor_dims(value), meaning)
        return self.before[value]

    def finish(self, unit: UnitNodes) -> None:
        """Write what a unit's kernel does besides, and what follows it."""
        for value in unit.node.outputs:
            tensor = self.of(unit, value)
            if unit.fused:
                self._activate(tensor, unit.fused)
            if unit.kernel is not None and (value.uses() or value.is_graph_output()):
                self.draft.add("QUANTIZE", [tensor], [self._integer_result(unit, value)])

    def _activate(self, tensor: DraftTensor, activation: ActivationFunctionType) -> None:
        """Let the kernel apply an activation, or an operator of its own where the runtime is older than that."""
        kernel = self._kernel(tensor)
        kernel.options["fused_activation_function"] = activation
        if self.runtime and is_older(self.runtime, kernel.name, version(*self.draft.described(kernel))):
            del kernel.options["fused_activation_function"]
            last = next(each for each in reversed(self.draft.operators) if tensor in each.outputs)
            before = self.draft.tensor(f"{tensor.name}/before", tensor.type, tensor.dims, tensor.quantization)
            last.outputs = [before if each is tensor else each for each in last.outputs]
            self.draft.add(activation.name, [before], [tensor])

    def _kernel(self, tensor: DraftTensor | None) -> DraftOperator:
        """Return the operator that computes a tensor: a convolution over one axis has a RESHAPE behind it."""
        operator = next(each for each in reversed(self.draft.operators) if tensor in each.outputs)
        return self._kernel(operator.inputs[0]) if operator.name == "RESHAPE" else operator

    def _integer_result(self, unit: UnitNodes, value: ir.Value) -> DraftTensor:
        """Return the integers that a unit's kernel gives: those of its QuantizeLinear, or some before a QUANTIZE."""
        source = value if unit.activation is None or value in unit.quantize else unit.activation.outputs[0]
        if source not in unit.quantize:  # nobody reads it: it means what other results of the operator do
            if value not in self.unread:
                like = self._integer_result(unit, next(each for each in unit.node.outputs if each in unit.quantize))
                self.unread[value] = self.draft.tensor(
                    f"{value.name}", like.type, tensor_dims(value), like.quantization
                )
            return self.unread[value]
        quantize = unit.quantize[source][0]
        target = quantize.outputs[0]
        if target not in self.integers.by_value:
            signed, shift, meaning = self.integers.stored(target, quantize)
            if target.is_graph_output() and shift:
                name = self.draft.unique(f"{target.name}/{signed.name.lower()}")
            else:
                name = target.name or "" if target.is_graph_output() else self.draft.unique(target.name or "integers")
            tensor = DraftTensor(name or "", signed, tensor_dims(value), quantization=meaning)
            for each in unit.quantize[source]:
                self.integers.by_value[each.outputs[0]] = tensor
                self.integers.tensors[each.outputs[0]] = tensor
        return self.integers.by_value[target]


# The real numbers that a DequantizeLinear makes of integers, where no kernel reads the integers themselves.

UNSCALED = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT16)  # integers that no DEQUANTIZE takes
DEQUANTIZED = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.INT4, ir.DataType.FLOAT16)
"""Types that DEQUANTIZE has kernels for."""


def real_numbers(
    graph: "GraphExport",  # the subgraph under construction
    value: ir.Value,  # the real numbers
    source: ir.Value,  # the integers
    node: ir.Node,  # the DequantizeLinear between the two
) -> DraftTensor:
    """Return the tensor of the real numbers that integers mean."""
    in_blocks = _from_blocks(graph.draft, node)
    if in_blocks is not None:
        return in_blocks
    scale = scale_of(node)
    by_axis = scale is not None and not scale.is_one
    stored = None if source.is_graph_input() else source.const_value
    has_kernel = source.dtype in DEQUANTIZED and not (by_axis and source.dtype == ir.DataType.INT16)
    # A delegate may not write what a DEQUANTIZE of a constant gives where it is a result of the graph.
    is_written = stored is not None and scale is not None and (not has_kernel or value.is_graph_output())
    if is_written and (numbers := folded(node)) is not None:
        return graph.draft.constant(value.name or "constant", numbers.numpy())
    integers = None
    if source.dtype not in UNSCALED and not (by_axis and stored is None):
        with suppress(Unwritable):
            integers = graph.integers.read(source, node)
    if integers is None or has_zero_point_of_16_bits(integers):
        return _scaled(graph, node)
    name = value.name or "dequantized"
    named = name if value.is_graph_output() else graph.draft.unique(name)
    result = DraftTensor(named, kernel_type(value), tensor_dims(value))
    graph.draft.add("DEQUANTIZE", [integers], [result])
    return result


def _from_blocks(draft: Draft, node: ir.Node) -> DraftTensor | None:
    """Return the real numbers that constants in blocks mean; None where they are no such constants."""
    name = node.outputs[0].name or "dequantized"
    blocks = blocks_of(node)
    if blocks is not None and blocks.is_small:
        return blocks.real_numbers(draft, name)
    numbers = folded(node) if node.attributes.get_int("block_size", 0) else None
    if numbers is None:
        return None
    dims = tuple(numbers.shape.numpy())
    return DraftTensor(draft.unique(name), TensorType.FLOAT32, dims, TensorContent(numbers))


def _scaled(graph: "GraphExport", node: ir.Node) -> DraftTensor:
    """Return what integers mean where no kernel knows: their distance from the zero point times the scale."""
    op = NodeExport(graph, node)
    number = op.cast(op.input(0), TensorType.FLOAT32)
    scales = [op.cast(op.input(slot), TensorType.FLOAT32) for slot in (1, 2) if op.has(slot)]
    axis, block, counts = op.axis(1), op.integer("block_size"), list(number.dims)
    if block:  # there is a scale for each block along an axis, or one for all
        extent = counts[axis] if counts else ""
        if isinstance(extent, int) and block > 0:
            counts[axis] = -(-extent // block)
        if block < 0 or any(scale.dims and [*scale.dims] != counts for scale in scales):
            raise Unwritable(f"scales or zero points that do not fit blocks of {block}")
    scales = [along_axis(op, scale) for scale in scales]
    if len(scales) > 1:
        number = op.sub(number, scales[1])
    return op.mul(number, scales[0])


def along_axis(op: NodeExport, scale: DraftTensor) -> DraftTensor:
    """Return scales or zero points stretched along the axis that they belong to; one for all stays as it is."""
    rank, axis, block = op.rank(), op.axis(1), op.integer("block_size")
    if block and len(scale.dims) == rank > 0:
        (extent,) = known(op.dims()[axis : axis + 1])
        return op.gather(scale, op.ints(np.arange(extent) // block), axis)
    if len(scale.dims) != 1 or not rank:
        return scale
    return op.reshape(scale, [scale.dims[0] if each == axis else 1 for each in range(rank)])
