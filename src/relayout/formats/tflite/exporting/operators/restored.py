"""Builtins that ONNX spells out, as the file that they were read from has them."""

from __future__ import annotations

from dataclasses import replace

from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.spelled_out import DOMAIN, RESTORABLE, RESTORABLE_CUSTOM, Builtin, Operand
from relayout.layout.stored_as import BATCH_FIRST


@exporter(*sorted(RESTORABLE | RESTORABLE_CUSTOM), domain=DOMAIN)
def restored(op: NodeExport) -> None:
    """The operator of the `.tflite` that the model was read from, its states kept as there; or one without options."""
    if not op.text("description"):  # a lowering wrote it
        op.result(op.op_type, op.inputs())
        return
    builtin = Builtin.parse(op.text("description"))
    if builtin is None or not op.node.meta.get(BATCH_FIRST):
        raise Unwritable("it was read from no .tflite")
    inputs = [None if each is None else _operand(op, slot, each) for slot, each in enumerate(builtin.inputs)]
    outputs = [op.output(slot) for slot in range(len(builtin.outputs))]
    results = [_result(op, output, each) for output, each in zip(outputs, builtin.outputs, strict=True)]
    made = op.draft.add(builtin.name, inputs, results, builtin.custom_options)
    made.is_restored = True
    made.options.update(builtin.options)
    if "time_major" in builtin.known_options:
        made.options["time_major"] = bool(op.integer("time_major"))
    made.intermediates = tuple(_tensor(op, each, "between") for each in builtin.intermediates)
    for result, output in zip(results, outputs, strict=True):
        if result is not output:
            op.graph.copy(result, output)


def _result(op: NodeExport, output: DraftTensor, operand: Operand) -> DraftTensor:
    """Return a result: a node's output, or what is copied there where others read the integers with another scale."""
    output.type = operand.type
    known = output.quantization
    if known is None or operand.quantization is None or operand.quantization.equals(known):
        output.quantization = operand.quantization
        return output
    return op.draft.tensor(f"{output.name}/restored", operand.type, output.dims, operand.quantization)


def _operand(op: NodeExport, slot: int, operand: Operand) -> DraftTensor:
    if not op.has(slot):
        tensor = _tensor(op, operand, "state")
        tensor.variable = True
        return tensor
    tensor = op.graph.integers.as_stated(op.value(slot), op.graph.tensor_of(op.value(slot)))
    if tensor.type != operand.type:
        raise Unwritable(f"elements of {tensor.type.name} where the file that it was read from has others")
    if operand.variable:
        variable = _tensor(op, operand, "state")
        variable.variable = True
        op.draft.add("UNPACK", [op.reshape(tensor, (1, *tensor.dims))], [variable], num=1, axis=0)
        return variable
    return _meant(op, tensor, operand.quantization)


def _meant(op: NodeExport, tensor: DraftTensor, meaning: Quantization | None) -> DraftTensor:
    """Return a tensor with the scale that the builtin has for it: a copy, if others read it with another scale."""
    known = tensor.quantization
    if known is meaning or (known is not None and meaning is not None and meaning.equals(known)):
        return tensor
    if tensor.data is not None:  # its own copy of what names the constant
        return replace(tensor, name=op.draft.unique(f"{tensor.name}/integers"), quantization=meaning)
    if known is None or meaning is None:
        tensor.quantization = meaning
        return tensor
    copied = op.draft.tensor(f"{tensor.name}/integers", tensor.type, tensor.dims, meaning)
    op.graph.copy(tensor, copied)
    return copied


def _tensor(op: NodeExport, operand: Operand, what: str) -> DraftTensor:
    return op.draft.tensor(f"{op.name}/{what}", operand.type, operand.shape, operand.quantization)
