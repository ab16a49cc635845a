"""The tensors that the kernels of quantized units write."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType, TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.container.versions import version
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.integers import IntegerTensors
from relayout.formats.tflite.exporting.older import is_older
from relayout.formats.tflite.exporting.units import UnitNodes
from relayout.formats.tflite.exporting.value_types import kernel_type, tensor_dims


class UnitResults:
    """The results of the quantized units of one graph.

    Args:
        draft: the subgraph under construction.
        integers: its integers.
        runtime: the oldest runtime that has to run it; "": any.
    """

    def __init__(self, draft: Draft, integers: IntegerTensors, runtime: str = "") -> None:
        self.draft, self.integers, self.runtime = draft, integers, runtime
        self.before: dict[ir.Value, DraftTensor] = {}
        """Output of a unit's node -> what its kernel gives, before a QUANTIZE."""
        self.unread: dict[ir.Value, DraftTensor] = {}
        """Output of a unit's node that nobody reads -> its integers."""

    def of(self, unit: UnitNodes, value: ir.Value) -> DraftTensor:
        """Return the tensor that a unit's kernel writes for an output of its node."""
        if unit.kernel is None:
            return self._integer_result(unit, value)
        if value not in self.before:
            scale, zero = unit.kernel
            kind = self._integer_result(unit, value).type
            meaning = Quantization(np.array([scale], np.float32), np.array([zero + _signed_offset(kind)], np.int64), 0)
            self.before[value] = self.draft.tensor(f"{value.name}/kernel", kind, tensor_dims(value), meaning)
        return self.before[value]

    def finish(self, unit: UnitNodes) -> None:
        """Write what a unit's kernel does besides, and what follows it."""
        for value in unit.node.outputs:
            given = self.of(unit, value)
            if unit.fused:
                self._activate(given, unit.fused)
            if unit.kernel is not None and (value.uses() or value.is_graph_output()):
                self.draft.add("QUANTIZE", [given], [self._integer_result(unit, value)])

    def _activate(self, given: DraftTensor, activation: ActivationFunctionType) -> None:
        """Let the kernel apply an activation, or an operator of its own where the runtime is older than that."""
        kernel = self._kernel(given)
        kernel.options["fused_activation_function"] = activation
        if self.runtime and is_older(self.runtime, kernel.name, version(*self.draft.described(kernel))):
            del kernel.options["fused_activation_function"]
            last = next(each for each in reversed(self.draft.operators) if given in each.outputs)
            before = self.draft.tensor(f"{given.name}/before", given.type, given.dims, given.quantization)
            last.outputs = [before if each is given else each for each in last.outputs]
            self.draft.add(activation.name, [before], [given])

    def _kernel(self, given: DraftTensor | None) -> DraftOperator:
        """Return the operator that computes a tensor: a convolution over one axis has a RESHAPE behind it."""
        operator = next(each for each in reversed(self.draft.operators) if given in each.outputs)
        return self._kernel(operator.inputs[0]) if operator.name == "RESHAPE" else operator

    def _integer_result(self, unit: UnitNodes, value: ir.Value) -> DraftTensor:
        """Return the integers that a unit's kernel gives: those of its QuantizeLinear, or some before a QUANTIZE."""
        source = value if unit.activation is None or _is_read_directly(unit, value) else unit.activation.outputs[0]
        if source not in unit.quantize:
            return self._unread(unit, value)
        quantize = unit.quantize[source][0]
        target = quantize.outputs[0]
        if target not in self.integers.by_value:
            scale, zero, axis = self.integers.scales(target, quantize)
            kind = kernel_type(target)
            signed, shift = self.integers.shifts.get(kind, (kind, 0))
            dims = tensor_dims(value)
            if target.is_graph_output() and shift:
                name = self.draft.unique(f"{target.name}/{signed.name.lower()}")
            else:
                name = target.name or "" if target.is_graph_output() else self.draft.unique(target.name or "integers")
            made = DraftTensor(name or "", signed, dims, quantization=Quantization(scale, zero - shift, axis))
            for each in unit.quantize[source]:
                self.integers.by_value[each.outputs[0]] = made
                self.integers.tensors[each.outputs[0]] = made
        return self.integers.by_value[target]

    def _unread(self, unit: UnitNodes, value: ir.Value) -> DraftTensor:
        """Return integers that nobody reads, of an operator that gives others, too: they mean what these mean."""
        if value not in self.unread:
            read = next(each for each in unit.node.outputs if each in unit.quantize)
            like = self._integer_result(unit, read)
            self.unread[value] = self.draft.tensor(f"{value.name}", like.type, tensor_dims(value), like.quantization)
        return self.unread[value]


def _is_read_directly(unit: UnitNodes, value: ir.Value) -> bool:
    """Return whether a QuantizeLinear reads an output of a unit's node itself, not that of its activation."""
    return value in unit.quantize


def _signed_offset(kind: TensorType) -> int:
    """Return how much higher integers lie than the signed ones of the same width."""
    return 128 if kind == TensorType.UINT8 else 0
